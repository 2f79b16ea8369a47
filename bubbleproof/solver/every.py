"""`solve_every`: a schedule for every number of microbatches from some on, and how good it is for all of them at once.

Orders that repeat, found on a small instance, are given times that grow by the same with each block; the judge proves
the pattern for every m (docs/semantics.md, theorems P1, P3, P4), and a rule of docs/bounds.md bounds it for every m.
If both grow alike and differ by 0 over one common period, the pattern is optimal for every m from there on.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Literal

import msgspec

from bubbleproof.schedules.errors import BubbleproofError
from bubbleproof.schedules.instance import Instance, Objective
from bubbleproof.schedules.pattern import PeriodicSchedule
from bubbleproof.solver.bounds import lower_bounds
from bubbleproof.solver.budget import Budget, OutOfBudget
from bubbleproof.solver.enlarge import FURTHER, Repeating, in_flight
from bubbleproof.solver.flat import Flat
from bubbleproof.solver.heuristics import Knobs
from bubbleproof.solver.periodic import Words
from bubbleproof.solver.result import InternalError, OnProgress, Progress
from bubbleproof.solver.settle import Kernels, settle_words
from bubbleproof.solver.steady import Timed, timed
from bubbleproof.solver.tuning import grid
from bubbleproof.verify.every import Comparison, EveryCertificate, Rise, compare, rise
from bubbleproof.verify.growth import Growth
from bubbleproof.verify.induction import Induction, induct
from bubbleproof.verify.normal_form import Refused
from bubbleproof.verify.report import Verdict

__all__ = ["EveryClass", "EveryRecord", "EverySolution", "solve_every"]

_EFFORT_PER_SECOND = 1.0
_STEPS = 8
"""Most microbatches per block that are looked for, beside as many as are in flight."""

_MOST_OPS = 10_000
"""Ops of the largest instance on which words are looked for: giving long words times takes long."""

_MANY = 10_000
"""More microbatches than any small instance has, in multiples of those in flight."""

_FAR = 40
"""Rules are chosen where there are so many times the microbatches in flight."""


class EveryRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of one residue class of m. All figures are integers in the instance's unit, or exact fractions.

    Parameters
    ----------
    modulus, residue
        The class: m ≡ residue (mod modulus).
    least
        The smallest m for which the pattern is meant and proved.
    per_microbatch, constant
        The objective is at most ``constant + per_microbatch·m``, exactly so where it is optimal.
    bound_per_microbatch
        How much the lower bound grows with a microbatch, on average.
    compared_from
        The m from which length and bound are compared.
    excess
        The most by which the objective is above the bound, for any m of the class from `compared_from` on; None if it
        grows without end.
    level
        ``certified``: optimal for every m of the class from `compared_from` on. ``open``: not known to be.
    certificate
        The rule that gives the bound.
    """

    objective: Objective
    modulus: int
    residue: int
    least: int
    per_microbatch: str
    constant: str
    bound_per_microbatch: str
    compared_from: int
    excess: int | None
    level: Literal["certified", "open"]
    certificate: EveryCertificate
    source: str
    seconds: int
    milliseconds: int


@dataclass(frozen=True)
class EveryClass:
    """The answer for the m ≡ residue (mod modulus) from some m on.

    Parameters
    ----------
    pattern
        With times; the judge has proved it: complete, free of deadlock, within every cap, and as long as it says.
    bound
        What the certificate of the record gives for every m.
    """

    pattern: PeriodicSchedule
    induction: Induction
    bound: Rise
    record: EveryRecord


@dataclass(frozen=True)
class EverySolution:
    """One answer for each residue class; together they hold every m from `least` on."""

    instance: Instance
    classes: tuple[EveryClass, ...]

    @property
    def certified(self) -> bool:
        """Whether every class is optimal for every m from some on."""
        return all(found.record.level == "certified" for found in self.classes)


