"""An instance as queues of ops: the form in which the solver builds, times and compares orders quickly.

Nothing is lost by running each kind of op of a stage in microbatch order within each class of equal microbatches, those
of one route with the same costs and memory (docs/semantics.md, order symmetry). So the order of a rank is fully
described by a sequence of *queues*, a queue being one kind of op of one stage for one class, and the k-th entry of a
queue is the k-th microbatch of that class. How classes interleave stays free; if no two microbatches are equal, that is
every order. Everything here is plain lists of integers: this is on the path to the first
answer, and importing an array library costs more than the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import TypeAlias

from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Kind, Op
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.solver.wires import Arrays, Wires

__all__ = ["Flat", "Orders", "Times", "least_span", "peaks", "replay_flat"]

Orders: TypeAlias = list[list[int]]
"""For each rank the queues in the order in which it serves them."""


@dataclass
class Flat:
    """Queues of an instance.

    Queue ``line * K + i`` holds the ops of kind ``kinds[i]`` of one line, a line being a stage for a class of equal
    microbatches. K = 3 kinds (F, B, W) if backwards are split, else 2 (F, BW).

    Parameters
    ----------
    rank, group, duration, change, size, stage, route, alike
        Of each queue: its rank (of a stage on several ranks the first), all its ranks, the time and the memory change
        of one op, the number of ops, its stage, and the route and the class of its microbatches. If no figure is given
        per microbatch, the class is the route.
    inputs, outputs
        Of each queue: (queue, delay) pairs; the k-th op needs the k-th op of every input queue.
    cap
        Of each rank: the most that ops may add to the static part; None without a cap.
    wires
        The messages, if they occupy channels.
    microbatches, class_of
        The microbatches of each class, and the class of each microbatch.
    """

    instance: Instance
    kinds: tuple[Kind, ...] = ()
    rank: list[int] = field(default_factory=list)
    group: list[tuple[int, ...]] = field(default_factory=list)
    duration: list[int] = field(default_factory=list)
    change: list[int] = field(default_factory=list)
    size: list[int] = field(default_factory=list)
    stage: list[int] = field(default_factory=list)
    route: list[int] = field(default_factory=list)
    alike: list[int] = field(default_factory=list)
    inputs: list[tuple[tuple[int, int], ...]] = field(default_factory=list)
    outputs: list[list[tuple[int, int]]] = field(default_factory=list)
    queues_of_rank: list[list[int]] = field(default_factory=list)
    microbatches: list[list[int]] = field(default_factory=list)
    class_of: list[int] = field(default_factory=list)
    cap: list[int] | None = None
    wires: Wires | None = None

    def __post_init__(self) -> None:
        instance = self.instance
        self.kinds = ("F", *instance.costs.backward_kinds)
        stages = instance.stages
        self.microbatches = [list(alike) for alike in instance.classes]
        self.class_of = [0] * instance.microbatches
        for index, alike in enumerate(self.microbatches):
            for j in alike:
                self.class_of[j] = index
        width = len(self.kinds)
        self.queues_of_rank = [[] for _ in range(instance.ranks)]
        for index, alike in enumerate(self.microbatches):
            # a class without microbatches is that of a route which none follows
            first = alike[0] if alike else None
            route = index if first is None else instance.route_of_microbatch[first]
            placement = instance.placement
            ranks = placement.groups or tuple((rank,) for rank in placement.routes[route])
            for stage, group in enumerate(ranks):
                base = (index * stages + stage) * width
                for offset, kind in enumerate(self.kinds):
                    self.rank.append(group[0])
                    self.group.append(group)
                    self.duration.append(instance.costs.of(kind, stage, first))
                    self.change.append(instance.memory.of(kind, stage, first))
                    self.size.append(len(alike))
                    self.stage.append(stage)
                    self.route.append(route)
                    self.alike.append(index)
                    for rank in group:
                        self.queues_of_rank[rank].append(base + offset)
                start = index * stages * width
                before, after = placement.predecessors[stage], placement.successors[stage]
                up = ((start + s * width, self._message(ranks[s], group)) for s in before)
                down = ((start + s * width + 1, self._message(ranks[s], group)) for s in after)
                self.inputs.append(tuple(up))
                self.inputs.append(((base, 0), *down))
                if width == 3:
                    self.inputs.append(((base + 1, 0),))
        self.outputs = [[] for _ in self.rank]
        for queue, found in enumerate(self.inputs):
            for source, delay in found:
                self.outputs[source].append((queue, delay))
        if instance.costs.channel != "latency":
            self.wires = Wires.of(self)
        if instance.memory.cap is not None:
            self.cap = [c - s for c, s in zip(instance.memory.cap, instance.memory.static, strict=True)]

    def _message(self, source: tuple[int, ...], target: tuple[int, ...]) -> int:
        """The longest message between the ranks of two stages."""
        return max(self.instance.costs.message(a, b) for a in source for b in target)

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.instance.ranks

    @cached_property
    def _led(self) -> list[int]:
        """For each queue those of its class whose op depends on its own for the same microbatch, as bits."""
        found = [0] * len(self.rank)
        size = self.instance.stages * self.width
        for queue in reversed(self.topological()):
            for target, _ in self.outputs[queue]:
                found[queue] |= found[target] | 1 << target % size
        return found

    def leads(self, queue: int, target: int) -> bool:
        """Whether for every microbatch the op of `target` depends on that of `queue`, directly or not."""
        if self.alike[queue] != self.alike[target]:
            return False
        return bool(self._led[queue] >> target % (self.instance.stages * self.width) & 1)

    def topological(self) -> list[int]:
        """Queues such that, microbatch after microbatch, each op comes after its inputs."""
        width, stages = self.width, self.instance.stages
        found = []
        for base in range(0, len(self.rank), stages * width):
            found += [base + stage * width for stage in range(stages)]
            for i in range(1, width):
                found += [base + stage * width + i for stage in reversed(range(stages))]
        return found

    @property
    def arrays(self) -> Arrays:
        """Inputs, outputs, durations and ranks of the queues."""
        return self.inputs, self.outputs, self.duration, self.rank

    @property
    def width(self) -> int:
        """Number of kinds: 3 with split backwards, else 2."""
        return len(self.kinds)

    @property
    def ops(self) -> int:
        """Number of ops."""
        return sum(self.size)

    def schedule(self, orders: Orders, name: str = "") -> Schedule:
        """The schedule that these orders describe."""
        taken = [0] * len(self.rank)
        width = self.width
        rows = []
        for order in orders:
            if self.instance.placement.groups:
                taken = [0] * len(self.rank)  # its own count on each rank of a queue
            row = []
            for queue in order:
                k = taken[queue]
                taken[queue] = k + 1
                row.append(Op(self.kinds[queue % width], self.stage[queue], self.microbatches[self.alike[queue]][k]))
            rows.append(tuple(row))
        return Schedule(tuple(rows), name)

    def orders(self, schedule: Schedule) -> Orders | None:
        """The orders of a schedule, microbatches renumbered in order of occurrence; None if it has pairs or recompute.

        A fused backward of an instance whose backwards are split is taken apart into B followed by W.
        """
        kind_index = {kind: index for index, kind in enumerate(self.kinds)}
        class_of, stages, width = self.class_of, self.instance.stages, self.width
        rows: Orders = []
        for order in schedule.orders:
            row = []
            for slot in order:
                if not isinstance(slot, Op) or slot.kind == "R":
                    return None
                base = (class_of[slot.microbatch] * stages + slot.stage) * width
                if slot.kind in kind_index:
                    row.append(base + kind_index[slot.kind])
                elif width == 3:
                    row.extend((base + 1, base + 2))
                else:
                    return None
            rows.append(row)
        return rows


@dataclass
class Times:
    """Ends of the ops of orders that were replayed: per queue, and the first start and last end of each rank."""

    ends: list[list[int]]
    first: list[int]
    last: list[int]
    root: list[int]
    """For each rank the rank whose release time its last end goes back to along a critical path."""

    @property
    def makespan(self) -> int:
        """Last end − first start over all ranks."""
        return max(self.last) - min(self.first)

    @property
    def span(self) -> int:
        """The longest of the ranks' last end − first start."""
        return max(e - s for s, e in zip(self.first, self.last, strict=True))

    def rows(self, orders: Orders) -> tuple[tuple[int, ...], ...]:
        """The ends of all ops in the order of their rank."""
        rows = []
        for order in orders:
            each = {queue: iter(self.ends[queue]) for queue in set(order)}
            rows.append(tuple(next(each[queue]) for queue in order))
        return tuple(rows)


