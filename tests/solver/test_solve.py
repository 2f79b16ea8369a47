"""`solve`: known optima, brute force, what the record says, and how a search ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from fractions import Fraction
from itertools import permutations, product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from bubbleproof.schedules.align import align
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import BubbleproofError, InstanceError, ScheduleError
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Op
from bubbleproof.schedules.placement import bidirectional, custom, linear, vee
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import replay
from bubbleproof.solver import driver, solve
from bubbleproof.verify import Verdict, verify
from bubbleproof.verify.certificate import check
from tests.strategies import instances

DATA = Path(__file__).parents[1] / "data"
SLOW = ("v-p4-m8-cap6", "v-p4-m8-cap4")


def small(slow: bool):
    """The known optima with linear and vee placements, quick or slow ones."""
    for row in json.loads((DATA / "small_optima.json").read_text())["rows"]:
        if row["placement"] not in ("linear", "V") or row["id"].startswith(SLOW) != slow:
            continue
        placement = (linear if row["placement"] == "linear" else vee)(row["p"])
        stages = placement.stages
        weight = row["W"] or None
        costs = Costs.make(stages, F=row["F"], B=row["B"], W=weight, comm=row["comm"])
        memory = Memory.make(stages, row["p"], F=row["mem_F"], B=row["mem_B"], W=row["mem_W"], cap=row["cap"])
        instance = Instance(placement, row["m"], costs, memory, row["objective"], row["id"])
        yield pytest.param(instance, row["optimum"], id=row["id"])


def check_solution(instance: Instance, solution) -> None:
    """What must hold of every solution."""
    record, timeline = solution.record, solution.timeline
    claims = {"makespan": timeline.makespan, "span": timeline.span, "peak": list(record.peak)}
    assert verify(solution.schedule, instance, timeline=timeline.starts, claims=claims).verdict is Verdict.PROVED
    assert record.bound <= record.value == timeline.value(instance.objective)
    assert record.makespan <= timeline.makespan
    assert Fraction(record.gap) == (Fraction(record.value, record.bound) - 1 if record.bound else 0)
    assert (record.level == "open") == (record.value > record.bound)
    if record.level == "certified":
        assert record.certificate.value == record.value
        assert check(instance, record.certificate).accepted
    for family in record.families:
        assert (family.value is None) <= bool(family.reason)
        if not family.reason:
            assert record.value <= family.value


@pytest.mark.parametrize(("instance", "optimum"), list(small(slow=False)))
def test_known_optima_are_reached_and_proved(instance, optimum):
    solution = solve(instance, time_limit=60, workers=1)
    check_solution(instance, solution)
    assert (solution.record.value, solution.record.bound) == (optimum, optimum)
    assert solution.record.level in ("certified", "solver-claimed")


@pytest.mark.slow
@pytest.mark.parametrize(("instance", "optimum"), list(small(slow=True)))
def test_known_optima_of_vee_placements_are_reached_and_proved(instance, optimum):
    record = solve(instance, time_limit=240).record
    assert (record.value, record.bound) == (optimum, optimum)


@pytest.mark.parametrize(
    ("times", "comm", "cap", "optimum"),
    [((3, 4, 2), 0, 8, 251), ((3, 4, 2), 0, 15, 237), ((18, 18, 9), 1, 8, 1297), ((18, 18, 9), 1, 15, 1220)],
)
def test_eight_ranks_and_24_microbatches_are_solved_with_a_certificate(times, comm, cap, optimum):
    forward, backward, weight = times
    costs = Costs.make(8, F=forward, B=backward, W=weight, comm=comm)
    instance = Instance(linear(8), 24, costs, Memory.make(8, 8, cap=cap))
    record = solve(instance, time_limit=60, workers=1).record
    assert (record.value, record.bound, record.level) == (optimum, optimum, "certified")


@pytest.mark.parametrize("row", [*range(9), *(pytest.param(row, marks=pytest.mark.slow) for row in (9, 10, 11))])
def test_the_published_schedules_of_table_5_under_the_cap_of_p_forwards_are_matched_and_certified(row):
    given_row = json.loads((DATA / "zb_table5.json").read_text())["rows"][row]
    p, get = given_row["p"], given_row.__getitem__
    memory = Memory.make(p, p, F=get("mem_F"), B=get("mem_B"), W=get("mem_W"), cap=get("cap_zb1p"))
    costs = Costs.make(p, F=get("F"), B=get("B"), W=get("W"), comm=get("comm"))
    record = solve(Instance(linear(p), get("m"), costs, memory, "span"), time_limit=60, workers=1).record
    assert record.value == given_row["schedules"]["ZB-1p"]["span"]
    assert record.level == "certified"


def every_order(instance: Instance, rank: int):
    """Every order of one rank's ops in which each microbatch of a stage runs F, B, W (or F, BW), under its cap."""
    kinds = ("F", *instance.costs.backward_kinds)
    lines = [
        (s, j) for j in range(instance.microbatches) for s in range(instance.stages) if instance.rank_of(s, j) == rank
    ]
    cap = instance.memory.cap and instance.memory.cap[rank] - instance.memory.static[rank]
    for labels in set(permutations([line for line in lines for _ in kinds])):
        seen, row, level, peak = dict.fromkeys(lines, 0), [], 0, 0
        for stage, j in labels:
            kind = kinds[seen[stage, j]]
            seen[stage, j] += 1
            level += instance.memory.of(kind, stage)
            peak = max(peak, level)
            row.append(Op(kind, stage, j))
        if cap is None or peak <= cap:
            yield tuple(row)


