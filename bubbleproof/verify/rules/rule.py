"""What a rule is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from bubbleproof.verify.case import Case
from bubbleproof.verify.report import Violation

__all__ = ["Check", "Rule", "other_ranks", "rule"]

Check: TypeAlias = Callable[[Case], Iterator[Violation]]


@dataclass(frozen=True)
class Rule:
    """A rule: a stable id, a short name, and a generator of its violations.

    Parameters
    ----------
    idle
        Tells why the rule has nothing to check in a case, as a sentence for the report's assumptions; "" if it has.
    """

    id: str
    name: str
    check: Check
    idle: Callable[[Case], str]

    @property
    def statement(self) -> str:
        """The rule in one sentence."""
        return self._paragraphs[0]

    @property
    def remarks(self) -> tuple[str, ...]:
        """Why, and from where: the paragraphs after the statement."""
        return tuple(self._paragraphs[1:])

    @property
    def _paragraphs(self) -> list[str]:
        text = self.check.__doc__ or ""
        return [" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n")]


def other_ranks(case: Case) -> str:
    """Why nearly all rules are idle where orders and ranks do not even match in number."""
    return (
        ""
        if case.same_ranks
        else "Only the number of ranks was checked; in orders for other ranks nothing means anything."
    )


def _never_idle(case: Case) -> str:
    return ""


def rule(identity: str, name: str, *, idle: Callable[[Case], str] = _never_idle) -> Callable[[Check], Rule]:
    """Make a rule of a generator of violations; its docstring states the rule in its first sentence."""

    def make(check: Check) -> Rule:
        return Rule(identity, name, check, idle)

    return make
