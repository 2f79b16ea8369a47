"""Random instances, and random schedules of them in microbatch order, for the tests of proofs."""

from __future__ import annotations

import random

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import bidirectional, custom, linear, loop, vee
from bubbleproof.solver.flat import Flat, Orders, least_span, peaks, replay_flat


def random_instance(rng: random.Random, most_microbatches: int = 5) -> Instance:
    """Up to four ranks, one or several chunks, durations from 0, either form of the backward, any form of memory."""
    p = rng.randint(1, 4)
    placement = rng.choice(
        [linear(p), vee(p), loop(p, 2), custom([rng.randrange(p) for _ in range(2)] + list(range(p)))]
    )
    objective = rng.choice(["makespan", "span"])
    if rng.random() < 0.15:
        placement, objective = bidirectional(p), "makespan"
    stages, m = placement.stages, rng.randint(1, most_microbatches)
    split = rng.random() < 0.7
    unlike = objective == "makespan" and rng.random() < 0.3
    low = rng.choice([0, 1, 1])
    costs = Costs.make(
        stages,
        F=[[rng.randint(low, 3) for _ in range(m)] if unlike else rng.randint(low, 4) for _ in range(stages)],
        B=[rng.randint(low, 4) for _ in range(stages)],
        W=[rng.randint(low, 3) for _ in range(stages)] if split else None,
        comm=rng.choice([0, 0, 1, 2]),
        overhead=rng.choice([0, 0, 0, 1]),
    )
    taken = [rng.randint(0, 3) for _ in range(stages)]
    if unlike and rng.random() < 0.5:
        memory = Memory.make(stages, p, F=[[rng.randint(0, 2) for _ in range(m)] for _ in range(stages)])
    elif rng.random() < 0.5:
        memory = Memory.make(stages, p, F=taken, static=rng.randint(0, 2))
    else:
        memory = Memory.make(stages, p, F=taken, B=[-rng.randint(0, f + (rng.random() < 0.3)) for f in taken])
    return Instance(placement, m, costs, memory, objective)


def random_orders(flat: Flat, rng: random.Random) -> Orders:
    """Orders that can run: at every step some op whose inputs have been run."""
    orders: Orders = [[] for _ in range(flat.ranks)]
    done = [0] * len(flat.size)
    bias = [rng.random() for _ in flat.size]
    while True:
        ready = [
            q for q, n in enumerate(flat.size) if done[q] < n and all(done[s] > done[q] for s, _ in flat.inputs[q])
        ]
        if not ready:
            return orders
        chosen = max(ready, key=lambda q: bias[q] + rng.random())
        done[chosen] += 1
        orders[flat.rank[chosen]].append(chosen)


def with_its_cap(instance: Instance, orders: Orders) -> Instance:
    """The instance under the cap that these orders just keep."""
    static = instance.memory.static
    return instance.with_cap(tuple(x + s for x, s in zip(peaks(Flat(instance), orders), static, strict=True)))


def solution_of(instance: Instance, orders: Orders) -> tuple[int, dict[str, int]]:
    """The objective of orders, and the values that they give to the variables of the model of proofs."""
    flat = Flat(instance)
    times = (least_span if instance.objective == "span" else replay_flat)(flat, orders)
    assert times is not None
    length = times.span if instance.objective == "span" else times.makespan
    origin = min(times.first)
    values = {f"first{rank}": first - origin for rank, first in enumerate(times.first)}
    place: dict[str, tuple[int, int]] = {}
    taken = [0] * len(flat.size)
    for rank, order in enumerate(orders):
        for position, queue in enumerate(order):
            k, kind = taken[queue], flat.kinds[queue % flat.width]
            taken[queue] += 1
            name = f"{kind}{flat.stage[queue]}_{flat.microbatches[flat.alike[queue]][k]}"
            values[name] = times.ends[queue][k] - flat.duration[queue] - origin
            place[name] = rank, position
    return length, values | {f"{a}__{b}": int(place[a] < place[b]) for a in place for b in place if a != b}
