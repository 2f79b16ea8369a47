"""Repair: the smallest change that makes a schedule or a program safe, found here and proved by the judge."""

from __future__ import annotations

from bubbleproof.solver.repair.change import Change, NoRepair, Repair
from bubbleproof.solver.repair.driver import repair

__all__ = ["Change", "NoRepair", "Repair", "repair"]
