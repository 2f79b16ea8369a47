"""Judging programs by arrays says what the judge of single actions says."""

from dataclasses import fields, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.families import FAMILIES
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.lower import lower
from bubbleproof.schedules.op import Op
from bubbleproof.schedules.program import CHANNELS, COLLECTIVE_KINDS, TRANSFER_KINDS, Collective, Program, Transfer
from bubbleproof.schedules.table import Table
from bubbleproof.verify import Verdict, bulk_channels, bulk_leap, bulk_run, verify_program
from bubbleproof.verify.bulk_program import WITHOUT_ADVICE, prove_program, verify_program_table
from bubbleproof.verify.exchange import Setting
from tests.strategies import instances_with_schedules

MANY = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
BY_ARRAYS = st.sampled_from(bulk_channels.CHANNELS)


@pytest.fixture(params=["one by one", "rounds", "leaps"])
def way(request, monkeypatch):
    """Small programs have few lanes, so without this they would all be executed one run at a time."""
    if request.param != "one by one":
        monkeypatch.setattr(bulk_run, "_WORTH_A_ROUND", 0)
    monkeypatch.setattr(bulk_leap, "_LONGEST", 2 if request.param == "leaps" else 1 << 30)
    return request.param


def judged(program, instance, setting):
    return verify_program(program, instance, **{field.name: getattr(setting, field.name) for field in fields(setting)})


@st.composite
def asked(draw, instance):
    """A setting that fits the stages of an instance."""
    stages = instance.stages
    shapes = st.none() | st.lists(st.sampled_from([(2,), (2,), None]), min_size=stages, max_size=stages)
    fused = st.lists(st.integers(0, stages - 1), max_size=1) if not instance.costs.split else st.just([])
    return Setting(
        channel=draw(BY_ARRAYS),
        target=draw(st.sampled_from([None, None, "torch"])),
        transfers=draw(st.integers(0, 7)) > 0,
        scale_grads=draw(st.booleans()),
        fused_stages=frozenset(draw(fused)),
        inputs=draw(shapes),
        outputs=draw(shapes),
    )


def moved(draw, row):
    """A row with one of its actions elsewhere."""
    row = list(row)
    if row:
        action = row.pop(draw(st.integers(0, len(row) - 1)))
        row.insert(draw(st.integers(0, len(row))), action)
    return row


@st.composite
def programs(draw, faults):
    """A lowered schedule; then some actions moved, and for each fault one dropped, copied, renamed or put in."""
    instance, schedule = draw(instances_with_schedules())
    rows = [list(row) for row in lower(schedule, instance, reduce=draw(st.booleans())).rows]
    for _ in range(draw(st.integers(0, 3)) if faults else 0):
        rank = draw(st.integers(0, len(rows) - 1))
        rows[rank] = moved(draw, rows[rank])
    for _ in range(draw(st.integers(0, 2)) if faults else 0):
        row = rows[draw(st.integers(0, len(rows) - 1))]
        at = draw(st.integers(0, len(row)))
        fault = draw(st.sampled_from(["drop", "copy", "rename", "collective", "transfer"]))
        stage, microbatch = draw(st.integers(-1, instance.stages)), draw(st.integers(-1, instance.microbatches))
        if fault == "collective":
            row.insert(at, Collective(draw(st.sampled_from(COLLECTIVE_KINDS)), stage))
        elif fault == "transfer":
            row.insert(at, Transfer(draw(st.sampled_from(TRANSFER_KINDS)), stage, microbatch))
        elif at < len(row) and fault == "drop":
            del row[at]
        elif at < len(row) and fault == "copy":
            row.insert(draw(st.integers(0, len(row))), row[at])
        elif at < len(row) and isinstance(row[at], Op | Transfer):
            row[at] = row[at]._replace(microbatch=microbatch)
    return instance, Program.of(rows)


@MANY
@given(data=st.data(), faults=st.booleans())
def test_the_arrays_prove_what_the_judge_proves_and_nothing_else(way, data, faults):
    instance, program = data.draw(programs(faults))
    setting = data.draw(asked(instance))
    report = judged(program, instance, setting)
    table = Table.of(program)
    proved = prove_program(table, instance, setting)
    assert (proved is not None) == (report.verdict == Verdict.PROVED)
    if proved is None:
        assert verify_program_table(table, instance, setting) == report
        return
    assert proved == (report.facts, report.channel)
    short = verify_program_table(table, instance, setting)
    assert set(report.assumptions) >= set(short.assumptions) - {WITHOUT_ADVICE}
    same = replace(report, assumptions=short.assumptions, advice=(), order=None)
    assert short == same


@pytest.mark.parametrize("channel", CHANNELS)
def test_every_channel_has_an_answer(channel):
    instance = Instance(FAMILIES["1f1b"].placement(3, 1), 4, Costs.make(3, F=1, B=2), Memory.make(3, 3))
    program = lower(FAMILIES["1f1b"].build(instance), instance)
    setting = Setting(channel=channel)
    assert (
        verify_program_table(Table.of(program), instance, setting).channel == judged(program, instance, setting).channel
    )


def test_the_memory_of_messages_under_a_cap_is_judged():
    """One by one, since arrays do not count it."""
    instance = Instance(FAMILIES["1f1b"].placement(2, 1), 2, Costs.make(2, F=1, B=2), Memory.make(2, 2, cap=2))
    program = lower(FAMILIES["1f1b"].build(instance), instance)
    setting = Setting(message_memory=[5, 5])
    report = verify_program_table(Table.of(program), instance, setting)
    assert list(report.counts) == ["V801"]


@pytest.mark.parametrize("channel", bulk_channels.CHANNELS)
@pytest.mark.parametrize("name", ["interleaved-1f1b", "zb-v", "dualpipe", "gpipe"])
def test_families_at_a_size_with_many_lanes(name, channel):
    """20 ranks and 40 microbatches, so that rounds, leaps and single runs all occur."""
    family = FAMILIES[name]
    placement = family.placement(20, max(2, family.chunks))
    stages = placement.stages
    costs = Costs.make(stages, F=[3 + s % 4 for s in range(stages)], B=4, W=2, comm={(0, 1): 5, (3, 2): 1})
    instance = Instance(placement, 40, costs, Memory.make(stages, placement.ranks, F=3, B=-1))
    program = lower(family.build(instance), instance)
    report = verify_program(program, instance, channel=channel)
    assert report.verdict == Verdict.PROVED
    assert prove_program(Table.of(program), instance, Setting(channel=channel)) == (report.facts, report.channel)
