"""The rules of inference of a proof: what one constraint of the model says about its variables' bounds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from bubbleproof.verify.proof.domain import State
from bubbleproof.verify.proof.model import Disjunctive, Linear

__all__ = ["linear_fails", "one_at_a_time_fails"]


def linear_fails(constraint: Linear, state: State) -> bool:
    """Whether Σ coefficient · variable exceeds its bound for all values left, and the condition is known to hold."""
    if constraint.when is not None:
        variable, value = constraint.when
        if not state.low(variable) == state.high(variable) == value:
            return False
    least = sum(c * (state.low(v) if c > 0 else state.high(v)) for c, v in constraint.terms)
    return least > constraint.bound


def one_at_a_time_fails(constraint: Disjunctive, state: State) -> bool:
    """Whether the tasks cannot all run, one at a time, because of their compulsory parts.

    A task that starts in low … high with duration d runs at least from high to low + d, if that is an interval. Two
    such intervals must not meet, and every task needs a start at which it meets none of the others'. Tasks about which
    nothing is assumed are looked at only if the others do not settle it.
    """
    known = state.bounded()
    few = [(v, d) for v, d in constraint.tasks if v in known]
    return _clash(few, state) or _clash(constraint.tasks, state)


def _clash(tasks: Sequence[tuple[int, int]], state: State) -> bool:
    windows = [(v, d, state.low(v), state.high(v)) for v, d in tasks]
    parts = sorted((high, low + d, v) for v, d, low, high in windows if high < low + d)
    if any(start < end for (_, end, _), (start, _, _) in pairwise(parts)):
        return True
    for variable, duration, low, high in windows:
        start = low
        for begin, end, other in parts:
            if other != variable and begin < start + duration and start < end:
                start = end
        if start > high:
            return True
    return False
