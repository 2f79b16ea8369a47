"""Ops of duration 0 made to last: so that the times of CP-SAT's answer tell in which order they ran.

Several ops may share an instant if some of them last 0, and starts alone then leave open which came first. Memory and
deadlock depend on it. So every time is multiplied by a factor k, an op of duration 0 lasts 1, and the length asked for
is k · length + z with z the number of ops of duration 0.

Nothing is lost: a path of an order is lengthened by at most z, and so is every cycle mean of its span. Nothing is
gained: an order that fits has a makespan of at most length + z/k in old units, which is below length + 1 for k > z; and
a least span of at most length + z/k. That is a cycle mean over at most p ranks, a fraction with a denominator of at
most p, so for k > p · z it is at most length.
"""

from __future__ import annotations

from copy import copy

from bubbleproof.solver.flat import Flat
from bubbleproof.solver.wires import Wires

__all__ = ["stretched"]

_LONGEST = 1 << 50
"""Lengths stay below this, so that CP-SAT's sums stay far inside 64 bits."""


def stretched(flat: Flat, length: int) -> tuple[Flat, int, int]:
    """The same queues without ops of duration 0, the length to ask for, and the factor of all times.

    Unchanged with factor 1 if no op lasts 0, or if the times would become too large; an answer may then turn out not to
    keep the caps.
    """
    short = sum(n for n, duration in zip(flat.size, flat.duration, strict=True) if not duration)
    factor = flat.ranks * short + 1
    if not short or factor * (length + 1) > _LONGEST:
        return flat, length, 1
    longer = copy(flat)
    longer.duration = [factor * duration or 1 for duration in flat.duration]
    longer.inputs = [tuple((source, factor * delay) for source, delay in found) for found in flat.inputs]
    longer.outputs = [[(target, factor * delay) for target, delay in found] for found in flat.outputs]
    if longer.wires is not None:
        longer.wires = Wires.of(longer)
    return longer, factor * length + short, factor
