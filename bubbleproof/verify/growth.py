"""Figures that grow with the number of blocks of a periodic schedule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Growth"]


@dataclass(frozen=True)
class Growth:
    """A figure as a function of the number n of blocks: the largest of ``level + slope·n`` over the lines.

    Parameters
    ----------
    lines
        (level, slope), the highest line of each slope, by ascending slope.
    """

    lines: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, lines: Iterable[tuple[int, int]]) -> Growth:
        """The largest of any lines (level, slope)."""
        best: dict[int, int] = {}
        for level, slope in lines:
            best[slope] = max(level, best.get(slope, level))
        return cls(tuple((level, slope) for slope, level in sorted(best.items())))

    def at(self, n: int) -> int:
        """The figure for n blocks."""
        return max(level + slope * n for level, slope in self.lines)

    @property
    def slope(self) -> int:
        """What a block adds in the long run; at most 0 if the figure is bounded."""
        return max(slope for _, slope in self.lines)

    def first_above(self, cap: int, least: int) -> int | None:
        """The smallest n ≥ least whose figure is above the cap; None if there is none."""
        if self.at(least) > cap:
            return least
        beyond = [(cap - level) // slope + 1 for level, slope in self.lines if slope > 0]
        return min(beyond, default=None)
