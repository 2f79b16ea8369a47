"""Printing: results to standard output, progress to standard error, tables, figures for people."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from bubbleproof.schedules.errors import BubbleproofError

if TYPE_CHECKING:
    from fractions import Fraction

__all__ = [
    "emit",
    "emit_json",
    "figure",
    "lay_out",
    "log",
    "prepare",
    "table",
    "terminal_width",
    "unicode_ok",
    "use_colour",
    "wrapped",
]


def prepare() -> None:
    """Make output streams print what their encoding lacks as escapes instead of failing.

    A stream that the caller has closed (``>&-``) goes nowhere.
    """
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # open until the process ends
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # absent on replaced streams


def emit(text: str) -> None:
    """Write to standard output. A reader that has gone away (``| head``) is no error.

    Raises
    ------
    BubbleproofError
        The output cannot be written, for example because the disk is full.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # the interpreter flushes once more when it exits; give it somewhere to write to
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        raise BubbleproofError(f"cannot write the output: {error.strerror or error}") from error


def emit_json(value: Any) -> None:
    """Write a value as one line of JSON with sorted keys."""
    import json

    emit(json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")) + "\n")


def log(text: str) -> None:
    """Write a line to standard error, if anybody reads it."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def use_colour(choice: str, stream: TextIO | None = None) -> bool:
    """Whether to colour: as told, else only on a terminal, and never against NO_COLOR (https://no-color.org)."""
    if choice != "auto":
        return choice == "always"
    out = stream or sys.stdout
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def unicode_ok() -> bool:
    """Whether standard output can show characters beyond ASCII."""
    return "utf" in (getattr(sys.stdout, "encoding", None) or "").lower()


def terminal_width() -> int:
    """Columns of the terminal; 80 if there is none and COLUMNS is not set."""
    return shutil.get_terminal_size((80, 24)).columns


def figure(value: int | None, unit: str = "1") -> str:
    """An integer with its digits in groups of three, and its unit."""
    if value is None:
        return "-"
    return f"{value:,}" + (f" {unit}" if unit != "1" else "")


def ratio(value: Fraction | int, digits: int = 3) -> str:
    """A ratio in decimals, rounded half up without floats."""
    from fractions import Fraction

    scaled = int(Fraction(value) * 10**digits + Fraction(1, 2))
    return f"{scaled // 10**digits}.{scaled % 10**digits:0{digits}d}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,), indent: str = "  ") -> str:
    """A table of text: columns as wide as their widest entry, right-aligned but for those in `left`.

    A line break in an entry of `head` puts the rest on a second line.
    """
    depth = max(entry.count("\n") for entry in head) + 1
    split = [[*entry.split("\n"), *[""] * depth][:depth] for entry in head]
    lines = [*([entry[level] for entry in split] for level in range(depth)), *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    out = []
    for line in lines:
        cells = [
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        out.append((indent + "  ".join(cells)).rstrip())
    return "\n".join(out) + "\n"


def wrapped(text: str, indent: str = "") -> str:
    """One paragraph, broken to the window on a terminal; in a file it stays one line."""
    if not sys.stdout.isatty():
        return f"{indent}{text}\n"
    import textwrap

    width = max(60, terminal_width())
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=f"{indent}  ") + "\n"


def lay_out(pairs: Sequence[tuple[str, str]]) -> str:
    """Lines of a name and what belongs to it, the second column aligned."""
    width = max(len(name) for name, _ in pairs)
    return "".join(f"{name.ljust(width)}  {text}\n" for name, text in pairs)
