"""Large programs: matching, order of messages and freedom from deadlock, by arrays.

Source: docs/semantics.md, the sections on programs and on channels. Every function answers whether all is well; if not,
the judge of single actions says what is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.table import CODES, Table
from bubbleproof.verify.bulk_run import Runs, earliest_starts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Index = NDArray[np.signedinteger[Any]]

__all__ = ["CHANNELS", "Messages", "makespan", "match"]

CHANNELS = ("eager", "rendezvous-pair", "rendezvous-rank", "per-direction", "per-edge")
"""The channel models that can be judged by arrays."""

_SEND_F, _RECV_F, _SEND_B, _RECV_B = (CODES[kind] for kind in ("SEND_F", "RECV_F", "SEND_B", "RECV_B"))


class Messages(NamedTuple):
    """The messages of a program, lane by lane and in the order of each lane.

    Parameters
    ----------
    send, receive
        The entries of the two ends.
    consumer
        The entry of the op that needs it.
    lane
        The lane of each, ascending.
    backward
        Whether it is a gradient.
    """

    send: Index
    receive: Index
    consumer: Index
    lane: Index
    backward: NDArray[np.bool_]


def match(table: Table, instance: Instance, units: Index, channel: str) -> Messages | None:
    """The messages of a program in which every edge between two ranks has one send and one receive in its place.

    Each message leaves after the op that makes it and arrives before the op that needs it, and on every lane the k-th
    receive is that of the k-th send.

    Parameters
    ----------
    units
        int64, shape (3, m·S): the entry of F, of the backward and of W for each cell (stage·m + microbatch).

    Returns
    -------
    Messages or None
        None if anything of this is not so.
    """
    m, stages = instance.microbatches, instance.stages
    transfers = np.flatnonzero((table.kind >= _SEND_F) & (table.kind <= _RECV_B))
    kind, stage = table.kind[transfers], table.stage[transfers].astype(np.int64)
    microbatch, rank = table.microbatch[transfers].astype(np.int64), table.rank[transfers]
    lower = np.where((kind == _RECV_F) | (kind == _SEND_B), stage - 1, stage)  # the stage before the edge
    if ((stage < 0) | (stage >= stages) | (lower < 0) | (lower >= stages - 1)).any():
        return None
    if ((microbatch < 0) | (microbatch >= m)).any():
        return None
    homes = np.array(instance.placement.routes, np.int32)
    route = np.array(instance.route_of_microbatch, np.int8)
    if not np.array_equal(homes[route[microbatch], stage], rank):
        return None
    home = homes[route].T.reshape(-1)  # of each cell
    edges = m * (stages - 1)
    crossing = home[:edges] != home[m:]
    backward = (kind == _SEND_B) | (kind == _RECV_B)
    edge = backward * edges + lower * m + microbatch
    ends = np.full((2, 2 * edges), -1, np.int64)
    receives = (kind == _RECV_F) | (kind == _RECV_B)
    ends[receives.astype(np.int8), edge] = transfers
    # no more ends than there are messages, and none missing: each is there once
    if len(transfers) != 4 * int(crossing.sum()) or not ((ends >= 0) == np.tile(crossing, 2)).all():
        return None
    name = edge[~receives]
    send, receive = ends[0, name], ends[1, name]
    cell = name % edges
    gradient = name >= edges
    producer = np.where(gradient, units[1, cell + m], units[0, cell])
    consumer = np.where(gradient, units[1, cell], units[0, cell + m]) if edges else producer
    if (send < producer).any() or (receive > consumer).any():
        return None
    lane = table.rank[send].astype(np.int64) * table.ranks + table.rank[receive]
    if channel == "per-direction":
        lane = 2 * lane + gradient
    by_lane = _stable_order(lane)
    found = Messages(*(column[by_lane] for column in (send, receive, consumer, lane, gradient)))
    if ((found.lane[1:] == found.lane[:-1]) & (found.receive[1:] < found.receive[:-1])).any():
        return None
    return found


def makespan(table: Table, instance: Instance, messages: Messages, duration: Index, channel: str) -> int | None:
    """Last end − first start over the ops of a program whose messages match; None if it does not run to its end.

    Parameters
    ----------
    duration
        int64: how long each slot lasts. A slot is an op, a pair or a collective, in the order of the table.
    """
    transfer = np.zeros(len(table), np.bool_)
    transfer[messages.send] = transfer[messages.receive] = True
    begins = ~(transfer | table.joined)
    slot = (
        np.cumsum(begins, dtype=np.int32) - 1
    )  # of a transfer: the slot before it, which may be one of the rank before, or −1
    first = np.append(slot + 1, 0)[table.offsets - 1]  # the first slot of each rank
    # each slot that waits for no message joins the slot before it to one run; a message is a run of its own
    head = np.zeros(len(duration), np.bool_)
    head[first[:-1][np.diff(first) > 0]] = True
    if channel == "rendezvous-rank":  # calls come one after the other, so a slot waits for any transfer before it
        waiting = np.flatnonzero(begins[1:] & transfer[:-1] & (table.rank[1:] == table.rank[:-1])) + 1
        head[slot[waiting]] = True
    else:
        head[slot[messages.consumer]] = True
    run, heads = np.cumsum(head, dtype=np.int32) - 1, np.flatnonzero(head)
    until = np.cumsum(duration)
    since = (until - duration)[heads]
    total = len(heads) + len(messages.send)
    message = np.arange(len(heads), total, dtype=np.int32)
    node = np.full(len(table), total, np.int32)
    node[messages.send] = node[messages.receive] = message
    travel = _times(table, instance, messages)
    length = np.concatenate((since[1:], until[-1:], travel if channel != "eager" else np.zeros_like(travel)))
    length[: len(heads)] -= since
    sources, delays = np.full((total, 4), total, np.int32), np.zeros((total, 4), np.int64)
    if channel == "rendezvous-rank":
        sources[run[slot[waiting]], 0] = node[waiting - 1]
        delays[run[slot[waiting]], 0] = length[node[waiting - 1]]
    else:
        taker, which = run[slot[messages.consumer]], messages.backward.astype(np.int8)
        sources[taker, which], delays[taker, which] = message, length[message]
    for row, end in enumerate((messages.send, messages.receive)):
        before = slot[end]
        there = np.flatnonzero(before >= first[table.rank[end]])
        before = before[there]
        source = run[before]
        sources[len(heads) + there, row] = source
        delays[len(heads) + there, row] = until[before] - since[source]
    if channel == "eager":  # its message is there once it has travelled
        delays[len(heads) :, 0] += travel
    later, end, earlier = _queues(table, messages, np.flatnonzero(transfer), node, channel)
    sources[later, end + 2], delays[later, end + 2] = earlier, length[earlier]
    lanes = np.flatnonzero(np.diff(messages.lane, prepend=-1)) + len(heads)
    offsets = np.concatenate((np.searchsorted(heads, first[:-1]), lanes, [total]))
    starts = earliest_starts(Runs(sources, delays, length, offsets))
    if starts is None:
        return None
    begin = (until - duration) + (starts[: len(heads)] - since)[run]
    ops = np.flatnonzero(table.kind[begins] < _SEND_F)
    return int((begin + duration)[ops].max() - begin[ops].min())


def _stable_order(keys: Index) -> Index:
    """The order that sorts keys ≥ 0; equal ones stay as they are. Small keys are sorted by their digits."""
    return np.argsort(keys.astype(np.uint16) if keys.max(initial=0) < 1 << 16 else keys, kind="stable")


def _times(table: Table, instance: Instance, messages: Messages) -> Index:
    """How long each message travels."""
    first = np.flatnonzero(np.diff(messages.lane, prepend=-1))
    ends = zip(table.rank[messages.send[first]].tolist(), table.rank[messages.receive[first]].tolist(), strict=True)
    each = np.array([instance.costs.message(source, target) for source, target in ends], np.int64)
    return np.repeat(each, np.diff(first, append=len(messages.lane)))


def _queues(
    table: Table, messages: Messages, transfers: Index, node: Index, channel: str
) -> tuple[Index, Index, Index]:
    """What stands before what in the queues: a message, at which end of it (0 or 1), and the message before.

    Parameters
    ----------
    transfers
        Their entries, ascending.
    node
        For each entry of a transfer the number of its message, with the messages numbered in their order.
    """
    kind, rank, message = table.kind[transfers], table.rank[transfers].astype(np.int64), node[transfers]
    receives = ((kind == _RECV_F) | (kind == _RECV_B)).astype(np.int64)
    queue = rank
    if channel == "per-direction":
        queue = 2 * rank + ((kind == _SEND_B) | (kind == _RECV_B))
    elif channel != "rendezvous-rank":
        both = table.rank[messages.send] + table.rank[messages.receive]
        queue = rank * table.ranks + (both[message - node[messages.send[0]]] - rank if len(message) else rank)
        if channel != "rendezvous-pair":
            queue = 2 * queue + receives
    by_queue = _stable_order(queue)
    queue, message, receives = queue[by_queue], message[by_queue], receives[by_queue]
    follows = queue[1:] == queue[:-1]
    if channel == "eager":  # a send waits for no other
        follows &= receives[1:] == 1
    return message[1:][follows], receives[1:][follows], message[:-1][follows]
