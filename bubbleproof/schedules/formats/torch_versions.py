"""What each version of PyTorch understands of a schedule CSV (source of torch 2.8 to 2.14, release notes of 2.15)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.op import Op, Overlap
from bubbleproof.schedules.program import Collective, Program, Transfer

if TYPE_CHECKING:
    from bubbleproof.schedules.schedule import Schedule

__all__ = [
    "NEWEST",
    "OLDEST",
    "Version",
    "check",
    "check_channel",
    "oldest_for",
    "parse",
    "reduces",
    "with_final_reductions",
]


class Version(NamedTuple):
    """A release of PyTorch; patches do not matter here."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


OLDEST = Version(2, 8)
"""The oldest that is supported: before it, a batch of transfers could lose its handles on gloo."""

NEWEST = Version(2, 15)
"""The newest that these rules know; later ones are taken to be like it."""

_PAIRS = Version(2, 9)
_REDUCTIONS = Version(2, 10)
_CHANNELS = {"per-direction": Version(2, 14), "per-edge": Version(2, 15)}


def parse(text: str) -> Version:
    """Read a version such as ``2.13`` or ``2.13.0+cpu``.

    Raises
    ------
    FormatError
        It is none, or older than `OLDEST`.
    """
    match = re.fullmatch(r"([0-9]{1,4})\.([0-9]{1,4})([.+].{0,40})?", text)
    if match is None:
        raise FormatError(f"{text[:40]!r} is no version of PyTorch, such as 2.13")
    version = Version(int(match[1]), int(match[2]))
    if version < OLDEST:
        raise FormatError(f"PyTorch {version} is not supported; {OLDEST} is the oldest that is")
    return version


def reduces(version: Version) -> bool:
    """Whether gradients are scaled by REDUCE_GRAD in the file (from 2.10), not by the runtime at the end of a step."""
    return version >= _REDUCTIONS


def check(given: Schedule | Program, version: Version, *, scale_grads: bool = True) -> None:
    """Refuse a schedule or program that a version does not read, or runs with wrong gradients.

    Parameters
    ----------
    scale_grads
        The runtime's option of that name: gradients are divided by the number of microbatches.

    Raises
    ------
    FormatError
        It says what the version does not know, and what to do.
    """
    program = given if isinstance(given, Program) else Program.of(given.orders)
    actions = [action for row in program.rows for action in row]
    if version < _PAIRS and any(isinstance(action, Overlap) for action in actions):
        raise FormatError(
            f"PyTorch {version} has no overlapped pairs, they came with {_PAIRS}; nearest schedule: each pair as its "
            "forward followed by its backward"
        )
    if scale_grads and not reduces(version) and any(op.kind == "W" for _, _, op in program.schedule.ops()):
        raise FormatError(
            f"PyTorch {version} does not scale the gradients of split backwards (seen on 2.9.1): they are as many "
            "times too large as there are microbatches; take scale_grads=False and divide the loss, or fused backwards"
        )
    reducing = any(isinstance(action, Collective) and action.kind == "REDUCE_GRAD" for action in actions)
    if reducing and not reduces(version):
        raise FormatError(
            f"PyTorch {version} does not read REDUCE_GRAD, which came with {_REDUCTIONS}; it scales gradients at the "
            "end of a step: leave REDUCE_GRAD out"
        )
    if scale_grads and not reducing and reduces(version) and any(isinstance(action, Transfer) for action in actions):
        raise FormatError(
            f"PyTorch {version} scales gradients in REDUCE_GRAD, and this file has none: gradients would be as many "
            f"times too large as there are microbatches; such files are for {_PAIRS} and before"
        )


def oldest_for(schedule: Schedule, *, scale_grads: bool = True) -> Version:
    """The oldest supported version that runs a compute-only schedule as it is meant."""
    slots = [slot for _, _, slot in schedule.slots()]
    if scale_grads and any(isinstance(slot, Op) and slot.kind == "W" for slot in slots):
        return _REDUCTIONS
    return _PAIRS if any(isinstance(slot, Overlap) for slot in slots) else OLDEST


def check_channel(channel: str, version: Version) -> None:
    """Refuse a channel model that a version's runtime cannot provide.

    Raises
    ------
    FormatError
        The version has no such communicators.
    """
    oldest = _CHANNELS.get(channel, OLDEST)
    if version < oldest:
        raise FormatError(f"PyTorch {version} has no communicators {channel}; they came with {oldest}, as an option")


def with_final_reductions(program: Program) -> Program:
    """What a version before REDUCE_GRAD does with a program: a rank scales the gradients of its stages at the end."""
    rows = []
    for row in program.schedule.orders:
        stages = sorted({part.stage for slot in row for part in (slot if isinstance(slot, Overlap) else (slot,))})
        rows.append([Collective("REDUCE_GRAD", stage) for stage in stages])
    return Program.of([[*row, *more] for row, more in zip(program.rows, rows, strict=True)], program.name)
