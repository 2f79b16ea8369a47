"""What a consumer model says: how a run ends, and where it goes wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

__all__ = ["OUTCOMES", "Outcome", "Prediction"]

Outcome: TypeAlias = Literal["ok", "wrong", "hang", "crash", "refused"]
"""ok: it ends and trains as an unpipelined model does. wrong: it ends, and gradients, losses or outputs are wrong.
hang: it does not end. crash: an error on some rank. refused: an error when the program is loaded."""

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


@dataclass(frozen=True)
class Prediction:
    """How a run of a program on a runtime ends.

    Parameters
    ----------
    outcome
        How it ends.
    reason
        One sentence: what goes wrong first, and why; empty if all is well.
    rank, position
        Where it shows, if it shows at one place: the rank and the index in its row.
    certain
        False if it depends on when a message arrives: the outcome is then one of several possible ones.
    """

    outcome: Outcome
    reason: str = ""
    rank: int | None = None
    position: int | None = None
    certain: bool = True
