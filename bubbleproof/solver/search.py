"""The search: a greedy answer at once, published families, hill climbing, then CP-SAT; no bound is ever lost."""

from __future__ import annotations

import random
from itertools import count
from typing import TYPE_CHECKING

from bubbleproof.schedules.errors import ScheduleError
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import Timeline, replay
from bubbleproof.solver.bounds import lower_bounds
from bubbleproof.solver.budget import OPS_PER_EFFORT, Budget
from bubbleproof.solver.flat import Flat, Orders, Times, least_span, peaks, replay_flat
from bubbleproof.solver.heuristics import Knobs, fused_one_at_a_time, greedy, one_at_a_time, reserves
from bubbleproof.solver.measure import plain_is_best, timeline_of
from bubbleproof.solver.published import compare_families, judge_family
from bubbleproof.solver.raising import raise_by_crossings, raise_by_stays
from bubbleproof.solver.result import FamilyResult, OnProgress, Progress, Proved
from bubbleproof.solver.resume import Keeper
from bubbleproof.solver.tuning import grid, neighbour
from bubbleproof.verify.certificate import Certificate

if TYPE_CHECKING:
    from bubbleproof.solver.grown import Grown
    from bubbleproof.solver.periodic import Words

__all__ = ["Search"]

_WHOLE_MODEL = 8000
"""Ops up to which CP-SAT is asked about the whole instance; above, hill climbing goes on."""


