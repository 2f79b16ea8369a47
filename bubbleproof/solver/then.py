"""Second objectives: among the schedules of the best value known, the least peak, or the fewest split backwards."""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Sequence
from typing import get_args

from bubbleproof.schedules.errors import BubbleproofError, InstanceError
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Op, Slot
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.solver.bounds import lower_bounds
from bubbleproof.solver.budget import Budget, OutOfBudget
from bubbleproof.solver.choices.search import modelled, ordered, provable
from bubbleproof.solver.measure import timeline_of
from bubbleproof.solver.result import Level, OnProgress, Second, Then
from bubbleproof.solver.search import Search
from bubbleproof.verify.certificate import Certificate

__all__ = ["check_then", "second_objectives", "weakest"]

_LEVELS: tuple[Level, ...] = ("certified", "proof-checked", "solver-claimed", "open")
_LEAST_SLICE = 0.5
"""Seconds for the first question about a cap."""

_MODEL = 200
"""Forwards up to which CP-SAT is asked for the fewest splits."""


def check_then(names: Sequence[Then]) -> None:
    """Refuse what is no list of different second objectives.

    Raises
    ------
    BubbleproofError
        An unknown one, or one twice.
    """
    for name in names:
        if name not in get_args(Then) or names.count(name) > 1:
            raise BubbleproofError(f"then = {', '.join(names)}: each of {', '.join(get_args(Then))} at most once")


def weakest(*levels: Level) -> Level:
    """The weakest of several levels of evidence."""
    return max(levels, key=_LEVELS.index)


class _Target(Search):
    """A search that is over when a value is reached, or known to be out of reach."""

    def __init__(
        self, instance: Instance, budget: Budget, outer: Search, target: int, on_progress: OnProgress | None = None
    ) -> None:
        super().__init__(instance, budget, outer.seed, outer.workers, on_progress)
        self.target = target

    @property
    def done(self) -> bool:
        """Whether the question is answered."""
        return self.bound > self.target or (self.value is not None and self.value <= self.target)


def second_objectives(search: Search, names: Sequence[Then], budget: Budget, level: Level) -> tuple[Second, ...]:
    """Improve the best schedule in the second objectives, one after the other, each at the values of those before it.

    Parameters
    ----------
    search
        What the first objective has left; its best schedule is replaced.
    budget
        For all second objectives together.
    level
        How the value of the first objective is known to be optimal.

    Returns
    -------
    tuple of Second
        One for each name. None is better known than those before it.
    """
    found: list[Second] = []
    cap: int | None = None
    splits: int | None = None
    for place, name in enumerate(names):
        share = Budget(budget.left / (len(names) - place), budget.effort_left / (len(names) - place))
        if name == "peak":
            second = _Peak(search, share, level, splits).least()
            cap = second.value
        else:
            second = _fewest_splits(search, share, level, cap)
            splits = second.value
        budget.used += share.used
        found.append(second)
        level = second.level
    return tuple(found)


def _capped(instance: Instance, most: int) -> Instance:
    """The instance with every cap lowered to at most `most`.

    Raises
    ------
    InstanceError
        Not even one microbatch fits.
    """
    caps = instance.memory.cap or (most,) * instance.ranks
    return instance.with_cap(tuple(min(cap, most) for cap in caps))


