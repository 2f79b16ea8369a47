"""`prove`: whether a generator is right for every number of microbatches.

What a program makes for every m cannot be known from what it makes for some. So there are two statements. That the
*periodic schedule* found behind the generator is right for every m is proved (docs/semantics.md, section "For every
number of microbatches"). That the generator makes this periodic schedule was compared for every m up to a stated one,
and is BOUNDED.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

from bubbleproof.schedules.errors import BubbleproofError, FamilyError, InstanceError
from bubbleproof.schedules.instance import MAX_STAGE_MICROBATCHES, Instance
from bubbleproof.schedules.pattern import PeriodicSchedule
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.verify.induction import Induction, induct
from bubbleproof.verify.judge import verify
from bubbleproof.verify.period import guess
from bubbleproof.verify.report import Report, Verdict

__all__ = ["Class", "ForAll", "Generator", "prove"]

Generator: TypeAlias = Callable[[Instance], Schedule]

_IN_A_ROW = 12
_TIMES = 4
"""A pattern is taken if the generator keeps to it from m₀ to 4·m₀, and for 12 blocks beyond where it was found.

So one that goes by the remainder of m by another number than the period, or by a root or a logarithm of m, shows. This
is a matter of usefulness: what is proved of the pattern does not depend on it.
"""


@dataclass(frozen=True)
class Class:
    """The numbers of microbatches m ≡ residue (mod modulus).

    Parameters
    ----------
    induction
        What was found about the pattern behind the generator; None if no pattern was found.
    refused
        The generator refused every m of the class that was tried.
    compared
        The m up to which the generator was seen to make the pattern before it was taken; 0 without one.
    """

    modulus: int
    residue: int
    induction: Induction | None = None
    refused: bool = False
    compared: int = 0

    @property
    def verdict(self) -> Verdict:
        """PROVED, VIOLATED or UNKNOWN of its pattern; BOUNDED without one."""
        return self.induction.verdict if self.induction else Verdict.BOUNDED


@dataclass(frozen=True)
class ForAll:
    """The answer of `prove`.

    Parameters
    ----------
    verdict
        PROVED: for each class a periodic schedule was found that is right for every m, and it is what the generator
        makes for every m up to `up_to`. BOUNDED: some class has no pattern; every schedule up to `up_to` is right.
        VIOLATED: see `microbatches`. UNKNOWN: a pattern was found and its check would take too long.
    generator
        The verdict on the generator itself: BOUNDED by `up_to`, or VIOLATED.
    up_to
        The generator's schedule was compared with its pattern, or judged, for every m from `first` to this one, the
        first wrong m if that is smaller.
    refused
        Those m among them for which there is no schedule: the generator refused it, or was not asked.
    classes
        The classes of m, by residue.
    microbatches, schedule, report
        The smallest m found for which the schedule is wrong, that schedule, and what the judge says of it. Where m is
        larger than `up_to`, the pattern says that it is the smallest; without a schedule it is too large to build, or
        the generator makes something else for it.
    """

    verdict: Verdict
    generator: Verdict
    first: int
    up_to: int
    refused: tuple[int, ...]
    classes: tuple[Class, ...]
    microbatches: int | None = None
    schedule: Schedule | None = None
    report: Report | None = None

    @property
    def proved(self) -> tuple[Class, ...]:
        """The classes whose pattern is proved."""
        return tuple(found for found in self.classes if found.induction and found.verdict == Verdict.PROVED)

    @property
    def open(self) -> tuple[Class, ...]:
        """The classes of which nothing is known beyond `up_to`."""
        return tuple(found for found in self.classes if not found.refused and found not in self.proved)


class _Maker:
    """The generator, asked once for each m."""

    def __init__(self, generator: Generator, instance: Instance, multiple_of: int) -> None:
        self._generator = generator
        self._multiple_of = multiple_of
        self._instance = instance
        self._made: dict[int, Schedule | None] = {}

    def instance(self, microbatches: int) -> Instance:
        return self._instance.with_(microbatches=microbatches)

    def schedule(self, microbatches: int) -> Schedule | None:
        """The schedule for m microbatches; None if the generator refuses or was not to be asked."""
        if microbatches % self._multiple_of:
            return None
        if microbatches not in self._made:
            try:
                self._made[microbatches] = self._generator(self.instance(microbatches))
            except (FamilyError, InstanceError):
                self._made[microbatches] = None
        return self._made[microbatches]

    def judged(self, microbatches: int) -> Report | None:
        """The judge's report for m microbatches; None if the generator refuses."""
        schedule = self.schedule(microbatches)
        return None if schedule is None else verify(schedule, self.instance(microbatches))


