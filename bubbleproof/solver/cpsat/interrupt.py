"""CP-SAT in the main thread and Ctrl-C."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from ortools.sat.python import cp_model

__all__ = ["interruptibly", "solve_interruptibly"]

_T = TypeVar("_T")


def interruptibly(run: Callable[[], _T], stop: Callable[[], None]) -> _T:
    """What `run` returns, called in a thread, so that Ctrl-C calls `stop`, which ends it, and raises KeyboardInterrupt.

    CP-SAT's own way with SIGINT must be switched off: it does not tell Python, and afterwards it leaves the signal with
    the system's default, so that the next Ctrl-C would kill the process.
    """
    found: list[_T] = []
    failed: list[BaseException] = []

    def call() -> None:
        try:
            found.append(run())
        except BaseException as error:  # it is raised again in the main thread
            failed.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    try:
        thread.join()
    except KeyboardInterrupt:
        stop()
        thread.join()
        raise
    if failed:
        raise failed[0]
    return found[0]


def solve_interruptibly(solver: cp_model.CpSolver, model: cp_model.CpModel) -> cp_model.CpSolverStatus:
    """Solve a model so that Ctrl-C stops CP-SAT and raises KeyboardInterrupt here."""
    solver.parameters.catch_sigint_signal = False
    return interruptibly(lambda: solver.solve(model), solver.stop_search)
