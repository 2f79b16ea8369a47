"""What PyTorch does with a program when it loads it: what it refuses, and the communication that it adds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from bubbleproof.schedules.op import Op, members
from bubbleproof.schedules.program import Action, Collective, Program, Transfer

if TYPE_CHECKING:
    from bubbleproof.schedules.instance import Instance

__all__ = ["Refusal", "load"]


class Refusal(Exception):  # what the runtime raises while loading, not an error of ours
    """PyTorch refuses the program; the text says why."""

    def __init__(self, why: str, rank: int | None = None, position: int | None = None) -> None:
        super().__init__(why)
        self.rank, self.position = rank, position


def load(program: Program, instance: Instance, *, transfers: bool) -> tuple[list[list[Action]], dict[int, int]]:
    """The rows that will be executed, and the rank of each stage as PyTorch reads it off them.

    Raises
    ------
    Refusal
        PyTorch refuses the program.
    """
    rows = [list(row) for row in program.rows]
    home = _validate(rows, instance)
    if transfers:
        return rows, home
    for rank, row in enumerate(rows):
        for position, action in enumerate(row):
            if not members(action):
                raise Refusal(f"{action} in an order without communication", rank, position)
    return _with_transfers([_with_reductions(row, instance.microbatches) for row in rows], home), home


def _validate(rows: Sequence[Sequence[Action]], instance: Instance) -> dict[int, int]:
    """What PyTorch checks of every program: sets of microbatches per stage and kind, and the order inside a rank."""
    if len(rows) != instance.ranks:
        raise Refusal(f"{len(rows)} rows for {instance.ranks} ranks")
    found: dict[tuple[str, int], set[int]] = {}
    home: dict[int, int] = {}
    needs = {"B": "F", "BW": "F", "W": "B"}
    for rank, row in enumerate(rows):
        for position, action in enumerate(row):
            for part in members(action) or (action,):
                stage = part.stage  # type: ignore[union-attr]  # a pair has been taken apart
                if isinstance(part, Op):
                    if stage >= instance.stages:
                        raise Refusal(f"{part}: no stage {stage}", rank, position)
                    earlier = needs.get(part.kind)
                    if earlier and part.microbatch not in found.get((earlier, stage), ()):
                        raise Refusal(f"{part} before {stage}{earlier}{part.microbatch}", rank, position)
                    found.setdefault((part.kind, stage), set()).add(part.microbatch)
                if home.setdefault(stage, rank) != rank:
                    raise Refusal(f"stage {stage} on ranks {home[stage]} and {rank}", rank, position)
    for stage in range(instance.stages):
        count = {kind: len(found.get((kind, stage), ())) for kind in ("F", "B", "W", "BW")}
        if count["F"] != instance.microbatches:
            raise Refusal(f"stage {stage}: {count['F']} forwards for {instance.microbatches} microbatches")
        if count["B"] != count["W"]:
            raise Refusal(f"stage {stage}: {count['B']} input gradients, {count['W']} weight gradients")
        backwards = count["BW"] + count["B"]
        if backwards != instance.microbatches:
            raise Refusal(f"stage {stage}: {backwards} backwards for {instance.microbatches} microbatches")
    return home


def _with_reductions(row: Sequence[Action], microbatches: int) -> list[Action]:
    """The row with a REDUCE_GRAD after the m-th weight gradient of each stage, by count."""
    made: list[Action] = []
    count: dict[int, int] = {}
    for action in row:
        made.append(action)
        for op in members(action):
            if op.kind in ("W", "BW"):
                count[op.stage] = count.get(op.stage, 0) + 1
                if count[op.stage] == microbatches:
                    made.append(Collective("REDUCE_GRAD", op.stage))
    return made


def _with_transfers(rows: list[list[Action]], home: dict[int, int]) -> list[list[Action]]:
    """The rows with sends and receives, put into both rows at the moment when the op that sends is placed.

    Raises
    ------
    Refusal
        No rank can go on.
    """
    made: list[list[Action]] = [[] for _ in rows]
    present: list[set[Action]] = [set() for _ in rows]
    left = [list(reversed(row)) for row in rows]
    for rank, row in enumerate(left):
        if not row:
            raise Refusal(f"rank {rank} has nothing to do", rank)
    while any(left):
        moved = False
        for rank, row in enumerate(left):
            if not row or not all(_ready(op, present[rank], len(home)) for op in members(row[-1])):
                continue
            action = row.pop()
            moved = True
            made[rank].append(action)
            for op in members(action):
                present[rank].add(op)
                for send, receiver in _sends(op, home):
                    made[rank].append(send)
                    present[rank].add(send)
                    made[receiver].append(send.other_end)
                    present[receiver].add(send.other_end)
        if not moved:
            rank = next(rank for rank, row in enumerate(left) if row)
            raise Refusal(f"no rank can go on; rank {rank} stands at {left[rank][-1]}", rank)
    return made


def _ready(op: Op, present: set[Action], stages: int) -> bool:
    """Whether the input of an op is there: received, or made on the same rank."""
    stage, j = op.stage, op.microbatch
    if op.kind == "F" and stage > 0:
        return Transfer("RECV_F", stage, j) in present or Op("F", stage - 1, j) in present
    if op.kind in ("B", "BW") and stage < stages - 1:
        made = (Transfer("RECV_B", stage, j), Op("B", stage + 1, j), Op("BW", stage + 1, j))
        return any(action in present for action in made)
    return True


def _sends(op: Op, home: dict[int, int]) -> Iterator[tuple[Transfer, int]]:
    """The send that follows an op, with the rank that receives."""
    if op.kind == "W":
        return
    to = op.stage + (1 if op.kind == "F" else -1)
    if to in home and home[to] != home[op.stage]:
        yield Transfer("SEND_F" if op.kind == "F" else "SEND_B", op.stage, op.microbatch), home[to]
