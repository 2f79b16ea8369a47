"""List scheduling that also chooses: recompute or keep, fuse or split, run a forward and a backward as a pair.

Event by event, as in `bubbleproof.solver.heuristics`, but on slots instead of queues. Every line (a stage for a class
of equal microbatches) runs its forwards and its backwards in microbatch order. What it chooses is told by `Wishes`,
over which the search climbs.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Op, Overlap, Slot
from bubbleproof.schedules.schedule import Schedule

__all__ = ["Chooser", "Wishes"]

_NEVER = 1 << 62


@dataclass(frozen=True)
class Wishes:
    """Settings of the greedy.

    Parameters
    ----------
    depth
        For each line the most microbatches whose backward has not ended.
    keep
        For each line the most microbatches that are in flight without a recompute to come; the forwards beyond keep
        only a stash.
    fuse
        For each line the first of its microbatches, counted in the class, whose backward is fused, and likewise the
        first that is split again after it.
    pair
        For each rank how long one member of a pair waits for the other, in percent of what the pair saves; below 0: no
        pairs.
    delay, fill
        For each rank, as in `bubbleproof.solver.heuristics.Knobs`.
    late
        Whether a higher stage goes first when several forwards could run.
    """

    depth: tuple[int, ...]
    keep: tuple[int, ...]
    fuse: tuple[tuple[int, int], ...]
    pair: tuple[int, ...]
    delay: tuple[int, ...]
    fill: tuple[int, ...]
    late: bool = True


class _Line:
    """A stage for one class of equal microbatches."""

    def __init__(self, instance: Instance, number: int, stage: int, microbatches: tuple[int, ...]) -> None:
        costs, memory, first = instance.costs, instance.memory, microbatches[0]
        self.number, self.stage, self.microbatches, self.size = number, stage, microbatches, len(microbatches)
        self.rank = instance.rank_of(stage, first)
        self.f, self.b, self.w, self.bw = (costs.of(kind, stage, first) for kind in ("F", "B", "W", "BW"))
        self.pair_b = self.pair_bw = None
        if costs.overlap_B is not None and costs.split:
            self.pair_b = costs.figure("overlap_B", stage, first) + costs.overhead
        if costs.overlap_BW is not None:
            self.pair_bw = costs.figure("overlap_BW", stage, first) + costs.overhead
        self.r = 0 if costs.R is None else costs.of("R", stage, first)
        self.take, self.spare = memory.of("F", stage, first), 0 if memory.R is None else memory.R[stage]
        self.change_b, self.change_w = memory.of("B", stage, first), memory.of("W", stage, first)
        self.above = number + 1 if stage + 1 < instance.stages else None
        self.below = number - 1 if stage else None


class Chooser:
    """The lines of an instance, ready for runs of the greedy."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.lines: list[_Line] = []
        self.of_rank: list[list[_Line]] = [[] for _ in range(instance.ranks)]
        for alike in filter(None, instance.classes):
            for stage in range(instance.stages):
                line = _Line(instance, len(self.lines), stage, alike)
                self.lines.append(line)
                self.of_rank[line.rank].append(line)
        cap, static = instance.memory.cap, instance.memory.static
        self.room = [_NEVER if cap is None else cap[r] - static[r] for r in range(instance.ranks)]

    def run(self, wishes: Wishes) -> tuple[Schedule, int, int] | None:
        """A schedule, and the makespan and span of the timeline in which it was built; None if it got stuck."""
        return _Run(self, wishes).go()


