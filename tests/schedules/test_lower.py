"""Adding communication: the ops keep their order, and every message takes one step on both ranks."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbleproof.schedules.errors import ScheduleError
from bubbleproof.schedules.lower import lower
from bubbleproof.schedules.program import CHANNELS, Collective, Program
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.verify import Verdict, verify_program
from tests.strategies import instances_with_schedules
from tests.verify.model import pipeline

many = settings(max_examples=100, deadline=None)


@many
@given(st.data())
def test_a_lowered_schedule_passes_under_every_channel_that_keeps_the_order_of_calls(data):
    instance, schedule = data.draw(instances_with_schedules())
    program = lower(schedule, instance)
    assert program.schedule == schedule
    for channel in CHANNELS:
        if channel != "even-odd":
            report = verify_program(program, instance, channel=channel)
            assert report.verdict is Verdict.PROVED, str(report)


@many
@given(st.data())
def test_under_the_costs_that_it_was_lowered_for_queues_cost_nothing_if_messages_take_no_time(data):
    instance, schedule = data.draw(instances_with_schedules())
    free = instance.with_(costs=replace(instance.costs, comm=()))
    report = verify_program(lower(schedule, free), free, channel="per-edge")
    assert report.channel.makespan == report.facts.makespan


def test_receives_stand_where_their_data_appears_and_reductions_behind_the_last_gradient():
    rows = ["0F0 0F1 0F2 0BW0 0BW1 0BW2", "1F0 1BW0 1F1 1BW1 1F2 1BW2"]
    program = lower(Schedule.parse(rows), pipeline(2, 3, F=1, B=2))
    assert program == Program.parse(
        [
            "0F0 0SEND_F0 0F1 0SEND_F1 0F2 0SEND_F2 0RECV_B0 0BW0 0RECV_B1 0BW1 0RECV_B2 0BW2 0REDUCE_GRAD",
            "1RECV_F0 1F0 1RECV_F1 1BW0 1RECV_F2 1SEND_B0 1F1 1BW1 1SEND_B1 1F2 1BW2 1REDUCE_GRAD 1SEND_B2",
        ]
    )


def test_calls_in_the_order_of_even_and_odd_ranks_can_deadlock_where_the_order_of_the_rows_does_not():
    rows = ["0F0 0F1 0BW0 0BW1", "1F0 1BW0 1F1 1BW1", "2F0 2BW0 2F1 2BW1"]
    instance = pipeline(3, 2, F=0, B=0)
    program = lower(Schedule.parse(rows), instance)
    assert dict(verify_program(program, instance, channel="rendezvous-rank").counts) == {}
    assert dict(verify_program(program, instance, channel="even-odd").counts) == {"V601": 1}


def test_reductions_can_be_left_out():
    program = lower(Schedule.parse(["0F0 0BW0"]), pipeline(1, 1, F=1, B=2), reduce=False)
    assert str(program) == "0F0 0BW0"
    assert not any(isinstance(action, Collective) for _, _, action in program.actions())


def test_a_schedule_that_deadlocks_has_no_program():
    with pytest.raises(ScheduleError, match="deadlock"):
        lower(Schedule.parse(["0F0 0BW0 0F1 0BW1", "1F1 1F0 1BW0 1BW1"]), pipeline(2, 2, F=1, B=2))
