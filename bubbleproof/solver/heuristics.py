"""Schedules without search: a greedy with knobs, tried under several settings, and one microbatch at a time.

The greedy is the usual list scheduling, event by event: a rank that becomes free takes a backward if one has arrived,
else a forward, else a weight gradient. Three things make it good: how many microbatches a stage may hold in flight
during warm-up, whether a forward may start although a backward is about to arrive, and when a weight gradient may fill
a gap that is shorter than itself.

It cannot run into a deadlock if no B or W takes memory. A forward of stage s starts only if, on top of what it takes,
its rank could still admit a forward of each later stage that it holds, on either route (`reserves`). Suppose some op is
unfinished and nothing can run. Then forwards are blocked by memory; look at the one of the highest stage s. On each
route the oldest unfinished microbatch has come no further than stage s, so on that rank nothing is open at a stage from
s on, and the last forward admitted at an earlier stage has left room for s. A cap of two routes may be too low to leave
such room, and where B or W takes memory the argument has holes: if the greedy comes back without a schedule, one
microbatch at a time remains, with fused backwards if need be, which fits under every cap that an instance may have.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heappop, heappush

from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Op
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.solver.flat import Flat, Orders

__all__ = ["Knobs", "fused_one_at_a_time", "greedy", "one_at_a_time", "reserves", "reserves_of_rank"]

_NEVER = 1 << 62


@dataclass(frozen=True)
class Knobs:
    """Settings of the greedy.

    Parameters
    ----------
    depth
        For each line the most microbatches whose backward has not ended; None for no limit but memory.
    delay
        For each rank how far, in percent of its own duration, a forward may delay a backward whose arrival is known.
    fill
        For each rank the least part, in percent, of a weight gradient's duration that a gap must have to be filled.
    hold
        For each rank the most weight gradients that may be pending without one going before the next forward.
    late
        Whether a chunk with a higher stage goes first when several forwards could run.
    """

    depth: tuple[int, ...] | None
    delay: tuple[int, ...]
    fill: tuple[int, ...]
    hold: tuple[int, ...]
    late: bool = True


def one_at_a_time(flat: Flat) -> Orders:
    """Every microbatch alone: forwards up the stages, backwards down, each W right after its B."""
    orders: Orders = [[] for _ in range(flat.ranks)]
    width, stages = flat.width, flat.instance.stages
    for index in flat.class_of:
        base = index * stages * width
        for stage in range(stages):
            queue = base + stage * width
            for rank in flat.group[queue]:
                orders[rank].append(queue)
        for stage in reversed(range(stages)):
            queue = base + stage * width
            for rank in flat.group[queue]:
                orders[rank].extend(range(queue + 1, queue + width))
    return orders


def fused_one_at_a_time(instance: Instance) -> Schedule:
    """Every microbatch alone with fused backwards, recomputed on ranks where it would not fit otherwise.

    It fits under every cap that an instance may have.
    """
    cap, plain = instance.memory.cap, replace(instance.memory, R=None)
    without = instance.with_(costs=replace(instance.costs, R=None), memory=replace(plain, cap=None))
    again = [False] * instance.ranks
    for rank in range(instance.ranks if instance.recompute and cap is not None else 0):
        routes = set(instance.route_of_microbatch)
        again[rank] = cap is not None and any(without.least_memory(rank, route) > cap[rank] for route in routes)
    orders: list[list[Op]] = [[] for _ in range(instance.ranks)]
    for j in range(instance.microbatches):
        for stage in range(instance.stages):
            for rank in instance.ranks_of(stage, j):
                orders[rank].append(Op("F", stage, j))
        for stage in reversed(range(instance.stages)):
            for rank in instance.ranks_of(stage, j):
                orders[rank] += [Op("R", stage, j), Op("BW", stage, j)] if again[rank] else [Op("BW", stage, j)]
    return Schedule.of(orders, "one microbatch at a time")


def reserves(flat: Flat) -> list[int]:
    """For each queue the room that must remain on its rank after one of its ops has changed the memory.

    Enough for the rest of the op's own line, and, for a forward, to admit a forward of every later stage of the rank.
    """
    reserve = [0] * len(flat.rank)
    for queues in flat.queues_of_rank:
        for queue, room in reserves_of_rank(flat, queues).items():
            reserve[queue] = room
    return reserve


def reserves_of_rank(flat: Flat, queues: list[int]) -> dict[int, int]:
    """The same for the queues of one rank; those of a queue of several ranks differ from rank to rank."""
    width, reserve = flat.width, {}
    later: list[int] = []
    for base in sorted((q for q in queues if q % width == 0 and flat.size[q]), key=lambda q: -flat.stage[q]):
        need = 0
        for queue in range(base + width - 1, base, -1):  # from the end: what the rest of this line needs
            reserve[queue] = need
            need = max(0, need + flat.change[queue])
        above = (flat.change[q] + reserve[q] for q in later if flat.stage[q] > flat.stage[base])
        reserve[base] = max(need, *above, 0)
        later.append(base)
    return reserve


def greedy(flat: Flat, knobs: Knobs, reserve: list[int] | None = None) -> Orders | None:
    """Orders from list scheduling under the given knobs; None if it got stuck."""
    if flat.instance.placement.groups:
        from bubbleproof.solver.gangs import greedy_gangs

        return greedy_gangs(flat, knobs)
    if reserve is None:
        reserve = reserves(flat)
    run = _Run(flat, knobs, reserve)
    return run.go()


class _Run:
    """State of one run of the greedy."""

    def __init__(self, flat: Flat, knobs: Knobs, reserve: list[int]) -> None:
        self.flat, self.knobs, self.reserve = flat, knobs, reserve
        n = len(flat.rank)
        self.done = [0] * n
        # arrival[q][k]: when the k-th op of queue q has its inputs from other stages; for W and for B of the last
        # stage, from its own B or F
        self.arrival: list[list[int]] = [[] for _ in range(n)]
        self.level = [0] * flat.ranks
        self.free = [0] * flat.ranks
        self.orders: Orders = [[] for _ in range(flat.ranks)]
        width = flat.width
        self.lines: list[list[int]] = []
        for queues in flat.queues_of_rank:
            lines = sorted((q for q in queues if q % width == 0), key=lambda q: flat.stage[q], reverse=knobs.late)
            self.lines.append(lines)
        self.depth = [_NEVER] * n
        if knobs.depth is not None:
            for line, depth in enumerate(knobs.depth):
                self.depth[line * width] = depth
        self.sent: dict[tuple[int, ...], int] = {}
        # how many microbatches are in flight at a stage whose lines are of several classes; empty if each has one
        self.in_flight: list[list[int]] = []
        if not flat.instance.identical:
            shared: dict[tuple[int, int], list[int]] = {}
            for key in zip(flat.stage, flat.route, strict=True):
                self.in_flight.append(shared.setdefault(key, [0]))
        # which queue an op feeds and how long it takes; the own forward of a B not at the top is older news
        self.feeds: list[list[tuple[int, int]]] = [[] for _ in range(n)]
        for queue, targets in enumerate(flat.outputs):
            for target, delay in targets:
                own_forward = queue % width == 0 and target == queue + 1
                if not own_forward or len(flat.inputs[target]) == 1:
                    self.feeds[queue].append((target, delay))
        for queue in range(0, n, width):
            if not flat.inputs[queue]:
                self.arrival[queue] = [0] * flat.size[queue]
        # for queues that several stages feed: what has arrived from each of them
        self.joins: dict[int, dict[int, list[int]]] = {}
        if flat.instance.placement.edges:
            for queue, targets in enumerate(self.feeds):
                for target, _ in targets:
                    self.joins.setdefault(target, {})[queue] = []
            self.joins = {target: sources for target, sources in self.joins.items() if len(sources) > 1}

    def go(self) -> Orders | None:
        flat = self.flat
        events = [(0, rank) for rank in range(flat.ranks)]
        left, rank_of = flat.ops, flat.rank
        while events:
            time, rank = heappop(events)
            if self.free[rank] > time:
                continue
            queue, wake = self.choose(rank, time)
            if queue < 0:
                if wake < _NEVER:
                    heappush(events, (wake, rank))
                continue
            end = self.start(queue, rank, time)
            left -= 1
            heappush(events, (end, rank))
            for target, _ in self.feeds[queue]:
                other = rank_of[target]
                if other != rank and self.arrival[target]:
                    heappush(events, (max(self.arrival[target][-1], self.free[other]), other))
        return None if left else self.orders

    def start(self, queue: int, rank: int, time: int) -> int:
        flat = self.flat
        end = time + flat.duration[queue]
        self.done[queue] += 1
        self.level[rank] += flat.change[queue]
        self.free[rank] = end
        self.orders[rank].append(queue)
        if self.in_flight:
            self.in_flight[queue][0] += (1, -1, 0)[queue % flat.width]
        for target, delay in self.feeds[queue]:
            at = end + delay if flat.wires is None else self.sent_at(rank, target, end) + delay
            if target in self.joins:
                self.join(target, queue, at)
            else:
                self.arrival[target].append(at)
        return end

    def join(self, target: int, queue: int, at: int) -> None:
        """Take note of one of several inputs; they have arrived when the last of them has."""
        sources = self.joins[target]
        sources[queue].append(at)
        k = len(self.arrival[target])
        if all(len(arrived) > k for arrived in sources.values()):
            self.arrival[target].append(max(arrived[k] for arrived in sources.values()))

    def sent_at(self, rank: int, target: int, end: int) -> int:
        """When a message that is ready at `end` goes: its channel may be occupied."""
        flat, other = self.flat, self.flat.rank[target]
        if other == rank:
            return end
        channel = (rank, other) if flat.instance.costs.channel == "pair" else (rank,)
        start = max(end, self.sent.get(channel, 0))
        self.sent[channel] = start + flat.instance.costs.message(rank, other)
        return start

    def choose(self, rank: int, time: int) -> tuple[int, int]:
        """The queue to serve now, or −1 and when to ask again."""
        flat, done, arrival, knobs = self.flat, self.done, self.arrival, self.knobs
        change, duration, reserve, size = flat.change, flat.duration, self.reserve, flat.size
        split = flat.width == 3
        room = _NEVER if flat.cap is None else flat.cap[rank] - self.level[rank]
        next_backward = next_forward = _NEVER
        backward = forward = weight = -1
        backward_key = weight_key = _NEVER
        starved, pending = False, 0
        for line in self.lines[rank]:
            k = done[line + 1]
            known = arrival[line + 1]
            if k < len(known):
                at = known[k]
                if change[line + 1] > 0 and change[line + 1] + reserve[line + 1] > room:
                    starved = True
                elif at <= time:
                    if at < backward_key:
                        backward, backward_key = line + 1, at
                elif at < next_backward:
                    next_backward = at
            if split and done[line + 2] < k:
                pending += k - done[line + 2]
                if done[line + 2] < weight_key:
                    weight, weight_key = line + 2, done[line + 2]
            k = done[line]
            started = self.in_flight[line][0] if self.in_flight else k - done[line + 1]
            if k < size[line] and k < len(arrival[line]) and started < self.depth[line]:
                at = arrival[line][k]
                if change[line] + reserve[line] > room:
                    starved = starved or at <= time
                elif at <= time:
                    if forward < 0:
                        forward = line
                elif at < next_forward:
                    next_forward = at
        if backward >= 0:
            return backward, 0
        if forward >= 0 and pending > knobs.hold[rank]:
            return weight, 0
        if forward >= 0:
            over = time + duration[forward] - next_backward
            if over <= 0 or over * 100 <= knobs.delay[rank] * duration[forward]:
                return forward, 0
            next_forward = next_backward  # asked again when the backward is there
        wake = min(next_backward, next_forward)
        if weight >= 0 and (starved or (wake - time) * 100 >= knobs.fill[rank] * duration[weight]):
            return weight, 0
        return -1, wake
