"""Reading the rows of large files straight into arrays, with no Python object for any cell.

Only the plain form is read, the one that programs write: no blanks, no quotes inside a row, ASCII. For everything else
the answer is None, and the ordinary reader of the format takes the file; it also has the words for what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bubbleproof.schedules.table import CODES, Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["TORCH_COMMS", "TORCH_COMPUTE", "json_rows", "read_cells", "torch_rows"]

_CHUNK = 1 << 23
"""Bytes that are looked at together; the arrays for them take about ten times as much."""

_COMMA, _NEWLINE, _SEMICOLON, _OPEN, _CLOSE = (ord(char) for char in ",\n;()")
_WITHOUT_MICROBATCH = ("UNSHARD", "RESHARD", "REDUCE_GRAD")

_OURS = {kind: CODES[kind] for kind in CODES}
TORCH_COMPUTE = {"F": CODES["F"], "I": CODES["B"], "W": CODES["W"], "B": CODES["BW"]}
"""PyTorch's letters of a compute-only file."""
TORCH_COMMS = TORCH_COMPUTE | {kind: code for kind, code in CODES.items() if len(kind) > 2}
"""PyTorch's words of a file with communication."""


def torch_rows(text: str, kinds: Mapping[str, int], *, idle: bool = True) -> Table | None:
    """The rows of a CSV of PyTorch, one line for each rank; None if the text is not plain.

    Parameters
    ----------
    kinds
        `TORCH_COMPUTE` or `TORCH_COMMS`.
    idle
        Whether there may be empty cells, which are left out.
    """
    data = text.encode().replace(b"\r\n", b"\n")
    if not idle and (data.startswith(b",") or b",," in data or b"\n," in data or b",\n" in data or data.endswith(b",")):
        return None
    pairs = data.count(b")OVERLAP_F_B")
    if data.count(b")") != pairs:
        return None
    if pairs:
        data = data.replace(b")OVERLAP_F_B", b")")
    return read_cells(data if data.endswith(b"\n") else data + b"\n", kinds)


def json_rows(text: str) -> Table | None:
    """The rows of a list of lists of actions in canonical JSON, brackets included; None if the text is not plain."""
    data = text.encode()
    if not (data.startswith(b'[["') and data.endswith(b'"]]')) or b"\n" in data:
        return None
    body = data[3:-3].replace(b'"],["', b"\n")
    # every comma between two quotes ends a cell; a comma or a quote that is left over is no part of one
    plain = body.replace(b'","', b"\t")
    if b'"' in plain or b"," in plain:
        return None
    return read_cells(plain.replace(b"\t", b",") + b"\n", _OURS)


def read_cells(data: bytes, kinds: Mapping[str, int]) -> Table | None:
    """The cells of lines that end with a newline, separated by commas; None if any cell is no action.

    Empty cells are left out; a line without any other is not read.
    """
    parts: list[_Part] = []
    begin = 0
    while begin < len(data):
        limit = begin + _CHUNK
        end = (
            len(data)
            if limit >= len(data)
            else 1 + max(data.rfind(b",", begin, limit), data.rfind(b"\n", begin, limit))
        )
        part = _read(data[begin:end], kinds) if end > begin else None
        if part is None:
            return None
        parts.append(part)
        begin = end
    counts = np.cumsum([0, *(len(part.kind) for part in parts)])
    lines = [part.lines + before for part, before in zip(parts, counts.tolist(), strict=False)]
    offsets = np.concatenate([np.zeros(1, np.int64), *lines])
    if (np.diff(offsets) < 1).any():
        return None
    return Table(
        np.concatenate([part.kind for part in parts]),
        np.concatenate([part.stage for part in parts]),
        np.concatenate([part.microbatch for part in parts]),
        np.concatenate([part.joined for part in parts]),
        offsets,
    )


class _Part(NamedTuple):
    """The entries of a piece of the file, and how many of them stand before the end of each line that ends in it."""

    kind: NDArray[np.int8]
    stage: NDArray[np.int32]
    microbatch: NDArray[np.int32]
    joined: NDArray[np.bool_]
    lines: NDArray[np.int64]


