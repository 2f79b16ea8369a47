"""How long a search may go on."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic
from typing import Literal

__all__ = ["OPS_PER_EFFORT", "Budget", "OutOfBudget"]

OPS_PER_EFFORT = 300_000
"""Ops that the greedy places and times per unit of effort; about a second on a common machine."""


class OutOfBudget(Exception):  # a signal inside the search, not an error
    """The time or the effort is used up."""


@dataclass
class Budget:
    """Wall time and, with one worker, deterministic effort: whichever ends first ends the search.

    Effort counts work done (ops placed by the greedy, CP-SAT's deterministic time), so a search that ends by effort or
    by proof is the same on every run. Only a wall limit that cuts earlier makes a difference.
    """

    seconds: float
    effort: float | None
    begun: float = field(default_factory=monotonic)
    used: float = 0.0
    ended: Literal["effort", "time"] | None = None

    @property
    def elapsed(self) -> float:
        """Seconds since the solve began."""
        return monotonic() - self.begun

    @property
    def left(self) -> float:
        """Seconds left."""
        return max(0.0, self.seconds - self.elapsed)

    @property
    def effort_left(self) -> float:
        """Effort left; without a limit, a large number."""
        return 1e9 if self.effort is None else max(0.0, self.effort - self.used)

    def spend(self, effort: float = 0.0) -> None:
        """Count effort.

        Raises
        ------
        OutOfBudget
            Nothing is left.
        """
        self.used += effort
        if self.effort is not None and self.used > self.effort:
            self.ended = "effort"
        elif self.elapsed > self.seconds:
            self.ended = "time"
        else:
            return
        raise OutOfBudget
