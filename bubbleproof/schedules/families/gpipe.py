"""GPipe: all forwards, then all backwards."""

from __future__ import annotations

from bubbleproof.schedules.families.family import Family, at_positions, linear_only, need_one_chunk, require
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Op
from bubbleproof.schedules.schedule import Schedule

__all__ = ["GPIPE", "gpipe"]


def gpipe(instance: Instance) -> Schedule:
    """All forwards of a rank, then all its backwards, both in ascending microbatch order.

    The makespan is (m + p − 1)(F + BW) at equal times and no communication, and every rank holds m microbatches.
    Source: arXiv 1811.06965, Fig. 2c and section 2.3. That figure draws the backwards in descending microbatch order;
    runtimes, PyTorch's ScheduleGPipe among them, run them ascending, and so does this. At equal times neither the
    makespan nor the peak differs. Precondition: one stage per rank.
    """
    require("gpipe", need_one_chunk(instance))
    m = instance.microbatches
    rows = [
        [*(Op("F", stage, j) for j in range(m)), *(Op("BW", stage, j) for j in range(m))]
        for stage in range(instance.stages)
    ]
    return at_positions(instance, rows, "gpipe")


GPIPE = Family(
    name="gpipe",
    summary="all forwards, then all backwards",
    reference="arXiv 1811.06965, Fig. 2c",
    order=gpipe,
    why_not=need_one_chunk,
    placement=linear_only,
)
