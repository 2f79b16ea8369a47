"""Whether a periodic schedule is right for every number of blocks: a finite check that is enough, and the check.

Written from docs/semantics.md, section "For every number of microbatches": theorem P1 for completeness, theorems P2
and P4 for deadlock, theorem P3 for memory and P4 for times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from bubbleproof.schedules.instance import MAX_STAGE_MICROBATCHES, Instance
from bubbleproof.schedules.op import BACKWARDS
from bubbleproof.schedules.pattern import Anchor, PeriodicSchedule, indexed_members
from bubbleproof.verify.growth import Growth
from bubbleproof.verify.judge import verify
from bubbleproof.verify.report import Report, Verdict
from bubbleproof.verify.steady import Steady, steady

__all__ = ["Growth", "Induction", "cutoff", "growth", "induct"]

MOST_SLOTS = 20_000_000
"""Slots that are judged at most before the answer is UNKNOWN."""


@dataclass(frozen=True)
class Induction:
    """What was found about a periodic schedule.

    Parameters
    ----------
    verdict
        PROVED: every rule holds for every n ≥ ``pattern.least``. VIOLATED: not for `n`. UNKNOWN: the check would take
        too long.
    checked
        All n from ``pattern.least`` to this one were judged; the theorems carry on from there.
    peaks
        For each rank its peak as a function of n; () if the pattern is not complete.
    makespan, span
        What the claimed times come to, as functions of n, which the earliest starts do not exceed; None if no times are
        claimed.
    n, report
        The smallest n whose schedule breaks a rule, and what the judge says of it; no report if it is too large.
    """

    verdict: Verdict
    pattern: PeriodicSchedule
    checked: int
    peaks: tuple[Growth, ...] = ()
    n: int | None = None
    report: Report | None = None
    reason: str = ""
    makespan: Growth | None = None
    span: Growth | None = None


class _Group(NamedTuple):
    """Ops of one class on one rank that are anchored alike and whose offsets have the same remainder by the step."""

    rank: int
    anchor: Anchor
    remainder: int


_Ends: TypeAlias = tuple[int, int]
"""The least and the greatest offset of a group."""


def _groups(pattern: PeriodicSchedule) -> dict[tuple[str, int, int], dict[_Group, _Ends]]:
    """The groups of each class: F, G (backward in either form) or W; stage; route."""
    found: dict[tuple[str, int, int], dict[_Group, _Ends]] = defaultdict(dict)
    for rank, row in enumerate(pattern.rows):
        for op in (op for segment in row for slot in segment.slots for op in indexed_members(slot)):
            groups = found["G" if op.kind in BACKWARDS else op.kind, op.stage, op.route]
            group = _Group(rank, op.anchor, op.offset % pattern.steps[op.route])
            low, high = groups.get(group, (op.offset, op.offset))
            groups[group] = min(low, op.offset), max(high, op.offset)
    return found


def _dependencies(
    pattern: PeriodicSchedule, stages: int
) -> Iterator[tuple[tuple[_Group, _Ends], tuple[_Group, _Ends], int]]:
    """(inputs, ops, step) for every two groups with dependencies between them."""
    groups = _groups(pattern)
    for (letter, stage, route), found in groups.items():
        inputs = []
        if letter == "F" and stage > 0:
            inputs = [("F", stage - 1)]
        elif letter == "G":
            inputs = [("F", stage), *([("G", stage + 1)] if stage + 1 < stages else [])]
        elif letter == "W":
            inputs = [("G", stage)]
        for other, at in inputs:
            for source in groups.get((other, at, route), {}).items():
                for group in found.items():
                    if source[0].remainder == group[0].remainder:
                        yield source, group, pattern.steps[route]


def _distance(one: tuple[Anchor, _Ends], two: tuple[Anchor, _Ends], step: int) -> tuple[int, int]:
    """(most blocks that a dependency between two groups covers, the last n at which one joins the start to the end).

    The first is 0 and the second −1 if there is none.
    """
    (first, ends), (second, others) = sorted((one, two), key=lambda group: group[0])  # "" before "b" before "n"
    if first == second != "b":
        return 0, -1
    if first == second:
        return max(ends[1] - others[0], others[1] - ends[0]) // step + 1, -1
    blocks = (ends[1] - others[0]) // step
    if (first, second) == ("", "n"):
        return 0, blocks
    return max(0, blocks + 1 if first == "" else blocks), -1


def cutoff(pattern: PeriodicSchedule, stages: int) -> int:
    """The n* of theorem P2, and at least one more than the smallest n, as theorem P1 asks for.

    If the schedule for n* blocks has no deadlock, none for more blocks has one.
    """
    into: dict[int, int] = defaultdict(int)
    inside = joins = 0
    for (source, ends), (group, others), step in _dependencies(pattern, stages):
        covered, join = _distance((source.anchor, ends), (group.anchor, others), step)
        joins = max(joins, join)
        if source.rank == group.rank:
            inside = max(inside, covered)
        else:
            into[group.rank] = max(into[group.rank], covered)
    for slot in (slot for row in pattern.rows for segment in row for slot in segment.slots):
        a, *rest = indexed_members(slot)
        for b in rest:
            if a.route == b.route:
                one, two = ((op.anchor, (op.offset, op.offset)) for op in (a, b))
                joins = max(joins, _distance(one, two, pattern.steps[a.route])[1])
    return max(sum(into.values()), inside, joins, pattern.least + 1)


def growth(pattern: PeriodicSchedule, instance: Instance) -> tuple[Growth, ...]:
    """Theorem P3: the peak of each rank as a function of n, the static amount included; for n ≥ 1."""
    memory = instance.memory
    found = []
    for static, row in zip(memory.static, pattern.rows, strict=True):
        level, slope = static, 0
        lines = {(level, slope)}
        for segment in row:
            net = 0
            inner = []
            for slot in segment.slots:
                for op in indexed_members(slot):
                    net += memory.of(op.kind, op.stage)
                    inner.append(net)
            if segment.repeat == "once":
                lines.update((level + change, slope) for change in inner)
                level += net
            else:  # the first round, and the last, which stands on n − 1 rounds
                lines.update((level + change, slope) for change in inner)
                lines.update((level - net + change, slope + net) for change in inner)
                slope += net
        found.append(Growth.of(lines))
    return tuple(found)


def induct(pattern: PeriodicSchedule, instance: Instance, *, most_slots: int = MOST_SLOTS) -> Induction:
    """Decide whether every schedule of a pattern, for n ≥ ``pattern.least``, obeys every rule under an instance.

    Parameters
    ----------
    instance
        Placement, costs, memory and caps; its number of microbatches has no meaning.
    most_slots
        Slots that are judged at most; the answer is UNKNOWN where more are needed.

    Raises
    ------
    InstanceError
        The pattern has other routes than the placement, the stages are no chain, or the instance cannot be.
    """
    instance.placement.need_plain("a proof for every number of microbatches")
    times = steady(pattern, instance) if pattern.timed else None
    if times is not None and times.reason:
        return Induction(Verdict.VIOLATED, pattern, pattern.least, reason=f"claimed times: {times.reason}")
    found = _induct(pattern, instance, most_slots, times)
    return found if times is None else replace(found, makespan=times.makespan, span=times.span)


def _induct(pattern: PeriodicSchedule, instance: Instance, most_slots: int, times: Steady | None) -> Induction:
    last = cutoff(pattern, instance.stages)
    if times is not None and times.all_last:
        last = pattern.least + 1  # theorem P4: no deadlock; what is left is theorem P1
    slots = sum(len(segment.slots) for row in pattern.rows for segment in row)
    too_long = (last - pattern.least + 1) * (last + 1) * slots > 2 * most_slots
    if too_long or pattern.microbatches(last) * instance.stages > MAX_STAGE_MICROBATCHES:
        reason = f"every m up to {pattern.microbatches(last)} would have to be judged, which takes too long"
        return Induction(Verdict.UNKNOWN, pattern, pattern.least, reason=reason)
    for n in range(pattern.least, last + 1):
        at = pattern.instance(instance, n)
        report = verify(pattern.schedule(n), at)
        if report.verdict != Verdict.PROVED:
            complete = not any(rule.startswith("V1") for rule in report.counts)
            peaks = growth(pattern, instance) if complete else ()
            return Induction(Verdict.VIOLATED, pattern, n, peaks, n, report)
    peaks = growth(pattern, instance)
    caps = instance.memory.cap or ()
    firsts = [peak.first_above(cap, pattern.least) for cap, peak in zip(caps, peaks, strict=False)]
    over = min((first for first in firsts if first is not None), default=None)
    if over is None:
        return Induction(Verdict.PROVED, pattern, last, peaks)
    above = None
    if pattern.microbatches(over) * instance.stages <= MAX_STAGE_MICROBATCHES // 10:
        above = verify(pattern.schedule(over), pattern.instance(instance, over))
    return Induction(Verdict.VIOLATED, pattern, last, peaks, over, above)
