"""Schedules and programs of any size, made as arrays."""

from __future__ import annotations

import numpy as np

from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.table import CODES, NAMES, Table
from bubbleproof.verify.bulk import earliest


def zb_h1(ranks: int, microbatches: int) -> Table:
    """The order of the family zb-h1: warm-up of 1F1B, and stage s runs each W s microbatches late."""
    kinds, numbers = [], []
    j = np.arange(microbatches)
    for stage in range(ranks):
        warmup = min(ranks - 1 - stage, microbatches)
        forward = np.where(j < warmup, j - warmup, 3 * (j - warmup))
        weight = np.where(j + stage < microbatches, 3 * (j + stage) + 2, 3 * microbatches + j)
        order = np.argsort(np.concatenate((forward, 3 * j + 1, weight)), kind="stable")
        kinds.append(np.repeat(np.array([CODES["F"], CODES["B"], CODES["W"]], np.int8), microbatches)[order])
        numbers.append(np.tile(j, 3)[order])
    count = 3 * microbatches
    return Table(
        np.concatenate(kinds),
        np.repeat(np.arange(ranks, dtype=np.int32), count),
        np.concatenate(numbers).astype(np.int32),
        np.zeros(ranks * count, np.bool_),
        np.arange(ranks + 1, dtype=np.int64) * count,
        "zb-h1",
    )


def lowered(table: Table, instance: Instance) -> Table:
    """The schedule with its messages, each right after the op that makes it, on both of its ranks.

    What stands before what across ranks is taken from the earliest starts, so every op has to take time.
    """
    starts = earliest(table, instance)
    assert starts is not None
    assert not table.joined.any()
    forward, backward = table.kind == CODES["F"], table.kind == CODES["B"]
    forward &= table.stage + 1 < instance.stages
    backward &= table.stage > 0
    home = np.array(instance.placement.routes[0], np.int32)
    parts = [(table.kind, table.stage, table.microbatch, table.rank, 2 * (starts * table.ranks + table.rank))]
    for makes, step, send, receive in ((forward, 1, "SEND_F", "RECV_F"), (backward, -1, "SEND_B", "RECV_B")):
        made = np.flatnonzero(makes)
        made = made[home[table.stage[made] + step] != table.rank[made]]
        stage, number, moment = table.stage[made], table.microbatch[made], parts[0][4][made] + 1
        for name, at in ((send, stage), (receive, stage + np.int32(step))):
            parts.append((np.full(len(made), CODES[name], np.int8), at, number, home[at], moment))
    kind, stage, number, rank, moment = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((moment, rank))
    offsets = np.concatenate(([0], np.cumsum(np.bincount(rank, minlength=table.ranks))))
    return Table(kind[order], stage[order], number[order], np.zeros(len(kind), np.bool_), offsets, table.name)


def torch_text(table: Table) -> str:
    """The rows as PyTorch writes them."""
    words = ["F", "I", "W", "B", *NAMES[4:]]
    lines = []
    for rank in range(table.ranks):
        row = slice(table.offsets[rank], table.offsets[rank + 1])
        cells = zip(table.stage[row].tolist(), table.kind[row].tolist(), table.microbatch[row].tolist(), strict=True)
        lines.append(",".join(f"{stage}{words[kind]}{number}" for stage, kind, number in cells))
    return "\n".join(lines) + "\n"
