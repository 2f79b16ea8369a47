"""The rules `path`, `busy` and `held` of docs/bounds.md: graphs of stages, unlike microbatches, stages on many ranks.

They count each op of each microbatch with its own duration and memory, along the graph of the stages as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import NamedTuple

from bubbleproof.schedules.instance import Instance
from bubbleproof.verify.normal_form import Refused, Share

__all__ = ["GRAPH_RULES"]

_NEVER = -(1 << 62)

Cell = tuple[int, int]
"""Stage, microbatch."""


class _Trip(NamedTuple):
    """Earliest starts of one microbatch, far below zero for what does not follow from the origin."""

    forward: list[int]
    backward: list[int]


class _Graph:
    """An instance, figure by figure."""

    def __init__(self, instance: Instance) -> None:
        self.instance, self.costs, self.memory = instance, instance.costs, instance.memory
        stages = range(instance.stages)
        edges = instance.placement.edges or [(s, s + 1) for s in stages[:-1]]
        self.feeding: list[list[int]] = [[a for a, b in edges if b == s] for s in stages]
        self.fed: list[list[int]] = [[b for a, b in edges if a == s] for s in stages]
        self.alike = self._alike()
        self.cells: list[list[Cell]] = [[] for _ in range(instance.ranks)]
        """Of each rank the stages that it runs, each with one microbatch for all that are alike."""
        for j in self.alike:
            for s in stages:
                for rank in instance.ranks_of(s, j):
                    self.cells[rank].append((s, j))
        self.pairs = [{kind: self._shortest(kind, rank) for kind in ("B", "BW")} for rank in range(instance.ranks)]

    def _alike(self) -> dict[int, int]:
        """One of each sort of microbatches with the same route and figures, and how many there are."""
        names = [name for table in (self.costs, self.memory) for name, _ in table.varying]
        count: dict[object, list[int]] = {}
        for j, route in enumerate(self.instance.route_of_microbatch):
            figures = [row[j] for table in (self.costs, self.memory) for _, rows in table.varying for row in rows]
            count.setdefault((route, tuple(figures)) if names else route, []).append(j)
        return {found[0]: len(found) for found in count.values()}

    def lasts(self, name: str, cell: Cell) -> int:
        return self.costs.figure(name, *cell) + self.costs.overhead

    def own_pairs(self, cell: Cell) -> dict[str, int]:
        """The durations of the pairs with the forward of a cell, by the kind of their backward."""
        kinds = ("B", "BW") if self.costs.split else ("BW",)
        given = [k for k in kinds if (self.costs.overlap_B if k == "B" else self.costs.overlap_BW) is not None]
        return {kind: self.lasts(f"overlap_{kind}", cell) for kind in given}

    def _shortest(self, kind: str, rank: int) -> list[int]:
        """The duration of the shortest pair of a rank with this kind of backward, as a list of at most one."""
        found = [self.own_pairs(cell)[kind] for cell in self.cells[rank] if kind in self.own_pairs(cell)]
        return [min(found)] if found else []

    def forward(self, cell: Cell) -> int:
        return min([self.lasts("F", cell), *self.own_pairs(cell).values()])

    def backward(self, cell: Cell) -> int:
        pairs = self.pairs[self.instance.rank_of(*cell)]
        alone = [self.lasts("BW", cell)] + ([self.lasts("B", cell)] if self.costs.split else [])
        return min(alone + pairs["B"] + pairs["BW"])

    def completion(self, cell: Cell) -> int:
        """Least time from the start of a backward to the end of the last op of its cell."""
        pairs = self.pairs[self.instance.rank_of(*cell)]
        fused = min([self.lasts("BW", cell), *pairs["BW"]])
        if not self.costs.split:
            return fused
        return min(fused, min([self.lasts("B", cell), *pairs["B"]]) + self.lasts("W", cell))

    def message(self, source: int, target: int, j: int) -> int:
        of = self.instance.ranks_of
        return max(self.costs.message(a, b) for a in of(source, j) for b in of(target, j))

    def trip(self, j: int, origin: int | None = None) -> _Trip:
        """Least times from the start of the forward at `origin`, or from that of all forwards without inputs."""
        stages = range(self.instance.stages)
        found = _Trip([_NEVER] * len(stages), [_NEVER] * len(stages))
        for s in stages:
            if s == origin or (origin is None and not self.feeding[s]):
                found.forward[s] = 0
            for before in self.feeding[s]:
                arrival = found.forward[before] + self.forward((before, j)) + self.message(before, s, j)
                found.forward[s] = max(found.forward[s], arrival)
        for s in reversed(stages):
            found.backward[s] = found.forward[s] + self.forward((s, j))
            for after in self.fed[s]:
                arrival = found.backward[after] + self.backward((after, j)) + self.message(after, s, j)
                found.backward[s] = max(found.backward[s], arrival)
        return found

    def after(self, j: int) -> list[int]:
        """For each stage the least time from the end of its backward to the end of the last op below it."""
        stages = self.instance.stages
        found = [0] * stages
        for s in range(stages):
            for before in self.feeding[s]:
                rest = max(self.completion((before, j)), self.backward((before, j)) + found[before])
                found[s] = max(found[s], self.message(s, before, j) + rest)
        return found

    def shares(self, rank: int) -> dict[Cell, Share]:
        """The share of each cell of a rank, cut so that no pair is shorter than its members together."""
        found = {}
        for cell in self.cells[rank]:
            split = self.costs.split
            b = min(self.lasts("B", cell), self.lasts("BW", cell)) if split else self.lasts("BW", cell)
            w = min(self.lasts("W", cell), self.lasts("BW", cell) - b) if split else 0
            stash = self.memory.R[cell[0]] if self.instance.recompute and self.memory.R is not None else 0
            a = self.memory.of("F", *cell) - stash
            q = min(a, -self.memory.of("W", *cell)) if split else 0
            found[cell] = Share(self.lasts("F", cell), b, w, a, q)
        longest = {"B": max(x.b for x in found.values()), "BW": max(x.b + x.w for x in found.values())}
        forward = {
            cell: max(0, min([x.f, *(time - longest[kind] for kind, time in self.own_pairs(cell).items())]))
            for cell, x in found.items()
        }
        rest = {kind: [] for kind in longest}  # type: dict[str, list[int]]
        for cell in found:
            for kind, time in self.own_pairs(cell).items():
                rest[kind].append(time - forward[cell])
        for cell, x in found.items():
            b = min([x.b, *rest["B"], *rest["BW"]])
            found[cell] = Share(forward[cell], b, min([x.w, *(time - b for time in rest["BW"])]), x.a, x.q)
        return found


def _path(graph: _Graph, rank: int, via: int) -> dict[str, int]:
    longest = 0
    for j in graph.alike:
        mine = [s for s, k in graph.cells[via] if k == j] if via >= 0 else list(range(graph.instance.stages))
        for origin in mine if via >= 0 else [None]:
            trip = graph.trip(j, origin)
            longest = max([longest, *(trip.backward[s] + graph.completion((s, j)) for s in mine)])
    return {"one microbatch from its first forward to its last op": longest}


def _busy(graph: _Graph, rank: int, via: int) -> dict[str, int]:
    shares, best = graph.shares(rank), {"work": 0}
    starts = {j: graph.trip(j).forward for j in graph.alike}
    ends = {j: graph.after(j) for j in graph.alike}
    for lowest in {s for s, _ in shares} if via < 0 else {0}:
        chosen = {cell: x for cell, x in shares.items() if cell[0] >= lowest}
        found = {"work": sum(graph.alike[j] * (x.f + x.b + x.w) for (_, j), x in chosen.items())}
        if via < 0:
            left = sum(graph.alike[j] * x.w for (_, j), x in chosen.items())
            found["head"] = min(starts[j][s] for s, j in chosen)
            found["tail, less the W left for it"] = max(0, min(ends[j][s] for s, j in chosen) - left)
        best = max(best, found, key=lambda parts: sum(parts.values()))
    return best


def _held(graph: _Graph, rank: int, via: int) -> dict[str, int]:
    shares, memory = graph.shares(rank), graph.memory
    if memory.cap is None or (graph.costs.split and any(memory.of("W", *cell) > 0 for cell in shares)):
        raise Refused(f"rank {rank} has no cap, or a W that takes memory")
    unit = gcd(*(x.a for x in shares.values()), *(x.q for x in shares.values()))
    area = 0
    for (s, j), x in shares.items():
        area += graph.alike[j] * (x.a * (graph.trip(j, s).backward[s] + x.b) + x.q * x.w)
    if not area:
        raise Refused("the microbatches hold no memory")
    room = memory.cap[rank] - memory.static[rank]
    found = {"memory times time, over the cap": -(-area // (room // unit * unit))}
    if via < 0:
        found["head"] = min(graph.trip(j).forward[s] for s, j in graph.cells[rank])
    return found


def _on(rule: Callable[[_Graph, int, int], dict[str, int]]) -> Callable[[Instance, int, int], dict[str, int]]:
    def parts(instance: Instance, rank: int, via: int) -> dict[str, int]:
        graph = _Graph(instance)
        if rank >= 0 and via not in (-1, rank):
            raise Refused("the rule bounds the makespan or the span of its own rank")
        if not graph.cells[max(rank, via)]:
            raise Refused(f"no microbatch passes rank {max(rank, via)}")
        return rule(graph, rank, via)

    return parts


GRAPH_RULES: dict[str, Callable[[Instance, int, int], dict[str, int]]] = {
    "path": _on(_path),
    "busy": _on(_busy),
    "held": _on(_held),
}
"""Each takes an instance, the rank counted (−1 for `path`) and the one whose span is bounded (−1: the makespan)."""
