"""A schedule: for each rank, the order of its ops. An order has no times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from bubbleproof.schedules.op import Op, Slot, members, parse_slot

if TYPE_CHECKING:
    import networkx as nx

    from bubbleproof.schedules.instance import Instance

__all__ = ["Schedule"]


@dataclass(frozen=True)
class Schedule:
    """The order of the slots of each rank.

    Parameters
    ----------
    orders
        ``orders[r]`` is what rank r runs, in order; a slot is an op or an overlapped pair.
    name
        Where the schedule comes from, for people. Two schedules with equal orders are equal whatever their names.
    """

    orders: tuple[tuple[Slot, ...], ...]
    name: str = field(default="", compare=False)

    @classmethod
    def of(cls, orders: Iterable[Iterable[Slot]], name: str = "") -> Schedule:
        """A schedule from any iterables of slots."""
        return cls(tuple(tuple(order) for order in orders), name)

    @classmethod
    def parse(cls, rows: Iterable[str], name: str = "") -> Schedule:
        """A schedule from one line of blank-separated slots per rank, such as ``0F0 0F1 0B0 0W0 0B1 0W1``."""
        return cls.of(([parse_slot(word) for word in row.split()] for row in rows), name)

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.orders)

    def slots(self) -> Iterator[tuple[int, int, Slot]]:
        """(rank, position, slot) of every slot."""
        for rank, order in enumerate(self.orders):
            for position, slot in enumerate(order):
                yield rank, position, slot

    def ops(self) -> Iterator[tuple[int, int, Op]]:
        """(rank, position, op) of every op; the members of a pair share a position."""
        for rank, position, slot in self.slots():
            for op in members(slot):
                yield rank, position, op

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of op that occur."""
        return frozenset(op.kind for _, _, op in self.ops())

    @cached_property
    def again(self) -> frozenset[tuple[int, int]]:
        """(stage, microbatch) of every R."""
        return frozenset((op.stage, op.microbatch) for _, _, op in self.ops() if op.kind == "R")

    def __str__(self) -> str:
        return "\n".join(" ".join(map(str, order)) for order in self.orders)

    def dag(self, instance: Instance) -> nx.DiGraph[str]:
        """The dependency DAG of this schedule; see `bubbleproof.schedules.graph.dag`."""
        from bubbleproof.schedules.graph import dag

        return dag(self, instance)

    def dot(self, instance: Instance) -> str:
        """The dependency DAG in Graphviz' DOT language."""
        from bubbleproof.schedules.graph import dot

        return dot(self, instance)

    def graphml(self, instance: Instance) -> str:
        """The dependency DAG as GraphML."""
        from bubbleproof.schedules.graph import graphml

        return graphml(self, instance)

    @classmethod
    def load(cls, path: str | Path) -> tuple[Schedule, Instance]:
        """Read a schedule file (JSON) with the instance inside it."""
        from bubbleproof.schedules.formats.schedule_json import load

        document = load(Path(path))
        return document.schedule, document.instance
