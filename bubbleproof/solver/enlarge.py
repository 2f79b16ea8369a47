"""Schedules for many microbatches from few: what repeats in a good schedule of a small instance is repeated more often.

The time to a good schedule then does not depend on m, and neither does its quality: where the bound is met with few
microbatches it is met with many, if both grow by the same for each further microbatch. Nothing is lost where that
fails: the enlarged orders are candidates like all others, timed and compared on the instance that was asked for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from math import lcm

from bubbleproof.schedules.instance import Instance
from bubbleproof.solver.budget import Budget, OutOfBudget
from bubbleproof.solver.flat import Flat, Orders
from bubbleproof.solver.heuristics import Knobs
from bubbleproof.solver.periodic import Words, cut_period, find_period
from bubbleproof.solver.search import Search
from bubbleproof.solver.tuning import grid

__all__ = ["FURTHER", "Repeating", "Small", "enlarge", "in_flight", "settle", "small_instance"]

_WORTH = 2
"""The instance must have so many times the microbatches of the small one."""

FURTHER = 3
"""How many times the microbatches of the small instance are added where that did not lead to the bound."""

_STEPS = 6
"""Most microbatches per block that are looked for."""


_MUCH = 3
"""What repeats for one in so many microbatches is taken to be the period; shorter stretches may repeat by chance."""


def in_flight(flat: Flat) -> int:
    """About the most microbatches that a stage has begun and not ended, in a schedule that fits and is not wasteful."""
    most = 2 * flat.instance.stages
    if flat.cap is None:
        return most
    found = 1
    for queue in range(0, len(flat.rank), flat.width):
        take, room = flat.change[queue], flat.cap[flat.rank[queue]]
        found = max(found, min(most, room // take) if take > 0 else most)
    return found


def small_instance(instance: Instance, flat: Flat, modulus: int = 1) -> Instance | None:
    """The same with few microbatches, congruent modulo what bounds and blocks count in; None if it would not be small.

    Three times the microbatches in flight: warm-up, some that repeat, cool-down.
    """
    if instance.costs.varying or instance.memory.varying:
        return None  # microbatches differ: there is no smaller number of the same
    most = in_flight(flat)
    routes = len(flat.microbatches)
    step = lcm(most, modulus) if routes == 1 else lcm(most, modulus, routes)
    least = 3 * most
    m = least + (instance.microbatches - least) % step
    if m * _WORTH > instance.microbatches:
        return None
    small = instance.with_(microbatches=m)
    if routes > 1 and instance.with_(microbatches=instance.microbatches) != instance:
        return None  # microbatches are not dealt out to the routes in the usual way
    return small


class Repeating(Search):
    """A search that looks for what repeats in the orders it finds.

    Parameters
    ----------
    steps
        The numbers of microbatches of each route that a block may add, in the order in which they are tried.
    """

    def __init__(
        self, instance: Instance, budget: Budget, seed: int, workers: int, steps: Sequence[int] = range(1, _STEPS + 1)
    ) -> None:
        super().__init__(instance, budget, seed, workers, None)
        self.steps = steps
        self.least: int | None = None
        """The best objective of orders that repeat."""
        self.warm: int | None = None
        """From which microbatch on every kind of op is known to repeat; None if it is not known."""
        self.longest = False
        """Whether of several steps the one counts that repeats most, and not the first that repeats."""
        self.taken: list[Words] = []
        """Words that were of use, the best last."""

    def quickly(self) -> tuple[int, Knobs] | None:
        """As `Search.quickly`, but one microbatch at a time comes last, and only if nothing else repeats."""
        try:
            return self.greedily()
        finally:
            if self.least is None:
                self.one_at_a_time()

    def attempt(self, knobs: Knobs) -> int | None:
        """As `Search.attempt`; and if the best value is reached, but nothing repeats, once more with fewer W that wait.

        Weight gradients that may wait as long as memory allows fill it up slowly: it takes many microbatches before
        anything repeats.
        """
        value = super().attempt(knobs)
        if value is not None and value <= self.bound and self.least != value:
            most = 2 * self.flat.ranks
            super().attempt(replace(knobs, hold=tuple(min(most, hold) for hold in knobs.hold)))
        return value

    def offer(self, orders: Orders | None, source: str) -> int | None:
        """As `Search.offer`, and hand on what repeats if it is better than before."""
        value = super().offer(orders, source)
        if orders is not None and value is not None and (self.least is None or value < self.least):
            words = self.words(orders)
            if words is not None and self.take(words, source):
                self.least = value
                self.taken.append(words)
        return value

    def words(self, orders: Orders) -> Words | None:
        """The words of orders; None if they do not repeat."""
        routes = len(self.flat.microbatches)
        if self.warm is not None:
            words = cut_period(self.flat, orders, (self.steps[0],) * routes, self.warm)
            if words is not None:
                return words
        best: Words | None = None
        for step in self.steps:
            words = find_period(self.flat, orders, (step,) * routes)
            if words is not None and (best is None or words.period * words.rounds > best.period * best.rounds):
                best = words
                if not self.longest or words.period * words.rounds * _MUCH >= self.instance.microbatches:
                    break  # a longer step would only say the same
        return best

    def take(self, words: Words, source: str) -> bool:
        """Use words; whether they could be used."""
        raise NotImplementedError


class Small(Repeating):
    """A search on a small instance for the sake of a large one: what repeats in its orders is offered to that.

    Parameters
    ----------
    outer
        The search on the large instance.
    steps
        Left out, the usual few and as many as are in flight.
    """

    def __init__(self, instance: Instance, budget: Budget, outer: Search, steps: Sequence[int] = ()) -> None:
        flight = in_flight(outer.flat)
        usual = [*range(1, _STEPS + 1), *([flight] if flight > _STEPS else [])]
        super().__init__(instance, budget, outer.seed, outer.workers, steps or usual)
        self.outer = outer
        self.counts = tuple(map(len, outer.flat.microbatches))
        self.best: tuple[Words, int, str] | None = None
        """The best that repeats, for the large instance, and where it comes from, until it is offered."""

    @property
    def done(self) -> bool:
        """Whether there is nothing more to be had from this instance."""
        return self.outer.done or (super().done and self.least == self.value)

    def take(self, words: Words, source: str) -> bool:
        """Keep words that lead to the large instance, and offer them there at once if they are optimal here."""
        n = words.blocks(self.counts)
        if n is None:
            return False
        self.best = words, n, f"{source}, enlarged from {self.instance.microbatches} microbatches"
        if super().done:
            self.hand_over()
        return True

    def hand_over(self) -> None:
        """Offer the best that repeats for the large instance; timing that takes longer than finding it here."""
        if self.best is not None:
            self.outer.offer_words(*self.best)
            self.best = None


def enlarge(search: Search) -> Sequence[Words]:
    """Offer schedules of a small instance, enlarged; does nothing where the instance is itself small.

    Returns
    -------
    sequence of Words
        What repeats in them.

    Raises
    ------
    OutOfBudget
        The budget of `search` is used up.
    """
    instance = small_instance(search.instance, search.flat)
    if instance is None:
        return ()
    budget = search.budget
    small = Small(instance, Budget(budget.left / 4, budget.effort_left / 4), search)
    with contextlib.suppress(OutOfBudget):
        small.quickly()
    small.hand_over()
    budget.spend(small.budget.used)
    taken = small.taken
    more = FURTHER * 3 * in_flight(search.flat)
    if not search.done and _WORTH * (instance.microbatches + more) <= search.instance.microbatches:
        # under a tight cap what repeats may begin late
        larger = instance.with_(microbatches=instance.microbatches + more)
        further = Small(larger, Budget(budget.left / 4, budget.effort_left / 4), search)
        further.longest = True
        with contextlib.suppress(OutOfBudget):
            further.first(list(grid(further.flat)))
        further.hand_over()
        budget.spend(further.budget.used)
        taken = [*taken, *further.taken]
    return taken


def settle(search: Search, taken: Sequence[Words] = ()) -> None:
    """Offer schedules whose warm-up and cool-down CP-SAT has fitted around what repeats; see `solver.settle`.

    Parameters
    ----------
    taken
        Words to begin with; if there are none, those of the best schedule so far.

    Raises
    ------
    OutOfBudget
        The budget of `search` is used up.
    """
    from bubbleproof.solver.settle import settle_words

    flat, orders = search.flat, search.orders
    if not taken and orders is not None and len(flat.microbatches) == 1:
        steps = {*range(1, _STEPS + 1), in_flight(flat)}
        taken = [words for words in (find_period(flat, orders, (step,)) for step in sorted(steps)) if words is not None]
    made: list[Small] = []

    def make(instance: Instance, budget: Budget, step: int) -> Small:
        made.append(Small(instance, budget, search, (step,)))
        return made[-1]

    budget = search.budget
    share = Budget(budget.left / 4, budget.effort_left / 4)
    with contextlib.suppress(OutOfBudget):
        settle_words(flat, taken, share, make, search.instance.microbatches, {})
    for small in made:
        small.hand_over()
    budget.spend(share.used)
