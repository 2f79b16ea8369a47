"""Lower bounds for any graph of stages, stages on several ranks, and microbatches that differ.

The rules `path`, `busy` and `held` of docs/bounds.md, from passes along the graph for each class of equal microbatches.
`bubbleproof.verify.graph_rules` computes them again, from the definitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import Literal, NamedTuple

from bubbleproof.schedules.instance import Instance
from bubbleproof.verify.certificate import Certificate

__all__ = ["graph_bounds"]

_FAR = 1 << 62

_MANY = 200_000
"""Steps of the search for longest ways between any two stages; above, only those from the sources are looked at."""


class _Times(NamedTuple):
    """Least durations of one class at each stage: slots with F, with the backward, and from that to the last op."""

    forward: list[int]
    backward: list[int]
    done: list[int]


class _Cell(NamedTuple):
    """A stage of a rank for one class: the class, the stage, f, b, w, a and q of docs/bounds.md."""

    alike: int
    stage: int
    f: int
    b: int
    w: int
    a: int
    q: int


class _Graph:
    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.graph = instance.placement
        self.costs, self.memory = instance.costs, instance.memory
        self.classes = [alike for alike in instance.classes if alike]
        self.stages = range(instance.stages)
        split = self.costs.split
        self.kinds = [
            kind
            for kind, given in (("B", self.costs.overlap_B), ("BW", self.costs.overlap_BW))
            if given is not None and (split or kind == "BW")
        ]
        self.cells = [self._cells(rank) for rank in range(instance.ranks)]
        self.times = [self._times(index) for index in range(len(self.classes))]
        self.delay = [
            {
                (s, t): max(self.costs.message(a, b) for a in self._ranks(s, k) for b in self._ranks(t, k))
                for x in self.stages
                for y in self.graph.successors[x]
                for s, t in ((x, y), (y, x))
            }
            for k in range(len(self.classes))
        ]

    def _ranks(self, stage: int, alike: int) -> tuple[int, ...]:
        return self.instance.ranks_of(stage, self.classes[alike][0])

    def _last(self, name: str, stage: int, alike: int) -> int:
        return self.costs.figure(name, stage, self.classes[alike][0]) + self.costs.overhead

    def _cells(self, rank: int) -> list[_Cell]:
        split, found = self.costs.split, []
        for k, alike in enumerate(self.classes):
            for s in self.stages:
                if rank in self._ranks(s, k):
                    whole = self._last("BW", s, k)
                    b = min(self._last("B", s, k), whole) if split else whole
                    w = min(self._last("W", s, k), whole - b) if split else 0
                    a = self.memory.of("F", s, alike[0]) - self.spared(s)
                    q = min(a, -self.memory.of("W", s, alike[0])) if split else 0
                    found.append(_Cell(k, s, self._last("F", s, k), b, w, a, q))
        return self._cut(found) if self.kinds and found else found

    def spared(self, stage: int) -> int:
        """What a forward need not keep if it is recomputed."""
        return self.memory.R[stage] if self.instance.recompute and self.memory.R is not None else 0

    def _cut(self, cells: list[_Cell]) -> list[_Cell]:
        """Shorten ops so that no pair is shorter than its members together."""
        both = {"B": max(c.b for c in cells), "BW": max(c.b + c.w for c in cells)}
        pairs = [{kind: self._last(f"overlap_{kind}", c.stage, c.alike) for kind in self.kinds} for c in cells]
        forward = [max(0, min(c.f, *(t - both[k] for k, t in p.items()))) for c, p in zip(cells, pairs, strict=True)]
        limit = {k: min(p[k] - f for p, f in zip(pairs, forward, strict=True)) for k in self.kinds}
        found = []
        for c, f in zip(cells, forward, strict=True):
            b = min(c.b, *limit.values())
            found.append(c._replace(f=f, b=b, w=min(c.w, limit["BW"] - b) if "BW" in limit else c.w))
        return found

    def _times(self, alike: int) -> _Times:
        found = _Times([], [], [])
        least = [
            {k: min(self._last(f"overlap_{k}", c.stage, c.alike) for c in cells) for k in self.kinds}
            for cells in self.cells
        ]
        for s in self.stages:
            pairs = least[self._ranks(s, alike)[0]]
            found.forward.append(min(self._last(n, s, alike) for n in ("F", *(f"overlap_{k}" for k in self.kinds))))
            whole = self._last("BW", s, alike)
            half = [self._last("B", s, alike)] if self.costs.split else []
            found.backward.append(min([whole, *half, *pairs.values()]))
            done = min(whole, pairs.get("BW", whole))
            if half:
                done = min(done, min(half[0], pairs.get("B", half[0])) + self._last("W", s, alike))
            found.done.append(done)
        return found

    def ways(self, alike: int, origin: int = -1) -> tuple[list[int | None], list[int | None]]:
        """Least times to the starts of F and of the backward of each stage; None for what does not follow."""
        time, delay = self.times[alike], self.delay[alike]
        up: list[int | None] = [None] * len(self.stages)
        down: list[int | None] = [None] * len(self.stages)
        for s in self.stages:
            best = 0 if s == origin or (origin < 0 and not self.graph.predecessors[s]) else None
            for p in self.graph.predecessors[s]:
                known = up[p]
                if known is not None:
                    at = known + time.forward[p] + delay[p, s]
                    best = at if best is None else max(best, at)
            up[s] = best
        for s in reversed(self.stages):
            start = up[s]
            best = None if start is None else start + time.forward[s]
            for t in self.graph.successors[s]:
                known = down[t]
                if known is not None:
                    at = known + time.backward[t] + delay[t, s]
                    best = at if best is None else max(best, at)
            down[s] = best
        return up, down

    def below(self, alike: int) -> list[int]:
        """From the end of the backward of each stage to the last end below it."""
        time, delay = self.times[alike], self.delay[alike]
        found: list[int] = []
        for s in self.stages:
            rests = (delay[s, p] + max(time.done[p], time.backward[p] + found[p]) for p in self.graph.predecessors[s])
            found.append(max(rests, default=0))
        return found


def graph_bounds(instance: Instance) -> Iterator[Certificate]:
    """Certificates of the rules `path`, `busy` and `held`, one of each for each rank."""
    graph = _Graph(instance)
    makespan = instance.objective == "makespan"
    origins: dict[tuple[int, int], tuple[list[int | None], list[int | None]]] = {}
    roots = [graph.ways(k) for k in range(len(graph.classes))]
    steps = len(graph.classes) * instance.stages * (instance.stages + len(instance.placement.edges))
    if steps <= _MANY:
        origins = {(k, s): graph.ways(k, s) for k in range(len(graph.classes)) for s in graph.stages}
    below = [graph.below(k) for k in range(len(graph.classes))]
    if makespan:
        ends = [(down[s] or 0) + graph.times[k].done[s] for k, (_, down) in enumerate(roots) for s in graph.stages]
        yield _certificate(instance, "path", max(ends), -1, -1)
    for rank, cells in enumerate(graph.cells):
        if not cells:
            continue
        sizes = [len(graph.classes[c.alike]) for c in cells]
        via = -1 if makespan else rank
        if not makespan and origins:
            longest = 0
            for (k, s), (_, down) in origins.items():
                for c in cells:
                    back = down[c.stage]
                    if c.alike == k and any(x.stage == s and x.alike == k for x in cells) and back is not None:
                        longest = max(longest, back + graph.times[k].done[c.stage])
            yield _certificate(instance, "path", longest, -1, rank)
        head = min(roots[c.alike][0][c.stage] or 0 for c in cells) if makespan else 0
        best = work = left = 0
        first = last = _FAR
        for stage in sorted({c.stage for c in cells}, reverse=True):  # the stages from each one on
            for n, c in zip(sizes, cells, strict=True):
                if c.stage == stage:
                    work, left = work + n * (c.f + c.b + c.w), left + n * c.w
                    first, last = min(first, roots[c.alike][0][stage] or 0), min(last, below[c.alike][stage])
            best = max(best, work + (first + max(0, last - left) if makespan else 0))
        yield _certificate(instance, "busy", best, rank, via)
        counted = not (instance.costs.split and any(_takes(graph, c) for c in cells))
        if instance.memory.cap is not None and counted and origins:
            area = 0
            for n, c in zip(sizes, cells, strict=True):
                stay = origins[c.alike, c.stage][1][c.stage] or 0
                area += n * (c.a * (stay + c.b) + c.q * c.w)
            if area:
                unit = gcd(*(c.a for c in cells), *(c.q for c in cells))
                room = (instance.memory.cap[rank] - instance.memory.static[rank]) // unit * unit
                yield _certificate(instance, "held", head - (-area // room), rank, via)


def _takes(graph: _Graph, cell: _Cell) -> bool:
    return graph.memory.of("W", cell.stage, graph.classes[cell.alike][0]) > 0


def _certificate(
    instance: Instance, rule: Literal["path", "busy", "held"], value: int, rank: int, via: int
) -> Certificate:
    return Certificate(rule=rule, objective=instance.objective, value=value, rank=rank, via=via)
