"""V-Half and V-Min: building blocks on a vee, with a half and a third of the activation memory of 1F1B.

The construction has the steps of arXiv 2405.15362: lay out one microbatch as a *building block*, repeat it at a uniform
interval so that no two ops of a rank collide, squeeze out the idle time, and reorder warm-up and cool-down. It works in
units of one op of one chunk (F = B = W = 1, an interval of 6), so that the order depends on p and m alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bubbleproof.schedules.families.family import Family, require
from bubbleproof.schedules.families.zb_v import vee_placement, why_no_split_vee
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Kind, Op
from bubbleproof.schedules.schedule import Schedule

__all__ = ["V_HALF", "V_MIN", "v_half", "v_min"]

_INTERVAL = 6
"""Ops of one microbatch on one rank, so the interval at which a block repeats without idle time."""

_STREAMS: tuple[tuple[Kind, int], ...] = (("F", 0), ("F", 1), ("B", 1), ("B", 0), ("W", 1), ("W", 0))
"""The (kind, chunk) pairs of a rank, in the order in which a microbatch passes them."""

_CHANGE = (1, 1, 0, 0, -1, -1)
"""What an op of each stream adds to the chunk activations of its rank."""


class _Block(NamedTuple):
    """How one microbatch passes the ranks: down and up forward, down and up backward.

    Parameters
    ----------
    offsets
        Delay from one rank to the next, for each of the four passes.
    turns
        Ops for which it waits at the end of each of the first three passes, before it turns.
    """

    offsets: tuple[int, int, int, int]
    turns: tuple[int, int, int]

    def starts(self, ranks: int) -> list[list[int]]:
        """For each rank the start of each stream's op; each W takes the first place that is free after its B."""
        p = ranks
        a, b, c, d = self.offsets
        down = [a * r for r in range(p)]
        up = [down[-1] + 1 + self.turns[0] + b * (p - 1 - r) for r in range(p)]
        back = [up[0] + 1 + self.turns[1] + c * r for r in range(p)]
        home = [back[-1] + 1 + self.turns[2] + d * (p - 1 - r) for r in range(p)]
        rows = []
        for row in map(list, zip(down, up, back, home, strict=True)):
            taken = {start % _INTERVAL for start in row}
            for start in row[2:]:
                row.append(next(t for t in range(start + 1, start + 1 + _INTERVAL) if t % _INTERVAL not in taken))
                taken.add(row[-1] % _INTERVAL)
            rows.append(row)
        return rows


class _Rank:
    """One rank while its ops are put in order: the repeated block, and how far it has got."""

    def __init__(self, starts: Sequence[int], microbatches: int, cap: int) -> None:
        pattern = sorted((s + _INTERVAL * j, k) for k, s in enumerate(starts) for j in range(microbatches))
        self.next = [0] * len(_STREAMS)
        self.order: list[tuple[int, int]] = []
        self._pattern = [stream for _, stream in pattern]
        self._place: list[list[int]] = [[] for _ in _STREAMS]
        for position, stream in enumerate(self._pattern):
            self._place[stream].append(position)
        self._microbatches = microbatches
        self._done = bytearray(len(pattern))
        self._head = 0
        self._level = 0
        self._cap = cap

    def wishes(self) -> list[int]:
        """The streams whose next op may come next, most urgent first.

        In the warm-up, until its first B, a rank takes forwards as they come. In the steady state it keeps to the
        pattern, which is what makes the block's properties hold. In the cool-down, after the last forward of its first
        chunk, weight gradients wait while there is anything else.
        """
        open_streams = [k for k, j in enumerate(self.next) if j < self._microbatches]
        if self.next[2] == 0:
            return sorted(open_streams, key=lambda k: (_STREAMS[k][0] != "F", self._place[k][self.next[k]]))
        if 0 not in open_streams:
            return sorted(open_streams, key=lambda k: (_STREAMS[k][0] == "W", self._place[k][self.next[k]]))
        return [self._pattern[self._head]]

    def fits(self, stream: int) -> bool:
        """Whether the next op of a stream may overtake all that the pattern puts before it, within the cap."""
        if _CHANGE[stream] <= 0:
            return True
        level = self._level
        for position in range(self._head, self._place[stream][self.next[stream]]):
            if level >= self._cap:
                return False
            if not self._done[position]:
                level += _CHANGE[self._pattern[position]]
        return level < self._cap

    def run(self, stream: int) -> None:
        """Take the next op of a stream."""
        microbatch = self.next[stream]
        self.next[stream] += 1
        self.order.append((stream, microbatch))
        self._level += _CHANGE[stream]
        self._done[self._place[stream][microbatch]] = 1
        while self._head < len(self._done) and self._done[self._head]:
            self._head += 1


