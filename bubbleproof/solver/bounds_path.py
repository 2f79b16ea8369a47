"""Bounds of graphs of stages and of stages on several ranks by the rules for chains: on some of their paths.

What is left out of an instance only takes time and room, so a bound of a path is one of the whole; docs/bounds.md,
section 8.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from bubbleproof.schedules.instance import Instance
from bubbleproof.verify.certificate import Certificate
from bubbleproof.verify.normal_form import Refused
from bubbleproof.verify.restriction import restricted

__all__ = ["Part", "parts"]

_MOST = 12
"""Paths that are looked at."""


class Part(NamedTuple):
    """A path, with a rank for each stage; the instance of it alone, and which rank each rank of that was."""

    path: tuple[tuple[int, int], ...]
    instance: Instance
    ranks: tuple[int, ...]

    def lifted(self, certificate: Certificate) -> Certificate:
        """The certificate for the whole instance, from one for the part."""
        rank, via = (x if x < 0 else self.ranks[x] for x in (certificate.rank, certificate.via))
        return msgspec.structs.replace(certificate, rank=rank, via=via, path=self.path)


def parts(instance: Instance) -> Iterator[Part]:
    """The longest paths through the stages of an instance that is no chain, the longest first."""
    if instance.placement.plain or len(instance.placement.routes) > 1:
        return
    found: dict[tuple[tuple[int, int], ...], int] = {}
    graph, costs = instance.placement, instance.costs
    weight = [costs.F[s] + costs.BW[s] for s in range(instance.stages)]

    def best(stage: int, feeding: tuple[tuple[int, ...], ...], known: dict[int, tuple[int, tuple[int, ...]]]) -> None:
        beyond = [known[other] for other in feeding[stage]]
        length, path = max(beyond, default=(0, ()))
        known[stage] = length + weight[stage], (stage, *path)

    below: dict[int, tuple[int, tuple[int, ...]]] = {}
    above: dict[int, tuple[int, tuple[int, ...]]] = {}
    for stage in range(instance.stages):
        best(stage, graph.predecessors, below)
    for stage in reversed(range(instance.stages)):
        best(stage, graph.successors, above)
    for stage in range(instance.stages):
        stages = (*reversed(below[stage][1]), *above[stage][1][1:])
        for rank in instance.ranks_of(stage, 0):
            groups = [instance.ranks_of(s, 0) for s in stages]
            path = tuple((s, rank if rank in group else group[0]) for s, group in zip(stages, groups, strict=True))
            found[path] = below[stage][0] + above[stage][0]
    for path in sorted(found, key=lambda path: (-found[path], path))[:_MOST]:
        try:
            yield Part(path, *restricted(instance, path))
        except Refused:
            continue
