"""Closed forms for makespan, span and peaks: the literature's, over ranges of sizes and times."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbleproof.schedules.errors import FamilyError
from bubbleproof.schedules.families import build
from bubbleproof.schedules.placement import linear, loop
from bubbleproof.schedules.timeline import replay
from tests.schedules.families.sizes import equal, peaks, timed

RANKS = st.integers(1, 8)
MICROBATCHES = st.integers(1, 40)
TIMES = st.tuples(st.integers(1, 30), st.integers(1, 30), st.integers(1, 30))
W_SMALLEST = TIMES.map(lambda t: (t[0] + t[2], t[1] + t[2], t[2]))


@settings(deadline=None)
@given(RANKS, MICROBATCHES, TIMES)
def test_naive_runs_all_stages_one_after_the_other(p, m, times):
    line = timed("naive", p, m, *times)
    assert line.makespan == m * p * sum(times)
    assert peaks(line) == [1] * p


@settings(deadline=None)
@given(st.sampled_from(["gpipe", "1f1b", "eager-1f1b"]), RANKS, MICROBATCHES, TIMES)
def test_fused_schedules_of_one_chunk_take_m_plus_p_minus_1_rounds(name, p, m, times):
    line = timed(name, p, m, *times)
    assert line.makespan == line.span == (m + p - 1) * sum(times)


@settings(deadline=None)
@given(RANKS, MICROBATCHES)
def test_gpipe_holds_m_1f1b_p_minus_r_and_eager_1f1b_twice_that_minus_1(p, m):
    assert peaks(timed("gpipe", p, m)) == [m] * p
    assert peaks(timed("1f1b", p, m)) == [min(m, p - r) for r in range(p)]
    assert peaks(timed("eager-1f1b", p, m)) == [min(m, 2 * (p - r) - 1) for r in range(p)]


@settings(deadline=None)
@given(st.integers(2, 8), st.integers(1, 4), st.tuples(*[st.integers(20, 40)] * 3))
def test_1f1b_pays_two_messages_per_p_microbatches_and_edge(p, k, times):
    m = k * p
    delay = 2 * (p - 1) * k + 2 * (p - 2)
    assert timed("1f1b", p, m, *times, comm=1).makespan == (m + p - 1) * sum(times) + delay


def test_eager_1f1b_hides_messages_that_1f1b_waits_for():
    late = timed("1f1b", 4, 16, 10, 10, 10, comm=5).makespan
    assert timed("eager-1f1b", 4, 16, 10, 10, 10, comm=5).makespan < late


@settings(deadline=None)
@given(RANKS, MICROBATCHES, W_SMALLEST)
def test_zb_h1_has_a_bubble_of_f_plus_b_minus_w_per_rank(p, m, times):
    f, b, w = times
    line = timed("zb-h1", p, max(m, p), f, b, w)
    assert line.makespan == line.span == max(m, p) * (f + b + w) + (p - 1) * (f + b - w)


@settings(deadline=None)
@given(RANKS, MICROBATCHES, W_SMALLEST)
def test_zb_h1_with_few_microbatches_ends_with_one_w(p, m, times):
    f, b, w = times
    m = min(m, p)
    assert timed("zb-h1", p, m, f, b, w).makespan == (m + p - 1) * (f + b) + w


@settings(deadline=None)
@given(RANKS, MICROBATCHES, W_SMALLEST)
def test_zb_h2_has_a_span_bubble_of_f_plus_b_minus_2w_per_rank(p, m, times):
    f, b, w = times
    m += 2 * p - 2
    assert timed("zb-h2", p, m, f, b, w).span == m * (f + b + w) + (p - 1) * (f + b - 2 * w)


@settings(deadline=None)
@given(RANKS, MICROBATCHES, st.integers(2, 9), st.integers(1, 9))
def test_zb_h1_and_zb_h2_hold_what_the_paper_says(p, m, until_b, until_w):
    before = until_w + until_b  # M_B: what a microbatch holds until its B; until_w = M_W until its W
    memory = {"F": before, "B": -until_b, "W": -until_w}
    h1 = timed("zb-h1", p, m + p - 1, memory=memory)
    assert peaks(h1) == [(p - r) * before + r * until_w for r in range(p)]
    h2 = timed("zb-h2", p, m + 2 * p - 2, memory=memory)
    assert peaks(h2) == [(2 * (p - r) - 1) * before + 2 * r * until_w for r in range(p)]


def test_zb_h1_meets_the_lower_bound_of_a_linear_pipeline_at_unit_times():
    for p, k in itertools.product((1, 2, 4, 8), (0, 1, 5)):
        assert timed("zb-h1", p, p + k).makespan == 3 * (p + k) + p - 1


@settings(deadline=None)
@given(RANKS, st.integers(1, 4), st.integers(1, 4), TIMES)
def test_interleaving_divides_the_bubble_by_the_number_of_chunks(p, v, k, times):
    m = k * p
    line = timed("interleaved-1f1b", p, m, *times, v=v)
    assert line.makespan == line.span == (m * v + p - 1) * sum(times)
    assert peaks(line)[0] == min(m * v, p * v + p - 1)
    line = timed("looped-bfs", p, m, *times, v=v)
    assert line.makespan == (m * v + p - 1) * sum(times)
    assert peaks(line) == [m * v] * p


@settings(deadline=None)
@given(RANKS, st.integers(1, 4), st.integers(1, 4), W_SMALLEST)
def test_interleaved_zero_bubble_divides_that_of_zb_h1_and_holds_p_microbatches(p, v, k, times):
    f, b, w = times
    m = k * p
    line = timed("interleaved-zb", p, m, f, b, w, v=v)
    assert line.makespan == m * v * (f + b + w) + (p - 1) * (f + b - w)
    assert max(peaks(line)) == p * v


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(1, 20))
def test_families_with_one_chunk_in_the_loop_are_their_linear_kin(p, m):
    one = equal(loop(p, 1), m)
    assert build("looped-bfs", one) == build("gpipe", equal(linear(p), m))
    if m >= p:
        assert build("interleaved-1f1b", one) == build("eager-1f1b", equal(linear(p), m))
        assert build("interleaved-zb", one) == build("zb-h1", equal(linear(p), m))


@pytest.mark.parametrize("name", ["interleaved-1f1b", "interleaved-zb"])
def test_every_group_size_that_megatron_allows_runs_without_deadlock(name):
    for p, v in itertools.product((1, 2, 3, 4), (1, 2, 3)):
        for m in range(p, 3 * p + 2):
            instance = equal(loop(p, v), m)
            default = build(name, instance)
            legal = [n for n in range(p, m + 1) if m % n == 0 or m % n >= p]
            assert legal
            assert default == build(name, instance, group=legal[0])
            for n in legal:
                work = 3 * m * v
                assert replay(build(name, instance, group=n), instance).makespan >= work


def test_a_group_size_that_megatron_refuses_is_refused_with_the_values():
    instance = equal(loop(4, 2), 9)
    for n in (3, 4, 6, 7, 10):
        with pytest.raises(FamilyError, match=f"interleaved-1f1b needs a group .* N = {n}, p = 4, m = 9"):
            build("interleaved-1f1b", instance, group=n)


def test_a_larger_group_takes_more_memory():
    instance = equal(loop(4, 2), 16)
    found = [replay(build("interleaved-1f1b", instance, group=n), instance).peaks[0].memory for n in (4, 8, 16)]
    assert found == [11, 15, 23]
