"""Running a program under a channel model: the graph of its actions, the earliest times, where it stops.

Written from docs/semantics.md, section 9, alone. Matched ends of a message are one node; a model is nothing but a set
of edges.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bubbleproof.schedules.program import Transfer
from bubbleproof.verify.case import Place
from bubbleproof.verify.exchange import Delivery, ProgramCase

__all__ = ["Edge", "Graph", "Progress", "certificate_of", "channel_graph", "progress", "stops"]


class Edge(NamedTuple):
    """A node waits until another has ended, because of what stands on a rank."""

    needs: int
    rank: int


@dataclass(frozen=True)
class Graph:
    """The actions of a program and what each waits for.

    Parameters
    ----------
    places
        Where the action of a node stands. A message has two places, its send and its receive; so has the wire between
        a send and a receive that do not meet. The bounds of a group have none.
    before
        What each node waits for.
    lengths
        How long each lasts.
    node_of
        The node of each action of the rows; a transfer that takes no part has none.
    """

    places: list[tuple[Place, ...]]
    before: list[list[Edge]]
    lengths: list[int]
    node_of: list[list[int | None]]


@dataclass(frozen=True)
class Progress:
    """How far a program gets.

    Parameters
    ----------
    starts
        The earliest start of each node; None for one that never starts.
    order
        The nodes that run, in an order in which they can.
    """

    starts: list[int | None]
    order: list[int]

    @property
    def stuck(self) -> bool:
        """Whether something never starts."""
        return len(self.order) < len(self.starts)


class _Builder:
    def __init__(self, case: ProgramCase, deliveries: Sequence[Delivery], alone: Sequence[Place]) -> None:
        self.case = case
        self.deliveries = deliveries
        self.alone = alone
        self.channel = case.setting.channel
        self.rows = case.program.rows
        self.graph = Graph([], [], [], [[None] * len(row) for row in self.rows])

    def node(self, length: int, *places: Place) -> int:
        graph = self.graph
        graph.places.append(places)
        graph.before.append([])
        graph.lengths.append(length)
        return len(graph.places) - 1

    def edge(self, node: int, needs: int | None, rank: int) -> None:
        if needs is not None and needs != node:
            self.graph.before[node].append(Edge(needs, rank))

    def build(self) -> Graph:
        self._nodes()
        for rank in range(len(self.rows)):
            if self.channel in ("rendezvous-rank", "even-odd"):
                self._chain(rank)
            elif self.channel == "batched":
                self._groups(rank)
            else:
                self._queues(rank)
        return self.graph

    def _nodes(self) -> None:
        node_of = self.graph.node_of
        for delivery in self.deliveries:
            send, receive = delivery.send, delivery.receive
            time = self.case.instance.costs.message(send.rank, receive.rank)
            if self.channel == "eager":
                first, wire, last = self.node(0, send), self.node(time, send, receive), self.node(0, receive)
                self.edge(wire, first, send.rank)
                self.edge(last, wire, receive.rank)
            else:
                first = last = self.node(time, send, receive)
            node_of[send.rank][send.position] = first
            node_of[receive.rank][receive.position] = last
        for place in self.alone:
            node = self.node(0, place)
            node_of[place.rank][place.position] = node
            action = self.rows[place.rank][place.position]
            if self.channel != "eager" or (isinstance(action, Transfer) and not action.sends):
                self.graph.before[node].append(Edge(node, place.rank))  # it waits for ever
        for rank, row in enumerate(self.rows):
            for position, action in enumerate(row):
                if not isinstance(action, Transfer):
                    node_of[rank][position] = self.node(self.case.durations[rank][position], Place(rank, position))

    def _chain(self, rank: int) -> None:
        """One call after the other, each until it has ended."""
        last: int | None = None
        for position in _service(self.case, rank):
            node = self.graph.node_of[rank][position]
            if node is not None:
                self.edge(node, last, rank)
                last = node

    def _queues(self, rank: int) -> None:
        """Ops in order; a transfer is posted when the ops before it have ended, and waits for its turn in its queue."""
        computed: int | None = None
        tails: dict[Hashable, int] = {}
        for position, action in enumerate(self.rows[rank]):
            node = self.graph.node_of[rank][position]
            if node is None:
                continue
            self.edge(node, computed, rank)
            if isinstance(action, Transfer):
                queue = self._queue(rank, position, action)
                self.edge(node, tails.get(queue), rank)
                tails[queue] = node
            else:
                for place in self.case.inputs_received.get(Place(rank, position), ()):
                    self.edge(node, self.graph.node_of[rank][place.position], rank)
                computed = node

    def _queue(self, rank: int, position: int, transfer: Transfer) -> Hashable:
        peer = self.case.peer(transfer)
        if self.channel == "rendezvous-pair":
            return peer
        if self.channel == "per-direction":
            return transfer.direction
        return peer, transfer.sends

    def _groups(self, rank: int) -> None:
        """Consecutive transfers are one group: it starts when the one before has ended, inside it only lanes count."""
        row, node_of = self.rows[rank], self.graph.node_of[rank]
        computed: int | None = None
        ended: int | None = None
        opened: int | None = None
        close_of: dict[int, int] = {}
        tails: dict[Hashable, int] = {}
        for position, action in enumerate(row):
            node = node_of[position]
            if isinstance(action, Transfer):
                if node is None:
                    continue
                if opened is None:
                    opened, close, tails = self.node(0), self.node(0), {}
                    self.edge(opened, computed, rank)
                    self.edge(opened, ended, rank)
                    ended = close
                self.edge(node, opened, rank)
                lane = (self.case.peer(action), action.sends)
                self.edge(node, tails.get(lane), rank)
                tails[lane] = node
                assert ended is not None
                self.edge(ended, node, rank)
                close_of[position] = ended
                continue
            assert node is not None
            opened = None
            self.edge(node, computed, rank)
            for place in self.case.inputs_received.get(Place(rank, position), ()):
                self.edge(node, close_of.get(place.position), rank)
            computed = node


def _service(case: ProgramCase, rank: int) -> list[int]:
    """The positions of a row in the order of calls."""
    return sorted(range(len(case.turn[rank])), key=case.turn[rank].__getitem__)


def channel_graph(case: ProgramCase, *, literal: bool = False) -> Graph:
    """The graph of a program under the channel of its setting.

    Parameters
    ----------
    literal
        Take every transfer as it stands; else only the messages whose both ends are there, each once.
    """
    deliveries, alone = case.literally if literal else (case.deliveries, [])
    return _Builder(case, deliveries, alone).build()


def stops(case: ProgramCase) -> tuple[int | None, ...]:
    """For each rank the first action of its row that never ends, taking every transfer as it stands."""
    graph = channel_graph(case, literal=True)
    starts = progress(graph).starts
    found: list[int | None] = []
    for row in graph.node_of:
        never = (p for p, node in enumerate(row) if node is not None and starts[node] is None)
        found.append(next(never, None))
    return tuple(found)


def progress(graph: Graph) -> Progress:
    """Run every node as soon as what it waits for has ended; linear in the size of the graph."""
    after: list[list[int]] = [[] for _ in graph.places]
    missing = [len(edges) for edges in graph.before]
    for node, edges in enumerate(graph.before):
        for edge in edges:
            after[edge.needs].append(node)
    starts: list[int | None] = [None] * len(missing)
    ready = [node for node, count in enumerate(missing) if count == 0]
    order = []
    earliest = [0] * len(missing)
    while ready:
        node = ready.pop()
        order.append(node)
        starts[node] = earliest[node]
        end = earliest[node] + graph.lengths[node]
        for follower in after[node]:
            earliest[follower] = max(earliest[follower], end)
            missing[follower] -= 1
            if missing[follower] == 0:
                ready.append(follower)
    return Progress(starts, order)


def certificate_of(graph: Graph, order: Sequence[int]) -> list[tuple[Place, ...]]:
    """The places of the nodes in the order in which they run: what `verify.channel_certificate` checks."""
    actions = {node for row in graph.node_of for node in row}  # neither wires nor bounds of groups
    return [graph.places[node] for node in order if node in actions]