def prove(
    generator: Generator,
    instance: Instance,
    *,
    first: int = 1,
    multiple_of: int = 1,
    up_to: int | None = None,
    periods: Iterable[int] | None = None,
) -> ForAll:
    """Decide whether a generator's schedules are right for every number of microbatches m ≥ `first`.

    Parameters
    ----------
    generator
        Makes a schedule for an instance. FamilyError means that it does not want this m. Its schedules must depend on
        the instance alone.
    instance
        Placement, costs, memory and caps; its m is replaced.
    first, multiple_of
        Which m are meant: those from `first` on that are multiples of `multiple_of`.
    up_to
        Compare and judge the generator at least for every m up to this one; left out, as far as the proof needs, and
        at least up to 64.
    periods
        Periods in m to look for; left out, 1 … 12, p and 2p.

    Raises
    ------
    FamilyError
        The generator refuses every m that was tried.
    BubbleproofError
        `first` is below 1, or `up_to` below `first`.
    """
    if first < 1 or multiple_of < 1 or (up_to is not None and up_to < first):
        raise BubbleproofError(f"m from {first} to {up_to} by {multiple_of}: no range of numbers of microbatches")
    if instance.costs.varying or instance.memory.varying:
        raise BubbleproofError("costs or memory are given per microbatch, so the instance is one for that number only")
    instance.placement.need_plain("a proof for every number of microbatches")
    maker = _Maker(generator, instance, multiple_of)
    limit = MAX_STAGE_MICROBATCHES // instance.stages
    soon = first + 2 * instance.stages + 4
    wrong = _first_wrong(maker, range(first, min(soon, limit) + 1))
    if wrong is not None:
        return wrong
    p = instance.ranks
    wanted = sorted(set(range(1, 13)) | {p, 2 * p} if periods is None else {k for k in periods if k >= 1})
    classes = _classes(maker, instance, wanted, first)
    top = min(max([up_to or 64, soon, *(found.compared for found in classes)]), limit)
    return _swept(maker, classes, first, top)


def _first_wrong(maker: _Maker, sizes: Iterable[int]) -> ForAll | None:
    """The answer if some schedule of these sizes is wrong, else None."""
    refused = []
    start = None
    for m in sizes:
        start = m if start is None else start
        report = maker.judged(m)
        if report is None:
            refused.append(m)
        elif report.verdict != Verdict.PROVED:
            return _violated(maker, m, report, start, tuple(refused), ())
    return None


def _violated(
    maker: _Maker, m: int, report: Report, first: int, refused: tuple[int, ...], classes: tuple[Class, ...]
) -> ForAll:
    return ForAll(Verdict.VIOLATED, Verdict.VIOLATED, first, m, refused, classes, m, maker.schedule(m), report)


def _classes(maker: _Maker, instance: Instance, periods: list[int], first: int) -> tuple[Class, ...]:
    """The classes of the smallest period under which most of them have a pattern."""
    best: tuple[Class, ...] = (Class(1, 0),)
    share = Fraction(0)
    stages = instance.stages
    # what does not repeat is rarely longer than a few passes through the pipeline; if nothing is found, look further
    for far in (6 * stages + 12, 24 * stages + 48):
        for period in periods:
            if period % len(instance.placement.routes):
                continue
            found = tuple(_class(maker, instance, period, residue, max(first, far)) for residue in range(period))
            asked = [one for one in found if not one.refused]
            if asked and Fraction(sum(one.induction is not None for one in asked), len(asked)) > share:
                best, share = found, Fraction(sum(one.induction is not None for one in asked), len(asked))
            if share == 1:
                break
        if share:
            break
    return best


