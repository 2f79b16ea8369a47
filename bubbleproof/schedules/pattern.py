"""Periodic schedules: one finite description of a schedule for every number of microbatches of a residue class.

docs/semantics.md, section "For every number of microbatches", defines them and says what is proved about them.

Text form of an op: ``2F[3]`` is microbatch 3 of its route, ``2F[4b+3]`` microbatch 3 of block b of a loop whose blocks
hold four, ``2F[4n-1]`` the last but none of n blocks; ``2F[1:b]`` is on route 1. `formats.pattern_json` reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from bubbleproof.schedules.errors import ScheduleError
from bubbleproof.schedules.instance import MAX_STAGE_MICROBATCHES, Instance
from bubbleproof.schedules.op import Kind, Op, Overlap, Slot
from bubbleproof.schedules.schedule import Schedule

__all__ = ["Anchor", "IndexedOp", "IndexedSlot", "PeriodicSchedule", "Segment", "indexed_members"]

Anchor: TypeAlias = Literal["", "b", "n"]
"""What an index counts from: the first microbatch, the block of a loop, the end of the n blocks."""


class IndexedOp(NamedTuple):
    """An op whose microbatch is `offset`, or `offset` + step·block, or `offset` + step·n of its route."""

    kind: Kind
    stage: int
    route: int
    anchor: Anchor
    offset: int


IndexedSlot: TypeAlias = IndexedOp | tuple[IndexedOp, IndexedOp]
"""An op, or a forward and a backward that run as a pair."""


def indexed_members(slot: IndexedSlot) -> tuple[IndexedOp, ...]:
    """The ops of a slot."""
    return (slot,) if isinstance(slot, IndexedOp) else slot


@dataclass(frozen=True)
class Segment:
    """Some slots of a rank that follow each other.

    Parameters
    ----------
    repeat
        ``once``: the slots occur once. ``up``, ``down``: they are the body of a loop and occur once for each block,
        blocks 0 … n − 1 in ascending or descending order.
    starts, per_n, per_block
        Claimed times, for whoever says more than an order: slot i starts at ``starts[i] + per_n·n``, in a loop with
        ``per_block·b`` more for block b. None: nothing is claimed.

    Raises
    ------
    ScheduleError
        Not one start for each slot.
    """

    slots: tuple[IndexedSlot, ...]
    repeat: Literal["once", "up", "down"] = "once"
    starts: tuple[int, ...] | None = None
    per_n: int = 0
    per_block: int = 0

    def __post_init__(self) -> None:
        if self.starts is not None and len(self.starts) != len(self.slots):
            raise ScheduleError(f"a segment of {len(self.slots)} slots has {len(self.starts)} starts")


@dataclass(frozen=True)
class PeriodicSchedule:
    """The orders of all ranks for every n ≥ `least`: on route r there are ``bases[r] + steps[r]·n`` microbatches.

    Parameters
    ----------
    rows
        For each rank its segments in order.
    steps, bases
        For each route the microbatches per block, at least 1, and those beside the blocks (may be negative).
    least
        The smallest n for which the description is meant, at least 1.

    Raises
    ------
    ScheduleError
        A step or `least` below 1, routes that do not match, an index that does not fit its segment or is that of no
        microbatch of its route, or no microbatch at `least`.
    """

    rows: tuple[tuple[Segment, ...], ...]
    steps: tuple[int, ...]
    bases: tuple[int, ...]
    least: int = 1
    name: str = ""

    def __post_init__(self) -> None:
        if len(self.steps) not in (1, 2) or len(self.steps) != len(self.bases):
            raise ScheduleError(
                f"steps {list(self.steps)} and bases {list(self.bases)}: one each for one or two routes"
            )
        if min(self.steps) < 1 or self.least < 1:
            raise ScheduleError(f"steps {list(self.steps)} and least {self.least} must be at least 1")
        if min(base + step * self.least for base, step in zip(self.bases, self.steps, strict=True)) < 0:
            raise ScheduleError(f"bases {list(self.bases)} leave a negative number of microbatches at n = {self.least}")
        if self.microbatches(self.least) < 1:
            raise ScheduleError(f"there is no microbatch at n = {self.least}")
        for rank, row in enumerate(self.rows):
            for segment in row:
                for op in (op for slot in segment.slots for op in indexed_members(slot)):
                    if (op.anchor == "b") != (segment.repeat != "once"):
                        raise ScheduleError(f"rank {rank}: {self.text(op)} counts in blocks if and only if in a loop")
                    if not 0 <= op.route < len(self.steps):
                        raise ScheduleError(f"rank {rank}: an op on route {op.route}, which does not exist")
                    if not self._exists(op):
                        raise ScheduleError(f"rank {rank}: there is no microbatch for {self.text(op)} on its route")

    def _exists(self, op: IndexedOp) -> bool:
        """Whether an op has a microbatch of its own route for every n ≥ least."""
        base, step = self.bases[op.route], self.steps[op.route]
        blocks = step * self.least
        if op.anchor == "n":
            return op.offset + blocks >= 0 and op.offset < base
        return 0 <= op.offset < base + (step if op.anchor == "b" else blocks)

    @property
    def timed(self) -> bool:
        """Whether times are claimed for every slot."""
        return all(segment.starts is not None for row in self.rows for segment in row)

    @property
    def period(self) -> int:
        """Microbatches that one block adds."""
        return sum(self.steps)

    def microbatches(self, n: int) -> int:
        """The number of microbatches m for n blocks."""
        return sum(self.bases) + self.period * n

    def blocks(self, microbatches: int) -> int:
        """The number of blocks n for m microbatches.

        Raises
        ------
        ScheduleError
            No n ≥ `least` gives this m.
        """
        n, rest = divmod(microbatches - sum(self.bases), self.period)
        if rest or n < self.least:
            first = self.microbatches(self.least)
            raise ScheduleError(f"m = {microbatches} is none of {first}, {first + self.period}, … of this pattern")
        return n

    def routes(self, n: int) -> tuple[int, ...]:
        """The route of each microbatch: first those of route 0, then those of route 1."""
        pairs = enumerate(zip(self.bases, self.steps, strict=True))
        return tuple(route for route, (base, step) in pairs for _ in range(base + step * n))

    def instance(self, base: Instance, n: int) -> Instance:
        """An instance with the microbatches that n blocks have, all else as in `base`."""
        return base.with_(microbatches=self.microbatches(n), route_of_microbatch=self.routes(n))

    def schedule(self, n: int) -> Schedule:
        """The schedule for n blocks.

        Raises
        ------
        ScheduleError
            It would have more slots than `MAX_STAGE_MICROBATCHES` instances of a stage allow.
        """
        if n * sum(len(s.slots) for row in self.rows for s in row) > 4 * MAX_STAGE_MICROBATCHES:
            raise ScheduleError(f"the schedule for m = {self.microbatches(n)} microbatches is too large")
        return Schedule.of((self._order(row, n) for row in self.rows), self.name)

    def _order(self, row: tuple[Segment, ...], n: int) -> Iterator[Slot]:
        for segment in row:
            if segment.repeat == "once":
                blocks: Iterable[int] = (0,)
            else:
                blocks = range(n) if segment.repeat == "up" else range(n - 1, -1, -1)
            for block in blocks:
                for slot in segment.slots:
                    if isinstance(slot, IndexedOp):
                        yield self._op(slot, n, block)
                    else:
                        yield Overlap(self._op(slot[0], n, block), self._op(slot[1], n, block))

    def _op(self, op: IndexedOp, n: int, block: int) -> Op:
        times = {"": 0, "b": block, "n": n}[op.anchor]
        before = self.bases[0] + self.steps[0] * n if op.route else 0
        return Op(op.kind, op.stage, before + op.offset + self.steps[op.route] * times)

    def text(self, slot: IndexedSlot) -> str:
        """A slot in text form."""
        if not isinstance(slot, IndexedOp):
            return f"({self.text(slot[0])};{self.text(slot[1])})"
        route = f"{slot.route}:" if len(self.steps) > 1 else ""
        step = self.steps[slot.route] if 0 <= slot.route < len(self.steps) else 1
        if not slot.anchor:
            index = str(slot.offset)
        else:
            index = (str(step) if step > 1 else "") + slot.anchor + (f"{slot.offset:+d}" if slot.offset else "")
        return f"{slot.stage}{slot.kind}[{route}{index}]"

    def __str__(self) -> str:
        lines = []
        for row in self.rows:
            parts = []
            for segment in row:
                text = " ".join(map(self.text, segment.slots))
                parts.append(
                    text if segment.repeat == "once" else f"{{{text}}}{'×n' if segment.repeat == 'up' else '↓n'}"
                )
            lines.append(" ".join(parts))
        return "\n".join(lines)
