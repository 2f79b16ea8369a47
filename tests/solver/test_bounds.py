"""No lower bound may exceed the optimum: attacked with every schedule of tiny instances, and with known optima."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import permutations, product
from math import prod
from pathlib import Path

import pytest

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Op, Overlap, Slot, members
from bubbleproof.schedules.placement import bidirectional, custom, linear, loop, vee
from bubbleproof.solver.bounds import lower_bounds, stays
from bubbleproof.verify.certificate import RULES, Certificate, check

DATA = Path(__file__).parents[1] / "data"


class TooMany(Exception):
    """More orders than are worth trying."""


def orders(instance: Instance, rank: int, fifo: bool, limit: int) -> Iterator[tuple[Slot, ...]]:
    """Every order of one rank that keeps its cap and the dependencies inside a stage, with pairs and fused backwards.

    With `fifo`, the forwards of a stage, and its backwards, run in microbatch order; `limit` is of partial orders.
    """
    costs, memory = instance.costs, instance.memory
    cap = None if memory.cap is None else memory.cap[rank]
    mine = [
        (s, j) for j in range(instance.microbatches) for s in range(instance.stages) if instance.rank_of(s, j) == rank
    ]
    paired = [k for k, t in (("B", costs.overlap_B), ("BW", costs.overlap_BW)) if t is not None]
    state = dict.fromkeys(mine, "")
    tried = 0

    def ready() -> Iterator[Op]:
        for (s, j), done in state.items():
            earlier = [state[s, i] for i in range(j) if (s, i) in state] if fifo else []
            if not done:
                if all(earlier):
                    yield Op("F", s, j)
            elif done == "F":
                if all(x != "F" for x in earlier):
                    if costs.split:
                        yield Op("B", s, j)
                    cheaper = costs.BW[s] < costs.B[s] + costs.W[s] or costs.overlap_BW is not None
                    if not costs.split or cheaper:
                        yield Op("BW", s, j)
            elif done == "B" and all(x != "B" for x in earlier):
                yield Op("W", s, j)

    def slots() -> Iterator[Slot]:
        single = list(ready())
        yield from single
        for first in single:
            for second in single:
                if first.kind == "F" and second.kind in paired and first.microbatch != second.microbatch:
                    yield Overlap(first, second)

    def extend(order: tuple[Slot, ...], level: int) -> Iterator[tuple[Slot, ...]]:
        nonlocal tried
        tried += 1
        if tried > limit:
            raise TooMany
        if all(x in ("W", "BW") for x in state.values()):
            yield order
            return
        for slot in list(slots()):
            now, fits = level, True
            before = [(op, state[op.stage, op.microbatch]) for op in members(slot)]
            for op in members(slot):
                now += memory.of(op.kind, op.stage)
                fits &= cap is None or now <= cap
                state[op.stage, op.microbatch] = op.kind
            if fits:
                yield from extend((*order, slot), now)
            for op, old in before:
                state[op.stage, op.microbatch] = old

    yield from extend((), memory.static[rank])


def times(instance: Instance, chosen: Sequence[Sequence[Slot]]) -> tuple[int, int] | None:
    """(makespan, least span) of one order per rank; None if it deadlocks.

    The least span is the largest mean weight of a cycle over the ranks, with the longest paths from the first start of
    one rank to the last end of another as weights.
    """
    p, last = instance.ranks, instance.stages - 1
    ended: dict[tuple[str, int, int], list[float]] = {}  # F, G (the gradient of the input), B: longest paths to the end
    free = [[float("-inf")] * p for _ in range(p)]
    for r in range(p):
        free[r][r] = 0
    at = [0] * p
    progress = True
    while progress:
        progress = False
        for r in range(p):
            while at[r] < len(chosen[r]):
                slot, start = chosen[r][at[r]], list(free[r])
                for op in members(slot):
                    needed = []
                    if op.kind == "F" and op.stage:
                        needed = [("F", op.stage - 1)]
                    elif op.kind in ("B", "BW"):
                        needed = [("F", op.stage)] + ([("G", op.stage + 1)] if op.stage < last else [])
                    elif op.kind == "W":
                        needed = [("G", op.stage)]
                    for kind, stage in needed:
                        if (found := ended.get((kind, stage, op.microbatch))) is None:
                            break
                        delay = instance.message(stage, op.stage, op.microbatch)
                        start = [max(x, y + delay) for x, y in zip(start, found, strict=True)]
                    else:
                        continue
                    break
                else:
                    end = [x + instance.duration(slot) for x in start]
                    for op in members(slot):
                        if op.kind != "W":
                            ended["F" if op.kind == "F" else "G", op.stage, op.microbatch] = end
                    free[r] = end
                    at[r] += 1
                    progress = True
                    continue
                break
    if any(at[r] < len(chosen[r]) for r in range(p)):
        return None
    span = max(
        Fraction(int(weight), length)
        for length in range(1, p + 1)
        for cycle in permutations(range(p), length)
        if (weight := sum(free[cycle[(i + 1) % length]][r] for i, r in enumerate(cycle))) > float("-inf")
    )
    return int(max(map(max, free))), -(-span.numerator // span.denominator)


def optimum(instance: Instance, fifo: bool, limit: int) -> tuple[int, int] | None:
    """(least makespan, least span) over all schedules; None if there are more than `limit` of them."""
    try:
        per_rank = [list(orders(instance, rank, fifo, 4 * limit)) for rank in range(instance.ranks)]
    except TooMany:
        return None
    if prod(map(len, per_rank)) > limit:
        return None
    best_makespan = best_span = 10**9
    for chosen in product(*per_rank):
        if (found_times := times(instance, chosen)) is not None:
            best_makespan = min(best_makespan, found_times[0])
            best_span = min(best_span, found_times[1])
    return best_makespan, best_span


def draw(rng: random.Random) -> Instance:
    """A tiny random instance: any placement, unequal stages and edges, caps, two-part memory, fused or split, pairs."""
    kind = rng.choice(["linear"] * 5 + ["loop", "vee", "bidirectional", "custom"])
    p = rng.choice([1, 2, 2, 2, 3])
    placement = {
        "linear": lambda: linear(p),
        "loop": lambda: loop(2, 2),
        "vee": lambda: vee(2),
        "bidirectional": lambda: bidirectional(2),
        "custom": lambda: custom(rng.choice([[1, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0], [2, 0, 1]])),
    }[kind]()
    stages, ranks = placement.stages, placement.ranks
    m = rng.choice([1, 2, 2, 3, 4])

    def cost(low: int = 0) -> list[int]:
        return [rng.randint(low, 3)] * stages if rng.random() < 0.4 else [rng.randint(low, 3) for _ in range(stages)]

    split = rng.random() < 0.75
    f, b, w = cost(1), cost(), cost()
    bw = [max(0, x + y - rng.choice([0, 0, 0, 1, 4])) for x, y in zip(b, w, strict=True)] if split else b
    edges = {(a, c): rng.randint(0, 2) for a in range(ranks) for c in range(ranks) if a != c}
    pairs = rng.random() < 0.3
    costs = Costs.make(
        stages,
        F=f,
        B=b,
        W=w if split else None,
        BW=bw,
        overlap_B=[rng.randint(0, 4) for _ in range(stages)] if pairs and rng.random() < 0.7 else None,
        overlap_BW=[rng.randint(0, 5) for _ in range(stages)] if pairs and rng.random() < 0.7 else None,
        comm=edges if rng.random() < 0.5 else 0,
    )
    taken = [rng.randint(0, 5) for _ in range(stages)] if rng.random() < 0.5 else [rng.choice([1, 2, 4])] * stages
    at_b = (
        [rng.randint(-x - rng.choice([0, 0, 0, 2]), rng.choice([0, 0, 2])) for x in taken]
        if split and rng.random() < 0.6
        else None
    )
    memory = Memory.make(stages, ranks, F=taken, B=at_b, static=rng.randint(0, 2))
    instance = Instance(placement, m, costs, memory)
    if rng.random() < 0.85:
        need = [max(instance.least_memory(r, k) for k in set(instance.route_of_microbatch)) for r in range(ranks)]
        caps = tuple(n + rng.choice([0, 0, 1, 2, 3, 4, 6]) for n in need)
        instance = replace(instance, memory=replace(memory, cap=caps))
    return instance


def attack(instance: Instance, best: tuple[int, int]) -> int:
    """Compare every rule with (least makespan, least span); how many of the two objectives the best bound meets."""
    met = 0
    for objective, value in zip(("makespan", "span"), best, strict=True):
        posed = replace(instance, objective=objective)
        found = lower_bounds(posed)
        assert found == sorted(found, key=lambda c: -c.value)
        for certificate in found:
            assert certificate.objective == objective
            assert certificate.value <= value, (posed, certificate, value)
            verdict = check(posed, certificate)
            assert verdict.accepted, verdict.reason
            assert verdict.proved == certificate.value
        met += found[0].value == value
        for rank, via in product(range(posed.ranks), range(-1 if objective == "makespan" else 0, posed.ranks)):
            everywhere = Certificate(rule="ends", objective=posed.objective, value=0, rank=rank, via=via)
            proved = check(posed, everywhere).proved
            assert proved is None or proved <= value, (posed, everywhere, proved, value)
        attack_stays(posed, value)
    return met


def attack_stays(posed: Instance, value: int) -> None:
    """Compare the rule `stays` with the optimum: the weights that are best, and many others."""
    least = -1
    for certificate in stays(posed, -1):
        assert least < certificate.value <= value, (posed, certificate, value)
        least = certificate.value
        assert check(posed, certificate).proved == least, (posed, certificate, check(posed, certificate))
    rng = random.Random(value)
    for rank, via in product(range(posed.ranks), range(-1 if posed.objective == "makespan" else 0, posed.ranks)):
        used = {posed.placement.routes[k] for k in posed.route_of_microbatch}
        phases = sum(3 * route.count(rank) - 1 for route in used if rank in route)
        for _ in range(8):
            weights = tuple(rng.choice((0, 1, 1, 1, 2, 3)) for _ in range(phases))
            claim = Certificate(rule="stays", objective=posed.objective, value=0, rank=rank, via=via, weights=weights)
            proved = check(posed, claim).proved
            assert proved is None or proved <= value, (posed, claim, proved, value)


def run_attack(seeds: Sequence[int], fifo: bool, limit: int) -> tuple[int, int]:
    """(instances attacked, objectives met)."""
    attacked = met = 0
    for seed in seeds:
        instance = draw(random.Random(seed))
        best = optimum(instance, fifo, limit)
        if best is not None:
            attacked += 1
            met += attack(instance, best)
    return attacked, met


def test_no_bound_exceeds_the_optimum_over_all_orders_of_tiny_instances() -> None:
    attacked, met = run_attack(range(400), fifo=False, limit=500)
    assert attacked >= 150
    assert met >= attacked  # of two objectives each: the bounds are not idly low


def test_no_bound_exceeds_the_optimum_over_microbatch_orders_of_small_instances() -> None:
    attacked, met = run_attack(range(1000, 1400), fifo=True, limit=600)
    assert attacked >= 200
    assert met >= attacked


def test_pairs_that_are_shorter_than_a_member_alone_beat_no_bound() -> None:
    attacked = 0
    for seed in range(120):
        rng = random.Random(seed)
        p, m = rng.choice([(2, 3), (2, 4), (3, 3)])

        def some(low: int, high: int, rng: random.Random = rng, p: int = p) -> list[int]:
            return [rng.randint(low, high) for _ in range(p)]

        costs = Costs.make(p, F=some(1, 3), B=some(2, 5), overlap_BW=some(0, 3))
        posed = Instance(linear(p), m, costs, Memory.make(p, p, cap=some(1, 3)))
        if (best := optimum(posed, True, 1500)) is not None:
            attacked += 1
            attack(posed, best)
    assert attacked >= 80


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 8000, 1000))
def test_no_bound_exceeds_the_optimum_of_thousands_of_instances(start: int) -> None:
    attacked, _ = run_attack(range(10_000 + start, 10_500 + start), fifo=False, limit=3000)
    more, _ = run_attack(range(10_500 + start, 11_000 + start), fifo=True, limit=5000)
    assert attacked + more >= 400


def linear_instance(
    p: int, m: int, times: tuple[int, int, int], comm: int, cap: int, objective: str, memory: tuple[int, int] = (1, 0)
) -> Instance:
    """One chunk per rank, equal ranks; `memory` is what F takes and what B adds."""
    f, b, w = times
    return Instance(
        linear(p),
        m,
        Costs.make(p, F=f, B=b, W=w, comm=comm),
        Memory.make(p, p, F=memory[0], B=memory[1], cap=cap),
        objective,  # type: ignore[arg-type]
    )


def best_bound(instance: Instance) -> int:
    """The best bound, after its certificate has been accepted."""
    certificate = lower_bounds(instance)[0]
    assert check(instance, certificate).accepted
    return certificate.value


def table5() -> list[dict[str, object]]:
    return json.loads((DATA / "zb_table5.json").read_text())["rows"]


@pytest.mark.parametrize("row", table5(), ids=lambda row: row["id"])
def test_published_zb_1p_is_certified_optimal_in_every_setting_of_table_5(row: dict) -> None:
    times = (row["F"], row["B"], row["W"])
    memory = (row["mem_F"], row["mem_B"])
    posed = linear_instance(row["p"], row["m"], times, row["comm"], row["cap_zb1p"], "span", memory)
    assert best_bound(posed) == row["schedules"]["ZB-1p"]["span"]


@pytest.mark.parametrize("row", table5(), ids=lambda row: row["id"])
def test_at_twice_the_memory_the_bound_is_within_0_7_percent_of_published_zb_2p(row: dict) -> None:
    times = (row["F"], row["B"], row["W"])
    memory = (row["mem_F"], row["mem_B"])
    posed = linear_instance(row["p"], row["m"], times, row["comm"], row["cap_zb2p"], "span", memory)
    bound, published = best_bound(posed), row["schedules"]["ZB-2p"]["span"]
    assert bound <= published <= bound * 1.007
    assert (bound == published) == (row["id"] in ("t5-1.5B-m24", "t5-28.3B-m256"))


@pytest.mark.parametrize(
    ("times", "comm", "cap", "optimum"),
    [((3, 4, 2), 0, 8, 251), ((3, 4, 2), 0, 15, 237), ((18, 18, 9), 1, 8, 1297), ((18, 18, 9), 1, 15, 1220)],
)
def test_makespan_optima_of_eight_ranks_are_certified(
    times: tuple[int, int, int], comm: int, cap: int, optimum: int
) -> None:
    assert best_bound(linear_instance(8, 24, times, comm, cap, "makespan")) == optimum


@pytest.mark.parametrize(
    ("p", "m", "times", "comm", "cap", "optimum"),
    [
        (3, 6, (18, 18, 9), 1, 3, 332),
        (3, 9, (18, 18, 9), 1, 3, 467),
        (3, 6, (18, 18, 9), 1, 4, 319),
        (3, 9, (18, 18, 9), 1, 5, 445),
        (4, 8, (18, 18, 9), 1, 4, 453),
        (4, 12, (18, 18, 9), 1, 5, 618),
        (4, 12, (18, 18, 9), 1, 7, 600),
        (4, 8, (3, 4, 2), 0, 4, 87),
        (4, 8, (3, 4, 2), 0, 5, 85),
        (4, 8, (3, 4, 2), 0, 7, 81),
        (8, 24, (18, 18, 9), 1, 8, 1297),
        (8, 64, (18, 18, 9), 1, 8, 3097),
        (16, 48, (18, 18, 9), 1, 16, 2625),
    ],
)
def test_span_optima_of_linear_pipelines_are_certified(
    p: int, m: int, times: tuple[int, int, int], comm: int, cap: int, optimum: int
) -> None:
    assert best_bound(linear_instance(p, m, times, comm, cap, "span")) == optimum


def test_small_optima_are_never_exceeded_and_all_but_three_linear_ones_are_met() -> None:
    open_rows = []
    for row in json.loads((DATA / "small_optima.json").read_text())["rows"]:
        placement = {"linear": linear, "V": vee}.get(row["placement"])
        if placement is None:
            continue
        where = placement(row["p"])
        posed = Instance(
            where,
            row["m"],
            Costs.make(where.stages, F=row["F"], B=row["B"], W=row["W"], comm=row["comm"]),
            Memory.make(where.stages, where.ranks, F=row["mem_F"], B=row["mem_B"], W=row["mem_W"], cap=row["cap"]),
            row["objective"],
        )
        bound = best_bound(posed)
        assert bound <= row["optimum"], row["id"]
        if bound < row["optimum"] and row["placement"] == "linear":
            open_rows.append(row["id"])
    assert open_rows == [f"lin-p4-m{m}-cap{cap}-111-makespan" for m, cap in ((8, 3), (8, 2), (16, 3))]


def test_a_fused_backward_gives_the_one_f_one_b_makespan() -> None:
    """With F=1 and a fused backward of 2, (m+p−1)·3 is the least makespan: the formula of GPipe and 1F1B."""
    for p, m in ((4, 4), (4, 16), (8, 8), (8, 64)):
        posed = Instance(linear(p), m, Costs.make(p, F=1, B=2), Memory.make(p, p))
        assert best_bound(posed) == 3 * (m + p - 1)


def test_a_vee_waits_for_its_second_chunk_when_the_cap_leaves_no_room() -> None:
    """p=8, unit times, cap 10 chunks: 15 time units before the second chunk arrives, room for 9 forwards, so 6 idle."""
    posed = Instance(vee(8), 16, Costs.make(16, F=1, B=1, W=1), Memory.make(16, 8, cap=10), "span")
    best = next(c for c in lower_bounds(posed) if c.rule == "arrival")
    assert (best.rank, best.value) == (0, 96 + 6)


@pytest.mark.parametrize(
    ("p", "m", "times", "cap", "optimum"),
    [
        (4, 8, (1, 1, 1), 8, 51),
        (4, 8, (1, 1, 1), 6, 53),
        (4, 8, (1, 1, 1), 4, 59),
        (4, 8, (5, 8, 3), 6, 306),
        (4, 8, (5, 6, 4), 6, 275),
        (8, 16, (1, 1, 1), 8, 119),
        (8, 16, (1, 1, 1), 10, 113),
        (8, 32, (1, 1, 1), 10, 209),
    ],
)
def test_vees_under_a_cap_are_certified_where_the_ends_of_the_step_cost_most(
    p: int, m: int, times: tuple[int, int, int], cap: int, optimum: int
) -> None:
    """V-auto at cap p and V-Half reach these with unit times; the others are optima that CP-SAT proved."""
    f, b, w = times
    posed = Instance(vee(p), m, Costs.make(2 * p, F=f, B=b, W=w), Memory.make(2 * p, p, cap=cap))
    assert best_bound(posed) == optimum


def test_a_tight_cap_is_bounded_by_memory_times_time() -> None:
    """Two ranks, room for one microbatch: each occupies rank 0 for 2·(1+4) + 2·5 + 1 units, one after the other."""
    posed = linear_instance(2, 50, (1, 1, 1), 4, 1, "span")
    found = {c.rule: c.value for c in lower_bounds(posed)}
    assert found["residence"] == 50 * (1 + 4 + 1 + 1 + 4 + 1 + 1)


def test_bounds_of_a_large_pipeline_take_well_under_a_second() -> None:
    from time import perf_counter

    posed = linear_instance(64, 4096, (18, 19, 9), 1, 7 * 3000, "span", (7, -3))
    started = perf_counter()
    found = lower_bounds(posed)
    assert perf_counter() - started < 1
    assert {c.rule for c in found} == set(RULES) - {
        "arrival",
        "ends",
        "pairs",
        "crossing",
        "stays",
        "path",
        "busy",
        "held",
    }
