"""Testing generators of schedules: the smallest case in which one is wrong, and an assertion with a picture.

    from bubbleproof.verify.testing import check_generator

    def test_my_generator():
        check_generator(my_generator, ranks=range(1, 5), microbatches=range(1, 9), peak=lambda instance: instance.ranks)

A generator is any function from an instance to a `Schedule` or a `Program`. Sizes are tried without exception, from
small to large; costs, memory and caps are drawn by Hypothesis, which needs the extra ``bubbleproof[testing]``. The
strategies of `bubbleproof.verify.strategies` can be imported from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import BubbleproofError, FamilyError
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import Placement
from bubbleproof.schedules.program import Channel, Program
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.verify.judge import verify
from bubbleproof.verify.report import Report, Verdict
from bubbleproof.verify.search import (
    Counterexample,
    Generator,
    MakePlacement,
    Peak,
    Search,
    Size,
    import_hypothesis,
    judge,
    promised,
)
from bubbleproof.verify.witness import picture

if TYPE_CHECKING:
    from bubbleproof.verify.strategies import instances as instances
    from bubbleproof.verify.strategies import instances_with_schedules as instances_with_schedules
    from bubbleproof.verify.strategies import near_valid_schedules as near_valid_schedules
    from bubbleproof.verify.strategies import placements as placements
    from bubbleproof.verify.strategies import schedules as schedules

__all__ = [
    "BadSchedule",
    "Checked",
    "Counterexample",
    "NothingChecked",
    "Size",
    "assert_schedule",
    "check_generator",
    "find_counterexample",
    "instances",
    "instances_with_schedules",
    "near_valid_schedules",
    "placements",
    "schedules",
]


class BadSchedule(AssertionError):
    """A schedule is wrong, or a generator is: `counterexample` is the smallest case found."""

    def __init__(self, message: str, counterexample: Counterexample | None = None) -> None:
        super().__init__(message)
        self.counterexample = counterexample


class NothingChecked(AssertionError):
    """A generator refused every case, so that a test of it would prove nothing."""


@dataclass(frozen=True)
class Checked:
    """What was tried without finding anything wrong.

    Parameters
    ----------
    sizes
        How many sizes were tried, every one of those asked for.
    refused
        Sizes that the generator refused.
    examples
        How many cases with drawn costs, memory or caps were tried besides.
    """

    sizes: int
    refused: tuple[Size, ...]
    examples: int


def assert_schedule(
    schedule: Schedule | Program,
    instance: Instance,
    *,
    channel: Channel | None = None,
    timeline: Sequence[Sequence[int]] | None = None,
    peak: int | Sequence[int] | None = None,
) -> Report:
    """Assert that a schedule or program obeys every rule; the message of the failure shows where it does not.

    Parameters
    ----------
    channel
        How the messages of a program travel; left out, ``rendezvous-pair``.
    timeline
        Claimed starts of a schedule, judged too.
    peak
        The most memory a rank may hold, one number or one per rank, besides the caps of the instance.

    Raises
    ------
    BadSchedule
        An AssertionError with the violations and the grid of the schedule, the guilty cells in brackets.
    BubbleproofError
        A timeline for a program, or a channel for a schedule.
    """
    __tracebackhide__ = True
    judged = instance if peak is None else promised(instance, peak)
    if timeline is None:
        report = judge(schedule, judged, channel)
    elif isinstance(schedule, Program) or channel is not None:
        raise BubbleproofError("starts are judged of a Schedule, without a channel")
    else:
        report = verify(schedule, judged, timeline=timeline)
    if report.verdict != Verdict.PROVED:
        words = "\n".join(str(violation) for violation in report.violations)
        raise BadSchedule(f"{words}\n\n{picture(schedule, report.violations)}")
    return report


def check_generator(
    generator: Generator,
    *,
    ranks: int | Iterable[int] = range(1, 5),
    microbatches: int | Iterable[int] = range(1, 9),
    chunks: int | Iterable[int] = 1,
    placement: str | MakePlacement | None = None,
    costs: Literal["unit", "any"] | Callable[[Placement], Costs] = "any",
    split: bool = True,
    memory: Literal["unit", "any"] | Callable[[Placement], Memory] = "unit",
    cap: Literal["any"] | Peak | None = None,
    peak: Peak | None = None,
    channel: Channel | None = None,
    refuses: type[Exception] | tuple[type[Exception], ...] = FamilyError,
    examples: int = 100,
) -> Checked:
    """Assert that all schedules of a generator are right, and show the smallest case in which one is not.

    First every size, in the order of (p, m, v), with the costs and memory given or of one unit; then, if some of them
    are to be drawn, that many examples over all sizes, and if one is wrong, over all smaller sizes again. So a
    counterexample of the first part has the smallest size there is; one of the second the smallest that was found,
    with the simplest costs that Hypothesis finds at that size.

    Parameters
    ----------
    generator
        From an instance to a schedule. It sees everything, the cap included.
    ranks, microbatches, chunks
        The p, m and v (stages per rank) to try, one number or several.
    placement
        A name (linear, loop, vee, wave, bidirectional) or a function of (p, v); left out, linear for v = 1, else loop.
    costs
        ``unit``: all times 1. ``any``: drawn as well. Or a function from the placement.
    split
        Whether the backward of instances with unit or drawn costs may be split.
    memory
        ``unit``: a forward takes 1 and the last op of the backward frees it. ``any``: drawn as well. Or a function.
    cap
        Caps that the generator is told and must keep: a function from the instance, or ``any``: drawn between what one
        microbatch needs and what all need.
    peak
        What the generator promises of its memory although it is told no cap: the most that a rank holds, one number
        or one per rank.
    channel
        How the messages of programs travel (`bubbleproof.schedules.program.CHANNELS`); left out, ``rendezvous-pair``.
    refuses
        Exceptions by which the generator says that it does not make schedules for an instance. Any other is an error.
    examples
        How many cases to draw.

    Raises
    ------
    BadSchedule
        The generator is wrong. The error has the counterexample, and prints it with its picture.
    NothingChecked
        It refused every size.
    """
    __tracebackhide__ = True
    search = Search(
        generator, _sizes(ranks, microbatches, chunks), placement, costs, split, memory, cap, peak, channel, refuses
    )
    found = search.sizes() or search.drawn(examples)
    if found is not None:
        raise BadSchedule(str(found), found)
    if len(search.refused) == len(search.all_sizes):
        raise NothingChecked(f"the generator refused all {len(search.all_sizes)} sizes, so nothing was checked")
    return Checked(len(search.all_sizes), tuple(search.refused), search.examples)


def find_counterexample(generator: Generator, **options: Any) -> Counterexample | None:
    """The counterexample that `check_generator` would raise; None if it finds nothing wrong.

    Raises
    ------
    NothingChecked
        The generator refused every size.
    """
    try:
        check_generator(generator, **options)
    except BadSchedule as bad:
        return bad.counterexample
    return None


def _sizes(
    ranks: int | Iterable[int], microbatches: int | Iterable[int], chunks: int | Iterable[int]
) -> tuple[Size, ...]:
    """All sizes, the smallest first.

    Raises
    ------
    BubbleproofError
        There is none, or a figure is below 1.
    """
    axes = [sorted({axis} if isinstance(axis, int) else set(axis)) for axis in (ranks, microbatches, chunks)]
    if not all(axes) or min(axis[0] for axis in axes) < 1:
        raise BubbleproofError("ranks, microbatches and chunks are one or more integers ≥ 1 each")
    return tuple(Size(p, m, v) for p in axes[0] for m in axes[1] for v in axes[2])


_STRATEGIES = ("instances", "instances_with_schedules", "near_valid_schedules", "placements", "schedules")


def __getattr__(name: str) -> Any:
    """The strategies, imported when they are used (PEP 562)."""
    if name not in _STRATEGIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import_hypothesis()
    from bubbleproof.verify import strategies

    return getattr(strategies, name)
