"""A schedule as a dependency DAG, for networkx, Graphviz and GraphML readers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bubbleproof.schedules.compiled import compile_schedule
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import members
from bubbleproof.schedules.schedule import Schedule

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["dag", "dot", "graphml"]

_COLOURS = {"F": "#9ecae1", "B": "#fdae6b", "W": "#a1d99b", "BW": "#fc9272", "R": "#dadaeb"}
_STYLES = {"data": "solid", "channel": "dotted", "memory": "dashed", "order": "dotted"}  # strongest first


def dag(schedule: Schedule, instance: Instance) -> nx.DiGraph[str]:
    """The dependency DAG of a schedule.

    Nodes are the text forms of the slots, with attributes ``rank``, ``position`` and ``duration``. An edge (u, v) says
    that v may start ``delay`` after u has ended; its ``kinds`` is one or more of

    * ``data``: v uses a result of u; the delay is the message time between their ranks;
    * ``order``: v follows u on the same rank;
    * ``memory``: v takes memory that fits under the cap only because u has given some back. The edge starts at the
      last slot whose memory v needs; such edges follow from the rank order and say why the order cannot be relaxed.

    joined by ``+`` where several hold. If messages occupy channels, each is a node ``source→target`` of its own, with a
    ``channel`` in place of rank and position, and ``channel`` edges lead to it from the message before it. The longest
    path over node durations and edge delays is the makespan.

    Raises
    ------
    ScheduleError
        The schedule does not belong to the instance, or its orders and dependencies have a cycle.
    """
    import networkx as nx

    compiled = compile_schedule(schedule, instance)
    compiled.topological()
    names = [str(slot) for slot in compiled.slots]
    graph: nx.DiGraph[str] = nx.DiGraph(name=schedule.name or "schedule")
    for rank, position, slot in schedule.slots():
        graph.add_node(str(slot), rank=rank, position=position, duration=instance.duration(slot))
    users = {source: node for node, inputs in enumerate(compiled.inputs) for source, _ in inputs if node < len(names)}
    for message in range(len(names), len(compiled.duration)):
        sender, receiver = compiled.inputs[message][0][0], users[message]
        target = compiled.rank[receiver] if instance.costs.channel == "pair" else "*"
        channel = f"{compiled.rank[sender]}→{target}"
        name = f"{names[sender]}→{names[receiver]}"
        names.append(f"{name}'" if name in graph else name)  # a pair may send two to a pair
        graph.add_node(names[message], channel=channel, duration=compiled.duration[message])

    def add(source: str, target: str, kind: str, delay: int) -> None:
        if graph.has_edge(source, target):
            found = graph.edges[source, target]
            found["kinds"] += f"+{kind}"
            found["delay"] = max(found["delay"], delay)
        else:
            graph.add_edge(source, target, kinds=kind, delay=delay)

    for node, inputs in enumerate(compiled.inputs):
        for source, delay in inputs:
            queued = source >= len(compiled.slots) and node >= len(compiled.slots)
            add(names[source], names[node], "channel" if queued else "data", delay)
    for order in schedule.orders:
        for before, after in itertools.pairwise(order):
            add(str(before), str(after), "order", 0)
    for freeing, taking in _memory_edges(schedule, instance):
        add(freeing, taking, "memory", 0)
    return graph


def _memory_edges(schedule: Schedule, instance: Instance) -> Iterator[tuple[str, str]]:
    """For each slot that takes memory, the last earlier slot of its rank without whose giving back it would not fit."""
    memory = instance.memory
    if memory.cap is None:
        return
    for rank, order in enumerate(schedule.orders):
        changes = [[memory.of(*op, again=op[1:] in schedule.again) for op in members(slot)] for slot in order]
        given = [-sum(change for change in row if change < 0) for row in changes]
        level = memory.static[rank]
        for position, row in enumerate(changes):
            room = memory.cap[rank] - level - sum(change for change in row if change > 0)
            level += sum(row)
            if not any(change > 0 for change in row) or room < 0:
                continue
            # without what the slots from `back` on gave back, this slot would not fit: the first of them is the cause
            back = position
            while back > 0 and room >= 0:
                back -= 1
                room -= given[back]
            if room < 0:
                yield str(order[back]), str(order[position])


def dot(schedule: Schedule, instance: Instance) -> str:
    """The DAG in Graphviz' DOT language: one row per rank, data edges solid, order dotted, memory dashed."""
    graph = dag(schedule, instance)
    lines = [f'digraph "{_quoted(graph.name)}" {{', "  rankdir=LR;", "  node [shape=box, style=filled];"]
    for rank, order in enumerate(schedule.orders):
        lines.append(f'  subgraph "cluster_{rank}" {{ label="rank {rank}";')
        for slot in order:
            kind = "BW" if len(members(slot)) > 1 else members(slot)[0].kind
            duration = graph.nodes[str(slot)]["duration"]
            lines.append(f'    "{slot}" [fillcolor="{_COLOURS[kind]}", tooltip="duration {duration}"];')
        lines.append("  }")
    for source, target, found in graph.edges(data=True):
        style = next(style for kind, style in _STYLES.items() if kind in found["kinds"].split("+"))
        label = f', label="{found["delay"]}"' if found["delay"] else ""
        lines.append(f'  "{source}" -> "{target}" [style={style}{label}];')
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")


def graphml(schedule: Schedule, instance: Instance) -> str:
    """The DAG as GraphML."""
    import networkx as nx

    return "\n".join(nx.generate_graphml(dag(schedule, instance), named_key_ids=True)) + "\n"
