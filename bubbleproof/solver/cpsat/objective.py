"""The question put to CP-SAT: is there a schedule of length at most T? And how its answer is read."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import Literal, TypeAlias

from ortools.sat.python import cp_model

from bubbleproof.schedules.schedule import Schedule
from bubbleproof.solver.cpsat.constraints import Steady, add_constraints, add_steady
from bubbleproof.solver.cpsat.stretch import stretched
from bubbleproof.solver.cpsat.variables import Expired, Variables, add_variables
from bubbleproof.solver.flat import Flat, Orders, Times

__all__ = ["Answer", "Question"]

Verdict: TypeAlias = Literal["found", "impossible", "unknown"]


@dataclass(frozen=True)
class Answer:
    """What CP-SAT said, the orders or the schedule if it found one, and the deterministic time that it used."""

    verdict: Verdict
    orders: Orders | None
    effort: float
    schedule: Schedule | None = None


class Question:
    """The question whether a schedule of length (makespan or span, as the instance says) at most `length` exists.

    Parameters
    ----------
    effort
        Limit in CP-SAT's deterministic time.
    seconds
        Limit of wall time.
    linearization
        CP-SAT's linearization level. 0 is usually best for these models, 1 sometimes.
    hint
        Times of a longer schedule to start from.
    steady
        A steady state that the schedule must have; `impossible` then says nothing about others.
    """

    def __init__(
        self,
        flat: Flat,
        length: int,
        *,
        effort: float,
        seconds: float,
        seed: int,
        linearization: int,
        hint: Times | None,
        steady: Steady | None = None,
    ) -> None:
        self.flat, self.length, self.factor = stretched(flat, length)
        self.steady = None if steady is None else steady._replace(growth=self.factor * steady.growth)
        self.hint = hint
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
            v = add_variables(self.flat, self.length, self._expired)
            if v is None:
                return Answer("impossible", None, 0.0)
            add_constraints(v)
            if self.steady is not None:
                add_steady(v, self.steady)
            if self.hint is not None:
                self._add_hint(v, self.hint)
            v.check()
        except Expired:
            return Answer("unknown", None, 0.0)
        self.solver.parameters.max_time_in_seconds = max(0.0, self.deadline - monotonic())
        status = self.solver.solve(v.model)
        effort = float(self.solver.response_proto.deterministic_time)
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return Answer("found", self._orders(v), effort)
        return Answer("impossible" if status == cp_model.INFEASIBLE else "unknown", None, effort)

    def stop(self) -> None:
        """Make `ask` return soon, with `unknown` unless it knows already."""
        self.stopped = True
        self.solver.stop_search()

    def _expired(self) -> bool:
        return self.stopped or monotonic() > self.deadline

    def _add_hint(self, v: Variables, times: Times) -> None:
        origin = min(times.first)
        for queue, starts in enumerate(v.start):
            for k, start in enumerate(starts):
                at = self.factor * (times.ends[queue][k] - origin) - self.flat.duration[queue]
                v.model.add_hint(start, max(0, at))

    def _orders(self, v: Variables) -> Orders:
        flat = self.flat
        orders: Orders = []
        for queues in flat.queues_of_rank:
            events = []
            for queue in queues:
                for start in v.start[queue]:
                    at = self.solver.value(start)
                    events.append((at, at + flat.duration[queue], queue % flat.width, queue))
            orders.append([event[-1] for event in sorted(events)])
        return orders
