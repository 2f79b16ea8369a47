"""What ColossalAI's runtime for zero-bubble pipelines on a vee does with any lists of nodes, right or wrong.

Written from the behaviour of ``ZeroBubbleVPipeScheduler`` in ColossalAI 0.5.0 over gloo; docs/semantics.md, section
"ColossalAI". Each rank performs its nodes in order. Tensors wait in queues, one for each chunk and kind: the microbatch
of a node is never looked at. Between two ranks the k-th receive takes the k-th send, whatever both are for. The first
message of each chunk and kind is preceded by its shape, in two messages that both ranks wait for.

Tensors are symbols. ``("F", s, x)`` is the right output of stage s for item x of the data, ``("G", s, x)`` the right
gradient of its input; anything else tells how it came about, and equals neither.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from bubbleproof.schedules.nodes import Node, NodeLists
from bubbleproof.verify.runtimes.prediction import Prediction

__all__ = ["Scheduler", "predict"]

Scheduler: TypeAlias = Literal["stock", "bubbleproof"]
Symbol: TypeAlias = tuple[object, ...]
Content: TypeAlias = Literal["size", "shape", "tensor"]

_KINDS = ("FORWARD", "BACKWARD")


class _Raised(Exception):  # what the runtime raises, not an error of ours
    """The runtime raises here; the text says why."""


@dataclass
class _Call:
    """A send or receive that has been posted."""

    content: Content
    value: Symbol = ()
    done: bool = False
    broken: str = ""


def predict(nodes: NodeLists, *, scheduler: Scheduler = "stock", overlap: bool = True) -> Prediction:
    """What ColossalAI does with lists of nodes in the first training step.

    Every message is one tensor, larger than the text that describes its shape, and all have the same shape. Layers put
    the gradients of their weights off to W; gradients of biases come with B.

    Parameters
    ----------
    scheduler
        ColossalAI's own, or the one of `bubbleproof.runtimes.colossalai`, which takes any number of microbatches and
        raises if a W is missing.
    overlap
        Whether transfers are only waited for where they are needed (``overlap_p2p``).
    """
    if scheduler == "stock" and nodes.microbatches % nodes.ranks:
        return Prediction(
            "refused", f"{nodes.microbatches} microbatches are no multiple of {nodes.ranks} ranks", position=None
        )
    run = _Run(nodes, own=scheduler == "bubbleproof", overlap=overlap)
    run.go()
    return run.prediction()


@dataclass
class _Rank:
    """One process and what its scheduler holds."""

    rank: int
    row: tuple[Node, ...]
    at: int = 0
    begun: list[int] = field(default_factory=lambda: [0, 0])
    inputs: list[deque[Symbol]] = field(default_factory=lambda: [deque(), deque()])
    outputs: list[deque[tuple[Symbol, int]]] = field(default_factory=lambda: [deque(), deque()])
    leaving: dict[tuple[str, int], deque[Symbol]] = field(default_factory=dict)
    arriving: dict[tuple[str, int], deque[_Call]] = field(default_factory=dict)
    local: dict[str, deque[Symbol]] = field(default_factory=lambda: {kind: deque() for kind in _KINDS})
    shaped: set[tuple[str, str, int]] = field(default_factory=set)
    put_off: list[deque[Symbol]] = field(default_factory=lambda: [deque(), deque()])
    weights: list[list[Symbol]] = field(default_factory=lambda: [[], []])
    biases: list[list[Symbol]] = field(default_factory=lambda: [[], []])
    losses: list[tuple[Symbol, int]] = field(default_factory=list)
    sent: list[_Call] = field(default_factory=list)


class _Run:
    """All ranks together."""

    def __init__(self, nodes: NodeLists, *, own: bool, overlap: bool) -> None:
        self.nodes, self.m, self.own, self.overlap = nodes, nodes.microbatches, own, overlap
        self.last = nodes.ranks - 1
        self.ranks = [_Rank(rank, row) for rank, row in enumerate(nodes.rows)]
        self.posted: dict[tuple[int, int], tuple[list[_Call], list[_Call]]] = {}
        self.waiting: dict[int, _Call] = {}
        self.crash: tuple[int, int, str] | None = None

    def go(self) -> None:
        """Run every rank as far as it gets; of those that raise, the first in order of rank is kept."""
        steps = {rank.rank: self.whole(rank) for rank in self.ranks}
        moved = True
        while moved:
            moved = False
            for number, step in list(steps.items()):
                if number in self.waiting and not self.waiting[number].done:
                    continue
                moved = True
                try:
                    self.waiting[number] = next(step)
                except StopIteration:
                    del steps[number]
                except _Raised as raised:
                    del steps[number]
                    self.crash = self.crash or (number, self.ranks[number].at, str(raised))
        self.stuck = list(steps)

    def whole(self, rank: _Rank) -> Generator[_Call, None, None]:
        """All that a rank does; it yields the call that it waits for."""
        for at, node in enumerate(rank.row):
            rank.at = at
            way, _, kind = node.type.partition("_")
            if kind in _KINDS:
                yield from (self.send if way == "SEND" else self.receive)(rank, node, kind)
            elif node.type == "F":
                yield from self.forward(rank, node)
            elif node.type == "B":
                yield from self.backward(rank, node)
            elif node.type == "W":
                if not rank.put_off[node.chunk]:
                    raise _Raised(f"{node}: no backward has left anything for it")
                rank.weights[node.chunk].append(rank.put_off[node.chunk].popleft())
        rank.at = len(rank.row)
        for call in rank.sent:
            yield from self.ended(call)
        queues = [*rank.inputs, *rank.leaving.values(), *rank.arriving.values(), *rank.local.values()]
        if any(queues):
            raise _Raised("a queue is not empty at the end of the step")
        if self.own and any(rank.put_off):
            raise _Raised("a W is missing")

    def peer(self, rank: _Rank, chunk: int, kind: str, way: str) -> int | None:
        """The rank at the other end of a transfer of a chunk; None if nothing travels."""
        towards = 1 if (chunk == 0) == (kind == "FORWARD") else -1
        other = rank.rank + (towards if way == "SEND" else -towards)
        return other if 0 <= other <= self.last else None

    def send(self, rank: _Rank, node: Node, kind: str) -> Generator[_Call, None, None]:
        peer = self.peer(rank, node.chunk, kind, "SEND")
        if peer is None:
            return
        queue = rank.leaving.get((kind, node.chunk))
        if not queue:
            raise _Raised(f"{node}: nothing waits to be sent")
        value = queue.popleft()
        if ("SEND", kind, node.chunk) not in rank.shaped:
            for content in ("size", "shape"):
                yield from self.ended(self.post(rank.rank, peer, 0, _Call(content)))
        rank.shaped.add(("SEND", kind, node.chunk))
        call = self.post(rank.rank, peer, 0, _Call("tensor", value))
        rank.sent.append(call)
        if not self.overlap:
            yield from self.ended(call)

    def receive(self, rank: _Rank, node: Node, kind: str) -> Generator[_Call, None, None]:
        peer = self.peer(rank, node.chunk, kind, "RECV")
        if peer is None:
            return
        if ("RECV", kind, node.chunk) not in rank.shaped:
            for content in ("size", "shape"):
                yield from self.ended(self.post(peer, rank.rank, 1, _Call(content)))
        rank.shaped.add(("RECV", kind, node.chunk))
        call = self.post(peer, rank.rank, 1, _Call("tensor"))
        rank.arriving.setdefault((kind, node.chunk), deque()).append(call)
        if not self.overlap:
            yield from self.ended(call)

    def post(self, source: int, target: int, end: int, call: _Call) -> _Call:
        """Post a send (end 0) or a receive (end 1); the k-th of each are one message."""
        ends = self.posted.setdefault((source, target), ([], []))
        ends[end].append(call)
        number = len(ends[end]) - 1
        if number < len(ends[1 - end]):
            sent, taken = ends[0][number], ends[1][number]
            sent.done = taken.done = True
            taken.value = sent.value
            if sent.content != taken.content:
                self.mixed(sent, taken)
        return call

    @staticmethod
    def mixed(sent: _Call, taken: _Call) -> None:
        """One thing is received as another: too long for its place it ends the process, too short it does not."""
        order: tuple[Content, ...] = ("size", "shape", "tensor")
        if order.index(sent.content) > order.index(taken.content):
            taken.broken = f"a {sent.content} arrives where a {taken.content} has been awaited"
        elif taken.content == "shape":
            taken.broken = "what arrives is not the text of a shape"
        else:
            taken.value = ("part of a tensor",)

    def ended(self, call: _Call) -> Generator[_Call, None, None]:
        if not call.done:
            yield call
        if call.broken:
            raise _Raised(call.broken)

    def taken(self, rank: _Rank, node: Node, kind: str) -> Generator[_Call, None, Symbol]:
        """What an op takes from the stage before or after it."""
        if self.peer(rank, node.chunk, kind, "RECV") is None:
            if not rank.local[kind]:
                raise _Raised(f"{node}: the other chunk has left nothing for it")
            return rank.local[kind].popleft()
        queue = rank.arriving.get((kind, node.chunk))
        if not queue:
            raise _Raised(f"{node}: nothing has been received for it")
        call = queue.popleft()
        yield from self.ended(call)
        return call.value

    def given(self, rank: _Rank, node: Node, kind: str, value: Symbol) -> None:
        """Where a result goes."""
        if self.peer(rank, node.chunk, kind, "SEND") is None:
            rank.local[kind].append(value)
        else:
            rank.leaving.setdefault((kind, node.chunk), deque()).append(value)

    def forward(self, rank: _Rank, node: Node) -> Generator[_Call, None, None]:
        item, chunk = rank.begun[node.chunk], node.chunk
        rank.begun[chunk] += 1
        if item > self.m:
            raise _Raised(f"{node}: there are {self.m} microbatches")
        stage = self.nodes.stages_of(rank.rank)[chunk]
        ends = rank.rank == 0
        before: Symbol = ("F", -1, item)
        if not (ends and chunk == 0):
            before = yield from self.taken(rank, node, "FORWARD")
        if ends and chunk == 1 and item == self.m:
            raise _Raised(f"{node}: there are no labels for it")
        right = before[:2] == ("F", stage - 1) and not (stage == 0 and item == self.m)
        value: Symbol = ("F", stage, before[2]) if right else ("F of", stage, before)
        rank.inputs[chunk].append(before)
        rank.outputs[chunk].append((value, item))
        if ends and chunk == 1:
            rank.losses.append((value, item))
        else:
            self.given(rank, node, "FORWARD", value)

    def backward(self, rank: _Rank, node: Node) -> Generator[_Call, None, None]:
        chunk, loss = node.chunk, rank.rank == 0 and node.chunk == 1
        came: Symbol = ()
        stage = self.nodes.stages_of(rank.rank)[chunk]
        if not loss:
            came = yield from self.taken(rank, node, "BACKWARD")
        if not rank.inputs[chunk]:
            raise _Raised(f"{node}: no forward has left anything for it")
        rank.inputs[chunk].popleft()
        value, item = rank.outputs[chunk].popleft()
        right = value[0] == "F" and (value[2] == item if loss else came == ("G", stage + 1, value[2]))
        made: Symbol = ("G", stage, value[2]) if right else ("G of", value, came, item)
        rank.put_off[chunk].append(made)
        rank.biases[chunk].append(made)
        if stage > 0:
            self.given(rank, node, "BACKWARD", made)

    def prediction(self) -> Prediction:
        """The outcome of the run."""
        if self.crash is not None:
            rank, position, why = self.crash
            inside = position < len(self.ranks[rank].row)
            return Prediction("crash", why, rank, position if inside else None)
        if self.stuck:
            return self.hung()
        for one in self.ranks:
            for chunk, stage in enumerate(self.nodes.stages_of(one.rank)):
                want = {("G", stage, item) for item in range(self.m)}
                for found in (one.weights[chunk], one.biases[chunk]):
                    if len(found) != self.m or set(found) != want:
                        return Prediction("wrong", f"the gradients of stage {stage} are wrong", one.rank)
        want_losses = [(("F", len(self.nodes.rank_of_stage) - 1, item), item) for item in range(self.m)]
        if self.ranks[0].losses != want_losses:
            return Prediction("wrong", "the loss is not that of each microbatch once", 0)
        return Prediction("ok")

    def hung(self) -> Prediction:
        """Where each rank that is left waits."""
        told = []
        for rank in self.stuck:
            at = self.ranks[rank].at
            row = self.nodes.rows[rank]
            told.append(f"rank {rank} waits at {row[at] if at < len(row) else 'the end for what it has sent'}")
        first = self.stuck[0]
        inside = self.ranks[first].at < len(self.nodes.rows[first])
        return Prediction("hang", "; ".join(told), first, self.ranks[first].at if inside else None)
