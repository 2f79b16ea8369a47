"""Chimera, Hanayo, DualPipe and DualPipeV: two streams of microbatches through the same ranks."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbleproof.schedules.families import build
from bubbleproof.schedules.op import Op, Overlap
from bubbleproof.schedules.placement import bidirectional, vee, wave
from bubbleproof.schedules.schedule import Schedule
from tests.schedules.families.sizes import equal, peaks, timed

EVEN = st.integers(1, 4).map(lambda half: 2 * half)
TIMES = st.tuples(st.integers(1, 9), st.integers(1, 9))


def idle(line):
    return [line.makespan - busy for busy in line.busy]


@settings(deadline=None)
@given(EVEN, st.integers(1, 5), st.integers(1, 5))
def test_chimera_has_p_minus_2_bubbles_whatever_m_if_f_and_bw_are_equal(p, k, f):
    m = k * p
    line = timed("chimera", p, m, F=f, B=f, W=None)
    assert line.bubble("step") == Fraction(p - 2, 2 * m + p - 2)
    assert set(peaks(line)) == set(range(p // 2 + 1, p + 1))


@settings(deadline=None)
@given(EVEN, TIMES)
def test_a_basic_unit_of_chimera_never_collides_under_any_times(p, times):
    f, b = times
    assert timed("chimera", p, p, F=f, B=b, W=None).makespan == p * (f + b) + (p - 2) * max(f, b)


def test_chimera_has_the_order_of_the_published_picture():
    assert build("chimera", equal(bidirectional(4), 4)) == Schedule.parse(
        [
            "0F0 0F1 3F2 3BW2 3F3 3BW3 0BW0 0BW1",
            "1F0 2F2 1F1 2F3 2BW2 1BW0 2BW3 1BW1",
            "1F2 2F0 1F3 2F1 2BW0 1BW2 2BW1 1BW3",
            "0F2 0F3 3F0 3BW0 3F1 3BW1 0BW2 0BW3",
        ]
    )


def test_directly_concatenated_units_of_chimera_wait_for_each_other_if_backwards_are_longer():
    bubbles = [timed("chimera", 8, m, F=1, B=2, W=None).makespan - 3 * m for m in (8, 16, 32)]
    assert bubbles == [12, 18, 30]


def test_the_routes_of_bidirectional_families_may_alternate():
    apart = equal(bidirectional(4), 8)
    mixed = apart.with_(route_of_microbatch=(0, 1) * 4)
    number = dict(zip(range(8), [0, 2, 4, 6, 1, 3, 5, 7], strict=True))

    def renumbered(slot):
        if isinstance(slot, Overlap):
            return Overlap(renumbered(slot.forward), renumbered(slot.backward))
        return Op(slot.kind, slot.stage, number[slot.microbatch])

    for name in ("chimera", "dualpipe"):
        orders = tuple(tuple(renumbered(slot) for slot in order) for order in build(name, apart).orders)
        assert build(name, mixed).orders == orders


@settings(deadline=None)
@given(st.integers(1, 8), st.integers(1, 3), TIMES)
def test_the_bubble_of_hanayo_does_not_grow_with_the_waves(p, w, times):
    f, b = times
    line = timed("hanayo", p, p, F=f, B=b, W=None, v=2 * w)
    assert line.makespan == 2 * w * p * (f + b) + 2 * (p - 1) * max(f, b)


@settings(deadline=None)
@given(st.integers(1, 6))
def test_hanayo_with_one_wave_is_chimera_on_twice_the_ranks_folded(p):
    def on_one_side(schedule, rank):
        return [op for op in schedule.orders[rank] if op.microbatch < p]

    folded = build("hanayo", equal(wave(p, 2), p))
    open_ = build("chimera", equal(bidirectional(2 * p), 2 * p))
    for r in range(p):
        stages = (r, 2 * p - 1 - r)
        for stage, rank in zip(stages, stages, strict=True):
            own = [op for op in folded.orders[r] if op.stage == stage]
            assert own == on_one_side(open_, rank)


def test_dualpipe_has_the_measured_values_on_8_ranks():
    line = timed("dualpipe", 8, 20, overlap_BW=3)
    assert (line.makespan, idle(line), peaks(line)) == (66, [6] * 8, [9] * 8)
    assert idle(timed("dualpipe", 8, 20, 2, 2, 1, overlap_BW=4)) == [10, 11, 12, 12, 12, 12, 11, 10]


def test_dualpipev_on_half_the_ranks_and_microbatches_has_the_same_values():
    line = timed("dualpipev", 4, 10, overlap_BW=3)
    assert (line.makespan, idle(line), peaks(line)) == (66, [6] * 4, [9] * 4)
    assert idle(timed("dualpipev", 4, 10, 2, 2, 1, overlap_BW=4)) == [10, 11, 12, 12]


@pytest.mark.parametrize(("times", "pair", "bubble"), [((3, 2, 1), 6, 21), ((3, 4, 2), 9, 24)])
def test_where_f_and_b_differ_the_bubble_is_not_that_of_the_published_formula(times, pair, bubble):
    assert idle(timed("dualpipe", 8, 20, *times, overlap_BW=pair)) == [bubble] * 8
    assert bubble != (8 // 2 - 1) * (pair + times[1] + times[2] - 3 * times[2])


@settings(deadline=None)
@given(st.integers(1, 4), st.integers(0, 5), st.integers(0, 9), st.integers(1, 9))
def test_where_f_and_b_are_equal_and_w_is_no_longer_the_published_bubble_is_exact(half, more, longer, w):
    f = w + longer
    pair = 2 * f + w
    bubble = (half - 1) * (pair + f + w - 3 * w)
    line = timed("dualpipe", 2 * half, 2 * (2 * half + more), f, f, w)
    assert idle(line) == [bubble] * 2 * half
    assert peaks(line) == [2 * half + 1] * 2 * half
    line = timed("dualpipev", half, 2 * half + more, f, f, w)
    assert idle(line) == [bubble] * half
    assert peaks(line) == [2 * half + 1] * half


def test_cheaper_pairs_save_time_but_the_slowest_rank_keeps_the_published_bubble():
    line = timed("dualpipe", 8, 20, 4, 4, 2, overlap_BW=8)
    assert max(idle(line)) == (8 // 2 - 1) * (8 + 6 - 3 * 2)
    assert line.makespan < timed("dualpipe", 8, 20, 4, 4, 2).makespan


def test_dualpipe_mirrors_itself_between_the_two_ends():
    schedule = build("dualpipe", equal(bidirectional(6), 16))

    def mirror(slot):
        if isinstance(slot, Overlap):
            return Overlap(mirror(slot.forward), mirror(slot.backward))
        return Op(slot.kind, slot.stage, (slot.microbatch + 8) % 16)

    for r in range(6):
        assert tuple(mirror(slot) for slot in schedule.orders[r]) == schedule.orders[5 - r]


def test_only_the_first_pair_of_the_middle_ranks_is_not_overlapped():
    v = build("dualpipev", equal(vee(3), 9))
    first = [next(i for i, slot in enumerate(order) if isinstance(slot, Overlap)) for order in v.orders]
    assert [str(slot) for slot in v.orders[2][first[2] - 2 : first[2] + 1]] == ["2F3", "3BW0", "(3F3;2BW0)"]
    assert all(v.orders[r][first[r] - 1].kind == "F" for r in (0, 1))
