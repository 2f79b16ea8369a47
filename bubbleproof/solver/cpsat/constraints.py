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
    """Every rank keeps its cap.

    A rank runs one op at a time, so what it holds when an op has changed its memory is the sum over all ops of
    (change) × (comes before it). Most of these orders are known: by microbatch order, by dependencies and by the windows.
    Each of the others is a Boolean, and the cap is one linear inequality per op that takes memory.
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
        for line in lines:
            _most_in_flight(v, line, flat.cap[rank])
        freed_at_end = all(flat.change[q] == 0 for q in used if 0 < q % width < width - 1)
        if len(lines) > 1 or not freed_at_end:
            _counting(v, used, flat.cap[rank])


def _most_in_flight(v: Variables, line: int, room: int) -> None:
    """At most ⌊room / F⌋ microbatches of a line hold all that F takes.

    A microbatch holds it until B has ended if B gives something back, else until the last kind has. For a rank with one
    line whose memory is freed all at once this is the whole cap: one edge per forward, no Boolean.
    """
    flat, width = v.flat, v.flat.width
    take = flat.change[line]
    if take <= 0 or flat.change[line + width - 1] > 0:
        return
    freeing = line + next(i for i in range(1, width) if flat.change[line + i] < 0)
    most = room // take
    for k in range(most, flat.size[line]):
        v.model.add(v.start[line][k] >= v.end(freeing, k - most))


def _counting(v: Variables, queues: list[int], room: int) -> None:
    """The cap of one rank, counted over the order of its ops."""
    order = _Orders(v)
    changing = [q for q in queues if v.flat.change[q]]
    for queue in changing:
        take = v.flat.change[queue]
        if take <= 0:
            continue
        for k in range(v.flat.size[queue]):
            fixed, terms = take, []
            for other in changing:
                amount = v.flat.change[other]
                for i in range(v.flat.size[other]):
                    known = order.before(other, i, queue, k)
                    if known is True:
                        fixed += amount
                    elif known is not False:
                        terms.append(amount * known)
            v.model.add(sum(terms) + fixed <= room)
    order.add_monotony()


class _Orders:
    """Which of two ops of a rank comes first: known, or a Boolean of the model."""

    def __init__(self, v: Variables) -> None:
        self.v = v
        self.literals: dict[tuple[int, int, int, int], cp_model.IntVar] = {}

    def before(self, queue: int, i: int, other: int, k: int) -> bool | cp_model.LinearExprT:
        """Whether op i of `queue` ends before op k of `other` starts; False also for an op and itself."""
        known = self._known(queue, i, other, k)
        if known is not None:
            return known
        if (other, k, queue, i) in self.literals:
            return 1 - self.literals[other, k, queue, i]
        literal = self.literals.get((queue, i, other, k))
        if literal is None:
            v = self.v
            literal = v.model.new_bool_var("")
            v.model.add(v.start[other][k] >= v.end(queue, i)).only_enforce_if(literal)
            v.model.add(v.start[queue][i] >= v.end(other, k)).only_enforce_if(~literal)
            self.literals[queue, i, other, k] = literal
        return literal

    def _known(self, queue: int, i: int, other: int, k: int) -> bool | None:
        v, flat = self.v, self.v.flat
        if queue == other:
            return i < k
        if flat.route[queue] == flat.route[other]:
            first, second = _rank_in_microbatch(v, queue), _rank_in_microbatch(v, other)
            if first < second and i <= k and _leads_to(v, queue, other):
                return True
            if second < first and k <= i and _leads_to(v, other, queue):
                return False
        low, high = v.low, v.high
        if low[queue][i] + flat.duration[queue] > high[other][k]:
            return False
        if low[other][k] + flat.duration[other] > high[queue][i]:
            return True
        return None

    def add_monotony(self) -> None:
        """If a later op of a queue comes before something, so does an earlier one; likewise on the other side."""
        model, literals = self.v.model, self.literals
        for (queue, i, other, k), literal in literals.items():
            later = literals.get((queue, i + 1, other, k))
            if later is not None:
                model.add_implication(later, literal)
            later = literals.get((queue, i, other, k + 1))
            if later is not None:
                model.add_implication(literal, later)


def _rank_in_microbatch(v: Variables, queue: int) -> int:
    """Position of a queue's ops among the ops of a microbatch: forwards up, backwards down, each W after its B."""
    width, stages = v.flat.width, v.flat.instance.stages
    stage, kind = v.flat.stage[queue], queue % width
    return stage if kind == 0 else stages + (stages - 1 - stage) * (width - 1) + kind - 1


def _leads_to(v: Variables, queue: int, later: int) -> bool:
    """Whether the op of `later` depends on that of `queue` for the same microbatch, given that it is later in it.

    Everything leads to what is later, but for W, which leads nowhere.
    """
    return v.flat.width == 2 or queue % 3 != 2
