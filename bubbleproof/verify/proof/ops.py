"""The ops of an instance as the model of a proof sees them: durations, precedences, and windows that follow from them.

Written from docs/proofs.md, section 1, alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from bubbleproof.schedules.errors import BubbleproofError
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Kind

__all__ = ["Op", "Ops", "Unmodelled", "earliest"]


_KNOWN = frozenset(
    [
        "placement",
        "microbatches",
        "costs",
        "memory",
        "objective",
        "name",
        "units",
        "route_of_microbatch",
        "kind",
        "ranks",
        "routes",
        "F",
        "B",
        "W",
        "BW",
        "R",
        "split",
        "overlap_B",
        "overlap_BW",
        "default_comm",
        "comm",
        "channel",
        "overhead",
        "varying",
        "static",
        "cap",
        "message",
    ]
)
"""The parts of an instance of which the model takes account; one that is added later is refused until it does."""


class Unmodelled(BubbleproofError):
    """The model of proofs does not cover the instance; the text says which part of it."""


@dataclass(frozen=True)
class Op:
    """One op: the k-th of its kind, stage and sort of microbatch."""

    kind: Kind
    stage: int
    sort: int
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
    kinds: tuple[Kind, ...] = ()
    sorts: list[list[int]] = field(default_factory=list)
    """The microbatches, ascending, by sort: those of one sort have the same route, durations and changes of memory."""
    ops: list[Op] = field(default_factory=list)
    before: list[list[tuple[int, int]]] = field(default_factory=list)
    after: list[list[tuple[int, int]]] = field(default_factory=list)
    of_rank: list[list[int]] = field(default_factory=list)
    ancestors: list[int] = field(default_factory=list)
    room: list[int] | None = None
    _index: dict[tuple[Kind, int, int, int], int] = field(default_factory=dict)

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
        for sort in range(len(self.sorts)):
            for stage in range(instance.stages):
                self._add_flight(sort, stage)
        self.ancestors = [0] * len(self.ops)
        for index, found in enumerate(self.before):
            for source, _ in found:
                self.ancestors[index] |= self.ancestors[source] | 1 << source

    def at(self, kind: Kind, stage: int, sort: int, k: int) -> int:
        """Index of an op."""
        return self._index[kind, stage, sort, k]

    def find(self, kind: Kind, stage: int, sort: int, k: int) -> int | None:
        """Index of an op, or None if there is no such op."""
        return self._index.get((kind, stage, sort, k))

    def _figures(self, j: int) -> tuple[object, ...]:
        """Everything in which microbatches can differ."""
        costs, memory, stages = self.instance.costs, self.instance.memory, range(self.instance.stages)
        times = tuple(costs.of(kind, s, j) for kind in self.kinds for s in stages)
        return (
            self.instance.route_of_microbatch[j],
            times,
            tuple(memory.of(x, s, j) for x in self.kinds for s in stages),
        )

    def _add_ops(self) -> None:
        instance, stages = self.instance, self.instance.stages
        self.of_rank = [[] for _ in range(instance.ranks)]
        sort_of: dict[tuple[object, ...], int] = {}
        for j, route in enumerate(instance.route_of_microbatch):
            sort = sort_of.setdefault(self._figures(j), len(sort_of))
            if sort == len(self.sorts):
                self.sorts.append([])
            k = len(self.sorts[sort])
            self.sorts[sort].append(j)
            ranks = instance.placement.routes[route]
            for kind in self.kinds:
                for stage in range(stages) if kind == "F" else reversed(range(stages)):
                    duration = instance.costs.of(kind, stage, j)
                    change = instance.memory.of(kind, stage, j)
                    self._index[kind, stage, sort, k] = len(self.ops)
                    self.of_rank[ranks[stage]].append(len(self.ops))
                    self.ops.append(Op(kind, stage, sort, k, j, ranks[stage], duration, change))

    def _edge(self, source: int, target: int, delay: int = 0) -> None:
        lag = self.ops[source].duration + delay
        self.before[target].append((source, lag))
        self.after[source].append((target, lag))

    def _add_dependencies(self) -> None:
        """Inputs, and the order of the microbatches inside each class."""
        last, message = self.instance.stages - 1, self.instance.costs.message
        for index, op in enumerate(self.ops):
            kind, s, sort, k = op.kind, op.stage, op.sort, op.k
            if k:
                self._edge(self.at(kind, s, sort, k - 1), index)
            inputs = []
            if kind == "F":
                inputs += [self.at("F", s - 1, sort, k)] if s else []
            elif kind == "W":
                inputs.append(self.at("B", s, sort, k))
            else:
                inputs.append(self.at("F", s, sort, k))
                inputs += [self.at(kind, s + 1, sort, k)] if s < last else []
            for source in inputs:
                self._edge(source, index, message(self.ops[source].rank, op.rank))

    def _add_flight(self, sort: int, stage: int) -> None:
        """No more microbatches of a stage in flight than its rank has room for, if none ever counts as less than 0."""
        size = len(self.sorts[sort])
        first = self.ops[self.at("F", stage, sort, 0)]
        if self.room is None or first.change <= 0:
            return
        if any(self.ops[i].kind == "W" and self.ops[i].change > 0 for i in self.of_rank[first.rank]):
            return
        frees = next(kind for kind in self.kinds[1:] if self.ops[self.at(kind, stage, sort, 0)].change < 0)
        most = self.room[first.rank] // first.change
        for k in range(most, size):
            self._edge(self.at(frees, stage, sort, k - most), self.at("F", stage, sort, k))


def refuse(instance: Instance) -> None:
    """Refuse instances for which the model would leave out schedules that may be better.

    Raises
    ------
    Unmodelled
        A pair or a fused backward is cheaper than its parts, recompute can save memory, or there is something unknown.
    """
    costs, memory, stages = instance.costs, instance.memory, range(instance.stages)
    for table in (instance, instance.placement, costs, memory):
        for item in fields(table):
            if item.init and item.name not in _KNOWN and getattr(table, item.name):
                raise Unmodelled(f"no proof: proofs know nothing of {type(table).__name__.lower()}.{item.name}")
    if instance.recompute and memory.cap is not None:
        raise Unmodelled("no proof: ops may be recomputed to keep the caps, and proofs know no recompute")
    pairings: tuple[tuple[Kind, tuple[int, ...] | None], ...] = (
        ("B", costs.overlap_B if costs.split else None),
        ("BW", costs.overlap_BW),
    )
    for kind, pairs in pairings:
        if pairs is not None:
            longest = max(costs.of(kind, s, j) for s in stages for j in range(instance.microbatches))
            for s in stages:
                for j in range(instance.microbatches):
                    pair = costs.figure(f"overlap_{kind}", s, j) + costs.overhead
                    if pair < costs.of("F", s, j) + longest:
                        raise Unmodelled("no proof: a pair is shorter than its members, and proofs know no pairs")
    for s in stages if costs.split else ():
        for j in range(instance.microbatches):
            if costs.of("BW", s, j) < costs.of("B", s, j) + costs.of("W", s, j) or memory.of("B", s, j) > 0:
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
