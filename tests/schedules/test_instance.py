import pytest

from bubbleproof.schedules.costs import MAX_MAGNITUDE, Costs, Memory
from bubbleproof.schedules.errors import InstanceError
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Op, parse_slot
from bubbleproof.schedules.placement import bidirectional, linear, vee
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import replay


def make(ranks=2, m=2, *, cap=None, **costs):
    costs = {"F": 1, "B": 2, "W": 3} | costs
    return Instance(linear(ranks), m, Costs.make(ranks, **costs), Memory.make(ranks, ranks, cap=cap))


def test_one_number_holds_for_every_stage():
    assert Costs.make(3, F=4, B=5).F == (4, 4, 4)


def test_without_w_the_backward_is_fused_and_lasts_b():
    costs = Costs.make(1, F=1, B=2)
    assert (costs.split, costs.BW, costs.backward_kinds) == (False, (2,), ("BW",))


def test_with_w_a_fused_backward_lasts_both_unless_given():
    assert Costs.make(1, F=1, B=2, W=3).BW == (5,)
    assert Costs.make(1, F=1, B=2, W=3, BW=4).BW == (4,)
    assert Costs.make(1, F=1, B=2, W=3, split=False).backward_kinds == ("BW",)


def test_an_edge_given_in_one_direction_holds_for_both():
    costs = Costs.make(2, F=1, B=1, comm={(0, 1): 7})
    assert (costs.message(0, 1), costs.message(1, 0), costs.message(0, 0)) == (7, 7, 0)


def test_an_edge_may_differ_by_direction():
    costs = Costs.make(2, F=1, B=1, comm={(0, 1): 7, (1, 0): 2})
    assert (costs.message(0, 1), costs.message(1, 0)) == (7, 2)


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ({"F": -1}, r"cost.F = -1 is below 0"),
        ({"B": [1, -2]}, r"cost.B\[1\] = -2"),
        ({"W": 1.5}, r"cost.W = 1.5 is no integer"),
        ({"W": [1, "x"]}, r"cost.W\[1\] = 'x' is no integer"),
        ({"F": [1]}, "1 entries for 2 stages"),
        ({"F": True}, "True is no integer"),
        ({"F": MAX_MAGNITUDE + 1}, "beyond the limit"),
        ({"comm": {(0, 1): -1}}, "0-1"),
        ({"comm": {(0, 2): 1}}, "two different ranks"),
        ({"comm": {(1, 1): 1}}, "two different ranks"),
        ({"W": None, "split": True}, "needs cost.W"),
    ],
)
def test_an_impossible_cost_is_refused_with_key_and_value(costs, message):
    with pytest.raises(InstanceError, match=message):
        make(**costs)


def test_memory_left_out_is_freed_at_w():
    memory = Memory.make(1, 1, F=5)
    assert (memory.B, memory.W, memory.BW) == ((0,), (-5,), (-5,))


def test_memory_given_in_part_is_completed():
    assert Memory.make(1, 1, F=5, B=-3).W == (-2,)
    assert Memory.make(1, 1, F=5, W=-3).B == (-2,)


def test_a_microbatch_must_leave_nothing_behind():
    with pytest.raises(InstanceError, match="leave nothing"):
        Memory.make(1, 1, F=5, B=-3, W=-1)
    with pytest.raises(InstanceError, match="BW -4"):
        Memory.make(1, 1, F=5, BW=-4)


def test_measured_memory_may_grow_at_b():
    assert Memory.make(1, 1, F=5, B=2, W=-7).B == (2,)


def test_a_cap_below_one_microbatch_is_refused_with_both_figures():
    with pytest.raises(InstanceError, match=r"cap of rank 0 = 1, but one microbatch alone needs 2"):
        Instance(vee(1), 1, Costs.make(2, F=1, B=1), Memory.make(2, 1, cap=1))


def test_least_memory_with_split_backwards_counts_a_b_that_takes():
    instance = Instance(vee(1), 1, Costs.make(2, F=1, B=1, W=1), Memory.make(2, 1, F=5, B=2, W=-7))
    assert instance.least_memory(0) == 10
    assert instance.least_memory(0, split=True) == 12


def test_least_memory_lets_a_w_that_takes_wait_for_the_other_backwards():
    memory = Memory.make(2, 1, F=[2, 3], B=[4, -4], W=[-6, 1])
    instance = Instance(vee(1), 1, Costs.make(2, F=1, B=1, W=1), memory)
    assert instance.least_memory(0, split=True) == 5
    orders = {"0F0 1F0 1B0 1W0 0B0 0W0": 6, "0F0 1F0 1B0 0B0 0W0 1W0": 5, "0F0 1F0 1B0 0B0 1W0 0W0": 6}
    for row, peak in orders.items():
        assert replay(Schedule.parse([row]), instance).peaks[0].memory == peak


@pytest.mark.parametrize("m", [0, -1, True, 1.0])
def test_m_must_be_a_positive_integer(m):
    with pytest.raises(InstanceError, match="microbatches"):
        make(m=m)


def test_sizes_beyond_the_limit_are_refused_before_anything_is_built():
    with pytest.raises(InstanceError, match="beyond the limit of 1000000"):
        make(m=600_000)


def test_the_first_half_follows_route_0_unless_said_otherwise():
    costs, memory = Costs.make(2, F=1, B=1), Memory.make(2, 2)
    assert Instance(bidirectional(2), 3, costs, memory).route_of_microbatch == (0, 0, 1)
    given = Instance(bidirectional(2), 3, costs, memory, route_of_microbatch=(0, 1, 0))
    assert [given.rank_of(0, j) for j in range(3)] == [0, 1, 0]
    with pytest.raises(InstanceError, match=r"route_of_microbatch\[0\] = 2"):
        Instance(bidirectional(2), 1, costs, memory, route_of_microbatch=(2,))


def test_a_pair_lasts_as_long_as_its_members_unless_given():
    pair = parse_slot("(0F1;1BW0)")
    assert make().duration(pair) == 6
    assert make(overlap_BW=[4, 9]).duration(pair) == 4
    assert make(overlap_B=[2, 9]).duration(parse_slot("(0F1;1B0)")) == 2
    assert make().duration(Op("W", 0, 0)) == 3


def test_ops_and_work_cover_every_stage_and_microbatch_once():
    instance = make(m=3)
    assert len(set(instance.ops())) == len(list(instance.ops())) == 3 * 2 * 3
    assert instance.work == (18, 18)


def test_a_copy_with_another_m_chooses_its_routes_anew():
    instance = Instance(bidirectional(2), 2, Costs.make(2, F=1, B=1), Memory.make(2, 2))
    assert instance.with_(microbatches=4).route_of_microbatch == (0, 0, 1, 1)
    assert instance.with_cap(9).memory.cap == (9, 9)