class Search:
    """The state of one solve: best schedule, best bound, and what produced them."""

    def __init__(
        self, instance: Instance, budget: Budget, seed: int, workers: int, on_progress: OnProgress | None
    ) -> None:
        self.instance, self.budget, self.seed, self.workers = instance, budget, seed, workers
        self.on_progress = on_progress
        self.flat = Flat(instance)
        self.reserve = reserves(self.flat)
        self._orders: Orders | None = None
        self.grown: Grown | None = None
        """The best schedule, if it was written down from few microbatches and has been judged."""
        self.family: Schedule | None = None
        self.value: int | None = None
        self.source = ""
        self.families: list[FamilyResult] = []
        self.certificate: Certificate | None = max(
            (c for c in lower_bounds(instance) if c.objective == instance.objective or c.objective == "span"),
            key=lambda c: c.value,
            default=None,
        )
        self.choices = "what a schedule may choose (recompute, fused backwards, pairs) was not searched"
        """How well the choices beside the order were searched, for the record."""
        self.bound = self.certificate.value if self.certificate else 0
        self.met = False
        """Whether patterns of meetings were tried."""
        self.crossed = False
        """Whether the rule `crossing` has been asked."""
        self.proof: str = self.certificate.rule if self.certificate else "none"
        self.proved: Proved | None = None
        self.proof_lines: tuple[str, ...] | None = None
        self.extra_notes: list[str] = []
        self.keeper: Keeper | None = None

    @property
    def orders(self) -> Orders | None:
        """The orders of the best schedule; None if it is none of queues."""
        if self._orders is None and self.grown is not None:
            self._orders = self.grown.orders
        return self._orders

    @orders.setter
    def orders(self, orders: Orders | None) -> None:
        self._orders, self.grown = orders, None

    @property
    def done(self) -> bool:
        """Whether the best schedule is proved optimal."""
        return self.value is not None and self.value <= self.bound

    def report(self, source: str) -> None:
        """Tell the caller about a better schedule or bound."""
        if self.on_progress is not None:
            self.on_progress(Progress(int(self.budget.elapsed * 1000), self.value, self.bound, source))
        if self.keeper is not None:
            self.keeper.improved()

    def measure(self, orders: Orders, flat: Flat | None = None) -> int | None:
        """The objective of orders; None if they deadlock."""
        times = self.times(orders, flat)
        if times is None:
            return None
        return times.span if self.instance.objective == "span" else times.makespan

    def times(self, orders: Orders, flat: Flat | None = None) -> Times | None:
        """The times by which orders are judged; None if they deadlock."""
        flat = flat or self.flat
        return least_span(flat, orders) if self.instance.objective == "span" else replay_flat(flat, orders)

    def fits(self, orders: Orders) -> bool:
        """Whether orders keep every cap."""
        cap = self.flat.cap
        return cap is None or all(have <= most for have, most in zip(peaks(self.flat, orders), cap, strict=True))

    def accept(
        self,
        value: int,
        source: str,
        *,
        orders: Orders | None = None,
        family: Schedule | None = None,
        grown: Grown | None = None,
    ) -> None:
        """Take what fits and has this objective as the best, in one of its three forms, if it is better."""
        if self.value is None or value < self.value:
            self.orders, self.family, self.value, self.source = orders, family, value, source
            self.grown = grown
            self.report(source)

    def offer(self, orders: Orders | None, source: str) -> int | None:
        """Take orders as the best if they are; returns their objective, None if they cannot run or exceed a cap."""
        if orders is None or not self.fits(orders):
            return None
        value = self.measure(orders)
        if value is not None:
            self.accept(value, source, orders=orders)
        return value

    def offer_words(self, words: Words, n: int, source: str) -> None:
        """Offer `n` blocks of words, without an object for any op where that can be done."""
        from bubbleproof.solver.grown import grow

        found = grow(self.flat, words, n, source)
        if found is None:
            self.offer(words.orders(n), source)
            return
        self.accept(found.value(self.instance.objective), source, grown=found)

    def offer_schedule(self, schedule: Schedule, source: str) -> int | None:
        """Take a schedule as the best if it is; returns its objective, None if it cannot run or exceeds a cap."""
        try:
            timeline = timeline_of(schedule, self.instance)
        except ScheduleError:
            return None
        cap = self.instance.memory.cap
        if cap is not None and any(peak.memory > most for peak, most in zip(timeline.peaks, cap, strict=True)):
            return None
        value = timeline.value()
        self.accept(value, source, family=schedule)
        return value

    def raise_bound(self, bound: int, proof: str) -> None:
        """Take a bound if it is better; a bound is never thrown away."""
        if bound > self.bound:
            self.bound, self.proof = bound, proof
            self.report(proof)

    def refuted(self, length: int) -> None:
        """CP-SAT found that no schedule without pairs and fused backwards has this length."""
        if plain_is_best(self.instance):
            self.raise_bound(length + 1, "cp-sat")

    @property
    def schedule(self) -> Schedule:
        """The best schedule so far."""
        if self.family is not None:
            return self.family
        if self.orders is None:
            self.one_at_a_time()
            return self.schedule
        return self.flat.schedule(self.orders or [], self.source)

    def reached(self) -> int:
        """The objective of the best schedule so far; if there is none yet, a first one is made."""
        if self.value is None:
            self.one_at_a_time()
            return self.reached()
        return self.value

    def timeline(self, schedule: Schedule) -> Timeline:
        """The timeline of the best schedule: for the span, the one of least span.

        The times come from the queues where they describe the schedule, much faster than from its ops.
        """
        times = None if self.orders is None else self.times(self.orders)
        if times is None:
            return timeline_of(schedule, self.instance)
        rows = times.rows(self.orders or [])
        duration = self.flat.duration
        starts = tuple(
            tuple(end - duration[queue] for end, queue in zip(row, order, strict=True))
            for row, order in zip(rows, self.orders or [], strict=True)
        )
        return Timeline(self.instance, schedule, starts, rows)

    def makespan(self, timeline: Timeline) -> int:
        """The makespan of the earliest starts of the best schedule, whose timeline by the objective is given."""
        if self.instance.objective == "makespan":
            return timeline.makespan
        times = None if self.orders is None else replay_flat(self.flat, self.orders)
        return replay(timeline.schedule, self.instance).makespan if times is None else times.makespan

    def notes(self) -> tuple[str, ...]:
        """What the reader of the record must know."""
        if self.instance.recompute and self.instance.memory.cap is not None:
            found = []  # order symmetry does not hold
        elif self.instance.identical:
            found = ["microbatches are identical, so every queue is served in microbatch order (no loss)"]
        else:
            classes = len(self.flat.microbatches)
            found = [
                f"microbatches differ: there are {classes} classes of equal ones, only inside a class does their order "
                "not matter, and the search leaves open how classes interleave (no loss)"
            ]
        if not plain_is_best(self.instance):
            found.append(self.choices)
        return (*found, *self.extra_notes)

    def run(self) -> None:
        """Search until proved.

        Raises
        ------
        OutOfBudget
            The time or effort ended first. The best so far is kept.
        """
        from bubbleproof.solver.enlarge import enlarge, settle

        if not plain_is_best(self.instance) and self.instance.placement.plain:
            self.choosing()
        taken = enlarge(self)
        best = None if self.done else self.quickly()
        if not self.done and not (self.met and self.flat.ops <= _WHOLE_MODEL):
            settle(self, taken)
        if not self.crossed:
            raise_by_crossings(self)
        if not self.done and self.flat.ops <= _WHOLE_MODEL:
            from bubbleproof.solver.cpsat.improve import improve

            improve(self)
        elif best is not None:
            self.alternate(best)
        if not self.families and self.flat.ops <= _WHOLE_MODEL:
            compare_families(self)

    def alternate(self, best: tuple[int, Knobs]) -> None:
        """For instances too large for whole questions: windows of the best schedule and hill climbing by turns.

        Raises
        ------
        OutOfBudget
            The time or effort ended first.
        """
        from bubbleproof.solver.cpsat.improve import Interval

        interval = Interval(self, whole=False)
        found: tuple[int, Knobs] | None = best
        for seed in count(self.seed + 1):
            interval.windows.idle = 0.0
            interval.narrow()
            if self.done:
                return
            found = self.climb(found, seed)

    def choosing(self) -> None:
        """Where a schedule has choices beside its order: some plain schedules, then everything over choices.

        Raises
        ------
        OutOfBudget
            The time or effort ended first.
        """
        from bubbleproof.solver.choices.search import choose

        self.one_at_a_time()
        self.first(list(grid(self.flat))[:12])
        raise_by_stays(self)
        if not self.done:
            compare_families(self)
            choose(self)

    def quickly(self) -> tuple[int, Knobs] | None:
        """Everything but CP-SAT, once; the settings of the greedy that were best and their objective.

        Raises
        ------
        OutOfBudget
            The time or effort ended first.
        """
        self.one_at_a_time()
        return self.greedily()

    def greedily(self) -> tuple[int, Knobs] | None:
        """The greedy and the published families; as `quickly`."""
        starts = list(grid(self.flat))
        best = self.first(starts[:12])
        raise_by_stays(self)
        if not self.done:
            compare_families(self)
            best = self.first(starts[12:], best)
            if self.meet():
                raise_by_crossings(self)
                if self.flat.ops <= _WHOLE_MODEL:
                    return best  # windows are the better use of the time
            best = self.climb(best, self.seed)
        return best

    def meet(self) -> bool:
        """Offer schedules from patterns of meetings; whether the instance has such patterns.

        Raises
        ------
        OutOfBudget
            The time or effort ended first.
        """
        from bubbleproof.solver.meetings import meetings, schedules

        x = None if self.done else meetings(self.instance)
        if x is None:
            return False
        self.met = True
        for orders, effort in schedules(self.flat, x):
            self.offer(orders, "meetings")
            self.budget.spend(effort)
        return True

    def one_at_a_time(self) -> None:
        """The first schedule, which always exists."""
        if self.offer(one_at_a_time(self.flat), "one microbatch at a time") is None:
            schedule = fused_one_at_a_time(self.instance)
            judge_family(self, schedule.name, schedule)

    def first(self, starts: list[Knobs], best: tuple[int, Knobs] | None = None) -> tuple[int, Knobs] | None:
        """Try settings one after the other; the best of them with its objective."""
        for knobs in starts:
            if self.done:
                break
            value = self.attempt(knobs)
            if value is not None and (best is None or value < best[0]):
                best = value, knobs
        return best

    def attempt(self, knobs: Knobs) -> int | None:
        """One run of the greedy."""
        self.budget.spend(self.flat.ops / OPS_PER_EFFORT)
        return self.offer(greedy(self.flat, knobs, self.reserve), "greedy")

    def climb(self, best: tuple[int, Knobs] | None, seed: int) -> tuple[int, Knobs] | None:
        """Change settings at random and keep what is not worse, until that has brought nothing for a while."""
        if best is None:
            return None
        rng = random.Random(seed)
        value, knobs = best
        patience = max(60, min(1500, 2_000_000 // self.flat.ops))
        if self.instance.placement.groups:
            patience = max(60, patience // 10)  # that greedy is slower
        idle = 0
        while idle < patience and not self.done:
            changed = neighbour(self.flat, knobs, rng)
            found = self.attempt(changed)
            idle += 1
            if found is not None and found <= value:
                idle = idle if found == value else 0
                value, knobs = found, changed
        return value, knobs