def brute_force(instance: Instance) -> int:
    """The least objective of all schedules without pairs, whatever the microbatch order."""
    best = None
    time_of = align if instance.objective == "span" else replay
    for orders in product(*(list(every_order(instance, rank)) for rank in range(instance.ranks))):
        try:
            value = time_of(Schedule(orders), instance).value(instance.objective)
        except ScheduleError:
            continue
        best = value if best is None else min(best, value)
    return best


TINY = [
    (linear(2), 2, (3, 2, 1), 1, (2, -1, -1), 2, "makespan"),
    (linear(2), 2, (3, 2, 1), 1, (2, -1, -1), 3, "span"),
    (linear(2), 2, (1, 4, 3), 2, (3, 0, -3), None, "span"),
    (linear(2), 2, (2, 1, 5), 0, (2, -2, 0), 2, "makespan"),
    (linear(3), 2, (2, 3, None), 1, (1, -1, 0), 1, "makespan"),
    (linear(2), 3, (3, 4, None), 2, (1, -1, 0), 2, "makespan"),
    (vee(1), 2, (2, 3, None), 0, (1, -1, 0), 3, "span"),
    (vee(2), 1, (2, 1, 2), 1, (1, 0, -1), 2, "makespan"),
    (bidirectional(2), 2, (2, 3, None), 1, (1, -1, 0), 2, "makespan"),
    (custom([[0, 1], [2, 1]]), 2, (2, 3, 1), 1, (2, -1, -1), None, "span"),
    (custom([[0, 1], [2, 1]]), 2, (5, 1, 2), 3, (2, -1, -1), 2, "span"),
]


@pytest.mark.parametrize("case", TINY, ids=range(len(TINY)))
def test_tiny_instances_get_the_optimum_over_all_orders(case):
    placement, microbatches, (f, b, w), comm, (take, at_b, at_w), cap, objective = case
    costs = Costs.make(placement.stages, F=f, B=b, W=w, comm=comm)
    memory = Memory.make(placement.stages, placement.ranks, F=take, B=at_b, W=at_w, cap=cap)
    instance = Instance(placement, microbatches, costs, memory, objective)
    solution = solve(instance, time_limit=30, workers=1)
    check_solution(instance, solution)
    assert solution.record.value == solution.record.bound == brute_force(instance)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(instances(max_microbatches=3))
def test_any_instance_under_its_least_cap_gets_a_schedule_that_holds_and_is_not_below_the_bound(loose):
    routes = set(loose.route_of_microbatch)
    caps = tuple(max(loose.least_memory(r, k) for k in routes) + r for r in range(loose.ranks))
    instance = loose.with_cap(caps)
    check_solution(instance, solve(instance, time_limit=0.4, workers=1))


