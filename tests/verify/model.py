"""What the tests of the judge hold against it: the semantics once more, as naive as possible.

Nothing here is fast, and nothing is shared with the judge.
"""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction
from itertools import permutations

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Op, members
from bubbleproof.schedules.placement import Placement, linear
from bubbleproof.schedules.schedule import Schedule

ONE = {"F": 1, "B": 1, "W": 1}


def pipeline(ranks=2, m=2, placement: Placement | None = None, memory=None, **costs) -> Instance:
    """An instance with unit costs unless told otherwise."""
    placement = placement or linear(ranks)
    made = Costs.make(placement.stages, **(costs or ONE))
    return Instance(placement, m, made, Memory.make(placement.stages, placement.ranks, **(memory or {})))


def inputs(op: Op, present: Collection[Op], instance: Instance) -> list[Op]:
    """The inputs of an op among those present, straight from the table in docs/semantics.md."""
    kind, stage, j = op

    def backward(of_stage: int) -> Op:
        split = Op("B", of_stage, j)
        return split if split in present else Op("BW", of_stage, j)

    if kind == "F":
        return [Op("F", stage - 1, j)] if stage > 0 else []
    if kind == "W":
        return [Op("B", stage, j)]
    return [Op("F", stage, j), *([backward(stage + 1)] if stage < instance.stages - 1 else [])]


def stops(schedule: Schedule, instance: Instance) -> list[int | None]:
    """Where each rank waits in the end: any rank whose next slot has all inputs runs it, until nothing moves."""
    present = {op for _, _, op in schedule.ops()}
    at = [0] * schedule.ranks
    done: set[Op] = set()
    moved = True
    while moved:
        moved = False
        for rank, order in enumerate(schedule.orders):
            if at[rank] < len(order):
                ops = members(order[at[rank]])
                if all(needed in done for op in ops for needed in inputs(op, present, instance)):
                    done.update(ops)
                    at[rank] += 1
                    moved = True
    return [None if here == len(order) else here for here, order in zip(at, schedule.orders, strict=True)]


def edges(schedule: Schedule, instance: Instance) -> list[tuple[tuple[int, int], tuple[int, int], int]]:
    """Order and data edges between places, with weights."""
    at = {op: (rank, position) for rank, position, op in schedule.ops()}
    found = []
    for rank, order in enumerate(schedule.orders):
        found += [((rank, i), (rank, i + 1), instance.duration(order[i])) for i in range(len(order) - 1)]
    for (rank, position), op in [(place, op) for op, place in at.items()]:
        for needed in inputs(op, at, instance):
            source = at[needed]
            length = instance.duration(schedule.orders[source[0]][source[1]])
            found.append((source, (rank, position), length + instance.costs.message(source[0], rank)))
    return found


def lengths(schedule: Schedule, instance: Instance) -> dict[tuple[int, int], int]:
    """The duration of the slot at each place."""
    return {(r, i): instance.duration(slot) for r, order in enumerate(schedule.orders) for i, slot in enumerate(order)}


def relax(x, weighted):
    """Bellman and Ford: the least x(v) ≥ x(u) + w that is ≥ the x given (None: −∞); None if there is none."""
    x = dict(x)
    for _ in range(len(x) + 1):
        changed = False
        for u, v, w in weighted:
            if x[u] is not None and (x[v] is None or x[u] + w > x[v]):
                x[v] = x[u] + w
                changed = True
        if not changed:
            return x
    return None


def firsts_and_lasts(schedule: Schedule) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """The first and the last place of each rank that runs anything."""
    return [((rank, 0), (rank, len(order) - 1)) for rank, order in enumerate(schedule.orders) if order]


def cycle_mean(schedule: Schedule, instance: Instance) -> Fraction:
    """The largest mean over the simple cycles of the matrix L of theorem 3, by listing the cycles."""
    length, weighted, ends = lengths(schedule, instance), edges(schedule, instance), firsts_and_lasts(schedule)
    table = []
    for first, _ in ends:
        x = relax({place: 0 if place == first else None for place in length}, weighted)
        table.append([None if x[last] is None else x[last] + length[last] for _, last in ends])
    best = None
    for count in range(1, len(ends) + 1):
        for ranks in permutations(range(len(ends)), count):
            steps = [table[a][b] for a, b in zip(ranks, (*ranks[1:], ranks[0]), strict=True)]
            if None not in steps:
                mean = Fraction(sum(steps), count)
                best = mean if best is None else max(best, mean)
    return best


def least_span(schedule: Schedule, instance: Instance, parts: int = 1) -> Fraction:
    """The least span over starts that are multiples of 1/parts, by trying spans: theorem 3 is not used."""
    length, weighted, ends = lengths(schedule, instance), edges(schedule, instance), firsts_and_lasts(schedule)

    def possible(span: int) -> bool:
        back = [(last, first, length[last] * parts - span) for first, last in ends]
        return relax(dict.fromkeys(length, 0), [(u, v, w * parts) for u, v, w in weighted] + back) is not None

    low, high = -1, sum(length.values()) * parts + sum(w for _, _, w in weighted) * parts
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if possible(middle) else (middle, high)
    return Fraction(high, parts)


def repeated(schedule: Schedule, instance: Instance, times: int) -> int:
    """When all ranks have ended the last of so many iterations without a barrier, as soon as possible."""
    length, weighted = lengths(schedule, instance), edges(schedule, instance)
    before: dict[tuple[int, int], list[tuple[tuple[int, int], int]]] = {place: [] for place in length}
    for u, v, w in weighted:
        before[v].append((u, w))
    order: list[tuple[int, int]] = []
    while len(order) < len(length):
        done = set(order)
        order += [v for v in length if v not in done and all(u in done for u, _ in before[v])]
    free = [0] * schedule.ranks
    for _ in range(times):
        x: dict[tuple[int, int], int] = {}
        for v in order:
            begin = free[v[0]] if v[1] == 0 else 0
            x[v] = max([begin, *(x[u] + w for u, w in before[v])])
        for _, last in firsts_and_lasts(schedule):
            free[last[0]] = x[last] + length[last]
    return max(free)


def levels_by_time(schedule: Schedule, instance: Instance, starts) -> list[int]:
    """Peak of each rank from the times of a timeline; at one instant in the order of the rank."""
    peaks = []
    for rank, order in enumerate(schedule.orders):
        changes = []
        for position, slot in enumerate(order):
            for part, op in enumerate(members(slot)):
                start = starts[rank][position]
                time = start if op.kind == "F" else start + instance.duration(slot)
                changes.append((time, position, part, instance.memory.of(op.kind, op.stage)))
        level = peak = instance.memory.static[rank]
        for _, _, _, change in sorted(changes):
            level += change
            peak = max(peak, level)
        peaks.append(peak)
    return peaks


def all_orders(instance: Instance, kinds=("F", "BW")) -> list[list[tuple[Op, ...]]]:
    """For each rank all permutations of its ops."""
    mine: list[list[Op]] = [[] for _ in range(instance.ranks)]
    for j in range(instance.microbatches):
        for stage in range(instance.stages):
            mine[instance.rank_of(stage, j)] += [Op(kind, stage, j) for kind in kinds]
    return [list(permutations(ops)) for ops in mine]
