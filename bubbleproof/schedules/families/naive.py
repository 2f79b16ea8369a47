"""One microbatch at a time: model parallelism without pipelining, the yardstick that every pipeline must beat."""

from __future__ import annotations

from bubbleproof.schedules.families.family import Family, Reason, linear_only
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Op, Slot
from bubbleproof.schedules.schedule import Schedule

__all__ = ["NAIVE", "naive"]


def _why_not(instance: Instance) -> Reason:
    return None


def naive(instance: Instance) -> Schedule:
    """Each microbatch passes forward and backward through all stages before the next one begins.

    The makespan is m(F + BW + communication) summed over all stages, and a rank holds one microbatch at a time.
    Source: the case that GPipe (arXiv 1811.06965, Fig. 2b) starts from. Preconditions: none.
    """
    orders: list[list[Slot]] = [[] for _ in range(instance.ranks)]
    for j in range(instance.microbatches):
        for stage in range(instance.stages):
            orders[instance.rank_of(stage, j)].append(Op("F", stage, j))
        for stage in reversed(range(instance.stages)):
            orders[instance.rank_of(stage, j)].append(Op("BW", stage, j))
    return Schedule.of(orders, "naive")


NAIVE = Family(
    name="naive",
    summary="one microbatch at a time, no pipelining",
    reference="arXiv 1811.06965, Fig. 2b",
    order=naive,
    why_not=_why_not,
    placement=linear_only,
)
