"""Ops that take no time: several share an instant, and the order among them must still be one that runs and fits."""

from __future__ import annotations

import random

import pytest

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import linear, loop, vee
from bubbleproof.solver.cpsat.objective import Question
from bubbleproof.solver.cpsat.stretch import stretched
from bubbleproof.solver.driver import solve
from bubbleproof.solver.flat import Flat, least_span, peaks, replay_flat


def random_instance(rng: random.Random) -> Instance:
    """Two ranks, one or two chunks, most durations 0, and a cap that binds."""
    placement = rng.choice([linear(2), loop(2, 2), vee(2)])
    stages = range(placement.stages)
    split = rng.random() < 0.6
    costs = Costs.make(
        placement.stages,
        F=[rng.choice([0, 0, 1]) for _ in stages],
        B=[rng.choice([0, 0, 2]) for _ in stages],
        W=[rng.choice([0, 0, 1]) for _ in stages] if split else None,
        comm=rng.choice([0, 0, 3]),
    )
    taken = [rng.randint(0, 3) for _ in stages]
    freed = [-rng.randint(0, f + 1) for f in taken]
    memory = Memory.make(placement.stages, placement.ranks, F=taken, B=freed)
    instance = Instance(placement, 2, costs, memory, rng.choice(["makespan", "span"]))
    return instance.with_cap(tuple(instance.least_memory(rank) + rng.randint(0, 2) for rank in range(2)))


def test_orders_read_from_an_answer_run_and_keep_the_caps_and_the_length():
    found = 0
    for seed in range(150):
        instance = random_instance(random.Random(seed))
        flat = Flat(instance)
        for length in range(2, 40, 3):
            question = Question(flat, length, effort=1.0, seconds=10, seed=0, linearization=0, hint=None)
            answer = question.ask()
            if answer.verdict == "found":
                times = (least_span if instance.objective == "span" else replay_flat)(flat, answer.orders)
                assert times is not None, (seed, "deadlock")
                assert (times.span if instance.objective == "span" else times.makespan) <= length, seed
                if flat.cap is not None:
                    assert all(a <= b for a, b in zip(peaks(flat, answer.orders), flat.cap, strict=True)), seed
                found += 1
                break
    assert found > 100


@pytest.mark.parametrize("workers", [1, 2])
def test_a_cap_that_binds_among_ops_without_duration_is_solved_to_proof(workers):
    costs = Costs.make(4, F=[0, 0, 1, 2], B=0, W=[0, 2, 0, 0], comm=3)
    memory = Memory.make(4, 2, F=[1, 0, 4, 0], B=[-3, 0, -3, 0], W=[2, 0, -1, 0], cap=[5, 0])
    record = solve(Instance(loop(2, 2), 2, costs, memory, "span"), time_limit=60, workers=workers).record
    assert (record.value, record.bound, record.level) == (36, 36, "solver-claimed")


def test_times_that_would_become_too_large_are_left_as_they_are():
    costs = Costs.make(2, F=10**12, B=10**12, W=0)
    flat = Flat(Instance(linear(2), 100, costs, Memory.make(2, 2), "span"))
    assert stretched(flat, 10**15) == (flat, 10**15, 1)


def test_without_ops_of_duration_0_nothing_is_stretched():
    flat = Flat(Instance(linear(2), 3, Costs.make(2, F=1, B=1, W=1, comm=0), Memory.make(2, 2), "makespan"))
    assert stretched(flat, 9) == (flat, 9, 1)