def _class(maker: _Maker, instance: Instance, period: int, residue: int, least: int) -> Class:
    """A class with its pattern, if one is found and is what the generator makes as far as the proof goes."""
    routes = len(instance.placement.routes)
    m = -(-least // period) * period + 8 * period + residue
    if (m + period) * instance.stages > MAX_STAGE_MICROBATCHES:
        return Class(period, residue)
    small, large = ((maker.schedule(size), maker.instance(size)) for size in (m, m + period))
    if small[0] is None or large[0] is None:
        return Class(period, residue, refused=small[0] is large[0])
    pattern = guess((small[0], small[1]), (large[0], large[1]), (period // routes,) * routes)
    if pattern is not None:
        pattern = _fitted(maker, pattern, pattern.blocks(m))
    if pattern is None:
        return Class(period, residue)
    induction = induct(pattern, instance)
    last = max(induction.checked + 1, pattern.blocks(m) + _IN_A_ROW)
    while pattern.microbatches(last) < _TIMES * pattern.microbatches(pattern.least):
        last += 1
    compared = pattern.microbatches(last)
    if compared * instance.stages > MAX_STAGE_MICROBATCHES:
        return Class(period, residue)
    same = all(_same(maker, pattern, n) for n in range(pattern.blocks(m) + 1, last + 1))
    return Class(period, residue, induction, compared=compared) if same else Class(period, residue)


def _same(maker: _Maker, pattern: PeriodicSchedule, n: int) -> bool:
    return maker.schedule(pattern.microbatches(n)) == pattern.schedule(n)


def _fitted(maker: _Maker, pattern: PeriodicSchedule, n: int) -> PeriodicSchedule | None:
    """The pattern from the smallest n on for which it is what the generator makes, down from the n given."""
    if not _same(maker, pattern, n):
        return None
    while n > pattern.least and _same(maker, pattern, n - 1):
        n -= 1
    return replace(pattern, least=n)


def _swept(maker: _Maker, classes: tuple[Class, ...], first: int, top: int) -> ForAll:
    """Every m from `first` to `top`: the schedule is its class's pattern, and that one is right, or it is judged."""
    refused = []
    kept = list(classes)
    modulus = classes[0].modulus
    for m in range(first, top + 1):
        schedule = maker.schedule(m)
        if schedule is None:
            refused.append(m)
            continue
        at = m % modulus
        covered = _covers(kept[at], m)
        if kept[at].refused or covered not in (None, schedule):
            kept[at] = Class(modulus, at)  # the generator leaves its pattern: nothing is known beyond `top`
        if covered != schedule or kept[at].verdict != Verdict.PROVED:
            report = maker.judged(m)
            if report is not None and report.verdict != Verdict.PROVED:
                return _violated(maker, m, report, first, tuple(refused), tuple(kept))
    if len(refused) == top - first + 1:
        raise FamilyError(f"the generator refuses every number of microbatches from {first} to {top}")
    return _answer(maker, tuple(kept), first, top, tuple(refused))


def _covers(found: Class, m: int) -> Schedule | None:
    """What the class's pattern gives for m; None if there is none or it does not begin so early."""
    if found.induction is None:
        return None
    pattern = found.induction.pattern
    n = (m - sum(pattern.bases)) // pattern.period
    return pattern.schedule(n) if n >= pattern.least else None


def _answer(maker: _Maker, classes: tuple[Class, ...], first: int, top: int, refused: tuple[int, ...]) -> ForAll:
    """The verdict when no schedule up to `top` is wrong."""
    verdict = max((found.verdict for found in classes if not found.refused), default=Verdict.BOUNDED)
    if verdict != Verdict.VIOLATED:
        return ForAll(verdict, Verdict.BOUNDED, first, top, refused, classes)
    # a pattern breaks a rule further on; whether the generator does is looked up where it can be built
    inductions = [found.induction for found in classes if found.induction]
    m, worst = min(((i.pattern.microbatches(i.n), i) for i in inductions if i.n is not None), key=lambda pair: pair[0])
    generator = Verdict.BOUNDED
    schedule = None
    if worst.report is not None and _same(maker, worst.pattern, worst.n or 0):
        generator, schedule = Verdict.VIOLATED, maker.schedule(m)
    return ForAll(verdict, generator, first, top, refused, classes, m, schedule, worst.report)
