"""Consumer model of ``torch.distributed.pipelining``: the class that executes a schedule CSV, torch 2.10 to 2.13.

Written from docs/semantics.md, section "PyTorch's runtime", and from runs: every process executes its row in order;
sends and receives are posted and do not wait; messages between two ranks carry no names, so the k-th receive takes the
k-th send; a forward or backward waits for the receive of its input; stages that are neighbours on one rank hand their
tensors over in memory; the losses of the last stage are a list in the order of its forwards, looked up by microbatch.

Tensors are symbols. ``("F", s, x)`` is the right output of stage s for the data of microbatch x, ``("G", s, x)`` the
right gradient of its input; anything else is a symbol that tells how it came about, and equals neither. What counts is
whose data it is, not the number under which it was received: two crossings that cancel train right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from bubbleproof.schedules.op import Op, Overlap, members
from bubbleproof.schedules.program import Action, Collective, Program, Transfer
from bubbleproof.verify.runtimes.prediction import Prediction
from bubbleproof.verify.runtimes.torch_load import Refusal, load

if TYPE_CHECKING:
    from bubbleproof.schedules.instance import Instance

__all__ = ["predict"]

Symbol: TypeAlias = tuple[object, ...]
Key: TypeAlias = tuple[str, int, int]
"""A receive buffer: direction F or B, stage, microbatch."""

_UNSET: Symbol = ("memory that nobody has written",)


class Raised(Exception):  # what the runtime raises, not an error of ours
    """The runtime raises here; the text says why."""


def predict(program: Program, instance: Instance, *, scale_grads: bool = True, transfers: bool = True) -> Prediction:
    """What PyTorch's runtime does with a program in one training step, with a loss function that is a mean.

    Parameters
    ----------
    scale_grads
        The runtime's option of that name: REDUCE_GRAD divides the gradients by the number of microbatches.
    transfers
        False for an order without communication, to which PyTorch adds its own when it loads it.
    """
    if not instance.placement.plain:
        return Prediction(outcome="refused", reason="stages that are no chain: each takes what the one before it makes")
    if len(instance.placement.routes) > 1:
        return Prediction(outcome="refused", reason="a stage on two ranks: a bidirectional placement")
    try:
        rows, home = load(program, instance, transfers=transfers)
    except Refusal as refusal:
        return Prediction(outcome="refused", reason=str(refusal), rank=refusal.rank, position=refusal.position)
    for stage, rank in sorted(home.items()):
        if instance.placement.routes[0][stage] != rank:
            why = f"stage {stage} is on rank {rank} in the file and on another rank where it was built"
            return Prediction(outcome="crash", reason=why, rank=rank, certain=False)
    run = _Run(rows, instance, scale_grads)
    run.go()
    return run.prediction()


class _Rank:
    """One process: its row, its stages, and what PyTorch's objects of these stages hold."""

    def __init__(self, rank: int, row: Sequence[Action], instance: Instance) -> None:
        self.rank = rank
        self.instance = instance
        self.todo = [part for action in row for part in (members(action) or (action,))]
        self.places = [at for at, action in enumerate(row) for _ in (members(action) or (action,))]
        self.at = 0
        self.stages = frozenset(instance.placement.stages_of_rank[rank])
        self.buffers: dict[Key, Symbol] = {}
        self.posted: dict[Key, tuple[int, int] | None] = {}  # receives not yet waited for: (source, number)
        self.saved: dict[tuple[int, int], tuple[Symbol, Symbol]] = {}  # input and output of a forward
        self.input_gradients: dict[tuple[int, int], Symbol] = {}
        self.weights_to_do: dict[tuple[int, int], Symbol] = {}
        self.losses: list[int] = []  # microbatches, in the order of the forwards of the last stage
        self.detached: set[int] = set()  # outputs of the last stage that its backward has cut off from their graph
        self.gradients: dict[int, list[tuple[Symbol, int]]] = {stage: [] for stage in self.stages}  # with divisions

    @property
    def position(self) -> int | None:
        """Where the rank stands in its row."""
        return self.places[self.at] if self.at < len(self.places) else None


