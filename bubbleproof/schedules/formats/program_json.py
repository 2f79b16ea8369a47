"""Programs as JSON files, with their instance inside: canonical, like schedule files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bubbleproof.schedules.errors import FormatError, ScheduleError
from bubbleproof.schedules.formats.document import InstanceDocument, convert, instance_document, instance_of
from bubbleproof.schedules.formats.files import read_text, write_atomic
from bubbleproof.schedules.formats.schedule_json import MAX_BYTES, parse_json
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.program import Action, Program, parse_action

if TYPE_CHECKING:
    from bubbleproof.schedules.timeline import Timeline

__all__ = ["MAX_BYTES", "PROGRAM_FORMAT", "Document", "ProgramDocument", "dumps", "load", "loads", "save", "write"]

PROGRAM_FORMAT = "bubbleproof-program/1"


class ProgramDocument(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The row of each rank, and the instance that the program belongs to."""

    format: str
    instance: InstanceDocument
    rows: list[list[str]]
    name: str = ""


@dataclass(frozen=True)
class Document:
    """What a program file holds."""

    program: Program
    instance: Instance


def load(path: Path) -> Document:
    """Read a program file.

    Raises
    ------
    FormatError, InstanceError, ScheduleError
        One line that names the file, the place and the value.
    """
    return loads(read_text(path, MAX_BYTES), str(path))


def loads(text: str, where: str = "program") -> Document:
    """Read a program from JSON text; `where` begins every error message."""
    raw = parse_json(text, where)
    if not isinstance(raw, dict) or raw.get("format") != PROGRAM_FORMAT:
        found = raw.get("format") if isinstance(raw, dict) else None
        said = f"format is {str(found)[:40]!r}" if found is not None else "there is no format key"
        raise FormatError(f"{where}: no program file: {said}, expected {PROGRAM_FORMAT!r}")
    document = convert(raw, ProgramDocument, where)
    if not document.name.isprintable():
        raise FormatError(f"{where}: name = {document.name[:40]!r}: control characters are not allowed")
    instance = instance_of(document.instance, f"{where}: instance")
    return Document(Program.of(_rows(document.rows, where), document.name), instance)


def _rows(rows: list[list[str]], where: str) -> list[list[Action]]:
    found = []
    for rank, row in enumerate(rows):
        actions = []
        for position, text in enumerate(row):
            try:
                actions.append(parse_action(text))
            except ScheduleError as error:
                raise ScheduleError(f"{where}: rows[{rank}][{position}]: {error}") from error
        found.append(actions)
    return found


def dumps(document: Document) -> str:
    """A program as canonical JSON text; `loads` gives an equal document back."""
    built = ProgramDocument(
        format=PROGRAM_FORMAT,
        instance=instance_document(document.instance),
        rows=[[str(action) for action in row] for row in document.program.rows],
        name=document.program.name,
    )
    return msgspec.json.encode(built, order="sorted").decode() + "\n"


def write(timeline: Timeline) -> str:
    """The order of a timeline with its communication added, and the instance."""
    from bubbleproof.schedules.lower import lower

    return dumps(Document(lower(timeline.schedule, timeline.instance), timeline.instance))


def save(path: Path, document: Document) -> None:
    """Write a program file, atomically."""
    write_atomic(path, dumps(document))
