"""Recompute as a choice per op: bounds hold with it, and the solver is as good as all schedules of tiny instances."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import ScheduleError
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Op
from bubbleproof.schedules.placement import Placement, custom, linear, loop
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import replay
from bubbleproof.solver import solve
from bubbleproof.solver.bounds import lower_bounds
from bubbleproof.solver.measure import timeline_of
from bubbleproof.verify import Verdict, verify
from bubbleproof.verify.certificate import check


def orders(instance: Instance, rank: int) -> Iterator[tuple[Op, ...]]:
    """Every order of one rank that keeps its cap, whatever it recomputes and fuses, in any order of microbatches."""
    costs, memory = instance.costs, instance.memory
    cells = [(s, j) for j in range(instance.microbatches) for s in range(instance.stages)]
    cap = memory.cap[rank]

    def choices(state: str, s: int) -> Iterator[tuple[str, str, int]]:
        if not state:
            yield "F", "whole", memory.F[s]
            yield "F", "stash", memory.F[s] - memory.R[s]
        elif state == "stash":
            yield "R", "whole", memory.R[s]
        elif state == "whole":
            yield "BW", "done", memory.BW[s]
            if costs.split:
                yield "B", "W", memory.B[s]
        elif state == "W":
            yield "W", "done", memory.W[s]

    def extend(order: tuple[Op, ...], states: dict[tuple[int, int], str], level: int) -> Iterator[tuple[Op, ...]]:
        if all(state == "done" for state in states.values()):
            yield order
        for (s, j), state in states.items():
            for kind, then, change in choices(state, s):
                if level + change <= cap:
                    yield from extend((*order, Op(kind, s, j)), {**states, (s, j): then}, level + change)

    mine = {cell: "" for cell in cells if instance.rank_of(*cell) == rank}
    yield from extend((), mine, memory.static[rank])


def best_by_recomputes(instance: Instance) -> dict[int, int]:
    """For each number of recomputed ops the least objective of all schedules."""
    best: dict[int, int] = {}
    for rows in product(*(list(orders(instance, rank)) for rank in range(instance.ranks))):
        schedule = Schedule(rows)
        try:
            value = timeline_of(schedule, instance).value()
        except ScheduleError:
            continue
        count = len(schedule.again)
        best[count] = min(value, best.get(count, value))
    return best


def instance(placement: Placement, m: int, objective="makespan", memory=(2, 1), cap=3, free=None, **costs) -> Instance:
    stages = placement.stages
    taken, spare = memory
    kept = Memory.make(stages, placement.ranks, F=taken, R=spare, cap=cap, B=free)
    return Instance(placement, m, Costs.make(stages, **costs), kept, objective)


TINY = [
    instance(linear(1), 3, F=1, B=2, R=1),
    instance(linear(2), 2, F=1, B=2, R=2, comm=1),
    instance(linear(2), 2, "span", F=2, B=[1, 3], R=1, comm=2),
    instance(linear(2), 2, F=[3, 1], B=2, R=[1, 3], memory=(4, 3), cap=5),
    instance(linear(2), 2, F=1, B=1, W=1, R=1, memory=(3, 2), cap=4, free=-1),
    pytest.param(
        instance(linear(2), 2, "span", F=1, B=2, W=1, R=0, memory=(3, 2), cap=4, free=-2), marks=pytest.mark.slow
    ),
    instance(loop(1, 2), 2, F=1, B=1, R=2, memory=(4, 3), cap=6),
    pytest.param(instance(custom([0, 1, 0]), 2, F=1, B=1, R=1, memory=(2, 1), cap=[3, 2]), marks=pytest.mark.slow),
    instance(linear(3), 2, F=1, B=1, R=1, memory=(3, 2), cap=[4, 3, 3]),
]


@pytest.mark.parametrize("tiny", TINY, ids=range(len(TINY)))
def test_the_solver_is_as_good_as_every_schedule_and_no_bound_is_above(tiny):
    best = min(best_by_recomputes(tiny).values())
    for bound in lower_bounds(tiny):
        assert bound.value <= best
        assert check(tiny, bound).accepted
    solution = solve(tiny, time_limit=30, workers=1)
    assert solution.record.value == best
    assert solution.record.bound <= best
    assert verify(solution.schedule, tiny).verdict is Verdict.PROVED


def test_recomputing_some_ops_can_beat_recomputing_none_and_all():
    """Two ranks, two microbatches, room for one and two thirds: 28 with none, 25 with all four, 20 with one."""
    tiny = instance(linear(2), 2, F=2, B=3, R=3, comm=2, memory=(3, 2), cap=5)
    best = best_by_recomputes(tiny)
    assert (best[0], best[4], min(best.values())) == (28, 25, 20)
    solution = solve(tiny, time_limit=30, workers=1)
    assert solution.record.value == 20
    assert 0 < len(solution.schedule.again) < 4
    assert solution.record.level == "solver-claimed"


def test_what_cannot_run_without_recompute_runs_with_it():
    """Both chunks of the only rank together exceed the cap; a stash of the first leaves room for the second."""
    solution = solve(instance(loop(1, 2), 3, F=1, B=1, R=1, memory=(4, 3), cap=6), time_limit=10, workers=1)
    assert solution.schedule.again
    assert solution.timeline.peaks[0].memory <= 6


def test_recompute_halves_a_step_that_memory_holds_up():
    """Eight ranks with room for three microbatches; without recompute 2,465,800 is proved to be the best."""
    big = Instance.load("examples/recompute-p8-m32.toml")
    solution = solve(big, time_limit=4, workers=1)
    assert solution.record.value < 1_320_000
    assert not any("no loss" in note for note in solution.record.notes)
    assert verify(solution.schedule, big).verdict is Verdict.PROVED


def test_without_a_cap_nothing_is_recomputed():
    free = instance(linear(2), 3, F=1, B=2, R=2, comm=1).with_cap(None)
    solution = solve(free, time_limit=10, workers=1)
    assert not solution.schedule.again
    assert solution.record.level != "open"
    assert replay(solution.schedule, free).makespan == solution.record.value
