"""Times for words: the least period at which they can repeat, and starts that grow by it with each block.

The slots of prefix, body and suffix are the nodes of a graph whose edges are w + x·D long: w is a time that must pass,
and x the number of blocks, D each, by which the microbatches of the two slots are counted apart. Starts exist iff no
cycle is positive; every cycle that is tells how large D must be at least.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from bubbleproof.schedules.pattern import PeriodicSchedule
from bubbleproof.solver.periodic import Words

__all__ = ["Timed", "timed"]

_LOW = -(1 << 60)


class _Edge(NamedTuple):
    """``start of v ≥ start of u + time + blocks·D − spans·A``, A being what the span is more than n·D."""

    u: int
    v: int
    time: int
    blocks: int
    spans: int = 0


class _Place(NamedTuple):
    """A node by the microbatch it names: anchored at the start (0), at its block (1) or at the end (2)."""

    anchor: int
    offset: int
    node: int


@dataclass(frozen=True)
class Timed:
    """A pattern with times; a block adds `growth`, and n blocks take ``level + growth·n``."""

    pattern: PeriodicSchedule
    growth: int
    level: int

    def length(self, microbatches: int) -> int:
        """Makespan or span, whichever was asked for."""
        return self.level + self.growth * self.pattern.blocks(microbatches)


def timed(words: Words, least: int = 1, name: str = "") -> Timed | None:
    """The pattern of words with times of the least growth; None if they deadlock for some n ≥ least.

    The objective of the words' instance says whether the makespan or the span is then the least.
    """
    pattern = words.pattern(name, least)
    if pattern is None:
        return None
    graph = _Graph(words, least)
    flat = words.flat
    growth = max(sum(flat.duration[queue] for queue in word.body) for word in words.rows)
    found = graph.raise_until_possible(growth, None)
    if found is None:
        return None
    growth, _, starts = found
    if flat.instance.objective == "span":
        graph.add_spans()
        rest = max(sum(flat.duration[queue] for queue in (*word.prefix, *word.suffix)) for word in words.rows)
        again = graph.raise_until_possible(growth, rest)
        if again is None:
            return None
        growth, level, starts = again
    else:
        level = graph.level(starts, growth)
    return Timed(_with_starts(pattern, starts, growth), growth, level)


def _with_starts(pattern: PeriodicSchedule, starts: list[int], growth: int) -> PeriodicSchedule:
    rows, at = [], 0
    for row in pattern.rows:
        segments, looped = [], False
        for segment in row:
            looped = looped or segment.repeat != "once"
            mine = tuple(starts[at : at + len(segment.slots)])
            at += len(segment.slots)
            per_n = growth if looped and segment.repeat == "once" else 0
            per_block = growth if segment.repeat != "once" else 0
            segments.append(replace(segment, starts=mine, per_n=per_n, per_block=per_block))
        rows.append(tuple(segments))
    return replace(pattern, rows=tuple(rows))


class _Graph:
    def __init__(self, words: Words, least: int) -> None:
        self.words, self.least = words, least
        self.edges: list[_Edge] = []
        self.lasts: list[int] = []
        self.suffix: list[bool] = []
        self.ends: list[tuple[int, int, bool]] = []
        """For each rank its first and last node, and whether the last one is in the suffix."""
        places: dict[int, list[_Place]] = defaultdict(list)
        for word in words.rows:
            if word.body:
                self._row(word.prefix, word.body, word.suffix, places)
        for queue, inputs in enumerate(words.flat.inputs):
            step = words.steps[words.flat.route[queue]]
            for source, delay in inputs:
                for use in places[queue]:
                    for place in places[source]:
                        self.edges += self._edge(place, use, step, delay)
        self.into: list[list[_Edge]] = []

    def _row(self, prefix: list[int], body: list[int], suffix: list[int], places: dict[int, list[_Place]]) -> None:
        """Nodes of a rank, and the edges of its order."""
        flat = self.words.flat
        first = len(self.lasts)
        taken: dict[int, int] = defaultdict(int)
        for anchor, part in enumerate((prefix, body, suffix)):
            begun = dict(taken)
            for queue in part:
                node = len(self.lasts)
                places[queue].append(_Place(anchor, taken[queue], node))
                taken[queue] += 1
                self.lasts.append(flat.duration[queue])
                self.suffix.append(anchor == 2)
                if node > first:
                    crossing = anchor == 2 and node == first + len(prefix) + len(body)
                    self.edges.append(_Edge(node - 1, node, self.lasts[node - 1], -1 if crossing else 0))
            if anchor == 1:
                taken = defaultdict(int, begun)
        loop = first + len(prefix)
        last = loop + len(body) - 1
        self.edges.append(_Edge(last, loop, self.lasts[last], -1))
        self.ends.append((first, len(self.lasts) - 1, bool(suffix)))

    def _edge(self, source: _Place, use: _Place, step: int, delay: int) -> Iterator[_Edge]:
        """The edge between two nodes if they name one microbatch for some n and block."""
        apart, rest = divmod(use.offset - source.offset, step)
        if rest:
            return
        u, v, time = source.node, use.node, self.lasts[source.node] + delay
        if source.anchor == use.anchor:
            if source.anchor == 1:
                yield _Edge(u, v, time, apart)
            elif not apart:
                yield _Edge(u, v, time, 0)
        elif {source.anchor, use.anchor} == {0, 2}:
            n = abs(apart)  # for this n only
            if n >= self.least and (apart > 0) == (source.anchor == 2):
                yield _Edge(u, v, time, n if source.anchor == 2 else -n)
        elif source.anchor == 1:
            if (apart >= 0) == (use.anchor == 0):
                yield _Edge(u, v, time, apart)
        elif (apart <= 0) == (source.anchor == 0):
            yield _Edge(u, v, time, apart)

    def add_spans(self) -> None:
        """Let no rank last longer than A + n·D."""
        for first, last, in_suffix in self.ends:
            self.edges.append(_Edge(last, first, self.lasts[last], 0 if in_suffix else -1, 1))

    def level(self, starts: list[int], growth: int) -> int:
        """The makespan less n·D."""
        ends = [starts[last] + self.lasts[last] - (0 if suffix else growth) for _, last, suffix in self.ends]
        return max(ends) - min(starts[first] for first, _, _ in self.ends)

    def raise_until_possible(self, growth: int, span: int | None) -> tuple[int, int, list[int]] | None:
        """The least D (or, if a span is given, the least A) from the given one on, and the earliest starts."""
        while True:
            lengths = [e.time + e.blocks * growth - e.spans * (span or 0) for e in self.edges]
            starts, cycle = self._longest(lengths)
            if not cycle:
                return growth, span or 0, starts
            time = sum(self.edges[e].time for e in cycle)
            blocks = sum(self.edges[e].blocks for e in cycle)
            spans = sum(self.edges[e].spans for e in cycle)
            if span is not None and spans:
                span = -(-(time + blocks * growth) // spans)
            elif blocks < 0 and span is None:
                growth = -(-time // -blocks)
            else:
                return None

    def _longest(self, lengths: list[int]) -> tuple[list[int], list[int]]:
        """Longest paths from time 0, or the edges of a positive cycle."""
        out: list[list[int]] = [[] for _ in self.lasts]
        for index, edge in enumerate(self.edges):
            out[edge.u].append(index)
        starts = [_LOW if late else 0 for late in self.suffix]
        parent = [-1] * len(starts)
        active = [node for node, start in enumerate(starts) if start == 0]
        rounds = 0
        while active:
            rounds += 1
            touched: dict[int, None] = {}
            for node in active:
                base = starts[node]
                for index in out[node]:
                    target = self.edges[index].v
                    if base + lengths[index] > starts[target]:
                        starts[target] = base + lengths[index]
                        parent[target] = index
                        touched[target] = None
            active = list(touched)
            if rounds % 16 == 0:
                cycle = self._cycle(parent)
                if cycle:
                    return starts, cycle
        return starts, []

    def _cycle(self, parent: list[int]) -> list[int]:
        """A cycle of parent edges; such a one is positive."""
        seen = [-1] * len(parent)
        for begin in range(len(parent)):
            node = begin
            while seen[node] < 0 and parent[node] >= 0:
                seen[node] = begin
                node = self.edges[parent[node]].u
            if seen[node] == begin and parent[node] >= 0:
                cycle, at = [], node
                while True:
                    cycle.append(parent[at])
                    at = self.edges[parent[at]].u
                    if at == node:
                        return cycle
        return []
