"""Orders with a part that repeats: found in the orders for a small number of microbatches, and made for any larger one.

In the queues of `flat` the order of a rank is a word over its queues. A word that reads prefix, body, body, …, suffix,
and whose body serves every queue of a route equally often, can take in any number of further bodies: that is a schedule
for more microbatches. Whether it still runs, keeps the caps and how long it takes is for others to find out; nothing
here is trusted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from bubbleproof.schedules.errors import ScheduleError
from bubbleproof.schedules.pattern import Anchor, IndexedOp, PeriodicSchedule, Segment
from bubbleproof.solver.flat import Flat, Orders

__all__ = ["Word", "Words", "cut_period", "find_period"]


@dataclass(frozen=True)
class Word:
    """The order of one rank: `prefix`, then `body` once for each block, then `suffix`."""

    prefix: list[int]
    body: list[int]
    suffix: list[int]


@dataclass(frozen=True)
class Words:
    """Orders for every number of blocks.

    Parameters
    ----------
    flat
        The queues; its number of microbatches is that of `rounds` blocks.
    steps
        For each route the microbatches that a block adds.
    rounds
        The number of blocks in the orders that the words were found in.
    """

    flat: Flat
    steps: tuple[int, ...]
    rows: tuple[Word, ...]
    rounds: int

    @property
    def period(self) -> int:
        """Microbatches that a block adds."""
        return sum(self.steps)

    def blocks(self, counts: tuple[int, ...]) -> int | None:
        """The number of blocks that give these numbers of microbatches on the routes; None if none does."""
        found = set()
        for count, have, step in zip(counts, self._counts, self.steps, strict=True):
            more, rest = divmod(count - have, step)
            if rest:
                return None
            found.add(self.rounds + more)
        n = found.pop()
        return None if found or n < 1 else n

    @property
    def _counts(self) -> tuple[int, ...]:
        return tuple(len(mine) for mine in self.flat.microbatches)

    @property
    def apart(self) -> int:
        """From how many blocks on no op before the blocks names the microbatch of one after them."""
        each = zip(self._counts, self.steps, strict=True)
        return 1 + max((count - step * self.rounds) // step for count, step in each)

    def orders(self, n: int) -> Orders:
        """The orders for n ≥ 1 blocks."""
        return [word.prefix + word.body * n + word.suffix for word in self.rows]

    def pattern(self, name: str = "", least: int = 1) -> PeriodicSchedule | None:
        """The same as a periodic schedule; None if some op would have no microbatch at so few blocks."""
        bases = tuple(count - step * self.rounds for count, step in zip(self._counts, self.steps, strict=True))
        rows = tuple(tuple(self._segments(word)) for word in self.rows)
        try:
            return PeriodicSchedule(rows, self.steps, bases, least, name)
        except ScheduleError:
            return None

    def _segments(self, word: Word) -> Iterator[Segment]:
        flat, width = self.flat, self.flat.width
        taken: Counter[int] = Counter()
        anchors: tuple[Anchor, ...] = ("", "b", "n")
        for anchor, part in zip(anchors, (word.prefix, word.body, word.suffix), strict=True):
            begun = taken.copy()
            slots = []
            for queue in part:
                slots.append(
                    IndexedOp(flat.kinds[queue % width], flat.stage[queue], flat.route[queue], anchor, taken[queue])
                )
                taken[queue] += 1
            if anchor == "b":
                taken = begun  # what follows counts from the end of the blocks
                yield Segment(tuple(slots), "up")
            elif slots:
                yield Segment(tuple(slots))


def find_period(flat: Flat, orders: Orders, steps: tuple[int, ...]) -> Words | None:
    """The words behind orders, if every rank repeats itself with these steps for at least two blocks.

    Parameters
    ----------
    steps
        For each route the microbatches per block.
    """
    found = []
    for queues, order in zip(flat.queues_of_rank, orders, strict=True):
        times = {queue: steps[flat.route[queue]] for queue in queues if flat.size[queue]}
        length = sum(times.values())
        if not length:
            return None
        begin, end = _longest_run(order, length)
        if end - begin < 2 * length or Counter(order[begin : begin + length]) != times:
            return None
        found.append((begin, (end - begin) // length, length))
    rounds = min(count for _, count, _ in found)
    rows = []
    for order, (begin, _, length) in zip(orders, found, strict=True):
        end = begin + rounds * length
        rows.append(Word(order[:begin], order[begin : begin + length], order[end:]))
    return Words(flat, steps, tuple(rows), rounds)


def cut_period(flat: Flat, orders: Orders, steps: tuple[int, ...], first: int) -> Words | None:
    """As `find_period`, where every kind of op is known to repeat from its microbatch number `first` on.

    The blocks of a rank begin where it has run as many of every queue; somewhere else it may repeat in another way.
    """
    found = []
    for queues, order in zip(flat.queues_of_rank, orders, strict=True):
        times = {queue: steps[flat.route[queue]] for queue in queues if flat.size[queue]}
        length = sum(times.values())
        taken: Counter[int] = Counter()
        begin = next(
            (at for at, queue in enumerate(order) if _passed(taken, times, first) or taken.update((queue,))), len(order)
        )
        body = order[begin : begin + length]
        rounds = 0
        while order[begin + rounds * length : begin + (rounds + 1) * length] == body and len(body) == length:
            rounds += 1
        if not length or not rounds or Counter(body) != times:
            return None
        found.append((begin, rounds, body))
    least = min(rounds for _, rounds, _ in found)
    rows = [
        Word(order[:begin], body, order[begin + least * len(body) :])
        for order, (begin, _, body) in zip(orders, found, strict=True)
    ]
    return Words(flat, steps, tuple(rows), least)


def _passed(taken: Counter[int], times: dict[int, int], first: int) -> bool:
    return all(taken[queue] >= first for queue in times)


def _longest_run(order: list[int], length: int) -> tuple[int, int]:
    """The longest stretch of an order in which each entry equals the one `length` entries later, those included."""
    best = (0, 0)
    begin = 0
    for at in range(len(order) - length + 1):
        if at == len(order) - length or order[at] != order[at + length]:
            if at > begin and at + length - begin > best[1] - best[0]:
                best = (begin, at + length)
            begin = at + 1
    return best
