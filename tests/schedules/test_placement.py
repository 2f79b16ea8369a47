import pytest

from bubbleproof.schedules.errors import InstanceError
from bubbleproof.schedules.placement import Placement, bidirectional, custom, linear, loop, vee, wave


def test_named_placements_put_stages_where_their_definitions_say():
    assert linear(3).routes == ((0, 1, 2),)
    assert loop(3, 2).routes == ((0, 1, 2, 0, 1, 2),)
    assert vee(3).routes == ((0, 1, 2, 2, 1, 0),)
    assert wave(2, 4).routes == ((0, 1, 1, 0, 0, 1, 1, 0),)
    assert bidirectional(4).routes == ((0, 1, 2, 3), (3, 2, 1, 0))


def test_vee_is_the_wave_with_two_chunks():
    assert vee(5).routes == wave(5, 2).routes


def test_a_custom_placement_may_hold_unequal_numbers_of_stages():
    placement = custom([0, 1, 1, 1, 0])
    assert placement.stages_of_rank == ((0, 4), (1, 2, 3))
    assert not placement.one_chunk


def test_a_custom_placement_may_have_two_routes():
    assert custom([[0, 1], [1, 0]]).stages_of_rank == ((0, 1), (0, 1))


def test_one_chunk_means_one_stage_on_every_rank_of_a_single_route():
    assert linear(4).one_chunk
    assert custom([1, 0]).one_chunk
    assert not loop(2, 2).one_chunk
    assert not bidirectional(4).one_chunk


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: linear(0), "ranks = 0"),
        (lambda: loop(2, 0), "chunks = 0"),
        (lambda: loop(10**9, 10**9), "limit of 100000 stages"),
        (lambda: custom([]), "ranks = 0"),
        (lambda: custom([0, 2]), "3 ranks for 2 stages"),
        (lambda: custom([0, 2, 0], ranks=3), "rank 1 holds no stage"),
        (lambda: custom([0, 1], ranks=1), "stage 1 is on rank 1"),
        (lambda: custom([0, -1]), "stage 1 is on rank -1"),
        (lambda: custom([[0, 1], [0]]), "equal lengths"),
        (lambda: custom([[0], [0], [0]]), "3 routes"),
        (lambda: custom([0, [1]]), "mixes"),
        (lambda: Placement("ring", 1, ((0,),)), "ring"),
    ],
)
def test_an_impossible_placement_is_refused(make, message):
    with pytest.raises(InstanceError, match=message):
        make()
