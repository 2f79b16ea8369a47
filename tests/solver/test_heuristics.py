"""The greedy and its helpers: never stuck, never above a cap, and timed like `replay` and `align`."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from bubbleproof.schedules.align import align
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import bidirectional, linear, vee, wave
from bubbleproof.schedules.timeline import replay
from bubbleproof.solver.flat import Flat, least_span, peaks, replay_flat
from bubbleproof.solver.heuristics import fused_one_at_a_time, greedy, one_at_a_time, reserves
from bubbleproof.solver.tuning import grid, neighbour
from bubbleproof.verify import Verdict, verify
from tests.strategies import instances

PLACEMENTS = (linear(3), vee(3), wave(2, 3), bidirectional(4))


def tightest(instance: Instance) -> Instance:
    """The same instance under the least cap that one microbatch alone fits in, on each route."""
    routes = set(instance.route_of_microbatch)
    return instance.with_cap(tuple(max(instance.least_memory(r, k) for k in routes) for r in range(instance.ranks)))


def one_per_route(instance: Instance) -> Instance:
    """The same instance under the least cap that one microbatch of each route fits in at once."""
    routes = set(instance.route_of_microbatch)
    return instance.with_cap(tuple(sum(instance.least_memory(r, k) for k in routes) for r in range(instance.ranks)))


def random_knobs(flat: Flat, seed: int):
    """Settings a few random steps away from one of the grid."""
    rng = random.Random(seed)
    knobs = rng.choice(list(grid(flat)))
    for _ in range(rng.randrange(4)):
        knobs = neighbour(flat, knobs, rng)
    return knobs


@settings(deadline=None, max_examples=150)
@given(st.data(), st.sampled_from(PLACEMENTS), st.integers(1, 6), st.integers(0, 3), st.integers(0, 10**6))
def test_under_any_settings_and_the_tightest_cap_the_greedy_ends_with_a_schedule_that_the_judge_accepts(
    data, placement, microbatches, slack, seed
):
    stages = placement.stages
    per_stage = st.lists(st.integers(0, 4), min_size=stages, max_size=stages)
    taken = data.draw(per_stage)
    back = [data.draw(st.integers(-f, 0)) for f in taken]
    costs = Costs.make(stages, F=data.draw(per_stage), B=data.draw(per_stage), W=data.draw(per_stage), comm=1)
    loose = Instance(placement, microbatches, costs, Memory.make(stages, placement.ranks, F=taken, B=back))
    tight = one_per_route(loose)
    instance = tight.with_cap(tuple(cap + slack for cap in tight.memory.cap))
    flat = Flat(instance)
    orders = greedy(flat, random_knobs(flat, seed), reserves(flat))
    assert orders is not None
    assert verify(flat.schedule(orders), instance).verdict is Verdict.PROVED


@settings(deadline=None, max_examples=100)
@given(instances(overlap=False), st.integers(0, 10**6))
def test_orders_are_timed_like_replay_and_align_and_hold_what_the_timeline_holds(instance, seed):
    flat = Flat(instance)
    orders = greedy(flat, random_knobs(flat, seed), reserves(flat)) or one_at_a_time(flat)
    schedule = flat.schedule(orders)
    timeline = replay(schedule, instance)
    times, least = replay_flat(flat, orders), least_span(flat, orders)
    assert times.makespan == timeline.makespan
    assert times.last == [row[-1] if row else 0 for row in timeline.ends]
    assert least.span == align(schedule, instance).span
    static = instance.memory.static
    assert [held + s for held, s in zip(peaks(flat, orders), static, strict=True)] == [
        peak.memory for peak in timeline.peaks
    ]
    assert flat.orders(schedule) == orders


@settings(deadline=None, max_examples=50)
@given(instances())
def test_one_microbatch_at_a_time_with_fused_backwards_fits_under_the_least_cap_that_an_instance_may_have(instance):
    instance = tightest(instance)
    schedule = fused_one_at_a_time(instance)
    assert verify(schedule, instance).verdict is Verdict.PROVED


def test_orders_that_wait_for_each_other_have_no_times():
    flat = Flat(Instance(linear(2), 1, Costs.make(2, F=1, B=1), Memory.make(2, 2)))
    assert replay_flat(flat, [[1, 0], [2, 3]]) is None
    assert least_span(flat, [[1, 0], [2, 3]]) is None


def test_settings_are_the_same_for_the_same_seed():
    flat = Flat(Instance(linear(4), 6, Costs.make(4, F=1, B=1, W=1), Memory.make(4, 4)))
    first, second = random.Random(3), random.Random(3)
    start = next(iter(grid(flat)))
    assert [neighbour(flat, start, first) for _ in range(20)] == [neighbour(flat, start, second) for _ in range(20)]
