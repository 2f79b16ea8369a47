"""Microbatches that differ, and an overhead per op: against every order of tiny instances."""

from __future__ import annotations

import random

import pytest

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import InstanceError
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Op, Overlap
from bubbleproof.schedules.placement import linear, loop, vee
from bubbleproof.schedules.timeline import replay
from bubbleproof.solver.bounds import lower_bounds
from bubbleproof.solver.driver import solve
from bubbleproof.solver.flat import Flat, replay_flat
from bubbleproof.solver.heuristics import one_at_a_time
from bubbleproof.solver.measure import plain_is_best
from bubbleproof.verify import verify
from bubbleproof.verify.certificate import check
from tests.brute import least_makespan


def long_and_short(m: int = 3) -> Instance:
    """Two ranks; every other microbatch takes three times as long and holds three times as much."""
    size = [1 if j % 2 else 3 for j in range(m)]
    costs = Costs.make(2, F=[size, size], B=[size, size], W=[size, size])
    return Instance(linear(2), m, costs, Memory.make(2, 2, F=[size, size]))


def tiny(rng: random.Random, varied: bool = True) -> Instance:
    placement = rng.choice([linear(2), linear(2), vee(1), loop(1, 2)])
    stages, m = placement.stages, 2
    split = rng.random() < 0.5

    def figures(low: int, high: int):
        return [
            [rng.randint(low, high) for _ in range(m)] if varied and rng.random() < 0.7 else rng.randint(low, high)
            for _ in range(stages)
        ]

    costs = Costs.make(
        stages,
        F=figures(0, 3),
        B=figures(0, 3),
        W=figures(0, 3) if split else None,
        BW=figures(1, 5) if rng.random() < 0.3 else None,
        comm=rng.choice([0, 1]),
        overhead=rng.choice([0, 0, 1, 2]),
    )
    memory = Memory.make(stages, placement.ranks, F=figures(0, 3))
    instance = Instance(placement, m, costs, memory)
    if rng.random() < 0.5:
        return instance
    need = [
        max(instance.least_memory(r, microbatch=j, split=k) for j in range(m) for k in (False, True))
        for r in range(placement.ranks)
    ]
    return instance.with_cap(tuple(x + rng.randint(0, 2) for x in need))


@pytest.mark.parametrize("seed", range(25))
def test_what_is_called_optimal_is_the_least_of_all_orders(seed):
    instance = tiny(random.Random(seed))
    least = least_makespan(instance)
    solution = solve(instance, time_limit=5, workers=1)
    record = solution.record
    assert record.bound <= least <= record.value
    if record.level != "open":
        assert record.value == least
    elif plain_is_best(instance):
        raise AssertionError("nothing else is cheaper, so the search must close")


@pytest.mark.parametrize("seed", range(25, 75))
def test_no_certificate_exceeds_the_least_of_all_orders(seed):
    instance = tiny(random.Random(seed))
    least = least_makespan(instance)
    for certificate in lower_bounds(instance):
        assert certificate.value <= least, certificate
        assert check(instance, certificate).accepted


def test_an_order_of_the_microbatches_that_is_not_ascending_can_be_the_best():
    costs = Costs.make(2, F=[[5, 1], [1, 5]], B=0)
    instance = Instance(linear(2), 2, costs, Memory.make(2, 2))
    solution = solve(instance, time_limit=5)
    assert (solution.record.value, solution.record.bound) == (7, 7)  # Johnson's rule: the second first
    assert next(iter(solution.schedule.orders[0])) == Op("F", 0, 1)
    ascending = replay_flat(Flat(instance), one_at_a_time(Flat(instance)))
    assert ascending is not None
    assert ascending.makespan > 7
    assert "microbatches differ" in solution.record.notes[0]


def test_many_unequal_microbatches_are_not_made_from_few():
    instance = long_and_short(60)
    record = solve(instance, time_limit=3, workers=1).record
    assert record.bound <= record.value


