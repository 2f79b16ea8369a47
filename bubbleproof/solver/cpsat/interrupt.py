"""CP-SAT in the main thread and Ctrl-C."""

from __future__ import annotations

import threading

from ortools.sat.python import cp_model

__all__ = ["solve_interruptibly"]


def solve_interruptibly(solver: cp_model.CpSolver, model: cp_model.CpModel) -> cp_model.CpSolverStatus:
    """Solve a model so that Ctrl-C stops CP-SAT and raises KeyboardInterrupt here.

    CP-SAT's own way with SIGINT is switched off: it does not tell Python, and afterwards it leaves the signal with the
    system's default, so that the next Ctrl-C would kill the process.
    """
    solver.parameters.catch_sigint_signal = False
    found: list[cp_model.CpSolverStatus | BaseException] = []

    def run() -> None:
        try:
            found.append(solver.solve(model))
        except BaseException as error:  # it is raised again in the main thread
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        thread.join()
    except KeyboardInterrupt:
        solver.stop_search()
        thread.join()
        raise
    (answer,) = found
    if isinstance(answer, BaseException):
        raise answer
    return answer
