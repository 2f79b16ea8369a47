"""Repairing the order of ops: what is missing, twice, or elsewhere, and the fewest slots to move out of cycles.

Slots that keep their place keep their order; the rest are free. An order of all slots that keeps to the dependencies
and to the order of those that stay exists iff the two have no cycle together, so the fewest moves are the fewest
literals of a web.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bubbleproof.schedules.errors import ScheduleError
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import BACKWARDS, KINDS, Op, Overlap, Slot, members
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import replay
from bubbleproof.solver.repair.change import Entry, Place
from bubbleproof.solver.repair.web import Rigid, Web, fewest, others

__all__ = ["Orders", "repaired_orders"]

_CHOICES = 8
"""How many equally small sets of moves are compared by time."""
_SETTLED = 400_000
"""Slots that are timed, over all tries, while free slots look for their best position."""


@dataclass(frozen=True)
class Orders:
    """Orders that run to the end, where each slot comes from, and how many moves that takes.

    Parameters
    ----------
    orders
        For each rank its slots; origins are rank and position in the rows that were given.
    moved
        The origins of the slots that do not keep their place.
    bound
        The least number of moves of any repair.
    """

    orders: tuple[tuple[Entry, ...], ...]
    moved: frozenset[Place]
    bound: int

    @property
    def schedule(self) -> Schedule:
        """The orders as a schedule."""
        return Schedule.of([entry.action for entry in order] for order in self.orders)  # type: ignore[misc]


@dataclass
class _Wanted:
    """The slots of the repaired orders, and where each may stay."""

    slots: list[tuple[Slot, int]] = field(default_factory=list)
    """Slot and rank."""
    stays: list[list[Place]] = field(default_factory=list)
    """For each slot the places on its own rank at which it stands."""
    strays: list[list[Place]] = field(default_factory=list)
    """For each slot its places on other ranks, and inside pairs that were taken apart."""


def repaired_orders(rows: Sequence[Sequence[object]], instance: Instance, *, in_order: bool, seconds: float) -> Orders:
    """Orders of all ops of an instance that run to the end, with the fewest moved slots.

    Parameters
    ----------
    rows
        What was given, transfers and collectives included; only slots are looked at.
    in_order
        Whether the last stage has to run its forwards in microbatch order.
    seconds
        After which the search for the fewest is given up.
    """
    apart: set[Place] = set()
    while True:
        wanted = _wanted(rows, instance, apart)
        web, owner, nodes = _web(wanted, instance, in_order)
        try:
            found = fewest(web, seconds)
            break
        except Rigid as rigid:
            # pairs that need each other: no order has them all, so one is taken apart
            pairs = [
                i for i, node in enumerate(nodes) if node in rigid.nodes and isinstance(wanted.slots[i][0], Overlap)
            ]
            apart.add(wanted.stays[pairs[0]][0])
    # both members of a pair that is taken apart come from one place, which counts once
    strays = len({there[0] for here, there in zip(wanted.stays, wanted.strays, strict=True) if there and not here})
    spare = sum(len(group) - 1 for group in web.only_one)
    choices = [found.moved]
    if found.fewest and found.moved:
        choices += others(web, found, _CHOICES, seconds / 4)
    best = min(
        (_built(wanted, web, owner, nodes, moved, instance, in_order) for moved in choices),
        key=lambda built: _badness(built.schedule, instance, in_order),
    )
    return Orders(best.orders, best.moved, found.bound - spare + strays)


def _wanted(rows: Sequence[Sequence[object]], instance: Instance, apart: set[Place]) -> _Wanted:
    pairs, singles = _standing(rows, instance, apart)
    wanted = _Wanted()
    in_pairs: set[Op] = set()
    for place, pair in pairs:
        wanted.slots.append((pair, place[0]))
        wanted.stays.append([place])
        wanted.strays.append([])
        in_pairs.update(members(pair))
    for op in _due({*singles, *in_pairs}, in_pairs, instance):
        if op in in_pairs:
            continue
        home = instance.rank_of(op.stage, op.microbatch)
        places = singles.get(op, [])
        wanted.slots.append((op, home))
        wanted.stays.append([place for place, whole in places if whole and place[0] == home])
        wanted.strays.append([place for place, whole in places if not whole or place[0] != home])
    return wanted


def _standing(
    rows: Sequence[Sequence[object]], instance: Instance, apart: set[Place]
) -> tuple[list[tuple[Place, Overlap]], dict[Op, list[tuple[Place, bool]]]]:
    """The pairs that can stay pairs, and where each other op stands and whether it stands there alone."""
    pairs: list[tuple[Place, Overlap]] = []
    singles: dict[Op, list[tuple[Place, bool]]] = {}
    paired: set[Op] = set()
    for rank, row in enumerate(rows):
        for position, slot in enumerate(row):
            ops, place = members(slot), (rank, position)
            if isinstance(slot, Overlap) and place not in apart and _sound(slot, rank, instance):
                cells = {(op.kind == "F", op.stage, op.microbatch) for op in ops}
                if not any((op.kind == "F", op.stage, op.microbatch) in cells for op in paired):
                    pairs.append((place, slot))
                    paired.update(ops)
                    continue
            for op in ops:
                if _known(op, instance):
                    singles.setdefault(op, []).append((place, len(ops) == 1))
    return pairs, singles


def _known(op: Op, instance: Instance) -> bool:
    return op.kind in KINDS and 0 <= op.stage < instance.stages and 0 <= op.microbatch < instance.microbatches


def _sound(pair: Overlap, rank: int, instance: Instance) -> bool:
    forward, backward = pair
    return (
        forward.kind == "F"
        and backward.kind in BACKWARDS
        and forward.microbatch != backward.microbatch
        and (backward.kind == "BW" or instance.costs.split)
        and all(_known(op, instance) and instance.rank_of(op.stage, op.microbatch) == rank for op in pair)
    )


def _due(present: set[Op], fixed: set[Op], instance: Instance) -> Iterator[Op]:
    """Every op of the repaired orders: of each backward the form that takes the fewest additions and drops."""
    split = instance.costs.split
    usual = [
        sum(op.kind == "B" and op.stage == stage for op in present)
        > sum(op.kind == "BW" and op.stage == stage for op in present)
        for stage in range(instance.stages)
    ]
    for microbatch in range(instance.microbatches):
        for stage in range(instance.stages):
            yield Op("F", stage, microbatch)
            halves = (Op("B", stage, microbatch), Op("W", stage, microbatch))
            whole = Op("BW", stage, microbatch)
            there = sum(op in present for op in halves)
            apart = (
                halves[0] in fixed
                or (whole not in fixed and there == 2)
                or (whole not in present and (there > 0 or usual[stage]))
            )
            if split and apart:
                yield from halves
            else:
                yield whole


def _web(wanted: _Wanted, instance: Instance, in_order: bool) -> tuple[Web, dict[Place, int], list[int]]:
    """The web; the literal of each place at which a slot may stay; the node of each slot."""
    web = Web()
    nodes = [web.node(instance.duration(slot)) for slot, _ in wanted.slots]
    owner: dict[Place, int] = {}
    node_at: dict[Place, int] = {}
    for node, places in zip(nodes, wanted.stays, strict=True):
        for place in places:
            owner[place] = web.literal()
            node_at[place] = node
        if len(places) > 1:
            web.only_one.append([owner[place] for place in places])
    before: dict[int, int] = {}
    for place in sorted(owner):
        passed = web.node()
        node, literal = node_at[place], owner[place]
        if place[0] in before:
            web.edge(before[place[0]], passed)
            web.edge(before[place[0]], node, literal)
        web.edge(node, passed, literal)
        before[place[0]] = passed
    holder = {op: node for node, (slot, _) in zip(nodes, wanted.slots, strict=True) for op in members(slot)}
    for op, node in holder.items():
        for need in _inputs(op, holder, instance, in_order):
            if holder[need] != node:
                web.edge(holder[need], node)
    return web, owner, nodes


def _inputs(op: Op, holder: dict[Op, int], instance: Instance, in_order: bool) -> Iterator[Op]:
    def backward(stage: int) -> Op:
        half = Op("B", stage, op.microbatch)
        return half if half in holder else Op("BW", stage, op.microbatch)

    last = instance.stages - 1
    if op.kind == "F":
        if op.stage > 0:
            yield Op("F", op.stage - 1, op.microbatch)
        if in_order and op.stage == last:
            home = instance.rank_of(last, op.microbatch)
            before = [j for j in range(op.microbatch) if instance.rank_of(last, j) == home]
            yield from (Op("F", last, j) for j in before[-1:])
    elif op.kind == "W":
        yield Op("B", op.stage, op.microbatch)
    else:
        yield Op("F", op.stage, op.microbatch)
        if op.stage < last:
            yield backward(op.stage + 1)


def _built(
    wanted: _Wanted,
    web: Web,
    owner: dict[Place, int],
    nodes: list[int],
    moved: frozenset[int],
    instance: Instance,
    in_order: bool,
) -> Orders:
    """Orders that keep all but the moved, in which the others stand where they cost least time."""
    origin: list[Place | None] = []
    free: list[bool] = []
    for stays, strays in zip(wanted.stays, wanted.strays, strict=True):
        kept = [place for place in stays if owner[place] not in moved]
        origin.append(next(iter(kept or stays or strays), None))
        free.append(not kept)
    turns, _ = web.order(moved, late=[node for node, loose in zip(nodes, free, strict=True) if loose])
    orders: list[list[int]] = [[] for _ in range(instance.ranks)]
    for index in sorted(range(len(nodes)), key=lambda i: turns[nodes[i]]):
        orders[wanted.slots[index][1]].append(index)
    _settle(orders, [index for index, loose in enumerate(free) if loose], wanted, instance, in_order)
    taken: set[Place] = set()
    entries: list[tuple[Entry, ...]] = []
    for order in orders:
        row = []
        for index in order:
            place = origin[index]
            if place in taken:  # both members of a pair that was taken apart come from one place
                place = None
            if place is not None:
                taken.add(place)
            row.append(Entry(wanted.slots[index][0], place))
        entries.append(tuple(row))
    places = frozenset(place for place, loose in zip(origin, free, strict=True) if loose and place is not None)
    return Orders(tuple(entries), places, 0)


def _schedule(orders: list[list[int]], wanted: _Wanted) -> Schedule:
    return Schedule.of([wanted.slots[index][0] for index in order] for order in orders)


def _settle(orders: list[list[int]], free: list[int], wanted: _Wanted, instance: Instance, in_order: bool) -> None:
    """Put each free slot at the position of its rank at which everything ends first, one after the other."""
    effort = sum(len(orders[wanted.slots[index][1]]) for index in free) * len(wanted.slots)
    if effort > _SETTLED:
        return
    best = _badness(_schedule(orders, wanted), instance, in_order)
    for index in free:
        order = orders[wanted.slots[index][1]]
        chosen = here = order.index(index)
        order.pop(here)
        for position in range(len(order) + 1):
            if position == here:
                continue
            order.insert(position, index)
            badness = _badness(_schedule(orders, wanted), instance, in_order)
            order.pop(position)
            if badness < best:
                best, chosen = badness, position
        order.insert(chosen, index)


def _badness(schedule: Schedule, instance: Instance, in_order: bool) -> tuple[int, int, int]:
    """What is to be small: memory over the caps, then the makespan, then the highest peak. Worst of all: a deadlock."""
    if in_order:
        last: dict[int, int] = {}
        for rank, _, op in schedule.ops():
            if op.kind == "F" and op.stage == instance.stages - 1:
                if op.microbatch < last.get(rank, 0):
                    return (1 << 62, 0, 0)
                last[rank] = op.microbatch
    try:
        line = replay(schedule, instance)
    except ScheduleError:
        return (1 << 62, 0, 0)
    peaks = [peak.memory for peak in line.peaks]
    caps = instance.memory.cap
    over = 0 if caps is None else sum(max(0, peak - cap) for peak, cap in zip(peaks, caps, strict=True))
    return over, line.makespan, max(peaks)
