"""1F1B and eager 1F1B: forwards and backwards alternate, so that a bounded number of microbatches is in flight."""

from __future__ import annotations

from bubbleproof.schedules.families.family import Family, at_positions, linear_only, need_one_chunk, require
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Op, Slot
from bubbleproof.schedules.schedule import Schedule

__all__ = ["EAGER_ONE_F_ONE_B", "ONE_F_ONE_B", "eager_one_f_one_b", "one_f_one_b"]


def _alternate(stage: int, microbatches: int, warmup: int) -> list[Slot]:
    """`warmup` forwards, then one forward and one backward in turn, then the backwards that are left."""
    warmup = min(warmup, microbatches)
    row: list[Slot] = [Op("F", stage, j) for j in range(warmup)]
    for j in range(microbatches):
        if warmup + j < microbatches:
            row.append(Op("F", stage, warmup + j))
        row.append(Op("BW", stage, j))
    return row


def one_f_one_b(instance: Instance) -> Schedule:
    """1F1B with a flush: stage s runs p − 1 − s forwards, then alternates forward and backward.

    The makespan is (m + p − 1)(F + BW) at equal times and no communication; stage s holds min(m, p − s) microbatches.
    Source: PipeDream-Flush (arXiv 2006.09503, section 3.2) and DAPPLE (arXiv 2007.01045).
    Precondition: one stage per rank; any m, also m < p.
    """
    require("1f1b", need_one_chunk(instance))
    p, m = instance.stages, instance.microbatches
    return at_positions(instance, [_alternate(s, m, p - 1 - s) for s in range(p)], "1f1b")


def eager_one_f_one_b(instance: Instance) -> Schedule:
    """1F1B with twice the warm-up: stage s runs 2(p − 1 − s) forwards before it alternates.

    Between a forward and the moment the next stage needs it lies another op, so that communication up to that op's
    time costs nothing. Stage s holds min(m, 2(p − s) − 1) microbatches.
    Source: arXiv 2211.05322 (eager-1F1B); PyTorch's Interleaved 1F1B has this warm-up at one chunk per rank.
    Precondition: one stage per rank; any m.
    """
    require("eager-1f1b", need_one_chunk(instance))
    p, m = instance.stages, instance.microbatches
    return at_positions(instance, [_alternate(s, m, 2 * (p - 1 - s)) for s in range(p)], "eager-1f1b")


ONE_F_ONE_B = Family(
    name="1f1b",
    summary="one forward, one backward in turn, with a flush (PipeDream-Flush, DAPPLE)",
    reference="arXiv 2006.09503, section 3.2; arXiv 2007.01045",
    order=one_f_one_b,
    why_not=need_one_chunk,
    placement=linear_only,
)

EAGER_ONE_F_ONE_B = Family(
    name="eager-1f1b",
    summary="1F1B with twice the warm-up, which hides communication for more memory",
    reference="arXiv 2211.05322",
    order=eager_one_f_one_b,
    why_not=need_one_chunk,
    placement=linear_only,
)
