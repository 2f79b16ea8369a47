"""Schedules for many microbatches written down from few: arrays for the judge, op objects only when they are asked for.

Where orders repeat, so do their times: from some block on, each starts a fixed time after the one before. So the orders
of a small number of blocks are timed, and the block in the middle after which that is so on every rank is repeated with
its times. Nothing of this is trusted: the judge decides on the arrays whether the starts are a timeline, and what
they come to. The time for all of it is that of a few array operations on the ops, whatever the search took.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import Timeline
from bubbleproof.solver.flat import Flat, Orders, Times, least_span, replay_flat
from bubbleproof.solver.periodic import Word, Words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from bubbleproof.schedules.instance import Objective
    from bubbleproof.schedules.table import Table

__all__ = ["Grown", "grow"]

_FEW_OPS = 3_000
"""Below so many ops of the large instance, timing them one by one takes no longer than loading an array library."""

_BLOCKS = (0, 12)
"""Blocks more than in the orders that the words were found in, among which a steady state is looked for."""

_Run: TypeAlias = Callable[[Flat, Orders], Times | None]


class _Steady(NamedTuple):
    """Starts of a few blocks, for each rank, of which block `at` and the one after it are `growth` apart everywhere."""

    starts: list[list[int]]
    blocks: int
    at: int
    growth: int
    makespan: int


@dataclass(frozen=True)
class Grown:
    """A judged answer for many microbatches.

    Parameters
    ----------
    flat
        The queues of the instance.
    words, n
        The orders: `n` blocks of the words.
    starts
        Of each slot, rows one after the other, by the objective's timeline; the judge has accepted them.
    makespan
        Of the earliest starts. `timed_makespan` and `span` are those of `starts`.
    peak
        Of each rank, static part included.
    """

    flat: Flat
    words: Words
    n: int
    table: Table
    starts: NDArray[np.int64]
    makespan: int
    timed_makespan: int
    span: int
    peak: tuple[int, ...]

    def value(self, objective: Objective) -> int:
        """Makespan or span."""
        return self.span if objective == "span" else self.timed_makespan

    @property
    def orders(self) -> Orders:
        """The orders in queues."""
        return self.words.orders(self.n)

    @cached_property
    def timeline(self) -> Timeline:
        """The timeline, as objects."""
        schedule = self.flat.schedule(self.orders, self.table.name)
        duration, at = self.flat.duration, 0
        starts, ends = [], []
        for order in self.orders:
            row = self.starts[at : at + len(order)].tolist()
            at += len(order)
            starts.append(tuple(row))
            ends.append(tuple(start + duration[queue] for start, queue in zip(row, order, strict=True)))
        return Timeline(self.flat.instance, schedule, tuple(starts), tuple(ends))

    @property
    def schedule(self) -> Schedule:
        """The schedule, as objects."""
        return self.timeline.schedule


def grow(flat: Flat, words: Words, n: int, name: str = "") -> Grown | None:
    """The answer for `n` blocks; None if it is small, does not come to a steady state soon, or the judge refuses it.

    Parameters
    ----------
    flat
        The queues of the instance that has n blocks.
    """
    instance = flat.instance
    if flat.ops < _FEW_OPS or flat.wires is not None or len(flat.microbatches) != 1 or not all(flat.duration):
        return None
    if not instance.placement.plain:
        return None
    for more in _BLOCKS:
        blocks = words.rounds + more
        if blocks >= n:
            break
        small = Flat(instance.with_(microbatches=len(words.flat.microbatches[0]) + more * words.period))
        earliest = _steady(small, words, blocks, replay_flat)
        chosen = earliest
        if earliest is not None and instance.objective == "span":
            chosen = _steady(small, words, blocks, least_span)
        if earliest is not None and chosen is not None:
            return _judged(flat, words, n, chosen, earliest.makespan + (n - blocks) * earliest.growth, name)
    return None


def _steady(small: Flat, words: Words, blocks: int, run: _Run) -> _Steady | None:
    orders = words.orders(blocks)
    times = run(small, orders)
    if times is None:
        return None
    duration = small.duration
    starts = [
        [end - duration[queue] for end, queue in zip(row, order, strict=True)]
        for row, order in zip(times.rows(orders), orders, strict=True)
    ]
    # from the middle outwards: what surrounds it are warm-up and cool-down
    for at in sorted(range(blocks - 1), key=lambda block: abs(2 * block + 2 - blocks)):
        apart = {
            later - start
            for row, word in zip(starts, words.rows, strict=True)
            for start, later in zip(_block(row, word, at), _block(row, word, at + 1), strict=True)
        }
        if len(apart) == 1:
            return _Steady(starts, blocks, at, apart.pop(), times.makespan)
    return None


def _block(row: list[int], word: Word, number: int) -> list[int]:
    begin, length = len(word.prefix), len(word.body)
    return row[begin + number * length : begin + (number + 1) * length]


def _judged(flat: Flat, words: Words, n: int, steady: _Steady, makespan: int, name: str) -> Grown | None:
    """The arrays of the answer, if the judge accepts them."""
    import numpy as np

    from bubbleproof.verify.bulk import prove_starts

    table = _table(flat, words, n, name)
    more, parts = n - steady.blocks, []
    for row, word in zip(steady.starts, words.rows, strict=True):
        cut = len(word.prefix) + (steady.at + 1) * len(word.body)
        own = np.array(row, np.int64)
        repeated = own[cut - len(word.body) : cut] + steady.growth * np.arange(1, more + 1, dtype=np.int64)[:, None]
        parts += [own[:cut], repeated.ravel(), own[cut:] + steady.growth * more]
    starts = np.concatenate(parts)
    facts = prove_starts(table, flat.instance, starts)
    if facts is None:
        return None
    return Grown(flat, words, n, table, starts, makespan, facts.makespan, facts.span, facts.peak)


def _table(flat: Flat, words: Words, n: int, name: str) -> Table:
    """The ops as arrays, without an object for any of them."""
    import numpy as np

    from bubbleproof.schedules.table import CODES, Table

    step, width = words.steps[0], flat.width
    code = np.array([CODES[flat.kinds[queue % width]] for queue in range(len(flat.rank))], np.int8)
    stage = np.array(flat.stage, np.int32)
    queues, numbers, offsets = [], [], [0]
    for word in words.rows:
        taken: Counter[int] = Counter()
        prefix = _numbers(word.prefix, taken)
        body = np.array(_numbers(word.body, taken.copy()), np.int32)
        suffix = np.array(_numbers(word.suffix, taken), np.int32) + step * n
        blocks = body + step * np.arange(n, dtype=np.int32)[:, None]
        numbers += [np.array(prefix, np.int32), blocks.ravel(), suffix]
        first, each, last = (np.array(part, np.intp) for part in (word.prefix, word.body, word.suffix))
        queues += [first, np.tile(each, n), last]
        offsets.append(offsets[-1] + len(word.prefix) + n * len(word.body) + len(word.suffix))
    all_queues = np.concatenate(queues)
    return Table(
        code[all_queues],
        stage[all_queues],
        np.concatenate(numbers).astype(np.int32),
        np.zeros(len(all_queues), np.bool_),
        np.array(offsets, np.int64),
        name,
    )


def _numbers(part: Sequence[int], taken: Counter[int]) -> list[int]:
    """The microbatch of each entry, counted on in `taken`."""
    found = []
    for queue in part:
        found.append(taken[queue])
        taken[queue] += 1
    return found
