"""What the verbs do with the nodes of the ScheduledNode family."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, cast

from bubbleproof.schedules.errors import FormatError

if TYPE_CHECKING:
    from bubbleproof.schedules.nodes import Dialect, NodeLists
    from bubbleproof.schedules.program import Program
    from bubbleproof.schedules.timeline import Timeline
    from bubbleproof.verify.runtimes.colossalai import Scheduler
    from bubbleproof.verify.runtimes.prediction import Prediction

__all__ = ["NAMES", "best_text", "predicted", "read"]

NAMES = {"colossalai": "ColossalAI", "sail-sg": "sail-sg", "primus": "Primus"}
"""Formats of nodes, and the runtimes that they are for."""


def read(text: str, path: str, arguments: argparse.Namespace) -> tuple[Program, NodeLists]:
    """The program and the nodes of a file; what it says about microbatches and placement becomes an option."""
    from bubbleproof.schedules.formats import scheduled_node

    nodes = scheduled_node.loads_nodes(text, path)
    for name, value in (("microbatches", nodes.microbatches), ("placement", nodes.rank_of_stage)):
        if getattr(arguments, name, None) is None:
            setattr(arguments, name, value)
    return nodes.program(), nodes


def scheduler_of(nodes: NodeLists, arguments: argparse.Namespace) -> Scheduler:
    """The scheduler that nodes for ColossalAI need: the one given, else its own if it takes their microbatches."""
    given = getattr(arguments, "engine", None)
    if given is not None:
        return cast("Scheduler", given)
    return "bubbleproof" if nodes.microbatches % nodes.ranks else "stock"


def predicted(nodes: NodeLists, arguments: argparse.Namespace) -> Prediction | None:
    """What ColossalAI does with its nodes; None for the other runtimes, which have no model here."""
    if nodes.dialect != "colossalai":
        return None
    from bubbleproof.verify.runtimes.colossalai import predict

    return predict(nodes, scheduler=scheduler_of(nodes, arguments))


def best_text(timeline: Timeline, dialect: Dialect) -> str:
    """The nodes with the shortest step where transfers block, of the ways to place messages; each is judged.

    Raises
    ------
    FormatError
        The runtime cannot express the schedule.
    """
    from bubbleproof.cli.output import figure, log
    from bubbleproof.schedules.formats import scheduled_node
    from bubbleproof.schedules.lower import lower
    from bubbleproof.verify import verify_program
    from bubbleproof.verify.runtimes.colossalai import predict

    schedule, instance = timeline.schedule, timeline.instance
    scheduled_node.refuse(schedule, instance, dialect)
    found: list[tuple[int, NodeLists]] = []
    for blocking in (False, True):
        program = lower(schedule, instance, reduce=False, blocking=blocking)
        nodes = scheduled_node.nodes_of(program, instance, dialect, timeline)
        said = predict(nodes, scheduler="bubbleproof", overlap=False) if dialect == "colossalai" else None
        report = verify_program(program, instance, channel="rendezvous-rank", prediction=said)
        if not report.counts and report.channel and report.channel.makespan is not None:
            found.append((report.channel.makespan, nodes))
    if not found:
        raise FormatError(f"not for {NAMES[dialect]}: no order of messages is safe")
    takes, nodes = min(found, key=lambda one: one[0])
    unit = instance.units.time
    log(
        f"note: makespan {figure(timeline.makespan, unit)} without waiting for messages in order, "
        f"{figure(takes, unit)} where each transfer blocks both ranks"
    )
    if dialect == "colossalai" and instance.microbatches % instance.ranks:
        log(
            f"note: {instance.microbatches} microbatches are no multiple of {instance.ranks} ranks; needs the "
            f"scheduler of bubbleproof.runtimes.colossalai"
        )
    return scheduled_node.dumps(nodes)
