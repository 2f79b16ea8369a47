"""Leaping over a steady state: the times of many rounds are guessed from those before and checked all at once.

Source: docs/large.md, "Leaps". Nothing rests on the guess; a wrong one costs the time of its check.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bubbleproof.verify.bulk_run import Runs

    Index = NDArray[np.int64]

__all__ = ["Steady", "strict"]

_LONGEST = 64
"""Rounds of the longest period that is looked for."""

_PIECE = 1 << 18
"""Runs that are checked together."""

_SAFE = 1 << 62


def strict(runs: Runs) -> tuple[Runs, int] | None:
    """The same runs with each length and delay multiplied by a factor and made one longer, and the factor.

    Then times grow along every edge, which a check of times needs to rule out circles, and dividing them by the factor
    gives the times as they were. None if sums could reach 2⁶².
    """
    count = len(runs.durations)
    longest = max(int(runs.durations.max(initial=0)), int(runs.delays.max(initial=0)))
    if int(runs.durations.min(initial=1)) > 0 and not ((runs.delays < 1) & (runs.sources < count)).any():
        return runs, 1
    factor = count + 2
    if (longest * factor + 1) * (count + 1) >= _SAFE:
        return None
    return runs._replace(durations=runs.durations * factor + 1, delays=runs.delays * factor + 1), factor


class Steady:
    """Watches the rounds of some lanes for a steady state.

    Parameters
    ----------
    runs
        With times that grow along every edge.
    starts
        Where the starts are entered.
    lanes
        Those that have not ended.
    """

    def __init__(self, runs: Runs, starts: Index, lanes: Index) -> None:
        self._runs, self._starts, self._ends = runs, starts, runs.offsets[1:][lanes]
        self._positions: list[Index] = []
        self._clocks: list[Index] = []

    def leapt(self, here: Index, clock: Index) -> bool:
        """After a round: go on as far as a steady state lasts, in place; whether there is one."""
        self._positions.append(here.copy())
        self._clocks.append(clock.copy())
        if len(self._positions) <= 3 * _LONGEST:
            return False
        found = self._leap()
        if found is None:
            del self._positions[:_LONGEST], self._clocks[:_LONGEST]
            return False
        here += found[0]
        clock += found[1]
        return True

    def _leap(self) -> tuple[Index, Index] | None:
        """By how many runs, and by how much time, each lane advances."""
        here, clock = self._positions[-1], self._clocks[-1]
        for rounds in range(1, _LONGEST + 1):
            before = self._positions[-1 - rounds]
            step = here - before
            if not np.array_equal(step, before - self._positions[-1 - 2 * rounds]):
                continue
            moving = step > 0
            lasts = (clock - self._clocks[-1 - rounds])[moving]
            if not len(lasts) or (lasts != lasts[0]).any():
                continue
            times = _periods(self._runs, here[moving], step[moving], self._ends[moving])
            time = int(lasts[0])
            if times < 2 or not _enter(self._runs, self._starts, here[moving], step[moving], times, time):
                return None
            return step * times, moving * (time * times)
        return None


def _periods(runs: Runs, here: Index, step: Index, end: Index) -> int:
    """How many more periods every lane seems to repeat: what is waited for moves on evenly, and takes as long."""
    least = int(((end - here) // step).min())
    for first, size in zip(here.tolist(), step.tolist(), strict=True):
        if first < 2 * size:
            return 0
        until = first + least * size
        now, before, two = (
            slice(first, until),
            slice(first - size, until - size),
            slice(first - 2 * size, until - 2 * size),
        )
        even = (runs.sources[now] - runs.sources[before]) == (runs.sources[before] - runs.sources[two])
        even &= runs.delays[now] == runs.delays[before]
        alike = even.all(axis=1) & (runs.durations[now] == runs.durations[before])
        if not alike.all():
            least = int(alike.argmin()) // size
    return least


def _enter(runs: Runs, starts: Index, here: Index, step: Index, times: int, time: int) -> bool:
    """Enter the guessed starts; if any is not the earliest, given those before, take all back."""
    growth = np.arange(1, times + 1, dtype=np.int64) * time
    spans = [(first, first + size * times, size) for first, size in zip(here.tolist(), step.tolist(), strict=True)]
    for first, until, size in spans:
        starts[first:until] = (starts[first - size : first] + growth[:, np.newaxis]).reshape(-1)
    for first, until in _pieces(spans):
        since = starts.take(runs.sources[first:until])
        earliest = (since + runs.delays[first:until]).max(axis=1)
        np.maximum(earliest, starts[first - 1 : until - 1] + runs.durations[first - 1 : until - 1], out=earliest)
        if int(since.min()) < 0 or not np.array_equal(earliest, starts[first:until]):
            for begin, end, _ in spans:
                starts[begin:end] = -1
            return False
    return True


def _pieces(spans: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    for first, until, _ in spans:
        for begin in range(first, until, _PIECE):
            yield begin, min(until, begin + _PIECE)
