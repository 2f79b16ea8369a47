"""Constraints of the model, one function per family."""

from __future__ import annotations

from typing import NamedTuple

from bubbleproof.solver.cpsat.channels import add_channels
from bubbleproof.solver.cpsat.orders import Orders
from bubbleproof.solver.cpsat.variables import Variables, tails

__all__ = ["Steady", "add_constraints", "add_steady"]


def add_constraints(v: Variables) -> None:
    """Everything that makes the starts a schedule of the length asked for."""
    add_dependencies(v)
    add_microbatch_order(v)
    add_one_op_at_a_time(v)
    orders = Orders(v)
    add_memory(v, orders)
    add_channels(v, orders)
    orders.add_monotony()
    if v.flat.instance.objective == "span":
        add_span(v)


class Steady(NamedTuple):
    """A steady state: microbatches `first` … `last` of each class repeat every `step` of them, `growth` later."""

    step: int
    growth: int
    first: int
    last: int


def add_steady(v: Variables, steady: Steady) -> None:
    """Every op of the middle starts a fixed time after the same op `step` microbatches before."""
    for starts in v.start:
        v.check()
        for k in range(steady.first, min(len(starts), steady.last + 1) - steady.step):
            v.model.add(starts[k + steady.step] == starts[k] + steady.growth)


def add_dependencies(v: Variables) -> None:
    """An op starts after its inputs have ended and travelled."""
    for queue, inputs in enumerate(v.flat.inputs):
        v.check()
        for k, start in enumerate(v.start[queue]):
            for source, delay in inputs:
                v.model.add(start >= v.end(source, k) + delay)


def add_microbatch_order(v: Variables) -> None:
    """Each kind of op of a stage runs in microbatch order, on each route: no loss for identical microbatches."""
    for queue, starts in enumerate(v.start):
        v.check()
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
        v.check()
        tail = tails(flat, rank)
        for queue in queues:
            for k in range(flat.size[queue]):
                model.add(v.end(queue, k) + tail[queue][k] <= first + v.length)
    if len(flat.microbatches) == 1 and all(flat.instance.placement.predecessors[1:]):
        model.add(v.start[0][0] == 0)  # everything follows from it


def add_memory(v: Variables, orders: Orders) -> None:
    """Every rank keeps its cap.

    A rank runs one op at a time, so what it holds when an op has changed its memory is the sum over all ops of
    (change) × (comes before it). Most of these orders are known: by microbatch order, by dependencies and by the
    windows. Each of the others is a Boolean, and the cap is one linear inequality per op that takes memory.
    """
    flat = v.flat
    if flat.cap is None:
        return
    width = flat.width
    for rank, queues in enumerate(flat.queues_of_rank):
        used = [q for q in queues if flat.size[q]]
        lines = [q for q in used if q % width == 0]
        takes = sum(max(0, flat.change[q]) * flat.size[q] for q in used)
        if takes <= flat.cap[rank]:
            continue  # everything fits at once
        if all(flat.change[q] <= 0 for q in used if q % width == width - 1):  # else a microbatch may count as below 0
            for line in lines:
                _most_in_flight(v, line, flat.cap[rank])
        freed_at_end = all(flat.change[q] == 0 for q in used if 0 < q % width < width - 1)
        if len(lines) > 1 or not freed_at_end:
            _counting(v, orders, used, flat.cap[rank])


def _most_in_flight(v: Variables, line: int, room: int) -> None:
    """At most ⌊room / F⌋ microbatches of a line hold all that F takes.

    A microbatch holds it until B has ended if B gives something back, else until the last kind has. For a rank with one
    line whose memory is freed all at once this is the whole cap: one edge per forward, no Boolean.
    """
    flat, width = v.flat, v.flat.width
    take = flat.change[line]
    if take <= 0:
        return
    freeing = line + next(i for i in range(1, width) if flat.change[line + i] < 0)
    most = room // take
    for k in range(most, flat.size[line]):
        v.model.add(v.start[line][k] >= v.end(freeing, k - most))


def _counting(v: Variables, orders: Orders, queues: list[int], room: int) -> None:
    """The cap of one rank, counted over the order of its ops."""
    changing = [q for q in queues if v.flat.change[q]]
    for queue in changing:
        take = v.flat.change[queue]
        if take <= 0:
            continue
        for k in range(v.flat.size[queue]):
            v.check()
            fixed, terms = take, []
            for other in changing:
                amount = v.flat.change[other]
                for i in range(v.flat.size[other]):
                    known = orders.before(other, i, queue, k)
                    if known is True:
                        fixed += amount
                    elif known is not False:
                        terms.append(amount * known)
            v.model.add(sum(terms) + fixed <= room)
