"""PyTorch's schedule CSV with communication (its format ``compute_comms``): one line per rank, one action per cell.

To the ops of the compute-only file come ``3SEND_F1``, ``4RECV_F1``, ``4SEND_B1``, ``3RECV_B1`` (the stage named
performs the transfer) and ``3UNSHARD``, ``3RESHARD``, ``3REDUCE_GRAD``, which have no microbatch. PyTorch takes the
rows literally; empty cells are refused. The same reader serves rows with collectives and without transfers, a form that
PyTorch makes in between and never loads. REDUCE_GRAD exists since torch 2.10 (source of
torch.distributed.pipelining.schedules, torch 2.13).

PyTorch's own reader matches only the beginning of a cell: a missing comma hides an action without a word. This one
matches the whole cell.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from bubbleproof.schedules.errors import FormatError, ScheduleError
from bubbleproof.schedules.formats import torch_csv
from bubbleproof.schedules.formats.files import read_text
from bubbleproof.schedules.op import Op, Overlap
from bubbleproof.schedules.program import Action, Program, parse_action

if TYPE_CHECKING:
    from bubbleproof.schedules.instance import Instance
    from bubbleproof.schedules.timeline import Timeline

__all__ = ["MAX_BYTES", "cell_text", "dumps", "load", "loads", "write"]

MAX_BYTES = 4 * torch_csv.MAX_BYTES
"""Largest file that is read; transfers have longer names and are as many again as ops."""

_COMMUNICATION = re.compile(r"[0-9]+(SEND_F|RECV_F|SEND_B|RECV_B|UNSHARD|RESHARD|REDUCE_GRAD)(.*)", re.DOTALL)


def load(path: Path) -> Program:
    """Read a file with communication.

    Raises
    ------
    FormatError
        One line that names the file, the line and the cell (both from 1), and the text there.
    """
    return loads(read_text(path, MAX_BYTES), str(path))


def loads(text: str, where: str = "schedule.csv") -> Program:
    """Read the text of a file with communication; `where` begins every error message."""
    return Program.of([_row(line, place) for line, place in torch_csv.lines(text, where)])


def _row(line: str, where: str) -> list[Action]:
    row: list[Action] = []
    for number, cell in enumerate(line.split(","), 1):
        text = cell.strip(" \t")
        if not text:
            raise FormatError(f"{where}, cell {number}: an empty cell; PyTorch refuses it in a file with communication")
        row.append(_action(text, f"{where}, cell {number}: {torch_csv.shown(text)}"))
    return row


def _action(text: str, where: str) -> Action:
    match = _COMMUNICATION.match(text)
    if match is None:
        return torch_csv.read_slot(text, where)
    try:
        return parse_action(text)
    except ScheduleError:
        pass
    kind, rest = match.groups()
    if kind in ("UNSHARD", "RESHARD", "REDUCE_GRAD"):
        why = f"{kind} is of a whole stage and has no microbatch, like 3{kind}"
    elif not rest:
        why = f"the microbatch is missing; a transfer is stage, kind, microbatch, like 3{kind}1"
    else:
        why = f"a transfer is stage, kind, microbatch, like 3{kind}1, and nothing else"
    if " " in rest or "\t" in rest:
        why += "; is a comma missing? PyTorch would skip what follows the blank"
    raise FormatError(f"{where}: {why}")


def dumps(program: Program, instance: Instance) -> str:
    """The text of a file with communication, with line feeds; `loads` gives the same program back.

    Raises
    ------
    FormatError
        PyTorch cannot run the program: a stage on two ranks, an empty row, or forwards of the last stage that are not
        in microbatch order.
    """
    torch_csv.refuse_what_torch_cannot_run(program.schedule, instance)
    return "".join(",".join(map(cell_text, row)) + "\n" for row in program.rows)


def cell_text(action: Action) -> str:
    """An action in PyTorch's letters."""
    return torch_csv.cell_text(action) if isinstance(action, Op | Overlap) else str(action)


def write(timeline: Timeline) -> str:
    """The order of a timeline with its communication added; the times decide only where receives stand."""
    from bubbleproof.schedules.lower import lower

    return dumps(lower(timeline.schedule, timeline.instance), timeline.instance)
