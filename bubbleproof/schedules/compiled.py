"""A schedule and its instance as flat lists: the form in which it is timed and turned into a graph.

Nodes are slots, numbered rank by rank. This module is the one place in `schedules` where the dependency rules of
docs/semantics.md are written; `verify` has its own, on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from bubbleproof.schedules.errors import ScheduleError
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import BACKWARDS, Op, Slot, members
from bubbleproof.schedules.placement import Placement
from bubbleproof.schedules.schedule import Schedule

__all__ = ["Compiled", "compile_schedule", "producers"]


def producers(op: Op, placement: Placement) -> tuple[tuple[tuple[str, ...], int], ...]:
    """What must have ended before an op may start: (kinds any of which will do, stage), same microbatch.

    F of stage s needs F of every stage that feeds s. B (or BW) of stage s needs its own F and the B (or BW) of every
    stage that s feeds. W needs its own B, R its own F; and a backward needs its own R if there is one.
    """
    kind, stage, _ = op
    if kind == "F":
        return tuple((("F",), before) for before in placement.predecessors[stage])
    if kind == "W":
        return ((("B",), stage),)
    if kind == "R":
        return ((("F",), stage),)
    return ((("F",), stage), *((("B", "BW"), after) for after in placement.successors[stage]))


@dataclass(frozen=True)
class Compiled:
    """Flat lists over n nodes (slots) and, if messages occupy a channel, over one more node for each message.

    Parameters
    ----------
    first
        ``first[r]`` is the first node of rank r; ``first[p]`` is n. Nodes of a rank are consecutive, in its order.
    rank
        Rank of each slot.
    duration
        Duration of each node; that of a message is the time for which it occupies its channel.
    inputs
        For each node the (node, delay) pairs that must end, and travel, before it starts; the order edges of ranks are
        not included, those of channels are. An op of a stage on several ranks is a node on each of them, which also
        needs what stands before the op on the others: so all start at the same time.
    released
        For each node with which a rank begins, or which starts together with such a node, these ranks.
    """

    instance: Instance
    slots: tuple[Slot, ...]
    first: tuple[int, ...]
    rank: tuple[int, ...]
    duration: tuple[int, ...]
    inputs: tuple[tuple[tuple[int, int], ...], ...]
    released: Mapping[int, tuple[int, ...]]

    def topological(self) -> list[int]:
        """The nodes in an order that respects rank orders and inputs.

        Raises
        ------
        ScheduleError
            There is no such order: the schedule deadlocks.
        """
        return self._order

    @cached_property
    def _order(self) -> list[int]:
        slots, n = len(self.slots), len(self.duration)
        missing = [len(found) for found in self.inputs]
        heads = set(self.first[:-1])
        users: list[list[int]] = [[] for _ in range(n)]
        for node, found in enumerate(self.inputs):
            for source, _ in found:
                users[source].append(node)
            if node < slots and node not in heads:
                missing[node] += 1
                users[node - 1].append(node)
        ready = [node for node in range(n) if not missing[node]]
        for node in ready:  # grows while it is read
            for user in users[node]:
                missing[user] -= 1
                if not missing[user]:
                    ready.append(user)
        if len(ready) < n:
            raise ScheduleError(self._stuck(set(ready)))
        return ready

    def _stuck(self, done: set[int]) -> str:
        heads = []
        for rank in range(self.instance.ranks):
            for node in range(self.first[rank], self.first[rank + 1]):
                if node not in done:
                    heads.append(f"rank {rank} at {self.slots[node]}")
                    break
        return f"the orders deadlock: {', '.join(heads)} wait for each other; `bubbleproof verify` shows the cycle"


def compile_schedule(schedule: Schedule, instance: Instance) -> Compiled:
    """Flatten a schedule.

    Raises
    ------
    ScheduleError
        The schedule has another number of ranks than the instance, an op that the instance does not have, an op on
        another rank than its stage, an op twice, an op of a stage on several ranks that is not on all of them, or an
        op whose input no op produces.
    """
    if schedule.ranks != instance.ranks:
        raise ScheduleError(f"the schedule has {schedule.ranks} ranks, the instance {instance.ranks}")
    node_of: dict[Op, int] = {}
    copies: dict[Op, dict[int, int]] = {}
    slots: list[Slot] = []
    rank_of: list[int] = []
    first = [0]
    for rank, order in enumerate(schedule.orders):
        for slot in order:
            for op in members(slot):
                twice = rank in copies.get(op, ()) if instance.placement.groups else op in node_of
                _check_op(op, rank, instance, twice)
                node_of[op] = len(slots)
                if instance.placement.groups:
                    copies.setdefault(op, {})[rank] = len(slots)
            slots.append(slot)
            rank_of.append(rank)
        first.append(len(slots))
    inputs = [_inputs(node, slot, node_of, instance) for node, slot in enumerate(slots)]
    durations = [instance.duration(slot) for slot in slots]
    released: dict[int, tuple[int, ...]] = {
        first[rank]: (rank,) for rank in range(instance.ranks)
    }  # the last of those with the same first node
    if copies:
        _join(copies, slots, first, inputs, released, instance)
    if instance.costs.channel != "latency":
        _add_messages(inputs, durations, slots, rank_of, instance)
    return Compiled(
        instance,
        tuple(slots),
        tuple(first),
        tuple(rank_of),
        tuple(durations),
        tuple(tuple((source, delay) for source, delay, _ in found) for found in inputs),
        released,
    )


def _join(
    copies: dict[Op, dict[int, int]],
    slots: list[Slot],
    first: list[int],
    inputs: list[list[_Input]],
    released: dict[int, tuple[int, ...]],
    instance: Instance,
) -> None:
    """Let the copies of an op on several ranks start together."""
    for op, nodes in copies.items():
        group = instance.ranks_of(op.stage, op.microbatch)
        missing = [rank for rank in group if rank not in nodes]
        if missing:
            raise ScheduleError(f"{op} runs on ranks {', '.join(map(str, group))}; it is missing on rank {missing[0]}")
        if len(group) > 1:
            if any(not isinstance(slots[node], Op) for node in nodes.values()):
                raise ScheduleError(f"{op} runs on several ranks; it cannot be a member of a pair")
            heads = tuple(rank for rank, node in nodes.items() if node == first[rank])
            for rank, node in nodes.items():
                inputs[node] += [(n - 1, 0, op) for r, n in nodes.items() if r != rank and n > first[r]]
                if heads:
                    released[node] = heads


def _add_messages(
    inputs: list[list[_Input]], durations: list[int], slots: list[Slot], rank_of: list[int], instance: Instance
) -> None:
    """Make each input from another rank a node that occupies its channel, after the messages before it.

    Messages of a channel go in the order in which the ops that make them stand on their rank; in a pair the forward's
    goes first, and of one op's messages that to the lowest stage.
    """
    sent = []
    for node, found in enumerate(inputs):
        for place, (source, _, maker) in enumerate(found):
            if rank_of[source] != rank_of[node]:
                stage = next(op.stage for op in members(slots[node]) if op.microbatch == maker.microbatch)
                sent.append((source, members(slots[source]).index(maker), stage, node, place))
    last: dict[tuple[int, ...], int] = {}
    for source, _, _, node, place in sorted(sent):
        _, delay, maker = inputs[node][place]
        sender = rank_of[source]
        channel = (sender, rank_of[node]) if instance.costs.channel == "pair" else (sender,)
        before = last.get(channel)
        last[channel] = len(durations)
        inputs[node][place] = (len(durations), 0, maker)
        durations.append(delay)
        inputs.append([(source, 0, maker), *([] if before is None else [(before, 0, maker)])])


def _check_op(op: Op, rank: int, instance: Instance, twice: bool) -> None:
    if not (op.stage < instance.stages and op.microbatch < instance.microbatches):
        raise ScheduleError(
            f"{op} on rank {rank}: the instance has stages 0 … {instance.stages - 1} "
            f"and microbatches 0 … {instance.microbatches - 1}"
        )
    home = instance.rank_of(op.stage, op.microbatch)
    if rank not in instance.ranks_of(op.stage, op.microbatch):
        raise ScheduleError(
            f"{op} is on rank {rank}, but stage {op.stage} of microbatch {op.microbatch} is on rank {home}"
        )
    if op.kind == "R" and not instance.recompute:
        raise ScheduleError(f"{op} on rank {rank}: the instance gives no cost.R and memory.R, so nothing is recomputed")
    if twice:
        raise ScheduleError(f"{op} occurs twice on rank {rank}")


_Input: TypeAlias = tuple[int, int, Op]
"""A node, the time from its end, and the op that makes what is needed."""


def _inputs(node: int, slot: Slot, node_of: dict[Op, int], instance: Instance) -> list[_Input]:
    found: list[_Input] = []
    for op in members(slot):
        for kinds, stage in producers(op, instance.placement):
            sources = [source for kind in kinds if (source := Op(kind, stage, op.microbatch)) in node_of]  # type: ignore[arg-type]
            if not sources:
                raise ScheduleError(f"{op} needs {Op(kinds[0], stage, op.microbatch)}, which no rank runs")  # type: ignore[arg-type]
            delay = instance.message(stage, op.stage, op.microbatch)
            found.extend((node_of[source], delay, source) for source in sources)
        again = Op("R", op.stage, op.microbatch)
        if op.kind in BACKWARDS and again in node_of:
            found.append((node_of[again], 0, again))
    if any(source == node for source, _, _ in found):
        raise ScheduleError(f"{slot}: one member of the pair needs the other's result")
    return found
