"""Fused backwards and overlapped pairs in the search: as good as all schedules of tiny instances, and sound bounds."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import bidirectional, custom, linear
from bubbleproof.solver import solve
from bubbleproof.solver.bounds import lower_bounds
from bubbleproof.solver.choices.greedy import Chooser
from bubbleproof.solver.choices.search import wishes
from bubbleproof.solver.measure import plain_is_best, timeline_of
from bubbleproof.verify import Verdict, verify
from bubbleproof.verify.strategies import instances
from tests.solver.test_bounds import orders, times


def instance(placement, m, objective="makespan", cap=None, **costs) -> Instance:
    stages = placement.stages
    memory = Memory.make(stages, placement.ranks, cap=cap)
    return Instance(placement, m, Costs.make(stages, **costs), memory, objective)


TINY = [
    instance(linear(2), 2, F=2, B=2, W=2, BW=3),
    instance(linear(2), 2, "span", F=1, B=2, W=2, BW=3, comm=1),
    instance(linear(2), 3, F=2, B=3, overlap_BW=4),
    instance(linear(2), 3, "span", F=2, B=3, overlap_BW=3, comm=1),
    instance(linear(2), 3, F=2, B=3, overlap_BW=4, cap=2),
    instance(linear(1), 3, F=2, B=2, W=1, overlap_B=3, overlap_BW=3),
    instance(linear(1), 3, F=1, B=2, W=2, BW=3, cap=1),
    instance(bidirectional(2), 2, F=2, B=2, overlap_BW=2),
    instance(custom([0, 1, 0]), 2, F=1, B=2, overlap_BW=2),
    instance(linear(2), 2, F=0, B=1, W=0, BW=0, overlap_B=0, comm=1),
]


def brute(tiny: Instance) -> int:
    """The least objective of all schedules in microbatch order, which is that of all."""
    rows = [list(orders(tiny, rank, True, 40_000)) for rank in range(tiny.ranks)]
    found = [times(tiny, chosen) for chosen in product(*rows)]
    index = 0 if tiny.objective == "makespan" else 1
    return min(value[index] for value in found if value is not None)


@pytest.mark.parametrize("tiny", TINY, ids=range(len(TINY)))
def test_the_solver_is_as_good_as_every_schedule_with_fused_backwards_and_pairs(tiny):
    assert not plain_is_best(tiny)
    best = brute(tiny)
    record = solve(tiny, time_limit=30, workers=1).record
    assert (record.value, record.bound) == (best, best)
    assert record.level != "open"


def test_forwards_before_the_first_backward_are_in_no_pair():
    """On rank 1 it comes after 10,400; four forwards alone leave 2,400 of that idle and four pairs unused."""
    bounds = {bound.rule: bound.value for bound in lower_bounds(Instance.load("examples/bidirectional-moe.toml"))}
    assert (bounds["pairs"], bounds["load"]) == (40_000, 36_700)


def test_pairs_are_searched_where_families_know_none():
    """The example of two routes: DualPipe takes 43,300 there."""
    example = Instance.load("examples/bidirectional-moe.toml")
    solution = solve(example, time_limit=4, workers=1)
    assert solution.record.value <= 41_900
    assert "searched" in solution.record.notes[-1] or "CP-SAT chose" in solution.record.notes[-1]


@settings(max_examples=60)
@given(instances(max_microbatches=3, recompute=True, channels=("latency", "pair")), st.data())
def test_the_greedy_builds_valid_schedules_under_any_wishes(drawn, data):
    """Its own times are those of a valid timeline, so replay is never later; caps hold or it gives nothing."""
    plain = replace(drawn.memory, cap=None)
    least = [max(drawn.least_memory(r, k) for k in set(drawn.route_of_microbatch)) for r in range(drawn.ranks)]
    caps = tuple(low + data.draw(st.integers(0, 6)) for low in least)
    capped = drawn.with_(memory=replace(plain, cap=caps))
    chooser = Chooser(capped)
    wanted = data.draw(st.sampled_from(list(wishes(chooser))))
    built = chooser.run(wanted)
    if built is None:
        return
    schedule, makespan, span = built
    report = verify(schedule, capped)
    assert report.verdict is Verdict.PROVED, report.violations
    assert report.facts.makespan <= makespan
    assert timeline_of(schedule, capped.with_(objective="span")).span <= span
