"""Chrome trace events, which https://ui.perfetto.dev and chrome://tracing open: tracks of ops, arrows, memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

from bubbleproof.schedules.op import Op, Slot, members

if TYPE_CHECKING:
    from bubbleproof.schedules.timeline import Timeline

__all__ = ["write"]

_MICROSECONDS = {"us": 1, "µs": 1, "ms": 1_000, "s": 1_000_000}
"""The format counts in microseconds; other units are shown as if they were."""

# names of the fixed palette of the trace viewers
_COLOURS = {"F": "thread_state_running", "B": "thread_state_iowait", "W": "thread_state_runnable"}


def write(timeline: Timeline) -> str:
    """The trace of a timeline.

    One track per rank, one slice per op (both members of a pair in one slice), an arrow for each message between
    ranks, and a counter of each rank's memory.
    """
    unit = timeline.instance.units.time
    scale = _MICROSECONDS.get(unit, 1)
    events = [*_tracks(timeline), *_slices(timeline, scale), *_arrows(timeline, scale), *_memory(timeline, scale)]
    trace = {
        "displayTimeUnit": "ms",
        "otherData": {
            "instance": timeline.instance.name,
            "schedule": timeline.schedule.name,
            "time unit": unit if unit in _MICROSECONDS else f"1 us in this trace is 1 of the time unit {unit!r}",
            "memory unit": timeline.instance.units.memory,
        },
        "traceEvents": events,
    }
    return json.dumps(trace, ensure_ascii=False, separators=(",", ":"), sort_keys=True) + "\n"


def _tracks(timeline: Timeline) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": timeline.instance.name or "pipeline"}}
    for rank, stages in enumerate(timeline.instance.placement.stages_of_rank):
        held = f"rank {rank} (stage{'s' if len(stages) > 1 else ''} {', '.join(map(str, stages))})"
        yield {"ph": "M", "name": "thread_name", "pid": 0, "tid": rank, "args": {"name": held}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": 0, "tid": rank, "args": {"sort_index": rank}}


def _slots(timeline: Timeline) -> Iterator[tuple[int, Slot, int, int]]:
    for rank, order in enumerate(timeline.schedule.orders):
        for slot, start, end in zip(order, timeline.starts[rank], timeline.ends[rank], strict=True):
            yield rank, slot, start, end


def _slices(timeline: Timeline, scale: int) -> Iterator[dict[str, Any]]:
    for rank, slot, start, end in _slots(timeline):
        ops = members(slot)
        event = {
            "ph": "X",
            "name": str(slot),
            "cat": "+".join(op.kind for op in ops),
            "pid": 0,
            "tid": rank,
            "ts": start * scale,
            "dur": (end - start) * scale,
            "args": {
                "stage": [op.stage for op in ops] if len(ops) > 1 else ops[0].stage,
                "microbatch": [op.microbatch for op in ops] if len(ops) > 1 else ops[0].microbatch,
            },
        }
        if len(ops) == 1 and ops[0].kind in _COLOURS:
            event["cname"] = _COLOURS[ops[0].kind]
        yield event


def _arrows(timeline: Timeline, scale: int) -> Iterator[dict[str, Any]]:
    """An arrow from each producer to its consumer on another rank; it leaves and arrives inside the two slices."""
    when = {op: (rank, start, end) for rank, slot, start, end in _slots(timeline) for op in members(slot)}
    graph = timeline.instance.placement
    number = 0
    for op, (rank, start, end) in when.items():
        if op.kind in ("W", "R"):
            continue
        users = (graph.successors if op.kind == "F" else graph.predecessors)[op.stage]
        for kind, ahead in product(("F",) if op.kind == "F" else ("B", "BW"), users):
            target = when.get(Op(kind, ahead, op.microbatch))  # type: ignore[arg-type]  # a literal of the three
            if target is None or target[0] == rank:
                continue
            number += 1
            common = {"cat": "message", "name": "gradient" if op.kind != "F" else "activation", "id": number, "pid": 0}
            # the last moment inside the producer's slice
            yield {**common, "ph": "s", "tid": rank, "ts": max(start * scale, end * scale - 1)}
            yield {**common, "ph": "f", "bp": "e", "tid": target[0], "ts": target[1] * scale}


def _memory(timeline: Timeline, scale: int) -> Iterator[dict[str, Any]]:
    memory = timeline.instance.memory
    level = list(memory.static)
    for rank, slot, start, end in _slots(timeline):
        for op in members(slot):
            again = op[1:] in timeline.schedule.again
            level[rank] += memory.of(op.kind, op.stage, op.microbatch, again=again)
            at = start if op.kind in ("F", "R") else end
            yield {
                "ph": "C",
                "name": f"memory of rank {rank}",
                "pid": 0,
                "ts": at * scale,
                "args": {"held": level[rank]},
            }
