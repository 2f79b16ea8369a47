"""Warm-up and cool-down fitted around what repeats, by CP-SAT on a small instance.

The words of a schedule say in which order a steady state runs; a kernel of CP-SAT's own (`solver/cpsat/kernel.py`) may
repeat faster where memory sets the pace. Either gives a step and a period, and then `solver/cpsat/join.py` looks for
the shortest schedule of few microbatches whose middle repeats so. What it finds can be enlarged to any number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

from bubbleproof.schedules.instance import Instance
from bubbleproof.solver.budget import Budget
from bubbleproof.solver.enlarge import Repeating, in_flight
from bubbleproof.solver.flat import Flat
from bubbleproof.solver.periodic import Words, find_period
from bubbleproof.solver.steady import Timed, timed

if TYPE_CHECKING:
    from bubbleproof.solver.cpsat.kernel import Kernel

__all__ = ["Kernels", "Maker", "settle_words"]

Kernels: TypeAlias = "dict[int, tuple[Fraction, Kernel | None]]"
"""By step: a time per microbatch that was to be beaten, and the kernel that does, None if none was found."""

Maker = Callable[[Instance, Budget, int], Repeating]
"""Makes the search that takes what is found: on an instance, within a budget, for blocks of so many microbatches."""

_MOST_OPS = 2500
"""Ops of the largest model."""

_HOPE = 3
"""A kernel is looked for that takes at most so many times the work of the busiest rank."""

_KERNEL_OPS = 500
"""Ops of the largest kernel."""


def settle_words(flat: Flat, taken: Sequence[Words], budget: Budget, make: Maker, most: int, kernels: Kernels) -> None:
    """Look for better warm-ups and cool-downs around the fastest of some words, or of a kernel that is faster still.

    Parameters
    ----------
    flat
        Queues of the instance, for any number of microbatches.
    make
        Makes a search for an instance with few microbatches; it is offered what is found.
    most
        Microbatches of the instance that is meant in the end: the small one has no more.
    kernels
        What is known from other numbers of microbatches; added to.

    Raises
    ------
    OutOfBudget
        The budget is used up.
    """
    instance = flat.instance
    if instance.placement.groups:
        return  # its times are of words whose ops run on one rank each
    if len(flat.microbatches) > 1 or flat.wires is not None or instance.costs.varying or instance.memory.varying:
        return
    timings = ((words, timed(words, words.apart)) for words in taken)
    best = min(((words, found) for words, found in timings if found is not None), key=_pace, default=None)
    load = max(sum(flat.duration[q] for q in queues) for queues in flat.queues_of_rank)
    for step in (1, in_flight(flat)):
        if best is None or _pace(best) > load:
            best = _kernel(flat, step, None if best is None else _pace(best), budget, most, kernels) or best
    few = None if best is None else _few(best[0], most)
    if best is None or few is None:
        return
    from bubbleproof.solver.cpsat.constraints import Steady
    from bubbleproof.solver.cpsat.join import join

    words, found = best
    search = make(few, budget, words.period)
    n = words.blocks((few.microbatches,))
    if n is not None:
        orders = words.orders(n)
        search.offer(orders, "kernel")
        warm = search.warm = in_flight(flat)
        join(search, orders, Steady(words.period, found.growth, warm, few.microbatches - 1 - warm))


def _pace(found: tuple[Words, Timed]) -> Fraction:
    """Time per microbatch."""
    return Fraction(found[1].growth, found[0].period)


def _few(words: Words, most: int) -> Instance | None:
    """An instance that holds warm-up, cool-down and between more microbatches than are in flight; None if none can.

    If fewer are in flight than repeat, one kind of op repeats where another does not yet, and what is found cannot be
    enlarged. With no more microbatches than that to be had, it need not be.
    """
    instance, flight = words.flat.instance, in_flight(words.flat)
    base = instance.microbatches - words.period * words.rounds
    least = 3 * flight + 2 * words.period
    m = base + words.period * max(1, -(-(least - base) // words.period))
    if m > most:
        m = base + (most - base) // words.period * words.period
    if m < 2 * flight + 2 * words.period or 3 * instance.stages * m > _MOST_OPS:
        return None
    return instance.with_(microbatches=m)


def _kernel(
    flat: Flat, step: int, known: Fraction | None, budget: Budget, most: int, kernels: Kernels
) -> tuple[Words, Timed] | None:
    """Words of a kernel that takes less time per microbatch than is known, with their times."""
    from bubbleproof.solver.cpsat.kernel import fast_kernel, overlaid

    if step * sum(1 for size in flat.size if size) > _KERNEL_OPS:
        return None
    load = max(sum(flat.duration[q] for q in queues) for queues in flat.queues_of_rank)
    pace = Fraction(_HOPE * load) if known is None else known
    tried, kernel = kernels.get(step, (Fraction(0), None))
    if kernel is None and pace > tried:
        share = Budget(budget.left / 2, budget.effort_left / 2)
        kernel = fast_kernel(flat, step, pace, share)
        kernels[step] = pace, kernel
        budget.spend(share.used)
    if kernel is None:
        return None
    larger = Flat(flat.instance.with_(microbatches=4 * max(step, in_flight(flat)) + most % step))
    words = find_period(larger, overlaid(larger, kernel), (step,))
    found = None if words is None else timed(words, words.apart)
    return None if words is None or found is None or _pace((words, found)) >= pace else (words, found)
