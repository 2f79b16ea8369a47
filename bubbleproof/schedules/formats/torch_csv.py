"""PyTorch's compute-only schedule CSV: one line per rank, one action per cell.

PyTorch writes F forward, I gradient of the input, W gradient of the weights and B for both in one; here these are F,
B, W and BW. An overlapped pair is ``(0F7;7B3)OVERLAP_F_B``. An empty cell means idle and carries no time. The text has
been the same since torch 2.6, pairs since 2.9 (source of torch.distributed.pipelining.schedules, torch 2.13).

PyTorch's own reader matches only the beginning of a cell and so accepts ``2F0garbage`` or ``0F0.5``. This one matches
the whole cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.formats.files import MIB, read_text
from bubbleproof.schedules.op import BACKWARDS, Kind, Op, Overlap, Slot
from bubbleproof.schedules.schedule import Schedule

if TYPE_CHECKING:
    from bubbleproof.schedules.instance import Instance
    from bubbleproof.schedules.timeline import Timeline

__all__ = ["MAX_BYTES", "dumps", "load", "loads", "write"]

MAX_BYTES = 64 * MIB
"""Largest file that is read; three million actions fit."""

_OURS: dict[str, Kind] = {"F": "F", "I": "B", "W": "W", "B": "BW"}
_TORCH: dict[Kind, str] = {ours: torch for torch, ours in _OURS.items()}

# [0-9], not \d: PyTorch's reader accepts digits of every script, and so would int()
_ACTION = re.compile(r"([0-9]{1,9})([FIWB])([0-9]{1,9})")
_BEFORE_2_6 = re.compile(r"[0-9]+BW[0-9]+")
_WITHOUT_MICROBATCH = re.compile(r"[0-9]+[FIWB]")
_COMMUNICATION = re.compile(r"[0-9]+(SEND_F|RECV_F|SEND_B|RECV_B|UNSHARD|RESHARD|REDUCE_GRAD)[0-9]*")
_LOWER_CASE = re.compile(r"[0-9]+[fiwb]w?[0-9]+")


def load(path: Path) -> Schedule:
    """Read a compute-only CSV.

    Raises
    ------
    FormatError
        One line that names the file, the line and the cell (both from 1), and the text there.
    """
    return loads(read_text(path, MAX_BYTES), str(path))


def loads(text: str, where: str = "schedule.csv") -> Schedule:
    """Read the text of a compute-only CSV; `where` begins every error message."""
    return Schedule.of([_row(line, place) for line, place in lines(text, where)])


def lines(text: str, where: str) -> Iterator[tuple[str, str]]:
    """The lines of a CSV, each with its place for messages; every line is a rank.

    Raises
    ------
    FormatError
        The text is empty, begins with a byte order mark, or has a blank line.
    """
    if text.startswith("\ufeff"):
        raise FormatError(f"{where}: line 1, cell 1: byte order mark; save the file as UTF-8 without one")
    if not text:
        raise FormatError(f"{where}: the file is empty")
    found = text.split("\n")
    if found[-1] == "":
        found.pop()  # the newline that ends the last line
    for number, line in enumerate(found, 1):
        if not line.strip(" \t\r"):
            raise FormatError(
                f"{where}: line {number}: blank line; PyTorch counts every line as a rank, so there is none to skip"
            )
        yield line.removesuffix("\r"), f"{where}: line {number}"


def _row(line: str, where: str) -> list[Slot]:
    row = []
    for number, cell in enumerate(line.split(","), 1):
        text = cell.strip(" \t")
        if text:
            row.append(read_slot(text, f"{where}, cell {number}: {shown(text)}"))
    if not row:
        raise FormatError(f"{where}: only empty cells; a rank cannot be idle for the whole step")
    return row


def shown(text: str) -> str:
    """The text of a cell for a message, cut short."""
    return ascii(text if len(text) <= 40 else text[:39] + "~")


def read_slot(text: str, where: str) -> Slot:
    """Read a cell that holds an op or a pair; `where` begins every error message."""
    if not text.startswith("("):
        return _action(text, where)
    inner, closed, kind = text[1:].partition(")")
    if not closed or kind != "OVERLAP_F_B":
        raise FormatError(f"{where}: a group of actions ends with )OVERLAP_F_B")
    parts = inner.split(";")
    if len(parts) != 2:
        raise FormatError(f"{where}: a pair has two actions, a forward and a backward, like (0F7;3B5)OVERLAP_F_B")
    forward, backward = (_action(part.strip(" \t"), where) for part in parts)
    if forward.kind != "F" or backward.kind not in BACKWARDS:
        raise FormatError(
            f"{where}: a pair is a forward (F) followed by a backward (B or I), like (0F7;3B5)OVERLAP_F_B"
        )
    return Overlap(forward, backward)


def _action(text: str, where: str) -> Op:
    match = _ACTION.fullmatch(text)
    if match is None:
        _explain(text, where)
    stage, kind, microbatch = match.groups()
    return Op(_OURS[kind], int(stage), int(microbatch))


def _explain(text: str, where: str) -> NoReturn:
    """Say what is wrong with a cell that is no action."""
    known = "an action is stage, kind (F, I, W or B), microbatch, like 2F0"
    prefix = _ACTION.match(text)
    if _BEFORE_2_6.fullmatch(text):
        why = (
            "BW comes from files written before torch 2.6, in which B was the gradient of the input only; "
            "rename every B to I and every BW to B"
        )
    elif _COMMUNICATION.fullmatch(text):
        why = "communication and sharding actions do not belong in a compute-only file; PyTorch adds them itself"
    elif text.startswith("#"):
        why = "the format has no comments"
    elif not text:
        why = f"an action is missing; {known}"
    elif '"' in text or "'" in text:
        why = "cells are written without quotes"
    elif not text.isascii():
        odd = next(char for char in text if ord(char) > 127)
        why = f"the character U+{ord(odd):04X} is no digit 0 … 9; {known}"
    elif _LOWER_CASE.fullmatch(text):
        why = "kinds are upper-case letters"
    elif _WITHOUT_MICROBATCH.fullmatch(text):
        why = f"the microbatch is missing; {known}"
    elif prefix:
        rest = shown(text[prefix.end() :])
        why = f"{rest} follows the action {prefix[0]} (PyTorch would skip it without a word)"
    else:
        why = known
    raise FormatError(f"{where}: {why}")


def dumps(schedule: Schedule, instance: Instance) -> str:
    """The text of a compute-only CSV, with line feeds and without idle cells; `loads` gives the same orders back.

    Raises
    ------
    FormatError
        PyTorch cannot run the schedule: a stage on two ranks, a rank without ops, or forwards of the last stage that
        are not in microbatch order (PyTorch assigns losses by position, and then trains on wrong gradients silently).
    """
    refuse_what_torch_cannot_run(schedule, instance)
    return "".join(",".join(map(cell_text, order)) + "\n" for order in schedule.orders)


def refuse_what_torch_cannot_run(schedule: Schedule, instance: Instance) -> None:
    """Refuse to write what PyTorch would not load, or would run with wrong gradients."""
    instance.placement.need_plain("PyTorch's CSV")
    if len(instance.placement.routes) > 1:
        raise FormatError(
            "PyTorch's CSV has one rank for each stage; a bidirectional placement has two for each. "
            f"Nearest: a vee on {instance.ranks} ranks"
        )
    if schedule.ranks != instance.ranks:
        raise FormatError(f"the schedule has {schedule.ranks} ranks, its instance {instance.ranks}")
    last = -1
    for rank, _, op in schedule.ops():
        if op.kind == "R":
            raise FormatError(
                f"rank {rank} runs {op}: PyTorch's schedules have no recompute of single ops; a module that recomputes "
                "(activation checkpointing) does so in every backward, which belongs into the costs of B, W and BW"
            )
        if op.kind == "F" and op.stage == instance.stages - 1:
            if op.microbatch < last and instance.stages > 1:
                raise FormatError(
                    f"rank {rank} runs {op} after {op.stage}F{last}: PyTorch assigns losses to the forwards of the "
                    "last stage by position, so they must be in microbatch order"
                )
            last = op.microbatch
    for rank, order in enumerate(schedule.orders):
        if not order:
            raise FormatError(f"rank {rank} runs nothing; PyTorch refuses an empty line")


def cell_text(slot: Slot) -> str:
    """A slot in PyTorch's letters."""
    if isinstance(slot, Overlap):
        return f"({cell_text(slot.forward)};{cell_text(slot.backward)})OVERLAP_F_B"
    return f"{slot.stage}{_TORCH[slot.kind]}{slot.microbatch}"


def write(timeline: Timeline) -> str:
    """The order of a timeline as a compute-only CSV; the times are not part of the format."""
    return dumps(timeline.schedule, timeline.instance)
