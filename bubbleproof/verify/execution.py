"""Running a schedule step by step: the earliest starts, where it stops, the levels of memory.

Written from docs/semantics.md: execution and theorem 1, theorem 2 for the earliest starts, the prefix sums of memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bubbleproof.schedules.op import Op, members
from bubbleproof.verify.place import Place
from bubbleproof.verify.wires import Wires

if TYPE_CHECKING:
    from bubbleproof.verify.case import Case

__all__ = ["Run", "execute", "extent", "levels"]


@dataclass(frozen=True)
class Run:
    """A maximal execution.

    Parameters
    ----------
    starts
        For each rank the earliest start of each slot that can run.
    stopped
        For each rank the position at which it waits for ever; None for a rank that ends.
    """

    starts: tuple[tuple[int, ...], ...]
    stopped: tuple[int | None, ...]

    @property
    def deadlock(self) -> bool:
        """Whether some rank never ends."""
        return any(position is not None for position in self.stopped)


def execute(case: Case) -> Run:
    """Run every rank as far as it gets, each slot as soon as its rank and its inputs allow.

    Time and memory are linear in the number of slots and dependencies: a rank that waits is looked at again only
    when the slot it waits for has run.
    """
    ranks = range(case.schedule.ranks)
    starts: list[list[int]] = [[] for _ in ranks]
    free = [0] * len(starts)
    asleep: dict[tuple[int, int], list[int]] = {}
    wires = Wires(case)
    awake = list(ranks)
    while awake:
        rank = awake.pop()
        durations, waits, mine = case.durations[rank], case.waits[rank], starts[rank]
        while len(mine) < len(durations):
            position = len(mine)
            start = free[rank]
            blocked: tuple[int, int] | None = None
            for need in waits[position]:
                source_rank, source_position = need.source
                if source_position >= len(starts[source_rank]):
                    blocked = need.source
                    break
                end = starts[source_rank][source_position] + case.durations[source_rank][source_position]
                start = max(start, wires.arrival(need, end))
            if blocked is not None:
                asleep.setdefault(blocked, []).append(rank)
                break
            mine.append(start)
            free[rank] = start + durations[position]
            wires.ended(Place(rank, position), free[rank])
            awake.extend(asleep.pop((rank, position), ()))
    return Run(
        tuple(map(tuple, starts)),
        tuple(
            len(done) if len(done) < len(durations) else None
            for done, durations in zip(starts, case.durations, strict=True)
        ),
    )


def extent(case: Case, starts: Sequence[Sequence[int]]) -> tuple[int, int]:
    """Makespan and span of one start for every slot of a complete schedule. The starts may be in any order.

    Transfers and collectives that stand among the slots do not count: a rank begins with its first op.
    """
    firsts, lasts = [], []
    for row, durations, order in zip(starts, case.durations, case.schedule.orders, strict=True):
        ops = [
            (start, start + duration)
            for start, duration, slot in zip(row, durations, order, strict=True)
            if members(slot)
        ]
        if ops:
            firsts.append(min(start for start, _ in ops))
            lasts.append(max(end for _, end in ops))
    return max(lasts) - min(firsts), max(last - first for first, last in zip(firsts, lasts, strict=True))


def levels(case: Case, rank: int) -> Iterator[tuple[int, Op, int]]:
    """(position, op, level after its change) of every change on one rank, in its order.

    F and R change the level at their start, a backward at its end; in a pair that is the order of the two.
    """
    level = case.instance.memory.static[rank]
    for position, slot in enumerate(case.schedule.orders[rank]):
        for op in members(slot):
            level += case.change(op)
            yield position, op, level
