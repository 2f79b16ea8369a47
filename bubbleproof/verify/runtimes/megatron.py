"""Consumer model of the function that `bubbleproof.runtimes.megatron` puts in place of Megatron-core's own.

Written from docs/semantics.md, section "Megatron-core", and from runs on megatron-core 0.16.1. Every rank makes one
call after the other. A send ends with its receive, and all tensors have one shape; messages between two ranks carry no
names, so a receive takes whatever the other rank sends next. Inputs, outputs and gradients are kept by stage and
microbatch; what an op or a send needs and does not find raises, and so does a received tensor that nobody uses. Data
and labels are looked up by the number of the microbatch.

Tensors are symbols, as in the model of PyTorch's runtime: ``("F", s, x)`` is the right output of stage s for the data
of microbatch x, ``("G", s, x)`` the right gradient of its input, anything else equals neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from bubbleproof.schedules.op import BACKWARDS, Op, members
from bubbleproof.schedules.program import Action, Collective, Program, Transfer
from bubbleproof.verify.runtimes.prediction import Outcome, Prediction

if TYPE_CHECKING:
    from bubbleproof.schedules.instance import Instance

__all__ = ["predict", "refusal"]

Symbol: TypeAlias = tuple[object, ...]
Place: TypeAlias = tuple[int, int]
"""Stage and microbatch."""


class Raised(Exception):  # what the function raises, not an error of ours
    """The function raises here; the text says why."""


def refusal(program: Program, instance: Instance) -> tuple[str, int | None, int | None] | None:
    """Why the function refuses a program before it runs anything, with rank and position; None if it takes it.

    It takes any placement with one route in which every (stage, microbatch) has one F and one BW, or one F, one B and
    one W, on the rank of the stage, and in which every transfer is between stages of two ranks.
    """
    placement = instance.placement
    if len(placement.routes) > 1:
        return "a bidirectional placement: a stage on two ranks", None, None
    if len(program.rows) != instance.ranks:
        return f"{len(program.rows)} rows for {instance.ranks} ranks", None, None
    route, last = placement.routes[0], instance.stages - 1
    seen: Counter[Op] = Counter()
    for rank, row in enumerate(program.rows):
        for position, action in enumerate(row):
            if isinstance(action, Collective):
                continue
            for part in members(action) or (action,):
                assert isinstance(part, Op | Transfer)
                if not (0 <= part.stage <= last and 0 <= part.microbatch < instance.microbatches):
                    return f"{part} is not of this instance", rank, position
                if route[part.stage] != rank:
                    return f"{part}: stage {part.stage} is not on rank {rank}", rank, position
                if isinstance(part, Transfer):
                    if not 0 <= part.peer_stage <= last or route[part.peer_stage] == rank:
                        return f"{part} goes to no other rank", rank, position
                elif part.kind == "R":
                    return f"{part}: recomputing is Megatron's own affair, set by its configuration", rank, position
                else:
                    seen[part] += 1
    for stage in range(instance.stages):
        for j in range(instance.microbatches):
            found = [kind for kind in ("F", "B", "W", "BW") for _ in range(seen[Op(kind, stage, j)])]
            if found not in (["F", "BW"], ["F", "B", "W"]):
                have = " and ".join(found) or "no op"
                return f"stage {stage} has {have} for microbatch {j}; it wants F and BW, or F, B and W", None, None
    return None


def predict(program: Program, instance: Instance) -> Prediction:
    """What the function does with a program in one training step."""
    found = refusal(program, instance)
    if found is not None:
        return Prediction("refused", *found)
    run = _Run(program, instance)
    run.go()
    return run.prediction()


class _Rank:
    """One process: where it stands in its row, and the tensors that it holds."""

    def __init__(self, rank: int, row: Sequence[Action], stages: Sequence[int]) -> None:
        self.rank = rank
        self.todo = [part for action in row for part in (members(action) or (action,))]
        self.places = [at for at, action in enumerate(row) for _ in (members(action) or (action,))]
        self.at = 0
        self.stages = frozenset(stages)
        self.came: dict[tuple[str, int, int], Symbol] = {}
        self.saved: dict[Place, tuple[int, Symbol]] = {}
        self.to_send: dict[tuple[str, int, int], Symbol] = {}
        self.weights: dict[Place, Symbol] = {}
        self.gradients: list[Symbol] = []
        self.losses: dict[int, bool] = {}


class _Run:
    """All ranks."""

    def __init__(self, program: Program, instance: Instance) -> None:
        self.route, self.last = instance.placement.routes[0], instance.stages - 1
        self.m = instance.microbatches
        held = instance.placement.stages_of_rank
        self.ranks = [_Rank(rank, row, held[rank]) for rank, row in enumerate(program.rows)]
        self.crash: tuple[_Rank, str] | None = None

    def go(self) -> None:
        """Run until no rank moves, or one raises."""
        moved = True
        while moved and self.crash is None:
            moved = False
            for rank in self.ranks:
                try:
                    while rank.at < len(rank.todo) and self.step(rank, rank.todo[rank.at]):
                        rank.at += 1
                        moved = True
                    if rank.at == len(rank.todo) and rank.came:
                        direction, stage, j = next(iter(rank.came))
                        raise Raised(f"{stage}RECV_{direction}{j}: nothing uses what it received")
                except Raised as raised:
                    self.crash = rank, str(raised)
                    return

    def peer(self, transfer: Transfer) -> int:
        """The rank at the other end."""
        return self.route[transfer.peer_stage]

    def step(self, rank: _Rank, action: Action) -> bool:
        """One action; False if it waits."""
        if isinstance(action, Collective):
            return True
        if isinstance(action, Transfer):
            return self.send(rank, action) if action.sends else self.receive(rank, action)
        assert isinstance(action, Op)
        if action.kind == "F":
            self.forward(rank, action)
        elif action.kind in BACKWARDS:
            self.backward(rank, action)
        elif (place := (action.stage, action.microbatch)) in rank.weights:
            rank.gradients.append(rank.weights.pop(place))
        else:
            raise Raised(f"{action}: its B has not run")
        return True

    def receive(self, rank: _Rank, transfer: Transfer) -> bool:
        """Waits; the sender hands its tensor over when both stand at their calls."""
        key = transfer.direction, transfer.stage, transfer.microbatch
        if key in rank.came:
            raise Raised(f"{transfer}: received twice before it is used")
        return False

    def send(self, rank: _Rank, transfer: Transfer) -> bool:
        key = transfer.direction, transfer.stage, transfer.microbatch
        if key not in rank.to_send:
            raise Raised(f"{transfer}: there is nothing to send")
        other = self.ranks[self.peer(transfer)]
        taken = other.todo[other.at] if other.at < len(other.todo) else None
        if not isinstance(taken, Transfer) or taken.sends or self.peer(taken) != rank.rank:
            return False
        taken_as = taken.direction, taken.stage, taken.microbatch
        if taken_as in other.came:  # it raises when its turn comes
            return False
        other.came[taken_as] = rank.to_send.pop(key)
        other.at += 1
        return True

    def input(self, rank: _Rank, key: tuple[str, int, int], op: Op) -> Symbol:
        if key not in rank.came:
            raise Raised(f"{op}: its input is not there")
        return rank.came.pop(key)

    def forward(self, rank: _Rank, op: Op) -> None:
        s, j = op.stage, op.microbatch
        given: Symbol = ("F", -1, j) if s == 0 else self.input(rank, ("F", s, j), op)
        made: Symbol = ("F", s, given[2]) if given[:2] == ("F", s - 1) else ("F of", s, given)
        rank.saved[s, j] = j, made
        if s == self.last:
            rank.losses[j] = made == ("F", s, j)
        elif s + 1 in rank.stages:
            rank.came["F", s + 1, j] = made
        else:
            rank.to_send["F", s, j] = made

    def backward(self, rank: _Rank, op: Op) -> None:
        s, j = op.stage, op.microbatch
        if (s, j) not in rank.saved:
            raise Raised(f"{op}: its F has not run")
        came: Symbol = ("loss", j) if s == self.last else self.input(rank, ("B", s, j), op)
        _, made = rank.saved.pop((s, j))
        right = made[0] == "F" and came == (("loss", made[2]) if s == self.last else ("G", s + 1, made[2]))
        gradient: Symbol = ("G", s, made[2]) if right else ("G of", s, made, came)
        if op.kind == "BW":
            rank.gradients.append(gradient)
        else:
            rank.weights[s, j] = gradient
        if s > 0:
            if s - 1 in rank.stages:
                rank.came["B", s - 1, j] = gradient
            else:
                rank.to_send["B", s, j] = gradient

    def prediction(self) -> Prediction:
        """The outcome of the run."""
        if self.crash is not None:
            rank, why = self.crash
            return self.says("crash", why, rank)
        stuck = [rank for rank in self.ranks if rank.at < len(rank.todo)]
        if stuck:
            return self.says("hang", self.waits(stuck), stuck[0])
        for rank in self.ranks:
            for stage in rank.stages:
                have = [symbol for symbol in rank.gradients if symbol[1] == stage]
                if set(have) != {("G", stage, j) for j in range(self.m)}:
                    return self.says("wrong", f"the gradients of stage {stage} are wrong", rank)
            if not all(rank.losses.values()):
                return self.says("wrong", "losses are those of other microbatches", rank)
        return self.says("ok", "", None)

    def waits(self, stuck: Sequence[_Rank]) -> str:
        """The cycle of waiting ranks, or the rank that waits for one that has ended."""
        rank, seen = stuck[0], list[_Rank]()
        while rank not in seen:
            seen.append(rank)
            if rank.at == len(rank.todo):
                return f"{self.standing(seen[-2])}, and rank {rank.rank} has ended"
            action = rank.todo[rank.at]
            assert isinstance(action, Transfer)  # only transfers wait
            rank = self.ranks[self.peer(action)]
        return ", ".join(map(self.standing, seen[seen.index(rank) :])) + ", in a circle"

    def standing(self, rank: _Rank) -> str:
        action = rank.todo[rank.at]
        assert isinstance(action, Transfer)
        return f"rank {rank.rank} at {action} waits for rank {self.peer(action)}"

    def says(self, outcome: Outcome, why: str, rank: _Rank | None) -> Prediction:
        """A prediction at the place where a rank stands."""
        if rank is None:
            return Prediction(outcome, why)
        position = rank.places[rank.at] if rank.at < len(rank.todo) else None
        return Prediction(outcome, why, rank.rank, position)
