"""Axis ticks and percentages."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbleproof.schedules.draw.scale import percent, ticks


@pytest.mark.parametrize(
    ("low", "high", "most", "expected"),
    [(0, 21, 5, [0, 5, 10, 15, 20]), (0, 3, 10, [0, 1, 2, 3]), (7, 52, 5, [10, 20, 30, 40, 50]), (0, 0, 4, [0])],
)
def test_ticks_are_round(low, high, most, expected):
    assert ticks(low, high, most) == expected


@given(st.integers(0, 10**9), st.integers(0, 10**12), st.integers(1, 50))
def test_ticks_are_few_and_inside(low, length, most):
    found = ticks(low, low + length, most)
    assert len(found) <= most + 2
    assert all(low <= tick <= low + length for tick in found)


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (3, 7, "42.9%"),
        (1, 8, "12.5%"),
        (1, 2000, "0.1%"),
        (0, 0, "0.0%"),
        (-1, 8, "-12.5%"),
        (Fraction(15, 64), 1, "23.4%"),
    ],
)
def test_percentages_are_rounded_half_up(part, whole, text):
    assert percent(part, whole) == text
