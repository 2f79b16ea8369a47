"""The question put to CP-SAT where a schedule has choices: recompute, fused backwards, overlapped pairs.

"Is there a schedule of length at most T?", as in `bubbleproof.solver.cpsat`, with a Boolean for each choice and an
optional interval for each form of an op. Meant for up to some hundred ops.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias

from ortools.sat.python import cp_model

from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Kind, Op, Overlap, Slot
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.solver.cpsat.objective import Answer
from bubbleproof.solver.cpsat.variables import Expired

if TYPE_CHECKING:
    from bubbleproof.solver.choices.windows import Frozen

__all__ = ["ChoiceQuestion", "Choices"]

Cell: TypeAlias = tuple[int, int]

_LONGEST = 1 << 50
"""Lengths stay below this, so that CP-SAT's sums stay far inside 64 bits."""


@dataclass
class Choices:
    """Variables: starts of F, of the backward, of W and of R of each cell, and the literals of its choices.

    Parameters
    ----------
    alone
        For each cell: F alone, B alone, BW alone.
    pairs
        For (cell of the forward, cell of the backward, whether fused): the literal that they run as a pair.
    """

    model: cp_model.CpModel = field(default_factory=cp_model.CpModel)
    f: dict[Cell, cp_model.IntVar] = field(default_factory=dict)
    g: dict[Cell, cp_model.IntVar] = field(default_factory=dict)
    w: dict[Cell, cp_model.IntVar] = field(default_factory=dict)
    r: dict[Cell, cp_model.IntVar] = field(default_factory=dict)
    alone: dict[tuple[str, Cell], cp_model.IntVar] = field(default_factory=dict)
    split: dict[Cell, cp_model.IntVar] = field(default_factory=dict)
    again: dict[Cell, cp_model.IntVar] = field(default_factory=dict)
    pairs: dict[tuple[Cell, Cell, bool], cp_model.IntVar] = field(default_factory=dict)
    long_f: dict[Cell, cp_model.LinearExpr] = field(default_factory=dict)
    long_g: dict[Cell, cp_model.LinearExpr] = field(default_factory=dict)


