"""Streams of instructions: what DeepSpeed's pipeline engines execute on each rank.

Text form, which is also what DeepSpeed prints: ``ForwardPass(buffer_id=0)``, ``ReduceGrads()``. An instruction names a
buffer of its rank, never a microbatch; in its engine for vees also one of the two stages of the rank:
``ForwardPass(buffer_id=7, phase=1)``.
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
StepName: TypeAlias = Literal["CommitP2P", "ReduceTiedGrads", "ReduceGrads", "OptimizerStep"]
InstructionName: TypeAlias = BufferName | StepName

BUFFER_NAMES: tuple[BufferName, ...] = get_args(BufferName)
NAMES: tuple[InstructionName, ...] = (*BUFFER_NAMES, *get_args(StepName))
SPLIT_NAMES: tuple[BufferName, ...] = ("BackwardInput", "BackwardWeight")
"""The two halves of a backward, which bubbleproof adds; DeepSpeed's own engine has only BackwardPass."""


class Instruction(NamedTuple):
    """One instruction of one rank, with the buffer it works on if there is one, and its phase where there are two."""

    name: InstructionName
    buffer: int | None = None
    phase: int | None = None

    def __str__(self) -> str:
        phase = "" if self.phase is None else f", phase={self.phase}"
        return f"{self.name}()" if self.buffer is None else f"{self.name}(buffer_id={self.buffer}{phase})"


# [0-9], not \d: \d accepts digits of every script, and int() would read them
_INSTRUCTION = re.compile(r"([A-Za-z0-9]{1,40})\((?:buffer_id=([0-9]{1,9})(?:, ?phase=([01]))?)?\)")


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
    name, buffer, phase = match.groups()
    if name not in NAMES:
        raise ScheduleError(f"{text[:60]!r}: no instruction {name}; there are {', '.join(NAMES)}")
    if (name in BUFFER_NAMES) != (buffer is not None):
        wants = "a buffer, like" if name in BUFFER_NAMES else "no buffer, like"
        shown = f"{name}(buffer_id=0)" if name in BUFFER_NAMES else f"{name}()"
        raise ScheduleError(f"{text[:60]!r}: {name} has {wants} {shown}")
    return Instruction(name, None if buffer is None else int(buffer), None if phase is None else int(phase))


@dataclass(frozen=True)
class Streams:
    """What each rank of a pipeline executes in one training step.

    Parameters
    ----------
    rows
        ``rows[r]`` is the stream of rank r, which holds stage r; in a vee also stage 2p − 1 − r, its phase 1.
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

    @property
    def vee(self) -> bool:
        """Whether they are for DeepSpeed's engine for vees, with two stages on each rank."""
        return any(one.phase is not None or one.name == "CommitP2P" for row in self.rows for one in row)

    def __str__(self) -> str:
        return "\n".join(" ".join(map(str, row)) for row in self.rows)
