"""The rule `stays`: its best weights, the states it counts, and what it does for tight caps."""

from __future__ import annotations

import random
from itertools import product
from time import process_time

import pytest

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance, Objective
from bubbleproof.schedules.placement import loop, vee, wave
from bubbleproof.solver.bounds import lower_bounds, stays
from bubbleproof.solver.bounds_stays import Phase, Stays, best_weights
from bubbleproof.solver.driver import solve
from bubbleproof.verify.certificate import check


def tight(kind: str, p: int, m: int, more: int, objective: Objective) -> Instance:
    """Stages that take 1 … 3, freed in two parts, under the least cap at which a step is possible and a bit more."""
    placement = {"vee": lambda: vee(p), "loop": lambda: loop(p, 2), "wave": lambda: wave(p, 3)}[kind]()
    stages = placement.stages
    taken = [1 + s % 3 for s in range(stages)]
    freed = [-(s % 2) for s in range(stages)]
    costs = Costs.make(stages, F=2, B=3, W=1, comm=1)
    bare = Instance(placement, m, costs, Memory.make(stages, p, F=taken, B=freed))
    cap = [bare.least_cap(rank) + more for rank in range(p)]
    return Instance(placement, m, costs, Memory.make(stages, p, F=taken, B=freed, cap=cap), objective)


def best_stays(instance: Instance) -> int:
    """The best bound of the rule, 0 if none."""
    return max((certificate.value for certificate in stays(instance, 0)), default=0)


@pytest.mark.parametrize("kind", ["vee", "loop", "wave"])
@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_each_bound_is_better_than_the_one_before_and_accepted(kind: str, objective: Objective) -> None:
    least = 0
    for more in range(4):
        for certificate in stays(tight(kind, 3, 6, more, objective), least):
            assert certificate.value > least
            least = certificate.value
            assert check(tight(kind, 3, 6, more, objective), certificate).proved == certificate.value
        least = 0


def test_under_the_least_cap_a_microbatch_at_a_time_is_certified_optimal() -> None:
    costs = Costs.make(6, F=2, B=3, W=1, comm=1)
    instance = Instance(vee(3), 6, costs, Memory.make(6, 3, F=[2, 2, 2, 1, 1, 1], cap=3))
    record = solve(instance, time_limit=5, workers=1).record
    assert record.value == record.bound == 6 * (12 + 4 + 18 + 4 + 1)
    assert record.level == "certified"
    assert record.proof == "stays"
    assert lower_bounds(instance)[0].value < record.bound


def phases(rng: random.Random) -> list[Phase]:
    """A random climb of up to three stages, its top, descent and W."""
    n, held, found = rng.randint(1, 4), [rng.randint(1, 3)], []
    for _ in range(rng.randint(0, 2)):
        held.append(held[-1] + rng.randint(1, 3))
    found += [Phase(0, "up", memory, rng.randint(1, 9), n) for memory in held[:-1]]
    found.append(Phase(0, "top", held[-1], rng.randint(1, 9), n))
    found += [Phase(0, "down", memory, rng.randint(1, 9), n) for memory in reversed(held[:-1])]
    return found + [Phase(0, "W", rng.randint(1, 3), rng.randint(0, 3), n) for _ in held]


def safe(climb: tuple[int, ...], held: list[int], room: int) -> bool:
    """Whether all of a climb can get to the top, tried in every order."""
    memory = sum(k * a for k, a in zip(climb, held, strict=False))
    if memory > room:
        return False
    moves = [
        tuple(k - (j == i) + (j == i + 1) for j, k in enumerate(climb))
        for i, count in enumerate(climb)
        if count and memory - held[i] + held[i + 1] <= room
    ]
    return not any(climb) or any(safe(moved, held, room) for moved in moves)


def test_safe_states_are_those_from_which_some_order_of_climbing_succeeds() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        every = phases(rng)
        held = [x.memory for x in every if x.kind in ("up", "top")]
        room = held[-1] + rng.randint(0, 6)
        found = Stays(every, room)
        scaled = [found.memory[i] for i in range(len(held))]
        ranges = [range(every[0].n + 1)] * (len(held) - 1)
        expected = {u for u in product(*ranges) if sum(u) <= every[0].n and safe(u, scaled, found.room)}
        assert set(found.climbs or ()) == expected


def test_the_weights_are_feasible_and_no_simple_ones_are_better() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        every = phases(rng)
        states = Stays(every, max(x.memory for x in every) + rng.randint(0, 6))
        found = best_weights(states, 0, 10**6, with_last=True)
        area = [x.n * x.length for x in every]
        for weights in (found.weights, *([rng.randint(0, 3) for _ in every] for _ in range(20))):
            most, state = states.fullest(weights)
            assert most == sum(w * k for w, k in zip(weights, state, strict=True))
            if most:
                assert -(-sum(w * x for w, x in zip(weights, area, strict=True)) // most) <= found.value


def test_bounds_of_many_ranks_and_microbatches_take_well_under_a_second() -> None:
    instance = Instance(vee(32), 256, Costs.make(64, F=1, B=1, W=1), Memory.make(64, 32, F=3, B=-1, cap=101))
    begun = process_time()
    found = list(stays(instance, 0))
    assert process_time() - begun < 1
    assert all(check(instance, certificate).accepted for certificate in found)
