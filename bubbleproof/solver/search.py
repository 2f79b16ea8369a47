"""The search: a greedy answer at once, published families, hill climbing, then CP-SAT; no bound is ever lost."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Literal

from bubbleproof.schedules.errors import FamilyError, ScheduleError
from bubbleproof.schedules.families.family import Family
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import Timeline, replay
from bubbleproof.solver.bounds import lower_bounds, stays
from bubbleproof.solver.flat import Flat, Orders, Times, least_span, peaks, replay_flat
from bubbleproof.solver.heuristics import Knobs, fused_one_at_a_time, greedy, one_at_a_time, reserves
from bubbleproof.solver.result import FamilyResult, OnProgress, Progress, Proved
from bubbleproof.solver.resume import Keeper
from bubbleproof.solver.tuning import grid, neighbour
from bubbleproof.verify.certificate import Certificate

if TYPE_CHECKING:
    from bubbleproof.solver.bounds_path import Part
    from bubbleproof.solver.crossing import Rising
    from bubbleproof.solver.grown import Grown
    from bubbleproof.solver.periodic import Words

__all__ = ["Budget", "Search", "timeline_of"]

_WHOLE_MODEL = 8000
"""Ops up to which CP-SAT is asked about the whole instance; above, hill climbing goes on."""

_OPS_PER_EFFORT = 300_000
"""Ops that the greedy places and times per unit of effort; about a second on a common machine."""

_COMPARISONS_PER_EFFORT = 1_000_000
"""Comparisons of the rule `crossing` per unit of effort; about a second on a common machine."""

_CROSSINGS_SHARE = 0.15
"""Part of the time limit that the rule `crossing` may take."""

_FEWER_SHARE = 0.1
"""Part of that for each number of microbatches left out."""


_STAYS_EFFORT = 0.1
"""Effort that the rule `stays` counts for."""


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


def timeline_of(schedule: Schedule, instance: Instance) -> Timeline:
    """The timeline by which a schedule is judged: as soon as possible, or of least span if that is the objective."""
    if instance.objective == "makespan":
        return replay(schedule, instance)
    from bubbleproof.schedules.align import align

    return align(schedule, instance)


def plain_is_best(instance: Instance) -> bool:
    """Whether nothing is lost by running no pairs, no fused backward of a split one, and no recompute.

    A pair that lasts as long as its members, or a BW as long as B and W, can be taken apart: nothing starts later, and
    memory does not rise in between unless B takes some. Recompute only saves memory.
    """
    costs, memory = instance.costs, instance.memory
    if instance.recompute and memory.cap is not None:
        return False
    figure, overhead = costs.figure, costs.overhead
    cells = [(s, alike[0]) for alike in instance.classes if alike for s in range(instance.stages)]
    for kind, pairs in (("B", costs.overlap_B), ("BW", costs.overlap_BW)):
        if pairs is not None and (kind == "BW" or costs.split):
            backward = max(figure(kind, s, j) for s, j in cells) + overhead
            if any(figure(f"overlap_{kind}", s, j) < figure("F", s, j) + backward for s, j in cells):
                return False
    return not costs.split or all(
        figure("BW", s, j) >= figure("B", s, j) + figure("W", s, j) + overhead and memory.of("B", s, j) <= 0
        for s, j in cells
    )


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

    def offer(self, orders: Orders | None, source: str) -> int | None:
        """Take orders as the best if they are; returns their objective, None if they cannot run or exceed a cap."""
        if orders is None or not self.fits(orders):
            return None
        value = self.measure(orders)
        if value is not None and (self.value is None or value < self.value):
            self.orders, self.family, self.value, self.source = orders, None, value, source
            self.report(source)
        return value

    def offer_words(self, words: Words, n: int, source: str) -> None:
        """Offer `n` blocks of words, without an object for any op where that can be done."""
        from bubbleproof.solver.grown import grow

        found = grow(self.flat, words, n, source)
        if found is None:
            self.offer(words.orders(n), source)
            return
        value = found.value(self.instance.objective)
        if self.value is None or value < self.value:
            self.orders, self.family, self.value, self.source = None, None, value, source
            self.grown = found
            self.report(source)

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
        if self.value is None or value < self.value:
            self.orders, self.family, self.value, self.source = None, schedule, value, source
            self.report(source)
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
            self.crossings()
        if not self.done and self.flat.ops <= _WHOLE_MODEL:
            from bubbleproof.solver.cpsat.improve import improve

            improve(self)
        elif best is not None:
            self.alternate(best)
        if not self.families and self.flat.ops <= _WHOLE_MODEL:
            self.try_families()

    def crossings(self) -> None:
        """Raise the bound by the patterns in which microbatches in flight can meet, where a cap makes them wait.

        Raises
        ------
        OutOfBudget
            The time or effort ended first.
        """
        from bubbleproof.solver.bounds_path import Part, parts
        from bubbleproof.solver.crossing import Rising, kept, places

        self.crossed = True
        if self.done or self.value is None:
            return
        most = min(_CROSSINGS_SHARE * self.budget.seconds, self.budget.left) * _COMPARISONS_PER_EFFORT
        whole = Part((), self.instance, tuple(range(self.instance.ranks)))
        found = [(place, part) for part in (whole, *parts(self.instance)) for place in places(part.instance)[:1]]
        found = [each for each in found if each[0].crossings.cap < each[0].crossings.ranks]
        for place, part in sorted(found, key=lambda each: -each[0].bound)[:1]:
            for chosen in kept(part.instance.microbatches, place.crossings.cap):
                fewer = Rising(part.instance, place.rank, place.via, chosen)
                if not self.rise(fewer, part, int(most * _FEWER_SHARE)):
                    break
            self.rise(place, part, int(most))

    def rise(self, place: Rising, part: Part, most: int) -> bool:
        """Follow the rule `crossing` at one place; whether it was followed to its end.

        Raises
        ------
        OutOfBudget
            The time or effort ended first.
        """
        if self.done or self.value is None:
            return False
        before = 0
        for certificate in place.rise(self.bound, self.value, most):
            if certificate.value > self.bound:
                self.certificate = part.lifted(certificate)
                self.raise_bound(certificate.value, certificate.rule)
            self.budget.spend((place.compared - before) / _COMPARISONS_PER_EFFORT)
            before = place.compared
        self.budget.spend((place.compared - before) / _COMPARISONS_PER_EFFORT)
        return place.exhausted

    def weighted_stays(self) -> None:
        """Raise the bound by how many microbatches can be where at once on a rank.

        Raises
        ------
        OutOfBudget
            The time or effort ended first.
        """
        if self.done or self.value is None:
            return
        for certificate in stays(self.instance, self.bound):
            self.certificate = certificate
            self.raise_bound(certificate.value, certificate.rule)
        self.budget.spend(_STAYS_EFFORT)

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
        self.weighted_stays()
        if not self.done:
            self.try_families()
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
        self.weighted_stays()
        if not self.done:
            self.try_families()
            best = self.first(starts[12:], best)
            if self.meet():
                self.crossings()
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
            self.judge_family(schedule.name, schedule)

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
        self.budget.spend(self.flat.ops / _OPS_PER_EFFORT)
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

    def try_families(self) -> None:
        """Build every published family; each is a candidate, and the record compares them all."""
        from bubbleproof.schedules import families as package

        registry: dict[str, Family] = getattr(package, "FAMILIES", {})
        for name, family in registry.items():
            self.budget.spend(self.flat.ops / _OPS_PER_EFFORT)
            try:
                schedule = family.build(self.instance)
            except FamilyError as error:
                self.families.append(FamilyResult(name=name, value=None, peak=None, reason=str(error)))
                continue
            self.families.append(self.judge_family(name, schedule))

    def judge_family(self, name: str, schedule: Schedule) -> FamilyResult:
        """Time a family's schedule under the instance's costs and caps, and take it if it is the best."""
        value, held = self.figures(schedule)
        cap, reason = self.instance.memory.cap, ""
        for rank, peak in enumerate(held):
            if cap is not None and peak > cap[rank]:
                reason = f"takes {peak} on rank {rank}, where the cap is {cap[rank]}"
                break
        if not reason:
            if self.value is None or value < self.value:
                self.orders, self.family, self.value, self.source = None, schedule, value, name
                self.report(name)
            self.offer(self.flat.orders(schedule), name)
        return FamilyResult(name=name, value=value, peak=max(held), reason=reason)

    def figures(self, schedule: Schedule) -> tuple[int, list[int]]:
        """Objective and peak of each rank of a schedule, through queues where they describe it, which is faster."""
        instance = self.instance
        flat = Flat(instance.with_(costs=replace(instance.costs, split="BW" not in schedule.kinds)))
        orders = flat.orders(schedule)
        if orders is not None and flat.schedule(orders) == schedule:
            value = self.measure(orders, flat)
            if value is not None:
                static = instance.memory.static
                return value, [peak + s for peak, s in zip(peaks(flat, orders), static, strict=True)]
        timeline = timeline_of(schedule, instance)
        return timeline.value(instance.objective), [peak.memory for peak in timeline.peaks]
