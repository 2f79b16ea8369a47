"""The question put to CP-SAT: is there a schedule of length at most T? And how its answer is read."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ortools.sat.python import cp_model

from bubbleproof.solver.cpsat.constraints import add_constraints
from bubbleproof.solver.cpsat.variables import Variables, add_variables
from bubbleproof.solver.flat import Flat, Orders, Times

__all__ = ["Answer", "Limits", "decide"]

Answer: TypeAlias = Literal["found", "impossible", "unknown"]


@dataclass(frozen=True)
class Limits:
    """How long one question may take: wall seconds, CP-SAT's deterministic time, threads, seed."""

    seconds: float
    effort: float
    workers: int
    seed: int


def decide(flat: Flat, length: int, limits: Limits, hint: Times | None) -> tuple[Answer, Orders | None, float]:
    """Ask for a schedule of length at most `length` (makespan or span, as the instance says).

    Returns
    -------
    answer, orders, effort
        The orders of the schedule found, and the deterministic time that was used.
    """
    v = add_variables(flat, length)
    if v is None:
        return "impossible", None, 0.0
    add_constraints(v)
    if hint is not None:
        _hint(v, hint)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limits.seconds
    solver.parameters.max_deterministic_time = limits.effort
    solver.parameters.num_workers = limits.workers
    solver.parameters.random_seed = limits.seed
    solver.parameters.catch_sigint_signal = False
    status = _run(solver, v.model)
    effort = float(solver.response_proto.deterministic_time)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return "found", _orders(v, solver), effort
    return ("impossible" if status == cp_model.INFEASIBLE else "unknown"), None, effort


def _run(solver: cp_model.CpSolver, model: cp_model.CpModel) -> cp_model.CpSolverStatus:
    """Solve in a thread, so that Ctrl-C reaches the main thread; it stops the solver and is passed on."""
    answer: list[cp_model.CpSolverStatus] = []
    thread = threading.Thread(target=lambda: answer.append(solver.solve(model)), daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.05)
    except KeyboardInterrupt:
        solver.stop_search()
        thread.join()
        raise
    return answer[0]


def _hint(v: Variables, times: Times) -> None:
    origin = min(times.first)
    for queue, starts in enumerate(v.start):
        for k, start in enumerate(starts):
            v.model.add_hint(start, times.ends[queue][k] - v.flat.duration[queue] - origin)


def _orders(v: Variables, solver: cp_model.CpSolver) -> Orders:
    flat = v.flat
    orders: Orders = []
    for queues in flat.queues_of_rank:
        events = []
        for queue in queues:
            for start in v.start[queue]:
                at = solver.value(start)
                events.append((at, at + flat.duration[queue], queue % flat.width, queue))
        orders.append([event[-1] for event in sorted(events)])
    return orders
