"""A better schedule by freeing the ops of a window of time and keeping all other orders.

What lies before the window runs as early as it can, what lies after it as late as the length asked for allows. Both
are longest paths of fixed orders, so the model has only the ops inside the window, each with a release and a due time.
It finds and does not prove: that a window holds no better order says nothing about other windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from ortools.sat.python import cp_model

from bubbleproof.solver.flat import Flat, Orders, Times

__all__ = ["Window"]


class _Op(NamedTuple):
    queue: int
    k: int
    start: int
    end: int


class Window:
    """The question whether the ops of a window can be arranged so that all ends within a length.

    Parameters
    ----------
    orders, times
        The schedule, and its times with the given releases.
    release
        For each rank the earliest first start. The last end of a rank may be `length` after it, or, if the makespan
        is meant, after the earliest of all.
    low, high
        An op is free if it runs in between.
    hint
        Whether to begin with the times given.
    """

    def __init__(
        self,
        flat: Flat,
        orders: Orders,
        times: Times,
        release: Sequence[int],
        low: int,
        high: int,
        length: int,
        makespan: bool,
        *,
        hint: bool = True,
    ) -> None:
        self.flat, self.orders = flat, orders
        self.hint = hint
        if makespan:
            self.deadline = [min(release) + length] * flat.ranks
        else:
            self.deadline = [r + length for r in release]
        self.rows: list[list[_Op]] = []
        for order in orders:
            taken: dict[int, int] = {}
            row = []
            for queue in order:
                k = taken.get(queue, 0)
                taken[queue] = k + 1
                end = times.ends[queue][k]
                row.append(_Op(queue, k, end - flat.duration[queue], end))
            self.rows.append(row)
        self.cut = [_between(row, low, high) for row in self.rows]
        self.free = [row[a:b] for row, (a, b) in zip(self.rows, self.cut, strict=True)]
        self.side: dict[tuple[int, int], int] = {}  # before, in or after the window
        for row, (a, b) in zip(self.rows, self.cut, strict=True):
            for i, op in enumerate(row):
                self.side[op.queue, op.k] = -1 if i < a else 0 if i < b else 1
        self.earliest: dict[tuple[int, int], int] = {}
        self.latest = self._latest_starts()
        self.times, self.release = times, release
        self.starts: dict[tuple[int, int], cp_model.IntVar] = {}
        self.literals: dict[tuple[int, int, int, int], cp_model.IntVar] = {}
        self.model = cp_model.CpModel()

    @property
    def size(self) -> int:
        """Number of free ops."""
        return sum(map(len, self.free))

    def _latest_starts(self) -> dict[tuple[int, int], int]:
        """Of the ops in and after the window, given the orders after it."""
        flat = self.flat
        latest: dict[tuple[int, int], int] = {}
        inside = [op for row, (a, _) in zip(self.rows, self.cut, strict=True) for op in row[a:]]
        following: dict[tuple[int, int], list[tuple[int, int]]] = {}  # one on each rank of the op
        for row, (_, b), deadline in zip(self.rows, self.cut, self.deadline, strict=True):
            for op in row[:b] if b < len(row) else ():
                following.setdefault(op[:2], []).append(row[b][:2])
            for op, behind in pairwise(row[b:]):
                following.setdefault(op[:2], []).append(behind[:2])
            for op in row:
                last = deadline - flat.duration[op.queue]
                latest[op.queue, op.k] = min(last, latest.get(op[:2], last))
        inside.sort(key=lambda op: (op.start, op.end), reverse=True)
        changed = True
        while changed:  # one pass, and more only where ops of duration 0 share an instant
            changed = False
            for queue, k, _, _ in inside:
                value, duration = latest[queue, k], flat.duration[queue]
                for after in following.get((queue, k), ()):
                    value = min(value, latest[after] - duration)
                for target, delay in flat.outputs[queue]:
                    value = min(value, latest[target, k] - delay - duration)
                if value < latest[queue, k]:
                    latest[queue, k], changed = value, True
        return latest

    def _place(self) -> bool:
        """Find the windows of the free ops; False if the ops before and after leave too little time between."""
        flat = self.flat
        for row, (a, b), release, deadline in zip(self.rows, self.cut, self.release, self.deadline, strict=True):
            begin = row[a - 1].end if a else release
            if begin > (self.latest[row[b][:2]] if b < len(row) else deadline):
                return False
            for op in row[:a]:
                for target, delay in flat.outputs[op.queue]:
                    if self.side[target, op.k] == 1 and op.end + delay > self.latest[target, op.k]:
                        return False
        for queue, k, _, _ in sorted((op for ops in self.free for op in ops), key=lambda op: (op.start, op.end)):
            value = max(self._begin(rank) for rank in flat.group[queue])
            if (queue, k - 1) in self.earliest:
                value = max(value, self.earliest[queue, k - 1] + flat.duration[queue])
            for source, delay in flat.inputs[queue]:
                if self.side[source, k] < 0:
                    value = max(value, self.times.ends[source][k] + delay)
                elif (source, k) in self.earliest:
                    value = max(value, self.earliest[source, k] + flat.duration[source] + delay)
            self.earliest[queue, k] = value
            if value > self.latest[queue, k]:
                return False
        return True

    def _begin(self, rank: int) -> int:
        """When a rank has run what lies before its window."""
        a, _ = self.cut[rank]
        return self.rows[rank][a - 1].end if a else self.release[rank]

    def build(self) -> bool:
        """Make the model; False if the length is plainly out of reach."""
        if not self._place():
            return False
        flat, model = self.flat, self.model
        for ops in self.free:
            intervals = []
            for queue, k, old, _ in ops:
                variable = self.starts.get((queue, k))  # it is there if another rank runs the op as well
                if variable is None:
                    variable = model.new_int_var(self.earliest[queue, k], self.latest[queue, k], "")
                    if self.hint:
                        model.add_hint(variable, min(max(old, self.earliest[queue, k]), self.latest[queue, k]))
                    self.starts[queue, k] = variable
                intervals.append(model.new_fixed_size_interval_var(variable, flat.duration[queue], ""))
            model.add_no_overlap(intervals)
        for (queue, k), start in self.starts.items():
            if (earlier := self.starts.get((queue, k - 1))) is not None:
                model.add(start >= earlier + flat.duration[queue])
            for source, delay in flat.inputs[queue]:
                if (before := self.starts.get((source, k))) is not None:
                    model.add(start >= before + flat.duration[source] + delay)
        if flat.cap is not None:
            for rank, cap in enumerate(flat.cap):
                self._memory(rank, cap)
            self._monotony()
        return True

    def _memory(self, rank: int, cap: int) -> None:
        """The rank keeps its cap at each free op that takes memory, counted over the order of the free ops."""
        flat, (a, _) = self.flat, self.cut[rank]
        change = flat.change
        before = sum(change[op.queue] for op in self.rows[rank][:a])
        changing = [op for op in self.free[rank] if change[op.queue]]
        for op in changing:
            if change[op.queue] <= 0:
                continue
            fixed, terms = before + change[op.queue], []
            for other in changing:
                known = self._before(other, op)
                if known is True:
                    fixed += change[other.queue]
                elif known is not False:
                    terms.append(change[other.queue] * known)
            self.model.add(sum(terms) + fixed <= cap)

    def _before(self, op: _Op, other: _Op) -> bool | cp_model.LinearExprT:
        """Whether `op` comes before `other` on their rank."""
        flat, (queue, k), (target, i) = self.flat, op[:2], other[:2]
        if queue == target:
            return k < i
        if k <= i and flat.leads(queue, target):
            return True
        if i <= k and flat.leads(target, queue):
            return False
        if self.earliest[queue, k] + flat.duration[queue] > self.latest[target, i]:
            return False
        if self.earliest[target, i] + flat.duration[target] > self.latest[queue, k]:
            return True
        if (target, i, queue, k) in self.literals:
            return 1 - self.literals[target, i, queue, k]
        literal = self.literals.get((queue, k, target, i))
        if literal is None:
            literal = self.model.new_bool_var("")
            first, second = self.starts[queue, k], self.starts[target, i]
            self.model.add(second >= first + flat.duration[queue]).only_enforce_if(literal)
            self.model.add(first >= second + flat.duration[target]).only_enforce_if(~literal)
            self.literals[queue, k, target, i] = literal
        return literal

    def _monotony(self) -> None:
        for (queue, k, target, i), literal in self.literals.items():
            if (later := self.literals.get((queue, k + 1, target, i))) is not None:
                self.model.add_implication(later, literal)
            if (later := self.literals.get((queue, k, target, i + 1))) is not None:
                self.model.add_implication(literal, later)

    def arranged(self, solver: cp_model.CpSolver) -> Orders:
        """The orders with the window as in the solver's answer."""
        flat, found = self.flat, []
        for order, ops, (a, b) in zip(self.orders, self.free, self.cut, strict=True):
            events = []
            for queue, k, _, _ in ops:
                at = solver.value(self.starts[queue, k])
                events.append((at, at + flat.duration[queue], queue % flat.width, queue))
            found.append([*order[:a], *(event[-1] for event in sorted(events)), *order[b:]])
        return found


def _between(row: Sequence[_Op], low: int, high: int) -> tuple[int, int]:
    """Positions from the first op that ends after `low` to the last one that starts before `high`."""
    first = next((i for i, op in enumerate(row) if op.end > low), len(row))
    last = next((i for i in reversed(range(len(row))) if row[i].start < high), -1)
    return first, max(first, last + 1)
