"""An instance as the rules of docs/bounds.md see it: least times, and what each rank has to run and to hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from bubbleproof.schedules.costs import Costs
from bubbleproof.schedules.instance import Instance

__all__ = ["Refused", "Share", "Step"]


class Refused(Exception):
    """The rule does not apply; the text says why."""


class Share(msgspec.Struct, frozen=True):
    """What one stage of a rank adds to it for each microbatch; see "Normal form" in docs/bounds.md."""

    f: int
    b: int
    w: int
    a: int
    """Memory held from the start of F to the end of B."""
    q: int
    """Memory held from the end of B to the end of W."""


def _with_overhead(costs: Costs) -> Costs:
    """Figures that say how long a slot of each kind lasts at least."""
    if not costs.overhead:
        return costs
    h = costs.overhead
    return Costs(
        F=tuple(x + h for x in costs.F),
        B=tuple(x + h for x in costs.B),
        W=tuple(x + h for x in costs.W),
        BW=tuple(x + h for x in costs.BW),
        split=costs.split,
        overlap_B=None if costs.overlap_B is None else tuple(x + h for x in costs.overlap_B),
        overlap_BW=None if costs.overlap_BW is None else tuple(x + h for x in costs.overlap_BW),
        default_comm=costs.default_comm,
        comm=costs.comm,
    )


class Step:
    """An instance as the rules see it: least times between events, and what each rank has to run."""

    def __init__(self, instance: Instance) -> None:
        if not instance.placement.plain:
            raise Refused("the rule needs stages in a chain, each on one rank")
        self.m, self.memory = instance.microbatches, instance.memory
        self.costs = _with_overhead(instance.costs)
        self.one_chunk = instance.placement.one_chunk
        count = [instance.route_of_microbatch.count(k) for k in range(len(instance.placement.routes))]
        self.routes = [(n, route) for n, route in zip(count, instance.placement.routes, strict=True) if n]
        self.held: list[list[int]] = [[] for _ in range(instance.ranks)]
        for stage in range(instance.stages):
            for rank in {route[stage] for _, route in self.routes}:
                self.held[rank].append(stage)
        self.pairs = [self._shortest_pairs(rank) for rank in range(instance.ranks)]

    def pair_times(self, stage: int) -> list[tuple[int, bool]]:
        """(duration, whether its backward is fused) of the pairs with the forward of this stage that save time."""
        costs, found = self.costs, []
        if costs.overlap_B is not None and costs.split:
            found.append((costs.overlap_B[stage], False))
        if costs.overlap_BW is not None:
            found.append((costs.overlap_BW[stage], True))
        return found

    def _shortest_pairs(self, rank: int) -> list[tuple[int, bool]]:
        """(duration, whether its backward is fused) of the shortest pairs of a rank, of each kind."""
        found: dict[bool, int] = {}
        for stage in self.held[rank]:
            for time, both in self.pair_times(stage):
                found[both] = min(time, found.get(both, time))
        return [(time, both) for both, time in found.items()]

    def forward(self, stage: int) -> int:
        """Least duration of a slot with the forward of this stage."""
        return min([self.costs.F[stage], *(time for time, _ in self.pair_times(stage))])

    def backward(self, stage: int, rank: int) -> int:
        """Least duration of a slot with the backward of this stage."""
        own = [self.costs.BW[stage]] + ([self.costs.B[stage]] if self.costs.split else [])
        return min(own + [time for time, _ in self.pairs[rank]])

    def completion(self, stage: int, rank: int) -> int:
        """Least time from the start of a backward to the end of the last op of its stage and microbatch."""
        pairs = self.pairs[rank]
        fused = min([self.costs.BW[stage], *(time for time, both in pairs if both)])
        if not self.costs.split:
            return fused
        return min(fused, self.costs.W[stage] + min([self.costs.B[stage], *(time for time, both in pairs if not both)]))

    def up(self, route: Sequence[int], low: int, high: int) -> int:
        """Least time from the start of F at stage `low` to the start of F at stage `high`, of one microbatch."""
        return sum(self.forward(s) + self.costs.message(route[s], route[s + 1]) for s in range(low, high))

    def descent(self, route: Sequence[int], high: int) -> Iterator[tuple[int, int]]:
        """(stage, least time from the end of the backward at stage `high` to its start there), from `high` − 1 down."""
        time = 0
        for s in range(high - 1, -1, -1):
            time += self.costs.message(route[s + 1], route[s])
            yield s, time
            time += self.backward(s, route[s])

    def down(self, route: Sequence[int], high: int, low: int) -> int:
        """Least time from the end of the backward at stage `high` to the start of that at stage `low` < `high`."""
        return next(time for s, time in self.descent(route, high) if s == low)

    def round_trips(self, route: Sequence[int]) -> list[int]:
        """For each stage the least time from the start of F to the start of its backward, of one microbatch."""
        last = len(route) - 1
        trips = [0] * last + [self.forward(last)]
        climb = trips[last] + self.backward(last, route[last])
        for s, time in self.descent(route, last):
            climb += self.up(route, s, s + 1)
            trips[s] = climb + time
        return trips

    def round_trip(self, route: Sequence[int], stage: int) -> int:
        """Least time from the start of F at a stage to the start of its backward, of one microbatch."""
        return self.round_trips(route)[stage]

    def chunks(self, rank: int) -> list[tuple[int, int]]:
        """(stage, number of its microbatches) of everything that a rank runs, route by route."""
        return [(s, n) for n, route in self.routes for s, r in enumerate(route) if r == rank]

    def room(self, rank: int) -> int | None:
        """The cap less the static part; None without a cap, and if a W takes memory (then nothing can be counted)."""
        memory = self.memory
        if memory.cap is None or (self.costs.split and any(memory.W[s] > 0 for s in self.held[rank])):
            return None
        return memory.cap[rank] - memory.static[rank]

    def shares(self, rank: int, *, pairs: bool = True) -> dict[int, Share]:
        """The share of each stage of a rank; with `pairs`, cut so that no pair is shorter than its members together."""
        c, taken = self.costs, self.memory.F
        if self.memory.R is not None:  # it may be recomputed, so only the stash is sure to be held
            taken = tuple(f - r for f, r in zip(taken, self.memory.R, strict=True))
        found = {}
        for s in self.held[rank]:
            b = min(c.B[s], c.BW[s]) if c.split else c.BW[s]
            w = min(c.W[s], c.BW[s] - b) if c.split else 0
            found[s] = Share(c.F[s], b, w, taken[s], min(taken[s], -self.memory.W[s]) if c.split else 0)
        if not pairs:
            return found
        longest = {both: max(x.b + x.w * both for x in found.values()) for both in (False, True)}
        forward = {
            s: max(0, min([x.f] + [t - longest[both] for t, both in self.pair_times(s)])) for s, x in found.items()
        }
        limits = [(t - forward[s], both) for s in found for t, both in self.pair_times(s)]
        for s, x in found.items():
            b = min([x.b, *(limit for limit, _ in limits)])
            w = min([x.w, *(limit - b for limit, both in limits if both)])
            found[s] = Share(forward[s], b, w, x.a, x.q)
        return found

    def head(self, rank: int, via: int) -> int:
        """Least time from the first start on rank `via` (−1: of the step) to the first start on `rank`."""
        times = []
        for _, route in self.routes:
            if rank in route:
                stage, origin = route.index(rank), 0 if via < 0 else (route.index(via) if via in route else None)
                if origin is None or origin > stage:
                    raise Refused(f"not every microbatch passes rank {via} before rank {rank}")
                times.append(self.up(route, origin, stage))
        return min(times)

    def tail(self, rank: int, via: int) -> int:
        """Least time from the end of the last backward on `rank` to the last end on rank `via` (−1: of the step)."""
        times = []
        for _, route in self.routes:
            if rank in route:
                stage = route.index(rank)
                ends = [
                    time + self.completion(s, route[s])
                    for s, time in self.descent(route, stage)
                    if via < 0 or route[s] == via
                ]
                times.append(max(ends, default=0))
        return min(times)

    def open_weights(self, rank: int, shares: dict[int, Share]) -> int:
        """The most work of W that can be left when the last backward of a rank has ended."""
        weights = sorted((shares[s].w for s, n in self.chunks(rank) for _ in range(n)), reverse=True)
        room, least = self.room(rank), min(x.q for x in shares.values())
        if room is not None and least > 0:
            weights = weights[: 1 + (room - min(x.a for x in shares.values())) // least]
        return sum(weights)
