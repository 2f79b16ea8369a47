"""Streams of instructions: what DeepSpeed's pipeline engine executes on each rank.

Text form, which is also what DeepSpeed prints: ``ForwardPass(buffer_id=0)``, ``ReduceGrads()``. An instruction names a
buffer of its rank, never a microbatch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias, get_args

from bubbleproof.schedules.errors import ScheduleError

__all__ = ["BUFFER_NAMES", "NAMES", "SPLIT_NAMES", "Instruction", "InstructionName", "Streams", "parse_instruction"]

BufferName: TypeAlias = Literal[
    "LoadMicroBatch",
    "ForwardPass",
    "BackwardPass",
    "BackwardInput",
    "BackwardWeight",
    "SendActivation",
    "RecvActivation",
    "SendGrad",
    "RecvGrad",
]
StepName: TypeAlias = Literal["ReduceTiedGrads", "ReduceGrads", "OptimizerStep"]
InstructionName: TypeAlias = BufferName | StepName

BUFFER_NAMES: tuple[BufferName, ...] = get_args(BufferName)
NAMES: tuple[InstructionName, ...] = (*BUFFER_NAMES, *get_args(StepName))
SPLIT_NAMES: tuple[BufferName, ...] = ("BackwardInput", "BackwardWeight")
"""The two halves of a backward, which bubbleproof adds; DeepSpeed's own engine has only BackwardPass."""


class Instruction(NamedTuple):
    """One instruction of one rank, with the buffer it works on if it works on one."""

    name: InstructionName
    buffer: int | None = None

    def __str__(self) -> str:
        return f"{self.name}()" if self.buffer is None else f"{self.name}(buffer_id={self.buffer})"


# [0-9], not \d: \d accepts digits of every script, and int() would read them
_INSTRUCTION = re.compile(r"([A-Za-z0-9]{1,40})\((?:buffer_id=([0-9]{1,9}))?\)")


def parse_instruction(text: str) -> Instruction:
    """Read the text form of an instruction.

    Raises
    ------
    ScheduleError
        The whole text is none; the message says whether the name or the buffer is the reason.
    """
    match = _INSTRUCTION.fullmatch(text.strip())
    if match is None:
        raise ScheduleError(f"{text[:60]!r} is no instruction; one is like ForwardPass(buffer_id=0) or ReduceGrads()")
    name, buffer = match.groups()
    if name not in NAMES:
        raise ScheduleError(f"{text[:60]!r}: no instruction {name}; there are {', '.join(NAMES)}")
    if (name in BUFFER_NAMES) != (buffer is not None):
        wants = "a buffer, like" if name in BUFFER_NAMES else "no buffer, like"
        shown = f"{name}(buffer_id=0)" if name in BUFFER_NAMES else f"{name}()"
        raise ScheduleError(f"{text[:60]!r}: {name} has {wants} {shown}")
    return Instruction(name, None if buffer is None else int(buffer))


@dataclass(frozen=True)
class Streams:
    """What each rank of a linear pipeline executes in one training step.

    Parameters
    ----------
    rows
        ``rows[r]`` is the stream of rank r, which holds stage r.
    microbatches
        Number of microbatches of the step.
    buffers
        Number of pipeline buffers that each rank reserves.
    name
        Where the streams come from, for people.
    """

    rows: tuple[tuple[Instruction, ...], ...]
    microbatches: int
    buffers: tuple[int, ...]
    name: str = field(default="", compare=False)

    @classmethod
    def of(
        cls, rows: Iterable[Iterable[Instruction]], microbatches: int, buffers: Iterable[int] = (), name: str = ""
    ) -> Streams:
        """Streams from any iterables; without `buffers` as many of each rank as its instructions name, at least 1."""
        made = tuple(tuple(row) for row in rows)
        counts = tuple(buffers) or tuple(1 + max((one.buffer or 0 for one in row), default=0) for row in made)
        return cls(made, microbatches, counts, name)

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.rows)

    @property
    def split(self) -> bool:
        """Whether some backward is split in its two halves."""
        return any(one.name in SPLIT_NAMES for row in self.rows for one in row)

    def __str__(self) -> str:
        return "\n".join(" ".join(map(str, row)) for row in self.rows)
