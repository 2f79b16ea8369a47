"""Narrowing the interval between bound and best schedule by questions to CP-SAT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bubbleproof.solver.cpsat.objective import Limits, decide
from bubbleproof.solver.flat import least_span, replay_flat

if TYPE_CHECKING:
    from bubbleproof.solver.search import Search

__all__ = ["improve"]

_WHOLE_MODEL = 4000
"""Ops up to which the whole model is asked."""


def improve(search: Search) -> None:
    """Ask about lengths between bound and best, each for a slice of time that doubles when nothing is decided.

    A length that is refuted raises the bound; a schedule found lowers the best. Within a slice the lower quarter is asked
    first (refutations there are often found by presolve alone), then the middle, then one below the best.
    """
    if search.flat.ops > _WHOLE_MODEL:
        return
    flat = search.flat
    low, piece = search.bound, 1.0
    while search.value is not None and low < search.value:
        decided = False
        high = search.value
        for length in sorted({low, low + (high - low) // 4, (low + high) // 2, high - 1 - (high - low) // 8, high - 1}):
            if search.value is None or not low <= length < search.value:
                continue
            search.budget.spend()
            best = search.orders
            times = None
            if best is not None:
                times = least_span(flat, best) if search.instance.objective == "span" else replay_flat(flat, best)
            limits = Limits(
                min(search.budget.left, 10 * piece if search.budget.effort is not None else piece),
                min(piece, search.budget.effort_left),
                search.workers,
                search.seed,
            )
            answer, orders, effort = decide(flat, length, limits, times)
            search.budget.spend(effort)
            if answer == "found":
                search.offer(orders, "cp-sat")
                decided = True
            elif answer == "impossible":
                low = length + 1
                search.refuted(length)
                decided = True
        if not decided:
            piece *= 2
