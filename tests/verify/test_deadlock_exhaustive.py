"""The verdict on deadlocks against a step-by-step execution, for all orders of small pipelines and samples."""

import random
from itertools import pairwise, permutations, product

import pytest

from bubbleproof.schedules.op import Op
from bubbleproof.schedules.placement import bidirectional, linear, loop, vee
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.verify import Verdict, verify
from tests.verify.model import all_orders, pipeline, stops


def agrees(orders, instance):
    """Hold one verdict against the execution; whether it deadlocks."""
    schedule = Schedule.of(orders)
    report = verify(schedule, instance)
    stopped = stops(schedule, instance)
    hangs = any(position is not None for position in stopped)
    assert set(report.counts) <= {"V201", "V202"}
    assert (report.verdict is Verdict.VIOLATED) == hangs
    if "V201" not in report.counts and hangs:
        (violation,) = report.violations
        assert violation.witness["stopped"] == stopped
    return hangs


def own_order(orders):
    """Those orders of a rank in which every stage and microbatch has its F before its B before its W."""
    for order in orders:
        at = {op: position for position, op in enumerate(order)}
        if all(at[Op("F", s, j)] < at[Op("B", s, j)] < at[Op("W", s, j)] for kind, s, j in order if kind == "F"):
            yield order


@pytest.mark.parametrize(
    ("placement", "m", "safe"),
    [(linear(2), 2, 26), (vee(2), 1, 1), (loop(2, 2), 1, 1), (bidirectional(2), 2, 19)],
    ids=["linear", "vee", "loop", "bidirectional"],
)
def test_every_order_of_fused_backwards(placement, m, safe):
    instance = pipeline(placement=placement, m=m, F=1, B=2)
    verdicts = [agrees(orders, instance) for orders in product(*all_orders(instance))]
    assert len(verdicts) == 24 * 24
    # linear: rank 0 has 6 orders that keep F before BW; two run one microbatch after the other and leave rank 1 one
    # order, four run both forwards first and leave it all 6. One microbatch through four stages has one order.
    assert verdicts.count(False) == safe


@pytest.mark.parametrize(("ranks", "total"), [(2, 400), (3, 8000)])
def test_every_order_that_keeps_each_stage_in_order(ranks, total):
    instance = pipeline(ranks, 2)
    orders = [list(own_order(mine)) for mine in all_orders(instance, ("F", "B", "W"))]
    verdicts = [agrees(chosen, instance) for chosen in product(*orders)]
    assert len(verdicts) == total
    assert 0 < sum(verdicts) < total


def all_forms(instance, own=False):
    """For each rank every order of its ops, with every choice of fused and split backwards.

    With `own`, only the orders that keep F before B before W, or F before BW, of each stage and microbatch.
    """
    cells: list[list[tuple[int, int]]] = [[] for _ in range(instance.ranks)]
    for j in range(instance.microbatches):
        for s in range(instance.stages):
            cells[instance.rank_of(s, j)].append((s, j))
    found = []
    for mine in cells:
        orders = []
        for forms in product([("F", "BW"), ("F", "B", "W")], repeat=len(mine)):
            ops = [Op(kind, s, j) for kinds, (s, j) in zip(forms, mine, strict=True) for kind in kinds]
            for order in permutations(ops):
                at = {op: position for position, op in enumerate(order)}
                ascending = (
                    at[Op(a, s, j)] < at[Op(b, s, j)]
                    for kinds, (s, j) in zip(forms, mine, strict=True)
                    for a, b in pairwise(kinds)
                )
                if not own or all(ascending):
                    orders.append(order)
        found.append(orders)
    return found


@pytest.mark.slow
def test_every_order_of_two_ranks_and_two_microbatches_in_every_form():
    instance = pipeline(2, 2)
    first, second = all_forms(instance)
    assert len(first) == len(second) == 24 + 2 * 120 + 720
    # renaming the microbatches maps the orders left out onto those tried: the other half of 984² = 968 256
    half = [order for order in first if order[0].microbatch == 0]
    safe = total = 0
    for orders in product(half, second):
        safe += not agrees(orders, instance)
        total += 1
    assert total == 984 * 984 // 2
    assert safe == 725  # each keeps F before B before W on both ranks


@pytest.mark.slow
def test_every_order_of_three_ranks_that_keeps_each_stage_in_order_in_every_form():
    instance = pipeline(3, 2)
    verdicts = [agrees(orders, instance) for orders in product(*all_forms(instance, own=True))]
    assert len(verdicts) == (6 + 2 * 10 + 20) ** 3
    assert verdicts.count(False) == 42_058


def test_samples_of_the_orders_in_every_form():
    instance = pipeline(2, 2)
    chance = random.Random(3)
    wild, tame = all_forms(instance), all_forms(instance, own=True)
    verdicts = [agrees([chance.choice(orders) for orders in wild], instance) for _ in range(500)]
    verdicts += [agrees([chance.choice(orders) for orders in tame], instance) for _ in range(1000)]
    assert 0 < sum(verdicts) < len(verdicts)


@pytest.mark.parametrize(
    ("placement", "m", "kinds"),
    [
        (linear(2), 2, "F B W"),
        (linear(2), 3, "F BW"),
        (linear(3), 3, "F BW"),
        (loop(3, 2), 2, "F BW"),
        (vee(2), 2, "F BW"),
    ],
    ids=str,
)
def test_samples_of_all_orders(placement, m, kinds):
    """Orders that are a valid one with some neighbours swapped, since nearly every random order hangs."""
    kinds = kinds.split()
    costs = {"F": 1, "B": 1, **({"W": 1} if "W" in kinds else {})}
    instance = pipeline(placement=placement, m=m, **costs)
    chance = random.Random(f"{placement}{m}{kinds}")
    verdicts = []
    for _ in range(400):
        orders: list[list[Op]] = [[] for _ in range(instance.ranks)]
        for j in range(m):
            for kind, stages in (("F", range(instance.stages)), ("B", reversed(range(instance.stages)))):
                for s in stages:
                    for each in kinds[:1] if kind == "F" else kinds[1:]:
                        orders[instance.rank_of(s, j)].append(Op(each, s, j))
        for order in orders:
            for _ in range(chance.randrange(4)):
                at = chance.randrange(len(order) - 1)
                order[at], order[at + 1] = order[at + 1], order[at]
        verdicts.append(agrees(orders, instance))
    assert 0 < sum(verdicts) < len(verdicts)
