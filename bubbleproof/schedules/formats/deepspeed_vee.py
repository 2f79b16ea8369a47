"""DeepSpeed's engine for vees (DualPipeV): rank r holds stage r, its phase 0, and stage 2p − 1 − r, its phase 1.

The buffer of item k of the data is k in phase 0 and m + k in phase 1, on every rank; the engine counts on that. Sends
and receives are queued; CommitP2P starts what is queued and waits for it. What is written here commits each of them
alone: then a transfer blocks both of its ranks, and the order of `lower` is safe (docs/semantics.md, theorem 8).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from bubbleproof.schedules.formats.deepspeed import END, OF_OP, OF_TRANSFER, action_of
from bubbleproof.schedules.instructions import Instruction, Streams
from bubbleproof.schedules.op import Op
from bubbleproof.schedules.program import Action, Program, Transfer

if TYPE_CHECKING:
    from bubbleproof.schedules.instance import Instance

__all__ = ["program_of_vee", "streams_of_vee"]


def streams_of_vee(program: Program, instance: Instance) -> Streams:
    """The instructions of a program on a vee; items of the data are numbered as the first stage takes them."""
    order = [op.microbatch for op in program.rows[0] if isinstance(op, Op) and (op.kind, op.stage) == ("F", 0)]
    item = {microbatch: number for number, microbatch in enumerate(order)}
    m = instance.microbatches
    rows = [
        [*(one for action in row for one in _instructions(action, item, program.ranks, m)), *map(Instruction, END)]
        for row in program.rows
    ]
    return Streams.of(rows, m, [2 * m] * program.ranks, program.name)


def _instructions(action: Action, item: Mapping[int, int], ranks: int, m: int) -> Iterator[Instruction]:
    if not isinstance(action, Op | Transfer):
        return
    phase = int(action.stage >= ranks)
    buffer = phase * m + item[action.microbatch]
    if isinstance(action, Transfer):
        yield Instruction(OF_TRANSFER[action.kind], buffer, phase)
        yield Instruction("CommitP2P")
        return
    if (action.kind, action.stage) == ("F", 0):
        yield Instruction("LoadMicroBatch", buffer)
    yield Instruction(OF_OP[action.kind], buffer, phase)


def program_of_vee(streams: Streams) -> Program:
    """The program that streams for a vee mean: microbatches by their buffers, transfers where they are committed.

    A transfer that is never committed is never started, and left out.
    """
    rows = []
    for rank, row in enumerate(streams.rows):
        made: list[Action] = []
        queued: list[Action] = []
        for name, buffer, phase in row:
            if name == "CommitP2P":
                made += queued
                queued = []
            if buffer is None or name == "LoadMicroBatch":
                continue
            stage = rank if phase != 1 else 2 * streams.ranks - 1 - rank
            action = action_of(name, stage, buffer - streams.microbatches if phase == 1 else buffer)
            (queued if isinstance(action, Transfer) else made).append(action)
        rows.append(made)
    return Program.of(rows, streams.name)
