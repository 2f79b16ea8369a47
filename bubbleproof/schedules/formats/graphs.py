"""The dependency graph of a schedule, for graph tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bubbleproof.schedules.timeline import Timeline

__all__ = ["write_dot", "write_graphml"]


def write_dot(timeline: Timeline) -> str:
    """The graph in Graphviz' DOT language."""
    return timeline.schedule.dot(timeline.instance)


def write_graphml(timeline: Timeline) -> str:
    """The graph as GraphML."""
    return timeline.schedule.graphml(timeline.instance)
