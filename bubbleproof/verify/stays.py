"""The rule `stays` of docs/bounds.md: how many microbatches can be at which point of their stay on a rank at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import gcd

import msgspec

from bubbleproof.verify.normal_form import Refused, Step

__all__ = ["stays"]

_CELLS, _STATES = 1000, 5000
"""Units of memory above which it is counted in larger ones, and the most states of climbing microbatches (both part
of the rule)."""


class _Phase(msgspec.Struct):
    """A part of the stay of a microbatch on the rank."""

    weight: int
    memory: int
    length: int
    n: int


class _Climb(msgspec.Struct):
    """The phases of one route before its last stage on the rank, and the memory at its last stage there."""

    phases: list[_Phase]
    full: int


def _phases(step: Step, rank: int, weights: Sequence[int]) -> tuple[list[_Climb], list[_Phase], list[_Phase]]:
    """Climbs, the other phases until the last backward, and those of W, with their weights."""
    given, shares = iter(weights), step.shares(rank)
    climbs, later, last = [], [], []
    for n, route in step.routes:
        stages = [s for s, r in enumerate(route) if r == rank]
        if not stages:
            continue
        held = [sum(shares[s].a for s in stages[: i + 1]) for i in range(len(stages))]
        top = stages[-1]
        climb = [
            _Phase(next(given), a, step.up(route, s, t), n) for a, s, t in zip(held, stages, stages[1:], strict=False)
        ]
        climbs.append(_Climb(climb, held[-1]))
        later.append(_Phase(next(given), held[-1], step.round_trip(route, top) + shares[top].b, n))
        for i in reversed(range(len(stages) - 1)):
            time = step.down(route, stages[i + 1], stages[i]) + shares[stages[i]].b
            later.append(_Phase(next(given), held[i], time, n))
        last += [_Phase(next(given), shares[s].q, shares[s].w, n) for s in stages]
    return climbs, later, last


def _climbing(climb: _Climb, room: int) -> Iterator[tuple[int, ...]]:
    """How many microbatches of one route can be in each phase of its climb."""
    ranges = (range(1 + min(x.n, room // x.memory if x.memory else x.n)) for x in climb.phases)
    for counts in product(*ranges):
        if not climb.phases or sum(counts) <= climb.phases[0].n:
            yield counts


def _safe(climbs: list[_Climb], room: int) -> Iterator[tuple[int, int]]:
    """(memory, weight) of each state of climbing microbatches from which all can climb on, one step at a time."""
    flat = [x for climb in climbs for x in climb.phases]
    after = [y for climb in climbs for y in [*(x.memory for x in climb.phases), climb.full][1:]]
    ends = [i + 1 == len(climb.phases) for climb in climbs for i in range(len(climb.phases))]
    steps = [len(climb.phases) - i for climb in climbs for i in range(len(climb.phases))]
    size = 1
    for climb in climbs:
        for x in climb.phases:
            size *= 1 + min(x.n, room // x.memory if x.memory else x.n)
    if size > _STATES:
        raise Refused(f"{size} states of climbing microbatches are more than {_STATES}")
    states = [sum(parts, ()) for parts in product(*(_climbing(climb, room) for climb in climbs))]
    states.sort(key=lambda u: sum(k * n for k, n in zip(u, steps, strict=True)))
    safe: set[tuple[int, ...]] = set()
    for u in states:
        memory = sum(k * x.memory for k, x in zip(u, flat, strict=True))
        if memory > room:
            continue

        def next_is_safe(i: int, u: tuple[int, ...] = u, memory: int = memory) -> bool:
            if not u[i] or memory - flat[i].memory + after[i] > room:
                return False
            moved = [k - (j == i) + (j == i + 1 and not ends[i]) for j, k in enumerate(u)]
            return tuple(moved) in safe

        if not any(u) or any(map(next_is_safe, range(len(u)))):
            safe.add(u)
            yield memory, sum(k * x.weight for k, x in zip(u, flat, strict=True))


def _most(climbs: list[_Climb], others: list[_Phase], room: int) -> int:
    """The most weight that a state can have."""
    items = [(x.memory, x.weight) for x in others if x.weight]
    if not all(memory for memory, _ in items):
        raise Refused("a phase that holds no memory has a weight")
    best = [0] * (room + 1)
    for cell in range(1, room + 1):
        best[cell] = max([best[cell - 1]] + [best[cell - a] + weight for a, weight in items if a <= cell])
    return max(weight + best[room - memory] for memory, weight in _safe(climbs, room))


def stays(step: Step, rank: int, via: int, weights: Sequence[int]) -> dict[str, int]:
    """The summands of the bound."""
    room = step.room(rank)
    if room is None:
        raise Refused(f"rank {rank} has no cap, or a W that takes memory")
    count = sum(3 * route.count(rank) - 1 for _, route in step.routes if rank in route)
    if len(weights) != count or min(weights) < 0:
        raise Refused(f"rank {rank} has {count} phases, each with a weight of at least 0")
    climbs, later, last = _phases(step, rank, weights)
    if via not in (-1, rank) and any(x.weight for x in last):
        raise Refused("with weights on W the rule bounds the makespan or the span of its own rank")
    every = [*(x for climb in climbs for x in climb.phases), *later, *last]
    unit = gcd(*(x.memory for x in every)) or 1
    if room // unit > _CELLS:
        unit = -(-room // _CELLS)
    for x in every:
        x.memory //= unit
    for climb in climbs:
        climb.full //= unit
    total, most = sum(x.n * x.length * x.weight for x in every), _most(climbs, [*later, *last], room // unit)
    if not most:
        raise Refused("no phase that a microbatch can be in has a weight")
    parts = {"head": step.head(rank, via), "weight times time, over the most at once": -(-total // most)}
    if not any(x.weight for x in last):
        shares, tail = step.shares(rank), step.tail(rank, via)
        least = min(shares[route.index(rank)].w for _, route in step.routes if rank in route)
        parts["tail"] = max(tail, least) if via in (-1, rank) else tail
    return parts
