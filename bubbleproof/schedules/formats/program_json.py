"""Programs as JSON files, with their instance inside: canonical, like schedule files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bubbleproof.schedules.formats.document import InstanceDocument, instance_document, instance_of
from bubbleproof.schedules.formats.envelope import parse_rows, read_document
from bubbleproof.schedules.formats.files import read_text, write_atomic
from bubbleproof.schedules.formats.schedule_json import MAX_BYTES
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.program import Program, parse_action

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
    document = read_document(text, where, PROGRAM_FORMAT, ProgramDocument)
    instance = instance_of(document.instance, f"{where}: instance")
    return Document(Program.of(parse_rows(document.rows, parse_action, f"{where}: rows"), document.name), instance)


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
