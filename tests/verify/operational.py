"""Programs as machines: every interleaving of their steps is explored, state by state.

This is the operational model that the tests hold against the judge; it is written from docs/semantics.md and shares
nothing with the judge. A rank has queues. Each action of its row stands in one queue, a queue does its actions one at
a time in order, and an action also waits until other queues of its rank have done so many of theirs. A channel model
is nothing but a choice of queues and waits. Messages have no names: a lane hands its sends to its receives in order.

What becomes of an execution: ``ok``; ``hang``, nothing can move and something is left; ``wrong``, an op has used
another tensor than its input, or a message left before it was made; ``crash``, an op began without its input.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Op, members
from bubbleproof.schedules.program import Action, Program, Transfer

CALLS = {  # the order in which Megatron calls: even ranks send first
    0: ("SEND_F", "RECV_F", "SEND_B", "RECV_B"),
    1: ("RECV_F", "SEND_F", "RECV_B", "SEND_B"),
}


@dataclass
class Step:
    """An action of a row, its queue, and what it waits for: so many actions of other queues."""

    rank: int
    position: int
    action: Action
    queue: int = -1
    turn: int = -1
    waits: list[tuple[int, int]] = field(default_factory=list)
    lane: Hashable = None


class Machine:
    """A program under a channel model."""

    def __init__(self, program: Program, instance: Instance, channel: str) -> None:
        self.instance, self.channel = instance, channel
        self.queues: list[list[Step]] = []
        self.by_key: dict[Hashable, int] = {}
        self.rows: list[list[Step]] = []
        for rank, row in enumerate(program.rows):
            steps = [Step(rank, position, action) for position, action in enumerate(row)]
            self.rows.append(steps)
            if channel in ("rendezvous-rank", "even-odd"):
                for step in self._called(rank, steps):
                    self._put(step, (rank,))
            elif channel == "batched":
                self._grouped(rank, steps)
            else:
                self._queued(rank, steps)
        for step in (step for row in self.rows for step in row if isinstance(step.action, Transfer)):
            step.lane = self._lane(step)
        self.present = {op for row in self.rows for step in row for op in members(step.action)}
        self.labels = self._needs()
        self.stops: set[tuple[int | None, ...]] = set()
        """Where the ranks stand, over all executions that reach an end, once `explore` has run."""

    # --- which queue each action stands in -------------------------------------------------------------------------

    def _put(self, step: Step, key: Hashable) -> None:
        step.queue = self.by_key.setdefault(key, len(self.queues))
        if step.queue == len(self.queues):
            self.queues.append([])
        step.turn = len(self.queues[step.queue])
        self.queues[step.queue].append(step)

    def _done_so_far(self, key: Hashable) -> tuple[int, int] | None:
        """What an action waits for that waits for all that stand in a queue up to now."""
        queue = self.by_key.get(key)
        return None if queue is None else (queue, len(self.queues[queue]))

    def _called(self, rank: int, steps: list[Step]) -> list[Step]:
        """The order in which a rank calls its actions one after the other."""
        if self.channel == "rendezvous-rank":
            return steps
        called: list[Step] = []
        group: list[Step] = []
        for step in [*steps, None]:
            if step is not None and isinstance(step.action, Transfer):
                group.append(step)
                continue
            for kind in CALLS[rank % 2]:
                called += [member for member in group if member.action.kind == kind]
            group = []
            called += [step] if step is not None else []
        return called

    def _queued(self, rank: int, steps: list[Step]) -> None:
        """Transfers are handed over in passing, once the ops before them are done; ops wait for their receives."""
        for step in steps:
            if isinstance(step.action, Transfer):
                waits = self._done_so_far((rank, "ops"))
                self._put(step, (rank, *self._queue_of(step)))
                step.waits += [waits] if waits else []
            else:
                for receive in self._receives(rank, steps, step):
                    step.waits.append((receive.queue, receive.turn + 1))
                self._put(step, (rank, "ops"))

    def _queue_of(self, step: Step) -> tuple[Hashable, ...]:
        transfer = step.action
        peer = self._peer(transfer)
        if self.channel == "one-queue":  # no model of the judge: docs/semantics.md says that it is as good as one
            return ("all",)
        if self.channel == "rendezvous-pair":
            return ("pair", peer)
        if self.channel == "per-direction":
            return ("direction", transfer.direction)
        return ("edge", peer, transfer.sends)

    def _grouped(self, rank: int, steps: list[Step]) -> None:
        """Transfers that stand together are one group, which begins when the group before it has ended."""
        groups: list[list[Step]] = []
        after_op = True
        for step in steps:
            if isinstance(step.action, Transfer):
                if after_op:
                    groups.append([])
                after_op = False
                number = len(groups)
                waits = self._done_so_far((rank, "ops"))
                step.waits += [waits] if waits else []
                if number > 1:
                    step.waits += self._ends(groups[number - 2])
                self._put(step, (rank, number, self._peer(step.action), step.action.sends))
                groups[-1].append(step)
            else:
                after_op = True
                for receive in self._receives(rank, steps, step):
                    step.waits += self._ends(next(group for group in groups if receive in group))
                self._put(step, (rank, "ops"))

    def _ends(self, group: list[Step]) -> list[tuple[int, int]]:
        return [(queue, len(self.queues[queue])) for queue in {member.queue for member in group}]

    def _receives(self, rank: int, steps: list[Step], step: Step) -> Iterator[Step]:
        """The receives of an op's inputs that stand before it."""
        wanted = {need for op in members(step.action) for need in self._messages(op)}
        yield from (other for other in steps[: step.position] if other.action in wanted)

    # --- what an op needs ------------------------------------------------------------------------------------------

    def _messages(self, op: Op) -> list[Transfer]:
        """The receives of the inputs of an op that other ranks make."""
        kind, stage, j = op
        rank_of, last = self.instance.rank_of, self.instance.stages - 1
        if kind == "F" and stage > 0 and rank_of(stage - 1, j) != rank_of(stage, j):
            return [Transfer("RECV_F", stage, j)]
        if kind in ("B", "BW") and stage < last and rank_of(stage + 1, j) != rank_of(stage, j):
            return [Transfer("RECV_B", stage, j)]
        return []

    def _local(self, op: Op) -> list[tuple[Op, ...]]:
        """The inputs of an op that its own rank makes; of each the ops that may have made it."""
        kind, stage, j = op
        rank_of, last = self.instance.rank_of, self.instance.stages - 1
        if kind == "W":
            return [(Op("B", stage, j),)]
        found: list[tuple[Op, ...]] = [] if kind == "F" else [(Op("F", stage, j),)]
        if kind == "F" and stage > 0 and rank_of(stage - 1, j) == rank_of(stage, j):
            found.append((Op("F", stage - 1, j),))
        if kind != "F" and stage < last and rank_of(stage + 1, j) == rank_of(stage, j):
            found.append((Op("B", stage + 1, j), Op("BW", stage + 1, j)))
        return found

    def _needs(self) -> dict[Transfer, Transfer]:
        """For each receive the send whose tensor it should get."""
        transfers = {step.action for row in self.rows for step in row if isinstance(step.action, Transfer)}
        return {transfer: transfer.other_end for transfer in transfers if not transfer.sends}

    def _makers(self, send: Transfer) -> tuple[Op, ...]:
        kinds = ("F",) if send.direction == "F" else ("B", "BW")
        return tuple(Op(kind, send.stage, send.microbatch) for kind in kinds)

    def _peer(self, transfer: Transfer) -> int:
        return self.instance.rank_of(transfer.peer_stage, transfer.microbatch)

    def _lane(self, step: Step) -> Hashable:
        transfer, peer = step.action, self._peer(step.action)
        ends = (step.rank, peer) if transfer.sends else (peer, step.rank)
        # only these two have a communicator of its own for each direction
        apart = self.channel in ("per-direction", "even-odd")
        return (*ends, transfer.direction) if apart else ends

    # --- execution -------------------------------------------------------------------------------------------------

    def explore(self, limit: int = 1_000_000) -> tuple[frozenset[str], int]:
        """What can become of the program, over all interleavings, and how many states there are.

        A state is how far each queue is, which tensor each receive has got, what is under way in each lane, and
        whether a wrong tensor was used.
        """
        start = (tuple(0 for _ in self.queues), frozenset(), frozenset(), False)
        seen, todo, outcomes = {start}, [start], set()
        self.stops = set()
        while todo:
            state = todo.pop()
            following = list(self._following(state))
            if not following:
                at, _, _, wrong = state
                left = any(done < len(queue) for done, queue in zip(at, self.queues, strict=True))
                outcomes |= ({"hang"} if left else set()) | ({"wrong"} if wrong else set())
                outcomes |= set() if left or wrong else {"ok"}
                self.stops.add(self._stopped(at))
            for after in following:
                if after is None:
                    outcomes.add("crash")
                elif after not in seen:
                    seen.add(after)
                    todo.append(after)
            assert len(seen) <= limit, "too many states"
        return frozenset(outcomes), len(seen)

    def _stopped(self, at) -> tuple[int | None, ...]:
        """For each rank the first action of its row that has not been done."""
        return tuple(next((step.position for step in row if step.turn >= at[step.queue]), None) for row in self.rows)

    def _following(self, state) -> Iterator[tuple | None]:
        """Every state after one step; None where that step crashes."""
        at, _, _, _ = state
        heads = []
        for queue, done in zip(self.queues, at, strict=True):
            if done < len(queue) and all(at[other] >= count for other, count in queue[done].waits):
                heads.append(queue[done])
        for step in heads:
            if not isinstance(step.action, Transfer):
                yield self._computed(state, step)
            elif step.action.sends and self.channel == "eager":
                yield self._sent(state, step)
            elif self.channel == "eager":
                yield from self._received(state, step)
            elif step.action.sends:
                for other in heads:
                    if isinstance(other.action, Transfer) and not other.action.sends and other.lane == step.lane:
                        yield self._met(state, step, other)

    def _moved(self, at, *steps: Step):
        moved = list(at)
        for step in steps:
            moved[step.queue] += 1
        return tuple(moved)

    def _ran(self, at, rank: int) -> set[Op]:
        return {op for step in self.rows[rank] if step.turn < at[step.queue] for op in members(step.action)}

    def _tensor(self, at, step: Step) -> Transfer | None:
        """What a send takes along: its own tensor, or None if that is not there yet."""
        ran = self._ran(at, step.rank)
        return step.action if any(op in ran for op in self._makers(step.action)) else None

    def _computed(self, state, step: Step):
        at, got, wires, wrong = state
        together = members(step.action)
        ran = self._ran(at, step.rank)
        tensors = {self.rows[rank][position].action: sent for (rank, position), sent in got if rank == step.rank}
        for op in together:
            if not all(any(maker in ran for maker in makers) for makers in self._local(op)):
                return None
            for receive in self._messages(op):
                if receive not in tensors:
                    return None
                wrong = wrong or tensors[receive] != self.labels[receive]
        return self._moved(at, step), got, wires, wrong

    def _met(self, state, send: Step, receive: Step):
        at, got, wires, wrong = state
        taken = ((receive.rank, receive.position), self._tensor(at, send))
        return self._moved(at, send, receive), got | {taken}, wires, wrong

    def _sent(self, state, send: Step):
        at, got, wires, wrong = state
        lanes = dict(wires)
        lanes[send.lane] = (*lanes.get(send.lane, ()), self._tensor(at, send))
        return self._moved(at, send), got, frozenset(lanes.items()), wrong

    def _received(self, state, receive: Step):
        at, got, wires, wrong = state
        lanes = dict(wires)
        if lanes.get(receive.lane):
            first, *rest = lanes[receive.lane]
            lanes[receive.lane] = tuple(rest)
            taken = ((receive.rank, receive.position), first)
            yield self._moved(at, receive), got | {taken}, frozenset(lanes.items()), wrong


def outcomes(program: Program, instance: Instance, channel: str) -> frozenset[str]:
    """What can become of a program under a channel model."""
    return Machine(program, instance, channel).explore()[0]
