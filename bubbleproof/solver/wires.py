"""Messages that occupy channels, as queues of their own on lines of their own beside the ranks.

A channel is treated like a rank whose ops are messages; its order follows from those of the ranks, because messages go
in the order of the ops that make them (docs/semantics.md, "Occupied channels").
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from bubbleproof.solver.flat import Flat, Orders

__all__ = ["Arrays", "Wires"]

Arrays: TypeAlias = tuple[list[tuple[tuple[int, int], ...]], list[list[tuple[int, int]]], list[int], list[int]]
"""Inputs, outputs, durations and ranks of queues."""


@dataclass
class Wires:
    """The queues of an instance and those of its messages.

    Parameters
    ----------
    rank, duration, inputs, outputs
        As in `Flat`, with channels numbered after the ranks and messages after the ops.
    sends
        For each queue of ops the queues of the messages that one of its ops makes, in their order.
    channels
        Number of channels.
    """

    rank: list[int] = field(default_factory=list)
    duration: list[int] = field(default_factory=list)
    inputs: list[tuple[tuple[int, int], ...]] = field(default_factory=list)
    outputs: list[list[tuple[int, int]]] = field(default_factory=list)
    sends: list[list[int]] = field(default_factory=list)
    channels: int = 0

    @classmethod
    def of(cls, flat: Flat) -> Wires:
        """The queues of an instance whose messages occupy channels."""
        pair = flat.instance.costs.channel == "pair"
        rank, duration, inputs = list(flat.rank), list(flat.duration), [list(found) for found in flat.inputs]
        sends: list[list[int]] = [[] for _ in rank]
        numbers: dict[tuple[int, ...], int] = {}
        for queue, targets in enumerate(flat.outputs):
            for target, delay in sorted(targets, key=lambda found: flat.stage[found[0]]):
                sender, receiver = flat.rank[queue], flat.rank[target]
                if sender == receiver:
                    continue
                key = (sender, receiver) if pair else (sender,)
                message = len(rank)
                rank.append(flat.ranks + numbers.setdefault(key, len(numbers)))
                duration.append(delay)
                inputs.append([(queue, 0)])
                inputs[target][inputs[target].index((queue, delay))] = (message, 0)
                sends[queue].append(message)
        outputs: list[list[tuple[int, int]]] = [[] for _ in rank]
        for queue, sources in enumerate(inputs):
            for source, delay in sources:
                outputs[source].append((queue, delay))
        return cls(rank, duration, [tuple(found) for found in inputs], outputs, sends, len(numbers))

    @property
    def arrays(self) -> Arrays:
        """Inputs, outputs, durations and ranks of the queues, those of messages included."""
        return self.inputs, self.outputs, self.duration, self.rank

    def rows(self, orders: Orders) -> Orders:
        """The orders of the ranks, and those of the channels."""
        rows = [*orders, *([] for _ in range(self.channels))]
        for order in orders:
            for queue in order:
                for message in self.sends[queue]:
                    rows[self.rank[message]].append(message)
        return rows
