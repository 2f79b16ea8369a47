"""Constraints of the model, one function per family."""

from __future__ import annotations

from ortools.sat.python import cp_model

from bubbleproof.solver.cpsat.variables import Variables, tails

__all__ = ["add_constraints"]


def add_constraints(v: Variables) -> None:
    """Everything that makes the starts a schedule of the length asked for."""
    add_dependencies(v)
    add_microbatch_order(v)
    add_one_op_at_a_time(v)
    add_memory(v)
    if v.flat.instance.objective == "span":
        add_span(v)


def add_dependencies(v: Variables) -> None:
    """An op starts after its inputs have ended and travelled."""
    for queue, inputs in enumerate(v.flat.inputs):
        for k, start in enumerate(v.start[queue]):
            for source, delay in inputs:
                v.model.add(start >= v.end(source, k) + delay)


def add_microbatch_order(v: Variables) -> None:
    """Each kind of op of a stage runs in microbatch order, on each route: no loss for identical microbatches."""
    for queue, starts in enumerate(v.start):
        for k in range(1, len(starts)):
            v.model.add(starts[k] >= v.end(queue, k - 1))


def add_one_op_at_a_time(v: Variables) -> None:
    """A rank runs one op at a time."""
    for queues in v.flat.queues_of_rank:
        v.model.add_no_overlap([interval for q in queues for interval in v.op[q]])


def add_span(v: Variables) -> None:
    """No rank lasts longer than the length; the first start of all is 0.

    The last end of a rank is bounded from every op by the time that must follow before the rank is through.
    """
    flat, model, width = v.flat, v.model, v.flat.width
    for rank, queues in enumerate(flat.queues_of_rank):
        first = model.new_int_var(0, v.length, f"first{rank}")
        v.first.append(first)
        for queue in queues:
            if v.start[queue] and queue % width == 0:
                model.add(first <= v.start[queue][0])
        tail = tails(flat, rank)
        for queue in queues:
            for k in range(flat.size[queue]):
                model.add(v.end(queue, k) + tail[queue][k] <= first + v.length)
    if len(flat.microbatches) == 1:
        model.add(v.start[0][0] == 0)


def add_memory(v: Variables) -> None:
    """Every rank keeps its cap."""
    flat = v.flat
    if flat.cap is None:
        return
    width = flat.width
    for rank, queues in enumerate(flat.queues_of_rank):
        lines = [q for q in queues if q % width == 0 and flat.size[q]]
        room = flat.cap[rank]
        if sum(flat.size[q] * flat.change[q] for q in lines) <= room and all(flat.change[q + 1] <= 0 for q in lines):
            continue  # everything fits at once
        if any(flat.change[q + width - 1] > 0 for q in lines):
            _reservoir(v, lines, room)
            continue
        for line in lines:
            _most_in_flight(v, line, room)
        at_end_only = all(flat.change[q + i] == 0 for q in lines for i in range(1, width - 1))
        if len(lines) == 1 and at_end_only:
            continue  # the edges of _most_in_flight are the cap
        _cumulative(v, lines, room)
        if len(lines) == 1 and flat.change[lines[0] + 1] < 0:
            _counting(v, lines[0], room)


def _most_in_flight(v: Variables, line: int, room: int) -> None:
    """Microbatches that are in flight on one line take the line's memory: at most ⌊room / F⌋ before their B has ended.

    If all is freed by the last kind, that one is meant instead of B, and for a rank with one line this is the whole cap.
    """
    flat, width = v.flat, v.flat.width
    take = flat.change[line]
    if take <= 0:
        return
    freeing = line + next(i for i in range(1, width) if flat.change[line + i] < 0)
    most = room // take
    for k in range(most, flat.size[line]):
        v.model.add(v.start[line][k] >= v.end(freeing, k - most))


def _cumulative(v: Variables, lines: list[int], room: int) -> None:
    """Two resources in one: what is held from F to B, and what is held until the last kind.

    A B that takes memory holds it from its end until the end of W.
    """
    flat, width, model = v.flat, v.flat.width, v.model
    intervals, demands = [], []

    def hold(line: int, since: int, until: int, amount: int) -> None:
        """`amount` from the start of F (since 0) or the end of a later kind until the end of kind `until`."""
        for k in range(flat.size[line]):
            begin = v.start[line][k] if since == 0 else v.end(line + since, k)
            size = model.new_int_var(0, v.horizon, "")
            intervals.append(model.new_interval_var(begin, size, v.end(line + until, k), ""))
            demands.append(amount)

    for line in lines:
        take = flat.change[line]
        if width == 2:
            hold(line, 0, 1, take)
            continue
        early, late = -flat.change[line + 1], -flat.change[line + 2]
        if early > 0:
            hold(line, 0, 1, early)
        if late > 0:
            hold(line, 0, 2, min(late, take))
        if early < 0:
            hold(line, 1, 2, -early)
    model.add_cumulative(intervals, demands, room)


def _reservoir(v: Variables, lines: list[int], room: int) -> None:
    """The level at every instant, for ops whose changes are neither a part taken nor a part given back."""
    flat, width = v.flat, v.flat.width
    times: list[cp_model.LinearExprT] = []
    changes = []
    for line in lines:
        for i in range(width):
            for k in range(flat.size[line]):
                times.append(v.start[line][k] if i == 0 else v.end(line + i, k))
                changes.append(flat.change[line + i])
    low = sum(min(0, flat.change[q + i]) * flat.size[q] for q in lines for i in range(width))
    v.model.add_reservoir_constraint(times, changes, low, room)


def _counting(v: Variables, line: int, room: int) -> None:
    """Two-part memory of a rank with one line, counted over the known microbatch orders.

    If F_i starts while B_j is the first B that has not ended, d = i + 1 − j microbatches hold the whole amount then, and at
    most ⌊(room − d·F) / W⌋ may hold the part of W: W of the microbatch that many before j − 1 has ended. If an earlier B
    has not ended either the condition is weaker than the one for that B, so it may be stated for every j.
    """
    flat, model = v.flat, v.model
    take, late = flat.change[line], -flat.change[line + 2]
    if late <= 0 or late > take:
        return
    for i in range(flat.size[line]):
        for d in range(1, min(i + 1, room // take) + 1):
            j = i + 1 - d
            ended = j - 1 - (room - d * take) // late
            if ended < 0 or j == i:
                if ended >= 0:  # F_i always comes before B_i
                    model.add(v.start[line][i] >= v.end(line + 2, ended))
                continue
            before = model.new_bool_var("")
            model.add(v.start[line][i] >= v.end(line + 2, ended)).only_enforce_if(before)
            model.add(v.start[line + 1][j] >= v.end(line, i)).only_enforce_if(before)
            model.add(v.start[line][i] >= v.end(line + 1, j)).only_enforce_if(~before)
