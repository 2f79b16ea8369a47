"""Repairing reductions of gradients: one for each stage and rank, after the last op that adds to them."""

from __future__ import annotations

from collections.abc import Sequence

from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import members
from bubbleproof.schedules.program import Collective
from bubbleproof.solver.repair.change import Entry, Place

__all__ = ["repaired_collectives"]


def repaired_collectives(
    rows: Sequence[Sequence[Entry]], instance: Instance, *, needed: bool
) -> tuple[list[list[Entry]], set[Place]]:
    """The rows with their collectives in place, and the origins of those that do not keep theirs.

    Parameters
    ----------
    needed
        Whether every stage needs a REDUCE_GRAD even if there is none in the rows.
    """
    held = instance.placement.stages_of_rank
    strays: dict[int, list[Entry]] = {}
    kept: list[list[Entry]] = []
    for rank, row in enumerate(rows):
        mine = []
        for entry in row:
            action = entry.action
            if isinstance(action, Collective) and action.stage not in held[rank]:
                if action.kind == "REDUCE_GRAD":
                    strays.setdefault(action.stage, []).append(entry)
                continue
            mine.append(entry)
        kept.append(mine)
    needed = needed or bool(strays) or any(_reduces(entry) for row in kept for entry in row)
    moved: set[Place] = set()
    if not needed:
        return kept, moved
    routes = [instance.placement.routes[route] for route in set(instance.route_of_microbatch)]
    for rank, stage in sorted({(rank, stage) for route in routes for stage, rank in enumerate(route)}):
        kept[rank] = _reduced(kept[rank], stage, strays.get(stage, []), moved)
    return kept, moved


def _reduces(entry: Entry, stage: int | None = None) -> bool:
    action = entry.action
    return isinstance(action, Collective) and action.kind == "REDUCE_GRAD" and stage in (None, action.stage)


def _reduced(row: list[Entry], stage: int, strays: list[Entry], moved: set[Place]) -> list[Entry]:
    """A row with one reduction of a stage, which stays where it is if that is late enough."""
    last = max(
        (
            index
            for index, entry in enumerate(row)
            if any(op.stage == stage and op.kind in ("W", "BW") for op in members(entry.action))
        ),
        default=len(row) - 1,
    )
    copies = [index for index, entry in enumerate(row) if _reduces(entry, stage)]
    good = [index for index in copies if index > last]
    if good:
        return [entry for index, entry in enumerate(row) if index not in copies or index == good[0]]
    new = Entry(Collective("REDUCE_GRAD", stage), None)
    entry = row[copies[-1]] if copies else strays.pop() if strays else new
    if entry.origin is not None:
        moved.add(entry.origin)
    built = []
    for index, other in enumerate(row):
        if index not in copies:
            built.append(other)
        if index == last:
            built.append(entry)
    return built