def _read(data: bytes, kinds: Mapping[str, int]) -> _Part | None:
    """Read a piece that ends after a comma or a newline."""
    letters = np.frombuffer(data + bytes(8), np.uint8)[: len(data)]
    ends = np.flatnonzero((letters == _COMMA) | (letters == _NEWLINE) | (letters == _SEMICOLON))
    begins = np.concatenate((np.zeros(1, np.int64), ends[:-1] + 1))
    filled = ends > begins
    closing = letters[ends]
    lines = np.cumsum(filled)[closing == _NEWLINE]
    begins, ends, closing = begins[filled], ends[filled], closing[filled]
    joined = np.zeros(len(begins), np.bool_)
    pairs = np.count_nonzero(letters == _SEMICOLON)
    if pairs:
        first = closing == _SEMICOLON
        joined[1:] = first[:-1]
        opened, closed = letters[begins] == _OPEN, letters[ends - 1] == _CLOSE
        if np.count_nonzero(first) != pairs or not (np.array_equal(opened, first) and np.array_equal(closed, joined)):
            return None
        begins, ends = begins + opened, ends - closed
    digit = (letters - np.uint8(ord("0"))) < 10
    word = (letters >= ord("A")) & (letters <= ord("_"))
    starts = np.flatnonzero(word & ~np.concatenate((np.zeros(1, np.bool_), word[:-1])))
    stops = np.flatnonzero(word & ~np.concatenate((word[1:], np.zeros(1, np.bool_)))) + 1
    if len(starts) != len(begins) or not ((begins < starts) & (stops <= ends)).all():
        return None
    # all that is in a cell besides its word are digits, at most nine before and nine after
    inside = int((ends - begins).sum()) - int((stops - starts).sum())
    if (
        np.count_nonzero(digit) != inside
        or int((starts - begins).max(initial=0)) > 9
        or int((ends - stops).max(initial=0)) > 9
    ):
        return None
    kind = _kinds(data, starts, stops - starts, kinds)
    if kind is None or (joined & ((kind != CODES["B"]) & (kind != CODES["BW"]))).any():
        return None
    if pairs and (kind[first] != CODES["F"]).any():
        return None
    bare = np.isin(kind, [CODES[name] for name in _WITHOUT_MICROBATCH])
    if not np.array_equal(ends == stops, bare):
        return None
    microbatch = _numbers(letters, stops, ends - stops)
    microbatch[bare] = -1
    return _Part(kind, _numbers(letters, begins, starts - begins), microbatch, joined, lines)


def _kinds(
    data: bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64], kinds: Mapping[str, int]
) -> NDArray[np.int8] | None:
    """The code of each word; None if one is unknown."""
    # the eight bytes from any place on, as one number
    windows: NDArray[np.uint64] = np.ndarray((len(data) + 1,), "<u8", data + bytes(8), strides=(1,))
    found = np.full(len(starts), -1, np.int8)
    head = windows[starts]
    for name, code in kinds.items():
        raw = name.encode()
        short = raw[:8]
        same = (lengths == len(raw)) & (
            (head & np.uint64((1 << 8 * len(short)) - 1)) == int.from_bytes(short, "little")
        )
        if len(raw) > 8:
            rest = np.flatnonzero(same)
            tail = windows[starts[rest] + len(raw) - 8]
            same[rest[tail != int.from_bytes(raw[-8:], "little")]] = False
        found[same] = code
    return None if (found < 0).any() else found


def _numbers(letters: NDArray[np.uint8], begins: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int32]:
    """The numbers of at most nine digits that begin at some places."""
    found = np.zeros(len(begins), np.int32)
    for place in range(int(lengths.max(initial=0))):
        more = np.flatnonzero(lengths > place)
        found[more] = found[more] * 10 + (letters[begins[more] + place] - ord("0"))
    return found
