"""The kernel of a steady state: k microbatches whose ops, repeated every D, keep ranks apart and the caps.

Modulo scheduling. An op of microbatch i of the block starts at D·(its stage of the pipeline) + (its residue). Ops of a
rank may not overlap modulo D. What a rank holds when an op has changed its memory is the sum over all ops of change ×
(how many of its instances came before), which is a difference of pipeline stages plus a comparison of residues.
"""

from __future__ import annotations

import contextlib
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from ortools.sat.python import cp_model

from bubbleproof.solver.budget import Budget, OutOfBudget
from bubbleproof.solver.cpsat.interrupt import solve_interruptibly
from bubbleproof.solver.flat import Flat, Orders

__all__ = ["Kernel", "KernelAnswer", "fast_kernel", "find_kernel", "overlaid"]

_UNIT = 20
"""The longest op, where times are rounded."""

_PIECES = (0.2, 0.6, 1.8)
"""Effort of one question, first and when it is asked again."""

_LEAST_EFFORT = 0.02
"""What any question counts for: building a model takes time too."""

_ROUNDING = Fraction(21, 20)
"""How much longer a period may be where times are rounded."""

_SLACK = 4
"""Periods that a microbatch may take longer than with all its ops one after the other."""


@dataclass(frozen=True)
class Kernel:
    """Starts of the ops of one block, for each queue its k microbatches; blocks follow every `growth`."""

    step: int
    growth: int
    starts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class KernelAnswer:
    """A kernel, or None: `impossible` if CP-SAT says that there is none, else it ran out of effort."""

    kernel: Kernel | None
    impossible: bool
    effort: float