def test_equal_microbatches_form_one_class_and_keep_their_order():
    instance = long_and_short(5)
    assert instance.classes == ((0, 2, 4), (1, 3))
    assert not instance.identical
    assert Flat(instance).microbatches == [[0, 2, 4], [1, 3]]
    same = Costs.make(2, F=[[2, 2], [3, 3]], B=1)
    assert Instance(linear(2), 2, same, Memory.make(2, 2)).identical


def test_figures_of_a_microbatch_are_those_that_were_given():
    instance = long_and_short()
    assert [instance.duration(Op("F", 0, j)) for j in range(3)] == [3, 1, 3]
    assert instance.work == (21, 21)
    peaks = replay(Flat(instance).schedule(one_at_a_time(Flat(instance))), instance).peaks
    assert [peak.memory for peak in peaks] == [3, 3]


def test_a_cap_below_the_largest_microbatch_is_refused():
    with pytest.raises(InstanceError, match="cap of rank 0 = 2, but one microbatch alone needs 3 there"):
        long_and_short().with_cap(2)


def test_another_number_of_microbatches_than_the_figures_have_is_refused():
    with pytest.raises(InstanceError, match="cost is given for each of 3 microbatches, but there are 4"):
        long_and_short().with_(microbatches=4)


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        ({"F": [[1, 2], [1, 2, 3]], "B": 1}, r"cost.F\[0\] has 2 entries, cost.F\[1\] has 3; each has one per"),
        ({"F": [[1, 2], 1], "B": [[1, 2, 3], 1]}, r"cost.F\[0\] has 2 entries, cost.B\[0\] has 3"),
        ({"F": [[1, 2], []], "B": 1}, r"cost.F\[1\] is empty"),
        ({"F": [[1, 2]], "B": 1}, "cost.F has 1 entries for 2 stages"),
        ({"F": [[1, -2], 1], "B": 1}, r"cost.F\[0\]\[1\] = -2 is below 0"),
    ],
)
def test_figures_per_microbatch_that_do_not_fit_are_refused(figures, message):
    with pytest.raises(InstanceError, match=message):
        Costs.make(2, **figures)


def test_a_microbatch_that_leaves_something_behind_is_named():
    with pytest.raises(InstanceError, match="memory of stage 0, microbatch 1: F 2 \\+ B 0 \\+ W -1 = 1"):
        Memory.make(1, 1, F=[[1, 2]], B=0, W=[[-1, -1]])


def test_every_op_has_its_overhead_and_a_fused_backward_or_measured_pair_one():
    costs = Costs.make(1, F=2, B=3, W=4, overlap_BW=8, overhead=1)
    instance = Instance(linear(1), 2, costs, Memory.make(1, 1))
    assert [instance.duration(Op(kind, 0, 0)) for kind in ("F", "B", "W", "BW")] == [3, 4, 5, 8]
    assert instance.duration(Overlap(Op("F", 0, 0), Op("BW", 0, 1))) == 9
    assert instance.duration(Overlap(Op("F", 0, 0), Op("B", 0, 1))) == 7  # no time of its own: as its members
    assert instance.work == (24,)
    assert not plain_is_best(instance)


def test_with_an_overhead_a_fused_backward_is_cheaper_than_its_halves():
    fused = Instance(linear(2), 2, Costs.make(2, F=2, B=3, overhead=1), Memory.make(2, 2))
    assert plain_is_best(fused)
    record = solve(fused, time_limit=5).record
    assert (record.value, record.level) == (21, "certified")
    split = fused.with_(costs=Costs.make(2, F=2, B=2, W=1, overhead=1))
    assert not plain_is_best(split)
    assert solve(split, time_limit=5).record.bound <= least_makespan(split)


def test_the_judge_counts_the_overhead_and_the_figures_of_each_microbatch():
    instance = long_and_short()
    instance = instance.with_(costs=Costs.make(2, F=[[3, 1, 3]] * 2, B=[[3, 1, 3]] * 2, W=1, overhead=2))
    schedule = Flat(instance).schedule(one_at_a_time(Flat(instance)))
    line = replay(schedule, instance)
    facts = verify(schedule, instance).facts
    assert (facts.makespan, facts.span) == (line.makespan, line.span)
    assert facts.peak == tuple(peak.memory for peak in line.peaks)
