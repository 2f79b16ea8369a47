"""Messages that occupy channels, once more and as naive as possible: a graph with a node per message."""

from __future__ import annotations

from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import members
from bubbleproof.schedules.schedule import Schedule
from tests.verify.model import firsts_and_lasts, inputs, lengths, relax


def graph(schedule: Schedule, instance: Instance):
    """Durations of the nodes, and weighted edges; nodes are places of slots, and (maker, user) for messages."""
    at = {op: (rank, position) for rank, position, op in schedule.ops()}
    duration = dict(lengths(schedule, instance))
    edges = []
    for rank, order in enumerate(schedule.orders):
        edges += [((rank, i), (rank, i + 1), instance.duration(order[i])) for i in range(len(order) - 1)]
        last = {}
        for position, slot in enumerate(order):
            here = (rank, position)
            for op in members(slot):
                users = sorted((user for user in at if op in inputs(user, at, instance)), key=lambda u: u.stage)
                for user in users:
                    target = at[user]
                    if target[0] == rank:
                        edges.append((here, target, duration[here]))
                        continue
                    message = (op, user)
                    duration[message] = instance.costs.message(rank, target[0])
                    edges.append((here, message, duration[here]))
                    edges.append((message, target, duration[message]))
                    channel = target[0] if instance.costs.channel == "pair" else None
                    if channel in last:
                        edges.append((last[channel], message, duration[last[channel]]))
                    last[channel] = message
    return duration, edges


def soon(schedule: Schedule, instance: Instance):
    """The earliest start of every slot, per rank; None if the schedule deadlocks (all durations above 0)."""
    duration, edges = graph(schedule, instance)
    x = relax(dict.fromkeys(duration, 0), edges)
    return None if x is None else [[x[r, i] for i in range(len(order))] for r, order in enumerate(schedule.orders)]


def least_span(schedule: Schedule, instance: Instance) -> int:
    """The least span over integer starts, by trying spans."""
    duration, edges = graph(schedule, instance)
    ends = firsts_and_lasts(schedule)
    span = 0
    while True:
        back = [(last, first, duration[last] - span) for first, last in ends]
        if relax(dict.fromkeys(duration, 0), edges + back) is not None:
            return span
        span += 1


def repeated(schedule: Schedule, instance: Instance, times: int) -> int:
    """When the last of so many iterations without a barrier has ended; channels go on from one to the next."""
    duration, edges = graph(schedule, instance)
    copies = {(node, n): 0 for node in duration for n in range(times)}
    weighted = [((u, n), (v, n), w) for u, v, w in edges for n in range(times)]
    ends = firsts_and_lasts(schedule)
    for first, last in ends:
        weighted += [((last, n), (first, n + 1), duration[last]) for n in range(times - 1)]
    channels: dict[tuple, list] = {}
    order = [node for node in duration if node not in lengths(schedule, instance)]
    for maker, user in order:
        sender, receiver = (
            instance.rank_of(maker.stage, maker.microbatch),
            instance.rank_of(user.stage, user.microbatch),
        )
        channels.setdefault((sender, receiver if instance.costs.channel == "pair" else None), []).append((maker, user))
    for messages in channels.values():
        weighted += [((messages[-1], n), (messages[0], n + 1), duration[messages[-1]]) for n in range(times - 1)]
    x = relax(copies, weighted)
    assert x is not None
    return max(x[last, times - 1] + duration[last] for _, last in ends)
