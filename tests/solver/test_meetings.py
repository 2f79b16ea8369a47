"""Schedules from patterns of meetings."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import custom, linear, vee
from bubbleproof.solver.bounds import lower_bounds
from bubbleproof.solver.flat import Flat, peaks, replay_flat
from bubbleproof.solver.meetings import from_meetings, meetings, pattern, schedules
from bubbleproof.verify import verify


def chain(p: int, m: int, times: tuple[int, int, int], comm: int, cap: int, *, two_part: bool = False) -> Instance:
    held, lost = (3, -1) if two_part else (1, 0)
    costs = Costs.make(p, F=times[0], B=times[1], W=times[2], comm=comm)
    return Instance(linear(p), m, costs, Memory.make(p, p, F=held, B=lost, cap=held * cap))


def best(instance: Instance) -> int:
    """The least makespan of all orders from patterns."""
    flat, x = Flat(instance), meetings(instance)
    assert x is not None
    found = [orders for orders, _ in schedules(flat, x) if orders is not None]
    timed = [replay_flat(flat, orders) for orders in found]
    return min(times.makespan for times in timed if times is not None)


@pytest.mark.parametrize(
    ("p", "m", "times", "comm", "cap", "optimum"),
    [
        (4, 8, (1, 1, 1), 0, 3, 31),
        (4, 12, (1, 1, 1), 0, 3, 44),
        (4, 16, (1, 1, 1), 0, 3, 57),
        (4, 24, (1, 1, 1), 0, 3, 84),
    ],
)
def test_a_pattern_comes_within_a_few_steps_of_a_known_optimum(p, m, times, comm, cap, optimum):
    assert optimum <= best(chain(p, m, times, comm, cap)) <= optimum * 1.06


def test_it_does_not_matter_which_rank_runs_which_stage():
    straight = chain(5, 16, (18, 17, 9), 1, 3)
    for ranks in ((4, 3, 2, 1, 0), (2, 0, 4, 1, 3)):
        assert best(straight.with_(placement=custom(ranks))) == best(straight)


def test_many_ranks_get_a_schedule_that_the_greedy_is_far_from():
    """32 ranks with the times of the zero-bubble paper's largest model: within 7 % of the bound, in under a second."""
    costs = Costs.make(32, F=10453, B=10465, W=7540, comm=559)
    instance = Instance(linear(32), 128, costs, Memory.make(32, 32, F=1, cap=17))
    bound = max(c.value for c in lower_bounds(instance) if c.objective == "makespan")
    assert bound <= best(instance) <= bound * 1.08


@pytest.mark.parametrize("seed", range(12))
def test_what_comes_from_a_pattern_is_whole_keeps_its_caps_and_respects_every_bound(seed):
    rng = random.Random(seed)
    p, m = rng.randint(3, 6), rng.randint(4, 14)
    times = rng.randint(1, 9), rng.randint(1, 9), rng.randint(0, 6)
    cap = rng.randint(2, min(p, m) - 1)
    instance = chain(p, m, times, rng.randint(0, 3), cap, two_part=rng.random() < 0.5)
    flat, x = Flat(instance), meetings(instance)
    assert x is not None
    bound = max(c.value for c in lower_bounds(instance) if c.objective == "makespan")
    some = 0
    for orders, effort in schedules(flat, x):
        assert effort > 0
        if orders is None:
            continue
        times_of = replay_flat(flat, orders)
        assert times_of is not None
        assert flat.cap is not None
        assert all(have <= most for have, most in zip(peaks(flat, orders), flat.cap, strict=True))
        assert times_of.makespan >= bound
        assert not verify(flat.schedule(orders), instance).violations
        some += 1
    assert some


def test_a_pattern_is_one_that_orders_can_have():
    """Later backwards meet a forward on no fewer ranks, and later forwards a backward on no more."""
    for p, m, cap in ((4, 12, 3), (6, 20, 4), (8, 24, 5)):
        x = meetings(chain(p, m, (18, 17, 9), 1, cap))
        assert x is not None
        rows = pattern(x, m - 1, 20)
        assert len(rows) == m
        for j, row in enumerate(rows):
            assert len(row) == min(j, cap - 1)
            assert all(0 <= y < p for y in row)
            assert all(a <= b for a, b in pairwise(row))
            for i in range(j - len(row), j - 1):
                assert row[i - (j - len(row))] <= rows[j - 1][i - (j - 1 - len(rows[j - 1]))]


def test_orders_run_forwards_before_backwards_exactly_where_the_pattern_says_so():
    instance = chain(6, 18, (18, 17, 9), 1, 4)
    flat, x = Flat(instance), meetings(instance)
    assert x is not None
    rows = pattern(x, 17, 20)
    orders = from_meetings(flat, rows)
    assert orders is not None
    for rank, order in enumerate(orders):
        kinds = [queue % 3 for queue in order]
        forward = [at for at, kind in enumerate(kinds) if kind == 0]
        backward = [at for at, kind in enumerate(kinds) if kind == 1]
        for j, row in enumerate(rows):
            for i, ranks in enumerate(row, start=j - len(row)):
                assert (forward[j] < backward[i]) == (rank < ranks)


def test_instances_without_meetings_are_left_alone():
    for cap in (4, 5, 8):  # as many as there are ranks
        assert meetings(chain(4, 12, (1, 1, 1), 0, cap)) is None
    assert meetings(chain(4, 12, (1, 1, 1), 0, 3)) is not None
    costs = Costs.make(6, F=1, B=1, W=1)
    assert meetings(Instance(vee(3), 8, costs, Memory.make(6, 3, F=1, cap=3))) is None
