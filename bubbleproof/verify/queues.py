"""Time and buffers under a channel model: what queues hold up, how many messages a rank holds.

Written from docs/semantics.md, section 9, "Time under a channel" and "Buffers".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from bubbleproof.schedules.op import members
from bubbleproof.schedules.program import Transfer
from bubbleproof.verify.case import Place
from bubbleproof.verify.exchange import ProgramCase

__all__ = ["Held", "buffered_levels", "channel_makespan", "held_up", "posted_receives"]

_SCAN = 100
"""How many actions behind a receive are looked at for one that it holds up."""


class Held(NamedTuple):
    """A receive that holds up an action behind it, for how long, and how many ops too early it is posted."""

    receive: Place
    behind: Place
    time: int
    ops: int


def _start(case: ProgramCase, node: int) -> int:
    start = case.progress.starts[node]
    assert start is not None, "asked for times of a program that is stuck"
    return start


def _end(case: ProgramCase, node: int) -> int:
    return _start(case, node) + case.graph.lengths[node]


def channel_makespan(case: ProgramCase) -> int | None:
    """Last end − first start over all ops, under the channel; None if not everything runs."""
    if case.progress.stuck:
        return None
    nodes = [
        node
        for row, actions in zip(case.graph.node_of, case.program.rows, strict=True)
        for node, action in zip(row, actions, strict=True)
        if node is not None and members(action)
    ]
    if not nodes:
        return None
    return max(_end(case, node) for node in nodes) - min(_start(case, node) for node in nodes)


def held_up(case: ProgramCase) -> Iterator[Held]:
    """Every receive of a program that runs, behind which something waits that its own rank has ready.

    None if the channel costs no time.
    """
    if case.facts.makespan is None or (channel_makespan(case) or 0) <= case.facts.makespan:
        return
    graph, node_of = case.graph, case.graph.node_of
    for delivery in case.deliveries:
        rank, position = delivery.receive
        node = node_of[rank][position]
        assert node is not None
        ready = max((_end(case, edge.needs) for edge in graph.before[node] if edge.rank == rank), default=0)
        end = _end(case, node)
        if _start(case, node) <= ready:
            continue  # its data was there first
        ops = _ops_too_early(case, delivery.send, delivery.receive)
        if not ops:
            continue
        best: tuple[int, Place] | None = None
        for other in range(position + 1, min(len(node_of[rank]), position + 1 + _SCAN)):
            follower = node_of[rank][other]
            if follower is None:
                continue
            needs = graph.before[follower]
            if all(edge.needs != node for edge in needs):
                continue
            here = (edge.needs for edge in needs if edge.needs != node and edge.rank == rank)
            without = max((_end(case, other_node) for other_node in here), default=0)
            time = end - max(ready, without)
            uses = Place(rank, position) in case.inputs_received.get(Place(rank, other), ())
            if time > 0 and not uses and (best is None or time > best[0]):
                best = (time, Place(rank, other))
        if best is not None:
            yield Held(delivery.receive, best[1], best[0], ops)


def _ops_too_early(case: ProgramCase, send: Place, receive: Place) -> int:
    """How many ops behind a receive start, as soon as ops alone allow, before what it takes has been made."""
    transfer = case.program.rows[send.rank][send.position]
    assert isinstance(transfer, Transfer)
    made = case.partners(transfer)
    if not made:
        return 0
    rank, position = made[0][0]
    ends = case.run.starts[rank][position] + case.durations[rank][position]
    starts, row = case.run.starts[receive.rank], case.program.rows[receive.rank]
    count = 0
    for later in range(receive.position + 1, len(row)):
        if starts[later] >= ends:
            break
        count += bool(members(row[later]))
    return count


def posted_receives(case: ProgramCase) -> tuple[int, ...]:
    """For each rank the most receives that are posted and not used at one time, by the order of its row."""
    peaks = []
    for rank, row in enumerate(case.program.rows):
        held = peak = 0
        for position, action in enumerate(row):
            if isinstance(action, Transfer) and not action.sends and not case.fault(rank, action):
                held += 1
                peak = max(peak, held)
            held -= len(case.inputs_received.get(Place(rank, position), ()))
        peaks.append(peak)
    return tuple(peaks)


def buffered_levels(case: ProgramCase, rank: int) -> Iterator[tuple[int, int]]:
    """(position, level) of a rank with its message buffers, after every change in the order of its row.

    A receive takes its buffer when it is posted; a forward makes that buffer its own, whatever else it holds is part of
    its stated memory; a backward gives it back when it ends. A send holds its buffer at least while it stands; torch
    keeps it to the end of the step.
    """
    setting, memory = case.setting, case.instance.memory
    assert setting.message_memory is not None
    sizes = setting.message_memory
    level = memory.static[rank]
    for position, action in enumerate(case.program.rows[rank]):
        if isinstance(action, Transfer):
            if case.fault(rank, action):
                continue
            size = sizes[min(action.stage, action.peer_stage)]
            level += size
            yield position, level
            if action.sends and setting.target != "torch":
                level -= size
            continue
        received = {
            (case.program.rows[rank][place.position].kind): place  # type: ignore[union-attr]  # places of receives
            for place in case.inputs_received.get(Place(rank, position), ())
        }
        for op in members(action):
            kind = "RECV_F" if op.kind == "F" else "RECV_B"
            buffer = 0
            if kind in received and op.kind not in ("W", "R"):
                transfer = case.program.rows[rank][received[kind].position]
                assert isinstance(transfer, Transfer)
                buffer = sizes[min(transfer.stage, transfer.peer_stage)]
            level += case.change(op) - buffer
            yield position, level