def open_instance(objective: str = "makespan") -> Instance:
    """An instance that takes far longer to prove than the tests wait."""
    costs = Costs.make(16, F=[5, 6, 4, 7] * 4, B=[9, 6, 8, 7] * 4, W=[3, 4, 5, 2] * 4, comm=2)
    return Instance(vee(8), 20, costs, Memory.make(16, 8, F=3, B=-1, W=-2, cap=21), objective)


def test_the_same_seed_with_one_worker_gives_the_same_schedule_when_effort_ends_the_search(
    monkeypatch,
):
    monkeypatch.setattr(driver, "_EFFORT_PER_SECOND", 0.02)
    costs = Costs.make(6, F=[5, 6, 4, 7, 3, 6], B=[9, 6, 8, 7, 9, 5], W=[3, 4, 5, 2, 4, 3], comm=2)
    instance = Instance(vee(3), 6, costs, Memory.make(6, 3, F=3, B=-1, W=-2, cap=10))
    first, second = (solve(instance, time_limit=60, workers=1, seed=5) for _ in range(2))
    assert first.record.stopped == second.record.stopped == "effort"
    assert first.schedule == second.schedule
    assert first.record.bound == second.record.bound


def test_a_time_limit_ends_the_search_with_the_best_so_far():
    begun = time.monotonic()
    solution = solve(open_instance(), time_limit=3, workers=2)
    assert time.monotonic() - begun < 8
    check_solution(open_instance(), solution)
    assert solution.record.stopped == "time"
    assert solution.record.level == "open"


def test_ctrl_c_inside_cp_sat_ends_the_search_with_the_best_so_far():
    sources = []
    timer = threading.Timer(4.0, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    try:
        solution = solve(open_instance(), time_limit=60, workers=2, on_progress=lambda p: sources.append(p.value))
    finally:
        timer.cancel()
    check_solution(open_instance(), solution)
    assert solution.record.stopped == "interrupted"
    assert solution.record.seconds < 20
    assert sources[-1] == solution.record.value


def test_progress_never_gets_worse():
    seen = []
    solve(open_instance("span"), time_limit=3, workers=1, on_progress=seen.append)
    values = [p.value for p in seen if p.value is not None]
    assert values == sorted(values, reverse=True)
    assert [p.bound for p in seen] == sorted(p.bound for p in seen)


def test_an_objective_given_to_solve_overrides_the_instance():
    instance = open_instance().with_(microbatches=2)
    assert solve(instance, time_limit=1, objective="span").record.objective == "span"


def test_a_cap_below_one_microbatch_is_refused_with_the_rank_and_the_need():
    with pytest.raises(InstanceError, match="rank 0 = 1, but one microbatch alone needs 2 there"):
        Instance(linear(2), 3, Costs.make(2, F=1, B=1), Memory.make(2, 2, F=2, cap=1))


@pytest.mark.parametrize(("argument", "value"), [("time_limit", 0), ("time_limit", -1.0), ("workers", -1)])
def test_senseless_arguments_are_refused(argument, value):
    with pytest.raises(BubbleproofError, match=f"= {value}"):
        solve(open_instance(), **{argument: value})


def test_a_first_answer_with_a_gap_comes_without_importing_a_solver_or_an_array_library():
    code = """
import sys
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import custom, linear
from bubbleproof.solver import driver, solve
costs = Costs.make(32, F=10402, B=10248, W=7698, comm=460)
instance = Instance(linear(32), 256, costs, Memory.make(32, 32, F=2, B=-1, cap=128), "span")
def stop(progress):
    if progress.value is not None and progress.value < 2 * progress.bound:
        print("ortools" in sys.modules, "numpy" in sys.modules, flush=True)
        import os
        os._exit(0)
solve(instance, on_progress=stop)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ortools, numpy = done.stdout.split()
    assert (ortools, numpy) == ("False", "False")