def replay_flat(flat: Flat, orders: Orders, release: Sequence[int] | None = None) -> Times | None:
    """Run orders as soon as possible; None if they deadlock.

    Parameters
    ----------
    release
        Earliest first start of each rank, 0 if left out.
    """
    if flat.instance.placement.groups:
        return replay_gangs(flat, orders, release)
    wires = flat.wires
    inputs, outputs, duration, rank_of = (flat if wires is None else wires).arrays
    ends: list[list[int]] = [[] for _ in rank_of]
    roots: list[list[int]] = [[] for _ in rank_of]
    free = [0] * flat.ranks if release is None else list(release)
    if wires is not None:
        orders = wires.rows(orders)
        free += [-1] * wires.channels  # earlier than any input, so that a channel's times go back to its senders'
    p = len(orders)
    head, first, waits = list(range(p)), list(free), [-1] * p
    position, stack = [0] * p, list(range(p - 1, -1, -1))
    left = sum(map(len, orders))
    while stack:
        rank = stack.pop()
        order, i, time, root = orders[rank], position[rank], free[rank], head[rank]
        for queue in order[i:]:
            mine = ends[queue]
            k = len(mine)
            start, cause = time, root
            for source, delay in inputs[queue]:
                known = ends[source]
                if len(known) <= k:
                    waits[rank] = source
                    break
                arrival = known[k] + delay
                if arrival > start:
                    start, cause = arrival, roots[source][k]
            else:
                if i == 0:
                    first[rank] = start
                time, root = start + duration[queue], cause
                mine.append(time)
                roots[queue].append(root)
                i += 1
                for target, _ in outputs[queue]:
                    other = rank_of[target]
                    if waits[other] == queue:
                        waits[other] = -1
                        stack.append(other)
                continue
            break
        left -= i - position[rank]
        position[rank], free[rank], head[rank] = i, time, root
    cut = flat.ranks
    return None if left else Times(ends, first[:cut], free[:cut], head[:cut])


