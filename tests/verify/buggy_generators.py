"""Generators with bugs that people have made, and right ones beside them."""

from __future__ import annotations

from bubbleproof.schedules.errors import FamilyError
from bubbleproof.schedules.families.zb_v import zb_v
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.lower import lower
from bubbleproof.schedules.op import Op
from bubbleproof.schedules.program import Program, Transfer
from bubbleproof.schedules.schedule import Schedule


def _interleaved(instance: Instance, warmup) -> Schedule:
    """Interleaved 1F1B in groups of p microbatches; `warmup(p, v, r)` forwards come first."""
    p, m, v = instance.ranks, instance.microbatches, instance.stages // instance.ranks
    if m % p:
        raise FamilyError("needs m to be a multiple of p")
    orders = []
    for r in range(p):
        chunks = range(v)
        cells = [(c, j) for first in range(0, m, p) for c in chunks for j in range(first, first + p)]
        forwards = [Op("F", c * p + r, j) for c, j in cells]
        backwards = [Op("BW", (v - 1 - c) * p + r, j) for c, j in cells]
        first = min(warmup(p, v, r), len(forwards))
        order = forwards[:first]
        for k, backward in enumerate(backwards):
            order += [*forwards[first + k : first + k + 1], backward]
        orders.append(order)
    return Schedule.of(orders)


def interleaved(instance: Instance) -> Schedule:
    """The right warm-up: (v − 1)p + 2(p − 1 − r)."""
    return _interleaved(instance, lambda p, v, r: (v - 1) * p + 2 * (p - 1 - r))


def interleaved_one_off(instance: Instance) -> Schedule:
    """Bug: one forward too few on every rank, so the last runs a backward whose forward comes next."""
    return _interleaved(instance, lambda p, v, r: max(0, (v - 1) * p + 2 * (p - 1 - r) - 1))


def interleaved_group_of_two(instance: Instance) -> Schedule:
    """Bug: the warm-up counts groups of 2 microbatches, which is right on two ranks only."""
    return _interleaved(instance, lambda p, v, r: (v - 1) * 2 + 2 * (p - 1 - r))


def one_f_one_b(instance: Instance, first: int = 0) -> Schedule:
    """1F1B; `first` is the number of the first microbatch on the last stage."""
    p, m = instance.ranks, instance.microbatches
    orders = []
    for s in range(p):
        numbers = [j + (first if s == p - 1 else 0) for j in range(m)]
        warmup = min(p - 1 - s, m)
        order = [Op("F", s, j) for j in numbers[:warmup]]
        for k, j in enumerate(numbers):
            order += [Op("F", s, i) for i in numbers[warmup + k : warmup + k + 1]]
            order.append(Op("BW", s, j))
        orders.append(order)
    return Schedule.of(orders)


def last_stage_from_one(instance: Instance) -> Schedule:
    """Bug: the last stage numbers its microbatches 1 … m."""
    return one_f_one_b(instance, first=1)


def last_stage_forwards_from_one(instance: Instance) -> Schedule:
    """Bug: the last stage numbers its forwards 1 … m and its backwards 0 … m − 1, as a widely used runtime did."""
    right = one_f_one_b(instance)
    *others, last = right.orders
    shifted = [op._replace(microbatch=op.microbatch + 1) if op.kind == "F" else op for op in last]
    return Schedule.of([*others, shifted])


def _zero_bubble(instance: Instance, delay) -> Schedule:
    """1F1B with B and W apart; stage s runs each W `delay(s)` microbatches late, or after all B for None."""
    p, m = instance.ranks, instance.microbatches
    orders = []
    for s in range(p):
        warmup = min(p - 1 - s, m)
        late = m if delay(s) is None else delay(s)
        order = [Op("F", s, j) for j in range(warmup)]
        for j in range(m):
            order += [Op("F", s, i) for i in range(warmup + j, min(warmup + j + 1, m))]
            order.append(Op("B", s, j))
            order += [Op("W", s, i) for i in range(j - late, j - late + 1) if i >= 0]
        order += [Op("W", s, j) for j in range(max(0, m - late), m)]
        orders.append(order)
    return Schedule.of(orders)


def zero_bubble(instance: Instance) -> Schedule:
    """ZB-H1: stage s defers each W by s microbatches, so p microbatches at most are held."""
    return _zero_bubble(instance, lambda s: s)


def zero_bubble_deferring_all(instance: Instance) -> Schedule:
    """Bug: every W is deferred to the end, so all m microbatches are held."""
    return _zero_bubble(instance, lambda s: None)


def greedy_by_costs(instance: Instance) -> Schedule:
    """Bug that unit costs never show: with slow messages it starts the last stage's backward before its forward."""
    schedule = one_f_one_b(instance)
    if max((time for _, time in instance.costs.comm), default=0) <= instance.costs.F[-1]:
        return schedule
    *others, last = schedule.orders
    return Schedule.of([*others, [last[1], last[0], *last[2:]]])


def ignores_its_cap(instance: Instance) -> Schedule:
    """Bug: warms up as 1F1B does, whatever the cap."""
    return one_f_one_b(instance)


def communicating(instance: Instance) -> Program:
    """ZB-V with its transfers, each receive in the order of the sends."""
    return lower(zb_v(instance), instance)


def deferring_receives(instance: Instance) -> Program:
    """Bug: a pass moves every receive to just before the op that needs it, and so past receives of earlier sends."""
    rows = []
    for row in communicating(instance).rows:
        receives = {(a.kind, a.stage, a.microbatch): a for a in row if isinstance(a, Transfer) and not a.sends}
        moved = []
        for action in row:
            if isinstance(action, Op):
                kind = {"F": "RECV_F", "B": "RECV_B", "BW": "RECV_B"}.get(action.kind)
                moved += [receives[key] for key in [(kind, action.stage, action.microbatch)] if key in receives]
            if action not in receives.values():
                moved.append(action)
        rows.append(moved)
    return Program.of(rows)
