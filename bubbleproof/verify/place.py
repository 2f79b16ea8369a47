"""Where a slot stands."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Place"]


class Place(NamedTuple):
    """A position in the order of a rank."""

    rank: int
    position: int
