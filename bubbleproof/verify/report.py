"""What the judge says: a verdict, the violations, the assumptions, and the figures that it computed itself."""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

__all__ = ["ChannelFacts", "Facts", "Report", "Verdict", "Violation"]


@functools.total_ordering
class Verdict(enum.Enum):
    """The outcome of a check, the best first.

    `max` of several verdicts is the verdict of the whole. A verdict is not a truth value: asking it for one is an
    error, since UNKNOWN and BOUNDED are neither.
    """

    PROVED = "PROVED"
    BOUNDED = "BOUNDED"
    UNKNOWN = "UNKNOWN"
    VIOLATED = "VIOLATED"

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Verdict):
            return NotImplemented
        order = list(Verdict)
        return order.index(self) < order.index(other)

    def __bool__(self) -> NoReturn:
        raise TypeError("a verdict is no truth value; compare it with Verdict.PROVED")


@dataclass(frozen=True)
class Violation:
    """One broken rule at one place.

    Parameters
    ----------
    rule
        Stable id, such as V301.
    rank, position, op
        Where: the rank, the position in its order (from 0) and the op or pair in text form; None where no single one
        can be named.
    message
        One sentence with the values.
    witness
        The same as data: numbers, strings, lists and dicts only. That of a deadlock holds a picture.
    """

    rule: str
    rank: int | None
    position: int | None
    op: str | None
    message: str
    witness: Mapping[str, Any] | None = None

    def __str__(self) -> str:
        return f"{self.rule}: {self.message}"


@dataclass(frozen=True)
class Facts:
    """Figures that the judge computed from the order (and the claimed starts), never copied from a claim.

    Parameters
    ----------
    slots
        Number of slots in the schedule; a pair is one.
    makespan, span
        Of the timeline in which every slot starts as soon as possible, in the instance's unit of time; None if
        the schedule is incomplete or deadlocks.
    peak
        For each rank the highest level, the static amount included, in the unit of memory; None for a rank that runs
        other ops than it should.
    claimed_makespan, claimed_span
        Of the claimed starts, whether they hold or not; None if there is not one for each slot of a schedule that can
        be run.
    """

    slots: int
    makespan: int | None
    span: int | None
    peak: tuple[int | None, ...]
    claimed_makespan: int | None = None
    claimed_span: int | None = None


@dataclass(frozen=True)
class ChannelFacts:
    """Figures of a program under its channel model.

    Parameters
    ----------
    channel
        The model.
    transfers
        Number of sends and receives.
    makespan
        Last end − first start of the ops, everything as soon as rows, queues and data allow; None if the program
        does not run to its end, or is incomplete.
    stops
        For each rank the position of the first action that never ends when every transfer is taken as it stands; None
        for a rank that ends. A missing op counts as run.
    posted_receives
        For each rank the most receives that are posted and not yet used at one time.
    """

    channel: str
    transfers: int
    makespan: int | None
    stops: tuple[int | None, ...]
    posted_receives: tuple[int, ...]


@dataclass(frozen=True)
class Report:
    """The answer of the judge.

    Parameters
    ----------
    verdict
        PROVED or VIOLATED for a single schedule.
    violations
        At most `listed_per_rule` of each rule, in the order of the rules.
    counts
        For each broken rule how often it is broken, listed or not.
    rules
        The ids of the rules that were checked.
    assumptions
        What the verdict rests on and what was not checked, one sentence each.
    facts
        Figures, recomputed.
    advice
        Of a program: what is worth knowing and breaks nothing, under ids that begin with A.
    channel
        Of a program: figures under its channel model.
    order
        Of a program that cannot deadlock: the certificate, which `verify.channel_certificate` checks. One order of all
        actions as (rank, position), the send and the receive of a message together.
    """

    verdict: Verdict
    violations: tuple[Violation, ...]
    counts: Mapping[str, int]
    rules: tuple[str, ...]
    assumptions: tuple[str, ...]
    facts: Facts
    listed_per_rule: int
    format: str = "bubbleproof-report/1"
    advice: tuple[Violation, ...] = ()
    channel: ChannelFacts | None = None
    order: tuple[tuple[tuple[int, int], ...], ...] | None = None

    def to_json(self) -> bytes:
        """The report as canonical JSON: sorted keys, no blanks, equal reports give equal bytes."""
        import msgspec

        return msgspec.json.encode(self, order="sorted")

    def __str__(self) -> str:
        lines = [self.verdict.value]
        for rule in self.counts:
            listed = [violation for violation in self.violations if violation.rule == rule]
            for violation in listed:
                lines.append(str(violation))
                picture = (violation.witness or {}).get("picture")
                if picture:
                    lines.extend("    " + line for line in str(picture).splitlines())
            if self.counts[rule] > len(listed):
                lines.append(f"{rule}: {self.counts[rule] - len(listed)} more of this rule are not listed")
        lines.extend(f"{violation.rule} (advice): {violation.message}" for violation in self.advice)
        lines.extend(f"assumed: {sentence}" for sentence in self.assumptions)
        return "\n".join(lines)
