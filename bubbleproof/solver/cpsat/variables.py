"""Variables of the model: one start per op, inside a window that follows from the dependencies alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ortools.sat.python import cp_model

from bubbleproof.solver.flat import Flat

__all__ = ["Expired", "Variables", "add_variables", "heads", "tails"]


class Expired(Exception):  # a signal to whoever builds the model, not an error
    """The answer is not wanted any more."""


@dataclass
class Variables:
    """The model of "is there a schedule of length at most `length`?" and its variables.

    Parameters
    ----------
    start, op
        For each queue and each of its ops: the start, and the interval that occupies the rank.
    low, high
        The window of each start.
    first
        For the objective span: each rank's first start.
    expired
        Whether building the model may end; asked now and then, as a large model takes many seconds to build.
    """

    flat: Flat
    length: int
    model: cp_model.CpModel
    expired: Callable[[], bool]
    start: list[list[cp_model.IntVar]] = field(default_factory=list)
    op: list[list[cp_model.IntervalVar]] = field(default_factory=list)
    first: list[cp_model.IntVar] = field(default_factory=list)
    low: list[list[int]] = field(default_factory=list)
    high: list[list[int]] = field(default_factory=list)

    def check(self) -> None:
        """Go on only if the model is still wanted.

        Raises
        ------
        Expired
            It is not.
        """
        if self.expired():
            raise Expired

    def end(self, queue: int, k: int) -> cp_model.LinearExpr:
        """End of an op, as an expression."""
        return self.start[queue][k] + self.flat.duration[queue]


def heads(flat: Flat) -> list[list[int]]:
    """For each op the least time from the first start of all to its start.

    Inputs, microbatch order, and what its own line must have run before: the k-th op of a kind comes after k + 1 ops of
    each earlier kind and k of its own.
    """
    head = [[0] * n for n in flat.size]
    width = flat.width
    for queue in flat.topological():
        base = queue - queue % width
        before = sum(flat.duration[base:queue])
        for k in range(flat.size[queue]):
            value = head[queue][k - 1] + flat.duration[queue] if k else 0
            for source, delay in flat.inputs[queue]:
                value = max(value, head[source][k] + flat.duration[source] + delay)
            if queue != base:
                value = max(value, head[base][0] + (k + 1) * before + k * flat.duration[queue])
            head[queue][k] = value
    return head


def tails(flat: Flat, rank: int | None = None) -> list[list[int]]:
    """For each op the least time from its end to the end of all ops, or to the last end of one rank.

    Far below zero for ops after which nothing of that rank need come.
    """
    never = -(1 << 60)
    tail = [[0 if rank is None or rank in flat.group[q] else never] * n for q, n in enumerate(flat.size)]
    width = flat.width
    for queue in reversed(flat.topological()):
        base = queue - queue % width
        after = sum(flat.duration[queue + 1 : base + width])
        mine = rank is None or rank in flat.group[queue]
        size = flat.size[queue]
        for k in reversed(range(size)):
            value = tail[queue][k]
            if k + 1 < size:
                value = max(value, tail[queue][k + 1] + flat.duration[queue])
            for target, delay in flat.outputs[queue]:
                value = max(value, tail[target][k] + flat.duration[target] + delay)
            if mine:
                value = max(value, (size - k) * after + (size - k - 1) * flat.duration[queue])
            tail[queue][k] = value
    return tail


def _horizon(flat: Flat, length: int) -> int:
    """Within what time all ops of some schedule of this length lie, if any such schedule exists.

    For the makespan it is the length. For the span let r be a rank that starts first, at 0. The first op of a rank q is
    a forward, and its microbatch comes back through every rank of its route; so if r is on that route, q starts before
    r has ended, by length, and ends by 2 · length. Otherwise a chain of ranks leads from r to q in which each two
    neighbours share a route, and each step adds a length; ranks that no such chain joins can be shifted on their own.

    In a graph of stages with one sink, a microbatch comes back through every stage, so that the first case holds. Else
    two ranks that share an edge start within a length of each other: a forward of the one precedes one of the other,
    and the backwards the other way round. A rank of a stage on several ranks holds that stage like any other.
    """
    if flat.instance.objective == "makespan":
        return length
    placement = flat.instance.placement
    if not placement.plain:
        return (2 if sum(not after for after in placement.successors) == 1 else placement.ranks + 1) * length
    everywhere = all(set(route) == set(range(placement.ranks)) for route in placement.routes)
    return (2 if everywhere else placement.ranks + 1) * length


def add_variables(flat: Flat, length: int, expired: Callable[[], bool] = lambda: False) -> Variables | None:
    """The starts and intervals of all ops; None if a window is empty, so that the length is impossible."""
    span = flat.instance.objective == "span"
    horizon = _horizon(flat, length)
    v = Variables(flat, length, cp_model.CpModel(), expired)
    head, tail = heads(flat), tails(flat)
    for queue, size in enumerate(flat.size):
        v.check()
        duration, starts, intervals, lows, highs = flat.duration[queue], [], [], [], []
        for k in range(size):
            low = head[queue][k]
            high = horizon - duration - (0 if span else tail[queue][k])
            if low > high:
                return None
            start = v.model.new_int_var(low, high, f"{queue}_{k}")
            starts.append(start)
            lows.append(low)
            highs.append(high)
            intervals.append(v.model.new_fixed_size_interval_var(start, duration, f"i{queue}_{k}"))
        v.start.append(starts)
        v.op.append(intervals)
        v.low.append(lows)
        v.high.append(highs)
    return v
