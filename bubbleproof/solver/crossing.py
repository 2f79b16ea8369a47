"""The bound from the patterns of crossings, raised step by step: see the rule `crossing` of docs/bounds.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bubbleproof.schedules.instance import Instance
from bubbleproof.verify.certificate import Certificate
from bubbleproof.verify.crossing import Crossings, TooManyStates, crossings
from bubbleproof.verify.normal_form import Refused, Step

__all__ = ["Rising", "kept", "places"]

_PARTS = 8
"""In how many steps the way from bound to best schedule is gone; each one costs about twice the one before."""

_TRIES = 4
"""A question may take this part of the comparisons; if it takes more, a lower length is asked about."""


class Rising:
    """The rule at one place, and how far it has been followed.

    Parameters
    ----------
    instance
        Any instance.
    rank, via
        Where the rule is applied, and what is bounded: a rank's span, or (−1) the makespan.
    kept
        The microbatches whose meetings count; () for all.

    Attributes
    ----------
    bound
        The greatest bound known from the rule at this place.
    exhausted
        Whether the rule gives no more here.
    compared
        Comparisons of states made so far.

    Raises
    ------
    Refused
        The rule does not apply there.
    """

    def __init__(self, instance: Instance, rank: int, via: int, kept: Sequence[int] = ()) -> None:
        step = Step(instance)
        self.objective = instance.objective
        self.rank, self.via, self.windows = rank, via, tuple(kept)
        self.kept: Sequence[int] = self.windows or range(instance.microbatches)
        self.crossings: Crossings = crossings(step, rank)
        (own,) = step.shares(rank).values()
        tail = step.tail(rank, via)
        self.rest = step.head(rank, via) + self.crossings.trip + (max(tail, own.w) if via in (-1, rank) else tail)
        self.bound = self.rest + self.crossings.later(self.kept)[0]
        self.exhausted = False
        self.compared = 0

    def ask(self, length: int, most: int) -> bool:
        """Whether the rule decides if it excludes `length`, within so many comparisons; the bound is kept."""
        try:
            found, compared = self.crossings.least(self.kept, length - self.rest, most)
        except TooManyStates:
            self.compared += most
            return False
        self.compared += compared
        self.exhausted = found is not None
        self.bound = max(self.bound, length + 1 if found is None else found + self.rest)
        return True

    def rise(self, low: int, high: int, most: int) -> Iterator[Certificate]:
        """Better and better bounds from `low` on, until one reaches `high` or so many comparisons were made."""
        end = self.compared + most
        stride = max(1, (high - low) // _PARTS)
        low = max(low, self.bound)
        while low < high and not self.exhausted and self.compared < end:
            length = min(low + stride, high) - 1
            if self.ask(length, min(end - self.compared, most // _TRIES)):
                low = max(low, self.bound)
                yield self.certificate
            elif stride == 1:
                return
            else:
                stride = max(1, stride // 2)

    @property
    def certificate(self) -> Certificate:
        """The bound so far, for the checker."""
        return Certificate(
            rule="crossing",
            objective=self.objective,
            value=self.bound,
            rank=self.rank,
            via=self.via,
            windows=self.windows,
        )


def kept(microbatches: int, cap: int) -> Iterator[tuple[int, ...]]:
    """Microbatches whose meetings give most of the bound, few first: 2, 3, … of each `cap` that may be in flight.

    With all of them many ranks have more patterns than can be gone through. Those left out wait for nothing.
    """
    for parts in range(2, cap):
        places = {i * cap // parts for i in range(parts)}
        yield tuple(j for j in range(microbatches) if j % cap in places or j == microbatches - 1)


def places(instance: Instance) -> list[Rising]:
    """Where the rule applies, the most promising place first."""
    found = []
    for rank in range(instance.ranks):
        for via in (-1,) if instance.objective == "makespan" else range(rank + 1):
            try:
                found.append(Rising(instance, rank, via))
            except Refused:
                continue
    return sorted(found, key=lambda place: -place.bound)
