"""List scheduling where some stages occupy several ranks at once.

Op by op: of all ops whose inputs have a time, that one goes next which can start first; all its ranks must be free. An
op of several ranks would always come last, as each of its ranks has something to do meanwhile, so it is counted as if
it could start earlier, by a part of its duration that is one of the settings.
"""

from __future__ import annotations

from bubbleproof.solver.flat import Flat, Orders
from bubbleproof.solver.heuristics import Knobs, reserves_of_rank

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
        self.reserve = [reserves_of_rank(flat, queues) for queues in flat.queues_of_rank]
        n, width = len(flat.rank), flat.width
        self.done = [0] * n
        self.free, self.level = [0] * flat.ranks, [0] * flat.ranks
        self.orders: Orders = [[] for _ in range(flat.ranks)]
        self.sources: list[dict[int, list[int]]] = [{} for _ in range(n)]
        """Of each queue, for each queue that feeds it, when its ops arrive."""
        self.arrival: list[list[int]] = [[] for _ in range(n)]
        """When all has arrived that the ops of a queue need."""
        for queue, inputs in enumerate(flat.inputs):
            self.sources[queue] = {source: [] for source, _ in inputs}
            if not inputs:
                self.arrival[queue] = [0] * flat.size[queue]
        late = 1 if knobs.late else -1
        self.class_of = [((1, 0, 2)[queue % width], -late * flat.stage[queue]) for queue in range(n)]
        self.others = [group[1:] for group in flat.group]
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
        flat, done, free, arrival = self.flat, self.done, self.free, self.arrival
        width, rank_of = flat.width, flat.rank
        best, chosen, when = (1 << 62, (0, 0)), -1, 0
        for queue, arrived in enumerate(arrival):
            k = done[queue]
            if k >= len(arrived) or (queue % width == 0 and k - done[queue + 1] >= self.depth[queue]):
                continue
            start = max(arrived[k], free[rank_of[queue]])
            for rank in self.others[queue]:
                if free[rank] > start:
                    start = free[rank]
            key = (100 * start - self.bonus[queue], self.class_of[queue])
            if key < best and self.fits(queue):
                best, chosen, when = key, queue, start
        return chosen, when

    def fits(self, queue: int) -> bool:
        """Whether each rank of an op that takes memory has room for it and for what must be able to follow."""
        flat = self.flat
        if flat.cap is None or flat.change[queue] <= 0:
            return True
        take, cap = flat.change[queue], flat.cap
        return all(self.level[r] + take + self.reserve[r][queue] <= cap[r] for r in flat.group[queue])

    def start(self, queue: int, start: int) -> None:
        flat, end = self.flat, start + self.flat.duration[queue]
        self.done[queue] += 1
        for target, delay in flat.outputs[queue]:
            sources, k = self.sources[target], len(self.arrival[target])
            sources[queue].append(end + delay)
            if all(len(arrived) > k for arrived in sources.values()):
                self.arrival[target].append(max(arrived[k] for arrived in sources.values()))
        for rank in flat.group[queue]:
            self.free[rank] = end
            self.level[rank] += flat.change[queue]
            self.orders[rank].append(queue)
