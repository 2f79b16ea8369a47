"""Consumer model of DeepSpeed's engine for vees (DualPipeV, 0.19.8), with the split backwards that bubbleproof adds.

Written from docs/semantics.md, section "DeepSpeed", and from runs. Rank r holds stage r (phase 0) and stage 2p − 1 − r
(phase 1); gradients and losses are kept for each buffer. Sends and receives are queued and start together at the next
CommitP2P, which waits for all of them; between two ranks the k-th receive takes the k-th send, whatever they are. The
first activation of each phase and rank is preceded by a message about its shape, which waits where it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from bubbleproof.schedules.instructions import SPLIT_NAMES, Instruction, Streams
from bubbleproof.verify.runtimes.prediction import Outcome, Prediction

__all__ = ["predict_vee"]

Symbol: TypeAlias = tuple[object, ...]
Wait: TypeAlias = tuple[tuple[int, int], int]
"""A channel and the number of a message on it."""

_SHAPE: Symbol = ("shape",)
_UNSET: Symbol = ("memory that nobody has written",)


class _Raised(Exception):  # what the runtime raises, not an error of ours
    """The engine raises here; the text says why."""


@dataclass
class _Tensor:
    value: Symbol
    gradients: list[Symbol] = field(default_factory=list)


@dataclass
class _Output:
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
    at: int = 0
    loads: int = 0
    inputs: dict[int, _Tensor] = field(default_factory=dict)
    labels: dict[int, int] = field(default_factory=dict)
    outputs: dict[int, _Output] = field(default_factory=dict)
    losses: dict[int, _Output] = field(default_factory=dict)
    came: dict[int, _Tensor] = field(default_factory=dict)
    rest: dict[int, tuple[_Output, Symbol]] = field(default_factory=dict)
    sent_shape: set[int] = field(default_factory=set)
    took_shape: set[int] = field(default_factory=set)
    queue: list[tuple[tuple[int, int], Symbol | _Tensor]] = field(default_factory=list)
    waits: list[Wait] | None = None
    summed: list[_Output] = field(default_factory=list)
    held: list[tuple[Symbol, int]] | None = None
    version: int = 0
    applied: list[list[tuple[Symbol, int]]] = field(default_factory=list)


def predict_vee(streams: Streams, *, own: bool, replicas: int = 1) -> Prediction:
    """What the engine does with streams of instructions that have phases, in one training step from a fresh start.

    Parameters
    ----------
    own
        Whether it is the engine of `bubbleproof.runtimes.deepspeed`, which alone knows split backwards.
    replicas
        Number of data-parallel replicas, which all run these streams.
    """
    if streams.microbatches < 2 * streams.ranks:
        why = f"{streams.microbatches} microbatches; the engine wants at least 2 · {streams.ranks}"
        return Prediction("refused", why)
    run = _Run(streams, own, replicas)
    run.go()
    return run.prediction()


class _Run:
    """All ranks of one replica, and the messages between them."""

    def __init__(self, streams: Streams, own: bool, replicas: int) -> None:
        self.m, self.p, self.own, self.replicas = streams.microbatches, streams.ranks, own, replicas
        self.ranks = [_Rank(rank, row) for rank, row in enumerate(streams.rows)]
        self.count = streams.buffers
        self.sent: dict[tuple[int, int], list[Symbol]] = {}
        self.awaited: dict[tuple[int, int], list[_Tensor | None]] = {}
        self.crash: tuple[int, int, str] | None = None
        self.certain = True

    def go(self) -> None:
        """Run every rank as far as it gets."""
        moved, stopped = True, set[int]()
        while moved:
            moved = False
            for rank in self.ranks:
                while rank.rank not in stopped and rank.at < len(rank.row):
                    try:
                        if not self.step(rank, rank.row[rank.at]):
                            break
                    except _Raised as raised:
                        stopped.add(rank.rank)
                        self.crash = self.crash or (rank.rank, rank.at, str(raised))
                        break
                    rank.at += 1
                    moved = True

    def stage(self, rank: _Rank, one: Instruction) -> int:
        """The stage of an instruction."""
        return rank.rank if one.phase == 0 else 2 * self.p - 1 - rank.rank

    def step(self, rank: _Rank, one: Instruction) -> bool:
        """One instruction; False if it waits."""
        name, b, phase = one
        if not self.own and name in SPLIT_NAMES:
            raise _Raised(f"{one}: the engine does not understand it")
        if name == "CommitP2P":
            if rank.waits is None:
                rank.waits = [self.post(rank, channel, what) for channel, what in rank.queue]
                rank.queue = []
            return self.arrived(rank)
        if b is None:
            self.finish(rank, one)
            return True
        if (phase is None) != (name == "LoadMicroBatch"):
            raise _Raised(f"{one}: {'no' if phase is None else 'a'} phase is given")
        if b >= self.count[rank.rank]:
            raise _Raised(f"{one}: there are {self.count[rank.rank]} buffers")
        if name in ("SendActivation", "RecvActivation"):
            return self.activation(rank, one, b, phase or 0)
        {
            "LoadMicroBatch": self.load,
            "ForwardPass": self.forward,
            "BackwardPass": self.backward,
            "BackwardInput": self.backward,
            "BackwardWeight": self.backward_weight,
            "SendGrad": self.send_gradient,
            "RecvGrad": self.receive_gradient,
        }[name](rank, one, b)
        return True

    def load(self, rank: _Rank, one: Instruction, b: int) -> None:
        if b + self.m >= self.count[rank.rank]:
            raise _Raised(f"{one}: there is no buffer {b + self.m} for its labels")
        if rank.rank > 0:
            return
        if rank.loads >= self.m:
            raise _Raised(f"{one}: the iterator has no more than {self.m} items")
        rank.inputs[b] = _Tensor(("F", -1, rank.loads))
        rank.labels[b + self.m] = rank.loads
        rank.labels.pop(b, None)
        rank.loads += 1

    def forward(self, rank: _Rank, one: Instruction, b: int) -> None:
        stage = self.stage(rank, one)
        given = rank.inputs.get(b)
        if given is None:
            raise _Raised(f"{one}: the buffer has no input")
        right = given.value[:2] == ("F", stage - 1) and rank.version == 0
        value: Symbol = ("F", stage, given.value[2]) if right else ("F of", stage, given.value, rank.version)
        made = rank.outputs[b] = _Output(value, given, rank.version)
        if stage == 2 * self.p - 1:
            if b not in rank.labels:
                raise _Raised(f"{one}: the buffer has no labels")
            made.label = rank.labels[b]
            rank.losses[b] = made
            rank.summed.append(made)
        elif stage == self.p - 1:
            if b + self.m >= self.count[rank.rank]:
                raise _Raised(f"{one}: there is no buffer {b + self.m} for its other phase")
            rank.inputs[b + self.m] = _Tensor(value)

    def backward(self, rank: _Rank, one: Instruction, b: int) -> None:
        stage = self.stage(rank, one)
        made, gradient = self.taken(rank, one, b, stage)
        whole = one.name == "BackwardPass"
        if whole or stage > 0:  # the first stage has no gradient to hand on and does all of it in its other half
            self.check(rank, one, made)
            made.made_of.gradients.append(gradient)
        rank.outputs.pop(b, None)
        if stage == 0:
            rank.inputs.pop(b, None)
        if stage == 2 * self.p - 1:
            rank.labels.pop(b, None)
        if whole:
            made.used = True
            rank.held = [*(rank.held or ()), (gradient, stage)]
        else:
            rank.rest[b] = made, gradient

    def backward_weight(self, rank: _Rank, one: Instruction, b: int) -> None:
        if b not in rank.rest:
            raise _Raised(f"{one}: its BackwardInput has not run")
        made, gradient = rank.rest.pop(b)
        self.check(rank, one, made)
        made.used = True
        rank.held = [*(rank.held or ()), (gradient, self.stage(rank, one))]

    def taken(self, rank: _Rank, one: Instruction, b: int, stage: int) -> tuple[_Output, Symbol]:
        """What a backward starts from, and the gradient of its stage's input that will come out."""
        if stage == 2 * self.p - 1:
            loss = rank.losses.pop(b, None)
            if loss is None:
                raise _Raised(f"{one}: there is no loss")
            right = loss.value[0] == "F" and loss.value[2] == loss.label
            return loss, ("G", stage, loss.label) if right else ("G of", loss.value, loss.label)
        if stage == self.p - 1:
            turned = rank.inputs.pop(b + self.m, None)
            found = () if turned is None else tuple(turned.gradients)
        else:
            given = rank.came.pop(b, None)
            found = () if given is None else (given.value,)
        if not found or b not in rank.outputs:
            raise _Raised(f"{one}: the buffer has no {'output' if found else 'gradient'}")
        made = rank.outputs[b]
        right = made.value[0] == "F" and found == (("G", stage + 1, made.value[2]),)
        return made, ("G", stage, made.value[2]) if right else ("G of", made.value, found)

    def check(self, rank: _Rank, one: Instruction, made: _Output) -> None:
        """What automatic differentiation refuses."""
        if made.used:
            raise _Raised(f"{one}: the graph of this forward has been used and freed")
        if made.version != rank.version:
            raise _Raised(f"{one}: the optimizer has changed the weights since the forward")

    def channel(self, rank: _Rank, one: Instruction) -> tuple[int, int]:
        """From where to where a message goes."""
        down = (one.phase == 0) == (one.name in ("SendActivation", "RecvGrad"))
        peer = rank.rank + (1 if down else -1)
        if not 0 <= peer < self.p:
            raise _Raised(f"{one}: there is no rank {peer}")
        return (rank.rank, peer) if one.name in ("SendActivation", "SendGrad") else (peer, rank.rank)

    def activation(self, rank: _Rank, one: Instruction, b: int, phase: int) -> bool:
        """Queue an activation, the first of a phase after a message about its shape."""
        sends = one.name == "SendActivation"
        if sends and b not in rank.outputs:
            raise _Raised(f"{one}: the buffer has no output")
        channel = self.channel(rank, one)
        known = rank.sent_shape if sends else rank.took_shape
        if phase not in known:
            if rank.waits is None:
                rank.waits = [self.post(rank, channel, _SHAPE if sends else None)]
            if not self.arrived(rank):
                return False
            known.add(phase)
        if sends:
            rank.queue.append((channel, rank.outputs[b].value))
        else:
            rank.inputs[b] = _Tensor(_UNSET)
            rank.queue.append((channel, rank.inputs[b]))
        return True

    def send_gradient(self, rank: _Rank, one: Instruction, b: int) -> None:
        found = rank.inputs.get(b)
        if found is None or not found.gradients:
            raise _Raised(f"{one}: the buffer has no {'input' if found is None else 'gradient'}")
        channel = self.channel(rank, one)
        one_only = found.gradients[0] if len(found.gradients) == 1 else ("sum", *found.gradients)
        rank.queue.append((channel, one_only))
        del rank.inputs[b]

    def receive_gradient(self, rank: _Rank, one: Instruction, b: int) -> None:
        if b not in rank.outputs:
            raise _Raised(f"{one}: the buffer has no output that tells the size of the gradient")
        channel = self.channel(rank, one)
        rank.came[b] = _Tensor(_UNSET)
        rank.queue.append((channel, rank.came[b]))

    def post(self, rank: _Rank, channel: tuple[int, int], what: Symbol | _Tensor | None) -> Wait:
        """Start one end of a message; its number on its channel."""
        sends = channel[0] == rank.rank
        if sends:
            assert isinstance(what, tuple)  # the sending end holds what is sent
            self.sent.setdefault(channel, []).append(what)
        else:
            assert not isinstance(what, tuple)  # the receiving end holds where it goes; nothing for a shape
            self.awaited.setdefault(channel, []).append(what)
        number = len((self.sent if sends else self.awaited)[channel]) - 1
        self.deliver(channel, number)
        return channel, number

    def deliver(self, channel: tuple[int, int], number: int) -> None:
        """Let a message arrive once both of its ends have started."""
        sent, awaited = self.sent.get(channel, []), self.awaited.get(channel, [])
        if number >= min(len(sent), len(awaited)):
            return
        place = awaited[number]
        if (place is None) != (sent[number] == _SHAPE):
            self.certain = False  # unequal sizes: the library raises on some rank, or waits
            raise _Raised(f"message {number} from rank {channel[0]} to {channel[1]} is a shape on one end only")
        if place is not None:
            place.value = sent[number]

    def arrived(self, rank: _Rank) -> bool:
        """Whether all messages for which a rank waits have both ends."""
        waits = rank.waits or []
        if any(number >= min(len(self.sent.get(c, [])), len(self.awaited.get(c, []))) for c, number in waits):
            return False
        rank.waits = None
        return True

    def finish(self, rank: _Rank, one: Instruction) -> None:
        """Reductions and the optimizer step. Missing gradients are zeros after a reduction, and skipped without one."""
        if one.name == "ReduceGrads":
            rank.held = list(rank.held or ())
        elif one.name == "OptimizerStep" and rank.held is not None:
            rank.applied.append(rank.held)
            rank.held = None
            rank.version += 1

    def prediction(self) -> Prediction:
        """The outcome of the run."""
        if self.crash is not None:
            where, position, why = self.crash
            return Prediction("crash", why, where, position, self.certain)
        stuck = [rank for rank in self.ranks if rank.at < len(rank.row)]
        if stuck:
            why = "; ".join(f"rank {rank.rank} waits at {rank.row[rank.at]}" for rank in stuck)
            return self.says("hang", why, stuck[0])
        end = self.ranks[0]
        if not end.summed:
            return self.says("crash", "there is no loss to report: no forward of the last stage", end)
        for rank in self.ranks:
            stages = (rank.rank, 2 * self.p - 1 - rank.rank)
            want = {(("G", stage, x), stage) for stage in stages for x in range(self.m)}
            if len(rank.applied) != 1:
                return self.says("wrong", f"the weights of rank {rank.rank} change {len(rank.applied)} times", rank)
            if set(rank.applied[0]) != want or len(rank.applied[0]) != len(want):
                return self.says("wrong", f"the gradients of rank {rank.rank} are wrong", rank)
            reduced = [one.name for one in rank.row if one.name in ("ReduceGrads", "OptimizerStep")]
            if self.replicas > 1 and reduced != ["ReduceGrads", "OptimizerStep"]:
                return self.says("wrong", f"the gradients of rank {rank.rank} are not reduced once", rank)
        if len(end.summed) != self.m or {one.value[2] for one in end.summed} != set(range(self.m)):
            return self.says("wrong", "the loss reported is not that of each microbatch once", end)
        return self.says("ok", "")

    def says(self, outcome: Outcome, why: str, rank: _Rank | None = None) -> Prediction:
        """A prediction at the place where a rank stands."""
        position = None if rank is None or rank.at >= len(rank.row) else rank.at
        return Prediction(outcome, why, None if rank is None else rank.rank, position, self.certain)
