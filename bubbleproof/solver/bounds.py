"""Lower bounds in milliseconds: where each rule of docs/bounds.md gives the most.

The numbers are computed here from prefix sums along the stages; `bubbleproof.verify.certificate` computes them again,
from the definitions, so that a slip on either side shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import accumulate
from math import gcd
from typing import Any, NamedTuple

import msgspec

from bubbleproof.schedules.costs import Costs
from bubbleproof.schedules.instance import Instance
from bubbleproof.solver.bounds_ends import Passage, find_ends
from bubbleproof.solver.bounds_graph import graph_bounds
from bubbleproof.solver.bounds_pairs import most_saved, opening
from bubbleproof.solver.bounds_path import parts
from bubbleproof.solver.bounds_stays import Phase, Stays, best_weights
from bubbleproof.verify.certificate import Certificate

__all__ = ["lower_bounds", "stays"]

_MANY_RANKS = 128
"""Up to so many ranks, the span of every rank is tried with the ops of every other."""


class _Chunk(NamedTuple):
    stage: int
    n: int
    f: int
    b: int
    w: int
    a: int
    q: int


class _Route:
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


class _Rank(NamedTuple):
    """What the rules need of one rank."""

    chunks: tuple[_Chunk, ...]
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


class _Bounds:
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
        self.routes = [_Route(costs, route, forward, pairs) for route in routes]
        self.ranks = {r: self._rank(r) for r in ranks if self.held[r]}

    def _rank(self, rank: int) -> _Rank:
        costs, memory = self.costs, self.instance.memory
        held = self.held[rank]
        plain = self._plain(held)
        cut = self._cut(plain)
        chunks = []
        for n, route in zip(self.counts, self.routes, strict=True):
            for s in route.stages.get(rank, ()):
                a = memory.of("F", s, again=True)  # the least that any choice of recompute keeps
                q = min(a, -memory.W[s]) if costs.split else 0
                chunks.append(_Chunk(s, n, *cut[s], a, q))
        room = None
        if memory.cap is not None and not (costs.split and any(memory.W[s] > 0 for s in held)):
            room = memory.cap[rank] - memory.static[rank]
        alone = min(plain[s][0] - cut[s][0] for s in held) + min(plain[s][1] - cut[s][1] for s in held)
        work = sum(c.n * (c.f + c.b + c.w) for c in chunks)
        return _Rank(tuple(chunks), room, work, alone, _left(chunks, room))

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

    def chains(self) -> Iterator[Certificate]:
        """The longest way of one microbatch."""
        best: tuple[int, int] | None = None
        for route in self.routes:
            if self.instance.objective == "makespan":
                found = [(max(route.ends), -1)]
            else:
                found = [
                    (max(route.ends[s] for s in held) - route.up[route.first[r]], r) for r, held in route.stages.items()
                ]
            best = max([*found, best] if best else found)
        if best:
            yield Certificate(rule="chain", objective=self.instance.objective, value=best[0], via=best[1])

    def loads(self) -> Iterator[Certificate]:
        """Head, work and tail of each rank."""
        for rank, x in self.ranks.items():
            for via, head, tail in self.vias(rank):
                value = head + x.work + x.alone + _after(tail, x.left, rank, via)
                yield self._certificate("load", value, rank, via)

    def arrivals(self) -> Iterator[Certificate]:
        """Load, and the idle time until something else than first forwards can run."""
        if len(self.routes) != 1:
            return
        route = self.routes[0]
        for rank, x in self.ranks.items():
            first, others = x.chunks[0], x.chunks[1:]
            counted = x.room is not None and first.a > 0
            started = min(self.m, x.room // first.a) if counted else self.m  # type: ignore[operator]
            later, idle = started, 0
            if others:
                if counted:
                    later = min(started, (x.room - others[0].a) // first.a)  # type: ignore[operator]
                idle = max(0, route.up[others[0].stage] - route.up[first.stage] - later * first.f)
            rest = sum(c.f + c.b + c.w for c in others)
            trip = route.start[first.stage] - route.up[first.stage]
            idle = max(idle, trip - started * first.f - later * rest)
            if idle > 0:
                for via, head, tail in self.vias(rank):
                    value = head + x.work + idle + _after(tail, x.left, rank, via)
                    yield self._certificate("arrival", value, rank, via)

    def ends(self) -> Iterator[Certificate]:
        """Idle time before the first backward and after the last forward; with one chunk, the rule window has it."""
        if self.instance.placement.one_chunk:
            return
        for rank, x in self.ranks.items():
            found = find_ends(self._passages(rank), x.room)
            for via, head, tail in self.vias(rank):
                value = head + x.work + found.rest(tail, x.left, via in (-1, rank))
                yield self._certificate("ends", value, rank, via)

    def pairings(self) -> Iterator[Certificate]:
        """Where pairs are shorter than their members: forwards that come before any backward are in none."""
        for rank, held in enumerate(self.held):
            if not held:
                continue
            plain = self._plain(held)
            times = [None if t is None else [t[s] for s in held] for t in (self.with_b, self.with_bw)]
            none: list[int | None] = [None] * len(held)
            saved = most_saved(plain.values(), *(none if t is None else t for t in times))
            if saved <= 0:
                continue
            chunks = [
                c._replace(f=plain[c.stage][0], b=plain[c.stage][1], w=plain[c.stage][2])
                for c in self.ranks[rank].chunks
            ]
            room, total = self.ranks[rank].room, sum(c.n for c in chunks)
            least, longest = min(c.a for c in chunks), max(c.f for c in chunks)
            most = total if room is None or not least else min(total, room // least)
            work = sum(c.n * (c.f + c.b + c.w) for c in chunks) - saved * total
            for via, head, tail in self.vias(rank):
                begin = self._first_backward(rank, via)
                value = work + opening(saved, longest, head, begin, most) + _after(tail, _left(chunks, room), rank, via)
                yield self._certificate("pairs", value, rank, via)

    def _first_backward(self, rank: int, via: int) -> int:
        """From the first start on `via` (−1: of the step) to the start of a backward on `rank`."""
        times = []
        for route in self.routes:
            origin = 0 if via < 0 else route.first.get(via, 0)
            times += [route.start[s] - route.up[origin] for s in route.stages.get(rank, ())]
        return min(times)

    def _passages(self, rank: int) -> list[Passage]:
        """The routes through a rank, as the rule `ends` wants them."""
        found, chunks = [], iter(self.ranks[rank].chunks)
        for n, route in zip(self.counts, self.routes, strict=True):
            if stages := route.stages.get(rank):
                first, last = stages[0], stages[-1]
                _, _, f, b, w, a, q = zip(*(next(chunks) for _ in stages), strict=True)
                arrive = route.start[last] - route.up[first]
                through = route.start[first] - route.up[last] + b[0]
                found.append(Passage(n, f, b, w, a, q, arrive, through))
        return found

    def residences(self) -> Iterator[Certificate]:
        """Memory times time that the microbatches need, over the cap."""
        for rank, x in self.ranks.items():
            unit = gcd(*(c.a for c in x.chunks), *(c.q for c in x.chunks))
            if x.room is None or not unit:
                continue
            area = 0
            for c, route in self._passing(rank):
                trip = route.start[c.stage] - route.up[c.stage]
                area += c.n * (c.a * (trip + c.b) + c.q * c.w)
            if not area:
                continue
            for via, head, _ in self.vias(rank):
                if via in (-1, rank):
                    yield self._certificate("residence", head + -(-area // (x.room // unit * unit)), rank, via)

    def _routes_of(self, rank: int) -> Iterator[_Route]:
        """The route of each chunk of a rank, in the order of its chunks."""
        for route in self.routes:
            for _ in route.stages.get(rank, ()):
                yield route

    def stays(self, least: int, steps: int) -> Iterator[Certificate]:
        """How many microbatches can be in which part of their stay on a rank at once, with weights: each better bound.

        The ranks that hold the most memory for the longest time come first.
        """
        ranks = {rank: Stays(self._phases(rank), x.room) for rank, x in self.ranks.items() if x.room}
        full = {rank: sum(x.n * x.memory * x.length for x in y.phases) // y.room for rank, y in ranks.items() if y.room}
        for rank in sorted(full, key=lambda rank: -full[rank]):
            first = min(c.w for c, route in self._passing(rank) if route.first[rank] == c.stage)
            for via, head, tail in self.vias(rank):
                own = via in (-1, rank)
                closing = max(tail, first) if own else tail
                for with_last in (True, False) if own else (False,):
                    if steps < ranks[rank].cost:
                        continue
                    useful = least - head - (0 if with_last else closing)
                    found = best_weights(ranks[rank], useful, steps, with_last=with_last)
                    steps -= found.steps
                    value = head + found.value + (0 if found.last else closing)
                    if found.weights and value > least:
                        least = value
                        certificate = self._certificate("stays", least, rank, via)
                        yield msgspec.structs.replace(certificate, weights=tuple(found.weights))

    def _passing(self, rank: int) -> Iterator[tuple[_Chunk, _Route]]:
        """Each chunk of a rank with its route."""
        return zip(self.ranks[rank].chunks, self._routes_of(rank), strict=True)

    def _phases(self, rank: int) -> list[Phase]:
        """The phases of the rule `stays`."""
        found: list[Phase] = []
        chunks = iter(self.ranks[rank].chunks)
        for k, route in enumerate(self.routes):
            mine = [next(chunks) for _ in route.stages.get(rank, ())]
            held = list(accumulate(c.a for c in mine))
            for i, (c, a) in enumerate(zip(mine, held, strict=True)):
                if c is mine[-1]:
                    found.append(Phase(k, "top", a, route.start[c.stage] - route.up[c.stage] + c.b, c.n))
                else:
                    found.append(Phase(k, "up", a, route.up[mine[i + 1].stage] - route.up[c.stage], c.n))
            for c, above, a in reversed(list(zip(mine, mine[1:], held, strict=False))):
                time = route.start[c.stage] - route.start[above.stage] - route.backward[above.stage] + c.b
                found.append(Phase(k, "down", a, time, c.n))
            found += [Phase(k, "W", c.q, c.w, c.n) for c in mine]
        return found

    def windows(self) -> Iterator[Certificate]:
        """Idle time between a forward and its backward, in disjoint windows."""
        if not self.instance.placement.one_chunk:
            return
        for rank, x in self.ranks.items():
            idle, slack, most_left, chosen = self._idle(x.chunks[0], x.room)
            w = x.chunks[0].w
            for via, head, tail in self.vias(rank):
                kinks = {1, most_left}
                if w:
                    kinks |= {-slack // w, -slack // w + 1, tail // w, tail // w + 1}
                closing = min(
                    max(0, slack + y * w) + _after(tail, y * w, rank, via) for y in kinks if 1 <= y <= most_left
                )
                yield self._certificate("window", head + x.work + idle + closing, rank, via, chosen)

    def _idle(self, c: _Chunk, room: int | None) -> tuple[int, int, int, tuple[int, ...]]:
        """Idle time in all windows but the last, slack of the last one without its W, most W left, the windows."""
        m, route = self.m, self.routes[0]
        most = m if room is None or not c.a else min(m, room // c.a)
        length = route.start[c.stage] - route.up[c.stage] + c.b

        def left(n: int, started: int) -> int:
            return started if room is None or not c.q else min(started, n + (room - n * c.a) // c.q)

        def older(started: int) -> int:
            bound = min(most, started)
            if room is None or not c.q or c.q == c.a or not c.a:  # more backwards only add
                return bound * c.b + left(bound, started) * c.w
            return max(n * c.b + left(n, started) * c.w for n in range(1, bound + 1))

        usual = older(m)
        if most < m:
            idle = 0
            chosen = [*range(0, m - most, most)][: (m - 1) // most]
            for j in chosen:
                idle += max(0, length - most * c.f - (usual if j >= m - 1 else older(j + 1)) + c.w)
            return idle, length - c.f - usual, left(1, m), (*chosen, m - 1)
        opening = max(0, length - m * c.f - c.b)
        closing = length - c.f - usual
        if opening > max(0, closing + c.w):
            return opening, -m * c.w, left(1, m), (0,)
        return 0, closing, left(1, m), (m - 1,)

    def _certificate(self, rule: str, value: int, rank: int, via: int, windows: tuple[int, ...] = ()) -> Certificate:
        return Certificate(
            rule=rule,  # type: ignore[arg-type]
            objective=self.instance.objective,
            value=value,
            rank=rank,
            via=via,
            windows=windows,
        )


def _after(tail: int, left: int, rank: int, via: int) -> int:
    """How much longer than all ops of a rank it takes, with `left` of W to do when its last backward has ended."""
    return max(0, tail - left) if via in (-1, rank) else tail - left


def _left(chunks: list[_Chunk], room: int | None) -> int:
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


def lower_bounds(instance: Instance) -> list[Certificate]:
    """The best certificate that each rule gives for the instance's objective, best first.

    Parameters
    ----------
    instance
        Any instance.

    Returns
    -------
    list of Certificate
        Never empty. `bubbleproof.verify.certificate.check` accepts each of them. Values are in the time unit of the
        instance.

    Notes
    -----
    Rules and proofs are in docs/bounds.md. Of equal values the one with the simplest rule comes first.
    """
    found: list[Certificate] = []
    if instance.placement.plain:
        bounds = _Bounds(instance)
        for rule in (
            bounds.chains,
            bounds.loads,
            bounds.arrivals,
            bounds.windows,
            bounds.ends,
            bounds.pairings,
            bounds.residences,
        ):
            found += _best(rule())
    if not instance.placement.plain or instance.costs.varying or instance.memory.varying:
        by_rule: dict[str, list[Certificate]] = {}
        for certificate in (*graph_bounds(instance), *_on_paths(instance)):
            by_rule.setdefault(certificate.rule, []).append(certificate)
        for certificates in by_rule.values():
            found += _best(certificates)
    return sorted(found, key=lambda c: -c.value)


def _on_paths(instance: Instance) -> Iterator[Certificate]:
    """What the rules for chains give on paths of an instance that is no chain."""
    for part in parts(instance):
        yield from map(part.lifted, lower_bounds(part.instance))


def _best(certificates: Iterable[Certificate]) -> list[Certificate]:
    """The first of those with the highest value; none of none."""
    best = max(certificates, key=lambda c: c.value, default=None)
    return [] if best is None else [best]


def stays(instance: Instance, least: int, steps: int = 300_000) -> Iterator[Certificate]:
    """Bounds above `least` by the rule `stays` for the instance's objective, each better than the one before.

    They take longer than all other rules, so that a search asks for them only if it is not done without.

    Parameters
    ----------
    steps
        When to give up: a million are about half a second.
    """
    return _Bounds(instance).stays(least, steps) if instance.placement.plain else iter(())
