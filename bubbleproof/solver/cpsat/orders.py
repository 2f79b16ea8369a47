"""Which of two ops of a rank comes first: known beforehand, or a Boolean of the model."""

from __future__ import annotations

from ortools.sat.python import cp_model

from bubbleproof.solver.cpsat.variables import Variables

__all__ = ["Orders"]


class Orders:
    """Which of two ops of a rank comes first: known, or a Boolean of the model."""

    def __init__(self, v: Variables) -> None:
        self.v = v
        self.literals: dict[tuple[int, int, int, int], cp_model.IntVar] = {}

    def before(self, queue: int, i: int, other: int, k: int) -> bool | cp_model.LiteralT:
        """Whether op i of `queue` ends before op k of `other` starts; False also for an op and itself."""
        known = self._known(queue, i, other, k)
        if known is not None:
            return known
        if (other, k, queue, i) in self.literals:
            return ~self.literals[other, k, queue, i]
        literal = self.literals.get((queue, i, other, k))
        if literal is None:
            v = self.v
            literal = v.model.new_bool_var("")
            v.model.add(v.start[other][k] >= v.end(queue, i)).only_enforce_if(literal)
            v.model.add(v.start[queue][i] >= v.end(other, k)).only_enforce_if(~literal)
            self.literals[queue, i, other, k] = literal
        return literal

    def _known(self, queue: int, i: int, other: int, k: int) -> bool | None:
        v, flat = self.v, self.v.flat
        if queue == other:
            return i < k
        if i <= k and flat.leads(queue, other):
            return True
        if k <= i and flat.leads(other, queue):
            return False
        low, high = v.low, v.high
        if low[queue][i] + flat.duration[queue] > high[other][k]:
            return False
        if low[other][k] + flat.duration[other] > high[queue][i]:
            return True
        return None

    def add_monotony(self) -> None:
        """If a later op of a queue comes before something, so does an earlier one; likewise on the other side."""
        model, literals = self.v.model, self.literals
        for (queue, i, other, k), literal in literals.items():
            later = literals.get((queue, i + 1, other, k))
            if later is not None:
                model.add_implication(later, literal)
            later = literals.get((queue, i, other, k + 1))
            if later is not None:
                model.add_implication(literal, later)
