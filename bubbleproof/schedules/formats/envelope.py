"""What the JSON files of schedules, programs and patterns share: strict parsing, the format key, rows of text."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn, Protocol, TypeVar

from bubbleproof.schedules.errors import FormatError, ScheduleError
from bubbleproof.schedules.formats.document import convert

__all__ = ["parse_json", "parse_rows", "read_document"]


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_Document = TypeVar("_Document", bound=_Named)
_Item = TypeVar("_Item")


_PATTERN = ("schedule", "bubbleproof-pattern/1")
"""What was wanted, and what is of help all the same."""


def read_document(text: str, where: str, form: str, kind: type[_Document]) -> _Document:
    """Read JSON text whose format key must be `form` into a document; `where` begins every error message.

    Raises
    ------
    FormatError
        The text is not JSON, is of another format, or does not fit the document.
    """
    raw = parse_json(text, where)
    if not isinstance(raw, dict) or raw.get("format") != form:
        found = raw.get("format") if isinstance(raw, dict) else None
        said = f"format is {str(found)[:40]!r}" if found is not None else "there is no format key"
        noun = form.removeprefix("bubbleproof-").partition("/")[0]
        way = "; `prove FILE --make M` writes its schedule for M microbatches" if (noun, found) == _PATTERN else ""
        raise FormatError(f"{where}: no {noun} file: {said}, expected {form!r}{way}")
    document = convert(raw, kind, where)
    if not document.name.isprintable():
        raise FormatError(f"{where}: name = {document.name[:40]!r}: control characters are not allowed")
    return document


def parse_rows(rows: list[list[str]], parse: Callable[[str], _Item], where: str) -> list[list[_Item]]:
    """Parse every text of every row.

    Raises
    ------
    ScheduleError
        A text cannot be parsed; the message begins with `where` and its row and position.
    """
    found = []
    for rank, row in enumerate(rows):
        items = []
        for position, text in enumerate(row):
            try:
                items.append(parse(text))
            except ScheduleError as error:
                raise ScheduleError(f"{where}[{rank}][{position}]: {error}") from error
        found.append(items)
    return found


def parse_json(text: str, where: str) -> Any:
    """Parse JSON strictly: no duplicate keys, no NaN; errors give line and column.

    Raises
    ------
    FormatError
        The text is not JSON.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        cut = " (the file may be cut short)" if not text.rstrip().endswith(("}", "]")) else ""
        raise FormatError(f"{where}: not JSON: line {error.lineno}, column {error.colno}: {error.msg}{cut}") from error
    except RecursionError:
        raise FormatError(f"{where}: not JSON that can be read: nested too deeply") from None
    except ValueError as error:
        raise FormatError(f"{where}: not JSON that can be read: {error}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice[:40]!r} occurs twice in one object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
