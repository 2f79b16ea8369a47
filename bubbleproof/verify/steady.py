"""Claimed times of a periodic schedule: whether they are a timeline for every number of blocks, and how long it is.

Written from docs/semantics.md, section "For every number of microbatches", theorem P4.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import BACKWARDS
from bubbleproof.schedules.pattern import Anchor, IndexedSlot, PeriodicSchedule, Segment, indexed_members
from bubbleproof.verify.growth import Growth

__all__ = ["Steady", "slot_duration", "steady"]


@dataclass(frozen=True)
class Steady:
    """What the claimed times of a pattern come to.

    Parameters
    ----------
    reason
        Why they are no timeline for some n; empty if they are one for every n ≥ ``pattern.least``.
    makespan, span
        Of the claimed timeline, as functions of n. The least of the order is not larger, for any n.
    all_last
        Whether every slot lasts longer than 0; then no order that has such a timeline has a deadlock.
    """

    reason: str
    makespan: Growth
    span: Growth
    all_last: bool


class _Line(NamedTuple):
    """``level + slope·n``."""

    level: int
    slope: int

    def __sub__(self, other: _Line) -> _Line:
        return _Line(self.level - other.level, self.slope - other.slope)

    def holds(self, least: int) -> bool:
        """Whether it is at least 0 for every n ≥ least."""
        return self.slope >= 0 and self.level + self.slope * least >= 0


class _Slot(NamedTuple):
    """A slot of a pattern with its times: its start in block b is ``start + per_n·n + per_block·b``."""

    name: str
    rank: int
    start: int
    per_n: int
    per_block: int
    lasts: int

    def at(self, block: int) -> _Line:
        """Start in a block counted from the first one."""
        return _Line(self.start + self.per_block * block, self.per_n)

    def before_end(self, back: int) -> _Line:
        """Start in the block `back` blocks before n."""
        return _Line(self.start - self.per_block * back, self.per_n + self.per_block)

    def after(self, line: _Line, more: int = 0) -> _Line:
        """When the slot has ended, if it starts by `line`, and `more` time has passed."""
        return _Line(line.level + self.lasts + more, line.slope)


class _Use(NamedTuple):
    """An op of a class: where it is anchored, its offset and its slot."""

    anchor: Anchor
    offset: int
    slot: _Slot


def slot_duration(slot: IndexedSlot, instance: Instance) -> int:
    """How long a slot lasts, in every block."""
    costs, ops = instance.costs, indexed_members(slot)
    if len(ops) == 2:
        together = costs.overlap_B if ops[1].kind == "B" else costs.overlap_BW
        if together is not None:
            return together[ops[0].stage] + costs.overhead
    return sum(costs.of(op.kind, op.stage) for op in ops)


def steady(pattern: PeriodicSchedule, instance: Instance) -> Steady:
    """Check the claimed times of a pattern under an instance, for every n ≥ ``pattern.least`` at once.

    Parameters
    ----------
    pattern
        One with times (`PeriodicSchedule.timed`); that it is complete for two n is for others to check (theorem P1).
    instance
        Placement, costs; its number of microbatches has no meaning.
    """
    rows = [[_slots(pattern, segment, rank, instance) for segment in row] for rank, row in enumerate(pattern.rows)]
    reason = ""
    if instance.costs.channel != "latency":
        reason = "messages occupy channels, which times for every n do not say"
    if not instance.placement.plain:
        reason = "the stages are no chain"
    if instance.costs.varying:
        reason = "durations differ from microbatch to microbatch"
    reason = reason or next(_late_slots(pattern, rows), "") or next(_late_inputs(pattern, rows, instance), "")
    begins, ends = [], []
    for row, slots in zip(pattern.rows, rows, strict=True):
        used = [(segment, found) for segment, found in zip(row, slots, strict=True) if found]
        if used:
            begins.append(_first(*used[0]))
            ends.append(used[-1][1][-1].after(_last(*used[-1])))
    whole = [end - begin for end in ends for begin in begins]
    each = [end - begin for end, begin in zip(ends, begins, strict=True)]
    all_last = all(slot.lasts > 0 for row in rows for found in row for slot in found)
    return Steady(reason, Growth.of(whole), Growth.of(each), all_last)


def _slots(pattern: PeriodicSchedule, segment: Segment, rank: int, instance: Instance) -> list[_Slot]:
    loop = segment.repeat != "once"
    return [
        _Slot(
            f"{pattern.text(slot)} of rank {rank}",
            rank,
            start,
            segment.per_n,
            segment.per_block if loop else 0,
            slot_duration(slot, instance),
        )
        for slot, start in zip(segment.slots, segment.starts or (), strict=True)
    ]


def _first(segment: Segment, slots: list[_Slot]) -> _Line:
    """Start of the first slot of a segment in its first round."""
    return slots[0].before_end(1) if segment.repeat == "down" else slots[0].at(0)


def _last(segment: Segment, slots: list[_Slot]) -> _Line:
    """Start of the last slot of a segment in its last round."""
    return slots[-1].before_end(1) if segment.repeat == "up" else slots[-1].at(0)


def _late_slots(pattern: PeriodicSchedule, rows: list[list[list[_Slot]]]) -> Iterator[str]:
    """Slots that start before the slot before them has ended."""
    for row, slots in zip(pattern.rows, rows, strict=True):
        before: tuple[_Slot, _Line] | None = None
        for segment, found in zip(row, slots, strict=True):
            if not found:
                continue
            begin = _first(segment, found)
            if before is not None and not (begin - before[0].after(before[1])).holds(pattern.least):
                yield f"{found[0].name} starts before {before[0].name} has ended"
            for one, two in itertools.pairwise(found):
                if two.start < one.start + one.lasts:
                    yield f"{two.name} starts before {one.name} has ended"
            if segment.repeat != "once":
                on = segment.per_block if segment.repeat == "up" else -segment.per_block
                if found[0].start + on < found[-1].start + found[-1].lasts:
                    yield f"{found[0].name} starts before {found[-1].name} of the block before has ended"
            before = found[-1], _last(segment, found)


def _late_inputs(pattern: PeriodicSchedule, rows: list[list[list[_Slot]]], instance: Instance) -> Iterator[str]:
    """Slots that start before their input has ended and travelled."""
    uses: dict[tuple[str, int, int], list[_Use]] = defaultdict(list)
    for row, slots in zip(pattern.rows, rows, strict=True):
        for segment, found in zip(row, slots, strict=True):
            for slot, timed in zip(segment.slots, found, strict=True):
                for op in indexed_members(slot):
                    kind = "G" if op.kind in BACKWARDS else op.kind
                    uses[kind, op.stage, op.route].append(_Use(op.anchor, op.offset, timed))
    for (letter, stage, route), mine in uses.items():
        inputs = []
        if letter == "F" and stage > 0:
            inputs = [("F", stage - 1)]
        elif letter == "G":
            inputs = [("F", stage), *([("G", stage + 1)] if stage + 1 < instance.stages else [])]
        elif letter == "W":
            inputs = [("G", stage)]
        for other, at in inputs:
            for source in uses.get((other, at, route), ()):
                travel = instance.costs.message(source.slot.rank, mine[0].slot.rank)
                for use in mine:
                    for least, waiting in _waits(source, use, pattern.steps[route], travel, pattern.least):
                        if not waiting.holds(least):
                            yield f"{use.slot.name} starts before its input {source.slot.name} is there"


def _waits(source: _Use, use: _Use, step: int, travel: int, least: int) -> Iterator[tuple[int, _Line]]:
    """(from, line): for each n ≥ from at which both name one microbatch, how much later than needed the use starts.

    Where they do so in a range of blocks, at both ends of it; between, the line lies between.
    """
    apart, rest = divmod(use.offset - source.offset, step)
    if rest:
        return
    one, two = source.slot, use.slot
    anchors = {source.anchor, use.anchor}
    if anchors == {"b"}:
        first, last = max(0, -apart), max(0, apart)  # the use's first block, and how many at the end it leaves out
        begin = max(least, 1 + abs(apart))
        yield begin, two.at(first) - one.after(one.at(first + apart), travel)
        yield begin, two.before_end(1 + last) - one.after(one.before_end(1 + last - apart), travel)
    elif len(anchors) == 1:
        if not apart:
            yield least, two.at(0) - one.after(one.at(0), travel)
    elif anchors == {"", "n"}:
        n = apart if source.anchor == "n" else -apart  # a join: they name one microbatch for this n only
        if n >= least:
            late = two.at(0) - one.after(one.at(0), travel)
            yield n, _Line(late.level + late.slope * n, 0)
    else:
        in_source = source.anchor == "b"
        block = apart if in_source else -apart  # from the first block on, or back from n where it is negative
        if "" in anchors and block >= 0:
            early, late = (one.at(block), two.at(0)) if in_source else (one.at(0), two.at(block))
            yield max(least, block + 1), late - one.after(early, travel)
        elif "n" in anchors and block < 0:
            early, late = one.at(0), two.at(0)
            if in_source:
                early = one.before_end(-block)
            else:
                late = two.before_end(-block)
            yield max(least, -block), late - one.after(early, travel)
