"""The ops of an instance as the model of a proof sees them: durations, precedences, and windows that follow from them.

Written from docs/proofs.md, section 1, alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bubbleproof.schedules.errors import BubbleproofError
from bubbleproof.schedules.instance import Instance

__all__ = ["Op", "Ops", "Unmodelled", "earliest"]


class Unmodelled(BubbleproofError):
    """The model of proofs does not cover the instance; the text says which part of it."""


@dataclass(frozen=True)
class Op:
    """One op: the k-th of its class."""

    kind: str
    stage: int
    route: int
    k: int
    microbatch: int
    rank: int
    duration: int
    change: int

    @property
    def name(self) -> str:
        """Name of the variable of its start."""
        return f"{self.kind}{self.stage}_{self.microbatch}"


@dataclass
class Ops:
    """All ops, each after its predecessors, and the edges between them.

    Parameters
    ----------
    before, after
        For each op (index, lag) pairs: it starts at least `lag` after the start of each one in `before`; the lag
        includes the duration of the first.
    of_rank
        The ops of each rank, ascending.
    ancestors
        For each op the set, as bits, of the ops that end before it starts because of the edges alone.
    room
        Of each rank the most that ops may add to the static part; None without a cap.
    """

    instance: Instance
    kinds: tuple[str, ...] = ()
    ops: list[Op] = field(default_factory=list)
    before: list[list[tuple[int, int]]] = field(default_factory=list)
    after: list[list[tuple[int, int]]] = field(default_factory=list)
    of_rank: list[list[int]] = field(default_factory=list)
    ancestors: list[int] = field(default_factory=list)
    room: list[int] | None = None
    _index: dict[tuple[str, int, int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        instance = self.instance
        refuse(instance)
        self.kinds = ("F", "B", "W") if instance.costs.split else ("F", "BW")
        cap, static = instance.memory.cap, instance.memory.static
        self.room = None if cap is None else [c - s for c, s in zip(cap, static, strict=True)]
        self._add_ops()
        self.before = [[] for _ in self.ops]
        self.after = [[] for _ in self.ops]
        self._add_dependencies()
        for route, stage in self.lines():
            self._add_flight(route, stage)
        self.ancestors = [0] * len(self.ops)
        for index, found in enumerate(self.before):
            for source, _ in found:
                self.ancestors[index] |= self.ancestors[source] | 1 << source

    def at(self, kind: str, stage: int, route: int, k: int) -> int:
        """Index of an op."""
        return self._index[kind, stage, route, k]

    def find(self, kind: str, stage: int, route: int, k: int) -> int | None:
        """Index of an op, or None if there is no such op."""
        return self._index.get((kind, stage, route, k))

    def lines(self) -> Iterator[tuple[int, int]]:
        """(route, stage) of every stage of every route that a microbatch follows."""
        used = set(self.instance.route_of_microbatch)
        for route in sorted(used):
            for stage in range(self.instance.stages):
                yield route, stage

    def _add_ops(self) -> None:
        instance, stages = self.instance, self.instance.stages
        self.of_rank = [[] for _ in range(instance.ranks)]
        seen = [0] * len(instance.placement.routes)
        for j, route in enumerate(instance.route_of_microbatch):
            k = seen[route]
            seen[route] = k + 1
            ranks = instance.placement.routes[route]
            for kind in self.kinds:
                for stage in range(stages) if kind == "F" else reversed(range(stages)):
                    duration = getattr(instance.costs, kind)[stage]
                    change = getattr(instance.memory, kind)[stage]
                    self._index[kind, stage, route, k] = len(self.ops)
                    self.of_rank[ranks[stage]].append(len(self.ops))
                    self.ops.append(Op(kind, stage, route, k, j, ranks[stage], duration, change))

    def _edge(self, source: int, target: int, delay: int = 0) -> None:
        lag = self.ops[source].duration + delay
        self.before[target].append((source, lag))
        self.after[source].append((target, lag))

    def _add_dependencies(self) -> None:
        """Inputs, and the order of the microbatches inside each class."""
        last, message = self.instance.stages - 1, self.instance.costs.message
        for index, op in enumerate(self.ops):
            kind, s, route, k = op.kind, op.stage, op.route, op.k
            if k:
                self._edge(self.at(kind, s, route, k - 1), index)
            inputs = []
            if kind == "F":
                inputs += [self.at("F", s - 1, route, k)] if s else []
            elif kind == "W":
                inputs.append(self.at("B", s, route, k))
            else:
                inputs.append(self.at("F", s, route, k))
                inputs += [self.at(kind, s + 1, route, k)] if s < last else []
            for source in inputs:
                self._edge(source, index, message(self.ops[source].rank, op.rank))

    def _add_flight(self, route: int, stage: int) -> None:
        """No more microbatches of a stage in flight than its rank has room for, if none ever counts as less than 0."""
        size = self.instance.route_of_microbatch.count(route)
        first = self.ops[self.at("F", stage, route, 0)]
        if self.room is None or first.change <= 0:
            return
        if any(self.ops[i].kind == "W" and self.ops[i].change > 0 for i in self.of_rank[first.rank]):
            return
        frees = next(kind for kind in self.kinds[1:] if self.ops[self.at(kind, stage, route, 0)].change < 0)
        most = self.room[first.rank] // first.change
        for k in range(most, size):
            self._edge(self.at(frees, stage, route, k - most), self.at("F", stage, route, k))


def refuse(instance: Instance) -> None:
    """Refuse instances for which the model would leave out schedules that may be better.

    Raises
    ------
    Unmodelled
        A pair or a fused backward is cheaper than its parts.
    """
    costs, memory = instance.costs, instance.memory
    for kind, pairs in (("B", costs.overlap_B if costs.split else None), ("BW", costs.overlap_BW)):
        if pairs is not None:
            longest = max(costs.B) if kind == "B" else max(costs.BW)
            if any(pair < forward + longest for pair, forward in zip(pairs, costs.F, strict=True)):
                raise Unmodelled("no proof: a pair is shorter than its members, and proofs know no pairs")
    if costs.split:
        for bw, b, w, change in zip(costs.BW, costs.B, costs.W, memory.B, strict=True):
            if bw < b + w or change > 0:
                raise Unmodelled(
                    "no proof: a fused backward may be better than its parts, and proofs run B and W apart"
                )


def earliest(
    order: Sequence[int],
    before: Sequence[Sequence[tuple[int, int]]],
    peers: Sequence[Sequence[int]],
    duration: Sequence[int],
    begin: Sequence[int | None],
) -> list[int | None]:
    """For each op a time before which it cannot start; None if nothing is known.

    Parameters
    ----------
    order
        All ops, each after those in its `before`.
    peers
        For each op those of its rank that end before it starts; a rank runs one at a time.
    begin
        What is known beforehand.
    """
    found: list[int | None] = list(begin)
    for index in order:
        best = found[index]
        for source, lag in before[index]:
            known = found[source]
            if known is not None and (best is None or known + lag > best):
                best = known + lag
        ready = -1
        for start, length in sorted((s, duration[i]) for i in peers[index] if (s := found[i]) is not None):
            ready = max(ready, start) + length
        found[index] = ready if ready >= 0 and (best is None or ready > best) else best
    return found
