"""Hypothesis strategies: placements, instances, valid schedules of them, and schedules that are nearly valid.

They need the extra ``bubbleproof[testing]``. All instances are small: property tests look for the case, not the size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from bubbleproof.schedules.costs import Channel, Costs, Memory
from bubbleproof.schedules.instance import Instance, Objective
from bubbleproof.schedules.op import Op, Overlap, Slot, members
from bubbleproof.schedules.placement import Placement, bidirectional, custom, linear, loop, vee, wave
from bubbleproof.schedules.schedule import Schedule

__all__ = [
    "costs",
    "instances",
    "instances_with_schedules",
    "memories",
    "near_valid_schedules",
    "placements",
    "schedules",
]

_OBJECTIVES: tuple[Objective, ...] = ("makespan", "span")


@st.composite
def placements(draw: st.DrawFn, max_ranks: int = 3, max_chunks: int = 3, routes: bool = True) -> Placement:
    """Every kind of placement; custom ones have unequal numbers of stages per rank.

    Parameters
    ----------
    routes
        Whether placements with two routes are among them.
    """
    ranks = draw(st.integers(1, max_ranks))
    chunks = draw(st.integers(1, max_chunks))
    kinds = ["linear", "loop", "vee", "wave", "custom", *(["bidirectional", "two"] if routes else [])]
    match draw(st.sampled_from(kinds)):
        case "linear":
            return linear(ranks)
        case "loop":
            return loop(ranks, chunks)
        case "vee":
            return vee(ranks)
        case "wave":
            return wave(ranks, chunks)
        case "bidirectional":
            return bidirectional(ranks)
        case "two":
            one = draw(st.permutations(range(ranks)))
            two = draw(st.lists(st.integers(0, ranks - 1), min_size=ranks, max_size=ranks))
            return custom([one, two], ranks)
        case _:
            extra = draw(st.lists(st.integers(0, ranks - 1), max_size=2))
            return custom(draw(st.permutations([*range(ranks), *extra])), ranks)


@st.composite
def costs(
    draw: st.DrawFn,
    placement: Placement,
    *,
    split: bool | None = None,
    overlap: bool = True,
    max_time: int = 5,
    channels: Sequence[Channel] = ("latency",),
    recompute: bool = False,
) -> Costs:
    """Durations and message times, zeros among them, that differ from stage to stage and edge to edge.

    Parameters
    ----------
    split
        Whether the backward may be split; None: either.
    overlap
        Whether pairs may have durations of their own.
    channels
        What messages may occupy.
    recompute
        Whether ops may be recomputed.
    """
    stages, ranks = placement.stages, placement.ranks
    times = st.lists(st.integers(0, max_time), min_size=stages, max_size=stages)
    split = draw(st.booleans()) if split is None else split
    edges = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
    comm = draw(st.dictionaries(st.sampled_from(edges), st.integers(0, 3))) if edges else {}
    return Costs.make(
        stages,
        F=draw(times),
        B=draw(times),
        W=draw(times) if split else None,
        BW=draw(st.none() | times),
        overlap_B=draw(st.none() | times) if overlap and split else None,
        overlap_BW=draw(st.none() | times) if overlap else None,
        comm=comm,
        channel=draw(st.sampled_from(channels)),
        R=draw(times) if recompute else None,
    )


@st.composite
def memories(draw: st.DrawFn, placement: Placement, recompute: bool = False) -> Memory:
    """Changes of memory that differ from stage to stage, B taking some at times, and static amounts; no caps."""
    stages, ranks = placement.stages, placement.ranks
    taken = draw(st.lists(st.integers(0, 4), min_size=stages, max_size=stages))
    freed = draw(st.lists(st.integers(-4, 2), min_size=stages, max_size=stages))
    static = draw(st.lists(st.integers(0, 3), min_size=ranks, max_size=ranks))
    given = [max(b, -f) for b, f in zip(freed, taken, strict=True)]
    again = [draw(st.integers(0, f)) for f in taken] if recompute else None
    return Memory.make(stages, ranks, F=taken, B=given, static=static, R=again)


@st.composite
def instances(
    draw: st.DrawFn,
    max_ranks: int = 3,
    max_chunks: int = 3,
    max_microbatches: int = 4,
    routes: bool = True,
    overlap: bool = True,
    max_time: int = 5,
    channels: Sequence[Channel] = ("latency",),
    recompute: bool = False,
) -> Instance:
    """Small instances without a cap, with costs of 0, messages, memory whose B may take, and pairs with own costs."""
    placement = draw(placements(max_ranks, max_chunks, routes))
    microbatches = draw(st.integers(1, max_microbatches))
    drawn = draw(costs(placement, overlap=overlap, max_time=max_time, channels=channels, recompute=recompute))
    memory = draw(memories(placement, recompute))
    objective = draw(st.sampled_from(_OBJECTIVES))
    count = len(placement.routes)
    route = draw(st.lists(st.integers(0, count - 1), min_size=microbatches, max_size=microbatches)) if count > 1 else ()
    return Instance(placement, microbatches, drawn, memory, objective, route_of_microbatch=tuple(route))


@st.composite
def schedules(draw: st.DrawFn, instance: Instance, pairs: bool = True, fused: bool = True) -> Schedule:
    """Valid schedules of an instance: its ops in a random topological order, dealt to their ranks. Caps are not kept.

    Parameters
    ----------
    pairs
        Whether neighbours on a rank that can run together may become overlapped pairs.
    fused
        Whether an instance that can split may still fuse some of its backwards.
    """
    cells = [(s, j) for s in range(instance.stages) for j in range(instance.microbatches)]
    split = {cell: instance.costs.split and not (fused and draw(st.integers(0, 3)) == 0) for cell in cells}
    ready = [Op("F", 0, j) for j in range(instance.microbatches)]
    orders: list[list[Slot]] = [[] for _ in range(instance.ranks)]
    while ready:
        op = ready.pop(draw(st.integers(0, len(ready) - 1)))
        orders[instance.rank_of(op.stage, op.microbatch)].append(op)
        ready.extend(_unlocked(op, instance, split))
    if instance.recompute:
        orders = [_recomputed(draw, order) for order in orders]
    if pairs and draw(st.booleans()):
        schedule = Schedule.of([_paired(draw, order) for order in orders])
        if _runs(schedule, instance):
            return schedule
    return Schedule.of(orders)


def _recomputed(draw: st.DrawFn, order: Sequence[Slot]) -> list[Slot]:
    """Some forwards are recomputed, anywhere between the forward and its backward."""
    result = list(order)
    for slot in order:
        if isinstance(slot, Op) and slot.kind == "F" and draw(st.booleans()):
            _, stage, j = slot
            low = result.index(slot) + 1
            high = next(i for i, x in enumerate(result) if x in (Op("B", stage, j), Op("BW", stage, j)))
            result.insert(draw(st.integers(low, high)), Op("R", stage, j))
    return result


def _unlocked(op: Op, instance: Instance, split: dict[tuple[int, int], bool]) -> list[Op]:
    """The ops whose last input was this one; on a chain every op but W has exactly one input that comes last."""
    kind, stage, j = op
    if kind == "F" and stage + 1 < instance.stages:
        return [Op("F", stage + 1, j)]
    if kind == "F":
        return [Op("B" if split[stage, j] else "BW", stage, j)]
    found = []
    if kind == "B":
        found.append(Op("W", stage, j))
    if kind in ("B", "BW") and stage > 0:
        found.append(Op("B" if split[stage - 1, j] else "BW", stage - 1, j))
    return found


def _paired(draw: st.DrawFn, order: Sequence[Slot]) -> list[Slot]:
    """Some neighbouring forwards and backwards of different microbatches become pairs."""
    result: list[Slot] = []
    for op in order:
        previous = result[-1] if result else None
        if (
            isinstance(op, Op)
            and isinstance(previous, Op)
            and previous.microbatch != op.microbatch
            and draw(st.booleans())
        ):
            ops = {"F" if o.kind == "F" else "B" if o.kind in ("B", "BW") else o.kind: o for o in (previous, op)}
            if set(ops) == {"F", "B"}:
                result[-1] = Overlap(ops["F"], ops["B"])
                continue
        result.append(op)
    return result


def _runs(schedule: Schedule, instance: Instance) -> bool:
    """Whether the ranks can run their orders to the end, step by step; pairs can close a cycle."""
    at = [0] * schedule.ranks
    done: set[Op] = set()
    moved = True
    while moved:
        moved = False
        for rank, order in enumerate(schedule.orders):
            while at[rank] < len(order):
                ops = members(order[at[rank]])
                if not all(_inputs(op, instance, done) for op in ops):
                    break
                done.update(ops)
                at[rank] += 1
                moved = True
    return all(position == len(order) for position, order in zip(at, schedule.orders, strict=True))


def _inputs(op: Op, instance: Instance, done: set[Op]) -> bool:
    kind, stage, j = op
    if kind == "F":
        return stage == 0 or Op("F", stage - 1, j) in done
    if kind in ("W", "R"):
        return Op("B" if kind == "W" else "F", stage, j) in done
    if stage == instance.stages - 1:
        return Op("F", stage, j) in done
    return Op("B", stage + 1, j) in done or Op("BW", stage + 1, j) in done


@st.composite
def near_valid_schedules(draw: st.DrawFn, instance: Instance, pairs: bool = True, fused: bool = True) -> Schedule:
    """Schedules one edit away from a valid one, such as people and generators get them wrong.

    An edit drops a slot, runs it twice, moves it to another place or another rank, swaps two neighbours, renames the
    microbatch of an op, or shifts all microbatches of a rank by one. Moves and swaps may leave the schedule valid.
    """
    schedule = draw(schedules(instance, pairs, fused))
    rows = [list(order) for order in schedule.orders]
    rank = draw(st.sampled_from([r for r, row in enumerate(rows) if row]))
    row = rows[rank]
    at = draw(st.integers(0, len(row) - 1))
    match draw(st.sampled_from(["drop", "twice", "move", "swap", "rank", "rename", "shift"])):
        case "drop":
            del row[at]
        case "twice":
            row.insert(draw(st.integers(0, len(row))), row[at])
        case "move":
            slot = row.pop(at)
            row.insert(draw(st.integers(0, len(row))), slot)
        case "swap":
            row[at : at + 2] = reversed(row[at : at + 2])
        case "rank":
            slot = row.pop(at)
            other = rows[draw(st.integers(0, len(rows) - 1))]
            other.insert(draw(st.integers(0, len(other))), slot)
        case "rename":
            by = draw(st.integers(-1, 1))
            row[at] = _shifted(row[at], by)
        case _:
            rows[rank] = [_shifted(slot, 1) for slot in row]
    return Schedule.of(rows)


def _shifted(slot: Slot, by: int) -> Slot:
    """The slot with all its microbatches raised."""
    ops = [op._replace(microbatch=op.microbatch + by) for op in members(slot)]
    return ops[0] if len(ops) == 1 else Overlap(ops[0], ops[1])


def instances_with_schedules(
    pairs: bool = True, fused: bool = True, **options: Any
) -> st.SearchStrategy[tuple[Instance, Schedule]]:
    """An instance and a valid schedule of it; `options` go to `instances`."""
    return instances(**options).flatmap(
        lambda instance: schedules(instance, pairs, fused).map(lambda schedule: (instance, schedule))
    )
