"""Figures that engineers know by heart: F = 1, whole backward = 2, p ranks, m microbatches."""

from fractions import Fraction

import pytest

from tests.schedules.families.sizes import peaks, timed


def percent(fraction: Fraction) -> float:
    return round(float(fraction * 100), 1)


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize(
    ("p", "m", "step", "bubble"), [(4, 4, 21, 42.9), (4, 16, 57, 15.8), (8, 8, 45, 46.7), (8, 64, 213, 9.9)]
)
def test_step_time_and_bubble_of_gpipe_and_1f1b(name, p, m, step, bubble):
    line = timed(name, p, m, F=1, B=2, W=None)
    assert line.makespan == step
    assert percent(line.bubble("step")) == bubble
    assert peaks(line)[0] == (m if name == "gpipe" else min(p, m))


@pytest.mark.parametrize(
    ("p", "m", "compute", "step"),
    [(16, 64, 23.4, 19.0), (16, 128, 11.7, 10.5), (32, 64, 48.4, 32.6), (8, 64, 10.9, 9.9)],
)
def test_bubble_against_compute_and_against_the_step(p, m, compute, step):
    line = timed("1f1b", p, m, F=1, B=2, W=None)
    assert percent(line.bubble("compute")) == compute
    assert percent(line.bubble("step")) == step


def test_two_chunks_halve_the_bubble_of_16_ranks():
    line = timed("interleaved-1f1b", 16, 64, F=1, B=2, W=None, v=2)
    assert percent(line.bubble("compute")) == 11.7


@pytest.mark.parametrize("p", [2, 4, 8, 16])
@pytest.mark.parametrize("m", [4, 8, 16, 32, 64])
def test_the_bubble_is_p_minus_1_over_m_plus_p_minus_1(p, m):
    for name in ("gpipe", "1f1b"):
        assert timed(name, p, m, F=1, B=2, W=None).bubble("step") == Fraction(p - 1, m + p - 1)


def test_four_ranks_need_27_microbatches_for_a_bubble_of_a_tenth():
    small = [m for m in range(1, 40) if timed("1f1b", 4, m, F=1, B=2, W=None).bubble("step") <= Fraction(1, 10)]
    assert small == list(range(27, 40))


def test_a_405b_layout_needs_256_gb_under_gpipe_and_64_gb_under_1f1b():
    memory = {"F": 4, "W": -4}
    assert peaks(timed("gpipe", 16, 64, memory=memory)) == [256] * 16
    assert max(peaks(timed("1f1b", 16, 64, memory=memory))) == 64
