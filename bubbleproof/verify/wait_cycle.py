"""A shortest wait cycle of a program under a channel model, and its words (docs/semantics.md, section 9)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from bubbleproof.schedules.program import Program, Transfer
from bubbleproof.verify.case import Place
from bubbleproof.verify.channels import Graph, Progress

__all__ = ["Hop", "cycle_sentence", "wait_cycle"]

BUDGET = 5_000_000
"""Edges that the search looks at before it is content with the shortest cycle found so far."""


class Hop(NamedTuple):
    """One rank of a wait cycle: it waits at `at`; `behind` stands behind that and is what the rank before waits for."""

    behind: Place
    at: Place


class _Search:
    def __init__(self, graph: Graph, progress: Progress) -> None:
        self.graph = graph
        self.stuck = {node for node, start in enumerate(progress.starts) if start is None}
        self.looked = 0

    def messages(self) -> list[int]:
        """The messages that never travel, those that stand first in their rows first."""
        found = [node for node in self.stuck if len(self.graph.places[node]) == 2]
        return sorted(found, key=lambda node: (sum(p.position for p in self.graph.places[node]), node))

    def other(self, node: int, rank: int) -> int:
        first, second = self.graph.places[node]
        return second.rank if first.rank == rank else first.rank

    def from_message(self, start: int, rank: int, below: int) -> list[tuple[int, int]] | None:
        """A cycle of fewer than `below` ranks through a message: for each rank it and the message that it waits at.

        The search goes from what waits to what it waits for. It stays on a rank for nothing, and changes the rank at a
        message, where the other end of it is due, for one.
        """
        came: dict[tuple[int, int], tuple[int, int] | None] = {(start, rank): None}
        level = [(start, rank)]
        for _ in range(1, below):
            turns: dict[tuple[int, int], tuple[int, int]] = {}
            while level:
                node, here = level.pop()
                for needs in self._needs(node, here):
                    state = (needs, here)
                    if state in came:
                        continue
                    came[state] = (node, here)
                    level.append(state)
                    if len(self.graph.places[needs]) == 2:
                        turned = (needs, self.other(needs, here))
                        if turned == (start, rank):
                            return self._path(came, state)
                        turns.setdefault(turned, state)
            level = [state for state in turns if state not in came]
            came.update((state, turns[state]) for state in level)
        return None

    def _needs(self, node: int, rank: int) -> Iterator[int]:
        """What a node waits for, and never gets, because of what stands on a rank."""
        for edge in self.graph.before[node]:
            self.looked += 1
            if edge.rank == rank and edge.needs in self.stuck:
                yield edge.needs

    def _path(self, came: dict[tuple[int, int], tuple[int, int] | None], end: tuple[int, int]) -> list[tuple[int, int]]:
        states = [end]
        while (before := came[states[-1]]) is not None:
            states.append(before)
        states.reverse()
        # where the rank changes, the message before is what the old rank waits at
        exits = [one for one, two in pairwise(states) if one[1] != two[1]]
        return [(rank, node) for node, rank in [*exits, end]]


def wait_cycle(graph: Graph, progress: Progress) -> tuple[tuple[Hop, ...], bool]:
    """The hops of a wait cycle with the fewest ranks, and whether the search was exhaustive.

    Parameters
    ----------
    progress
        Of a graph of messages that all have both ends, and that is stuck.
    """
    search = _Search(graph, progress)
    best: list[tuple[int, int]] | None = None
    exhaustive = True
    for node in search.messages():
        for place in graph.places[node]:
            found = search.from_message(node, place.rank, len(best) if best else len(graph.places))
            best = found or best
        if best is not None and (len(best) == 2 or search.looked > BUDGET):
            exhaustive = len(best) == 2
            break
    assert best is not None, "a program of whole messages is stuck without a cycle"
    return _hops(graph, best), exhaustive


def _hops(graph: Graph, cycle: Sequence[tuple[int, int]]) -> tuple[Hop, ...]:
    def end(node: int, rank: int) -> Place:
        return next(place for place in graph.places[node] if place.rank == rank)

    hops = [Hop(end(cycle[i - 1][1], rank), end(node, rank)) for i, (rank, node) in enumerate(cycle)]
    first = min(range(len(hops)), key=lambda i: hops[i].at)
    return tuple(hops[first:] + hops[:first])


def cycle_sentence(hops: Sequence[Hop], program: Program) -> str:
    """A wait cycle as one sentence."""

    def named(place: Place) -> Transfer:
        action = program.rows[place.rank][place.position]
        assert isinstance(action, Transfer)
        return action

    parts = []
    for index, hop in enumerate(hops):
        transfer, there = named(hop.at), hops[(index + 1) % len(hops)].at.rank
        of = transfer.stage if transfer.sends else transfer.peer_stage
        what = f"{transfer.direction}{transfer.microbatch} of stage {of}"
        waits = f"to send {what} to rank {there}" if transfer.sends else f"to receive {what} from rank {there}"
        place = f"{transfer} at position {hop.at.position}"
        if hop.at != hop.behind:
            place += f", before {named(hop.behind)} at position {hop.behind.position}"
        parts.append(f"{'which' if index else f'rank {hop.at.rank}'} waits {waits} ({place})")
    return ", ".join([*parts, "and so on in a circle"])
