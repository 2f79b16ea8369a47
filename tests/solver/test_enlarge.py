"""What repeats in a schedule for few microbatches gives schedules for many."""

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import bidirectional, linear, vee
from bubbleproof.schedules.timeline import replay
from bubbleproof.solver import solve
from bubbleproof.solver.enlarge import small_instance
from bubbleproof.solver.flat import Flat, peaks
from bubbleproof.solver.heuristics import greedy, one_at_a_time
from bubbleproof.solver.periodic import find_period
from bubbleproof.solver.tuning import grid
from bubbleproof.verify import Verdict, verify


def an_instance(p, m, times, cap, place=linear, objective="makespan"):
    f, b, w, c = times
    placement = place(p)
    costs = Costs.make(placement.stages, F=f, B=b, W=w, comm=c)
    return Instance(placement, m, costs, Memory.make(placement.stages, p, F=1, B=0, W=-1, cap=cap), objective)


@pytest.mark.parametrize(
    ("p", "times", "cap", "at_24", "at_64", "at_1024"),
    [
        (8, (18, 18, 9, 1), 8, 1297, 3097, 46297),
        (8, (18, 18, 9, 1), 15, 1220, 3020, 46220),
        (8, (3, 4, 2, 0), 8, 251, 611, 9251),
        (8, (3, 4, 2, 0), 15, 237, 597, 9237),
        (16, (18, 18, 9, 1), 16, 1545, 3345, 46545),
        (16, (3, 4, 2, 0), 16, 291, 651, 9291),
    ],
)
def test_the_optimum_is_certified_at_every_number_of_microbatches(p, times, cap, at_24, at_64, at_1024):
    for m, optimum in ((24, at_24), (64, at_64), (1024, at_1024)):
        record = solve(an_instance(p, m, times, cap), time_limit=20, workers=1).record
        assert (record.value, record.bound, record.level) == (optimum, optimum, "certified")


def test_many_microbatches_cost_the_search_no_more_than_few():
    """Counted in the orders that are timed on the large instance, not in seconds: one, where few hundred were."""
    instance = an_instance(8, 1024, (18, 18, 9, 1), 8)
    told = []
    record = solve(instance, time_limit=20, workers=1, on_progress=told.append).record
    assert record.source == "greedy, enlarged from 24 microbatches"
    assert len(told) == 1


@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_a_large_schedule_that_is_judged_as_arrays_passes_the_judge_of_single_ops(objective):
    instance = an_instance(4, 1000, (3, 4, 2, 1), 4, objective=objective)
    solution = solve(instance, time_limit=20, workers=1)
    assert "enlarged" in solution.record.source
    claims = {"makespan": solution.timeline.makespan, "span": solution.record.span, "peak": solution.record.peak}
    report = verify(solution.schedule, instance, timeline=solution.timeline.starts, claims=claims)
    assert report.verdict == Verdict.PROVED


PLACES = {"linear": linear, "vee": vee, "bidirectional": bidirectional}


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    place=st.sampled_from(sorted(PLACES)),
    p=st.sampled_from([2, 4]),
    times=st.tuples(*[st.integers(0, 4)] * 4),
    depth=st.integers(1, 3),
    more=st.integers(1, 40),
    which=st.integers(0, 5),
)
def test_more_rounds_of_what_repeats_are_a_schedule_that_keeps_the_peaks(place, p, times, depth, more, which):
    m = 24 * depth
    instance = an_instance(p, m, times, depth * p * 2, PLACES[place])
    flat = Flat(instance)
    orders = greedy(flat, list(grid(flat))[which]) or one_at_a_time(flat)
    routes = len(flat.microbatches)
    words = next(filter(None, (find_period(flat, orders, (step,) * routes) for step in range(1, 5))), None)
    if words is None:
        return
    assert words.orders(words.rounds) == orders
    n = words.rounds + more
    larger = Flat(instance.with_(microbatches=m + more * words.period))
    counts = tuple(map(len, larger.microbatches))
    assert words.blocks(counts) == n
    schedule = larger.schedule(words.orders(n))
    assert verify(schedule, larger.instance).verdict == Verdict.PROVED
    assert peaks(larger, words.orders(n)) == peaks(flat, orders)
    pattern = words.pattern()
    assert pattern is None or pattern.schedule(n) == schedule


def test_one_microbatch_at_a_time_repeats_from_the_first_to_the_last():
    flat = Flat(an_instance(3, 9, (1, 1, 1, 0), 3))
    words = find_period(flat, one_at_a_time(flat), (1,))
    assert words is not None
    assert words.rounds == 9
    assert str(words.pattern()) == "\n".join(f"{{{s}F[b] {s}B[b] {s}W[b]}}×n" for s in range(3))


def test_orders_that_do_not_repeat_have_no_period():
    flat = Flat(an_instance(2, 8, (1, 1, 1, 0), 8))
    gpipe = [[base] * 8 + [base + 1] * 8 + [base + 2] * 8 for base in (0, 3)]
    assert find_period(flat, gpipe, (1,)) is None


def test_the_small_instance_leaves_the_same_rest():
    """Bounds count windows of as many microbatches as fit at once, so both have to be cut short alike."""
    for m in range(80, 100):
        instance = an_instance(4, m, (1, 1, 1, 0), 5)
        small = small_instance(instance, Flat(instance))
        assert small is not None
        assert 15 <= small.microbatches < 20
        assert (m - small.microbatches) % 5 == 0


def test_an_instance_of_few_microbatches_is_not_made_smaller():
    instance = an_instance(8, 40, (1, 1, 1, 0), 8)
    assert small_instance(instance, Flat(instance)) is None


def test_makespans_grow_by_the_work_of_a_microbatch():
    flat = Flat(an_instance(8, 24, (18, 18, 9, 1), 8))
    words = find_period(flat, greedy(flat, next(grid(flat))) or [], (1,))
    assert words is not None
    lengths = [
        replay(Flat(larger).schedule(words.orders(words.rounds + more)), larger).makespan
        for more in range(0, 40, 8)
        for larger in [flat.instance.with_(microbatches=24 + more)]
    ]
    assert {b - a for a, b in itertools.pairwise(lengths)} == {8 * 45}
