"""Ops: the forward, the two halves of the backward, recompute, and overlapped pairs of a forward and a backward.

Text form: ``2F0`` is the forward of stage 2, microbatch 0; ``2B0`` its input gradient; ``2W0`` its weight gradient;
``2BW0`` both in one; ``2R0`` the second forward of a microbatch of which only a stash was kept;
``(0F7;3BW5)`` the forward of stage 0, microbatch 7 overlapped with a fused backward.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, TypeAlias

from bubbleproof.schedules.errors import ScheduleError

__all__ = ["BACKWARDS", "KINDS", "Kind", "Op", "Overlap", "Slot", "members", "parse_slot"]

Kind: TypeAlias = Literal["F", "B", "W", "BW", "R"]
"""F forward, B gradient of the input, W gradient of the weights, BW both fused into one op, R recompute."""

KINDS: tuple[Kind, ...] = ("F", "B", "W", "BW", "R")
BACKWARDS: tuple[Kind, ...] = ("B", "BW")
"""The kinds whose end makes the gradient of the stage's input available."""


class Op(NamedTuple):
    """One op of one stage and one microbatch."""

    kind: Kind
    stage: int
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"


class Overlap(NamedTuple):
    """A forward and a backward of two different microbatches that run as one op with its own cost.

    Both members start together, when the inputs of both are there, and both end together.
    """

    forward: Op
    backward: Op

    def __str__(self) -> str:
        return f"({self.forward};{self.backward})"


Slot: TypeAlias = Op | Overlap
"""What occupies a rank at one position of its order."""


def members(slot: object) -> tuple[Op, ...]:
    """The ops of a slot: the op itself, or the forward and the backward of a pair; none of any other action."""
    if isinstance(slot, Op):
        return (slot,)
    return (slot.forward, slot.backward) if isinstance(slot, Overlap) else ()


# [0-9], not \d: \d accepts digits of every script, and int() would read them
_OP = re.compile(r"([0-9]{1,9})(F|BW|B|W|R)([0-9]{1,9})")


def _parse_op(text: str) -> Op:
    match = _OP.fullmatch(text)
    if match is None:
        raise ScheduleError(f"{text[:40]!r} is no op; an op is stage, kind, microbatch: 2F0, 2B0, 2W0, 2BW0 or 2R0")
    stage, kind, microbatch = match.groups()
    return Op(kind, int(stage), int(microbatch))  # type: ignore[arg-type]  # the pattern admits only kinds


def parse_slot(text: str) -> Slot:
    """Read the text form of an op or of an overlapped pair.

    Raises
    ------
    ScheduleError
        The whole text is not an op or a pair of a forward and a backward.
    """
    if not (text.startswith("(") and text.endswith(")")):
        return _parse_op(text)
    parts = text[1:-1].split(";")
    if len(parts) != 2:
        raise ScheduleError(f"{text[:60]!r}: a pair holds two ops separated by ';', like (0F7;3BW5)")
    forward, backward = (_parse_op(part) for part in parts)
    if forward.kind != "F" or backward.kind not in BACKWARDS:
        raise ScheduleError(f"{text[:60]!r}: a pair is a forward followed by a backward, like (0F7;3BW5)")
    return Overlap(forward, backward)
