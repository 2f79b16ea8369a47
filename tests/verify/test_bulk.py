"""Judging by arrays says what the judge of single ops says."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.families import FAMILIES
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import KINDS, Op, Overlap
from bubbleproof.schedules.placement import linear
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.table import Table
from bubbleproof.schedules.timeline import replay
from bubbleproof.verify import Verdict, bulk, bulk_leap, bulk_run, verify
from tests.strategies import instances_with_schedules

MANY = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(params=["one by one", "rounds", "leaps"])
def way(request, monkeypatch):
    """Small schedules have few lanes, so without this they would all be executed one run at a time."""
    if request.param != "one by one":
        monkeypatch.setattr(bulk_run, "_WORTH_A_ROUND", 0)
    monkeypatch.setattr(bulk_leap, "_LONGEST", 2 if request.param == "leaps" else 1 << 30)
    return request.param


@MANY
@given(case=instances_with_schedules(), data=st.data())
def test_the_arrays_prove_what_the_judge_proves_with_the_same_report(way, case, data):
    instance, schedule = case
    report = verify(schedule, instance)
    assert bulk.prove(Table.of(schedule), instance) == report.facts
    assert bulk.verify_table(Table.of(schedule), instance) == report
    tightest = instance.with_cap(tuple(max(p, instance.least_memory(r, 0)) for r, p in enumerate(report.facts.peak)))
    assert bulk.verify_table(Table.of(schedule), tightest) == verify(schedule, tightest)


@st.composite
def damaged(draw):
    """A valid schedule with one to three faults, and its instance, perhaps with a cap and perhaps without a split."""
    instance, schedule = draw(instances_with_schedules())
    rows = [list(order) for order in schedule.orders]
    for _ in range(draw(st.integers(1, 3))):
        rank = draw(st.integers(0, len(rows) - 1))
        row = rows[rank]
        if not row:
            continue
        at = draw(st.integers(0, len(row) - 1))
        fault = draw(st.sampled_from(["drop", "swap", "copy", "move", "rename", "kind", "pair", "row"]))
        if fault == "drop":
            del row[at]
        elif fault == "swap":
            other = draw(st.integers(0, len(row) - 1))
            row[at], row[other] = row[other], row[at]
        elif fault == "copy":
            row.insert(draw(st.integers(0, len(row))), row[at])
        elif fault == "move":
            rows[draw(st.integers(0, len(rows) - 1))].append(row.pop(at))
        elif isinstance(row[at], Op) and fault == "rename":
            stage = draw(st.integers(-1, instance.stages))
            row[at] = row[at]._replace(stage=stage, microbatch=draw(st.integers(-1, instance.microbatches)))
        elif isinstance(row[at], Op) and fault == "kind":
            row[at] = row[at]._replace(kind=draw(st.sampled_from(KINDS)))
        elif fault == "pair" and at and isinstance(row[at], Op) and isinstance(row[at - 1], Op):
            row[at - 1 : at + 1] = [Overlap(row[at - 1], row[at])]
        elif fault == "row":
            rows.append(rows.pop(rank))
    if draw(st.booleans()):
        needs = [max(instance.least_memory(r, k) for k in set(instance.route_of_microbatch)) for r in range(len(rows))]
        instance = instance.with_cap(tuple(need + draw(st.integers(0, 3)) for need in needs))
    return instance, Schedule.of(rows)


@MANY
@given(case=damaged())
def test_the_arrays_prove_nothing_else(way, case):
    instance, schedule = case
    report = verify(schedule, instance)
    facts = bulk.prove(Table.of(schedule), instance)
    assert (facts is not None) == (report.verdict == Verdict.PROVED)
    assert bulk.verify_table(Table.of(schedule), instance) == report


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_at_a_size_with_many_lanes(name):
    """24 ranks and mostly 48 microbatches, so that rounds, leaps and single runs all occur."""
    family = FAMILIES[name]
    placement = family.placement(24, max(2, family.chunks))
    stages = placement.stages
    costs = Costs.make(stages, F=[3 + s % 4 for s in range(stages)], B=4, W=2, comm={(0, 1): 5, (3, 2): 1})
    instance = Instance(
        placement, 24 if name == "hanayo" else 48, costs, Memory.make(stages, placement.ranks, F=3, B=-1)
    )
    schedule = family.build(instance)
    assert bulk.prove(Table.of(schedule), instance) == verify(schedule, instance).facts


def test_sums_beyond_64_bits_are_left_to_exact_integers():
    """Two microbatches of 10^12 per stage are far below the limit, ten million of them are not."""
    instance = Instance(linear(1), 3, Costs.make(1, F=10**12, B=10**12), Memory.make(1, 1, F=10**12))
    schedule = Schedule.parse(["0F0 0F1 0F2 0BW0 0BW1 0BW2"])
    assert bulk.prove(Table.of(schedule), instance) == verify(schedule, instance).facts
    table = Table.of(schedule)
    object.__setattr__(instance.costs, "default_comm", 1 << 61)
    assert bulk.prove(table, instance) is None


@MANY
@given(case=instances_with_schedules(), data=st.data())
def test_claimed_starts_are_judged_on_arrays_as_they_are_one_by_one(case, data):
    instance, schedule = case
    starts = [list(row) for row in replay(schedule, instance).starts]
    for _ in range(data.draw(st.integers(0, 3))):
        row = data.draw(st.sampled_from([row for row in starts if row] or [[0]]))
        at = data.draw(st.integers(0, len(row) - 1))
        for later in range(at, len(row)):
            row[later] += data.draw(st.sampled_from([-1, 0, 1, 3]))
    report = verify(schedule, instance, timeline=starts)
    holds = report.verdict == Verdict.PROVED
    assert bulk.prove(Table.of(schedule), instance, timeline=starts) == (report.facts if holds else None)


def test_a_claimed_timeline_has_one_start_for_each_slot():
    instance = Instance(linear(2), 2, Costs.make(2, F=1, B=1, W=1), Memory.make(2, 2, F=1))
    schedule = FAMILIES["zb-h1"].build(instance)
    starts = replay(schedule, instance).starts
    assert bulk.prove(Table.of(schedule), instance, timeline=starts) is not None
    assert bulk.prove(Table.of(schedule), instance, timeline=(starts[0], starts[1][:-1])) is None
    assert bulk.prove(Table.of(schedule), instance, timeline=starts[:1]) is None
