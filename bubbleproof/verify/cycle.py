"""A deadlock's shortest cycle: the one with the fewest waits (docs/semantics.md, section 2)."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from bubbleproof.verify.case import Case, Need
from bubbleproof.verify.execution import Run

__all__ = ["shortest_cycle"]


class _Reach(NamedTuple):
    """What the first slots of one rank need of another: from `positions[i]` on, the slot that `needs[i]` names."""

    positions: list[int]
    needs: list[Need]

    def at(self, position: int) -> Need | None:
        """The need with the last source among those of the slots up to a position."""
        index = bisect_right(self.positions, position) - 1
        return self.needs[index] if index >= 0 else None


class _WaitGraph:
    """For each rank r and each other rank q the function g(r, q) of docs/semantics.md, as a staircase."""

    def __init__(self, case: Case) -> None:
        self.of_rank: list[dict[int, _Reach]] = []
        for row in case.waits:
            stairs: dict[int, _Reach] = {}
            for position, needs in enumerate(row):
                for need in needs:
                    stair = stairs.setdefault(need.source.rank, _Reach([], []))
                    if not stair.needs or need.source.position > stair.needs[-1].source.position:
                        stair.positions.append(position)
                        stair.needs.append(need)
            self.of_rank.append(stairs)

    def back(self, rank: int, position: int, waits: int) -> tuple[Need, ...]:
        """The chain of at most `waits` waits from a position that comes back to its rank furthest on; () for none."""
        best: tuple[Need, ...] = ()
        front: dict[int, tuple[int, tuple[Need, ...]]] = {rank: (position, ())}
        for _ in range(waits):
            beyond: dict[int, tuple[int, tuple[Need, ...]]] = {}
            for here, (reached, chain) in front.items():
                for there, stair in self.of_rank[here].items():
                    need = stair.at(reached)
                    if need is not None and (there not in beyond or beyond[there][0] < need.source.position):
                        beyond[there] = (need.source.position, (*chain, need))
            if rank in beyond and (not best or best[-1].source.position < beyond[rank][0]):
                best = beyond[rank][1]
            front = beyond
        return best

    def on_cycle(self, rank: int, first: int, last: int, waits: int) -> bool:
        """Whether a cycle of at most so many waits passes the rank between two positions.

        Nothing strictly between where the chain from a position comes back and that position can be on such a
        cycle, so the search jumps there.
        """
        position = last
        while position >= first:
            chain = self.back(rank, position, waits)
            if not chain:
                return False
            returned = chain[-1].source.position
            if returned >= position:
                return True
            position = returned
        return False


def shortest_cycle(case: Case, run: Run) -> tuple[Need, ...]:
    """The waits of a cycle with the fewest; the first on the lowest rank that has one.

    Each wait's source stands on the rank of the next wait's op, at or after it; the last one's on that of the first.
    Deciding that there is a deadlock takes linear time; this search takes longer, but not where two waits close a
    cycle, which is what deadlocks mostly are.

    Parameters
    ----------
    run
        An execution of the case that ended in a deadlock, in an order without V201.
    """
    graph = _WaitGraph(case)
    stuck = [
        (rank, position, len(case.waits[rank]) - 1) for rank, position in enumerate(run.stopped) if position is not None
    ]
    # a cycle with the fewest waits enters each rank at most once
    for waits in range(2, len(stuck) + 1):
        for rank, first, last in stuck:
            if graph.on_cycle(rank, first, last, waits):
                for position in range(first, last + 1):
                    if case.waits[rank][position]:
                        chain = graph.back(rank, position, waits)
                        if chain and chain[-1].source.position >= position:
                            return chain
    raise AssertionError("an execution stopped without a cycle")
