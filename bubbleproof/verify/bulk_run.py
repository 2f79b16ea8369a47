"""Running millions of slots: the earliest starts, by arrays.

Source: docs/semantics.md, execution and theorems 1 and 2; docs/large.md for runs and rounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bubbleproof.verify.bulk_leap import Steady, strict

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Runs", "earliest_starts"]

_BATCH = 512
"""Rounds between two looks at how much a round gets done."""
_WORTH_A_ROUND = 16
"""A round of array operations takes as long as so many runs one at a time."""


class Runs(NamedTuple):
    """What is executed: on every lane a chain of runs, each of which waits for at most k others.

    A run is a slot that waits for another lane together with the slots after it that do not: once it has started,
    nothing holds it up.

    Parameters
    ----------
    sources
        Integers, shape (n, k): the run that is waited for; n where nothing is.
    delays
        int64, shape (n, k): from the start of that run until what is waited for is there.
    durations
        int64, shape (n,).
    offsets
        int64: lane r has the runs ``offsets[r]:offsets[r + 1]``.
    """

    sources: NDArray[np.signedinteger[Any]]
    delays: NDArray[np.int64]
    durations: NDArray[np.int64]
    offsets: NDArray[np.int64]


def earliest_starts(runs: Runs) -> NDArray[np.int64] | None:
    """The earliest start of every run; None if lanes wait for each other in a circle.

    In each round every lane whose next run can start makes one step. Where a round gets little done, because there are
    few lanes or few of them are ready at once, the rest is done one run at a time; its integers are made and dropped,
    never kept.
    """
    count = len(runs.durations)
    starts = np.full(count + 1, -1, np.int64)
    starts[count] = 0
    current, free = runs.offsets[:-1].copy(), np.zeros(len(runs.offsets) - 1, np.int64)
    grown = strict(runs)
    runs, factor = grown or (runs, 1)
    if not _rounds(runs, starts, current, free, leaps=grown is not None):
        _one_by_one(runs, starts, current, free)
    starts = starts[:count]
    if (starts < 0).any():
        return None
    return starts // factor if factor > 1 else starts


def _rounds(
    runs: Runs, starts: NDArray[np.int64], current: NDArray[np.int64], free: NDArray[np.int64], *, leaps: bool
) -> bool:
    """Go on in rounds while they get enough done, and bring `starts`, `current` and `free` up to date.

    Parameters
    ----------
    leaps
        Whether steady states may be leapt over, which needs times that grow along every edge.

    Returns
    -------
    bool
        Whether nothing can be done any more.
    """
    sources, delays, durations, ends = runs.sources, runs.delays, runs.durations, runs.offsets[1:]
    lanes = np.flatnonzero(current < ends)
    while len(lanes) >= _WORTH_A_ROUND:
        here, clock, end = current[lanes], free[lanes], ends[lanes]
        steady = Steady(runs, starts, lanes) if leaps else None
        ended = False
        while not ended:
            done = 0
            for _ in range(_BATCH):
                since = starts.take(sources.take(here, axis=0))
                ready = (since.min(axis=1) >= 0).nonzero()[0]
                if not len(ready):
                    return True
                now = here.take(ready)
                start = (since.take(ready, axis=0) + delays.take(now, axis=0)).max(axis=1)
                np.maximum(start, clock.take(ready), out=start)
                starts[now] = start
                clock[ready] = start + durations.take(now)
                now += 1
                here[ready] = now
                done += len(ready)
                ended = bool((now == end.take(ready)).any())
                if ended or (steady is not None and (ended := steady.leapt(here, clock))):
                    break
            else:
                if done < _BATCH * _WORTH_A_ROUND:
                    current[lanes], free[lanes] = here, clock
                    return False
        current[lanes], free[lanes] = here, clock
        lanes = np.flatnonzero(current < ends)
    return not len(lanes)


def _one_by_one(runs: Runs, starts: NDArray[np.int64], current: NDArray[np.int64], free: NDArray[np.int64]) -> None:
    """Run every lane as far as it gets; a lane that waits is looked at again only when its source has started."""
    start_of, durations = memoryview(starts), memoryview(runs.durations)  # type: ignore[arg-type]  # arrays are buffers
    waits = [(memoryview(of), memoryview(after)) for of, after in zip(runs.sources.T, runs.delays.T, strict=True)]
    ends, position, clock = runs.offsets[1:].tolist(), current.tolist(), free.tolist()
    asleep: dict[int, list[int]] = {}
    awake = [lane for lane, end in enumerate(ends) if position[lane] < end]
    while awake:
        lane = awake.pop()
        now, time, end = position[lane], clock[lane], ends[lane]
        while now < end:
            blocked = -1
            for source_of, delay_of in waits:
                source = source_of[now]
                since = start_of[source]
                if since < 0:
                    blocked = source
                    break
                time = max(time, since + delay_of[now])
            if blocked >= 0:
                asleep.setdefault(blocked, []).append(lane)
                break
            start_of[now] = time
            time += durations[now]
            if now in asleep:
                awake.extend(asleep.pop(now))
            now += 1
        position[lane], clock[lane] = now, time