class _Run:
    """State of one run."""

    def __init__(self, chooser: Chooser, wishes: Wishes) -> None:
        self.chooser, self.wishes, self.lines = chooser, wishes, chooser.lines
        n, p = len(self.lines), chooser.instance.ranks
        self.split = chooser.instance.costs.split
        self.forward, self.backward, self.weight = [0] * n, [0] * n, [0] * n
        self.up: list[list[int]] = [[0] * line.size if line.below is None else [] for line in self.lines]
        self.down: list[list[int]] = [[] for _ in self.lines]
        self.again: list[list[bool]] = [[] for _ in self.lines]
        self.redone, self.kept = [0] * n, [0] * n  # recomputes run; kept whole and in flight
        self.pending: list[list[int]] = [[] for _ in self.lines]
        self.level, self.free, self.first = [0] * p, [0] * p, [-1] * p
        self.extra = [0] * p
        self.orders: list[list[Slot]] = [[] for _ in range(p)]
        self.sent: dict[tuple[int, int], int] = {}
        self.events = [(0, rank) for rank in range(p)]
        late = -1 if wishes.late else 1
        self.sorted = [sorted(held, key=lambda line: late * line.stage) for held in chooser.of_rank]
        self.spare = [
            max((x.spare for x in held if wishes.keep[x.number] < x.size), default=0) for held in chooser.of_rank
        ]

    def go(self) -> tuple[Schedule, int, int] | None:
        events = self.events
        while events:
            time, rank = heappop(events)
            if self.free[rank] > time:
                continue
            wake = self.step(rank, time)
            if time < wake < _NEVER:
                heappush(events, (wake, rank))
        for line in self.lines:
            if self.backward[line.number] < line.size or self.pending[line.number]:
                return None
        ends = [end for end, order in zip(self.free, self.orders, strict=True) if order]
        firsts = [first for first, order in zip(self.first, self.orders, strict=True) if order]
        span = max(end - first for end, first in zip(ends, firsts, strict=True))
        return Schedule.of(self.orders, "greedy with choices"), max(ends) - min(firsts), span

    def step(self, rank: int, time: int) -> int:
        """Run something on a rank that is free; else when to ask again."""
        wishes, soon = self.wishes, _NEVER
        ready: _Line | None = None
        ready_at, next_back, next_line = _NEVER, _NEVER, None
        for line in self.sorted[rank]:
            k = self.backward[line.number]
            if k < len(self.down[line.number]):
                at = self.down[line.number][k]
                if at <= time and at < ready_at:
                    ready, ready_at = line, at
                elif time < at < next_back:
                    next_back, next_line = at, line
        forward, next_forward = self.forward_at(rank, time)
        if ready is not None and self.owes(ready):
            if self.redo(ready, time):
                return _NEVER
            ready = None
        patience = wishes.pair[rank]
        if patience >= 0:
            if ready is not None and forward is not None and self.pair(forward, ready, time):
                return _NEVER
            waits = self.waits_for_partner(rank, time, ready, forward, next_back, next_forward)
            if waits:
                return waits
        if ready is not None and self.fits(ready):
            self.back(ready, time)
            return _NEVER
        if forward is not None:
            over = time + forward.f - next_back
            if over <= 0 or over * 100 <= wishes.delay[rank] * forward.f:
                self.ahead(forward, time)
                return _NEVER
        if next_line is not None and self.owes(next_line) and self.redo_ahead(rank, time, next_back, next_line):
            return _NEVER
        soon = min(next_back, next_forward)
        weight = min(
            (line for line in self.sorted[rank] if self.pending[line.number]),
            key=lambda line: self.pending[line.number][0],
            default=None,
        )
        if weight is not None:
            starved = ready is not None or self.starved(rank, time)
            if starved or (soon - time) * 100 >= wishes.fill[rank] * weight.w:
                self.weigh(weight, time)
                return _NEVER
        return soon

    def owes(self, line: _Line) -> bool:
        """Whether the next backward of a line waits for its recompute."""
        number, k = line.number, self.backward[line.number]
        return self.again[number][k] and self.redone[number] <= k

    def redo_ahead(self, rank: int, time: int, next_back: int, line: _Line) -> bool:
        """Recompute for a backward whose gradient is on its way, unless a W fits in before."""
        gap = next_back - time
        if gap > line.r and any(self.pending[x.number] and x.w + line.r <= gap for x in self.sorted[rank]):
            return False
        return self.redo(line, time)

    def starved(self, rank: int, time: int) -> bool:
        """Whether a forward has its input and lacks memory only."""
        for line in self.sorted[rank]:
            k, arrived = self.forward[line.number], self.up[line.number]
            open_ = k - self.backward[line.number]
            if k < len(arrived) and arrived[k] <= time and open_ < self.wishes.depth[line.number]:
                return True
        return False

    def forward_at(self, rank: int, time: int) -> tuple[_Line | None, int]:
        """The forward that can run now, and when the next one can."""
        soon = _NEVER
        for line in self.sorted[rank]:
            number = line.number
            k = self.forward[number]
            if k >= len(self.up[number]) or k - self.backward[number] >= self.wishes.depth[number]:
                continue
            if self.portion(line) is None:
                continue
            at = self.up[number][k]
            if at <= time:
                return line, soon
            soon = min(soon, at)
        return None, soon

    def portion(self, line: _Line) -> int | None:
        """What the next forward of a line takes: all, a stash, or None if it does not fit."""
        rank = line.rank
        room = self.chooser.room[rank] - self.level[rank] - max(0, self.spare[rank] - self.extra[rank])
        for other in self.chooser.of_rank[rank]:
            if other.stage > line.stage and self.forward[other.number] < other.size:
                least = other.take - (other.spare if self.wishes.keep[other.number] < other.size else 0)
                room = min(room, self.chooser.room[rank] - self.level[rank] - least)
        if self.kept[line.number] < self.wishes.keep[line.number] and line.take <= room:
            return line.take
        if line.spare and self.wishes.keep[line.number] < line.size and line.take - line.spare <= room:
            return line.take - line.spare
        return None

    def fits(self, line: _Line) -> bool:
        """Whether the next backward of a line keeps the cap."""
        return self.level[line.rank] + max(0, line.change_b) <= self.chooser.room[line.rank] or not self.split

    def fused(self, line: _Line, k: int) -> bool:
        begin, end = self.wishes.fuse[line.number]
        return not self.split or begin <= k < end

    def waits_for_partner(
        self, rank: int, time: int, ready: _Line | None, forward: _Line | None, next_back: int, next_forward: int
    ) -> int:
        """When the other member of a pair will be there, if it is worth waiting for; 0 if not."""
        if (ready is None) == (forward is None):
            return 0
        at, line = (next_forward, None) if ready is not None else (next_back, forward)
        some = line or self.sorted[rank][0]
        saved = max(
            some.f + some.b - some.pair_b if some.pair_b is not None else 0,
            some.f + some.bw - some.pair_bw if some.pair_bw is not None else 0,
        )
        return at if time < at < _NEVER and (at - time) * 100 <= self.wishes.pair[rank] * saved else 0

    def pair(self, forward: _Line, backward: _Line, time: int) -> bool:
        """Run a pair if it is shorter than its members."""
        i, k = self.forward[forward.number], self.backward[backward.number]
        j, other = forward.microbatches[i], backward.microbatches[k]
        portion = self.portion(forward)
        if j == other or portion is None:
            return False
        whole = self.fused(backward, k)
        length = forward.pair_bw if whole else forward.pair_b
        if length is None or length >= forward.f + (backward.bw if whole else backward.b):
            return False
        if (
            not whole
            and self.level[forward.rank] + portion + max(0, backward.change_b) > self.chooser.room[forward.rank]
        ):
            return False
        slot = Overlap(Op("F", forward.stage, j), Op("BW" if whole else "B", backward.stage, other))
        end = self.put(slot, forward.rank, time, length)
        self.forwarded(forward, end, portion)
        self.backed(backward, end, whole)
        return True

    def put(self, slot: Slot, rank: int, time: int, length: int) -> int:
        if self.first[rank] < 0:
            self.first[rank] = time
        self.orders[rank].append(slot)
        self.free[rank] = time + length
        heappush(self.events, (time + length, rank))
        return time + length

    def ahead(self, line: _Line, time: int) -> None:
        portion = self.portion(line)
        assert portion is not None
        j = line.microbatches[self.forward[line.number]]
        self.forwarded(line, self.put(Op("F", line.stage, j), line.rank, time, line.f), portion)

    def forwarded(self, line: _Line, end: int, portion: int) -> None:
        number = line.number
        self.forward[number] += 1
        self.again[number].append(portion < line.take)
        self.kept[number] += portion == line.take
        self.level[line.rank] += portion
        if line.above is None:
            self.down[number].append(end)
        else:
            self.send(line, self.lines[line.above], end, self.up)

    def back(self, line: _Line, time: int) -> None:
        k = self.backward[line.number]
        whole = self.fused(line, k)
        slot = Op("BW" if whole else "B", line.stage, line.microbatches[k])
        self.backed(line, self.put(slot, line.rank, time, line.bw if whole else line.b), whole)

    def backed(self, line: _Line, end: int, whole: bool) -> None:
        number = line.number
        k = self.backward[number]
        self.backward[number] = k + 1
        if self.again[number][k]:
            self.extra[line.rank] -= line.spare
        else:
            self.kept[number] -= 1
        self.level[line.rank] += -line.take if whole else line.change_b
        if not whole:
            self.pending[number].append(k)
        if line.below is not None:
            self.send(line, self.lines[line.below], end, self.down)

    def redo(self, line: _Line, time: int) -> bool:
        number, k = line.number, self.backward[line.number]
        if self.level[line.rank] + line.spare > self.chooser.room[line.rank]:
            return False
        self.redone[number] = k + 1
        self.level[line.rank] += line.spare
        self.extra[line.rank] += line.spare
        self.put(Op("R", line.stage, line.microbatches[k]), line.rank, time, line.r)
        return True

    def weigh(self, line: _Line, time: int) -> None:
        k = self.pending[line.number].pop(0)
        self.level[line.rank] += line.change_w
        self.put(Op("W", line.stage, line.microbatches[k]), line.rank, time, line.w)

    def send(self, line: _Line, to: _Line, end: int, into: list[list[int]]) -> None:
        """A message to another stage; on an occupied channel it waits for its turn."""
        costs = self.chooser.instance.costs
        if costs.channel != "latency" and line.rank != to.rank:
            channel = (line.rank, to.rank if costs.channel == "pair" else -1)
            end = max(end, self.sent.get(channel, 0))
            self.sent[channel] = end + costs.message(line.rank, to.rank)
        at = end + costs.message(line.rank, to.rank)
        into[to.number].append(at)
        if to.rank != line.rank:
            now = self.free[line.rank]
            heappush(self.events, (max(min(at, now), self.free[to.rank]), to.rank))
            heappush(self.events, (max(at, self.free[to.rank]), to.rank))
