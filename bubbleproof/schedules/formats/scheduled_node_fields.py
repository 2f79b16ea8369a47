"""The fields of a node in each dialect of the ScheduledNode family.

ColossalAI (0.5.0): type, chunk, stage, minibatch, start_time, completion_time, rollback; ``stage`` is the rank.
sail-sg: type, stage, microbatch, chunk, seq_split_idx, layer_group_idx (the stage of the chain), start_time,
completion_time, and for each op and transfer its peers.
Primus: func_type, mini_batch, chunk, args, meta; the rank is the index of the list, and each transfer says its ranks
and chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.nodes import NODE_OPS, NODE_TRANSFERS, Dialect, Node, NodeLists
from bubbleproof.schedules.placement import loop, vee
from bubbleproof.schedules.program import Transfer

__all__ = ["ENCODERS", "decoded", "dialect_of", "placed"]

Fields = dict[str, Any]

_PRIMUS = {
    **dict(zip(NODE_TRANSFERS, ("SF", "RF", "SB", "RB"), strict=True)),
    **{name: name for name in NODE_OPS},
}
# the values of its enumeration, which a dump may hold instead of the names
_LONG = {"FORWARD": "F", "BACKWARD": "B", "W_GRAD": "W", "BACKWARD_W_GRAD": "BW"}
_FROM_PRIMUS = {**{short: name for name, short in _PRIMUS.items()}, **_LONG, **{name: name for name in NODE_TRANSFERS}}

_PEERS = ("recv_peer_stage", "send_peer_stage", "comm_direction", "comm_peer_stage", "comm_pair_id")

_MICROBATCH = {"colossalai": "minibatch", "sail-sg": "microbatch", "primus": "mini_batch"}


def _colossalai(nodes: NodeLists) -> list[list[Fields]]:
    return [
        [
            {
                "type": node.type,
                "chunk": node.chunk,
                "stage": rank,
                "minibatch": node.microbatch,
                "start_time": node.start,
                "completion_time": node.end,
                "rollback": False,
            }
            for node in row
        ]
        for rank, row in enumerate(nodes.rows)
    ]


def _sail_sg(nodes: NodeLists) -> list[list[Fields]]:
    numbers: dict[tuple[str, int, int], int] = {}
    rows = []
    for rank, row in enumerate(nodes.rows):
        stages = nodes.stages_of(rank)
        made = []
        for node in row:
            stage = stages[node.chunk]
            fields: Fields = {
                "type": node.type,
                "stage": rank,
                "microbatch": node.microbatch,
                "chunk": node.chunk,
                "seq_split_idx": 0,
                "layer_group_idx": stage,
                "start_time": node.start,
                "completion_time": node.end,
                "rollback": False,
                **dict.fromkeys(_PEERS),
            }
            if node.type in NODE_TRANSFERS:
                one = Transfer(NODE_TRANSFERS[node.type], stage, node.microbatch)
                peer = nodes.rank_of_stage[one.peer_stage]
                message = one.direction, stage if one.sends else one.peer_stage, node.microbatch
                source, target = (rank, peer) if one.sends else (peer, rank)
                onward = (source + 1) % nodes.ranks == target  # with two ranks both ways are
                fields["comm_direction"] = "NEXT" if onward == one.sends else "PREV"
                fields["comm_peer_stage"] = peer
                fields["comm_pair_id"] = numbers.setdefault(message, len(numbers))
            elif node.type != "W":
                step = 1 if node.type == "F" else -1
                for name, other in (("recv_peer_stage", stage - step), ("send_peer_stage", stage + step)):
                    if 0 <= other < len(nodes.rank_of_stage) and nodes.rank_of_stage[other] != rank:
                        fields[name] = nodes.rank_of_stage[other]  # None stands for the rank itself, too
            made.append(fields)
        rows.append(made)
    return rows


def _primus(nodes: NodeLists) -> list[list[Fields]]:
    rows = []
    for rank, row in enumerate(nodes.rows):
        stages, made = nodes.stages_of(rank), list[Fields]()
        for node in row:
            arguments: Fields | None = None
            if node.type in NODE_TRANSFERS:
                one = Transfer(NODE_TRANSFERS[node.type], stages[node.chunk], node.microbatch)
                peer = nodes.rank_of_stage[one.peer_stage]
                chunk = nodes.stages_of(peer).index(one.peer_stage)
                ends = (rank, peer) if one.sends else (peer, rank)
                arguments = {"from_pp_rank": ends[0], "to_pp_rank": ends[1]}
                arguments["send_to_chunk" if one.sends else "recv_from_chunk"] = chunk
            made.append(
                {
                    "func_type": _PRIMUS.get(node.type, node.type),
                    "mini_batch": node.microbatch,
                    "chunk": node.chunk,
                    "args": arguments,
                    "meta": None,
                }
            )
        rows.append(made)
    return rows


ENCODERS: dict[Dialect, Callable[[NodeLists], list[list[Fields]]]] = {
    "colossalai": _colossalai,
    "sail-sg": _sail_sg,
    "primus": _primus,
}
"""For each dialect the function from nodes to the fields of each."""


def dialect_of(rows: Sequence[Sequence[Fields]], where: str) -> Dialect:
    """The dialect that the names of the fields tell.

    Raises
    ------
    FormatError
        There is no node, or its fields are none of these.
    """
    first = next((node for row in rows for node in row), {})
    if "func_type" in first:
        return "primus"
    if "minibatch" in first:
        return "colossalai"
    if "microbatch" in first:
        return "sail-sg"
    raise FormatError(f"{where}: a node has one of func_type, minibatch and microbatch; found {list(first)[:6]}")


def placed(dialect: Dialect, rows: Sequence[Sequence[Fields]], where: str) -> tuple[int, ...]:
    """The rank of each stage, for a file that does not say it.

    ColossalAI has a vee. sail-sg's nodes say their stage. In Primus's, the ranks between which chunk 1 sends tell.

    Raises
    ------
    FormatError
        The nodes do not tell.
    """
    p = len(rows)
    chunks = 1 + max((node["chunk"] for row in rows for node in row if isinstance(node.get("chunk"), int)), default=0)
    if not 1 <= chunks <= 64:
        raise FormatError(f"{where}: {chunks} chunks; from 1 to 64")
    if dialect == "colossalai":
        return vee(p).routes[0]
    if chunks == 1:
        return tuple(range(p))
    down = loop(p, chunks).routes[0]
    if chunks > 2:
        return down
    for rank, row in enumerate(rows):
        for node in row:
            arguments = node.get("args") or {}
            stage = node.get("layer_group_idx")
            if node.get("chunk") == 1 and node.get("type") in NODE_OPS and isinstance(stage, int):
                return down if stage == p + rank else vee(p).routes[0]
            if node.get("chunk") == 1 and node.get("func_type") in ("SF", "SEND_FORWARD") and arguments:
                return down if arguments.get("to_pp_rank") == rank + 1 else vee(p).routes[0]
    raise FormatError(f"{where}: the nodes do not tell where the stages are; write it as rank_of_stage")


def decoded(
    dialect: Dialect,
    rows: Sequence[Sequence[Fields]],
    route: tuple[int, ...],
    microbatches: int | None,
    where: str,
    name: str,
) -> NodeLists:
    """Node lists from fields.

    Parameters
    ----------
    microbatches
        What the file says; without it as many as the forwards of the first list need.

    Raises
    ------
    FormatError
        A field is missing or wrong, or the placement does not fit the lists.
    """
    p = len(rows)
    if not rows or not route or sorted(set(route)) != list(range(p)):
        raise FormatError(f"{where}: rank_of_stage = {list(route)[:16]} does not place stages on each of {p} ranks")
    if dialect == "colossalai" and route != vee(p).routes[0]:
        raise FormatError(
            f"{where}: rank_of_stage = {list(route)[:16]}; ColossalAI has the vee {vee(p).routes[0][:16]}"
        )
    if microbatches is not None and microbatches < 1:
        raise FormatError(f"{where}: microbatches = {microbatches}; at least 1")
    made = []
    for rank, row in enumerate(rows):
        chunks = route.count(rank)
        made.append(list(_nodes(dialect, row, chunks, f"{where}: rows[{rank}]", rank)))
    forwards = [node.microbatch for row in made for node in row if node.type == "F"]
    return NodeLists.of(dialect, made, route, microbatches or 1 + max(forwards, default=0), name)


def _nodes(dialect: Dialect, row: Sequence[Fields], chunks: int, where: str, rank: int) -> Iterator[Node]:
    for at, fields in enumerate(row):
        place = f"{where}[{at}]"
        kind = fields.get("func_type" if dialect == "primus" else "type")
        if not isinstance(kind, str):
            raise FormatError(f"{place}: no type of node in {list(fields)[:8]}")
        kind = _FROM_PRIMUS.get(kind, kind) if dialect == "primus" else kind
        if kind not in NODE_OPS and kind not in NODE_TRANSFERS and not kind.endswith("POST_VALIDATION"):
            raise FormatError(f"{place}: type = {kind[:40]!r}; known are {', '.join((*NODE_OPS, *NODE_TRANSFERS))}")
        if dialect != "primus" and fields.get("stage", rank) != rank:
            raise FormatError(f"{place}: stage = {fields['stage']!r}, but it stands in the list of rank {rank}")
        if fields.get("seq_split_idx"):
            raise FormatError(f"{place}: seq_split_idx = {fields['seq_split_idx']!r}; parts of a sequence are not read")
        yield Node(
            kind,
            _whole(fields, "chunk", place, chunks),
            _whole(fields, _MICROBATCH[dialect], place, 10**9),
            *(max(0, int(fields.get(key) or 0)) for key in ("start_time", "completion_time")),
        )


def _whole(fields: Fields, key: str, place: str, limit: int) -> int:
    value = fields.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < limit:
        raise FormatError(f"{place}: {key} = {value!r}; a whole number from 0 to {limit - 1}")
    return value
