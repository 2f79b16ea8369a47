"""Adding communication to a schedule.

The rows of the program are one order of the whole schedule, restricted to each rank, in which every message is a single
step: its send and its receive take their places on both ranks at that step. Under every channel model that serves calls
in the order of the rows, that order runs to the end (docs/semantics.md, theorem 8). ``even-odd`` reorders them.
"""

from __future__ import annotations

import heapq

from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import BACKWARDS, Op
from bubbleproof.schedules.program import Action, Collective, Program, Transfer
from bubbleproof.schedules.schedule import Schedule

__all__ = ["lower"]


def lower(schedule: Schedule, instance: Instance, *, reduce: bool = True) -> Program:
    """The program of a schedule: its ops in their order, with the transfers that they need.

    A message takes its step when the op that makes it has ended, by the instance's costs with everything as soon as
    possible. So a receive stands behind the ops that start before its data exists and before those that start later.

    Parameters
    ----------
    reduce
        Also reduce the gradients of each stage right after the last W or fused backward of the stage.

    Raises
    ------
    ScheduleError
        The schedule does not fit the instance, or deadlocks.
    """
    from bubbleproof.schedules.timeline import replay

    line = replay(schedule, instance)
    arriving: dict[tuple[int, int], int] = {}
    leaving: dict[tuple[int, int], list[tuple[Transfer, tuple[int, int]]]] = {}
    for send, source, target in _messages(schedule, instance):
        arriving[target] = arriving.get(target, 0) + 1
        leaving.setdefault(source, []).append((send, target))
    reduced = _last_of_stage(schedule) if reduce else {}
    rows: list[list[Action]] = [[] for _ in schedule.orders]
    at = [0] * len(rows)
    # (time, 0 for a message or 1 for a slot, rank, number): of equal times messages first, so that calls are posted
    # before a slot that would delay them; a slot enters when all that it needs has left
    heap: list[tuple[int, int, int, int]] = []
    travelling: list[tuple[Transfer, tuple[int, int]]] = []

    def enter(rank: int) -> None:
        position = at[rank]
        if position < len(schedule.orders[rank]) and not arriving.get((rank, position)):
            heapq.heappush(heap, (line.starts[rank][position], 1, rank, position))

    for rank in range(len(rows)):
        enter(rank)
    while heap:
        _, is_slot, rank, number = heapq.heappop(heap)
        if not is_slot:
            send, target = travelling[number]
            rows[rank].append(send)
            rows[target[0]].append(send.other_end)
            arriving[target] -= 1
            if target[1] == at[target[0]]:
                enter(target[0])
            continue
        rows[rank].append(schedule.orders[rank][number])
        rows[rank].extend(Collective("REDUCE_GRAD", stage) for stage in reduced.get((rank, number), ()))
        for send, target in leaving.get((rank, number), ()):
            heapq.heappush(heap, (line.ends[rank][number], 0, rank, len(travelling)))
            travelling.append((send, target))
        at[rank] += 1
        enter(rank)
    return Program.of(rows, schedule.name)


def _messages(schedule: Schedule, instance: Instance) -> list[tuple[Transfer, tuple[int, int], tuple[int, int]]]:
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
