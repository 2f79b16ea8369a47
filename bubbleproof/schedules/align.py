"""The timeline of the least span: when each rank should start so that the longest rank is as short as possible.

`replay` starts every op as soon as possible. That minimises the makespan of an order, but not its span: a rank that
starts early and then waits has a longer span than one that starts later. For a given order the least span is the
largest mean of a cycle in a small graph over the ranks, and it is also the period at which the order repeats when
no rank waits for a global barrier between steps (docs/semantics.md, theorem "least span of an order").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bubbleproof.schedules.compiled import Compiled, compile_schedule
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import Timeline, replay_compiled

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.int64]

__all__ = ["align"]

_NO_PATH = -(2**60)
_BLOCK = 2**24  # entries of the distance table held at once


def align(schedule: Schedule, instance: Instance) -> Timeline:
    """The timeline of least span among all timelines of an order.

    The as-soon-as-possible timeline is returned where it has the least span already.

    Raises
    ------
    ScheduleError
        The schedule does not belong to the instance, or it deadlocks.
    """
    compiled = compile_schedule(schedule, instance)
    soon = replay_compiled(compiled, schedule, (0,) * instance.ranks)
    if any(not order for order in schedule.orders):
        return soon  # a rank without ops has no first start to move, and such a schedule is incomplete anyway
    longest = _longest_paths(compiled)
    low, high, release = int(longest.diagonal().max()), soon.span, None
    while low < high:
        middle = (low + high) // 2
        offsets = _offsets(longest, middle)
        if offsets is None:
            low = middle + 1
        else:
            high, release = middle, tuple(int(x) for x in offsets)
    return soon if release is None else replay_compiled(compiled, schedule, release)


def _longest_paths(compiled: Compiled) -> Matrix:
    """L[r, q], the longest path from the start of the first slot of r to the end of the last slot of q.

    Returns
    -------
    p × p, far below zero where there is no path.
    """
    import numpy as np

    ranks, slots, n = compiled.instance.ranks, len(compiled.slots), len(compiled.duration)
    order = compiled.topological()
    heads = {compiled.first[rank]: rank for rank in range(ranks)}
    longest = np.full((ranks, ranks), _NO_PATH, dtype=np.int64)
    width = max(1, min(ranks, _BLOCK // max(1, n)))
    for low in range(0, ranks, width):
        high = min(ranks, low + width)
        end = np.full((n, high - low), _NO_PATH, dtype=np.int64)
        for node in order:
            row = end[node]
            for source, delay in compiled.inputs[node]:
                np.maximum(row, end[source] + delay, out=row)
            if node >= slots:
                pass  # a message waits for its inputs only
            elif node not in heads:
                np.maximum(row, end[node - 1], out=row)
            for first in compiled.released.get(node, ()):
                if low <= first < high:
                    row[first - low] = max(0, int(row[first - low]))
            row += compiled.duration[node]
        for rank in range(ranks):
            longest[low:high, rank] = end[compiled.first[rank + 1] - 1]
    return longest


def _offsets(longest: Matrix, span: int) -> Matrix | None:
    """Least first starts x ≥ 0 under which every rank lasts at most `span`; None if there are none.

    The last slot of s ends no earlier than x_r + L[r, s], so the condition is x_s + span ≥ x_r + L[r, s] for all r, s.
    Longest paths over p nodes settle within p rounds unless a cycle is positive.
    """
    import numpy as np

    x = np.zeros(len(longest), dtype=np.int64)
    for _ in range(len(longest) + 1):
        improved = np.maximum(x, (x[:, None] + longest).max(axis=0) - span)
        if (improved == x).all():
            return x
        x = improved
    return None
