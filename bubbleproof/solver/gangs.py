"""List scheduling where some stages occupy several ranks at once.

Op by op: of all ops whose inputs have a time, that one goes next which can start first; all its ranks must be free. An
op of several ranks would always come last, as each of its ranks has something to do meanwhile, so it is counted as if
it could start earlier, by a part of its duration that is one of the settings.
"""

from __future__ import annotations

from bubbleproof.solver.flat import Flat, Orders
from bubbleproof.solver.heuristics import Knobs, reserves

__all__ = ["greedy_gangs"]


def greedy_gangs(flat: Flat, knobs: Knobs) -> Orders | None:
    """Orders under the given knobs; None if it got stuck.

    Of the knobs, `depth` and `late` mean what they say; `delay` is how far an op of several ranks is preferred, in
    percent of the largest duration, and `fill` how long a weight gradient is put off, in percent of its own.
    """
    return _Run(flat, knobs).go()


class _Run:
    def __init__(self, flat: Flat, knobs: Knobs) -> None:
        self.flat, self.knobs = flat, knobs
        n, width = len(flat.rank), flat.width
        self.done = [0] * n
        self.free, self.level = [0] * flat.ranks, [0] * flat.ranks
        self.orders: Orders = [[] for _ in range(flat.ranks)]
        self.ends: list[list[int]] = [[] for _ in range(n)]
        self.reserve = reserves(flat)
        self.depth = [1 << 60] * n
        for line, depth in enumerate(knobs.depth or ()):
            self.depth[line * width] = depth
        longest = max(flat.duration)
        self.bonus = [0] * n
        """In hundredths of the unit of time: how much earlier than it can start an op is counted."""
        for queue, group in enumerate(flat.group):
            if len(group) > 1:
                self.bonus[queue] = knobs.delay[group[0]] * longest
            if queue % width == 2:
                self.bonus[queue] -= knobs.fill[group[0]] * flat.duration[queue]

    def go(self) -> Orders | None:
        for _ in range(self.flat.ops):
            queue, start = self.choose()
            if queue < 0:
                return None
            self.start(queue, start)
        return self.orders

    def choose(self) -> tuple[int, int]:
        """The queue to serve next and when; −1 if nothing can run."""
        flat, done = self.flat, self.done
        width, late = flat.width, 1 if self.knobs.late else -1
        best, chosen, when = (1 << 62, 0, 0), -1, 0
        for queue, size in enumerate(flat.size):
            k, kind = done[queue], queue % width
            if k >= size or any(len(self.ends[source]) <= k for source, _ in flat.inputs[queue]):
                continue
            if kind == 0 and k - done[queue + 1] >= self.depth[queue]:
                continue
            start = max(self.free[rank] for rank in flat.group[queue])
            for source, delay in flat.inputs[queue]:
                start = max(start, self.ends[source][k] + delay)
            key = (100 * start - self.bonus[queue], (1, 0, 2)[kind], -late * flat.stage[queue])
            if key < best and self.fits(queue):
                best, chosen, when = key, queue, start
        return chosen, when

    def fits(self, queue: int) -> bool:
        """Whether each rank of an op that takes memory has room for it and for what must be able to follow."""
        flat = self.flat
        if flat.cap is None or flat.change[queue] <= 0:
            return True
        need = flat.change[queue] + self.reserve[queue]
        return all(self.level[rank] + need <= flat.cap[rank] for rank in flat.group[queue])

    def start(self, queue: int, start: int) -> None:
        flat, end = self.flat, start + self.flat.duration[queue]
        self.ends[queue].append(end)
        self.done[queue] += 1
        for rank in flat.group[queue]:
            self.free[rank] = end
            self.level[rank] += flat.change[queue]
            self.orders[rank].append(queue)
