"""Schedules as JSON files, with their instance inside: the project's own format.

Canonical: keys sorted, no blanks, one line. The same schedule, instance, times and record always give the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bubbleproof.schedules.costs import MAX_MAGNITUDE
from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.formats.document import InstanceDocument, instance_document, instance_of
from bubbleproof.schedules.formats.envelope import parse_rows, read_document
from bubbleproof.schedules.formats.files import MIB, read_text, write_atomic
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import parse_slot
from bubbleproof.schedules.schedule import Schedule

if TYPE_CHECKING:
    from bubbleproof.schedules.timeline import Timeline

__all__ = ["MAX_BYTES", "SCHEDULE_FORMAT", "Document", "ScheduleDocument", "dumps", "load", "loads", "save", "write"]

SCHEDULE_FORMAT = "bubbleproof-schedule/1"

MAX_BYTES = 256 * MIB
"""Largest schedule file that is read; three million ops with their times fit."""


class ScheduleDocument(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The order of each rank; the instance it belongs to; times it claims, and the record of the solve, if any."""

    format: str
    instance: InstanceDocument
    orders: list[list[str]]
    name: str = ""
    starts: list[list[int]] | None = None
    record: dict[str, Any] | None = None


@dataclass(frozen=True)
class Document:
    """What a schedule file holds.

    Parameters
    ----------
    starts
        The times that the file claims: for each rank the start of each slot, in the instance's time unit. None if it
        claims none; the times are then those of a replay.
    record
        How the schedule was found, as the solver wrote it. Nothing here relies on it.
    """

    schedule: Schedule
    instance: Instance
    starts: tuple[tuple[int, ...], ...] | None = None
    record: dict[str, Any] | None = None


def load(path: Path) -> Document:
    """Read a schedule file.

    Raises
    ------
    FormatError, InstanceError, ScheduleError
        One line that names the file, the place and the value.
    """
    return loads(read_text(path, MAX_BYTES), str(path))


def loads(text: str, where: str = "schedule") -> Document:
    """Read a schedule from JSON text; `where` begins every error message."""
    document = read_document(text, where, SCHEDULE_FORMAT, ScheduleDocument)
    instance = instance_of(document.instance, f"{where}: instance")
    _check_record(document.record, where)
    schedule = Schedule.of(parse_rows(document.orders, parse_slot, f"{where}: orders"), document.name)
    return Document(schedule, instance, _starts(document, where), document.record)


def _check_record(record: dict[str, Any] | None, where: str) -> None:
    """Refuse what could be read and never be written again: such as half characters."""
    try:
        msgspec.json.encode(record)
    except ValueError as error:
        raise FormatError(f"{where}: record: {error}") from error


def _starts(document: ScheduleDocument, where: str) -> tuple[tuple[int, ...], ...] | None:
    starts, orders = document.starts, document.orders
    if starts is None:
        return None
    if len(starts) != len(orders):
        raise FormatError(f"{where}: starts has {len(starts)} rows for {len(orders)} ranks")
    for rank, (row, order) in enumerate(zip(starts, orders, strict=True)):
        if len(row) != len(order):
            raise FormatError(f"{where}: starts[{rank}] has {len(row)} entries for {len(order)} slots")
        for position, start in enumerate(row):
            # replays of a million microbatches at the largest cost stay inside
            if not 0 <= start <= MAX_MAGNITUDE * 10**7:
                raise FormatError(
                    f"{where}: starts[{rank}][{position}] = {start} is outside 0 … {MAX_MAGNITUDE * 10**7}"
                )
    return tuple(map(tuple, starts))


def dumps(document: Document) -> str:
    """A schedule as canonical JSON text; `loads` gives an equal document back."""
    built = ScheduleDocument(
        format=SCHEDULE_FORMAT,
        instance=instance_document(document.instance),
        orders=[[str(slot) for slot in order] for order in document.schedule.orders],
        name=document.schedule.name,
        starts=None if document.starts is None else [list(row) for row in document.starts],
        record=document.record,
    )
    return msgspec.json.encode(built, order="sorted").decode() + "\n"


def save(path: Path, document: Document) -> None:
    """Write a schedule file, atomically: at every moment the old or the whole new file is there."""
    write_atomic(path, dumps(document))


def write(timeline: Timeline) -> str:
    """A timeline as a schedule file that claims its times."""
    return dumps(Document(timeline.schedule, timeline.instance, timeline.starts))
