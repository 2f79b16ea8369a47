"""Adding communication to a schedule.

The rows of the program are one order of the whole schedule, restricted to each rank, in which every message is a single
step: its send and its receive take their places on both ranks at that step. Under every channel model that serves calls
in the order of the rows, that order runs to the end (docs/semantics.md, theorem 8). ``even-odd`` reorders them.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, TypeAlias

from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import BACKWARDS, Op
from bubbleproof.schedules.program import Action, Collective, Program, Transfer
from bubbleproof.schedules.schedule import Schedule

if TYPE_CHECKING:
    from bubbleproof.schedules.timeline import Timeline

__all__ = ["lower"]

Place: TypeAlias = tuple[int, int]
"""Rank and position of a slot."""


def lower(schedule: Schedule, instance: Instance, *, reduce: bool = True, blocking: bool = False) -> Program:
    """The program of a schedule: its ops in their order, with the transfers that they need.

    A message takes its step when the op that makes it has ended, by the instance's costs with everything as soon as
    possible. So a receive stands behind the ops that start before its data exists and before those that start later.

    Parameters
    ----------
    reduce
        Also reduce the gradients of each stage right after the last W or fused backward of the stage.
    blocking
        For runtimes in which a transfer keeps both of its ranks until it has ended: among the safe orders of messages,
        take the one, of several tried, with the shortest step there.

    Raises
    ------
    ScheduleError
        The schedule does not fit the instance, or deadlocks.
    InstanceError
        The stages are no chain.
    """
    from bubbleproof.schedules.timeline import replay

    instance.placement.need_plain("a program, whose transfers name one stage,")
    line = replay(schedule, instance)
    found = list(_messages(schedule, instance))
    steps = _by_time(line, found)
    if blocking:
        from bubbleproof.schedules.lower_blocking import Message, place_messages

        timed = [Message(source, target, instance.costs.message(source[0], target[0])) for _, source, target in found]
        steps = place_messages(schedule, instance, timed, steps)
    reduced = _last_of_stage(schedule) if reduce else {}
    rows: list[list[Action]] = [[] for _ in schedule.orders]
    for step in steps:
        if isinstance(step, int):
            send, source, target = found[step]
            rows[source[0]].append(send)
            rows[target[0]].append(send.other_end)
        else:
            rank, position = step
            rows[rank].append(schedule.orders[rank][position])
            rows[rank].extend(Collective("REDUCE_GRAD", stage) for stage in reduced.get(step, ()))
    return Program.of(rows, schedule.name)


def _by_time(line: Timeline, messages: Sequence[tuple[Transfer, Place, Place]]) -> list[Place | int]:
    """Slots by their start and messages by the end of what makes them: slots by place, messages by number."""
    orders = line.schedule.orders
    arriving: dict[Place, int] = {}
    leaving: dict[Place, list[int]] = {}
    for number, (_, source, target) in enumerate(messages):
        arriving[target] = arriving.get(target, 0) + 1
        leaving.setdefault(source, []).append(number)
    steps: list[Place | int] = []
    at = [0] * len(orders)
    # (time, 0 for a message or 1 for a slot, rank, number): of equal times messages first, so that calls are posted
    # before a slot that would delay them; a slot enters when all that it needs has left
    heap: list[tuple[int, int, int, int, int]] = []
    entered = count()

    def enter(rank: int) -> None:
        position = at[rank]
        if position < len(orders[rank]) and not arriving.get((rank, position)):
            heapq.heappush(heap, (line.starts[rank][position], 1, rank, next(entered), position))

    for rank in range(len(orders)):
        enter(rank)
    while heap:
        _, is_slot, rank, _, number = heapq.heappop(heap)
        if not is_slot:
            target = messages[number][2]
            steps.append(number)
            arriving[target] -= 1
            if target[1] == at[target[0]]:
                enter(target[0])
            continue
        steps.append((rank, number))
        for message in leaving.get((rank, number), ()):
            heapq.heappush(heap, (line.ends[rank][number], 0, rank, next(entered), message))
        at[rank] += 1
        enter(rank)
    return steps


def _messages(schedule: Schedule, instance: Instance) -> list[tuple[Transfer, Place, Place]]:
    """(send, place of the slot that makes it, place of the slot that uses it) of every message between two ranks."""
    places = {op: (rank, position) for rank, position, op in schedule.ops()}
    found = []
    for op, source in places.items():
        users: tuple[Op, ...] = ()
        if op.kind == "F":
            send, users = Transfer("SEND_F", op.stage, op.microbatch), (Op("F", op.stage + 1, op.microbatch),)
        elif op.kind in BACKWARDS:
            send = Transfer("SEND_B", op.stage, op.microbatch)
            users = tuple(Op(kind, op.stage - 1, op.microbatch) for kind in BACKWARDS)
        for user in users:
            target = places.get(user)
            if target is not None and target[0] != source[0]:
                found.append((send, source, target))
    return found


def _last_of_stage(schedule: Schedule) -> dict[tuple[int, int], list[int]]:
    """For each place of a last W or fused backward of a stage on a rank, the stages of which it is."""
    last: dict[tuple[int, int], int] = {}
    for rank, position, op in schedule.ops():
        if op.kind in ("W", "BW"):
            last[rank, op.stage] = position
    found: dict[tuple[int, int], list[int]] = {}
    for (rank, stage), position in last.items():
        found.setdefault((rank, position), []).append(stage)
    return found