class _Model:
    def __init__(self, flat: Flat, step: int, growth: int) -> None:
        self.flat, self.step, self.growth = flat, step, growth
        self.model = cp_model.CpModel()
        self.used = [q for q, size in enumerate(flat.size) if size]
        longest = sum(flat.duration[q] for q in self.used) + sum(
            delay for q in self.used for _, delay in flat.inputs[q]
        )
        self.depth = -(-longest // growth) + _SLACK
        self.stage: dict[tuple[int, int], cp_model.IntVar] = {}
        self.residue: dict[tuple[int, int], cp_model.IntVar] = {}
        self.literals: dict[tuple[int, int, int, int], cp_model.IntVar] = {}
        for q in self.used:
            for i in range(step):
                self.stage[q, i] = self.model.new_int_var(0, self.depth, "")
                self.residue[q, i] = self.model.new_int_var(0, growth - 1, "")

    def start(self, q: int, i: int) -> cp_model.LinearExpr:
        """Start of microbatch i, which may lie in another block."""
        block, index = divmod(i, self.step)
        return self.growth * (self.stage[q, index] + block) + self.residue[q, index]

    def build(self) -> None:
        flat, model, step = self.flat, self.model, self.step
        for q in self.used:
            for i in range(step):
                model.add(self.start(q, i + 1) >= self.start(q, i) + flat.duration[q])
                for source, delay in flat.inputs[q]:
                    model.add(self.start(q, i) >= self.start(source, i) + flat.duration[source] + delay)
        for queues in flat.queues_of_rank:
            intervals = []
            for q in queues:
                if flat.size[q] and flat.duration[q]:
                    for i in range(step):
                        residue, lasts = self.residue[q, i], flat.duration[q]
                        # the same one period later, for ops that begin in one period and end in the next
                        intervals += [
                            model.new_fixed_size_interval_var(residue + more, lasts, "") for more in (0, self.growth)
                        ]
            model.add_no_overlap(intervals)
        for rank, queues in enumerate(flat.queues_of_rank):
            self.memory(rank, [q for q in queues if flat.size[q]])
        first = next(q for q in self.used if flat.stage[q] == 0)
        model.add(self.stage[first, 0] == 0)
        model.add(self.residue[first, 0] == 0)

    def memory(self, rank: int, queues: list[int]) -> None:
        flat, width = self.flat, self.flat.width
        if flat.cap is None:
            return
        room = flat.cap[rank]
        lines = [q for q in queues if q % width == 0]
        for line in lines:
            take = flat.change[line]
            if take <= 0 or flat.change[line + width - 1] > 0:
                continue
            freeing = line + next(i for i in range(1, width) if flat.change[line + i] < 0)
            for i in range(self.step):
                self.model.add(self.start(line, i + room // take) >= self.start(freeing, i) + flat.duration[freeing])
        at_end = all(flat.change[q] == 0 for q in queues if 0 < q % width < width - 1)
        if len(lines) == 1 and at_end:
            return
        changing = [(q, i) for q in queues if flat.change[q] for i in range(self.step)]
        for v in changing:
            if flat.change[v[0]] > 0:
                terms: list[cp_model.LinearExprT] = []
                for u in changing:
                    if u != v:
                        terms.append(flat.change[u[0]] * self.before(u, v))
                    terms.append(-flat.change[u[0]] * self.stage[u])
                self.model.add(sum(terms) + flat.change[v[0]] <= room)

    def before(self, u: tuple[int, int], v: tuple[int, int]) -> cp_model.LinearExprT:
        """Whether the residue of u comes before that of v."""
        if (*v, *u) in self.literals:
            return 1 - self.literals[(*v, *u)]
        literal = self.literals.get((*u, *v))
        if literal is None:
            literal = self.literals[(*u, *v)] = self.model.new_bool_var("")
            one, two = self.residue[u], self.residue[v]
            self.model.add(two >= one + self.flat.duration[u[0]]).only_enforce_if(literal)
            self.model.add(one >= two + self.flat.duration[v[0]]).only_enforce_if(~literal)
        return literal


def find_kernel(
    flat: Flat, step: int, growth: int, *, effort: float, seconds: float, seed: int, shortest: bool = False
) -> KernelAnswer:
    """Look for a kernel of `step` microbatches with a period of `growth`.

    Parameters
    ----------
    effort, seconds
        Limits in CP-SAT's deterministic time and in wall time.
    shortest
        Whether all ops should start early after the first forward, as far as the limits allow.
    """
    built = _Model(flat, step, growth)
    built.build()
    if shortest:
        built.model.minimize(sum(built.start(q, i) for q in built.used for i in range(step)))
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.max_deterministic_time = effort
    parameters.max_time_in_seconds = seconds
    parameters.num_workers = 1
    parameters.random_seed = seed
    parameters.linearization_level = 0
    status = solve_interruptibly(solver, built.model)
    spent = float(solver.response_proto.deterministic_time)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return KernelAnswer(None, status == cp_model.INFEASIBLE, spent)
    starts = tuple(
        tuple(solver.value(built.start(q, i)) for i in range(step)) if flat.size[q] else ()
        for q in range(len(flat.rank))
    )
    return KernelAnswer(Kernel(step, growth, starts), False, spent)


def fast_kernel(flat: Flat, step: int, per_microbatch: Fraction, budget: Budget) -> Kernel | None:
    """A kernel with a period as short as can be found in the budget, below a known one; None if none was found.

    Times are rounded to small integers first: microseconds make the question much harder, and only the order that
    comes out of the answer is used.

    Parameters
    ----------
    per_microbatch
        The period to beat, divided by its number of microbatches.
    """
    rounded = _rounded(flat)
    scale = Fraction(1) if rounded is flat else _ROUNDING * Fraction(_UNIT, max(flat.duration))
    search = _Halving(rounded, step, ceil(per_microbatch * step * scale), budget)
    with contextlib.suppress(OutOfBudget):
        search.run()
    return search.best


class _Halving:
    """A search for the shortest period; a kernel stays one if its period is made longer."""

    def __init__(self, flat: Flat, step: int, high: int, budget: Budget) -> None:
        self.flat, self.step, self.budget = flat, step, budget
        self.low = step * max(sum(flat.duration[q] for q in queues) for queues in flat.queues_of_rank)
        self.high = high
        self.best: Kernel | None = None

    def run(self) -> None:
        """Halve; periods for which nothing was decided are asked for again with more effort."""
        for piece in _PIECES:
            tried: set[int] = set()
            while self.low < self.high:
                places = (self.low + (self.high - self.low) * quarters // 4 for quarters in (2, 1, 0, 3))
                growth = next((place for place in places if place not in tried), None)
                if growth is None:
                    break
                tried.add(growth)
                answer = self.ask(growth, piece)
                if answer.kernel is not None:
                    self.best, self.high = answer.kernel, growth
                elif answer.impossible:
                    self.low = growth + 1
        if self.best is not None:
            self.best = self.ask(self.best.growth, _PIECES[0], shortest=True).kernel or self.best

    def ask(self, growth: int, piece: float, *, shortest: bool = False) -> KernelAnswer:
        """One question, counted."""
        effort = min(piece, self.budget.effort_left)
        answer = find_kernel(
            self.flat, self.step, growth, effort=effort, seconds=self.budget.left, seed=0, shortest=shortest
        )
        self.budget.spend(max(answer.effort, _LEAST_EFFORT))
        return answer


def _rounded(flat: Flat) -> Flat:
    """The same queues with times of at most `_UNIT`; itself if they are."""
    longest = max(flat.duration)
    if longest <= _UNIT:
        return flat

    def small(time: int) -> int:
        return max(1, (2 * time * _UNIT + longest) // (2 * longest)) if time else 0

    rounded = copy(flat)
    rounded.duration = [small(time) for time in flat.duration]
    rounded.inputs = [tuple((source, small(delay)) for source, delay in found) for found in flat.inputs]
    return rounded


def overlaid(flat: Flat, kernel: Kernel) -> Orders:
    """Orders in which all blocks run as the kernel says, one period apart."""
    orders: Orders = []
    for queues in flat.queues_of_rank:
        events = []
        for q in queues:
            for j in range(flat.size[q]):
                block, i = divmod(j, kernel.step)
                start = kernel.starts[q][i] + kernel.growth * block
                events.append((start, start + flat.duration[q], q % flat.width, q))
        orders.append([event[-1] for event in sorted(events)])
    return orders
