from fractions import Fraction

import pytest

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import ScheduleError
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Op, parse_slot
from bubbleproof.schedules.placement import bidirectional, linear, vee
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import Idle, Peak, Traffic, replay

TWO = ["0F0 0F1 0BW0 0BW1", "1F0 1BW0 1F1 1BW1"]


def instance(placement=None, m=2, *, memory=None, **costs):
    placement = placement or linear(2)
    costs = {"F": 1, "B": 2} | costs
    found = Memory.make(placement.stages, placement.ranks, **(memory or {}))
    return Instance(placement, m, Costs.make(placement.stages, **costs), found)


def test_every_op_starts_as_soon_as_rank_and_inputs_allow():
    line = replay(Schedule.parse(TWO), instance(comm=1))
    assert line.starts == ((0, 1, 6, 9), (2, 3, 5, 6))
    assert line.ends == ((1, 2, 8, 11), (3, 5, 6, 8))
    assert (line.makespan, line.span, line.spans) == (11, 11, (11, 6))


def test_idle_time_is_split_by_phase():
    line = replay(Schedule.parse(TWO), instance(comm=1))
    assert line.idle == (Idle(0, 5, 0), Idle(2, 0, 3))
    assert all(sum(idle) + busy == line.makespan for idle, busy in zip(line.idle, line.busy, strict=True))


def test_both_bubbles_are_exact():
    line = replay(Schedule.parse(TWO), instance())
    assert line.makespan == 9
    assert line.bubble("step") == Fraction(1, 3)
    assert line.bubble("compute") == Fraction(1, 2)
    assert line.bubble("step", of="span") == Fraction(1, 3)


def test_the_peak_names_its_first_instant():
    memory = {"F": 3, "static": [10, 0]}
    line = replay(Schedule.parse(TWO), instance(memory=memory))
    assert line.peaks == (Peak(16, 1, Op("F", 0, 1)), Peak(3, 1, Op("F", 1, 0)))


def test_a_b_that_takes_memory_raises_the_level_at_its_end():
    split = Schedule.parse(["0F0 0B0 0W0"])
    line = replay(split, instance(linear(1), 1, W=3, memory={"F": 3, "B": 2, "W": -5}))
    assert line.peaks == (Peak(5, 3, Op("B", 0, 0)),)


def test_a_pair_takes_before_it_gives_back():
    pair = Schedule.parse(["0F0 (0F1;0BW0) 0BW1"])
    line = replay(pair, instance(linear(1)))
    assert line.peaks == (Peak(2, 1, parse_slot("(0F1;0BW0)")),)
    assert line.ends == ((1, 4, 6),)


def test_a_pair_waits_for_the_inputs_of_both_members():
    rows = ["0F0 0F1 (0F2;0BW0) 0BW1 0BW2", "1F0 1BW0 1F1 1BW1 1F2 1BW2"]
    line = replay(Schedule.parse(rows), instance(m=3, overlap_BW=2))
    assert line.starts[0][2] == 4
    assert line.starts[1][4] >= line.ends[0][2]


def test_messages_cross_ranks_only():
    line = replay(Schedule.parse(["0F0 3F0 3BW0 0BW0", "1F0 2F0 2BW0 1BW0"]), instance(vee(2), 1, comm=5))
    # stage 1 and 2 share a rank: their tensors stay there
    assert line.traffic == (Traffic(2, 2, None, None), Traffic(2, 2, None, None))
    assert line.makespan == 4 * 3 + 4 * 5


def test_bytes_are_those_of_the_tensor_that_leaves_the_earlier_stage():
    line = replay(Schedule.parse(["0F0 0BW0", "1F0 1BW0"]), instance(m=1, memory={"message": [7, 99]}))
    assert line.traffic == (Traffic(1, 1, 7, 7), Traffic(1, 1, 7, 7))


def test_the_critical_path_is_a_chain_without_slack():
    line = replay(Schedule.parse(TWO), instance(comm=1))
    assert [str(slot) for slot in line.critical_path] == ["0F0", "1F0", "1BW0", "1F1", "1BW1", "0BW1"]


def test_two_routes_run_in_opposite_directions():
    both = Schedule.parse(["0F0 1F1 1BW1 0BW0", "0F1 1F0 1BW0 0BW1"])
    line = replay(both, instance(bidirectional(2), 2))
    assert line.makespan == 6
    assert line.traffic[0] == Traffic(2, 2, None, None)


def test_release_times_hold_back_the_first_op_of_a_rank():
    line = replay(Schedule.parse(TWO), instance(), release=(3, 10))
    assert (line.starts[0][0], line.starts[1][0], line.first_start) == (3, 10, 3)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["0F0 0BW0"], "1 ranks, the instance 2"),
        (["0F0 0BW0", "2F0"], "2F0 on rank 1"),
        (["0F0 0BW0 1F0", ""], "stage 1 of microbatch 0 is on rank 1"),
        (["0F0 0F0", "1F0"], "0F0 occurs twice"),
        (["0BW0", "1F0"], "which no rank runs"),
        (["0BW0 0F0", "1F0 1BW0"], "deadlock"),
        (["0F0 0BW0 0F1 0BW1", "1F1 1F0 1BW0 1BW1"], "rank 0 at 0BW0, rank 1 at 1F1"),
        (["0F0 0F1 0BW0 0BW1", "1F0 (1F1;1BW1) 1BW0"], "needs the other"),
    ],
)
def test_a_schedule_that_cannot_run_is_refused(rows, message):
    with pytest.raises(ScheduleError, match=message):
        replay(Schedule.parse(rows), instance())


def test_schedules_with_equal_orders_are_equal_whatever_their_names():
    assert Schedule.parse(TWO, "a") == Schedule.parse(TWO, "b")
    assert str(Schedule.parse(TWO)) == "\n".join(TWO)