class _Ends:
    """When ops end, while they are put in order."""

    def __init__(self, stages: int, microbatches: int) -> None:
        self._never = 24 * stages * microbatches  # later than a sequential run would end
        self._last = stages - 1
        self._ends = {kind: [[self._never] * microbatches for _ in range(stages)] for kind in ("F", "B", "W")}

    def set(self, op: Op, end: int) -> None:
        """An op ends at this time."""
        self._ends[op.kind][op.stage][op.microbatch] = end

    def ready(self, op: Op) -> int:
        """When the inputs of an op are there."""
        kind, stage, j = op
        if kind == "F":
            return self._ends["F"][stage - 1][j] if stage else 0
        if kind == "W":
            return self._ends["B"][stage][j]
        own = self._ends["F"][stage][j]
        return own if stage == self._last else max(own, self._ends["B"][stage + 1][j])


def _schedule(instance: Instance, block: _Block, cap: int, name: str) -> Schedule:
    """Repeat a block, then run it at unit times: each rank takes its most urgent op that can start and fits.

    What the pattern puts before an op that overtakes it stays possible within the cap, so this never gets stuck.
    """
    p, m = instance.ranks, instance.microbatches
    ranks = [_Rank(starts, m, cap) for starts in block.starts(p)]
    ends = _Ends(2 * p, m)
    orders: list[list[Op]] = [[] for _ in ranks]
    now = 0
    while any(len(order) < _INTERVAL * m for order in orders):
        for r, (rank, order) in enumerate(zip(ranks, orders, strict=True)):
            if len(order) == _INTERVAL * m:
                continue
            for stream in rank.wishes():
                kind, chunk = _STREAMS[stream]
                op = Op(kind, 2 * p - 1 - r if chunk else r, rank.next[stream])
                if ends.ready(op) <= now and rank.fits(stream):
                    ends.set(op, now + 1)
                    rank.run(stream)
                    order.append(op)
                    break
        now += 1
    return Schedule.of(orders, name)


def v_half(instance: Instance) -> Schedule:
    """V-Half: a vee with about half the activation memory of 1F1B, ⌊(p + 2)/2⌋ microbatches on every rank.

    At F = B = W = 1 per chunk, no communication and m ≥ 2p, makespan and span are 6m + 3p − 7 for even p ≥ 4 and
    6m + 3p − 4 for odd p ≥ 3. The bubble does not grow with m while W + 2B ≥ 2F and W + 2F ≥ 2B. The order is made for
    unit times and does not adapt to others.
    Source: arXiv 2405.15362 (building blocks, lifespans, V-Half). The places of the ops in the block
    are chosen here, within the paper's rules (offsets of F and B of a chunk that add up to 3, no collision): the
    values equal those of the authors' greedy generator at p = 4, 8 and 12.
    Preconditions: a vee placement, split backward; any m.
    """
    require("v-half", why_no_split_vee(instance))
    p = instance.ranks
    block = _Block((1, 2, 1, 2), (0, 0, 1) if p % 2 else (0, 3, 1))
    return _schedule(instance, block, 2 * ((p + 2) // 2), "v-half")


def v_min(instance: Instance) -> Schedule:
    """V-Min: a vee with about a third of the activation memory of 1F1B, ⌊(p + 4)/3⌋ microbatches on every rank.

    At F = B = W = 1 per chunk, no communication and m ≥ 2p, makespan and span are 6m + 4p − 7, 6m + 4p − 5 or
    6m + 4p − 9 for p ≡ 0, 1 or 2 (mod 3), p ≥ 3. Where F, B and W differ the bubble grows with m. The order is made
    for unit times and does not adapt to others.
    Source: arXiv 2405.15362 (building blocks, lifespans, V-Min: all offsets 1). The waits at the
    turns are chosen here, as short as they can be without collision. The values equal those of the authors' greedy
    generator at p = 4 and 12; at p = 8 the makespan is 4 less (119 and 215 against 123 and 219 for m = 16 and 32) at
    the same peak of 8 chunks, which is what their adaptive search finds there.
    Preconditions: a vee placement, split backward; any m.
    """
    require("v-min", why_no_split_vee(instance))
    p = instance.ranks
    block = _Block((1, 1, 1, 1), (0, (2, 0, 4)[p % 3], 0))
    return _schedule(instance, block, 2 * ((p + 4) // 3), "v-min")


V_HALF = Family(
    name="v-half",
    summary="a vee with half the activation memory of 1F1B",
    reference="arXiv 2405.15362",
    order=v_half,
    why_not=why_no_split_vee,
    placement=vee_placement,
    chunks=2,
    needs_split=True,
)

V_MIN = Family(
    name="v-min",
    summary="a vee with a third of the activation memory of 1F1B, and a larger bubble",
    reference="arXiv 2405.15362",
    order=v_min,
    why_not=why_no_split_vee,
    placement=vee_placement,
    chunks=2,
    needs_split=True,
)
