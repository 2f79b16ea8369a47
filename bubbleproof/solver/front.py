"""The trade of memory against time: what is known about every cap at once.

One number x stands for the caps of all ranks (`CapRule`). A schedule whose peaks fit under x fits under every larger
cap, and a bound proved under x holds under every smaller cap, because fewer schedules are allowed there. So each
schedule found and each bound proved, wherever it was sought, counts for all caps on its side, and nothing is lost.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import gcd
from typing import NamedTuple

from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.solver.bounds import lower_bounds
from bubbleproof.solver.result import Level
from bubbleproof.verify.certificate import Certificate

__all__ = ["CapRule", "Evidence", "Found", "Front", "Interval", "Point", "attainable"]

_STRENGTH: dict[Level, int] = {"open": 0, "solver-claimed": 1, "proof-checked": 2, "certified": 3}

_MOST_LEVELS = 4000
"""Levels of memory looked at between the least cap and the largest that matters; of more, an even choice."""


@dataclass(frozen=True)
class CapRule:
    """How one number x stands for the caps of all ranks: rank r may hold ``x + offsets[r]``.

    If all ranks of the instance have the same cap, or none has one, every offset is 0: the same cap everywhere. Else
    the caps of the instance are shifted together: x is the largest of them, and every rank keeps its distance to it.
    """

    offsets: tuple[int, ...]

    @classmethod
    def of(cls, instance: Instance) -> CapRule:
        """The rule of an instance."""
        cap = instance.memory.cap
        if cap is None:
            return cls((0,) * instance.ranks)
        return cls(tuple(most - max(cap) for most in cap))

    def at(self, instance: Instance, cap: int | None) -> Instance:
        """The instance under x = cap; None for no cap."""
        return instance.with_cap(None if cap is None else tuple(cap + offset for offset in self.offsets))

    def reach(self, peaks: tuple[int, ...]) -> int:
        """The least x under which peaks of memory (static part included, one per rank) fit."""
        return max(peak - offset for peak, offset in zip(peaks, self.offsets, strict=True))

    def least(self, instance: Instance) -> int:
        """The least x under which a schedule exists: one microbatch at a time must fit."""
        return self.reach(tuple(instance.least_cap(rank) for rank in range(instance.ranks)))


class Found(NamedTuple):
    """A schedule, the least x under which it fits, and its objective."""

    reach: int
    value: int
    peak: tuple[int, ...]
    source: str
    schedule: Schedule


class Evidence(NamedTuple):
    """A bound that holds under every cap up to `cap` (None: under all)."""

    cap: int | None
    bound: int
    level: Level
    proof: str
    certificate: Certificate | None


class Point(NamedTuple):
    """What is known under one cap.

    Parameters
    ----------
    cap
        x; for a corner of the front the least x under which its schedule fits.
    least
        Whether no schedule of this value exists under a smaller cap, by the bounds known.
    """

    cap: int
    found: Found
    evidence: Evidence
    level: Level
    least: bool


class Interval(NamedTuple):
    """Caps ``low … high − 1`` (high None: all from low on), the best value under all, and a bound for all of them."""

    low: int
    high: int | None
    value: int
    bound: int

    @property
    def open(self) -> bool:
        """Whether a better schedule may exist somewhere in it."""
        return self.value > self.bound


@dataclass
class Front:
    """Schedules and bounds, and what follows from them for each cap.

    Parameters
    ----------
    instance
        Without a cap; the rule gives it one.
    found
        Schedules of which none is beaten by another both in memory and in objective, by ascending reach.
    evidence
        All bounds that were proved.
    """

    instance: Instance
    rule: CapRule
    found: list[Found] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)
    _formulas: dict[int | None, Evidence] = field(default_factory=dict)

    @cached_property
    def least(self) -> int:
        """The least x under which a schedule exists."""
        return self.rule.least(self.instance)

    def at(self, cap: int | None) -> Instance:
        """The instance under x = cap."""
        return self.rule.at(self.instance, cap)

    def add(self, new: Found) -> bool:
        """Take a schedule unless one at hand is as good in both respects; whether it was taken."""
        if any(old.reach <= new.reach and old.value <= new.value for old in self.found):
            return False
        kept = [old for old in self.found if old.reach < new.reach or old.value < new.value]
        self.found = sorted([*kept, new], key=lambda one: one.reach)
        return True

    def best(self, cap: int | None) -> Found | None:
        """The best schedule known that fits under x = cap."""
        fitting = [one for one in self.found if cap is None or one.reach <= cap]
        return fitting[-1] if fitting else None

    def bound(self, cap: int | None) -> Evidence:
        """The strongest bound known under x = cap: of a formula for this very cap, or proved under a larger one."""
        holding = [one for one in self.evidence if one.cap is None or (cap is not None and one.cap >= cap)]
        return max([self.formula(cap), *holding], key=lambda one: (one.bound, _STRENGTH[one.level]))

    def formula(self, cap: int | None) -> Evidence:
        """The best closed-form bound under x = cap."""
        if cap not in self._formulas:
            best = lower_bounds(self.at(cap))[0]
            self._formulas[cap] = Evidence(cap, best.value, "certified", best.rule, best)
        return self._formulas[cap]

    def point(self, cap: int) -> Point | None:
        """What is known under x = cap; None if no schedule is."""
        found = self.best(cap)
        if found is None:
            return None
        evidence = self.bound(cap)
        level = evidence.level if evidence.bound >= found.value else "open"
        below = cap - 1
        least = found.reach == cap and (below < self.least or self.bound(below).bound > found.value)
        return Point(cap, found, evidence, level, least)

    def points(self) -> list[Point]:
        """The corners of the front, by ascending cap and descending value."""
        points = (self.point(one.reach) for one in self.found)
        return [point for point in points if point is not None]

    def intervals(self) -> list[Interval]:
        """All caps from the least on, cut wherever the best value or a bound changes."""
        edges = {self.least}
        edges |= {one.reach for one in self.found}
        edges |= {one.cap + 1 for one in self.evidence if one.cap is not None}
        cuts = sorted(edge for edge in edges if edge >= self.least)
        found = []
        for low, high in zip(cuts, [*cuts[1:], None], strict=True):
            best = self.best(low)
            if best is not None:
                bound = self.bound(None if high is None else high - 1).bound
                found.append(Interval(low, high, best.value, min(bound, best.value)))
        return found

    @property
    def closed(self) -> bool:
        """Whether the value under every cap is proved best."""
        return bool(self.found) and not any(interval.open for interval in self.intervals())

    def next_cap(self, asked: set[int | None]) -> int | None:
        """The cap that promises most: in the middle of the widest range with the largest gap.

        The ranges are compared by width times gap relative to the value. Between two levels that a rank can hold, all
        caps allow the same schedules, so the largest of them is asked; a bound proved there holds for all. None if
        nothing new is worth asking.
        """
        widths = sorted(
            (i for i in self.intervals() if i.open and i.high is not None),
            key=lambda i: Fraction(((i.high or 0) - i.low) * (i.bound - i.value), i.value),
        )
        for interval in widths:
            caps = [cap for cap in self._cells(interval) if cap not in asked]
            if caps:
                return caps[len(caps) // 2]
        return None

    def _cells(self, interval: Interval) -> list[int]:
        """The largest cap of each set of caps of an interval that allow the same schedules."""
        if interval.high is None:
            return []
        levels = self._levels
        inside = levels[bisect_right(levels, interval.low) : bisect_left(levels, interval.high)]
        return [level - 1 for level in (*inside, interval.high)]

    @cached_property
    def _levels(self) -> list[int]:
        return attainable(self.instance, self.rule)


def attainable(instance: Instance, rule: CapRule) -> list[int]:
    """Values of x at which some rank can just hold one more combination of open microbatches, ascending.

    A microbatch of a stage is open with all that F took, or with what is left for W. The list only chooses which caps
    are worth asking; of very many levels it has an even selection.
    """
    levels: set[int] = set()
    memory = instance.memory
    for rank in range(instance.ranks):
        sums = {memory.static[rank] - rule.offsets[rank]}
        for route, stages in enumerate(instance.placement.routes):
            count = instance.route_of_microbatch.count(route)
            for stage in (s for s, r in enumerate(stages) if r == rank):
                sums = _combined(sums, memory.F[stage], memory.F[stage] + memory.B[stage], count)
        levels |= sums
    return _thinned(levels)


def _combined(sums: set[int], whole: int, rest: int, count: int) -> set[int]:
    """Sums with up to `count` microbatches of one more stage, each open as a whole or with its rest."""
    rests = rest not in (0, whole)
    amounts = {a * whole + b * rest for a in range(count + 1) for b in range(count + 1 - a if rests else 1)}
    if len(sums) * len(amounts) <= 40 * _MOST_LEVELS:
        return {s + a for s in sums for a in amounts}
    step = gcd(whole, rest, *(s - min(sums) for s in sums))  # every multiple, which is a few too many
    low, high = min(sums) + min(amounts), max(sums) + max(amounts)
    return set(range(low, high + 1, max(step, (high - low) // _MOST_LEVELS // step * step)))


def _thinned(levels: set[int]) -> list[int]:
    ordered = sorted(levels)
    return ordered[:: -(-len(ordered) // _MOST_LEVELS)]
