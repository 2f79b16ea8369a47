"""Showing a fault: the wait cycle in words, and the grid of the schedule with its cells marked."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

from bubbleproof.schedules.op import Slot
from bubbleproof.schedules.program import Program
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.verify.case import Need
from bubbleproof.verify.report import Violation

__all__ = ["cycle_words", "grid", "picture"]

_MARGIN = 2
_WIDE = 24


def cycle_words(waits: Sequence[Need]) -> str:
    """A wait cycle as one sentence."""
    parts = []
    for index, wait in enumerate(waits):
        before = waits[index - 1]
        who, place = f"rank {wait.at.rank}", f"position {wait.at.position}"
        if index > 0:
            who = "which"
            if wait.at.position < before.source.position:
                place += f", before {before.needs} at position {before.source.position}"
        parts.append(f"{who} waits at {wait.op} ({place}) for {wait.needs} of rank {wait.source.rank}")
    first, last = waits[0], waits[-1]
    if first.at.position < last.source.position:
        parts.append(f"which comes after {first.op} (position {last.source.position})")
    else:
        parts.append(f"which is in the slot of {first.op}")
    return ", ".join(parts)


def grid(schedule: Schedule, marked: Collection[tuple[int, int]], *, around_marked: bool = False) -> str:
    """The orders as text, one line per rank and one column per position, the marked cells in brackets.

    Columns are positions, not times, so there is no idle space in it.

    Parameters
    ----------
    marked
        (rank, position) of each cell to mark.
    around_marked
        Leave out the columns that are far from every marked cell; "…" stands for what is left out.
    """
    cells = set(marked)
    width = max(map(len, schedule.orders), default=0)
    shown: list[int] = list(range(width))
    if around_marked:
        shown = sorted(
            {near for _, p in cells for near in range(max(0, p - _MARGIN), min(width, p + _MARGIN + 1))},
        )
    columns: list[list[str]] = [["", *(f"rank {rank}" for rank in range(schedule.ranks))]]
    previous = -1
    for position in shown:
        if position > previous + 1:
            columns.append(["…"] * (schedule.ranks + 1))
        column = [f" {position} "]
        for rank, order in enumerate(schedule.orders):
            text = str(order[position]) if position < len(order) else ""
            column.append(f"[{text}]" if (rank, position) in cells else f" {text} ")
        columns.append(column)
        previous = position
    if previous + 1 < width:
        columns.append(["…"] * (schedule.ranks + 1))
    widths = [max(map(len, column)) for column in columns]
    lines = []
    for row in range(schedule.ranks + 1):
        line = " ".join(column[row].ljust(size) for column, size in zip(columns, widths, strict=True))
        lines.append(line.rstrip())
    return "\n".join(lines)


def picture(made: Schedule | Program, violations: Sequence[Violation]) -> str:
    """The grid with every cell that a violation names in brackets; of wide ones the part around those cells."""
    marked = set()
    for violation in violations:
        if violation.rank is not None and violation.position is not None:
            marked.add((violation.rank, violation.position))
        for wait in (violation.witness or {}).get("waits", ()):
            marked.update(
                (wait[rank], wait[position])
                for rank, position in (
                    ("rank", "position"),
                    ("rank", "behind_position"),
                    ("needed_rank", "needed_position"),
                )
                if rank in wait and position in wait
            )
    rows = Schedule(cast("tuple[tuple[Slot, ...], ...]", made.rows)) if isinstance(made, Program) else made
    wide = max(map(len, rows.orders), default=0) > _WIDE
    return grid(rows, marked, around_marked=wide and bool(marked))
