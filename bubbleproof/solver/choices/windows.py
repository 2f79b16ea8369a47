"""Rearranging parts of a schedule with choices: everything outside a window of time, or outside some ranks, stays.

What stays keeps its form and its order; times follow. CP-SAT then finds shorter schedules close to the best one, where
the question about the whole schedule is too large.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ortools.sat.python import cp_model

from bubbleproof.schedules.op import Op, Slot
from bubbleproof.schedules.timeline import Timeline
from bubbleproof.solver.choices.model import ChoiceQuestion, Choices

if TYPE_CHECKING:
    from bubbleproof.solver.search import Search

__all__ = ["Frozen", "rearrange"]

_PIECE = 0.4
"""Effort of one question."""

_LEAST = 0.05
"""What any question counts for: building a model takes time too."""

_PATIENCE = 16
"""Questions in a row without a better schedule after which the search for them ends."""


@dataclass(frozen=True)
class Frozen:
    """What stays of a schedule.

    Parameters
    ----------
    orders
        For each rank its slots, in order, each with whether it stays.
    """

    orders: tuple[tuple[tuple[Slot, bool], ...], ...]

    def add_to(self, question: ChoiceQuestion, v: Choices) -> None:
        """What stays keeps its form and its order; the rest of a rank stays between what stays before and after it."""
        for order in self.orders:
            ended: cp_model.LinearExprT = 0
            between: list[cp_model.LinearExprT] = []
            for slot, stays in order:
                for op in (slot,) if isinstance(slot, Op) else slot:
                    cell = (op.stage, op.microbatch)
                    start = {"F": v.f, "W": v.w, "R": v.r}.get(op.kind, v.g)[cell]
                    length = {"F": v.long_f, "B": v.long_g, "BW": v.long_g}.get(op.kind, {}).get(cell)
                    end = start + (question.lasts(op.kind, cell) if length is None else length)
                    if stays:
                        _keep(question, v, slot, op)
                        v.model.add(start >= ended)
                    elif op.kind in ("F", "B", "BW"):  # W and R may not be there any more
                        v.model.add(start >= ended)
                        between.append(end)
                if stays:
                    for inner in between:
                        v.model.add(start >= inner)
                    ended, between = end, []


def _keep(question: ChoiceQuestion, v: Choices, slot: Slot, op: Op) -> None:
    """Fix the choices that an op which stays has made."""
    cell = (op.stage, op.microbatch)
    if not isinstance(slot, Op):
        a, b = ((x.stage, x.microbatch) for x in slot)
        literal = v.pairs.get((a, b, slot.backward.kind == "BW"))
        if literal is not None:
            v.model.add(literal == 1)
    elif op.kind in ("F", "B", "BW"):
        v.model.add(v.alone[op.kind, cell] == 1)
    if op.kind in ("B", "W", "BW") and cell in v.split:
        v.model.add(v.split[cell] == (op.kind != "BW"))
    if cell in v.again and question.hint is not None:
        v.model.add(v.again[cell] == (cell in question.hint.again))


def rearrange(search: Search, *, ordered: bool) -> None:
    """Rearrange parts of the best schedule until that has brought nothing for a while.

    Raises
    ------
    OutOfBudget
        The time or effort ended first.
    """
    from bubbleproof.solver.measure import timeline_of

    rng = random.Random(search.seed)
    idle, timeline = 0, timeline_of(search.schedule, search.instance)
    while idle < _PATIENCE and not search.done:
        before = search.reached()
        question = ChoiceQuestion(
            search.instance,
            before - 1,
            effort=min(_PIECE, search.budget.effort_left),
            seconds=search.budget.left,
            seed=search.seed,
            linearization=idle % 2,
            hint=timeline.schedule,
            ordered=ordered,
            frozen=_some(timeline, rng),
        )
        answer = question.ask()
        if answer.schedule is not None:
            search.offer_schedule(answer.schedule, "cp-sat, a part rearranged")
        better = search.reached() < before
        idle = 0 if better else idle + 1
        if better:
            timeline = timeline_of(search.schedule, search.instance)
        search.budget.spend(max(answer.effort, _LEAST))


def _some(timeline: Timeline, rng: random.Random) -> Frozen:
    """Free a random window of time, or two neighbouring ranks."""
    ranks = timeline.instance.ranks
    if ranks > 2 and rng.randrange(3) == 0:
        first = rng.randrange(ranks - 1)
        free = [rank in (first, first + 1) for rank in range(ranks)]
        return Frozen(
            tuple(tuple((slot, not free[rank]) for slot in row) for rank, row in enumerate(timeline.schedule.orders))
        )
    width = timeline.makespan * rng.choice((20, 30, 45)) // 100
    begin = timeline.first_start + rng.randrange(-width // 2, max(1, timeline.makespan - width // 2))
    return Frozen(
        tuple(
            tuple((slot, not begin <= start < begin + width) for slot, start in zip(row, starts, strict=True))
            for row, starts in zip(timeline.schedule.orders, timeline.starts, strict=True)
        )
    )
