"""Prefix sums along the stages of an instance, from which the rules of docs/bounds.md are computed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from bubbleproof.schedules.costs import Costs
from bubbleproof.schedules.instance import Instance

__all__ = ["Chunk", "RankSums", "Route", "Sums", "weights_left"]

_MANY_RANKS = 128
"""Up to so many ranks, the span of every rank is tried with the ops of every other."""


class Chunk(NamedTuple):
    """A stage on a rank, for the n microbatches of a route: shares of F, B and W, and memory (docs/bounds.md)."""

    stage: int
    n: int
    f: int
    b: int
    w: int
    a: int
    q: int


class Route:
    """Prefix sums along one route."""

    def __init__(self, costs: Costs, route: tuple[int, ...], forward: list[int], pairs: list[list[int]]) -> None:
        last = len(route) - 1
        self.rank_of = route
        self.first: dict[int, int] = {}
        self.stages: dict[int, list[int]] = {}
        for s, r in enumerate(route):
            self.first.setdefault(r, s)
            self.stages.setdefault(r, []).append(s)
        self.up = [0]
        for s in range(last):
            self.up.append(self.up[-1] + forward[s] + costs.message(route[s], route[s + 1]))
        self.backward, self.done = [], []
        for s, r in enumerate(route):
            any_pair, with_b, with_bw = pairs[r]
            own = min(costs.BW[s], costs.B[s]) if costs.split else costs.BW[s]
            self.backward.append(min(own, any_pair))
            fused = min(costs.BW[s], with_bw)
            self.done.append(min(fused, min(costs.B[s], with_b) + costs.W[s]) if costs.split else fused)
        self.start = [0] * (last + 1)  # of the backward, counted from the start of F at stage 0
        self.start[last] = self.up[last] + forward[last]
        for s in range(last - 1, -1, -1):
            self.start[s] = self.start[s + 1] + self.backward[s + 1] + costs.message(route[s + 1], route[s])
        self.ends = [self.start[s] + self.done[s] for s in range(last + 1)]
        self.latest_below = [0]
        for end in self.ends:
            self.latest_below.append(max(self.latest_below[-1], end))

    def tail(self, stage: int, via: int) -> int:
        """From the end of the backward at a stage to the last end below it, on one rank or (−1) anywhere."""
        if via < 0:
            latest = self.latest_below[stage]
        else:
            latest = max((self.ends[s] for s in self.stages.get(via, ()) if s < stage), default=0)
        return max(0, latest - self.start[stage] - self.backward[stage])


class RankSums(NamedTuple):
    """What the rules need of one rank."""

    chunks: tuple[Chunk, ...]
    room: int | None
    work: int
    alone: int
    left: int
    """The most work of W left when the last backward has ended."""


def _lasting(costs: Costs) -> Costs:
    """Costs with the overhead in every slot; of durations that differ from microbatch to microbatch the shortest."""

    def more(figures: tuple[int, ...] | None) -> tuple[int, ...] | None:
        return None if figures is None else tuple(figure + costs.overhead for figure in figures)

    if costs.overhead:
        names = ("F", "B", "W", "BW", "overlap_B", "overlap_BW")
        changed: dict[str, Any] = {name: more(getattr(costs, name)) for name in names}
        costs = replace(costs, overhead=0, **changed)
    return costs


class Sums:
    """Shares of every op, cut so that pairs save nothing, and sums of them, of an instance that is a chain."""

    def __init__(self, instance: Instance) -> None:
        self.instance, self.m, self.costs = instance, instance.microbatches, _lasting(instance.costs)
        costs, placement = self.costs, instance.placement
        self.with_b = costs.overlap_B if costs.split else None
        self.with_bw = costs.overlap_BW
        forward = [
            min([costs.F[s]] + [t[s] for t in (self.with_b, self.with_bw) if t is not None])
            for s in range(instance.stages)
        ]
        used = [instance.route_of_microbatch.count(k) for k in range(len(placement.routes))]
        routes = [route for n, route in zip(used, placement.routes, strict=True) if n]
        ranks = range(instance.ranks)
        self.held: list[list[int]] = [[] for _ in ranks]
        for stage in range(instance.stages):
            for rank in {route[stage] for route in routes}:
                self.held[rank].append(stage)
        none = 1 + max(*costs.F, *costs.B, *costs.BW)
        pairs = []
        for held in self.held:
            least_b = none if self.with_b is None else min([none, *(self.with_b[s] for s in held)])
            least_bw = none if self.with_bw is None else min([none, *(self.with_bw[s] for s in held)])
            pairs.append([min(least_b, least_bw), least_b, least_bw])
        self.counts = [n for n in used if n]
        self.routes = [Route(costs, route, forward, pairs) for route in routes]
        self.ranks = {r: self._rank(r) for r in ranks if self.held[r]}

    def _rank(self, rank: int) -> RankSums:
        costs, memory = self.costs, self.instance.memory
        held = self.held[rank]
        plain = self._plain(held)
        cut = self._cut(plain)
        chunks = []
        for n, route in zip(self.counts, self.routes, strict=True):
            for s in route.stages.get(rank, ()):
                a = memory.of("F", s, again=True)  # the least that any choice of recompute keeps
                q = min(a, -memory.W[s]) if costs.split else 0
                chunks.append(Chunk(s, n, *cut[s], a, q))
        room = None
        if memory.cap is not None and not (costs.split and any(memory.W[s] > 0 for s in held)):
            room = memory.cap[rank] - memory.static[rank]
        alone = min(plain[s][0] - cut[s][0] for s in held) + min(plain[s][1] - cut[s][1] for s in held)
        work = sum(c.n * (c.f + c.b + c.w) for c in chunks)
        return RankSums(tuple(chunks), room, work, alone, weights_left(chunks, room))

    def _plain(self, held: list[int]) -> dict[int, tuple[int, int, int]]:
        """Shares of stages that no pair shortens."""
        costs, plain = self.costs, {}
        for s in held:
            b = min(costs.B[s], costs.BW[s]) if costs.split else costs.BW[s]
            w = min(costs.W[s], costs.BW[s] - b) if costs.split else 0
            plain[s] = (costs.F[s], b, w)
        return plain

    def _cut(self, plain: dict[int, tuple[int, int, int]]) -> dict[int, tuple[int, int, int]]:
        """Shorten the ops of a rank so that no pair is shorter than its members together."""
        if self.with_b is None and self.with_bw is None:
            return plain
        longest_b = max(b for _, b, _ in plain.values())
        longest_bw = max(b + w for _, b, w in plain.values())
        forward = {}
        for s, (f, _, _) in plain.items():
            if self.with_b is not None:
                f = min(f, self.with_b[s] - longest_b)
            if self.with_bw is not None:
                f = min(f, self.with_bw[s] - longest_bw)
            forward[s] = max(0, f)
        limit_b = longest_b if self.with_b is None else min(self.with_b[s] - forward[s] for s in plain)
        limit_bw = longest_bw if self.with_bw is None else min(self.with_bw[s] - forward[s] for s in plain)
        found = {}
        for s, (_, b, w) in plain.items():
            b = min(b, limit_b, limit_bw)
            found[s] = (forward[s], b, min(w, limit_bw - b))
        return found

    def head(self, rank: int, via: int) -> int | None:
        """From the first start on `via` (−1: of the step) to that on `rank`; None if `via` is not before it."""
        least: int | None = None
        for route in self.routes:
            if (stage := route.first.get(rank)) is not None:
                origin = 0 if via < 0 else route.first.get(via, stage + 1)
                if origin > stage:
                    return None
                time = route.up[stage] - route.up[origin]
                least = time if least is None else min(least, time)
        return least

    def tail(self, rank: int, via: int) -> int:
        """From the end of the last backward on `rank` to the last end on `via` (−1: of the step)."""
        return min(route.tail(route.first[rank], via) for route in self.routes if rank in route.first)

    def vias(self, rank: int) -> Iterator[tuple[int, int, int]]:
        """(via, head, tail) of what can be bounded by the ops of a rank."""
        if self.instance.objective == "makespan":
            candidates = [-1]
        elif self.instance.ranks <= _MANY_RANKS:
            candidates = list(self.ranks)
        else:
            candidates = sorted({rank, *(route.rank_of[0] for route in self.routes)})
        for via in candidates:
            head = self.head(rank, via)
            if head is not None:
                yield via, head, self.tail(rank, via)


def weights_left(chunks: list[Chunk], room: int | None) -> int:
    """The most work of W that can be left when the last backward of a rank has ended."""
    least = min(c.q for c in chunks)
    slots = sum(c.n for c in chunks)
    if room is not None and least > 0:
        slots = min(slots, 1 + (room - min(c.a for c in chunks)) // least)
    total = 0
    for chunk in sorted(chunks, key=lambda c: -c.w):
        taken = min(slots, chunk.n)
        total += taken * chunk.w
        slots -= taken
    return total
