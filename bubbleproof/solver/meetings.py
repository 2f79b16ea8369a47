"""Schedules from patterns of meetings: the search that goes with the bound `crossing` of docs/bounds.md.

Below p microbatches of memory, forwards that climb and backwards that come down cannot all pass each other without
waiting. Where two meet is one integer per pair; a pattern of them says in which order every rank runs its forwards and
backwards. A beam goes through the patterns microbatch after microbatch and keeps those whose times are least by the
recurrence of the bound; the weight gradients are then put into the gaps, and early where memory asks for them.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from bubbleproof.schedules.instance import Instance
from bubbleproof.solver.flat import Flat, Orders
from bubbleproof.verify.crossing import FIRST, Crossings, State, crossings
from bubbleproof.verify.normal_form import Refused, Step

__all__ = ["from_meetings", "meetings", "pattern", "schedules"]

_Link = tuple["_Link | None", int]
"""The choices so far, the last one first: how many ranks from the end the two meet."""

_VARIATIONS = ((4, 0, 0), (30, 0, 0), (10, 0, 8), (10, 2, 8), (10, 4, 8), (10, 2, 0), (10, 8, 8), (200, 0, 0))
"""Beams, and by how many sixteenths of a weight gradient a turn and a lap are taken to be longer than they are."""

_MOST_STEPS = 200_000
"""Steps of the recurrence of the largest beam but the first."""

_STEPS_PER_EFFORT = 70_000
"""Steps of the recurrence per unit of effort; about a second on a common machine."""

_OPS_PER_EFFORT = 50_000
"""Ops timed and filled with weight gradients per unit of effort."""


def meetings(instance: Instance) -> Crossings | None:
    """What the patterns of an instance depend on; None if its orders do not come from patterns of meetings."""
    placement = instance.placement
    if not placement.plain or not instance.identical or instance.recompute:
        return None
    step = Step(instance)
    try:
        x = crossings(step, step.routes[0][1][0])
    except Refused:
        return None
    return x if x.cap < x.ranks else None  # with room for as many as ranks nothing has to wait


def schedules(flat: Flat, x: Crossings) -> Iterator[tuple[Orders | None, float]]:
    """Orders from patterns, narrow beams first, and the effort each has taken.

    Wider beams and other times stand in for what the recurrence leaves out: on the later ranks weight gradients need
    room too. With a longer lap or a longer turn the pattern leaves some.
    """
    count = flat.instance.microbatches - 1
    weight = flat.duration[2] if flat.width == 3 else 0
    before: list[list[list[int]]] = []
    for beam, longer_turn, longer_lap in _VARIATIONS:
        steps = beam * count * x.cap
        if before and steps > _MOST_STEPS:
            continue
        turn, lap = (weight * part // 16 for part in (longer_turn, longer_lap))
        varied = msgspec.structs.replace(x, turn=x.turn + turn, lap=x.lap + x.ranks * turn + lap)
        rows = pattern(varied, count, beam)
        effort = steps / _STEPS_PER_EFFORT
        if rows in before:
            yield None, effort
            continue
        before.append(rows)
        yield from_meetings(flat, rows), effort + flat.ops / _OPS_PER_EFFORT


def pattern(x: Crossings, count: int, beam: int) -> list[list[int]]:
    """The best pattern a beam finds.

    Parameters
    ----------
    count
        The last microbatch.
    beam
        Number of states kept.

    Returns
    -------
    list
        For each microbatch j, and each i of max(0, j − n + 1) … j − 1: on how many ranks, counted from the first, the
        forward of j is before the backward of i.
    """
    later = x.later(range(count + 1))
    states: list[tuple[State, _Link | None]] = [(FIRST, None)]
    for j in range(1, count + 1):
        oldest = max(0, j - x.cap + 1)
        gone = range(oldest - 1, oldest) if j >= x.cap else range(0)
        states = [(x.start(state, gone, 1, j), link) for state, link in states]
        for i in range(oldest, j):
            best: dict[State, _Link] = {}
            for state, link in states:
                for steps, new in x.meet(state, 1 + i - oldest, 0):
                    best.setdefault(new, (link, steps))
            rated = sorted((_least(x, new, j, oldest, later), sum(new[1:]), new) for new in best)
            states = [(new, best[new]) for _, _, new in rated[:beam]]
    rows = _rows(min(states, key=lambda each: each[0][-1])[1], x.cap, count)
    return _in_order([[x.ranks - steps for steps in row] for row in rows])


def _least(x: Crossings, state: State, j: int, oldest: int, later: list[int]) -> int:
    """Least value of the last microbatch after this state, in which forward j is the newest."""
    least = state[-1] + later[j]
    for i, value in enumerate(state[1:-1], start=oldest):
        if i + x.cap < len(later):
            least = max(least, value + x.back(i, i + x.cap) + later[i + x.cap])
    return least


def _rows(link: _Link | None, n: int, count: int) -> list[list[int]]:
    """The choices of each microbatch, in the order in which they were made."""
    flat: list[int] = []
    while link is not None:
        link, steps = link
        flat.append(steps)
    flat.reverse()
    rows, at = [], 0
    for j in range(count + 1):
        width = min(j, n - 1)
        rows.append(flat[at : at + width])
        at += width
    return rows


def _in_order(rows: list[list[int]]) -> list[list[int]]:
    """A pattern that orders can have: later backwards meet a forward later, and later forwards a backward earlier."""
    for j, row in enumerate(rows):
        first = j - len(row)
        before = j - 1 - len(rows[j - 1]) if j else 0
        for at in range(len(row)):
            i = first + at
            if at:
                row[at] = max(row[at], row[at - 1])
            if i < j - 1:
                row[at] = min(row[at], rows[j - 1][i - before])
    return rows


def from_meetings(flat: Flat, rows: list[list[int]]) -> Orders | None:
    """Orders with the forwards and backwards of a pattern, and the weight gradients in their gaps.

    Parameters
    ----------
    rows
        A pattern, for each microbatch.

    Returns
    -------
    Orders
        None if memory is too small for the pattern.
    """
    return _Filling(flat, [_sequence(rows, flat.stage[queues[0]]) for queues in flat.queues_of_rank]).go()


class _Filling:
    """Runs the forwards and backwards of a pattern as soon as they can, and weight gradients where they fit."""

    def __init__(self, flat: Flat, todo: list[list[int]]) -> None:
        self.flat, self.todo, self.split = flat, todo, flat.width == 3
        self.base = [queue // flat.width * flat.width for queue in (row[0] for row in flat.queues_of_rank)]
        self.at, self.free, self.level = ([0] * flat.ranks for _ in range(3))
        self.owed = [0] * flat.ranks
        self.count = [[0, 0] for _ in range(flat.ranks)]
        self.ends: list[list[int]] = [[] for _ in flat.rank]
        self.orders: Orders = [[] for _ in range(flat.ranks)]

    def go(self) -> Orders | None:
        """The orders; None if memory is too small."""
        left = {rank: self.ready(rank) for rank in range(self.flat.ranks)}
        while left:
            known = [(max(ready, self.free[rank]), rank) for rank, ready in left.items() if ready is not None]
            if not known:
                return None
            start, rank = min(known)
            queue = self.run(rank, start)
            if queue is None:
                return None
            for other in {rank, *(self.flat.rank[target] for target, _ in self.flat.outputs[queue])}:
                if other in left:
                    left[other] = self.ready(other)
                    if self.at[other] == len(self.todo[other]):
                        del left[other]
        for rank in range(self.flat.ranks):
            while self.owed[rank]:
                self.weigh(rank)
        return self.orders

    def ready(self, rank: int) -> int | None:
        """When the next forward or backward of a rank could start; None if that is not known yet."""
        if self.at[rank] == len(self.todo[rank]):
            return None
        kind = self.todo[rank][self.at[rank]]
        k = self.count[rank][kind]
        inputs = self.flat.inputs[self.base[rank] + kind]
        if any(len(self.ends[queue]) <= k for queue, _ in inputs):
            return None
        return max((self.ends[queue][k] + delay for queue, delay in inputs), default=0)

    def run(self, rank: int, start: int) -> int | None:
        """Run the next forward or backward and return its queue; None if memory is too small for it."""
        flat = self.flat
        kind = self.todo[rank][self.at[rank]]
        queue = self.base[rank] + kind
        room = None if flat.cap is None else flat.cap[rank] - max(flat.change[queue], 0)
        while self.owed[rank] and (
            self.free[rank] + flat.duration[self.base[rank] + 2] <= start
            or (room is not None and self.level[rank] > room)
        ):
            self.weigh(rank)
        if room is not None and self.level[rank] > room:
            return None
        self.free[rank] = max(start, self.free[rank]) + flat.duration[queue]
        self.level[rank] += flat.change[queue]
        self.ends[queue].append(self.free[rank])
        self.orders[rank].append(queue)
        self.count[rank][kind] += 1
        self.at[rank] += 1
        self.owed[rank] += kind if self.split else 0
        return queue

    def weigh(self, rank: int) -> None:
        """Run a weight gradient now."""
        queue = self.base[rank] + 2
        self.free[rank] += self.flat.duration[queue]
        self.level[rank] += self.flat.change[queue]
        self.orders[rank].append(queue)
        self.owed[rank] -= 1


def _sequence(rows: list[list[int]], rank: int) -> list[int]:
    """Forwards (0) and backwards (1) of a rank in the order of the pattern."""
    found, begun = [], 0
    for i in range(len(rows)):
        last = i
        while last + 1 < len(rows):
            row = rows[last + 1]
            at = i - (last + 1 - len(row))
            if at < 0 or at >= len(row) or row[at] <= rank:
                break
            last += 1
        found += [0] * (last + 1 - begun) + [1]
        begun = max(begun, last + 1)
    return found