class _Peak:
    """The search for the least of the largest peaks of all ranks."""

    def __init__(self, search: Search, budget: Budget, level: Level, splits: int | None) -> None:
        self.search, self.budget, self.level, self.splits = search, budget, level, splits
        self.value = search.reached()
        self.high = max(peak.memory for peak in search.timeline(search.schedule).peaks)
        self.low = 0
        self.evidence: Level = "certified"
        self.certificate: Certificate | None = None

    def least(self) -> Second:
        """Lower the cap until the value is out of reach, or time is."""
        self.closed_form()
        slice_, asked = _LEAST_SLICE, set[int]()
        while self.low < self.high and self.budget.left > 0 and self.budget.effort_left > 0:
            caps = [cap for cap in ((self.low + self.high - 1) // 2, self.high - 1) if cap not in asked]
            if not caps:
                slice_, asked = 2 * slice_, set()
                continue
            asked.add(caps[0])
            self.ask(caps[0], slice_)
        level = weakest(self.level, self.evidence) if self.low >= self.high else "open"
        return Second(name="peak", value=self.high, bound=self.low, level=level, certificate=self.certificate)

    def closed_form(self) -> None:
        """Raise the bound as far as certificates of lower bounds go: under every lower cap they exceed the value."""

        def reachable(cap: int) -> bool:
            try:
                return self.best_certificate(cap).value <= self.value
            except InstanceError:
                return False

        self.low = bisect_left(range(self.high), True, key=reachable)
        if self.low > 0:
            try:
                self.certificate = self.best_certificate(self.low - 1)
            except InstanceError:  # the caps themselves say so
                self.certificate = None

    def best_certificate(self, cap: int) -> Certificate:
        return max(lower_bounds(_capped(self.search.instance, cap)), key=lambda c: c.value)

    def ask(self, cap: int, seconds: float) -> None:
        """Ask whether the value is within reach under a cap."""
        search = self.search
        if self.budget.effort is None:
            budget = Budget(min(seconds, self.budget.left), None)
        else:  # effort, not the clock, cuts a search with one worker
            budget = Budget(self.budget.left, min(seconds, self.budget.effort_left))
        sub = _Target(_capped(search.instance, cap), budget, search, self.value)
        with contextlib.suppress(OutOfBudget):
            sub.run()
        self.budget.used += budget.used
        if sub.value is not None and sub.value <= self.value:
            self.take(sub)
        elif sub.bound > self.value and cap >= self.low:
            self.low, self.certificate = cap + 1, None
            self.evidence = "solver-claimed"

    def take(self, sub: _Target) -> None:
        """Take a schedule with a lower peak, unless it splits more backwards than may be."""
        search, schedule = self.search, sub.schedule
        if self.splits is not None:
            schedule = _Fuse(sub.instance, self.value, self.budget).all_at_no_cost(schedule)
            if len(_splits(schedule)) > self.splits:
                return
            sub.orders, sub.family = None, schedule
        search.orders, search.family, search.value = sub.orders, sub.family, sub.value
        search.source = f"{sub.source} (least peak)"
        self.high = max(peak.memory for peak in sub.timeline(schedule).peaks)
        search.report(search.source)


def _splits(schedule: Schedule) -> list[tuple[int, int]]:
    return [(op.stage, op.microbatch) for _, _, op in schedule.ops() if op.kind == "W"]


def _fewest_splits(search: Search, budget: Budget, level: Level, cap: int | None) -> Second:
    """Fuse what costs nothing, then ask CP-SAT for fewer."""
    instance = search.instance if cap is None else _capped(search.instance, cap)
    value, schedule = search.reached(), search.schedule
    fused = _Fuse(instance, value, budget).all_at_no_cost(schedule)
    count, bound, evidence = len(_splits(fused)), 0, level
    small = instance.microbatches * instance.stages <= _MODEL
    if count and small and modelled(instance) and instance.placement.plain:
        better, bound = _ask_for_fewer(instance, value, budget, search, fused)
        evidence = weakest(level, "solver-claimed") if provable(instance) else "open"
        if better is not None and len(_splits(better)) < count:
            fused, count = better, len(_splits(better))
    if len(_splits(schedule)) > count:
        search.orders, search.family, search.source = None, fused, f"{search.source}, fused"
        search.value = timeline_of(fused, search.instance).value()
        search.report(search.source)
    return Second(name="splits", value=count, bound=min(bound, count), level=evidence if bound >= count else "open")


def _ask_for_fewer(
    instance: Instance, value: int, budget: Budget, search: Search, hint: Schedule
) -> tuple[Schedule | None, int]:
    """A schedule with fewer splits, and a number of splits that none can beat (0 if that cannot be known)."""
    from bubbleproof.solver.choices.model import ChoiceQuestion

    question = ChoiceQuestion(
        instance,
        value,
        effort=min(budget.effort_left, max(1.0, budget.left)),
        seconds=budget.left,
        seed=search.seed,
        linearization=1,
        hint=hint,
        ordered=ordered(instance),
        fewest=True,
    )
    answer = question.ask()
    budget.used += answer.effort
    kept = answer.schedule
    if kept is not None and not _Fuse(instance, value, budget).keeps(kept):
        kept = None
    return kept, question.least_splits if provable(instance) else 0


class _Fuse:
    """Fusing split backwards of a schedule as long as value and caps are kept."""

    def __init__(self, instance: Instance, value: int, budget: Budget) -> None:
        self.instance, self.value, self.budget = instance, value, budget

    def all_at_no_cost(self, schedule: Schedule) -> Schedule:
        """Fuse, in larger and smaller groups, whatever can be fused; what stands next to its W first."""
        places = {op: position for _, position, op in schedule.ops()}
        apart = {cell: places[Op("W", *cell)] - places[Op("B", *cell)] for cell in _splits(schedule)}
        waiting = [sorted(apart, key=lambda cell: (apart[cell], cell))]
        while waiting and self.budget.left > 0:
            group = waiting.pop()
            if not group:
                continue
            fused = self.fused(schedule, set(group))
            if fused is not None and self.keeps(fused):
                schedule = fused
            elif len(group) > 1:
                half = len(group) // 2
                waiting += [group[half:], group[:half]]
        return schedule

    def fused(self, schedule: Schedule, cells: set[tuple[int, int]]) -> Schedule | None:
        """The schedule with the backwards of some cells fused in the place of their B; None for members of pairs."""
        rows: list[list[Slot]] = []
        for order in schedule.orders:
            row: list[Slot] = []
            for slot in order:
                if not isinstance(slot, Op):
                    if slot.backward.kind == "B" and slot.backward[1:] in cells:
                        return None
                    row.append(slot)
                elif slot[1:] not in cells or slot.kind not in ("B", "W"):
                    row.append(slot)
                elif slot.kind == "B":
                    row.append(slot._replace(kind="BW"))
            rows.append(row)
        return Schedule.of(rows, schedule.name)

    def keeps(self, schedule: Schedule) -> bool:
        """Whether a schedule keeps the value and the caps."""
        try:
            timeline = timeline_of(schedule, self.instance)
        except BubbleproofError:
            return False
        cap = self.instance.memory.cap
        fits = cap is None or all(peak.memory <= most for peak, most in zip(timeline.peaks, cap, strict=True))
        return fits and timeline.value() <= self.value
