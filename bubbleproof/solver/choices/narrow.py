"""Narrowing the interval between bound and best schedule by questions about schedules with choices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bubbleproof.solver.choices.model import ChoiceQuestion
from bubbleproof.solver.choices.search import provable
from bubbleproof.solver.cpsat.improve import Interval
from bubbleproof.solver.cpsat.objective import Answer

if TYPE_CHECKING:
    from bubbleproof.solver.search import Search

__all__ = ["narrow"]


def narrow(search: Search, *, ordered: bool) -> None:
    """Ask until nothing is left between bound and best, or until no more time is left.

    Raises
    ------
    OutOfBudget
        The time or effort ended first.
    """
    _Choices(search, ordered).narrow()


class _Choices(Interval):
    def __init__(self, search: Search, ordered: bool) -> None:
        super().__init__(search)
        self.ordered = ordered
        self.provable = provable(search.instance)

    def question(self, length: int) -> ChoiceQuestion:
        search = self.search
        return ChoiceQuestion(
            search.instance,
            length,
            effort=min(self.piece, search.budget.effort_left),
            seconds=search.budget.left,
            seed=search.seed,
            linearization=self.round % 2,
            hint=search.schedule,
            ordered=self.ordered,
        )

    def found(self, answer: Answer) -> None:
        assert answer.schedule is not None
        self.search.offer_schedule(answer.schedule, "cp-sat")

    def refuted(self, length: int) -> None:
        if self.provable:
            self.search.raise_bound(length + 1, "cp-sat")
