"""What a solve gives back: the schedule, its timeline, and the record of how good it is and how that is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Protocol, TypeAlias

import msgspec

from bubbleproof.schedules.errors import BubbleproofError
from bubbleproof.schedules.instance import Objective
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import Timeline
from bubbleproof.verify.certificate import Certificate

__all__ = [
    "FamilyResult",
    "InternalError",
    "Level",
    "OnProgress",
    "Progress",
    "Proved",
    "Record",
    "Solution",
    "Stopped",
    "gap",
]

Stopped: TypeAlias = Literal["proved", "effort", "time", "interrupted", "running"]

Then: TypeAlias = Literal["peak", "splits"]
"""A second objective."""

Level: TypeAlias = Literal["certified", "proof-checked", "solver-claimed", "open"]


class InternalError(BubbleproofError):
    """The judge refused a schedule that the solver was about to hand out. A bug; nothing the user gave is wrong."""


class FamilyResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One family on the solved instance, under the same cap.

    Parameters
    ----------
    value
        Makespan or span, whichever the instance minimises; None if the family cannot be built.
    peak
        The most memory of any rank, static part included; None if it cannot be built.
    reason
        Why it does not count: its preconditions, or the rank that it takes above the cap. Empty if it counts.
    """

    name: str
    value: int | None
    peak: int | None
    reason: str = ""


class Proved(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A proof that the judge's checker has accepted: no schedule has an objective of `length` or less.

    Parameters
    ----------
    solver
        Who wrote it; ``none`` if the windows of the model were enough.
    variables, constraints
        The size of the model that is refuted.
    inferences, nogoods, bytes
        The size of the proof.
    milliseconds, checked_in
        Wall time of the solver, and of the checker.
    """

    length: int
    solver: str
    variables: int
    constraints: int
    inferences: int
    nogoods: int
    bytes: int
    milliseconds: int
    checked_in: int


class Second(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A second objective: how good the schedule is among those of the best value known.

    Parameters
    ----------
    name
        ``peak``: the largest peak of all ranks. ``splits``: how many backwards are split.
    value, bound
        What was reached, and what no schedule of that value (and as good in the second objectives before this one) can
        beat.
    level
        As in `Record`, never better than that of what comes before; ``open`` unless bound and value meet.
    certificate
        For the peak: of the lower bound that exceeds the value under the next lower cap, if that is what proves it.
    """

    name: Then
    value: int
    bound: int
    level: Level
    certificate: Certificate | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How good a solution is, and how that is known. Times in the instance's unit, all integers.

    Parameters
    ----------
    value, bound
        What was reached, and what no schedule can beat.
    gap
        ``value/bound − 1`` as an exact fraction in text; ``0`` if they are equal.
    level
        ``certified``: a certificate that `verify` checks without a solver gives the value. ``proof-checked``: a proof
        that the judge's checker has accepted does. ``solver-claimed``: CP-SAT reports that nothing below is possible.
        ``open``: none of these.
    proof
        Where the bound comes from: the rule of the certificate, ``proof-log`` or ``cp-sat``.
    certificate
        The best certificate, also when CP-SAT has proved more.
    source
        Which part of the solver, or which family, found the schedule.
    seconds, milliseconds
        Wall time of the solve, rounded up to whole seconds, and in milliseconds.
    stopped
        ``proved``; ``effort``: nothing was left to try, or, with one worker, the counted effort was used up; ``time``
        or ``interrupted``. ``running``: the search goes on, this is the best so far.
    notes
        What the reader must know to read the numbers right.
    refutation
        The proof that was asked for, without its lines.
    then
        The second objectives that were asked for, in their order.
    """

    objective: Objective
    value: int
    bound: int
    gap: str
    level: Level
    proof: str
    certificate: Certificate | None
    source: str
    makespan: int
    span: int
    peak: tuple[int, ...]
    seconds: int
    milliseconds: int
    stopped: Stopped
    seed: int
    workers: int
    versions: dict[str, str]
    families: tuple[FamilyResult, ...]
    notes: tuple[str, ...] = ()
    refutation: Proved | None = None
    then: tuple[Second, ...] = ()


class Answer(Protocol):
    """A schedule and its timeline; they may be made when they are asked for."""

    @property
    def schedule(self) -> Schedule:
        """The schedule."""

    @property
    def timeline(self) -> Timeline:
        """Its timeline."""


@dataclass(frozen=True)
class Solution:
    """A verified schedule with its timeline and its record.

    For the objective ``span`` the timeline is the one of least span among all timelines of the schedule's order.

    Parameters
    ----------
    answer
        Schedule and timeline. Of many microbatches they were judged as arrays, and their ops are made when asked for.
    proof
        The lines of the proof, if one was asked for and found; `bubbleproof.verify.proof.check_proof` checks them.
    """

    answer: Answer
    record: Record
    proof: tuple[str, ...] | None = None

    @property
    def schedule(self) -> Schedule:
        """The schedule."""
        return self.answer.schedule

    @property
    def timeline(self) -> Timeline:
        """Its timeline."""
        return self.answer.timeline


@dataclass(frozen=True)
class Progress:
    """A better schedule or a better bound.

    Parameters
    ----------
    milliseconds
        Since the solve began.
    value
        Best value so far; None before the first schedule.
    bound
        Best bound so far.
    source
        What found it.
    """

    milliseconds: int
    value: int | None
    bound: int
    source: str


OnProgress: TypeAlias = Callable[[Progress], None]


def gap(value: int, bound: int) -> Fraction:
    """How far a value may be from the optimum: value/bound − 1, and 0 if both are 0."""
    return Fraction(value, bound) - 1 if bound else Fraction(0)