def replay_gangs(flat: Flat, orders: Orders, release: Sequence[int] | None = None) -> Times | None:
    """The same where queues have several ranks: an op starts when all of them have come to it."""
    inputs, duration = flat.inputs, flat.duration
    ends: list[list[int]] = [[] for _ in flat.rank]
    roots: list[list[int]] = [[] for _ in flat.rank]
    free = [0] * flat.ranks if release is None else list(release)
    head, first, position = list(range(flat.ranks)), list(free), [0] * flat.ranks
    left, moved = sum(map(len, orders)), True
    while moved:
        moved = False
        for rank, order in enumerate(orders):
            while position[rank] < len(order):
                queue = order[position[rank]]
                group, k = flat.group[queue], len(ends[queue])
                if any(
                    position[other] == len(orders[other]) or orders[other][position[other]] != queue for other in group
                ) or any(len(ends[source]) <= k for source, _ in inputs[queue]):
                    break
                causes = [(free[other], head[other]) for other in group]
                causes += [(ends[source][k] + delay, roots[source][k]) for source, delay in inputs[queue]]
                start, cause = max(causes, key=itemgetter(0))
                ends[queue].append(start + duration[queue])
                roots[queue].append(cause)
                for other in group:
                    if position[other] == 0:
                        first[other] = start
                    position[other] += 1
                    free[other], head[other] = start + duration[queue], cause
                left -= len(group)
                moved = True
    return None if left else Times(ends, first, free, head)


def least_span(flat: Flat, orders: Orders) -> Times | None:
    """Times of the least span that these orders admit; None if they deadlock.

    The first start of a rank may be delayed. A span of at most T means that each rank starts no earlier than T before
    its last end, which is an edge of length −T from the last op to the first; T is possible iff no cycle has positive
    length. T starts at the longest busy time and rises to the mean of each positive cycle met, so it ends at the least.
    """
    limit = max(sum(flat.duration[q] for q in order) for order in orders)
    release = [0] * flat.ranks
    parent: list[int] = [-1] * flat.ranks
    path = [0] * flat.ranks
    best: Times | None = None
    while True:
        times = replay_flat(flat, orders, release)
        if times is None:
            return None
        if best is None or times.span < best.span:
            best = times
        if best.span <= limit:
            return best
        raised = list(release)
        for rank in range(flat.ranks):
            late = times.last[rank] - limit
            if late > times.first[rank]:
                parent[rank] = times.root[rank]
                path[rank] = times.last[rank] - release[times.root[rank]]
                raised[rank] = late
        release = raised
        mean = _cycle_mean(parent, path)
        if mean > limit:
            limit = mean
            parent = [-1] * flat.ranks


def _cycle_mean(parent: list[int], path: list[int]) -> int:
    """The largest mean of a cycle of parent pointers, rounded up; −1 if there is none."""
    best, seen = -1, [-1] * len(parent)
    for begin in range(len(parent)):
        node = begin
        while node >= 0 and seen[node] < 0:
            seen[node] = begin
            node = parent[node]
        if node >= 0 and seen[node] == begin:
            length, total, at = 0, 0, node
            while True:
                length, total, at = length + 1, total + path[at], parent[at]
                if at == node:
                    break
            best = max(best, -(-total // length))
    return best


def peaks(flat: Flat, orders: Orders) -> list[int]:
    """Most memory that the ops of each rank hold at once, static part not included."""
    change = flat.change
    found = []
    for order in orders:
        level = peak = 0
        for queue in order:
            level += change[queue]
            if level > peak:
                peak = level
        found.append(peak)
    return found
