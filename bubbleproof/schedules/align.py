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
from bubbleproof.schedules.timeline import Timeline, replay

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
    soon = replay(schedule, instance)
    if any(not order for order in schedule.orders):
        return soon  # a rank without ops has no first start to move, and such a schedule is incomplete anyway
    compiled = compile_schedule(schedule, instance)
    to_last, to_first = _distances(compiled)
    least = int(to_last.diagonal().max())
    if soon.span == least:
        return soon
    # w[r, s]: starting r now keeps s of the next step from starting for so long, less one period
    combined = (to_last[:, :, None] + to_first[None, :, :]).max(axis=1)
    low, high = max(least, int(combined.diagonal().max())), soon.span
    while low < high:
        middle = (low + high) // 2
        if _offsets(combined, to_first, middle) is None:
            low = middle + 1
        else:
            high = middle
    offsets = _offsets(combined, to_first, high)
    if offsets is None or high == soon.span:
        return soon
    return replay(schedule, instance, release=tuple(int(x) for x in offsets))


def _distances(compiled: Compiled) -> tuple[Matrix, Matrix]:
    """Longest paths between ranks, from the start of the first slot of r.

    Returns
    -------
    to_last, to_first
        p × p; ``to_last[r, q]`` to the end of the last slot of q, ``to_first[r, q]`` to the start of the first slot of
        q (0 if q = r). Far below zero where there is no path.
    """
    import numpy as np

    ranks, n = compiled.instance.ranks, len(compiled.slots)
    order = compiled.topological()
    heads = {compiled.first[rank]: rank for rank in range(ranks)}
    to_last = np.full((ranks, ranks), _NO_PATH, dtype=np.int64)
    to_first = np.full((ranks, ranks), _NO_PATH, dtype=np.int64)
    width = max(1, min(ranks, _BLOCK // max(1, n)))
    for low in range(0, ranks, width):
        sources = range(low, min(ranks, low + width))
        end = np.full((n, len(sources)), _NO_PATH, dtype=np.int64)
        for node in order:
            row = end[node]
            if node not in heads:
                np.maximum(row, end[node - 1], out=row)
            for source, delay in compiled.inputs[node]:
                np.maximum(row, end[source] + delay, out=row)
            rank = heads.get(node)
            if rank is not None:
                if rank in sources:
                    row[rank - low] = max(0, int(row[rank - low]))
                to_first[low : low + len(sources), rank] = row
            row += compiled.duration[node]
        for rank in range(ranks):
            to_last[low : low + len(sources), rank] = end[compiled.first[rank + 1] - 1]
    return to_last, to_first


def _offsets(combined: Matrix, to_first: Matrix, span: int) -> Matrix | None:
    """Least first starts x ≥ 0 under which every rank lasts at most `span`; None if there are none.

    The conditions are x_s ≥ x_r + w[r, s] − span and x_q ≥ x_r + to_first[r, q]. Longest paths with p nodes settle
    within p rounds unless a cycle is positive.
    """
    import numpy as np

    weights = np.maximum(combined - span, to_first)
    x = np.zeros(len(weights), dtype=np.int64)
    for _ in range(len(weights) + 1):
        improved = np.maximum(x, (x[:, None] + weights).max(axis=0))
        if (improved == x).all():
            return x
        x = improved
    return None
