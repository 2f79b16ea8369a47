"""When messages arrive: after a fixed time, or one after the other on a channel that they occupy.

Written from docs/semantics.md, "Occupied channels", alone.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import TYPE_CHECKING

from bubbleproof.schedules.op import Slot, members
from bubbleproof.verify.place import Place

if TYPE_CHECKING:
    from bubbleproof.verify.case import Case, Need

__all__ = ["Wires"]


class Wires:
    """The messages of a schedule, told of the ends of the slots of each rank in the order of the rank."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.kind = case.instance.costs.channel
        self.sent: dict[Place, list[Need]] = {}
        self.arrivals: dict[Need, int] = {}
        self.free: dict[Hashable, int] = {}
        if self.kind != "latency":
            for row in case.waits:
                for needs in row:
                    for need in needs:
                        self.sent.setdefault(need.source, []).append(need)
            for place, needs in self.sent.items():
                needs.sort(key=partial(_turn, case.schedule.orders[place.rank][place.position]))

    def ended(self, place: Place, end: int) -> None:
        """Send what a slot has made: each message starts when the one before it on its channel has ended."""
        for need in self.sent.get(place, ()):
            channel = place.rank if self.kind == "rank" else (place.rank, need.at.rank)
            self.free[channel] = self.arrivals[need] = max(end, self.free.get(channel, end)) + self.case.message(need)

    def arrival(self, need: Need, end: int) -> int:
        """When what was needed is there; its slot ended at `end`."""
        return end + self.case.message(need) if self.kind == "latency" else self.arrivals[need]


def _turn(slot: Slot, need: Need) -> tuple[int, int]:
    """Of one slot's messages the forward's go first, and of one op's that to the lowest stage."""
    return members(slot).index(need.needs), need.op.stage
