"""Rearranging a window of a schedule: what it returns is a schedule of the length asked for, and it finds optima."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from ortools.sat.python import cp_model

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import bidirectional, linear, loop, vee
from bubbleproof.solver import solve
from bubbleproof.solver.cpsat.window import Window
from bubbleproof.solver.flat import Flat, least_span, peaks, replay_flat
from bubbleproof.solver.heuristics import one_at_a_time


def draw(rng: random.Random) -> Instance:
    """A small instance with unequal times, messages and two-part memory, and a cap that leaves a little room."""
    placement = rng.choice([linear(3), vee(2), loop(2, 2), bidirectional(2), linear(1)])
    stages = placement.stages

    def times(low: int, high: int) -> list[int]:
        return [rng.randint(low, high) for _ in range(stages)]

    ranks = range(placement.ranks)
    messages = {(a, b): rng.randint(0, 2) for a in ranks for b in ranks if a != b}
    w = times(1, 3) if rng.random() < 0.8 else None
    costs = Costs.make(stages, F=times(1, 4), B=times(1, 4), W=w, comm=messages)
    given_back = [-rng.randint(0, 2) for _ in range(stages)] if costs.split else None
    memory = Memory.make(stages, placement.ranks, F=[rng.randint(2, 3) for _ in range(stages)], B=given_back)
    posed = Instance(placement, rng.randint(2, 4), costs, memory, rng.choice(["makespan", "span"]))
    most = [max(posed.least_memory(r, k) for k in set(posed.route_of_microbatch)) for r in range(posed.ranks)]
    return replace(posed, memory=replace(memory, cap=tuple(n + rng.randint(0, 5) for n in most)))


def value(flat: Flat, orders: list[list[int]]) -> int | None:
    """The objective of orders, None if they deadlock."""
    times = least_span(flat, orders) if flat.instance.objective == "span" else replay_flat(flat, orders)
    return None if times is None else times.span if flat.instance.objective == "span" else times.makespan


def rearranged(flat: Flat, orders: list[list[int]], low: int, high: int, length: int) -> list[list[int]] | None:
    """The orders after a window has been freed; None if CP-SAT found nothing."""
    times = least_span(flat, orders) if flat.instance.objective == "span" else replay_flat(flat, orders)
    assert times is not None
    makespan = flat.instance.objective == "makespan"
    release = [min(times.first)] * flat.ranks if makespan else times.first
    window = Window(flat, orders, times, release, low, high, length, makespan)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = 1
    solver.parameters.catch_sigint_signal = False
    if not window.build() or solver.solve(window.model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return window.arranged(solver)


def test_what_a_window_returns_is_no_longer_than_asked_for_and_keeps_every_cap() -> None:
    found = 0
    for seed in range(150):
        rng = random.Random(seed)
        flat = Flat(draw(rng))
        orders = one_at_a_time(flat)
        old = value(flat, orders)
        assert old is not None
        for _ in range(3):
            low, width = rng.randrange(-2, old), rng.randrange(1, old + 3)
            length = old - rng.randrange(3)
            new = rearranged(flat, orders, low, low + width, length)
            if new is not None:
                found += length < old
                assert [sorted(order) for order in new] == [sorted(order) for order in orders]
                assert all(have <= most for have, most in zip(peaks(flat, new), flat.cap or [], strict=True))
                reached = value(flat, new)
                assert reached is not None
                assert reached <= length
    assert found >= 60


def test_a_window_of_the_whole_makespan_is_the_whole_question() -> None:
    """One rank, cap of one microbatch: nothing is better than one after the other; with a cap of two, p=2 gains."""
    tight = Instance(linear(2), 3, Costs.make(2, F=1, B=1, W=1), Memory.make(2, 2, cap=1))
    flat = Flat(tight)
    orders = one_at_a_time(flat)
    best = value(flat, orders)
    assert best is not None
    while (better := rearranged(flat, orders, 0, 1000, best - 1)) is not None:
        orders, best = better, best - 1
    assert best == solve(tight, time_limit=10, workers=1).record.value
    roomy = Flat(tight.with_cap(3))
    while (better := rearranged(roomy, orders, 0, 1000, best - 1)) is not None:
        orders, best = better, best - 1
    assert best == 3 * 3 + 1


def test_what_lies_outside_of_a_window_keeps_its_order() -> None:
    posed = Instance(vee(2), 4, Costs.make(4, F=1, B=2, W=1), Memory.make(4, 2, cap=4))
    flat = Flat(posed)
    orders = one_at_a_time(flat)
    times = replay_flat(flat, orders)
    assert times is not None
    low, high = 14, 40
    new = rearranged(flat, orders, low, high, times.makespan - 1)
    assert new is not None
    assert new != orders
    for old_row, new_row in zip(orders, new, strict=True):
        taken: dict[int, int] = {}
        for i, queue in enumerate(old_row):
            k = taken.get(queue, 0)
            taken[queue] = k + 1
            end = times.ends[queue][k]
            if end <= low or end - flat.duration[queue] >= high:
                assert new_row[i] == queue


@pytest.mark.parametrize(
    ("times", "cap", "optimum"), [((1, 1, 1), 7, 52), ((5, 8, 3), 6, 306), ((5, 6, 4), 6, 275)], ids=str
)
def test_vees_of_four_ranks_are_solved_and_certified(times: tuple[int, int, int], cap: int, optimum: int) -> None:
    f, b, w = times
    posed = Instance(vee(4), 8, Costs.make(8, F=f, B=b, W=w), Memory.make(8, 4, cap=cap))
    record = solve(posed, time_limit=60, workers=1).record
    assert (record.value, record.level, record.certificate.rule) == (optimum, "certified", "ends")


def test_an_instance_too_large_for_whole_questions_is_improved_by_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if 192 ops were many."""
    from bubbleproof.solver import search

    monkeypatch.setattr(search, "_WHOLE_MODEL", 100)
    posed = Instance(vee(4), 8, Costs.make(8, F=5, B=8, W=3), Memory.make(8, 4, cap=6))
    record = solve(posed, time_limit=60, workers=1).record
    assert (record.value, record.level, record.source) == (306, "certified", "cp-sat on a window")
