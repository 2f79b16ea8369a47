"""`solve` and the model of proofs against all orders of small pipelines, by an enumeration that is written here."""

from __future__ import annotations

import random
from itertools import product

import pytest

from bubbleproof.schedules.align import align
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import linear, vee
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.solver import solve
from bubbleproof.solver.refute.ask import refute
from bubbleproof.verify.proof import build, check_proof
from tests.brute_arrays import Orders


def sequences(m: int, kinds: int, changes: list[int], room: int) -> list[list[int]]:
    """Every order of m microbatches of a rank with one stage: prefixes with no more B than F, no more W than B."""
    found: list[list[int]] = []

    def grow(order: list[int], count: list[int], level: int) -> None:
        if len(order) == m * kinds:
            found.append(list(order))
            return
        for kind in range(kinds):
            if count[kind] < (m if kind == 0 else count[kind - 1]) and level + changes[kind] <= room:
                count[kind] += 1
                grow([*order, kind], count, level + changes[kind])
                count[kind] -= 1

    grow([], [0] * kinds, 0)
    return found


def makespan(orders: tuple[list[int], ...], m: int, times: list[tuple[int, ...]], comm: int) -> int | None:
    """Last end if every op starts as soon as possible; None for a deadlock. Nothing of the package is used."""
    p = len(orders)
    ends: dict[tuple[int, int, int], int] = {}
    at, free = [0] * p, [0] * p
    moved = True
    while moved:
        moved = False
        for r, order in enumerate(orders):
            while at[r] < len(order):
                kind = order[at[r]]
                k = order[: at[r]].count(kind)
                needs = [(r, kind - 1, k, 0)] if kind else []
                if kind == 0 and r:
                    needs.append((r - 1, 0, k, comm))
                if kind == 1 and r < p - 1:
                    needs.append((r + 1, 1, k, comm))
                if any((q, x, k) not in ends for q, x, k, _ in needs):
                    break
                start = max([free[r], *(ends[q, x, k] + c for q, x, k, c in needs)])
                free[r] = ends[r, kind, k] = start + times[r][kind]
                at[r] += 1
                moved = True
    return max(free) if all(a == len(order) for a, order in zip(at, orders, strict=True)) else None


def optimum(instance: Instance) -> int:
    """The best objective of all orders in which each kind of op runs in microbatch order (theorem 5)."""
    costs, memory, m, p = instance.costs, instance.memory, instance.microbatches, instance.ranks
    kinds = ("F", "B", "W") if costs.split else ("F", "BW")
    rows = []
    for rank in range(p):
        room = 10**9 if memory.cap is None else memory.cap[rank] - memory.static[rank]
        rows.append(sequences(m, len(kinds), [memory.of(kind, rank) for kind in kinds], room))
    times = [tuple(costs.of(kind, rank) for kind in kinds) for rank in range(p)]
    best = 10**9
    for orders in product(*rows):
        value = makespan(orders, m, times, costs.default_comm)
        if value is None:
            continue
        if instance.objective == "span":
            value = least_span(orders, kinds, instance)
        best = min(best, value)
    return best


def least_span(orders: tuple[list[int], ...], kinds: tuple[str, ...], instance: Instance) -> int:
    rows = [
        " ".join(f"{rank}{kinds[kind]}{order[:i].count(kind)}" for i, kind in enumerate(order))
        for rank, order in enumerate(orders)
    ]
    return align(Schedule.parse(rows), instance).span


def check(instance: Instance, *, proof: bool = False) -> str:
    """What must hold of a solve, given the optimum; returns its level."""
    best = optimum(instance)
    record = solve(instance, time_limit=20, workers=1).record
    assert record.bound <= best <= record.value, (instance, best, record)
    if record.level != "open":
        assert record.value == best, (instance, best, record)
    assert not build(instance, best).empty, instance
    if proof:
        found = refute(instance, best - 1, seconds=20)
        assert found.verdict == "refuted", (instance, best)
        assert check_proof(instance, best - 1, found.lines).accepted, instance
        assert refute(instance, best, seconds=20).verdict == "found", (instance, best)
    return record.level


