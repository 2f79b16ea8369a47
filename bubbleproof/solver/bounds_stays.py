"""The rule `stays` of docs/bounds.md: finds the weights that give the most.

They are the dual of packing the phases of all microbatches into states that the memory of the rank admits: a linear
program with one row per state. Rows are added as they are violated. `bubbleproof.verify.stays` checks what comes out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import gcd, lcm
from typing import NamedTuple

__all__ = ["Found", "Phase", "Stays", "best_weights"]

_CELLS, _STATES = 1000, 5000
"""Units of memory above which it is counted in larger ones, and the most states of climbing microbatches (both part
of the rule)."""

_PIVOTING = 50
"""Steps of a round of the simplex, per square of its rows."""


class Phase(NamedTuple):
    """A part of the stay of a microbatch."""

    route: int
    kind: str
    """``up``, ``top``, ``down`` or ``W``."""
    memory: int
    length: int
    n: int


class Stays:
    """The states of one rank.

    Parameters
    ----------
    phases
        In the order of the rule; those of a climb are followed by the top of their route.
    room
        The cap less the static part.
    """

    def __init__(self, phases: Sequence[Phase], room: int) -> None:
        unit = gcd(*(x.memory for x in phases)) or 1
        if room // unit > _CELLS:
            unit = -(-room // _CELLS)
        self.phases, self.room = phases, room // unit
        self.memory = [x.memory // unit for x in phases]
        self.ups = [i for i, x in enumerate(phases) if x.kind == "up"]
        self.others = [i for i, x in enumerate(phases) if x.kind != "up" and self.memory[i]]
        size = 1
        for i in self.ups:
            size *= 1 + min(phases[i].n, self.room // self.memory[i] if self.memory[i] else phases[i].n)
        self.climbs = self._climbs() if size <= _STATES else None
        self.cost = self.room * len(self.others) + (len(self.climbs or ()) * (1 + len(self.ups)))
        """Steps that `fullest` takes, about."""

    def _climbs(self) -> dict[tuple[int, ...], int]:
        """Each safe state of climbing microbatches, found backwards from the empty one, with its memory."""
        place = {i: k for k, i in enumerate(self.ups)}
        found = {(0,) * len(self.ups): 0}
        todo = list(found)
        while todo:
            state = todo.pop()
            memory = found[state]
            for k, i in enumerate(self.ups):
                onward = place.get(i + 1)  # the next phase of the same climb; else the top comes next
                before = list(state)
                if onward is None:
                    in_climb = sum(state[place[j]] for j in self.ups if self.phases[j].route == self.phases[i].route)
                    if in_climb == self.phases[i].n or memory + self.memory[i + 1] > self.room:
                        continue
                elif not before[onward]:
                    continue
                else:
                    before[onward] -= 1
                before[k] += 1
                grown = memory + self.memory[i] - (0 if onward is None else self.memory[onward])
                key = tuple(before)
                if key not in found and grown <= self.room:
                    found[key] = grown
                    todo.append(key)
        return found

    def fullest(self, weights: Sequence[int]) -> tuple[int, list[int]]:
        """The most weight of a state, and that state."""
        best, taken = [0] * (self.room + 1), [-1] * (self.room + 1)
        items = [(self.memory[i], weights[i], i) for i in self.others if weights[i]]
        for cell in range(1, self.room + 1):
            most, which = best[cell - 1], -1
            for memory, weight, i in items:
                if memory <= cell and best[cell - memory] + weight > most:
                    most, which = best[cell - memory] + weight, i
            best[cell], taken[cell] = most, which
        of_ups = [weights[i] for i in self.ups]
        most, climb = -1, None
        for state, memory in (self.climbs or {}).items():
            value = best[self.room - memory] + sum(map(int.__mul__, state, of_ups))
            if value > most:
                most, climb, cell = value, state, self.room - memory
        row = [0] * len(self.phases)
        for i, count in zip(self.ups, climb or (), strict=True):
            row[i] = count
        while cell:
            if taken[cell] < 0:
                cell -= 1
            else:
                row[taken[cell]] += 1
                cell -= self.memory[taken[cell]]
        return most, row

    def alone(self) -> Iterator[list[int]]:
        """For each phase the state with as many microbatches in it, and in no other, as there can be."""
        for i in (*self.ups, *self.others):
            row = [0] * len(self.phases)
            if i in self.ups:
                k = self.ups.index(i)
                row[i] = max(state[k] for state in self.climbs or {} if sum(state) == state[k])
            else:
                row[i] = self.room // self.memory[i]
            if row[i]:
                yield row


def _maximise(value: Sequence[int], rows: Sequence[Sequence[int]]) -> list[Fraction]:
    """The y ≥ 0 with value · y greatest and row · y ≤ 1 for each row, where the rows bound each y (simplex, Bland)."""
    n, m = len(value), len(rows)
    table = [
        [Fraction(x) for x in row] + [Fraction(int(i == k)) for k in range(m)] + [Fraction(1)]
        for i, row in enumerate(rows)
    ]
    goal = [Fraction(-v) for v in value] + [Fraction(0)] * (m + 1)
    basis = list(range(n, n + m))
    while (column := next((j for j in range(n + m) if goal[j] < 0), None)) is not None:
        ratios = [(row[-1] / row[column], basis[i], i) for i, row in enumerate(table) if row[column] > 0]
        _, _, pivot = min(ratios)
        basis[pivot] = column
        factor = table[pivot][column]
        table[pivot] = [x / factor if x else x for x in table[pivot]]
        nonzero = [(j, x) for j, x in enumerate(table[pivot]) if x]
        for row in (*table[:pivot], *table[pivot + 1 :], goal):
            if factor := row[column]:
                for j, x in nonzero:
                    row[j] -= factor * x
    found = [Fraction(0)] * n
    for i, j in enumerate(basis):
        if j < n:
            found[j] = table[i][-1]
    return found


class Found(NamedTuple):
    """Weights, what they give, and about how many steps it took to find them; no weights if they are of no use."""

    value: int
    weights: list[int]
    steps: int
    last: bool
    """Whether some W has a weight."""


def best_weights(states: Stays, least: int, most_steps: int, *, with_last: bool) -> Found:
    """Weights for which the weight of all microbatches times time, over the most weight at once, is greatest.

    Parameters
    ----------
    least
        What is not above it is of no use; the search ends when no more can come.
    most_steps
        When to end the search anyhow.
    with_last
        Whether W may have weights.
    """
    use = [
        i
        for i, x in enumerate(states.phases)
        if x.n * x.length and (with_last or x.kind != "W") and (states.memory[i] or x.kind == "up")
    ]
    rows = list(states.alone()) if states.climbs is not None else []
    use = [i for i in use if any(row[i] for row in rows)]
    best, chosen, steps = 0, list[int](), 0
    area = [states.phases[i].n * states.phases[i].length for i in use]
    while use and steps < most_steps:
        found = _maximise(area, [[row[i] for i in use] for row in rows])
        if sum(map(Fraction.__mul__, found, map(Fraction, area))) <= max(best, least):
            break
        scale = lcm(*(y.denominator for y in found))
        weights = [0] * len(states.phases)
        for i, y in zip(use, found, strict=True):
            weights[i] = int(y * scale)
        most, row = states.fullest(weights)
        steps += states.cost + _PIVOTING * len(rows) ** 2
        value = -(-sum(weights[i] * x for i, x in zip(use, area, strict=True)) // most)
        if value > best:
            common = gcd(*weights)
            best, chosen = value, [x // common for x in weights]
        if most <= scale:
            break
        rows.append(row)
    last = any(weight for weight, x in zip(chosen, states.phases, strict=False) if x.kind == "W")
    return Found(best, chosen, steps, last)