def solve_every(
    instance: Instance,
    *,
    time_limit: float = 60.0,
    workers: int = 0,
    seed: int = 0,
    on_progress: OnProgress | None = None,
    objective: Objective | None = None,
) -> EverySolution:
    """Find a schedule for every number of microbatches.

    Parameters
    ----------
    instance
        One route, costs and memory the same for all microbatches; its own number of them has no meaning.
    time_limit, workers, seed, on_progress, objective
        As for `solve`.

    Raises
    ------
    BubbleproofError
        No order that repeats was found, the instance has another number of microbatches written into it, costs or
        memory are given per microbatch, or its stages are no chain.
    InternalError
        The judge refuses a pattern. A bug.
    """
    if objective is not None:
        instance = instance.with_(objective=objective)
    instance.placement.need_plain("a schedule for every number of microbatches")
    if instance.costs.microbatches or instance.memory.microbatches:
        raise BubbleproofError(
            "a schedule for every number of microbatches needs the same cost and memory for each of them; here they "
            f"are given for each of {instance.microbatches}. Nearest: the greatest of each stage for all"
        )
    threads = workers or os.cpu_count() or 1
    effort = time_limit * _EFFORT_PER_SECOND if threads == 1 else None
    hunt = _Hunt(instance, Budget(time_limit, effort), seed, threads, on_progress)
    return hunt.run()


@dataclass(frozen=True)
class _Found:
    """Words with times, how good they are for large m, and where they come from."""

    words: Words
    timed: Timed
    source: str

    @property
    def per_microbatch(self) -> Fraction:
        return Fraction(self.timed.growth, self.words.period)

    @property
    def constant(self) -> Fraction:
        """The length at m = 0 of the line through all lengths."""
        return self.timed.level - self.per_microbatch * sum(self.timed.pattern.bases)

    @property
    def score(self) -> tuple[Fraction, Fraction]:
        return self.per_microbatch, self.constant


class _Seek(Repeating):
    """A search on a small instance for the best words."""

    def __init__(self, instance: Instance, budget: Budget, hunt: _Hunt, steps: Sequence[int]) -> None:
        super().__init__(instance, budget, hunt.seed, hunt.workers, steps)
        self.hunt = hunt
        self.found: _Found | None = None
        self.optimal = False

    @property
    def done(self) -> bool:
        """Whether the best words meet the bound for every m."""
        return self.optimal

    def attempt(self, knobs: Knobs) -> int | None:
        """As `Search.attempt`, and remember settings that bring better words."""
        before = self.found
        value = super().attempt(knobs)
        if self.found is not before:
            self.hunt.knobs = knobs
        return value

    def take(self, words: Words, source: str) -> bool:
        """Give the words times and keep the best."""
        found = timed(words, words.apart)
        if found is None:
            return False
        mine = _Found(words, found, source)
        if self.found is None or mine.score < self.found.score:
            self.found = mine
            compared = self.hunt.compare(mine)
            self.optimal = compared is not None and compared.optimal
            self.hunt.tell(mine, self.bound)
        return True


