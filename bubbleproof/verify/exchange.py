"""A program as the judge sees it: where both ends of every message stand, and which receive takes which send.

Written from docs/semantics.md, section 8, alone. Everything about ops is inherited from `Case`: a program is judged as
the schedule that its rows are without transfers and collectives, with positions that count all actions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, cast

from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import BACKWARDS, Kind, Op, Slot, members
from bubbleproof.schedules.program import Channel, Collective, Program, Transfer
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.verify.case import Case, Place

if TYPE_CHECKING:
    from bubbleproof.verify.channels import Graph, Progress
    from bubbleproof.verify.runtimes.prediction import Prediction

__all__ = ["Delivery", "Lane", "Message", "ProgramCase", "Setting", "Shape", "Target", "service"]

Target: TypeAlias = Literal["torch"]
"""A runtime with rules of its own."""

Shape: TypeAlias = tuple[int, ...]

Lane: TypeAlias = tuple[int, int, str]
"""Sending rank, receiving rank, and the direction where each direction has a communicator of its own (else "")."""

_MEGATRON = {
    0: {"SEND_F": 0, "RECV_F": 1, "SEND_B": 2, "RECV_B": 3},
    1: {"RECV_F": 0, "SEND_F": 1, "RECV_B": 2, "SEND_B": 3},
}


class Message(NamedTuple):
    """A message whose two ends are there; named by its send."""

    name: Transfer
    send: Place
    receive: Place


class Delivery(NamedTuple):
    """What the k-th receive of a lane takes: the k-th send."""

    lane: Lane
    number: int
    sent: Transfer
    send: Place
    received: Transfer
    receive: Place


@dataclass(frozen=True)
class Setting:
    """What a program is judged under besides its instance.

    Parameters
    ----------
    channel
        How messages travel; docs/semantics.md, section 9.
    target
        The runtime whose own rules hold as well; None for those of every runtime.
    transfers
        False for a program whose transfers are still to be added by a runtime.
    scale_grads
        Whether REDUCE_GRAD divides the gradients by m. If not, a program without any REDUCE_GRAD may be complete.
    fused_stages
        Stages that cannot split their backward.
    inputs, outputs
        The shape of what each stage takes and makes; None where it is not known.
    message_memory
        Memory of what each stage sends forward (and of the gradient that it gets back), in the unit of the instance.
    prediction
        What the consumer model of a runtime says about the program, if there is one.
    """

    channel: Channel = "rendezvous-pair"
    target: Target | None = None
    transfers: bool = True
    scale_grads: bool = True
    fused_stages: Collection[int] = ()
    inputs: Sequence[Shape | None] | None = None
    outputs: Sequence[Shape | None] | None = None
    message_memory: Sequence[int] | None = None
    prediction: Prediction | None = None


def service(rank: int, row: Sequence[object], channel: Channel) -> list[int]:
    """The positions of a row in the order in which they are called: that of the row but for ``even-odd``."""
    order = list(range(len(row)))
    if channel != "even-odd":
        return order
    turns = _MEGATRON[rank % 2]
    start = 0
    while start < len(row):
        end = start
        while end < len(row) and isinstance(row[end], Transfer):
            end += 1
        order[start:end] = sorted(range(start, end), key=lambda p: turns[cast(Transfer, row[p]).kind])
        start = max(end, start + 1)
    return order


class ProgramCase(Case):
    """One program, its instance, and what it is judged under."""

    def __init__(self, program: Program, instance: Instance, setting: Setting) -> None:
        # a row in place of an order: transfers and collectives hold no op and last no time
        rows = cast("tuple[tuple[Slot, ...], ...]", program.rows)
        super().__init__(Schedule(rows, program.name), instance, target=setting.target)
        self.program = program
        self.setting = setting

    def fault(self, rank: int, transfer: Transfer) -> str:
        """What keeps a transfer from being an end of a message: unknown, ends, inside, rank; "" if nothing does."""
        instance = self.instance
        if not (0 <= transfer.stage < instance.stages and 0 <= transfer.microbatch < instance.microbatches):
            return "unknown"
        if not 0 <= transfer.peer_stage < instance.stages:
            return "ends"
        home = instance.rank_of(transfer.stage, transfer.microbatch)
        if home == instance.rank_of(transfer.peer_stage, transfer.microbatch):
            return "inside"
        return "" if home == rank else "rank"

    @cached_property
    def faulty(self) -> dict[str, list[tuple[Place, Transfer]]]:
        """The transfers that are no end of any message, by what is wrong with them."""
        return self._sorted[0]

    @cached_property
    def ends(self) -> dict[Transfer, list[Place]]:
        """Where each end of a message stands, all copies."""
        return self._sorted[1]

    @cached_property
    def _sorted(self) -> tuple[dict[str, list[tuple[Place, Transfer]]], dict[Transfer, list[Place]]]:
        faulty: dict[str, list[tuple[Place, Transfer]]] = {}
        ends: dict[Transfer, list[Place]] = {}
        for rank, position, transfer in self.program.transfers():
            fault = self.fault(rank, transfer)
            if fault:
                faulty.setdefault(fault, []).append((Place(rank, position), transfer))
            else:
                ends.setdefault(transfer, []).append(Place(rank, position))
        return faulty, ends

    def crossing(self) -> Iterator[Transfer]:
        """The send of every message that is due: each edge between two ranks, forwards and backwards."""
        for stage, microbatch in self.cells():
            rank = self.instance.rank_of(stage, microbatch)
            if stage + 1 < self.instance.stages and self.instance.rank_of(stage + 1, microbatch) != rank:
                yield Transfer("SEND_F", stage, microbatch)
                yield Transfer("SEND_B", stage + 1, microbatch)

    @cached_property
    def messages(self) -> list[Message]:
        """The messages whose both ends are there; of a copied end the first copy."""
        found = []
        for name in self.crossing():
            send, receive = self.ends.get(name), self.ends.get(name.other_end)
            if send and receive:
                found.append(Message(name, send[0], receive[0]))
        return found

    @cached_property
    def turn(self) -> list[list[int]]:
        """For each rank and position its turn in the order of calls."""
        turns = []
        for rank, row in enumerate(self.program.rows):
            turn = [0] * len(row)
            for index, position in enumerate(service(rank, row, self.setting.channel)):
                turn[position] = index
            turns.append(turn)
        return turns

    @cached_property
    def deliveries(self) -> list[Delivery]:
        """Which send each receive takes, lane by lane: the k-th the k-th, whatever their names.

        Of the messages whose both ends are there; what is extra or lacks its other end is left out.
        """
        ends = [(message.name, message.send) for message in self.messages]
        ends += [(message.name.other_end, message.receive) for message in self.messages]
        return self._delivered(ends)[0]

    @cached_property
    def literally(self) -> tuple[list[Delivery], list[Place]]:
        """What the lanes do with every transfer as it stands, and the transfers that wait for ever for another end.

        Copies, strays and transfers inside a rank take their turn like any other; those that have no stage to go to or
        come from do nothing.
        """
        instance = self.instance
        ends = []
        for rank, position, transfer in self.program.transfers():
            known = 0 <= transfer.stage < instance.stages and 0 <= transfer.peer_stage < instance.stages
            if known and (len(instance.placement.routes) == 1 or 0 <= transfer.microbatch < instance.microbatches):
                ends.append((transfer, Place(rank, position)))
        return self._delivered(ends)

    def peer(self, transfer: Transfer) -> int:
        """The rank at the other end of a transfer between two stages that exist."""
        # a microbatch that does not exist follows the only route there is
        microbatch = transfer.microbatch if 0 <= transfer.microbatch < self.instance.microbatches else 0
        return self.instance.rank_of(transfer.peer_stage, microbatch)

    def _delivered(self, ends: Iterable[tuple[Transfer, Place]]) -> tuple[list[Delivery], list[Place]]:
        apart = self.setting.channel in ("per-direction", "even-odd")
        lanes: dict[Lane, tuple[list[tuple[Transfer, Place]], list[tuple[Transfer, Place]]]] = {}
        for transfer, place in ends:
            ranks = (place.rank, self.peer(transfer))
            source, target = ranks if transfer.sends else ranks[::-1]
            sides = lanes.setdefault((source, target, transfer.direction if apart else ""), ([], []))
            sides[not transfer.sends].append((transfer, place))
        found, alone = [], []
        for lane, sides in sorted(lanes.items()):
            for side in sides:
                side.sort(key=lambda end: self.turn[end[1].rank][end[1].position])
            for index, ((sent, send), (received, receive)) in enumerate(zip(*sides, strict=False)):
                found.append(Delivery(lane, index, sent, send, received, receive))
            paired = min(map(len, sides))
            alone += [place for side in sides for _, place in side[paired:]]
        return found, alone

    def shape(self, end: Transfer) -> Shape | None:
        """The shape that an end of a message states, if it is known; a gradient has that of the tensor it is of."""
        inputs, outputs = self.setting.inputs, self.setting.outputs
        made = end.kind in ("SEND_F", "RECV_B")  # at the stage's output; else at its input
        known = outputs if made else inputs
        return None if known is None else known[end.stage]

    def partners(self, transfer: Transfer) -> list[tuple[Place, Op]]:
        """Where the ops stand, on their own rank, that make what is sent or use what is received; the first first."""
        kinds: tuple[Kind, ...] = ("F",) if transfer.direction == "F" else BACKWARDS
        ops = [Op(kind, transfer.stage, transfer.microbatch) for kind in kinds]
        return sorted((place, op) for op in ops for place in self.places.get(op, ()) if place.rank == self.home(op))

    @cached_property
    def reductions(self) -> dict[tuple[int, int], list[int]]:
        """For each rank and each stage of which it runs a microbatch, the positions of its REDUCE_GRAD."""
        routes = self.instance.placement.routes
        used = set(self.instance.route_of_microbatch)
        homes = {(rank, stage) for route in used for stage, rank in enumerate(routes[route])}
        found: dict[tuple[int, int], list[int]] = {home: [] for home in sorted(homes)}
        for rank, position, collective in self.program.collectives():
            if collective.kind == "REDUCE_GRAD" and (rank, collective.stage) in found:
                found[rank, collective.stage].append(position)
        return found

    def held(self, rank: int, collective: Collective) -> bool:
        """Whether the rank holds the stage of a collective."""
        return collective.stage in self.instance.placement.stages_of_rank[rank]

    @cached_property
    def graph(self) -> Graph:
        """The graph of the messages whose both ends are there, under the channel of the setting."""
        from bubbleproof.verify.channels import channel_graph

        return channel_graph(self)

    @cached_property
    def progress(self) -> Progress:
        """How far that graph gets."""
        from bubbleproof.verify.channels import progress

        return progress(self.graph)

    @cached_property
    def inputs_received(self) -> dict[Place, list[Place]]:
        """For each slot the receives that it waits for: those of its members that stand before it, all copies."""
        found: dict[Place, list[Place]] = {}
        for rank, position, slot in self.program.actions():
            for op in members(slot):
                kind: Literal["RECV_F", "RECV_B"] = "RECV_F" if op.kind == "F" else "RECV_B"
                copies = () if op.kind == "W" else self.ends.get(Transfer(kind, op.stage, op.microbatch), ())
                for place in copies:
                    if place.rank == rank and place.position < position:
                        found.setdefault(Place(rank, position), []).append(place)
        return found