class ChoiceQuestion:
    """The question whether a schedule of length (makespan or span) at most `length` exists.

    Times are stretched as in `bubbleproof.solver.cpsat.stretch`, so that no slot lasts 0.

    Parameters
    ----------
    ordered
        Only schedules whose forwards and backwards run in microbatch order, inside each class of equal microbatches. No
        loss without recompute (docs/semantics.md, order symmetry); with it a restriction, and "impossible" then means
        nothing.
    frozen
        What stays of the schedule `hint`; "impossible" then means nothing.
    fewest
        Ask for the fewest split backwards; `least_splits` is then what no schedule of that length can beat.
    """

    def __init__(
        self,
        instance: Instance,
        length: int,
        *,
        effort: float,
        seconds: float,
        seed: int,
        linearization: int,
        hint: Schedule | None,
        ordered: bool,
        fewest: bool = False,
        frozen: Frozen | None = None,
    ) -> None:
        self.instance, self.hint, self.ordered, self.fewest = instance, hint, ordered, fewest
        self.least_splits = 0
        self.frozen = frozen
        self.cells = [(s, j) for j in range(instance.microbatches) for s in range(instance.stages)]
        self.rank = {cell: instance.rank_of(*cell) for cell in self.cells}
        self.alike = {j: number for number, alike in enumerate(instance.classes) for j in alike}
        costs = instance.costs
        kinds: list[Kind] = ["F", "BW"]
        kinds += ["B", "W"] if costs.split else []
        kinds += ["R"] if costs.R is not None else []
        times = [costs.of(kind, *cell) for cell in self.cells for kind in kinds]
        for pair in ("overlap_B", "overlap_BW"):
            if getattr(costs, pair) is not None:
                times += [costs.figure(pair, *cell) + costs.overhead for cell in self.cells]
        short = 4 * len(self.cells) if 0 in times else 0
        self.factor = instance.ranks * short + 1
        if self.factor * (length + 1) > _LONGEST:
            self.factor, short = 1, 0  # an answer may then turn out not to fit
        self.length = self.factor * length + short
        self.deadline = monotonic() + seconds
        self.stopped = False
        self.solver = cp_model.CpSolver()
        parameters = self.solver.parameters
        parameters.max_deterministic_time = effort
        parameters.num_workers = 1
        parameters.random_seed = seed
        parameters.linearization_level = linearization
        parameters.catch_sigint_signal = False

    def ask(self) -> Answer:
        """Build the model and solve it; `stop` may be called from another thread meanwhile."""
        try:
            v = self._variables()
            self._dependencies(v)
            self._one_slot_at_a_time(v)
            self._order(v)
            self._memory(v)
            self._length(v)
            if self.hint is not None:
                self._hints(v, self.hint)
            if self.frozen is not None:
                self.frozen.add_to(self, v)
            if self.fewest:
                v.model.minimize(cp_model.LinearExpr.sum(list(v.split.values())))
            self._check()
        except Expired:
            return Answer("unknown", None, 0.0)
        self.solver.parameters.max_time_in_seconds = max(0.0, self.deadline - monotonic())
        status = self.solver.solve(v.model)
        effort = float(self.solver.response_proto.deterministic_time)
        if self.fewest and status in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.UNKNOWN):
            self.least_splits = max(0, ceil(self.solver.best_objective_bound - 1e-6))
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return Answer("found", None, effort, self._schedule(v))
        return Answer("impossible" if status == cp_model.INFEASIBLE else "unknown", None, effort)

    def stop(self) -> None:
        """Make `ask` return soon, with `unknown` unless it knows already."""
        self.stopped = True
        self.solver.stop_search()

    def _check(self) -> None:
        if self.stopped or monotonic() > self.deadline:
            raise Expired

    def lasts(self, kind: Kind, cell: Cell) -> int:
        """Duration of an op alone, stretched."""
        return self._stretched(self.instance.costs.of(kind, *cell))

    def _stretched(self, duration: int) -> int:
        return self.factor * duration or 1 if self.factor > 1 else duration

    def _mine(self, rank: int) -> list[Cell]:
        return [cell for cell in self.cells if self.rank[cell] == rank]

    @property
    def horizon(self) -> int:
        """Within what time all of a schedule can be moved; see `bubbleproof.solver.cpsat.variables`."""
        instance = self.instance
        if instance.objective == "makespan":
            return self.length
        everywhere = all(set(route) == set(range(instance.ranks)) for route in instance.placement.routes)
        return (2 if everywhere else instance.ranks + 1) * self.length

    def _variables(self) -> Choices:
        v, costs, top = Choices(), self.instance.costs, self.horizon
        new = v.model.new_int_var
        for cell in self.cells:
            v.f[cell], v.g[cell] = new(0, top, f"F{cell}"), new(0, top, f"G{cell}")
            for kind in ("F", "B", "BW") if costs.split else ("F", "BW"):
                v.alone[kind, cell] = v.model.new_bool_var(f"{kind}{cell}")
            if costs.split:
                v.w[cell], v.split[cell] = new(0, top, f"W{cell}"), v.model.new_bool_var(f"split{cell}")
            if costs.R is not None and self.instance.memory.cap is not None:
                v.r[cell], v.again[cell] = new(0, top, f"R{cell}"), v.model.new_bool_var(f"again{cell}")
        for rank in range(self.instance.ranks):
            self._check()
            self._pairs(v, self._mine(rank))
        for cell in self.cells:
            self._forms(v, cell)
        return v

    def _pairs(self, v: Choices, mine: list[Cell]) -> None:
        costs = self.instance.costs
        for whole, given in ((False, costs.overlap_B if costs.split else None), (True, costs.overlap_BW)):
            if given is None:
                continue
            kind: Kind = "BW" if whole else "B"
            for a in mine:
                together = costs.figure(f"overlap_{kind}", *a) + costs.overhead
                for b in mine:
                    useful = together < costs.of("F", *a) + costs.of(kind, *b)
                    first = self.ordered and self.alike[a[1]] == self.alike[b[1]] and a[1] < b[1]
                    if a[1] != b[1] and useful and not first:  # in microbatch order the forward is of a later one
                        v.pairs[a, b, whole] = v.model.new_bool_var(f"pair{a}{b}{whole}")

    def _forms(self, v: Choices, cell: Cell) -> None:
        """Each op has one form: alone or in a pair, split or fused; and its duration follows from it."""
        lasts = self.lasts
        ahead = [(lit, self._pair_time(a, whole)) for (a, _, whole), lit in v.pairs.items() if a == cell]
        back = [(lit, self._pair_time(a, whole), whole) for (a, b, whole), lit in v.pairs.items() if b == cell]
        forwards = [(v.alone["F", cell], lasts("F", cell)), *ahead]
        backwards = [(v.alone["BW", cell], lasts("BW", cell)), *((lit, length) for lit, length, _ in back)]
        if cell in v.split:
            backwards.append((v.alone["B", cell], lasts("B", cell)))
            halves = [v.alone["B", cell], *(lit for lit, _, whole in back if not whole)]
            v.model.add(v.split[cell] == cp_model.LinearExpr.sum(halves))
        for forms, lengths in ((forwards, v.long_f), (backwards, v.long_g)):
            v.model.add_exactly_one([lit for lit, _ in forms])
            lengths[cell] = cp_model.LinearExpr.weighted_sum([lit for lit, _ in forms], [n for _, n in forms])

    def _pair_time(self, forward: Cell, whole: bool) -> int:
        costs = self.instance.costs
        return self._stretched(costs.figure("overlap_BW" if whole else "overlap_B", *forward) + costs.overhead)

    def _end_f(self, v: Choices, cell: Cell) -> cp_model.LinearExpr:
        return v.f[cell] + v.long_f[cell]

    def _end_g(self, v: Choices, cell: Cell) -> cp_model.LinearExpr:
        return v.g[cell] + v.long_g[cell]

    def _dependencies(self, v: Choices) -> None:
        m = v.model
        for s, j in self.cells:
            self._check()
            cell, above = (s, j), (s + 1, j)
            m.add(v.g[cell] >= self._end_f(v, cell))
            if s + 1 < self.instance.stages:
                there, back = (self.factor * self.instance.message(*way, j) for way in ((s, s + 1), (s + 1, s)))
                m.add(v.f[above] >= self._end_f(v, cell) + there)
                m.add(v.g[cell] >= self._end_g(v, above) + back)
            if cell in v.w:
                m.add(v.w[cell] >= self._end_g(v, cell)).only_enforce_if(v.split[cell])
            if cell in v.r:
                m.add(v.r[cell] >= self._end_f(v, cell)).only_enforce_if(v.again[cell])
                m.add(v.g[cell] >= v.r[cell] + self.lasts("R", cell)).only_enforce_if(v.again[cell])

    def _one_slot_at_a_time(self, v: Choices) -> None:
        new = v.model.new_optional_fixed_size_interval_var
        for rank in range(self.instance.ranks):
            found = []
            for cell in self._mine(rank):
                found.append(new(v.f[cell], self.lasts("F", cell), v.alone["F", cell], ""))
                found.append(new(v.g[cell], self.lasts("BW", cell), v.alone["BW", cell], ""))
                if cell in v.w:
                    found.append(new(v.g[cell], self.lasts("B", cell), v.alone["B", cell], ""))
                    found.append(new(v.w[cell], self.lasts("W", cell), v.split[cell], ""))
                if cell in v.r:
                    found.append(new(v.r[cell], self.lasts("R", cell), v.again[cell], ""))
            for (a, b, whole), lit in v.pairs.items():
                if self.rank[a] == rank:
                    v.model.add(v.f[a] == v.g[b]).only_enforce_if(lit)
                    found.append(new(v.f[a], self._pair_time(a, whole), lit, ""))
            v.model.add_no_overlap(found)

    def _order(self, v: Choices) -> None:
        """Microbatch order; without it only the names of the microbatches are fixed, by the first stage's forwards."""
        for stage in range(self.instance.stages) if self.ordered else (0,):
            for alike in self.instance.classes:
                for earlier, later in pairwise(alike):
                    before, after = (stage, earlier), (stage, later)
                    v.model.add(v.f[after] >= self._end_f(v, before))
                    if self.ordered:
                        v.model.add(v.g[after] >= self._end_g(v, before))

    def _length(self, v: Choices) -> None:
        span = self.instance.objective == "span"
        for rank in range(self.instance.ranks):
            mine = self._mine(rank)
            end: cp_model.LinearExprT = self.length
            if span and mine:
                first = v.model.new_int_var(0, self.horizon, "")
                for cell in mine:
                    v.model.add(first <= v.f[cell])
                end = first + self.length
            for cell in mine:
                v.model.add(self._end_g(v, cell) <= end)
                if cell in v.w:
                    v.model.add(v.w[cell] + self.lasts("W", cell) <= end).only_enforce_if(v.split[cell])

    def _memory(self, v: Choices) -> None:
        memory = self.instance.memory
        if memory.cap is None:
            return
        for rank, cap in enumerate(memory.cap):
            mine, room = self._mine(rank), cap - memory.static[rank]
            if sum(memory.of("F", *cell) for cell in mine) <= room:
                continue
            for cell in mine:
                self._check()
                self._fits(v, mine, cell, ("F", v.f[cell], self._end_f(v, cell)), room)
                if cell in v.r:
                    end = v.r[cell] + self.lasts("R", cell)
                    self._fits(v, mine, cell, ("R", v.r[cell], end), room)

    def _fits(
        self,
        v: Choices,
        mine: list[Cell],
        cell: Cell,
        event: tuple[str, cp_model.IntVar, cp_model.LinearExpr],
        room: int,
    ) -> None:
        """When F or R of a cell has taken its memory, what all cells of the rank hold fits.

        What another cell has taken counts unless it is proved to come later, what it has given back only if it is
        proved to come earlier. Rightly chosen Booleans give the level; any others count too much.
        """
        memory, (kind, start, end) = self.instance.memory, event
        spare = 0 if memory.R is None else memory.R[cell[0]]
        held: list[cp_model.LinearExprT] = [memory.of("F", *cell)]
        if kind == "F" and cell in v.again:
            held.append(-spare * v.again[cell])
        for other in mine:
            if other != cell:
                held.extend(self._held(v, other, cell, kind, start, end))
        total = v.model.add(sum(held) <= room)
        if kind == "R":
            total.only_enforce_if(v.again[cell])

    def _held(
        self,
        v: Choices,
        other: Cell,
        cell: Cell,
        kind: str,
        start: cp_model.IntVar,
        end: cp_model.LinearExprT,
    ) -> list[cp_model.LinearExprT]:
        """What a cell holds when F or R of another runs."""
        memory, m, s = self.instance.memory, v.model, other[0]
        alike = self.ordered and s == cell[0] and self.alike[other[1]] == self.alike[cell[1]]
        taken, kept_back = memory.of("F", *other), memory.of("W", *other)
        if alike and other[1] > cell[1] and kind == "F":
            return []
        found: list[cp_model.LinearExprT] = [taken]
        later: cp_model.IntVar | None = None
        if not (alike and other[1] < cell[1]):
            later = m.new_bool_var("")
            m.add(v.f[other] >= end).only_enforce_if(later)
            found.append(-taken * later)
        if other in v.r and memory.R is not None:
            stash = m.new_bool_var("")
            m.add_implication(stash, v.again[other])
            m.add(v.r[other] >= end).only_enforce_if(stash)
            if later is not None:
                m.add_implication(stash, ~later)
            found.append(-memory.R[s] * stash)
        done = m.new_bool_var("")
        m.add(start >= self._end_g(v, other)).only_enforce_if(done)
        found.append(-taken * done)
        if other in v.w and kept_back:
            kept, freed = m.new_bool_var(""), m.new_bool_var("")
            m.add_bool_or([kept, ~done, ~v.split[other]])
            m.add_implication(freed, kept)
            m.add_implication(freed, v.split[other])
            m.add(start >= v.w[other] + self.lasts("W", other)).only_enforce_if(freed)
            found += [-kept_back * kept, kept_back * freed]
        return found

    def _hints(self, v: Choices, schedule: Schedule) -> None:
        from bubbleproof.solver.measure import timeline_of

        hinted: dict[int, tuple[cp_model.IntVar, int]] = {}
        timeline = timeline_of(schedule, self.instance)

        def hint(variable: cp_model.IntVar | None, value: int) -> None:
            if variable is not None:
                hinted[variable.index] = (variable, value)

        for literal in [*v.alone.values(), *v.split.values(), *v.again.values(), *v.pairs.values()]:
            hint(literal, 0)
        for order, starts in zip(schedule.orders, timeline.starts, strict=True):
            for slot, start in zip(order, starts, strict=True):
                at = self.factor * (start - timeline.first_start)
                for op in (slot,) if isinstance(slot, Op) else slot:
                    cell = (op.stage, op.microbatch)
                    table = {"F": v.f, "W": v.w, "R": v.r}.get(op.kind, v.g)
                    hint(table.get(cell), at)
                    hint(v.alone.get((op.kind, cell)) if isinstance(slot, Op) else None, 1)
                    hint(v.split.get(cell) if op.kind == "B" else v.again.get(cell) if op.kind == "R" else None, 1)
                if isinstance(slot, Overlap):
                    a, b = ((op.stage, op.microbatch) for op in slot)
                    hint(v.pairs.get((a, b, slot.backward.kind == "BW")), 1)
        for variable, value in hinted.values():
            v.model.add_hint(variable, value)

    def _schedule(self, v: Choices) -> Schedule:
        value, true = self.solver.value, self.solver.boolean_value
        slots: list[list[tuple[int, Slot]]] = [[] for _ in range(self.instance.ranks)]
        for s, j in self.cells:
            cell, row = (s, j), slots[self.rank[s, j]]
            if true(v.alone["F", cell]):
                row.append((value(v.f[cell]), Op("F", s, j)))
            for kind in ("B", "BW") if cell in v.w else ("BW",):
                if true(v.alone[kind, cell]):
                    row.append((value(v.g[cell]), Op(kind, s, j)))
            if cell in v.w and true(v.split[cell]):
                row.append((value(v.w[cell]), Op("W", s, j)))
            if cell in v.r and true(v.again[cell]):
                row.append((value(v.r[cell]), Op("R", s, j)))
        for (a, b, whole), lit in v.pairs.items():
            if true(lit):
                slots[self.rank[a]].append((value(v.f[a]), Overlap(Op("F", *a), Op("BW" if whole else "B", *b))))
        return Schedule.of([[slot for _, slot in sorted(row, key=lambda x: x[0])] for row in slots], "cp-sat")
