"""Attacks on the theorems of docs/semantics.md, which names these tests."""

from fractions import Fraction
from itertools import product
from math import ceil, lcm

from hypothesis import given, settings
from hypothesis import strategies as st

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Op, Overlap, members
from bubbleproof.schedules.placement import bidirectional, linear
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.verify import Verdict, verify
from bubbleproof.verify.case import Case
from tests.strategies import instances_with_schedules
from tests.verify.model import (
    all_orders,
    cycle_mean,
    edges,
    least_span,
    lengths,
    levels_by_time,
    relax,
    repeated,
)

small = settings(max_examples=120, deadline=None)


def rows(x, schedule):
    return [[x[rank, position] for position in range(len(order))] for rank, order in enumerate(schedule.orders)]


@st.composite
def delayed(draw, instance, schedule):
    """A random timeline: every slot has a random release time on top of what the order demands."""
    release = {place: draw(st.integers(0, 9)) for place in lengths(schedule, instance)}
    return rows(relax(release, edges(schedule, instance)), schedule)


@small
@given(st.data())
def test_no_timeline_of_an_order_starts_a_slot_earlier_than_the_asap_one(data):
    instance, schedule = data.draw(instances_with_schedules())
    starts = Case(schedule, instance).run.starts
    assert [list(row) for row in starts] == rows(
        relax(dict.fromkeys(lengths(schedule, instance), 0), edges(schedule, instance)), schedule
    )
    timeline = data.draw(delayed(instance, schedule))
    report = verify(schedule, instance, timeline=timeline)
    assert report.verdict is Verdict.PROVED
    assert all(a <= b for early, late in zip(starts, timeline, strict=True) for a, b in zip(early, late, strict=True))
    assert report.facts.makespan <= report.facts.claimed_makespan


@small
@given(instances_with_schedules())
def test_least_span_is_the_largest_cycle_mean(case):
    instance, schedule = case
    mean = cycle_mean(schedule, instance)
    assert least_span(schedule, instance) == ceil(mean)
    parts = lcm(*range(1, instance.ranks + 1))
    assert least_span(schedule, instance, parts) == mean
    facts = verify(schedule, instance).facts
    work = max(sum(map(instance.duration, order)) for order in schedule.orders)
    assert work <= mean <= facts.span <= facts.makespan


@small
@given(instances_with_schedules())
def test_repeating_an_order_without_a_barrier_takes_the_largest_cycle_mean_per_iteration(case):
    instance, schedule = case
    mean = cycle_mean(schedule, instance)
    times = 60 * lcm(*range(1, instance.ranks + 1))
    total = repeated(schedule, instance, times)
    assert times * mean <= total <= times * mean + instance.ranks * verify(schedule, instance).facts.makespan


def test_least_span_can_be_half_a_unit_below_what_integers_reach():
    """Two routes in which neither rank alone, but the two in turn, are slowest: theorem 3 with a cycle of two ranks."""
    costs = Costs.make(2, F=1, B=1, W=[1, 10], comm={(0, 1): 1, (1, 0): 0})
    instance = Instance(bidirectional(2), 2, costs, Memory.make(2, 2))
    schedule = Schedule.parse(["0F0 1F1 1B1 1W1 0B0 0W0", "0F1 1F0 1B0 1W0 0B1 0W1"])
    assert cycle_mean(schedule, instance) == Fraction(31, 2)
    assert least_span(schedule, instance) == 16
    assert least_span(schedule, instance, 2) == Fraction(31, 2)
    assert repeated(schedule, instance, 1000) == 15500


@small
@given(st.data())
def test_peak_does_not_depend_on_the_timeline(data):
    instance, schedule = data.draw(instances_with_schedules())
    timeline = data.draw(delayed(instance, schedule))
    assert list(verify(schedule, instance).facts.peak) == levels_by_time(schedule, instance, timeline)


def in_microbatch_order(schedule, instance):
    """The construction of theorem 5."""
    route = instance.route_of_microbatch
    of_route = [
        [j for j in range(instance.microbatches) if route[j] == k] for k in range(len(instance.placement.routes))
    ]
    seen: dict = {}
    split: dict = {}

    def rename(op):
        lane = route[op.microbatch]
        key = ("G" if op.kind in ("B", "BW") else op.kind, op.stage, lane)
        nth = seen.get(key, 0)
        seen[key] = nth + 1
        # the backward of a split microbatch stands before its W on the same rank, so its new name is known by then
        name = split[op.stage, lane][nth] if op.kind == "W" else of_route[lane][nth]
        if op.kind == "B":
            split.setdefault((op.stage, lane), []).append(name)
        return op._replace(microbatch=name)

    return Schedule.of(
        [rename(slot) if isinstance(slot, Op) else Overlap(*map(rename, slot)) for slot in order]
        for order in schedule.orders
    )


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_renaming_to_microbatch_order_keeps_every_timeline_and_all_levels(data):
    instance, schedule = data.draw(instances_with_schedules(max_microbatches=5))
    sorted_ = in_microbatch_order(schedule, instance)
    timeline = data.draw(delayed(instance, schedule))
    before, after = verify(schedule, instance), verify(sorted_, instance, timeline=timeline)
    assert after.verdict is Verdict.PROVED
    assert Case(sorted_, instance).levels.keys() == Case(schedule, instance).levels.keys()
    for rank, changes in Case(schedule, instance).levels.items():
        assert [level for *_, level in Case(sorted_, instance).levels[rank]] == [level for *_, level in changes]
    assert after.facts.makespan <= before.facts.makespan
    assert cycle_mean(sorted_, instance) <= cycle_mean(schedule, instance)
    for order in sorted_.orders:
        for kinds in (("F",), ("B", "BW"), ("W",)):
            for stage in range(instance.stages):
                for route in range(len(instance.placement.routes)):
                    run = [
                        op.microbatch
                        for slot in order
                        for op in members(slot)
                        if op.kind in kinds
                        and op.stage == stage
                        and instance.route_of_microbatch[op.microbatch] == route
                    ]
                    assert run == sorted(run)


def test_the_best_order_in_microbatch_order_is_as_good_as_the_best_of_all():
    for forward, backward, comm, memory in (
        ([1, 1], [2, 2], 0, {}),
        ([2, 1], [1, 3], 1, {}),
        ([1, 3], [3, 1], 2, {"F": [2, 1], "static": [0, 1]}),
    ):
        instance = Instance(linear(2), 2, Costs.make(2, F=forward, B=backward, comm=comm), Memory.make(2, 2, **memory))
        every: dict[tuple[int, ...], list[tuple[int, Fraction]]] = {}
        ordered: dict[tuple[int, ...], list[tuple[int, Fraction]]] = {}
        for orders in product(*all_orders(instance)):
            schedule = Schedule.of(orders)
            report = verify(schedule, instance)
            if report.verdict is Verdict.PROVED:
                value = (report.facts.makespan, cycle_mean(schedule, instance))
                every.setdefault(report.facts.peak, []).append(value)
                if in_microbatch_order(schedule, instance) == schedule:
                    ordered.setdefault(report.facts.peak, []).append(value)
        assert len(every) > 1
        for cap in every:
            for index in (0, 1):  # makespan, least span
                best = [
                    min(
                        v[index]
                        for peak, values in some.items()
                        if all(a <= b for a, b in zip(peak, cap, strict=True))
                        for v in values
                    )
                    for some in (every, ordered)
                ]
                assert best[0] == best[1]