class _Run:
    """All ranks and the channels between them."""

    def __init__(self, rows: Sequence[Sequence[Action]], instance: Instance, scale_grads: bool) -> None:
        self.instance = instance
        self.m, self.last = instance.microbatches, instance.stages - 1
        self.divide = scale_grads and self.m > 1
        self.route = instance.placement.routes[0]
        self.ranks = [_Rank(rank, row, instance) for rank, row in enumerate(rows)]
        self.sent: dict[tuple[int, int], list[Symbol]] = {}
        self.awaited: dict[tuple[int, int], list[Key]] = {}
        self.crash: tuple[int, int | None, str] | None = None
        self.certain = True

    def go(self) -> None:
        """Run every rank as far as it gets; the first that raises ends the run."""
        moved = True
        while moved and self.crash is None:
            moved = False
            for rank in self.ranks:
                try:
                    while rank.at < len(rank.todo) and self.step(rank, rank.todo[rank.at]):
                        rank.at += 1
                        moved = True
                except Raised as raised:
                    self.crash = rank.rank, rank.position, str(raised)
                    return

    def step(self, rank: _Rank, action: Action) -> bool:
        """One action; False if it waits for a message."""
        assert not isinstance(action, Overlap)  # taken apart when the row was read
        if action.stage not in rank.stages:
            raise Raised(f"{action}: stage {action.stage} is not on rank {rank.rank}")
        if isinstance(action, Collective):
            if action.kind == "REDUCE_GRAD" and self.divide:
                held = rank.gradients[action.stage]
                rank.gradients[action.stage] = [(symbol, divided + 1) for symbol, divided in held]
            return True
        if isinstance(action, Transfer):
            self.send(rank, action) if action.sends else self.receive(rank, action)
            return True
        if action.kind == "W":
            self.weight(rank, action)
            return True
        return self.forward(rank, action) if action.kind == "F" else self.backward(rank, action)

    def peer(self, rank: _Rank, transfer: Transfer) -> int | None:
        """The rank at the other end; None at the two ends of the pipeline, where nothing is exchanged."""
        if not 0 <= transfer.peer_stage <= self.last:
            return None
        peer = self.route[transfer.peer_stage]
        if peer == rank.rank:
            raise Raised(f"{transfer}: stage {transfer.peer_stage} is on the same rank, which cannot send to itself")
        return peer

    def send(self, rank: _Rank, transfer: Transfer) -> None:
        place = transfer.stage, transfer.microbatch
        if transfer.direction == "F":
            if place not in rank.saved:
                raise Raised(f"{transfer}: there is no output to send")
            symbol = rank.saved[place][1]
        else:
            if transfer.stage == 0:
                return
            if place not in rank.input_gradients:
                raise Raised(f"{transfer}: there is no gradient to send")
            symbol = rank.input_gradients.pop(place)
        peer = self.peer(rank, transfer)
        if peer is not None:
            channel = rank.rank, peer
            self.sent.setdefault(channel, []).append(symbol)
            self.deliver(channel, len(self.sent[channel]) - 1)

    def receive(self, rank: _Rank, transfer: Transfer) -> None:
        key = transfer.direction, transfer.stage, transfer.microbatch
        if key in rank.posted:
            raise Raised(f"{transfer}: received twice before it is used")
        if not 0 <= transfer.microbatch < self.m:
            raise Raised(f"{transfer}: there is no microbatch {transfer.microbatch}")
        peer = self.peer(rank, transfer)
        rank.posted[key] = None
        if peer is not None:
            channel = peer, rank.rank
            self.awaited.setdefault(channel, []).append(key)
            rank.posted[key] = peer, len(self.awaited[channel]) - 1
            self.deliver(channel, len(self.awaited[channel]) - 1)

    def deliver(self, channel: tuple[int, int], number: int) -> None:
        """Let a message arrive once both ends of it are posted."""
        sent, awaited = self.sent.get(channel, []), self.awaited.get(channel, [])
        if number >= len(sent) or number >= len(awaited):
            return
        rank, key, symbol = self.ranks[channel[1]], awaited[number], sent[number]
        if rank.buffers.get(key, symbol) != symbol:
            self.certain = False  # the buffer held something else; who reads which is a matter of time
        rank.buffers[key] = symbol

    def arrived(self, rank: _Rank, key: Key, action: Op) -> bool:
        """Whether the input of an op has come; the receive is then used up."""
        if key not in rank.posted:
            raise Raised(f"{action}: its input was not received")
        handle = rank.posted[key]
        if handle is not None:
            source, number = handle
            if number >= len(self.sent.get((source, rank.rank), [])):
                return False
        del rank.posted[key]
        return True

    def forward(self, rank: _Rank, op: Op) -> bool:
        stage, j = op.stage, op.microbatch
        key: Key = ("F", stage, j)
        if stage > 0 and stage - 1 not in rank.stages and not self.arrived(rank, key, op):
            return False
        if not 0 <= j < self.m:
            raise Raised(f"{op}: there is no microbatch {j}")
        given: Symbol = ("F", -1, j) if stage == 0 else rank.buffers.get(key, _UNSET)
        made: Symbol = ("F", stage, given[2]) if given[:2] == ("F", stage - 1) else ("F of", stage, given)
        rank.saved[stage, j] = given, made
        if stage == self.last:
            rank.losses.append(j)
        if stage + 1 in rank.stages:
            rank.buffers["F", stage + 1, j] = made
        return True

    def backward(self, rank: _Rank, op: Op) -> bool:
        stage, j = op.stage, op.microbatch
        local = stage + 1 in rank.stages
        if stage < self.last and not local and not self.arrived(rank, ("B", stage, j), op):
            return False
        if rank.losses and not 0 <= j < len(rank.losses):  # also asked for the other stages of the last stage's rank
            raise Raised(f"{op}: the loss of microbatch {j} is not there yet")
        if (stage, j) not in rank.saved:
            raise Raised(f"{op}: there is no forward of it")
        _, made = rank.saved.pop((stage, j))
        gradient = weights = self.gradient(rank, stage, j, made)
        if stage == self.last:
            gradient, weights = self.gradients_of_loss(rank, op, made, gradient)
        if op.kind == "BW":
            rank.gradients[stage].append((weights, 0))
        else:
            rank.weights_to_do[stage, j] = weights
        rank.input_gradients[stage, j] = gradient
        if stage - 1 in rank.stages:
            rank.buffers["B", stage - 1, j] = rank.input_gradients.pop((stage, j))
        return True

    def gradient(self, rank: _Rank, stage: int, j: int, made: Symbol) -> Symbol:
        """The gradient of a stage's input from what was saved of its output and the gradient of that."""
        came = rank.buffers.get(("B", stage, j), _UNSET)
        if made[0] == "F" and came == ("G", stage + 1, made[2]):
            return "G", stage, made[2]
        return "G of", stage, made, came

    def gradients_of_loss(self, rank: _Rank, op: Op, made: Symbol, wrong: Symbol) -> tuple[Symbol, Symbol]:
        """At the last stage: the gradients of the input and of the weights, from the loss that is looked up.

        A loss belongs to the data of the forward that made it, with the target of that forward's number. If it is not
        the loss of this microbatch, the input gets none of it, and a split backward gives the weights none either
        unless the stage is also the first.
        """
        found = rank.losses[op.microbatch]
        if found in rank.detached and op.kind == "BW":
            raise Raised(f"{op}: takes the loss of microbatch {found}, whose output is already detached")
        if self.last > 0:
            rank.detached.add(op.microbatch)
        if found == op.microbatch:
            right: Symbol = ("G", op.stage, found)
            return (right, right) if made == ("F", op.stage, found) else (wrong, wrong)
        return wrong, ("G", op.stage, found) if self.last == 0 else wrong

    def weight(self, rank: _Rank, op: Op) -> None:
        if (op.stage, op.microbatch) not in rank.weights_to_do:
            raise Raised(f"{op}: there is no gradient of its input yet")
        rank.gradients[op.stage].append((rank.weights_to_do.pop((op.stage, op.microbatch)), 0))

    def prediction(self) -> Prediction:
        """The outcome of the run."""
        if self.crash is not None:
            where, position, why = self.crash
            return Prediction(outcome="crash", reason=why, rank=where, position=position, certain=self.certain)
        stuck = [rank for rank in self.ranks if rank.at < len(rank.todo)]
        for rank in self.ranks:
            if rank not in stuck and self.last in rank.stages and len(rank.losses) != self.m:
                why = f"{len(rank.losses)} losses for {self.m} microbatches"
                return Prediction(outcome="crash", reason=why, rank=rank.rank, certain=self.certain)
        if stuck:
            why = "; ".join(f"rank {rank.rank} waits at {rank.todo[rank.at]}" for rank in stuck)
            return self.says("hang", why, stuck[0])
        for channel, symbols in self.sent.items():
            if len(symbols) > len(self.awaited.get(channel, [])):
                return self.says("hang", f"rank {channel[0]} waits for rank {channel[1]} to receive what it sent")
        for rank in self.ranks:
            for stage, held in rank.gradients.items():
                want = {(("G", stage, j), int(self.divide)) for j in range(self.m)}
                if set(held) != want or len(held) != self.m:
                    return self.says("wrong", f"the gradients of stage {stage} are wrong", rank)
            if self.last in rank.stages and rank.losses != list(range(self.m)):
                return self.says("wrong", "losses are returned in another order than that of the microbatches", rank)
        return self.says("ok", "")

    def says(self, outcome: str, why: str, rank: _Rank | None = None) -> Prediction:
        """A prediction at the place where a rank stands."""
        return Prediction(
            outcome=outcome,  # type: ignore[arg-type]  # one of the outcomes
            reason=why,
            rank=None if rank is None else rank.rank,
            position=None if rank is None else rank.position,
            certain=self.certain,
        )
