"""The instance of a schedule that came without one: what can be read off its orders, and what has to be assumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import FormatError, InstanceError
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import MAX_STAGES, Placement, custom, linear, loop, vee, wave
from bubbleproof.schedules.schedule import Schedule

__all__ = ["Inferred", "infer_instance", "named_placement"]


@dataclass(frozen=True)
class Inferred:
    """An instance with a sentence for each thing that was inferred or assumed."""

    instance: Instance
    notes: tuple[str, ...]


def infer_instance(
    schedule: Schedule,
    where: str,
    *,
    ranks: int | None = None,
    stages: int | None = None,
    microbatches: int | None = None,
    rank_of_stage: Sequence[int] | None = None,
    costs: Mapping[str, int] | None = None,
) -> Inferred:
    """Make an instance for a schedule.

    Parameters
    ----------
    where
        Begins every error message, usually the name of the file.
    ranks, stages, microbatches, rank_of_stage
        What the user knows. Left out, they are inferred from the orders.
    costs
        Durations of F, B, W (and BW) for every stage, and comm; left out, each of F, B and W takes 1.

    Raises
    ------
    FormatError
        What was given contradicts the file, or the file does not say where a stage lives.
    """
    notes = []
    if ranks is not None and ranks != schedule.ranks:
        raise FormatError(f"{where}: {schedule.ranks} ranks in the file, but {ranks} given")
    if ranks is None:
        notes.append(f"inferred: {schedule.ranks} ranks, one for each line of the file")
    if rank_of_stage is not None:
        if stages is not None and stages != len(rank_of_stage):
            raise FormatError(f"{where}: the placement given has {len(rank_of_stage)} stages, but {stages} given")
        placement = named_placement(tuple(rank_of_stage), schedule.ranks)
    else:
        route = _route(schedule, where, stages)
        try:
            placement = named_placement(route, schedule.ranks)
        except InstanceError as error:
            raise FormatError(f"{where}: {error}") from error
        shown = ",".join(map(str, route[:16])) + (",…" if len(route) > 16 else "")
        notes.append(f"inferred: {len(route)} stages, {placement.kind} placement {shown}, from where the ops stand")
    if microbatches is None:
        microbatches = 1 + max((op.microbatch for _, _, op in schedule.ops()), default=0)
        notes.append(f"inferred: {microbatches} microbatches, one more than the highest number in the file")
    split = not schedule.kinds.isdisjoint({"B", "W"})
    made, note = _costs(placement.stages, split, costs)
    notes.append(note)
    notes.append(
        "assumed: no memory cap, unless one is given; an activation counts 1 and the last backward op frees it"
    )
    memory = Memory.make(placement.stages, placement.ranks)
    try:
        instance = Instance(placement, microbatches, made, memory, name=schedule.name)
    except InstanceError as error:
        raise FormatError(f"{where}: {error}") from error
    return Inferred(instance, tuple(notes))


def _route(schedule: Schedule, where: str, stages: int | None) -> tuple[int, ...]:
    first: dict[int, tuple[int, object]] = {}
    for rank, _, op in schedule.ops():
        known, other = first.setdefault(op.stage, (rank, op))
        if known != rank:
            raise FormatError(
                f"{where}: stage {op.stage} is on two ranks, {other} on rank {known} and {op} on rank {rank}; "
                "give the placement to see which op is misplaced"
            )
    count = 1 + max(first, default=-1) if stages is None else stages
    if count > MAX_STAGES:
        raise FormatError(f"{where}: {first[count - 1][1] if stages is None else count}: beyond {MAX_STAGES} stages")
    missing = next((stage for stage in range(count) if stage not in first), None)
    if missing is not None or not count:
        raise FormatError(f"{where}: no op of stage {missing or 0}, so its rank is not known; give the placement")
    return tuple(first[stage][0] for stage in range(count))


def named_placement(route: tuple[int, ...], ranks: int) -> Placement:
    """The placement of a route, under its name if it has one."""
    if ranks and len(route) % ranks == 0:
        chunks = len(route) // ranks
        known = [linear(ranks)] if chunks == 1 else [loop(ranks, chunks), wave(ranks, chunks)]
        if chunks == 2:
            known.insert(0, vee(ranks))
        for placement in known:
            if placement.routes[0] == route:
                return placement
    return custom(route, ranks)


def _costs(stages: int, split: bool, given: Mapping[str, int] | None) -> tuple[Costs, str]:
    table = {"F": 1, "B": 1, "W": 1} if given is None else dict(given)
    if split and "W" not in table:
        raise FormatError("the schedule has B and W apart, but the costs given have no W")
    fused = table.get("BW", table.get("B", 0) + table.get("W", 0))
    comm = table.get("comm", 0)
    forward = table.get("F", 1)
    if split:
        made = Costs.make(stages, F=forward, B=table.get("B", 1), W=table["W"], BW=fused, comm=comm)
        text = f"F = {forward}, B = {table.get('B', 1)}, W = {table['W']}, comm = {comm}"
    else:
        made = Costs.make(stages, F=forward, B=fused, comm=comm)
        text = f"F = {forward}, BW = {fused}, comm = {comm}; backwards are not split"
    return made, f"{'assumed' if given is None else 'given'}: costs {text}"
