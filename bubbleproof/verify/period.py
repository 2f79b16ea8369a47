"""Guessing the periodic form of a schedule from its orders for two numbers of microbatches.

Nothing here is trusted: what is found is only used after it has been compared with what the generator makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from bubbleproof.schedules.errors import ScheduleError
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Op
from bubbleproof.schedules.pattern import IndexedOp, IndexedSlot, PeriodicSchedule, Segment, indexed_members
from bubbleproof.schedules.schedule import Schedule

__all__ = ["guess"]

_Row: TypeAlias = tuple[IndexedSlot, ...]


@dataclass
class _Part:
    """Slots that occur once, or the first round of a loop and how many rounds it has."""

    slots: list[IndexedSlot]
    repeat: Literal["once", "up", "down"] = "once"
    rounds: int = 0


def guess(
    small: tuple[Schedule, Instance], large: tuple[Schedule, Instance], steps: tuple[int, ...]
) -> PeriodicSchedule | None:
    """A pattern that has both schedules among its own, or None.

    Parameters
    ----------
    small, large
        Schedules with their instances; `large` has ``steps[r]`` microbatches more on each route r. Both should be long
        compared with what does not repeat in them: a loop must fill half of the microbatches to be seen.
    """
    needed = max(3, small[1].microbatches // sum(steps) // 2)
    sizes = {schedule.ranks for schedule, _ in (small, large)}
    if "R" in small[0].kinds | large[0].kinds:
        return None  # theorems P1 and P3 are about schedules without recompute
    if len(sizes) > 1 or not all(_known(*each) for each in (small, large)):
        return None
    counts = tuple(small[1].route_of_microbatch.count(route) for route in range(len(steps)))
    pairs: list[tuple[list[_Part], list[_Part]]] = []
    for one, two in zip(_rows(*small), _rows(*large), strict=True):
        longest = len(two) - len(one)
        first = _parts(one, steps, needed, longest)
        second = _parts(two, steps, needed, longest) if first else None
        if first is None or second is None or not _alike(first, second):
            return None
        pairs.append((first, second))
    blocks = min((part.rounds for first, _ in pairs for part in first if part.repeat != "once"), default=0)
    if not blocks:
        return None
    try:
        rows = [_segments(first, second, steps, blocks) for first, second in pairs]
        bases = tuple(count - step * blocks for count, step in zip(counts, steps, strict=True))
        return PeriodicSchedule(tuple(map(tuple, rows)), steps, bases, 1, small[0].name)
    except ScheduleError:
        return None


def _known(schedule: Schedule, instance: Instance) -> bool:
    """Whether the instance has every microbatch that occurs."""
    return all(0 <= op.microbatch < instance.microbatches for _, _, op in schedule.ops())


def _rows(schedule: Schedule, instance: Instance) -> list[_Row]:
    """The orders with each microbatch as its index on its route."""
    seen = [0] * len(instance.placement.routes)
    place = []
    for route in instance.route_of_microbatch:
        place.append((route, seen[route]))
        seen[route] += 1

    def indexed(op: Op) -> IndexedOp:
        route, index = place[op.microbatch]
        return IndexedOp(op.kind, op.stage, route, "", index)

    return [
        tuple(indexed(slot) if isinstance(slot, Op) else (indexed(slot[0]), indexed(slot[1])) for slot in order)
        for order in schedule.orders
    ]


def _moved(slot: IndexedSlot, steps: tuple[int, ...], blocks: int) -> IndexedSlot:
    """The slot some blocks later."""
    ops = [op._replace(offset=op.offset + blocks * steps[op.route]) for op in indexed_members(slot)]
    return ops[0] if len(ops) == 1 else (ops[0], ops[1])


def _parts(row: _Row, steps: tuple[int, ...], needed: int, longest: int) -> list[_Part] | None:
    """Cut a row into loops of at least `needed` rounds and what is between them; None if there is no loop."""
    later = {"up": [_moved(slot, steps, 1) for slot in row], "down": [_moved(slot, steps, -1) for slot in row]}
    where = {slot: position for position, slot in enumerate(row)}
    parts = [_Part([])]
    at = 0
    while at < len(row):
        best = _Part([])
        repeats: tuple[Literal["up", "down"], ...] = ("up", "down")
        for repeat in repeats:
            length = where.get(later[repeat][at], at) - at
            if not 1 <= length <= longest:
                continue
            end = at
            while end + length < len(row) and row[end + length] == later[repeat][end]:
                end += 1
            rounds = (end - at) // length + 1
            if rounds >= needed and rounds * length > best.rounds * len(best.slots):
                best = _Part(list(row[at : at + length]), repeat, rounds)
        if best.rounds:
            parts += [best, _Part([])]
            at += best.rounds * len(best.slots)
        else:
            parts[-1].slots.append(row[at])
            at += 1
    return parts if len(parts) > 1 else None


def _alike(first: Sequence[_Part], second: Sequence[_Part]) -> bool:
    """Whether two rows differ by one round of each loop."""
    return len(first) == len(second) and all(
        one.repeat == two.repeat
        and len(one.slots) == len(two.slots)
        and (one.repeat == "once" or two.rounds == one.rounds + 1)
        for one, two in zip(first, second, strict=True)
    )


def _segments(first: Sequence[_Part], second: Sequence[_Part], steps: tuple[int, ...], blocks: int) -> list[Segment]:
    """The segments of a row whose loops all have the same number of rounds: what is too much comes after them.

    Raises
    ------
    ScheduleError
        Some microbatch moved neither with the start nor with the end.
    """
    found: list[Segment] = []
    once: list[IndexedSlot] = []
    for one, two in zip(first, second, strict=True):
        if one.repeat == "once":
            once += [_anchored(a, b, steps, blocks) for a, b in zip(one.slots, two.slots, strict=True)]
            continue
        # the body for block 0: a descending loop begins with its last block
        backs = (0, 0) if one.repeat == "up" else (1 - one.rounds, 1 - two.rounds)
        low = [_moved(slot, steps, backs[0]) for slot in one.slots]
        if low != [_moved(slot, steps, backs[1]) for slot in two.slots]:
            raise ScheduleError("the loop does not begin at the first microbatches")
        rest = [[_with(_moved(slot, steps, x), "n") for slot in low] for x in range(one.rounds - blocks)]
        if one.repeat == "down":
            once += [slot for body in reversed(rest) for slot in body]
        found += [Segment(tuple(once)), Segment(tuple(_with(slot, "b") for slot in low), one.repeat)]
        once = [slot for body in rest for slot in body] if one.repeat == "up" else []
    found.append(Segment(tuple(once)))
    return [segment for segment in found if segment.slots]


def _with(slot: IndexedSlot, anchor: Literal["b", "n"]) -> IndexedSlot:
    ops = [op._replace(anchor=anchor) for op in indexed_members(slot)]
    return ops[0] if len(ops) == 1 else (ops[0], ops[1])


def _anchored(one: IndexedSlot, two: IndexedSlot, steps: tuple[int, ...], blocks: int) -> IndexedSlot:
    """A slot outside loops, from its two forms: what did not move counts from the start, what did from the end."""
    ops = []
    for a, b in zip(indexed_members(one), indexed_members(two), strict=True):
        step = steps[a.route]
        if a == b:
            ops.append(a)
        elif b == a._replace(offset=a.offset + step):
            ops.append(a._replace(anchor="n", offset=a.offset - step * blocks))
        else:
            raise ScheduleError(f"{a} became {b}")
    return ops[0] if len(ops) == 1 else (ops[0], ops[1])
