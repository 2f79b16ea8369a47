"""Instances with equal stages, which the tests of the families share."""

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.families import FAMILIES, build
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.timeline import Timeline, replay


def equal(placement, m, F=1, B=1, W=1, *, comm=0, memory=None, **costs) -> Instance:
    """Every stage costs the same; W = None: the backward cannot be split. An activation counts 1 until W."""
    stages = placement.stages
    return Instance(
        placement,
        m,
        Costs.make(stages, F=F, B=B, W=W, comm=comm, **costs),
        Memory.make(stages, placement.ranks, **(memory or {})),
    )


def timed(name, p, m, F=1, B=1, W=1, *, v=None, **rest) -> Timeline:
    """The timeline of a family on p ranks with its own placement."""
    family = FAMILIES[name]
    instance = equal(family.placement(p, v or family.chunks), m, F, B, W, **rest)
    return replay(build(name, instance), instance)


def peaks(timeline) -> list[int]:
    return [peak.memory for peak in timeline.peaks]