def uniform(p: int, m: int, objective: str):
    """All costs from 0 to 3 (F from 1), message times 0, 1 and 3, every cap, and both memory models."""
    for f, b, w, comm in product((1, 2, 3), (0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 3)):
        costs = Costs.make(p, F=f, B=b, W=w, comm=comm)
        for cap, two_part in product((*range(1, m), None), (False, True)):
            held = (3, -1, -2, cap and 3 * cap) if two_part else (1, 0, -1, cap)
            yield Instance(
                linear(p), m, costs, Memory.make(p, p, F=held[0], B=held[1], W=held[2], cap=held[3]), objective
            )


def unequal(rng: random.Random, p: int, m: int, objective: str) -> Instance:
    """Costs from 0 to 3 of every stage by itself, a fused backward now and then, a cap that binds."""
    costs = Costs.make(
        p,
        F=[rng.randint(0, 3) for _ in range(p)],
        B=[rng.randint(0, 3) for _ in range(p)],
        W=[rng.randint(0, 3) for _ in range(p)] if rng.random() < 0.8 else None,
        comm=rng.randint(0, 3),
    )
    taken = [rng.randint(0, 3) for _ in range(p)]
    memory = Memory.make(p, p, F=taken, B=[-rng.randint(0, f) for f in taken], static=rng.randint(0, 1))
    instance = Instance(linear(p), m, costs, memory, objective)
    return instance.with_cap(tuple(instance.least_memory(rank) + rng.randint(0, 4) for rank in range(p)))


@pytest.mark.parametrize(("p", "m", "objective"), [(2, 3, "makespan"), (2, 2, "span"), (3, 2, "makespan")])
def test_a_sample_of_uniform_pipelines_is_solved_to_the_optimum(p, m, objective):
    chosen = random.Random(p + m).sample(list(uniform(p, m, objective)), 12)
    levels = [check(instance) for instance in chosen]
    assert levels.count("open") == 0


@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_a_sample_of_unequal_pipelines_is_solved_and_the_rest_refuted_with_a_proof(objective):
    rng = random.Random(7)
    for p, m in ((2, 2), (3, 2), (2, 3)):
        for _ in range(2):
            assert check(unequal(rng, p, m, objective), proof=True) != "open"


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize(("p", "m"), [(1, 3), (2, 1), (2, 2), (2, 3), (3, 1), (3, 2)])
def test_every_uniform_pipeline_is_solved_to_the_optimum(p, m, objective):
    for instance in uniform(p, m, objective):
        assert check(instance) != "open", instance


@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_the_two_enumerations_agree(objective):
    for instance in random.Random(5).sample(list(uniform(2, 3, objective)), 15):
        best, orders = optimum(instance), Orders(instance)
        assert orders.reach(best)
        assert not orders.reach(best - 1)


@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_no_order_of_three_ranks_and_three_microbatches_goes_below_the_bound(objective):
    for instance in random.Random(6).sample(list(uniform(3, 3, objective)), 5):
        record = solve(instance, time_limit=20, workers=1).record
        orders = Orders(instance)
        assert orders.reach(record.value)
        assert not orders.reach(record.bound - 1)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_three_ranks_and_three_microbatches_are_solved_to_the_optimum(objective):
    rng = random.Random(3)
    for _ in range(8):
        assert check(unequal(rng, 3, 3, objective).with_cap(None).with_cap(6)) != "open"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_unequal_pipelines_are_solved_and_the_rest_refuted_with_a_proof(seed):
    rng = random.Random(seed)
    for _ in range(60):
        p, m = rng.choice([(1, 2), (1, 3), (2, 1), (2, 2), (2, 3), (3, 1), (3, 2)])
        assert check(unequal(rng, p, m, rng.choice(["makespan", "span"])), proof=True) != "open"


def test_a_microbatch_that_holds_less_than_nothing_makes_room_for_others_on_its_rank():
    """Where a W takes memory, more microbatches of another stage fit than the room over what one takes."""
    costs = Costs.make(4, F=[3, 3, 3, 3], B=[1, 2, 1, 3], W=[1, 1, 1, 2])
    memory = Memory.make(4, 2, F=[2, 1, 2, 1], B=[-4, 0, 0, -3], W=[2, -1, -2, 2], cap=[3, 4])
    instance = Instance(vee(2), 3, costs, memory)
    record = solve(instance, time_limit=20, workers=1).record
    assert (record.value, record.bound) == (49, 49)
    assert check_proof(instance, 48, refute(instance, 48, seconds=20).lines).accepted
