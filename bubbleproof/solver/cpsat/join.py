"""Warm-up and cool-down around a steady state: questions to CP-SAT in which the middle repeats itself.

The model is that of the whole small instance, and for the microbatches of a middle range each op starts a fixed time
after the same op `step` microbatches before. That makes the question easier by orders of magnitude, and what is found
can be repeated. An answer `impossible` says nothing about schedules without such a middle: no bound comes from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bubbleproof.solver.cpsat.constraints import Steady
from bubbleproof.solver.cpsat.interrupt import interruptibly
from bubbleproof.solver.cpsat.objective import Question
from bubbleproof.solver.flat import Orders

if TYPE_CHECKING:
    from bubbleproof.solver.search import Search

__all__ = ["join"]

_FIRST_PIECE = 1.0
_LAST_PIECE = 32.0
_LEAST_EFFORT = 0.02


def join(search: Search, orders: Orders, steady: Steady) -> None:
    """Offer better schedules with the given steady state, from the length of `orders` down.

    Parameters
    ----------
    orders
        Orders of the search's instance, better the nearer they are to having this steady state.

    Raises
    ------
    OutOfBudget
        The budget of the search is used up.
    """
    low, piece = search.bound, _FIRST_PIECE
    times = search.times(orders)
    best = search.measure(orders)
    while times is not None and best is not None and low < best and piece <= _LAST_PIECE:
        undecided = False
        floor = low
        while floor < best:
            length = (floor + best) // 2
            question = Question(
                search.flat,
                length,
                effort=min(piece, search.budget.effort_left),
                seconds=search.budget.left,
                seed=search.seed,
                linearization=0,
                hint=times,
                steady=steady,
            )
            answer = interruptibly(question.ask, question.stop)
            search.budget.spend(max(answer.effort, _LEAST_EFFORT))
            found = None if answer.orders is None else search.offer(answer.orders, "cp-sat with a steady state")
            if found is not None and answer.orders is not None and found < best:
                best, times = found, search.times(answer.orders)
                if search.done:
                    return
                continue
            floor = length + 1
            if answer.verdict == "impossible" and not undecided:
                low = floor
            undecided = undecided or answer.verdict != "impossible"
        if not undecided:
            return
        piece *= 4
