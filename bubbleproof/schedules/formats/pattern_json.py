"""Periodic schedules as JSON files, with an instance inside whose number of microbatches has no meaning."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import msgspec

from bubbleproof.schedules.errors import FormatError, ScheduleError
from bubbleproof.schedules.formats.document import InstanceDocument, instance_document, instance_of
from bubbleproof.schedules.formats.envelope import read_document
from bubbleproof.schedules.formats.files import MIB, read_text, write_atomic
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import BACKWARDS, Kind
from bubbleproof.schedules.pattern import Anchor, IndexedOp, IndexedSlot, PeriodicSchedule, Segment

__all__ = ["PATTERN_FORMAT", "PatternDocument", "PatternFile", "dumps", "load", "load_file", "loads", "save"]

PATTERN_FORMAT = "bubbleproof-pattern/1"

_MAX_BYTES = 16 * MIB
_LIMIT = 10**6
"""No figure of a pattern but a time may be larger."""

_LATEST = 1 << 53


class SegmentDocument(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Slots that occur once, or once for each block, ascending (up) or descending (down), perhaps with their times."""

    slots: list[str]
    repeat: Literal["once", "up", "down"]
    starts: list[int] | None = None
    per_n: int = 0
    per_block: int = 0


class PatternDocument(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """For each rank its segments; for each route the microbatches of a block and those beside the blocks."""

    format: str
    instance: InstanceDocument
    rows: list[list[SegmentDocument]]
    steps: list[int]
    bases: list[int]
    least: int
    name: str = ""
    bound: dict[str, Any] | None = None
    """A rule that bounds its length for every m, for whoever knows such rules."""


class PatternFile(NamedTuple):
    """What a pattern file holds."""

    pattern: PeriodicSchedule
    instance: Instance
    bound: dict[str, Any] | None


def load(path: Path) -> tuple[PeriodicSchedule, Instance]:
    """Read a pattern file.

    Raises
    ------
    FormatError, InstanceError, ScheduleError
        One line that names the file, the place and the value.
    """
    return load_file(path)[:2]


def load_file(path: Path) -> PatternFile:
    """Read a pattern file with all that it holds; raises as `load` does."""
    return _read(read_text(path, _MAX_BYTES), str(path))


def loads(text: str, where: str = "pattern") -> tuple[PeriodicSchedule, Instance]:
    """Read a pattern from JSON text; `where` begins every error message."""
    return _read(text, where)[:2]


def _read(text: str, where: str) -> PatternFile:
    document = read_document(text, where, PATTERN_FORMAT, PatternDocument)
    figures = [*document.steps, *document.bases, document.least]
    if any(abs(figure) > _LIMIT for figure in figures):
        raise FormatError(f"{where}: steps, bases and least must lie within ±{_LIMIT}")
    try:
        rows = tuple(
            tuple(_segment(segment, document.steps, f"{where}: rows[{rank}][{at}]") for at, segment in enumerate(row))
            for rank, row in enumerate(document.rows)
        )
        pattern = PeriodicSchedule(rows, tuple(document.steps), tuple(document.bases), document.least, document.name)
    except ScheduleError as error:
        raise ScheduleError(f"{where}: {error}") from error
    return PatternFile(pattern, instance_of(document.instance, f"{where}: instance"), document.bound)


def _segment(segment: SegmentDocument, steps: list[int], where: str) -> Segment:
    times = [*(segment.starts or ()), segment.per_n, segment.per_block]
    if any(abs(time) > _LATEST for time in times):
        raise FormatError(f"{where}: times must lie within ±{_LATEST}")
    slots = tuple(_slot(slot, steps, where) for slot in segment.slots)
    starts = None if segment.starts is None else tuple(segment.starts)
    return Segment(slots, segment.repeat, starts, segment.per_n, segment.per_block)


# [0-9], not \d: \d accepts digits of every script, and int() would read them
_INDEX = r"(?:([01]):)?(?:([0-9]{0,6})([bn])([+-][0-9]{1,6})?|(-?[0-9]{1,6}))"
_OP = re.compile(rf"([0-9]{{1,9}})(F|BW|B|W)\[{_INDEX}\]")


def _slot(text: str, steps: list[int], where: str) -> IndexedSlot:
    if not (text.startswith("(") and text.endswith(")") and text.count(";") == 1):
        return _op(text, steps, where)
    forward, backward = (_op(part, steps, where) for part in text[1:-1].split(";"))
    if forward.kind != "F" or backward.kind not in BACKWARDS:
        raise FormatError(f"{where}: {text[:60]!r}: a pair is a forward followed by a backward")
    return forward, backward


def _op(text: str, steps: list[int], where: str) -> IndexedOp:
    match = _OP.fullmatch(text)
    if match is None:
        raise FormatError(f"{where}: {text[:40]!r} is no op of a pattern, such as 2F[3], 2F[b+3] or 2F[4n-1]")
    stage, kind, route, step, anchor, offset, constant = match.groups()
    which = int(route or 0)
    if anchor and (which >= len(steps) or int(step or 1) != steps[which]):
        raise FormatError(f"{where}: {text[:40]!r}: the factor of {anchor} is not the step of its route")
    value = int(constant if constant is not None else offset or 0)
    return IndexedOp(cast("Kind", kind), int(stage), which, cast("Anchor", anchor or ""), value)


def dumps(pattern: PeriodicSchedule, instance: Instance, bound: dict[str, Any] | None = None) -> str:
    """A pattern as canonical JSON text; `loads` gives an equal one back."""
    document = PatternDocument(
        format=PATTERN_FORMAT,
        instance=instance_document(instance),
        rows=[
            [
                SegmentDocument(
                    [pattern.text(slot) for slot in segment.slots],
                    segment.repeat,
                    None if segment.starts is None else list(segment.starts),
                    segment.per_n,
                    segment.per_block,
                )
                for segment in row
            ]
            for row in pattern.rows
        ],
        steps=list(pattern.steps),
        bases=list(pattern.bases),
        least=pattern.least,
        name=pattern.name,
        bound=bound,
    )
    return msgspec.json.encode(document, order="sorted").decode() + "\n"


def save(path: Path, pattern: PeriodicSchedule, instance: Instance, bound: dict[str, Any] | None = None) -> None:
    """Write a pattern file, atomically."""
    write_atomic(path, dumps(pattern, instance, bound))
