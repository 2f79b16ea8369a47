"""Lower bounds in milliseconds: where each rule of docs/bounds.md gives the most.

The numbers are computed here from prefix sums along the stages; `bubbleproof.verify.certificate` computes them again,
from the definitions, so that a slip on either side shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from math import gcd

import msgspec

from bubbleproof.schedules.instance import Instance
from bubbleproof.solver.bounds_ends import Passage, find_ends
from bubbleproof.solver.bounds_graph import graph_bounds
from bubbleproof.solver.bounds_pairs import most_saved, opening
from bubbleproof.solver.bounds_path import parts
from bubbleproof.solver.bounds_stays import Phase, Stays, best_weights
from bubbleproof.solver.bounds_sums import Chunk, Route, Sums, weights_left
from bubbleproof.verify.certificate import Certificate

__all__ = ["lower_bounds", "stays"]


class _Rules(Sums):
    """For each rule the certificates that it gives, wherever it can be applied."""

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
                value = (
                    work
                    + opening(saved, longest, head, begin, most)
                    + _after(tail, weights_left(chunks, room), rank, via)
                )
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

    def _routes_of(self, rank: int) -> Iterator[Route]:
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

    def _passing(self, rank: int) -> Iterator[tuple[Chunk, Route]]:
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

    def _idle(self, c: Chunk, room: int | None) -> tuple[int, int, int, tuple[int, ...]]:
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
        bounds = _Rules(instance)
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
    return _Rules(instance).stays(least, steps) if instance.placement.plain else iter(())
