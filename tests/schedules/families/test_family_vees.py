"""ZB-V, V-Half and V-Min against the values of their authors' generators."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.schedules.families.sizes import peaks, timed

# unit times, chunk activations; (p, m): span, makespan, peak, of the authors' generators
ZB_V = {(4, 8): (48, 51, 8), (4, 16): (96, 99, 8), (8, 16): (96, 103, 16), (8, 32): (192, 199, 16)}
V_HALF = {(4, 8): (53, 53, 6), (4, 16): (101, 101, 6), (8, 16): (113, 113, 10), (8, 32): (209, 209, 10)}
V_MIN = {(4, 8): (59, 59, 4), (4, 16): (107, 107, 4), (8, 16): (123, 123, 8), (8, 32): (219, 219, 8)}


def figures(name, p, m):
    line = timed(name, p, m)
    return line.span, line.makespan, max(peaks(line))


@pytest.mark.parametrize(("name", "known"), [("zb-v", ZB_V), ("v-half", V_HALF)])
def test_zb_v_and_v_half_have_the_published_values(name, known):
    assert {size: figures(name, *size) for size in known} == known


def test_v_min_has_the_published_values_on_4_ranks_and_better_ones_on_8_at_the_same_peak():
    found = {size: figures("v-min", *size) for size in V_MIN}
    assert found == V_MIN | {(8, 16): (119, 119, 8), (8, 32): (215, 215, 8)}


@pytest.mark.parametrize(
    ("name", "times", "makespan", "peak"),
    [
        ("v-half", (5, 6, 4), 279, 6),
        ("v-min", (5, 6, 4), 344, 4),
        ("v-half", (5, 8, 3), 330, 6),
        ("v-min", (5, 8, 3), 443, 4),
    ],
)
def test_under_unequal_times_the_makespans_are_those_of_the_published_greedy(name, times, makespan, peak):
    line = timed(name, 4, 8, *times)
    assert (line.makespan, max(peaks(line))) == (makespan, peak)


@settings(deadline=None)
@given(st.integers(1, 8), st.integers(0, 20), st.integers(1, 5))
def test_zb_v_has_no_span_bubble_at_equal_times_and_holds_2p_chunks_everywhere(p, more, f):
    m = 2 * p - 1 + more
    line = timed("zb-v", p, m, f, f, f)
    assert (line.span, line.makespan) == (6 * m * f, (6 * m + p - 1) * f)
    assert peaks(line) == [2 * p] * p


@settings(deadline=None)
@given(st.integers(3, 10), st.integers(0, 20))
def test_v_half_and_v_min_have_the_bubble_of_the_adaptive_search_at_their_memory(p, more):
    m = p + more
    for name, k in (("v-half", 2 * ((p + 2) // 2)), ("v-min", 2 * ((p + 4) // 3))):
        bubble = 3 * p - 1 - 3 * k + max(3 * p, p - 1 + 2 * (1 + (k + 1) // 2))
        assert figures(name, p, m) == (6 * m + bubble, 6 * m + bubble, k)


@pytest.mark.parametrize("p", [3, 4, 5, 6, 7, 8, 9, 12, 17])
def test_the_bubbles_have_a_closed_form_in_p(p):
    m = 2 * p
    assert timed("v-half", p, m).makespan == 6 * m + 3 * p - (4 if p % 2 else 7)
    assert timed("v-min", p, m).makespan == 6 * m + 4 * p - (7, 5, 9)[p % 3]


def test_the_bubble_of_v_half_stays_and_that_of_v_min_grows_with_m():
    f, b, w = 10, 12, 8

    def bubble(name, m):  # in forwards of a rank's whole share
        return Fraction(timed(name, 8, m, f, b, w).makespan - 2 * m * (f + b + w), 2 * f)

    assert [bubble("v-half", m) for m in (16, 32, 64, 128)] == [Fraction(23, 2)] * 4
    assert bubble("v-min", 16) < bubble("v-min", 32) < bubble("v-min", 64) < bubble("v-min", 128)


def test_few_microbatches_cut_the_patterns_short():
    for name in ("zb-v", "v-half", "v-min"):
        line = timed(name, 4, 1)
        # eight F, eight B and the W of stage 0; ZB-V also waits for the W of stage 4
        assert (line.makespan, peaks(line)) == (18 if name == "zb-v" else 17, [2] * 4)


def test_large_pipelines_are_built_at_once():
    line = timed("v-half", 32, 128)
    assert (line.makespan, max(peaks(line))) == (6 * 128 + 3 * 32 - 7, 34)
