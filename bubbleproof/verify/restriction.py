"""An instance without some of its stages: those of one path of the stage graph, as a chain, each on one rank.

Bounds of what is left are bounds of the whole (docs/bounds.md, section 8).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import custom
from bubbleproof.verify.normal_form import Refused

__all__ = ["restricted"]

T = TypeVar("T")


def restricted(instance: Instance, path: Sequence[tuple[int, int]]) -> tuple[Instance, tuple[int, ...]]:
    """The instance of the stages of a path alone, and which rank each of its ranks was.

    Parameters
    ----------
    path
        Stages, each of which feeds the next one, and for each one rank that runs it.

    Raises
    ------
    Refused
        That is no path, or what is left out could make up for something.
    """
    placement, costs, memory = instance.placement, instance.costs, instance.memory
    if len(placement.routes) > 1 or costs.overlap_B is not None or costs.overlap_BW is not None:
        raise Refused("stages are left out of one route without pairs only")
    stages = [stage for stage, _ in path]
    if not path or not all(0 <= s < instance.stages and r in instance.ranks_of(s, 0) for s, r in path):
        raise Refused(f"{path} names a stage that is not on its rank")
    edges = placement.edges or [(s, s + 1) for s in range(instance.stages - 1)]
    if not all(edge in edges for edge in pairwise(stages)):
        raise Refused(f"{stages} is no path of the stage graph")
    ranks = tuple(sorted({rank for _, rank in path}))
    for stage in set(range(instance.stages)).difference(stages) if costs.split else ():
        for alike in instance.classes:
            if alike and set(instance.ranks_of(stage, 0)) & set(ranks) and memory.of("W", stage, alike[0]) > 0:
                raise Refused(f"stage {stage} is left out, but its W takes memory")

    def picked(values: Sequence[T]) -> tuple[T, ...]:
        return tuple(values[stage] for stage in stages)

    apart = [(i, k) for i in range(len(ranks)) for k in range(len(ranks)) if i != k]
    return (
        instance.with_(
            placement=custom([ranks.index(rank) for _, rank in path], len(ranks)),
            costs=replace(
                costs,
                F=picked(costs.F),
                B=picked(costs.B),
                W=picked(costs.W),
                BW=picked(costs.BW),
                default_comm=0,
                comm=tuple(((i, k), costs.message(ranks[i], ranks[k])) for i, k in apart),
                channel="latency",
                varying=tuple((name, picked(rows)) for name, rows in costs.varying),
                R=None if costs.R is None else picked(costs.R),
            ),
            memory=replace(
                memory,
                F=picked(memory.F),
                B=picked(memory.B),
                W=picked(memory.W),
                BW=picked(memory.BW),
                static=tuple(memory.static[rank] for rank in ranks),
                cap=None if memory.cap is None else tuple(memory.cap[rank] for rank in ranks),
                message=None,
                varying=tuple((name, picked(rows)) for name, rows in memory.varying),
                R=None if memory.R is None else picked(memory.R),
            ),
        ),
        ranks,
    )
