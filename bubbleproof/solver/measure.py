"""By which timeline a schedule counts, and whether schedules without choices are enough."""

from __future__ import annotations

from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import Timeline, replay

__all__ = ["plain_is_best", "timeline_of"]


def timeline_of(schedule: Schedule, instance: Instance) -> Timeline:
    """The timeline by which a schedule is judged: as soon as possible, or of least span if that is the objective."""
    if instance.objective == "makespan":
        return replay(schedule, instance)
    from bubbleproof.schedules.align import align

    return align(schedule, instance)


def plain_is_best(instance: Instance) -> bool:
    """Whether nothing is lost by running no pairs, no fused backward of a split one, and no recompute.

    A pair that lasts as long as its members, or a BW as long as B and W, can be taken apart: nothing starts later, and
    memory does not rise in between unless B takes some. Recompute only saves memory.
    """
    costs, memory = instance.costs, instance.memory
    if instance.recompute and memory.cap is not None:
        return False
    figure, overhead = costs.figure, costs.overhead
    cells = [(s, alike[0]) for alike in instance.classes if alike for s in range(instance.stages)]
    for kind, pairs in (("B", costs.overlap_B), ("BW", costs.overlap_BW)):
        if pairs is not None and (kind == "BW" or costs.split):
            backward = max(figure(kind, s, j) for s, j in cells) + overhead
            if any(figure(f"overlap_{kind}", s, j) < figure("F", s, j) + backward for s, j in cells):
                return False
    return not costs.split or all(
        figure("BW", s, j) >= figure("B", s, j) + figure("W", s, j) + overhead and memory.of("B", s, j) <= 0
        for s, j in cells
    )