class _Hunt:
    """The search for patterns, class by class."""

    def __init__(
        self, instance: Instance, budget: Budget, seed: int, workers: int, on_progress: OnProgress | None
    ) -> None:
        self.instance, self.budget, self.seed, self.workers = instance, budget, seed, workers
        self.on_progress = on_progress
        self.few = 3 * in_flight(Flat(instance))
        self.knobs: Knobs | None = None
        """The settings of the greedy that gave the last better words."""
        self.kernels: Kernels = {}
        self.certificate, self.bound = _best_rise(instance, self.few)

    def run(self) -> EverySolution:
        flight = in_flight(Flat(self.instance))
        first = self.seek(self.few, [*range(1, _STEPS + 1), *([flight] if flight > _STEPS else [])], 2)
        step, period = first.words.steps[0], first.words.period
        found = [first]
        have = first.words.flat.instance.microbatches
        more = [m for m in range(self.few, self.few + period) if (m - have) % period]
        found += [self.seek(m, (step,), len(more) - i) for i, m in enumerate(more)]
        classes = [self.judged(each) for each in found]
        return EverySolution(self.instance, tuple(sorted(classes, key=lambda c: c.record.residue)))

    def seek(self, m: int, steps: Sequence[int], share: int) -> _Found:
        """The best words for m microbatches, and for any more in steps of a block, within a share of the time left."""
        seconds, effort = self.budget.left / share, self.budget.effort_left / share
        block = steps[0] * len(self.instance.placement.routes)
        larger = self.instance.with_(microbatches=m + -(-FURTHER * m // block) * block)
        further = 3 * larger.stages * larger.microbatches <= _MOST_OPS
        part = 10 if self.knobs is not None else 4 if further else 2  # after one class it is known what is good
        quick = Budget(seconds / part, effort / part)
        search = _Seek(self.instance.with_(microbatches=m), quick, self, steps)
        made = [search]

        def make(instance: Instance, budget: Budget, step: int) -> _Seek:
            made.append(_Seek(instance, budget, self, (step,)))
            return made[-1]

        with contextlib.suppress(OutOfBudget):
            search.quickly()
        far = Budget(seconds / 2 - seconds / part, effort / 2 - effort / part)
        if further and not search.done:
            # under a tight cap what repeats may begin late
            made.append(_Seek(larger, far, self, steps))
            made[-1].longest = True
            with contextlib.suppress(OutOfBudget):
                starts = list(grid(made[-1].flat))
                made[-1].first(starts if self.knobs is None else [self.knobs, *starts])
        taken = [words for each in made for words in each.taken]
        slow = Budget(seconds / 2, effort / 2)
        if not any(each.done for each in made):
            with contextlib.suppress(OutOfBudget):
                settle_words(search.flat, taken, slow, make, m + _MANY * in_flight(search.flat), self.kernels)
        self.budget.used += quick.used + far.used + slow.used
        found = [each.found for each in made if each.found is not None and each.found.words.steps[0] in steps]
        if not found:
            raise BubbleproofError(f"no order that repeats was found for {m} microbatches and more; allow more time")
        return min(found, key=lambda each: each.score)

    def compare(self, found: _Found) -> Comparison | None:
        """Words against the bound for every m."""
        return compare(found.timed.pattern, Growth(((found.timed.level, found.timed.growth),)), self.bound)

    def tell(self, found: _Found, bound: int) -> None:
        """Report what is known of the number of microbatches that is searched."""
        if self.on_progress is not None:
            value = found.timed.level + found.timed.growth * found.words.rounds
            source = f"{found.source}; {found.per_microbatch} per microbatch"
            self.on_progress(Progress(int(self.budget.elapsed * 1000), value, bound, source))

    def judged(self, found: _Found) -> EveryClass:
        """The pattern from the smallest n on for which it is as good, judged for every n."""
        pattern = _earliest(found)
        induction = induct(pattern, self.instance)
        length = induction.makespan if self.instance.objective == "makespan" else induction.span
        if induction.verdict is not Verdict.PROVED or length is None:
            raise InternalError(f"the judge refuses the pattern: {induction.reason or induction.report}")
        compared = compare(pattern, length, self.bound)
        milliseconds = ceil(self.budget.elapsed * 1000)
        record = EveryRecord(
            objective=self.instance.objective,
            modulus=pattern.period,
            residue=sum(pattern.bases) % pattern.period,
            least=pattern.microbatches(pattern.least),
            per_microbatch=str(found.per_microbatch),
            constant=str(found.constant),
            bound_per_microbatch=str(Fraction(self.bound.growth, self.bound.period)),
            compared_from=self.bound.first if compared is None else compared.first,
            excess=None if compared is None else compared.worst,
            level="certified" if compared is not None and compared.optimal else "open",
            certificate=self.certificate,
            source=found.source,
            seconds=ceil(milliseconds / 1000),
            milliseconds=milliseconds,
        )
        return EveryClass(pattern, induction, self.bound, record)


def _earliest(found: _Found) -> PeriodicSchedule:
    """The pattern with the smallest n from which on its times are the same."""
    low, high, best = 1, found.timed.pattern.least, found.timed
    while low < high:
        middle = (low + high) // 2
        again = timed(found.words, middle)
        if again is not None and (again.growth, again.level) == (found.timed.growth, found.timed.level):
            high, best = middle, again
        else:
            low = middle + 1
    return replace(best.pattern, name=f"{found.source}, repeated")


def _best_rise(instance: Instance, few: int) -> tuple[EveryCertificate, Rise]:
    """The rule that gives most for large m, and what it gives."""
    best: tuple[Fraction, Fraction, EveryCertificate, Rise] | None = None
    for certificate in lower_bounds(instance.with_(microbatches=_FAR * few)):
        chosen = EveryCertificate(rule=certificate.rule, rank=certificate.rank, via=certificate.via)
        with contextlib.suppress(Refused):
            found = rise(instance, chosen)
            slope = Fraction(found.growth, found.period)
            mean = Fraction(sum(found.values), found.period) - slope * found.first
            if best is None or (slope, mean) > best[:2]:
                best = slope, mean, chosen, found
    if best is None:
        return EveryCertificate(rule="chain"), Rise(1, 1, (0,), 0)
    return best[2:]
