"""Looped breadth-first: a rank finishes all microbatches of a chunk before it turns to its next chunk."""

from __future__ import annotations

from bubbleproof.schedules.families.family import Family, Reason, need_placement, require
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Op, Slot
from bubbleproof.schedules.placement import loop
from bubbleproof.schedules.schedule import Schedule

__all__ = ["LOOPED_BFS", "looped_bfs"]


def _why_not(instance: Instance) -> Reason:
    return need_placement(instance, loop, "a loop placement (stage s on rank s mod p)")


def looped_bfs(instance: Instance) -> Schedule:
    """All forwards chunk by chunk upwards, then all backwards chunk by chunk downwards, microbatches ascending.

    The bubble is (p − 1)(F + BW)/v for m ≥ p with the times of a rank's whole share; every rank holds m microbatches.
    The gradients of a chunk are complete as early as possible, which is the point: their reduction can overlap. With
    one chunk per rank it is GPipe.
    Source: arXiv 2211.05953 (breadth first). The order of microbatches inside a chunk is ascending both
    ways, first come, first served; PyTorch's LoopedBFS runs the backwards of a chunk in descending order instead,
    which at equal times gives the same makespan and peak.
    Preconditions: a loop placement with any v ≥ 1; any m.
    """
    require("looped-bfs", _why_not(instance))
    m = instance.microbatches
    orders: list[list[Slot]] = []
    for stages in instance.placement.stages_of_rank:
        forwards: list[Slot] = [Op("F", stage, j) for stage in stages for j in range(m)]
        orders.append(forwards + [Op("BW", stage, j) for stage in reversed(stages) for j in range(m)])
    return Schedule.of(orders, "looped-bfs")


LOOPED_BFS = Family(
    name="looped-bfs",
    summary="breadth first over several chunks per rank: all forwards, then all backwards",
    reference="arXiv 2211.05953",
    order=looped_bfs,
    why_not=_why_not,
    placement=loop,
    chunks=2,
)
