"""ZB-H1 and ZB-H2: 1F1B whose weight gradients wait, so that input gradients come back sooner."""

from __future__ import annotations

from bubbleproof.schedules.families.family import (
    Family,
    Reason,
    at_positions,
    linear_only,
    need_one_chunk,
    need_split,
    require,
)
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Op, Slot
from bubbleproof.schedules.schedule import Schedule

__all__ = ["ZB_H1", "ZB_H2", "zb_h1", "zb_h2"]


def _why_not(instance: Instance) -> Reason:
    return need_one_chunk(instance) or need_split(instance)


def _row(stage: int, microbatches: int, warmup: int, delay: int) -> list[Slot]:
    """`warmup` forwards, then F, B and the W of `delay` microbatches ago in turn, then the Ws that are left."""
    warmup = min(warmup, microbatches)
    row: list[Slot] = [Op("F", stage, j) for j in range(warmup)]
    for j in range(microbatches):
        if warmup + j < microbatches:
            row.append(Op("F", stage, warmup + j))
        row.append(Op("B", stage, j))
        if j >= delay:
            row.append(Op("W", stage, j - delay))
    row.extend(Op("W", stage, j) for j in range(max(0, microbatches - delay), microbatches))
    return row


def zb_h1(instance: Instance) -> Schedule:
    """The zero-bubble schedule with 1F1B's memory: warm-up of 1F1B, and stage s runs each W s microbatches late.

    Makespan and span are m(F + B + W) + (p − 1)(F + B − W) for m ≥ p, W ≤ min(F, B) and no communication. Stage s
    holds (p − s) M_B + s M_W, where M_B is what a microbatch holds until its B and M_W what it holds until its W.
    Source: arXiv 2401.10241, section 2 and Table 2.
    Preconditions: one stage per rank, split backward; any m (the formula needs m ≥ p).
    """
    require("zb-h1", _why_not(instance))
    p, m = instance.stages, instance.microbatches
    return at_positions(instance, [_row(s, m, p - 1 - s, s) for s in range(p)], "zb-h1")


def zb_h2(instance: Instance) -> Schedule:
    """The zero-bubble schedule with twice 1F1B's memory: 2(p − s) − 1 forwards of stage s before its first B.

    Stage s runs each W 2s microbatches late, so that all ranks idle equally little and end in the order in which they
    began: the picture is a parallelogram. The span is m(F + B + W) + (p − 1)(F + B − 2W + 2c) for m ≥ 2p − 1,
    W ≤ min(F, B) and small communication c; stage s holds (2(p − s) − 1) M_B + 2s M_W.
    Source: arXiv 2401.10241, section 2 and Table 2; the paper publishes no order, so the place of
    each W follows from its memory column. It counts on steps that no barrier synchronises (its section 4).
    Preconditions: one stage per rank, split backward; any m (the formula needs m ≥ 2p − 1).
    """
    require("zb-h2", _why_not(instance))
    p, m = instance.stages, instance.microbatches
    return at_positions(instance, [_row(s, m, 2 * (p - 1 - s), 2 * s) for s in range(p)], "zb-h2")


ZB_H1 = Family(
    name="zb-h1",
    summary="1F1B with late weight gradients: a third of its bubble at the same memory",
    reference="arXiv 2401.10241, section 2 and Table 2",
    order=zb_h1,
    why_not=_why_not,
    placement=linear_only,
    needs_split=True,
)

ZB_H2 = Family(
    name="zb-h2",
    summary="late weight gradients and twice the warm-up: no bubble at equal times, twice the memory",
    reference="arXiv 2401.10241, section 2 and Table 2",
    order=zb_h2,
    why_not=_why_not,
    placement=linear_only,
    needs_split=True,
)
