"""Repairing the communication around a given order of ops: the fewest transfers to move.

A message is one node, which both of its ends keep in place: each end that stays adds the waits of its queue. What a
channel lets wait for what is taken from docs/semantics.md, section 9. Every edge holds in every repair that keeps its
literal, so the fewest literals are a lower bound for every channel. For all but ``batched`` and ``even-odd`` an order
of the web always gives rows that are safe: each moved end goes where the order has it in its queue.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import BACKWARDS, Op, members
from bubbleproof.schedules.program import Channel, Transfer
from bubbleproof.solver.repair.change import Entry, Place
from bubbleproof.solver.repair.web import Found, Web, fewest, others
from bubbleproof.verify.exchange import service

__all__ = ["Messages"]


@dataclass
class _End:
    """An end of a message: where it belongs, and where it stands."""

    transfer: Transfer
    rank: int
    node: int
    copies: dict[int, int] = field(default_factory=dict)
    """Index in the row and literal of each place at which it may stay."""
    stray: Entry | None = None
    """The same end on a wrong rank."""


class Messages:
    """The web of the messages of an order of ops, and the rows that follow from what is moved.

    Parameters
    ----------
    rows
        For each rank its ops and collectives in their final order, and the transfers that were given, among them.
    waits
        The channel whose waits the web has. Others than that of the result may be taken, if they imply it.
    """

    def __init__(self, rows: Sequence[Sequence[Entry]], instance: Instance, waits: Channel) -> None:
        self.rows = rows
        self.instance = instance
        self.waits = waits
        self.web = Web()
        self.slots: list[dict[int, int]] = []
        """For each rank the node of each index that is no transfer."""
        self.places: dict[Op, tuple[int, int]] = {}
        self._slots()
        self.ends: dict[Transfer, _End] = {}
        self._ends()
        for rank in range(len(rows)):
            self._queues(rank)

    def _slots(self) -> None:
        for rank, row in enumerate(self.rows):
            nodes: dict[int, int] = {}
            before: int | None = None
            for index, (action, _) in enumerate(row):
                if isinstance(action, Transfer):
                    continue
                ops = members(action)
                node = self.web.node(self.instance.duration(action) if ops else 0)  # type: ignore[arg-type]
                if before is not None:
                    self.web.edge(before, node)
                nodes[index] = before = node
                self.places.update((op, (rank, index)) for op in ops)
            self.slots.append(nodes)

    def _ends(self) -> None:
        instance = self.instance
        for microbatch in range(instance.microbatches):
            for stage in range(instance.stages - 1):
                ranks = instance.rank_of(stage, microbatch), instance.rank_of(stage + 1, microbatch)
                if ranks[0] == ranks[1]:
                    continue
                for send, source, target in (
                    (Transfer("SEND_F", stage, microbatch), *ranks),
                    (Transfer("SEND_B", stage + 1, microbatch), *ranks[::-1]),
                ):
                    node = self.web.node(instance.costs.message(source, target))
                    self.ends[send] = _End(send, source, node)
                    self.ends[send.other_end] = _End(send.other_end, target, node)
                    self.web.edge(self._slot(self.partner(send)), node)
                    self.web.edge(node, self._slot(self.partner(send.other_end)))
        for rank, row in enumerate(self.rows):
            for index, entry in enumerate(row):
                end = self.ends.get(entry.action) if isinstance(entry.action, Transfer) else None
                if end is None:
                    continue
                if end.rank == rank:
                    end.copies[index] = self.web.literal()
                elif end.stray is None:
                    end.stray = entry
        self.web.only_one += [list(end.copies.values()) for end in self.ends.values() if len(end.copies) > 1]

    def partner(self, transfer: Transfer) -> tuple[int, int]:
        """Rank and index of the slot that makes what is sent, or uses what is received."""
        kinds = ("F",) if transfer.direction == "F" else BACKWARDS
        found = (self.places.get(Op(kind, transfer.stage, transfer.microbatch)) for kind in kinds)
        return next(place for place in found if place is not None)

    def _slot(self, place: tuple[int, int]) -> int:
        return self.slots[place[0]][place[1]]

    def peer(self, transfer: Transfer) -> int:
        """The rank at the other end."""
        return self.ends[transfer.other_end].rank

    def lane(self, transfer: Transfer) -> Hashable:
        """What tells the lanes of a rank apart."""
        return self.peer(transfer), transfer.sends

    def queue(self, transfer: Transfer) -> Hashable:
        """What tells the queues of a rank apart."""
        if self.waits in ("rendezvous-rank", "even-odd", "batched"):
            return ""
        if self.waits == "rendezvous-pair":
            return self.peer(transfer)
        return transfer.direction if self.waits == "per-direction" else self.lane(transfer)

    def due(self, rank: int) -> Iterator[_End]:
        """The ends that belong on a rank."""
        return (end for end in self.ends.values() if end.rank == rank)

    def standing(self, rank: int) -> dict[int, tuple[_End, int]]:
        """End and literal of each index of a row at which one may stay."""
        return {index: (end, lit) for end in self.due(rank) for index, lit in end.copies.items()}

    def _queues(self, rank: int) -> None:
        standing = self.standing(rank)
        slots = self.slots[rank]
        if self.waits in ("rendezvous-rank", "even-odd"):
            self._one_after_the_other(rank, standing)
            return
        computed: int | None = None
        for index in range(len(self.rows[rank])):
            computed = slots.get(index, computed)
            if computed is not None and index in standing:
                end, literal = standing[index]
                self.web.edge(computed, end.node, literal)
        for index, (end, literal) in standing.items():
            made = self.partner(end.transfer)[1]
            if end.transfer.sends and index < made:
                self.web.edge(end.node, slots[made], literal)
        if self.waits == "batched":
            self._groups(rank, standing)
            return
        by_queue: dict[Hashable, list[_End]] = {}
        for end in self.due(rank):
            by_queue.setdefault(self.queue(end.transfer), []).append(end)
        for ends in by_queue.values():
            mine = [end.transfer for end in ends]
            self._queue(ends, {i: s for i, s in sorted(standing.items()) if s[0].transfer in mine})

    def _one_after_the_other(self, rank: int, standing: dict[int, tuple[_End, int]]) -> None:
        """One queue of everything: the literals of transfers, and none for the rest."""
        before: int | None = None
        for index in service(rank, [entry.action for entry in self.rows[rank]], self.waits):
            if index in self.slots[rank]:
                node = self.slots[rank][index]
                if before is not None:
                    self.web.edge(before, node)
                before = node
            elif index in standing:
                end, literal = standing[index]
                passed = self.web.node()
                if before is not None:
                    self.web.edge(before, passed)
                    self.web.edge(before, end.node, literal)
                self.web.edge(end.node, passed, literal)
                before = passed

    def _queue(self, ends: list[_End], standing: dict[int, tuple[_End, int]]) -> None:
        """One queue of transfers, and its waits for ends that are put anywhere after or before their partner."""
        indices = list(standing)
        passed = [self.web.node() for _ in indices]
        """Nodes behind everything that stays up to an index."""
        ahead = [self.web.node() for _ in indices]
        """Nodes before everything that stays from an index on."""
        for k, index in enumerate(indices):
            end, literal = standing[index]
            self.web.edge(end.node, passed[k], literal)
            self.web.edge(ahead[k], end.node, literal)
            if k:
                self.web.edge(passed[k - 1], passed[k])
                self.web.edge(passed[k - 1], end.node, literal)
                self.web.edge(ahead[k - 1], ahead[k])
        for end in ends:
            index = self.partner(end.transfer)[1]
            before = sum(other < index for other in indices)
            if end.transfer.sends and before:
                self.web.edge(passed[before - 1], end.node)
            if not end.transfer.sends and before < len(indices):
                self.web.edge(end.node, ahead[before])

    def _groups(self, rank: int, standing: dict[int, tuple[_End, int]]) -> None:
        """Runs of transfers between two slots: each after the one before, inside only lanes."""
        gap, gaps = 0, {}
        for index in range(len(self.rows[rank])):
            gaps[index] = gap
            gap += index in self.slots[rank]
        closed = [self.web.node() for _ in range(gap + 1)]
        ahead = [self.web.node() for _ in range(gap + 1)]
        for g in range(gap):
            self.web.edge(closed[g], closed[g + 1])
            self.web.edge(ahead[g], ahead[g + 1])
        tails: dict[Hashable, int] = {}
        for index, (end, literal) in sorted(standing.items()):
            g = gaps[index]
            if g:
                self.web.edge(closed[g - 1], end.node, literal)
            self.web.edge(end.node, closed[g], literal)
            self.web.edge(ahead[g], end.node, literal)
            lane = (g, self.lane(end.transfer))
            passed = self.web.node()
            if lane in tails:
                self.web.edge(tails[lane], passed)
                self.web.edge(tails[lane], end.node, literal)
            self.web.edge(end.node, passed, literal)
            tails[lane] = passed
            if not end.transfer.sends:
                self.web.edge(closed[g], self._slot(self.partner(end.transfer)), literal)
        for end in self.due(rank):
            g = gaps[self.partner(end.transfer)[1]]
            if end.transfer.sends:
                self.web.edge(closed[g], end.node)
            elif g < gap:
                self.web.edge(end.node, ahead[g + 1])

    def fewest(self, seconds: float) -> Found:
        """The fewest literals to move."""
        return fewest(self.web, seconds)

    def choices(self, found: Found, most: int, seconds: float) -> Iterator[frozenset[int]]:
        """What was found and other sets as small."""
        yield found.moved
        if found.fewest and found.moved:
            yield from others(self.web, found, most, seconds)

    def unavoidable(self) -> tuple[int, int]:
        """How many literals are only copies, and how many ends have to come from another rank."""
        spare = sum(len(group) - 1 for group in self.web.only_one)
        strays = sum(end.stray is not None and not end.copies for end in self.ends.values())
        return spare, strays

    def placed(self, moved: frozenset[int]) -> tuple[list[list[Entry]], set[Place]]:
        """The rows when these literals are moved, and the origins of what does not keep its place."""
        late = [node for nodes in self.slots for node in nodes.values()]
        turns, _ = self.web.order(moved, late)
        rows: list[list[Entry]] = []
        origins: set[Place] = set()
        for rank, row in enumerate(self.rows):
            standing = {i: end for i, (end, literal) in self.standing(rank).items() if literal not in moved}
            kept = [
                (entry, self.slots[rank].get(index), standing.get(index))
                for index, entry in enumerate(row)
                if index in self.slots[rank] or index in standing
            ]
            free: list[tuple[int, int, Entry]] = []
            for end in self.due(rank):
                if any(literal not in moved for literal in end.copies.values()):
                    continue
                entry = row[min(end.copies)] if end.copies else end.stray or Entry(end.transfer, None)
                if entry.origin is not None:
                    origins.add(entry.origin)
                free.append((self._position(end, kept, turns), turns[end.node], entry))
            free.sort(key=lambda item: item[:2])
            built: list[Entry] = []
            for position in range(len(kept) + 1):
                while free and free[0][0] == position:
                    built.append(free.pop(0)[2])
                if position < len(kept):
                    built.append(kept[position][0])
            rows.append(built)
        return rows, origins

    def _position(self, end: _End, kept: list[tuple[Entry, int | None, _End | None]], turns: list[int]) -> int:
        """Before how many of those that stay a moved end goes: as late as the order allows."""
        turn, queue, lane = turns[end.node], self.queue(end.transfer), self.lane(end.transfer)
        grouped = self.waits in ("batched", "even-odd")
        last_gap = False
        for position, (_, slot, other) in enumerate(kept):
            if slot is not None:
                if turns[slot] > turn or last_gap:
                    return position
            elif other is not None and turns[other.node] > turn:
                if grouped and self.lane(other.transfer) != lane:
                    last_gap = True
                elif grouped or self.queue(other.transfer) == queue:
                    return position
        return len(kept)
