"""Atoms (statements about one variable) and what a set of them leaves of each variable."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["EQ", "GE", "LE", "NE", "Atom", "State"]

GE, LE, EQ, NE = ">=", "<=", "==", "!="

_NEGATIONS = {GE: LE, LE: GE, EQ: NE, NE: EQ}


class Atom(NamedTuple):
    """[variable operator value]."""

    variable: int
    operator: str
    value: int

    def negated(self) -> Atom:
        """What holds if and only if this does not."""
        shift = {GE: -1, LE: 1}.get(self.operator, 0)
        return Atom(self.variable, _NEGATIONS[self.operator], self.value + shift)


class State:
    """For each variable an interval, and values inside it that are excluded.

    Parameters
    ----------
    low, high
        The bounds to begin with; they are shared and not changed.
    """

    __slots__ = ("_high", "_holes", "_low", "failed", "first_high", "first_low")

    def __init__(self, low: list[int], high: list[int]) -> None:
        self.first_low, self.first_high = low, high
        self._low: dict[int, int] = {}
        self._high: dict[int, int] = {}
        self._holes: dict[int, set[int]] = {}
        self.failed = False
        """Whether some variable has no value left."""

    def low(self, variable: int) -> int:
        """The least value left."""
        found = self._low.get(variable)
        return self.first_low[variable] if found is None else found

    def high(self, variable: int) -> int:
        """The greatest value left."""
        found = self._high.get(variable)
        return self.first_high[variable] if found is None else found

    def bounded(self) -> Iterable[int]:
        """The variables about which anything was assumed."""
        return self._low.keys() | self._high.keys()

    def holds(self, atom: Atom) -> bool:
        """Whether an atom is true for every value left."""
        variable, operator, value = atom
        if operator == GE:
            return self.low(variable) >= value
        if operator == LE:
            return self.high(variable) <= value
        low, high = self.low(variable), self.high(variable)
        if operator == EQ:
            return low == high == value
        return value < low or value > high or value in self._holes.get(variable, ())

    def assume(self, atom: Atom) -> None:
        """Take an atom as true."""
        variable, operator, value = atom
        if operator in (GE, EQ) and value > self.low(variable):
            self._low[variable] = value
        if operator in (LE, EQ) and value < self.high(variable):
            self._high[variable] = value
        if operator == NE:
            self._holes.setdefault(variable, set()).add(value)
        low, high = self.low(variable), self.high(variable)
        holes = self._holes.get(variable)
        if holes:
            while low <= high and low in holes:
                low += 1
            while low <= high and high in holes:
                high -= 1
            self._low[variable], self._high[variable] = low, high
        if low > high:
            self.failed = True
