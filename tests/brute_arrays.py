"""All orders of a small chain at once, as arrays: does any of them reach a limit? From docs/semantics.md only.

One axis an order of a rank; a cell is one way to run the whole pipeline. Each kind of op runs in microbatch order
(theorem 5). Starts rise from 0 until nothing changes, so the least solution of the inequalities is found; they stop at
a ceiling that no way within the limit needs, and a way that deadlocks climbs to it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bubbleproof.schedules.instance import Instance

Order = list[int]
"""Kinds, 0 = F, 1 = B (or the fused backward), 2 = W."""


def sequences(m: int, changes: list[int], room: int) -> list[Order]:
    """Every order of m microbatches on a rank with one stage, under its memory room."""
    found: list[Order] = []

    def grow(order: Order, count: list[int], level: int) -> None:
        if len(order) == m * len(changes):
            found.append(order)
            return
        for kind, change in enumerate(changes):
            if count[kind] < (m if kind == 0 else count[kind - 1]) and level + change <= room:
                count[kind] += 1
                grow([*order, kind], count, level + change)
                count[kind] -= 1

    grow([], [0] * len(changes), 0)
    return found


class Orders:
    """All orders of an instance: a chain, one stage a rank, no overhead, no pairs."""

    def __init__(self, instance: Instance) -> None:
        costs, memory, self.m, self.p = instance.costs, instance.memory, instance.microbatches, instance.ranks
        kinds = ("F", "B", "W") if costs.split else ("F", "BW")
        self.span, self.comm = instance.objective == "span", costs.default_comm
        self.times = [[costs.of(kind, rank) for kind in kinds] for rank in range(self.p)]
        self.rows = [
            sequences(
                self.m,
                [memory.of(kind, rank) for kind in kinds],
                10**9 if memory.cap is None else memory.cap[rank] - memory.static[rank],
            )
            for rank in range(self.p)
        ]

    def reach(self, limit: int) -> bool:
        """Whether any way to run the pipeline has at most this makespan, or span."""
        shape = tuple(len(row) for row in self.rows)
        total = sum(self.m * sum(times) for times in self.times) + 2 * self.m * self.p * self.comm
        ceiling = total + 1 if self.span else limit + 1
        ends = np.zeros((self.p, len(self.times[0]), self.m, *shape), dtype=np.int16)
        opening = np.zeros((self.p, *shape), dtype=np.int16)
        before = -1
        while (now := int(ends.sum(dtype=np.int64)) + int(opening.sum(dtype=np.int64))) != before:
            before = now
            for rank in range(self.p):
                self._raise(rank, ends, opening, limit, ceiling)
        return bool(
            (ends.max(axis=(0, 1, 2)) < ceiling).any() if self.span else (ends.max(axis=(0, 1, 2)) <= limit).any()
        )

    def _raise(self, rank: int, ends: NDArray[np.int16], opening: NDArray[np.int16], limit: int, ceiling: int) -> None:
        """Run each order of a rank once with the ends of the others as they are."""
        for row, order in enumerate(self.rows[rank]):
            cut = (slice(None),) * rank + (row,)
            free = opening[rank][cut]
            count = [0, 0, 0]
            for at, kind in enumerate(order):
                k = count[kind]
                count[kind] += 1
                start = free
                if kind:
                    start = np.maximum(start, ends[rank, kind - 1, k][cut])
                if kind == 0 and rank:
                    start = np.maximum(start, ends[rank - 1, 0, k][cut] + self.comm)
                if kind == 1 and rank < self.p - 1:
                    start = np.maximum(start, ends[rank + 1, 1, k][cut] + self.comm)
                if at == 0:
                    opening[rank][cut] = np.minimum(start, ceiling)
                free = np.minimum(start + self.times[rank][kind], ceiling).astype(np.int16)
                ends[rank, kind, k][cut] = free
            if self.span:
                opening[rank][cut] = np.maximum(opening[rank][cut], free - limit)
