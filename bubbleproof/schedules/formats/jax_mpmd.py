"""Schedules of the two MPMD runtimes for JAX, as JSON: spectrax's grid of actions and JaxPP's lists of tasks.

Both know FWD, BWD (fused), BWD_I (gradient of the input) and BWD_W (gradient of the weights). spectrax (0.1.3) takes a
grid of time × rank of (phase, microbatch, virtual stage), in which a row means nothing but the order of each rank;
every rank holds equally many stages. JaxPP takes for each rank a list of (stage, microbatch, type); it wants the
microbatches of a stage and type in order, and on stage 0 each BWD_I directly followed by its BWD_W.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import msgspec

from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.op import Kind, Op, Overlap, Slot
from bubbleproof.schedules.schedule import Schedule

if TYPE_CHECKING:
    from bubbleproof.schedules.instance import Instance
    from bubbleproof.schedules.timeline import Timeline

__all__ = ["Cell", "grid_of", "loads_grid", "loads_tasks", "write_grid", "write_tasks"]

Phase: TypeAlias = Literal["FWD", "BWD", "BWD_I", "BWD_W"]

PHASES: dict[str, Phase] = {"F": "FWD", "B": "BWD_I", "W": "BWD_W", "BW": "BWD"}
_KINDS: dict[str, Kind] = {phase: kind for kind, phase in PHASES.items()}  # type: ignore[misc]  # kinds all

_GRID, _TASKS = "spectrax-grid/1", "jaxpp-tasks/1"


class Cell(NamedTuple):
    """What a rank does at one row of the grid."""

    phase: Phase
    microbatch: int
    virtual_stage: int


class _GridDocument(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    format: str
    rank_of_stage: list[int]
    microbatches: int
    rows: list[list[Cell | None]]


class _TasksDocument(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    format: str
    rank_of_stage: list[int]
    microbatches: int
    tasks: list[list[tuple[int, int, Phase]]]


def grid_of(schedule: Schedule, instance: Instance, *, timed: bool = True) -> list[list[Cell | None]]:
    """The grid of a schedule: each op in the first row in which its inputs and its rank are free.

    Parameters
    ----------
    timed
        If not, the k-th op of a rank is in row k. spectrax makes no difference, and this serves wrong schedules too.

    Raises
    ------
    FormatError
        spectrax cannot express it: two routes, ranks with different numbers of stages, or overlapped pairs.
    """
    from bubbleproof.schedules.costs import Costs, Memory
    from bubbleproof.schedules.timeline import replay

    _refuse(schedule, instance, "spectrax")
    placed = instance.placement.stages_of_rank
    if len({len(stages) for stages in placed}) != 1:
        raise FormatError(
            f"spectrax wants equally many stages on every rank; here they are {[len(stages) for stages in placed]}"
        )
    if not timed:
        cells = [[_cell(op, placed[rank]) for op in order] for rank, order in enumerate(schedule.orders)]
        return [list(row) for row in zip_longest(*cells)]
    costs = Costs.make(instance.stages, F=1, B=1, W=1 if instance.costs.split else None, BW=1)
    memory = Memory.make(instance.stages, instance.ranks)
    line = replay(schedule, instance.with_(costs=costs, memory=memory))
    grid: list[list[Cell | None]] = [[None] * schedule.ranks for _ in range(line.last_end)]
    for rank, position, op in schedule.ops():
        grid[line.starts[rank][position]][rank] = _cell(op, placed[rank])
    return grid


def _cell(slot: Slot, placed: Sequence[int]) -> Cell:
    assert isinstance(slot, Op)  # pairs have been refused
    return Cell(PHASES[slot.kind], slot.microbatch, placed.index(slot.stage))


def _refuse(schedule: Schedule, instance: Instance, target: str) -> None:
    instance.placement.need_plain(target)
    if len(instance.placement.routes) > 1:
        raise FormatError(
            f"{target} has one rank for each stage; "
            f"a bidirectional placement has two for each. Nearest: a vee on {instance.ranks} ranks"
        )
    for _, _, slot in schedule.slots():
        if isinstance(slot, Overlap):
            raise FormatError(
                f"{target}'s order has single ops; {slot} is a pair, write {slot.forward} {slot.backward}"
            )
        if slot.kind not in PHASES:
            raise FormatError(f"{slot}: {target} has no such op; it recomputes inside the stage, if at all")


def write_grid(timeline: Timeline) -> str:
    """The order of a timeline as spectrax's grid."""
    schedule, instance = timeline.schedule, timeline.instance
    document = _GridDocument(
        format=_GRID,
        rank_of_stage=list(instance.placement.routes[0]),
        microbatches=instance.microbatches,
        rows=grid_of(schedule, instance),
    )
    return msgspec.json.encode(document, order="sorted").decode() + "\n"


