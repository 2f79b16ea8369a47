"""The ScheduledNode family: lists of nodes for ColossalAI, sail-sg's zero-bubble and Primus, as JSON.

A file is ``{"format": "scheduled-nodes/1", "dialect": "colossalai", "rank_of_stage": […], "microbatches": m, "rows":
[[{…}, …], …]}``; the nodes have the names of the fields of the dialect's own class (`scheduled_node_fields`). Read is
also a bare list of lists of such nodes, as ``dataclasses.asdict`` makes them of a runtime's own schedule.

Messages stand where the one linear extension of `lower` puts them, so that they are safe where a transfer blocks both
of its ranks. All but Primus take tensors from queues, one for each chunk and kind, and look at no microbatch: what is
written for them therefore has the microbatches of each stage and kind in one order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.formats.scheduled_node_fields import ENCODERS, decoded, dialect_of, placed
from bubbleproof.schedules.nodes import DIALECTS, NODE_OPS, NODE_TRANSFERS, Dialect, Node, NodeLists
from bubbleproof.schedules.op import Op, Overlap
from bubbleproof.schedules.placement import linear, loop, vee
from bubbleproof.schedules.program import Program, Transfer
from bubbleproof.schedules.schedule import Schedule

if TYPE_CHECKING:
    from bubbleproof.schedules.instance import Instance
    from bubbleproof.schedules.timeline import Timeline

__all__ = [
    *("FORMAT", "MAX_BYTES", "dumps", "in_turn", "loads", "loads_nodes", "nodes_of", "refuse"),
    *("write_colossalai", "write_primus", "write_sail_sg"),
]

FORMAT = "scheduled-nodes/1"
MAX_BYTES = 64 << 20

_OF_TRANSFER = {kind: name for name, kind in NODE_TRANSFERS.items()}


class _Document(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    format: str
    dialect: str
    rank_of_stage: list[int]
    microbatches: int
    rows: list[list[dict[str, Any]]]
    name: str = ""


def refuse(schedule: Schedule, instance: Instance, dialect: Dialect) -> None:
    """Refuse what a runtime of the family cannot express.

    Raises
    ------
    FormatError
        The placement, pairs, recomputes, or microbatches out of turn; the message says the rule and what comes nearest.
    InstanceError
        The stages are no chain.
    """
    placement, p = instance.placement, instance.ranks
    placement.need_plain(dialect)
    routes = placement.routes
    if dialect == "colossalai":
        if routes != vee(p).routes:
            raise FormatError(
                f"ColossalAI's runtime for nodes holds stages r and 2p − 1 − r on rank r (a vee); this is "
                f"{placement.kind} with {placement.stages} stages on {p} ranks. The nearest that it runs has the vee: "
                f"solve with the placement vee on {p} ranks"
            )
    elif routes not in (linear(p).routes, vee(p).routes, loop(p, max(1, placement.stages // p)).routes):
        raise FormatError(
            f"{dialect} has linear, loop and vee placements; {placement.kind} of this instance is none. "
            f"Nearest: a loop or a vee on {p} ranks"
        )
    for _, _, slot in schedule.slots():
        if isinstance(slot, Overlap):
            raise FormatError(f"{slot}: no node is a pair; the nearest is {slot.forward} {slot.backward}")
        if slot.kind not in NODE_OPS:
            raise FormatError(f"{slot}: nodes do not recompute; the model does, inside its backward. Leave it out")
    if dialect != "primus" and (found := _out_of_turn(schedule)) is not None:
        stage, kind, order = found
        raise FormatError(
            f"{dialect} takes tensors from queues and reads no microbatch: stage {stage} would run {kind} of "
            f"microbatches {', '.join(map(str, order[:8]))} in the order of its forwards. The nearest that it runs is "
            f"the same order with microbatches in turn (in_turn), which takes no longer if they are all alike"
        )


def _out_of_turn(schedule: Schedule) -> tuple[int, str, list[int]] | None:
    """A stage and kind whose microbatches are in another order than the forwards of the first stage."""
    orders: dict[tuple[int, str], list[int]] = {}
    for _, _, op in schedule.ops():
        for kind in ("B", "W") if op.kind == "BW" else (op.kind,):
            orders.setdefault((op.stage, kind), []).append(op.microbatch)
    first = orders.get((0, "F"), [])
    for (stage, kind), order in sorted(orders.items()):
        if order != first:
            return stage, kind, order
    return None


def in_turn(schedule: Schedule) -> Schedule:
    """The schedule whose k-th op of each stage and kind is of microbatch k: what queues make of it.

    It has the same shape, and for identical microbatches starts nothing later (docs/semantics.md, section 5).
    """
    turn: dict[tuple[int, str], int] = {}

    def renamed(op: Op) -> Op:
        # a fused backward counts as both, so that a stage may mix it with split ones
        kinds = ("B", "W") if op.kind == "BW" else (op.kind,)
        number = turn.get((op.stage, kinds[0]), 0)
        for kind in kinds:
            turn[op.stage, kind] = turn.get((op.stage, kind), 0) + 1
        return Op(op.kind, op.stage, number)

    return Schedule.of(
        (
            [
                Overlap(renamed(slot.forward), renamed(slot.backward)) if isinstance(slot, Overlap) else renamed(slot)
                for slot in order
            ]
            for order in schedule.orders
        ),
        schedule.name,
    )


def nodes_of(program: Program, instance: Instance, dialect: Dialect, timeline: Timeline | None = None) -> NodeLists:
    """The nodes of a program.

    ColossalAI has no fused backward: it gets a B and, right after it, a W. Primus wants a send and a receive also where
    a rank hands a tensor to itself.

    Parameters
    ----------
    timeline
        Where the times of the nodes come from; a transfer has the time at which its tensor is made.

    Raises
    ------
    FormatError
        The runtime cannot express it; see `refuse`.
    """
    refuse(program.schedule, instance, dialect)
    route, made = instance.placement.routes[0], instance.placement.stages_of_rank
    times: dict[Op, tuple[int, int]] = {}
    if timeline is not None:
        for rank, position, op in timeline.schedule.ops():
            times[op] = timeline.starts[rank][position], timeline.ends[rank][position]
    ends: dict[tuple[str, int, int], int] = {}
    for op, (_, end) in times.items():
        ends["F" if op.kind == "F" else "" if op.kind == "W" else "B", op.stage, op.microbatch] = end
    rows = []
    for rank, row in enumerate(program.rows):
        nodes: list[Node] = []
        for action in row:
            if isinstance(action, Op):
                nodes += _computed(action, made[rank].index(action.stage), times.get(action, (0, 0)), dialect, instance)
                if dialect == "primus":
                    nodes += _handed(action, route, made[rank], times.get(action, (0, 0))[1])
            elif isinstance(action, Transfer):
                stage = action.stage if action.sends else action.peer_stage
                at = ends.get((action.direction, stage, action.microbatch), 0)
                chunk = made[rank].index(action.stage)
                nodes.append(Node(_OF_TRANSFER[action.kind], chunk, action.microbatch, at, at))
        rows.append(nodes)
    return NodeLists.of(dialect, rows, route, instance.microbatches, program.name)


def _computed(op: Op, chunk: int, time: tuple[int, int], dialect: Dialect, instance: Instance) -> Iterator[Node]:
    if op.kind == "BW" and dialect == "colossalai":
        yield Node("B", chunk, op.microbatch, *time)
        yield Node("W", chunk, op.microbatch, time[1], time[1])
    else:
        yield Node(op.kind, chunk, op.microbatch, *time)


def _handed(op: Op, route: tuple[int, ...], mine: tuple[int, ...], at: int) -> Iterator[Node]:
    """The two nodes of a tensor that stays on its rank."""
    step = {"F": 1, "B": -1, "BW": -1}.get(op.kind, 0)
    other = op.stage + step
    if step and 0 <= other < len(route) and route[other] == route[op.stage]:
        what = "FORWARD" if step == 1 else "BACKWARD"
        yield Node(f"SEND_{what}", mine.index(op.stage), op.microbatch, at, at)
        yield Node(f"RECV_{what}", mine.index(other), op.microbatch, at, at)


def dumps(nodes: NodeLists) -> str:
    """Nodes as canonical JSON text; `loads_nodes` gives equal ones back, but for times that the dialect lacks."""
    document = _Document(
        format=FORMAT,
        dialect=nodes.dialect,
        rank_of_stage=list(nodes.rank_of_stage),
        microbatches=nodes.microbatches,
        rows=ENCODERS[nodes.dialect](nodes),
        name=nodes.name,
    )
    return msgspec.json.encode(document, order="sorted").decode() + "\n"


def loads_nodes(text: str, where: str = "nodes") -> NodeLists:
    """Read nodes of any dialect.

    Raises
    ------
    FormatError
        One line that names the file, the place and the value.
    """
    try:
        if text.lstrip().startswith("["):
            bare = msgspec.json.decode(text, type=list[list[dict[str, Any]]])
            dialect = dialect_of(bare, where)
            return decoded(dialect, bare, placed(dialect, bare, where), None, where, "")
        document = msgspec.json.decode(text, type=_Document)
    except (msgspec.DecodeError, RecursionError) as error:
        raise FormatError(f"{where}: {error}") from error
    if document.format != FORMAT:
        raise FormatError(f"{where}: format = {document.format[:40]!r} is not {FORMAT!r}")
    for known in DIALECTS:
        if document.dialect == known:
            route = tuple(document.rank_of_stage)
            return decoded(known, document.rows, route, document.microbatches, where, document.name)
    raise FormatError(f"{where}: dialect = {document.dialect[:40]!r}; there are {', '.join(DIALECTS)}")


def loads(text: str, where: str) -> Schedule:
    """The schedule of a file, without its messages."""
    return loads_nodes(text, where).program().schedule


def _write(timeline: Timeline, dialect: Dialect) -> str:
    from bubbleproof.schedules.lower import lower

    refuse(timeline.schedule, timeline.instance, dialect)
    program = lower(timeline.schedule, timeline.instance, reduce=False, blocking=True)
    return dumps(nodes_of(program, timeline.instance, dialect, timeline))


def write_colossalai(timeline: Timeline) -> str:
    """The order of a timeline as nodes for ColossalAI."""
    return _write(timeline, "colossalai")


def write_sail_sg(timeline: Timeline) -> str:
    """The order of a timeline as nodes for sail-sg's zero-bubble."""
    return _write(timeline, "sail-sg")


def write_primus(timeline: Timeline) -> str:
    """The order of a timeline as nodes for Primus."""
    return _write(timeline, "primus")
