"""Recompute: R between a forward that kept a stash only and its backward; language, judge and formats."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.draw import svg, terminal
from bubbleproof.schedules.errors import FormatError, InstanceError, ScheduleError
from bubbleproof.schedules.formats import instance_toml, schedule_json, torch_csv
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import linear
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import replay
from bubbleproof.verify import Verdict, verify
from bubbleproof.verify.strategies import instances_with_schedules


def pipeline(m: int = 2, cap=None, **memory) -> Instance:
    costs = Costs.make(2, F=1, B=2, R=2, comm=1)
    return Instance(linear(2), m, costs, Memory.make(2, 2, F=4, R=3, cap=cap, **memory))


SCHEDULE = Schedule.parse(["0F0 0F1 0BW0 0R1 0BW1", "1F0 1BW0 1F1 1BW1"])


def rules(schedule: Schedule, instance: Instance) -> set[str]:
    return {violation.rule for violation in verify(schedule, instance).violations}


def test_a_recomputed_forward_keeps_a_stash_and_r_takes_the_rest():
    """Rank 0 holds 4, then 4 + 1, after BW0 1, with R 4, at the end 0."""
    timeline = replay(SCHEDULE, pipeline(cap=5))
    assert [peak.memory for peak in timeline.peaks] == [5, 4]
    assert timeline.starts == ((0, 1, 6, 8, 10), (2, 3, 5, 6))
    report = verify(SCHEDULE, pipeline(cap=5), timeline=timeline.starts, claims={"peak": [5, 4]})
    assert report.verdict is Verdict.PROVED
    assert rules(SCHEDULE, pipeline(cap=4)) == {"V301"}


def test_r_delays_the_backward_that_waits_for_it():
    """The gradient of microbatch 1 is there at 9; R, from 8 on, ends at 10, or at 9 if it is short."""
    without = replay(Schedule.parse(["0F0 0F1 0BW0 0BW1", "1F0 1BW0 1F1 1BW1"]), pipeline())
    assert (without.starts[0][3], replay(SCHEDULE, pipeline()).starts[0][4]) == (9, 10)
    short = pipeline().with_(costs=Costs.make(2, F=1, B=2, R=1, comm=1))
    assert replay(SCHEDULE, short).starts[0][4] == 9


@pytest.mark.parametrize(
    ("rows", "broken"),
    [
        (["0F0 0F1 0BW0 0R1 0R1 0BW1", "1F0 1BW0 1F1 1BW1"], {"V102"}),
        (["0F0 0F1 0BW0 0BW1 0R1", "1F0 1BW0 1F1 1BW1"], {"V201"}),
        (["0F0 0R1 0F1 0BW0 0BW1", "1F0 1BW0 1F1 1BW1"], {"V201"}),
        (["0F0 0F1 0BW0 0BW1", "1F0 1BW0 0R1 1F1 1BW1"], {"V104"}),
        (["0F0 0F1 0BW0 0BW1", "1F0 1BW0 1F1 1BW1 1R2"], {"V103"}),
    ],
)
def test_the_judge_names_what_is_wrong_with_an_r(rows, broken):
    """Twice, after its backward, before its forward, on another rank, of a microbatch that does not exist."""
    assert rules(Schedule.parse(rows), pipeline()) == broken


def test_r_is_refused_where_the_instance_does_not_allow_it():
    plain = Instance(linear(2), 2, Costs.make(2, F=1, B=2), Memory.make(2, 2))
    report = verify(SCHEDULE, plain)
    assert [violation.rule for violation in report.violations] == ["V103"]
    assert "no cost.R and memory.R" in report.violations[0].message
    with pytest.raises(ScheduleError, match=r"0R1 on rank 0: the instance gives no cost\.R"):
        replay(SCHEDULE, plain)


def test_figures_of_recompute_are_checked():
    with pytest.raises(InstanceError, match=r"cost\.R without memory\.R"):
        Instance(linear(2), 2, Costs.make(2, F=1, B=2, R=1), Memory.make(2, 2))
    with pytest.raises(InstanceError, match=r"memory\.R without cost\.R"):
        Instance(linear(2), 2, Costs.make(2, F=1, B=2), Memory.make(2, 2, R=1))
    with pytest.raises(InstanceError, match="memory of stage 0: R 2 is above F 1"):
        Memory.make(2, 2, R=2)


def test_recompute_makes_an_instance_possible_that_is_not_without():
    """Two chunks of 4 on a rank with a cap of 6: with stashes of 1 the second chunk needs 5."""
    from bubbleproof.schedules.placement import loop

    costs = {"F": 1, "B": 2}
    with pytest.raises(InstanceError, match="one microbatch alone needs 8"):
        Instance(loop(1, 2), 2, Costs.make(2, **costs), Memory.make(2, 1, F=4, cap=6))
    allowed = Instance(loop(1, 2), 2, Costs.make(2, R=1, **costs), Memory.make(2, 1, F=4, R=3, cap=6))
    assert allowed.least_memory(0) == 5
    with pytest.raises(InstanceError, match="one microbatch alone needs 5"):
        allowed.with_cap(4)


@settings(max_examples=80)
@given(instances_with_schedules(recompute=True))
def test_replay_and_judge_agree_on_schedules_with_recompute(case):
    instance, schedule = case
    timeline = replay(schedule, instance)
    claims = {"makespan": timeline.makespan, "span": timeline.span, "peak": [p.memory for p in timeline.peaks]}
    report = verify(schedule, instance, timeline=timeline.starts, claims=claims)
    assert report.verdict is Verdict.PROVED, report.violations


def test_files_keep_recompute_and_pytorchs_csv_refuses_it():
    instance = pipeline(cap=5)
    assert instance_toml.loads(instance_toml.dumps(instance)) == instance
    timeline = replay(SCHEDULE, instance)
    document = schedule_json.loads(schedule_json.write(timeline), "x.json")
    assert (document.schedule, document.instance) == (SCHEDULE, instance)
    with pytest.raises(FormatError, match=r"rank 0 runs 0R1: PyTorch's schedules have no recompute of single ops"):
        torch_csv.dumps(SCHEDULE, instance)


def test_pictures_show_recompute():
    timeline = replay(SCHEDULE, pipeline())
    assert "R+ recompute" in terminal.render(timeline, 80)
    assert "R recompute" in svg.write(timeline)
