"""Finds schedules and lower bounds. Every schedule that leaves has passed the judge."""

from __future__ import annotations

from bubbleproof.solver.driver import solve
from bubbleproof.solver.every import EveryClass, EveryRecord, EverySolution, solve_every
from bubbleproof.solver.result import FamilyResult, InternalError, Progress, Record, Solution

__all__ = [
    "EveryClass",
    "EveryRecord",
    "EverySolution",
    "FamilyResult",
    "InternalError",
    "Progress",
    "Record",
    "Solution",
    "solve",
    "solve_every",
]
