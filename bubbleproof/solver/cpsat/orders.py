"""Which of two ops of a rank comes first: known beforehand, or a Boolean of the model."""

from __future__ import annotations

from ortools.sat.python import cp_model

from bubbleproof.solver.cpsat.variables import Variables
from bubbleproof.solver.flat import Flat

__all__ = ["Orders", "leads_to", "place_in_microbatch"]


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
        if flat.alike[queue] == flat.alike[other]:
            first, second = place_in_microbatch(flat, queue), place_in_microbatch(flat, other)
            if first < second and i <= k and leads_to(flat, queue):
                return True
            if second < first and k <= i and leads_to(flat, other):
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


def place_in_microbatch(flat: Flat, queue: int) -> int:
    """Position of a queue's ops among the ops of a microbatch: forwards up, backwards down, each W after its B."""
    width, stages = flat.width, flat.instance.stages
    stage, kind = flat.stage[queue], queue % width
    return stage if kind == 0 else stages + (stages - 1 - stage) * (width - 1) + kind - 1


def leads_to(flat: Flat, queue: int) -> bool:
    """Whether all that is later in a microbatch depends on this queue's op: W leads nowhere, all else does."""
    return flat.width == 2 or queue % 3 != 2