def write_tasks(timeline: Timeline) -> str:
    """The order of a timeline as JaxPP's lists of tasks.

    Raises
    ------
    FormatError
        JaxPP cannot express it: two routes, pairs, microbatches of a stage out of order, or on stage 0 a B that its W
        does not follow at once.
    """
    schedule, instance = timeline.schedule, timeline.instance
    _refuse(schedule, instance, "JaxPP")
    last: dict[tuple[str, int], int] = {}
    tasks: list[list[tuple[int, int, Phase]]] = []
    for order in schedule.orders:
        row = [op for op in order if isinstance(op, Op)]
        for at, op in enumerate(row):
            if op.microbatch < last.get((op.kind, op.stage), -1):
                before = f"{op.stage}{op.kind}{last[op.kind, op.stage]}"
                raise FormatError(f"{op} after {before}: JaxPP wants the microbatches of a stage in order")
            last[op.kind, op.stage] = op.microbatch
            if op.kind == "B" and op.stage == 0 and row[at + 1 : at + 2] != [Op("W", 0, op.microbatch)]:
                raise FormatError(f"{op}: on stage 0 JaxPP wants W right after B; write 0BW{op.microbatch}")
        tasks.append([(op.stage, op.microbatch, PHASES[op.kind]) for op in row])
    document = _TasksDocument(
        format=_TASKS,
        rank_of_stage=list(instance.placement.routes[0]),
        microbatches=instance.microbatches,
        tasks=tasks,
    )
    return msgspec.json.encode(document, order="sorted").decode() + "\n"


def loads_grid(text: str, where: str) -> Schedule:
    """The schedule of a grid of spectrax; `where` begins every error message."""
    document = _decoded(text, where, _GridDocument, _GRID)
    ranks = 1 + max(document.rank_of_stage, default=-1)
    placed: list[list[int]] = [[] for _ in range(ranks)]
    for stage, rank in enumerate(document.rank_of_stage):
        if rank < 0:
            raise FormatError(f"{where}: rank_of_stage[{stage}] = {rank}")
        placed[rank].append(stage)
    orders: list[list[Op]] = [[] for _ in range(ranks)]
    for number, row in enumerate(document.rows):
        if len(row) != ranks:
            raise FormatError(f"{where}: row {number} has {len(row)} cells for {ranks} ranks")
        for rank, cell in enumerate(row):
            if cell is None:
                continue
            if not 0 <= cell.virtual_stage < len(placed[rank]):
                raise FormatError(f"{where}: row {number}, rank {rank}: no virtual stage {cell.virtual_stage}")
            orders[rank].append(_op(cell.phase, placed[rank][cell.virtual_stage], cell.microbatch, where))
    return Schedule.of(orders)


def loads_tasks(text: str, where: str) -> Schedule:
    """The schedule of lists of tasks of JaxPP; `where` begins every error message."""
    document = _decoded(text, where, _TasksDocument, _TASKS)
    return Schedule.of([[_op(phase, stage, j, where) for stage, j, phase in row] for row in document.tasks])


def _op(phase: Phase, stage: int, microbatch: int, where: str) -> Op:
    if stage < 0 or microbatch < 0:
        raise FormatError(f"{where}: {phase} of stage {stage}, microbatch {microbatch}")
    return Op(_KINDS[phase], stage, microbatch)


def _decoded(text: str, where: str, shape: Any, tag: str) -> Any:
    try:
        document = msgspec.json.decode(text, type=shape)
    except (msgspec.DecodeError, RecursionError) as error:
        raise FormatError(f"{where}: {error}") from error
    if document.format != tag:
        raise FormatError(f"{where}: format = {document.format[:40]!r} is not {tag!r}")
    return document
