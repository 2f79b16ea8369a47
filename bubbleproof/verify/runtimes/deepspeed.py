"""Consumer model of DeepSpeed's pipeline engine (0.19.8): what it does with streams of instructions in one step.

Written from docs/semantics.md, section "DeepSpeed", and from runs. A rank executes its stream in order, every send and
receive waits for its other end, and messages between two ranks carry no names. Tensors live in buffers by number; what
a buffer holds when an instruction reaches it decides, not what was meant.

Two engines are told apart. DeepSpeed's own (``stock``) keeps one loss, that of the last forward, and one gradient,
that of the last receive, whose memory may be that into which activations are received. The one that
`bubbleproof.runtimes.deepspeed` brings (``bubbleproof``) keeps both for each buffer, and runs split backwards.

Tensors are symbols. ``("F", s, x)`` is the right output of stage s for item x of the data, ``("G", s, x)`` the right
gradient of its input; anything else tells how it came about, and equals neither.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from bubbleproof.schedules.instructions import SPLIT_NAMES, Instruction, Streams
from bubbleproof.verify.runtimes.prediction import Outcome, Prediction

__all__ = ["Engine", "predict"]

Engine: TypeAlias = Literal["stock", "bubbleproof"]
Symbol: TypeAlias = tuple[object, ...]

_SENDS = {"SendActivation": 1, "SendGrad": -1}
_RECEIVES = {"RecvActivation": -1, "RecvGrad": 1}


class _Raised(Exception):  # what the runtime raises, not an error of ours
    """The engine raises here; the text says why."""


def predict(
    streams: Streams, *, engine: Engine = "stock", replicas: int = 1, separate: Collection[int] = ()
) -> Prediction:
    """What DeepSpeed does with streams of instructions in one training step from a fresh start.

    The loss is a mean over the rows of a microbatch and takes labels; each end of the pipeline has an iterator with
    one item for each microbatch; layers need their weights in their backward.

    Parameters
    ----------
    engine
        DeepSpeed's own engine, that for vees if the streams have phases, or the one of
        `bubbleproof.runtimes.deepspeed`.
    replicas
        Number of data-parallel replicas, which all run these streams.
    separate
        Stages whose output is larger than their input: only there gradients are received into memory of their own.
    """
    if streams.vee:
        from bubbleproof.verify.runtimes.deepspeed_vee import predict_vee

        return predict_vee(streams, own=engine == "bubbleproof", replicas=replicas)
    run = _Run(streams, engine, replicas, frozenset(separate))
    run.go()
    return run.prediction()


@dataclass
class _Tensor:
    """What was loaded or received; a backward adds the gradient of it."""

    value: Symbol
    gradients: list[Symbol] = field(default_factory=list)


@dataclass
class _Output:
    """What a forward has made: of which input, with which state of the weights."""

    value: Symbol
    made_of: _Tensor
    version: int
    label: int | None = None
    used: bool = False


@dataclass
class _Rank:
    """One process and what its engine holds."""

    rank: int
    row: Sequence[Instruction]
    buffers: int
    at: int = 0
    loads: int = 0
    inputs: dict[int, _Tensor] = field(default_factory=dict)
    labels: dict[int, int] = field(default_factory=dict)
    outputs: dict[int, _Output] = field(default_factory=dict)
    loss: _Output | None = None
    gradient: Symbol | None = None
    losses_by_buffer: dict[int, _Output] = field(default_factory=dict)
    gradients_by_buffer: dict[int, Symbol] = field(default_factory=dict)
    weights_to_do: dict[int, tuple[_Output, Symbol]] = field(default_factory=dict)
    summed: list[_Output] = field(default_factory=list)
    held: list[tuple[Symbol, int]] | None = None  # summed gradients of the weights, each with its number of reductions
    version: int = 0
    applied: list[list[tuple[Symbol, int]]] = field(default_factory=list)

    @property
    def now(self) -> Instruction | None:
        """The instruction at which the rank stands."""
        return self.row[self.at] if self.at < len(self.row) else None


class _Run:
    """All ranks of one replica; the others do the same."""

    def __init__(self, streams: Streams, engine: Engine, replicas: int, separate: frozenset[int]) -> None:
        self.m, self.last = streams.microbatches, streams.ranks - 1
        self.own, self.replicas, self.separate = engine == "bubbleproof", replicas, separate
        self.ranks = [
            _Rank(rank, row, count) for rank, (row, count) in enumerate(zip(streams.rows, streams.buffers, strict=True))
        ]
        self.crash: tuple[int, int, str] | None = None

    def go(self) -> None:
        """Run every rank as far as it gets; of those that raise, the first in order of rank is kept."""
        moved, stopped = True, set[int]()
        while moved:
            moved = False
            for rank in self.ranks:
                while rank.rank not in stopped and rank.now is not None:
                    try:
                        if not self.step(rank, rank.now):
                            break
                    except _Raised as raised:
                        stopped.add(rank.rank)
                        self.crash = self.crash or (rank.rank, rank.at, str(raised))
                        break
                    rank.at += 1
                    moved = True

    def step(self, rank: _Rank, one: Instruction) -> bool:
        """One instruction; False if it waits for the other end of its message. A receive is done by its send."""
        name, b, _ = one
        if not self.own and name in SPLIT_NAMES:
            raise _Raised(f"{one}: the engine does not understand it")
        if not (name == "LoadMicroBatch" or (name == "BackwardPass" and rank.rank == self.last)):
            self.in_range(rank, one)  # a load looks later, and the loss is in no buffer
        if name in _SENDS:
            return self.send(rank, one, b or 0)
        if name in _RECEIVES:
            self.posted(rank, one, b or 0)
            return False
        if b is None:
            self.finish(rank, one)
        else:
            {
                "LoadMicroBatch": self.load,
                "ForwardPass": self.forward,
                "BackwardPass": self.backward,
                "BackwardInput": self.backward_input,
                "BackwardWeight": self.backward_weight,
            }[name](rank, one, b)
        return True

    def in_range(self, rank: _Rank, one: Instruction) -> None:
        """Whether the buffer of an instruction, if it has one, exists."""
        if one.buffer is not None and one.buffer >= rank.buffers:
            raise _Raised(f"{one}: there are {rank.buffers} buffers")

    def load(self, rank: _Rank, one: Instruction, b: int) -> None:
        if rank.rank not in (0, self.last):
            return
        if rank.loads >= self.m:
            raise _Raised(f"{one}: the iterator has no more than {self.m} items")
        self.in_range(rank, one)
        if rank.rank == 0:
            rank.inputs[b] = _Tensor(("F", -1, rank.loads))
        if rank.rank == self.last:
            rank.labels[b] = rank.loads
        rank.loads += 1

    def forward(self, rank: _Rank, one: Instruction, b: int) -> None:
        given = rank.inputs.get(b)
        if given is None:
            raise _Raised(f"{one}: the buffer has no input")
        right = given.value[:2] == ("F", rank.rank - 1) and rank.version == 0
        value: Symbol = ("F", rank.rank, given.value[2]) if right else ("F of", rank.rank, given.value, rank.version)
        made = rank.outputs[b] = _Output(value, given, rank.version)
        if rank.rank == self.last:
            if b not in rank.labels:
                raise _Raised(f"{one}: the buffer has no labels")
            made.label = rank.labels[b]
            rank.loss = rank.losses_by_buffer[b] = made
            rank.summed.append(made)

    def backward(self, rank: _Rank, one: Instruction, b: int) -> None:
        made, gradient = self.taken(rank, one, b)
        self.check(rank, one, made)
        made.used = True
        made.made_of.gradients.append(gradient)
        rank.held = [*(rank.held or ()), (gradient, 0)]
        if rank.rank < self.last:
            del rank.outputs[b]

    def backward_input(self, rank: _Rank, one: Instruction, b: int) -> None:
        made, gradient = self.taken(rank, one, b)
        if rank.rank > 0:  # the first stage has no gradient to hand on and does all of it in its other half
            self.check(rank, one, made)
            made.made_of.gradients.append(gradient)
        rank.outputs.pop(b, None)
        rank.weights_to_do[b] = made, gradient

    def backward_weight(self, rank: _Rank, one: Instruction, b: int) -> None:
        if b not in rank.weights_to_do:
            raise _Raised(f"{one}: its BackwardInput has not run")
        made, gradient = rank.weights_to_do.pop(b)
        self.check(rank, one, made)
        made.used = True
        rank.held = [*(rank.held or ()), (gradient, 0)]

    def taken(self, rank: _Rank, one: Instruction, b: int) -> tuple[_Output, Symbol]:
        """What a backward starts from: the output and the gradient of its stage's input that will come out."""
        if rank.rank == self.last:
            loss = rank.losses_by_buffer.pop(b, None) if self.own else rank.loss
            if loss is None:
                raise _Raised(f"{one}: there is no loss")
            made = loss
            right = made.value[0] == "F" and made.value[2] == made.label
            return made, ("G", rank.rank, made.label) if right else ("G of", made.value, made.label)
        found = rank.outputs.get(b)
        if found is None:
            raise _Raised(f"{one}: the buffer has no output")
        came = rank.gradients_by_buffer.pop(b, None) if self.own else rank.gradient
        if came is None:
            raise _Raised(f"{one}: no gradient was received")
        right = found.value[0] == "F" and came == ("G", rank.rank + 1, found.value[2])
        return found, ("G", rank.rank, found.value[2]) if right else ("G of", found.value, came)

    def check(self, rank: _Rank, one: Instruction, made: _Output) -> None:
        """What automatic differentiation refuses."""
        if made.used:
            raise _Raised(f"{one}: the graph of this forward has been used and freed")
        if made.version != rank.version:
            raise _Raised(f"{one}: the optimizer has changed the weights since the forward")

    def posted(self, rank: _Rank, one: Instruction, b: int) -> None:
        """Whether a receive can be called."""
        self.in_range(rank, one)
        if one.name == "RecvActivation" and rank.rank == 0:
            raise _Raised(f"{one}: there is no stage before the first")
        if one.name == "RecvGrad":
            if rank.gradient is None and b not in rank.outputs:
                raise _Raised(f"{one}: the buffer has no output that tells the size of the gradient")
            if rank.rank == self.last:
                raise _Raised(f"{one}: there is no stage after the last")

    def send(self, rank: _Rank, one: Instruction, b: int) -> bool:
        value = self.sent(rank, one, b)
        peer = self.ranks[rank.rank + _SENDS[one.name]]
        other = peer.now
        if other is None or _RECEIVES.get(other.name) != rank.rank - peer.rank:
            return False
        try:
            self.posted(peer, other, other.buffer or 0)
        except _Raised:
            return False  # the other rank raises when it is its turn
        self.receive(peer, other.name, other.buffer or 0, value)
        if one.name == "SendGrad":
            del rank.inputs[b]
        return True

    def sent(self, rank: _Rank, one: Instruction, b: int) -> Symbol:
        """What a send sends."""
        if one.name == "SendActivation":
            if b not in rank.outputs:
                raise _Raised(f"{one}: the buffer has no output")
            if rank.rank == self.last:
                raise _Raised(f"{one}: there is no stage after the last")
            return rank.outputs[b].value
        if b not in rank.inputs:
            raise _Raised(f"{one}: the buffer has no input")
        found = rank.inputs[b].gradients
        if not found or rank.rank == 0:
            raise _Raised(f"{one}: the input has no gradient")
        return found[0] if len(found) == 1 else ("sum", *found)

    def receive(self, rank: _Rank, name: str, b: int, value: Symbol) -> None:
        """The receive at which a rank stands takes what was sent, and the rank goes on."""
        if name == "RecvGrad":
            rank.gradient = rank.gradients_by_buffer[b] = value
        else:
            rank.inputs[b] = _Tensor(value)
            if rank.gradient is not None and rank.rank not in self.separate:
                rank.gradient = ("overwritten", value)
        rank.at += 1

    def finish(self, rank: _Rank, one: Instruction) -> None:
        """Reductions and the optimizer step. Missing gradients are zeros after a reduction, and skipped without one."""
        if one.name == "ReduceGrads":
            rank.held = [(symbol, count + 1) for symbol, count in rank.held or ()]
        elif one.name == "OptimizerStep" and rank.held is not None:
            rank.applied.append(rank.held)
            rank.held = None
            rank.version += 1

    def prediction(self) -> Prediction:
        """The outcome of the run."""
        if self.crash is not None:
            where, position, why = self.crash
            return Prediction("crash", why, where, position)
        stuck = [rank for rank in self.ranks if rank.now is not None]
        if stuck:
            why = "; ".join(f"rank {rank.rank} waits at {rank.now}" for rank in stuck)
            return self.says("hang", why, stuck[0])
        end = self.ranks[self.last]
        if not end.summed:
            return self.says("crash", "there is no loss to report: no forward on the last stage", end)
        for rank in self.ranks:
            want = {("G", rank.rank, x) for x in range(self.m)}
            if len(rank.applied) != 1:
                return self.says("wrong", f"the weights of stage {rank.rank} change {len(rank.applied)} times", rank)
            found = rank.applied[0]
            if {symbol for symbol, _ in found} != want or len(found) != self.m:
                return self.says("wrong", f"the gradients of stage {rank.rank} are wrong", rank)
            if self.replicas > 1 and any(count != 1 for _, count in found):
                return self.says("wrong", f"the gradients of stage {rank.rank} are not reduced once", rank)
        if len(end.summed) != self.m or {one.value[2] for one in end.summed} != set(range(self.m)):
            return self.says("wrong", "the loss reported is not that of each microbatch once", end)
        return self.says("ok", "")

    def says(self, outcome: Outcome, why: str, rank: _Rank | None = None) -> Prediction:
        """A prediction at the place where a rank stands."""
        position = None if rank is None or rank.now is None else rank.at
        return Prediction(outcome, why, None if rank is None else rank.rank, position)
