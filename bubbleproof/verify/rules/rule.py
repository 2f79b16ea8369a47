"""What a rule is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from bubbleproof.verify.case import Case
from bubbleproof.verify.report import Violation

__all__ = ["AnyRule", "Rule", "other_ranks", "rule"]

C = TypeVar("C", bound=Case)


@dataclass(frozen=True)
class Rule(Generic[C]):
    """A rule about cases of one sort: a stable id, a short name, and a generator of its violations.

    Parameters
    ----------
    example
        A smallest thing that breaks the rule, in words or as the rows of a program.
    seen
        Who was bitten: public reports.
    idle
        Tells why the rule has nothing to check in a case, as a sentence for the report's assumptions; "" if it has.
    """

    id: str
    name: str
    check: Callable[[C], Iterator[Violation]]
    idle: Callable[[C], str]
    example: str = ""
    seen: str = ""

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


def rule(
    identity: str, name: str, *, idle: Callable[[C], str] = _never_idle, example: str = "", seen: str = ""
) -> Callable[[Callable[[C], Iterator[Violation]]], Rule[C]]:
    """Make a rule of a generator of violations; its docstring states the rule in its first sentence."""

    def make(check: Callable[[C], Iterator[Violation]]) -> Rule[C]:
        return Rule(identity, name, check, idle, example, seen)

    return make


AnyRule: TypeAlias = Rule[Any]
