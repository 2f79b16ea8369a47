"""Timelines: the times of a schedule under given costs, and what they say about it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal, NamedTuple

from bubbleproof.schedules.compiled import Compiled, compile_schedule
from bubbleproof.schedules.instance import Instance, Objective
from bubbleproof.schedules.op import Slot, members
from bubbleproof.schedules.schedule import Schedule

__all__ = ["Idle", "Peak", "Timeline", "Traffic", "replay", "replay_compiled"]


class Idle(NamedTuple):
    """Idle time of a rank, between the first start and the last end of the whole step.

    ``fill`` before its first op, ``drain`` after its last op, ``steady`` in between.
    """

    fill: int
    steady: int
    drain: int


class Peak(NamedTuple):
    """The most memory a rank holds, static part included, and the first instant at which it does."""

    memory: int
    time: int
    slot: Slot | None
    """The slot whose start or end reaches the peak; None if the static part alone is the peak."""


class Traffic(NamedTuple):
    """Point-to-point messages of a rank; bytes (in the instance's memory unit) are None if sizes are not known."""

    sent: int
    received: int
    bytes_sent: int | None
    bytes_received: int | None


@dataclass(frozen=True)
class Timeline:
    """Start and end of every slot.

    Parameters
    ----------
    starts, ends
        ``starts[r][i]`` and ``ends[r][i]`` for the i-th slot of rank r, in the instance's time unit.
    """

    instance: Instance
    schedule: Schedule
    starts: tuple[tuple[int, ...], ...]
    ends: tuple[tuple[int, ...], ...]

    @cached_property
    def first_start(self) -> int:
        """When the first op of any rank starts."""
        return min((row[0] for row in self.starts if row), default=0)

    @cached_property
    def last_end(self) -> int:
        """When the last op of any rank ends."""
        return max((row[-1] for row in self.ends if row), default=0)

    @property
    def makespan(self) -> int:
        """Last end − first start over all ranks."""
        return self.last_end - self.first_start

    @cached_property
    def spans(self) -> tuple[int, ...]:
        """Last end − first start of each rank."""
        return tuple(e[-1] - s[0] if s else 0 for s, e in zip(self.starts, self.ends, strict=True))

    @property
    def span(self) -> int:
        """The longest of `spans`."""
        return max(self.spans)

    def value(self, objective: Objective | None = None) -> int:
        """Makespan or span, by default the one that the instance minimises."""
        return self.span if (objective or self.instance.objective) == "span" else self.makespan

    @cached_property
    def busy(self) -> tuple[int, ...]:
        """For each rank the time during which it runs something."""
        return tuple(
            sum(e - s for s, e in zip(row_s, row_e, strict=True))
            for row_s, row_e in zip(self.starts, self.ends, strict=True)
        )

    def bubble(self, per: Literal["step", "compute"] = "step", of: Objective = "makespan") -> Fraction:
        """The bubble, as an exact fraction; work is the mean over ranks of their busy time.

        Parameters
        ----------
        per
            ``step``: 1 − work/T. ``compute``: T/work − 1.
        of
            Whether T is the makespan or the span.
        """
        total, work = self.value(of), Fraction(sum(self.busy), len(self.busy))
        if not total or not work:
            return Fraction(0)
        return 1 - work / total if per == "step" else total / work - 1

    @cached_property
    def idle(self) -> tuple[Idle, ...]:
        """Idle time of each rank, by phase."""
        found = []
        for starts, ends, span, busy in zip(self.starts, self.ends, self.spans, self.busy, strict=True):
            if starts:
                found.append(Idle(starts[0] - self.first_start, span - busy, self.last_end - ends[-1]))
            else:
                found.append(Idle(self.makespan, 0, 0))
        return tuple(found)

    @cached_property
    def peaks(self) -> tuple[Peak, ...]:
        """Peak memory of each rank. It depends on the order alone; the instant depends on the times."""
        return tuple(self._peak(rank) for rank in range(self.instance.ranks))

    def _peak(self, rank: int) -> Peak:
        memory, again = self.instance.memory, self.schedule.again
        level = memory.static[rank]
        best = Peak(level, self.first_start, None)
        for slot, start, end in zip(self.schedule.orders[rank], self.starts[rank], self.ends[rank], strict=True):
            for op in members(slot):  # a pair takes at its start and gives back at its end, in this order
                level += memory.of(*op, again=op[1:] in again)
                if level > best.memory:
                    best = Peak(level, start if op.kind in ("F", "R") else end, slot)
        return best

    @cached_property
    def traffic(self) -> tuple[Traffic, ...]:
        """Messages of each rank: one per F and per B (or BW) whose result crosses to another rank."""
        instance, sizes = self.instance, self.instance.memory.message
        sent, received = [0] * instance.ranks, [0] * instance.ranks
        out, into = [0] * instance.ranks, [0] * instance.ranks
        for rank, _, op in self.schedule.ops():
            if op.kind in ("W", "R"):
                continue
            graph = instance.placement
            for to in (graph.successors if op.kind == "F" else graph.predecessors)[op.stage]:
                size = 0 if sizes is None else sizes[min(op.stage, to)]
                for target in instance.ranks_of(to, op.microbatch):
                    if target != rank:
                        sent[rank] += 1
                        received[target] += 1
                        out[rank] += size
                        into[target] += size
        return tuple(
            Traffic(s, r, None if sizes is None else o, None if sizes is None else i)
            for s, r, o, i in zip(sent, received, out, into, strict=True)
        )

    @cached_property
    def critical_path(self) -> tuple[Slot, ...]:
        """Slots, from one that waits for nothing to the last one to end, each starting the moment its cause allows.

        Where a slot is late for no cause in this timeline (a release time was given), the path begins there.
        """
        compiled = compile_schedule(self.schedule, self.instance)
        start = [s for row in self.starts for s in row]
        end = [e for row in self.ends for e in row]
        slots = len(end)
        for message in range(slots, len(compiled.duration)):  # ascending along each channel
            start.append(max(end[source] for source, _ in compiled.inputs[message]))
            end.append(start[message] + compiled.duration[message])
        heads, rank = set(compiled.first[:-1]), compiled.rank
        node = max(range(slots), key=end.__getitem__) if end else -1
        path = []
        while node >= 0:
            causes = [source for source, delay in compiled.inputs[node] if end[source] + delay == start[node]]
            if node < slots:
                path.append(compiled.slots[node])
                if node not in heads and end[node - 1] == start[node]:
                    causes.append(node - 1)
            # prefer a cause on another rank: it is the dependency that a reader wants to see
            node = min(causes, key=lambda c: (c < slots and node < slots and rank[c] == rank[node], c), default=-1)
        return tuple(reversed(path))


def replay(schedule: Schedule, instance: Instance, *, release: tuple[int, ...] | None = None) -> Timeline:
    """Run a schedule: every slot starts as soon as its rank and its inputs allow.

    Parameters
    ----------
    release
        For each rank the earliest start of its first slot; left out, 0 everywhere.

    Raises
    ------
    ScheduleError
        The schedule does not belong to the instance, or it deadlocks.
    """
    return replay_compiled(compile_schedule(schedule, instance), schedule, release or (0,) * instance.ranks)


def replay_compiled(compiled: Compiled, schedule: Schedule, release: tuple[int, ...]) -> Timeline:
    """`replay` of a schedule that has been flattened already, which is most of its work."""
    slots, n = len(compiled.slots), len(compiled.duration)
    start, end = [0] * n, [0] * n
    heads = {compiled.first[r]: r for r in range(compiled.instance.ranks)}
    for node in compiled.topological():
        # a rank without slots shares its first node with the next rank; the dictionaries keep the right one
        earliest = 0 if node >= slots or node in heads else end[node - 1]
        for rank in compiled.released.get(node, ()):
            earliest = max(earliest, release[rank])
        for source, delay in compiled.inputs[node]:
            if end[source] + delay > earliest:
                earliest = end[source] + delay
        start[node] = earliest
        end[node] = earliest + compiled.duration[node]
    cut = compiled.first
    rows = range(compiled.instance.ranks)
    return Timeline(
        compiled.instance,
        schedule,
        tuple(tuple(start[cut[r] : cut[r + 1]]) for r in rows),
        tuple(tuple(end[cut[r] : cut[r + 1]]) for r in rows),
    )
