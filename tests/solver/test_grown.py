"""Answers for many microbatches that are written down from few equal those that are timed op by op."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import custom, linear, loop, vee
from bubbleproof.schedules.table import Table
from bubbleproof.schedules.timeline import replay
from bubbleproof.solver import grown, solve
from bubbleproof.solver.budget import Budget
from bubbleproof.solver.flat import Flat, least_span, peaks, replay_flat
from bubbleproof.solver.grown import grow
from bubbleproof.solver.heuristics import greedy
from bubbleproof.solver.periodic import Word, Words, find_period
from bubbleproof.solver.search import Search
from bubbleproof.solver.tuning import grid
from bubbleproof.verify import Verdict, verify
from bubbleproof.verify.bulk import prove_starts

PLACES = {"linear": linear, "vee": vee, "loop": lambda p: loop(p, 2)}


@pytest.fixture(autouse=True)
def _also_small_ones(monkeypatch):
    monkeypatch.setattr(grown, "_FEW_OPS", 0)


def an_instance(p, m, stage_times, cap, place, objective):
    placement = place(p)
    n = placement.stages
    f, b, w = (list(stage_times[kind][:n]) for kind in range(3))
    memory = Memory.make(n, p, F=2, B=-1, W=-1, cap=cap)
    return Instance(placement, m, Costs.make(n, F=f, B=b, W=w, comm=1), memory, objective)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    place=st.sampled_from(sorted(PLACES)),
    p=st.integers(2, 4),
    times=st.tuples(*[st.lists(st.integers(1, 5), min_size=8, max_size=8)] * 3),
    cap=st.integers(8, 40),
    which=st.integers(0, 8),
    more=st.integers(1, 60),
    objective=st.sampled_from(["makespan", "span"]),
)
def test_what_is_written_down_is_what_timing_every_op_gives(place, p, times, cap, which, more, objective):
    instance = an_instance(p, 40, times, cap, PLACES[place], objective)
    flat = Flat(instance)
    orders = greedy(flat, list(grid(flat))[which])
    words = None if orders is None else next(filter(None, (find_period(flat, orders, (s,)) for s in (1, 2, 3))), None)
    if words is None:
        return
    large = Flat(instance.with_(microbatches=40 + more * words.period))
    n = words.rounds + more
    found = grow(large, words, n)
    if found is None:
        return
    assert found.orders == words.orders(n)
    assert found.schedule == large.schedule(words.orders(n))
    assert found.makespan == replay(found.schedule, large.instance).makespan
    assert found.peak == tuple(peaks(large, words.orders(n)))
    reference = (least_span if objective == "span" else replay_flat)(large, words.orders(n))
    assert reference is not None
    assert found.value(objective) >= (reference.span if objective == "span" else reference.makespan)
    if objective == "makespan":
        assert found.timed_makespan == found.makespan
    claims = {"makespan": found.timed_makespan, "span": found.span, "peak": list(found.peak)}
    report = verify(found.schedule, large.instance, timeline=found.timeline.starts, claims=claims)
    assert report.verdict is Verdict.PROVED


def grown_answer(objective="span", m=200):
    placement = linear(4)
    costs = Costs.make(4, F=18, B=18, W=9, comm=1)
    instance = Instance(placement, m, costs, Memory.make(4, 4, F=1, B=0, W=-1, cap=4), objective)
    flat = Flat(instance.with_(microbatches=20))
    orders = greedy(flat, next(grid(flat)))
    words = find_period(flat, orders, (1,))
    found = grow(Flat(instance), words, words.rounds + m - 20)
    assert found is not None
    return instance, found


def test_starts_that_come_a_moment_too_early_are_refused():
    instance, found = grown_answer()
    assert prove_starts(found.table, instance, found.starts) is not None
    refused = 0
    for at in range(0, len(found.starts), 7):
        starts = found.starts.copy()
        starts[at] -= 1
        refused += prove_starts(found.table, instance, starts) is None
    assert refused > len(found.starts) // 7 * 9 // 10  # the others had time to spare


@pytest.mark.parametrize(("cap", "holds"), [(1, False), (2, True)])
def test_a_cap_that_only_the_steady_state_exceeds_is_refused(cap, holds):
    """One rank: a microbatch alone at either end, two at a time in between."""
    instance = Instance(linear(1), 402, Costs.make(1, F=1, B=1, W=1), Memory.make(1, 1, F=1, B=0, W=-1, cap=cap))
    alone = [0, 1, 2]
    words = Words(Flat(instance.with_(microbatches=10)), (2,), (Word(alone, [0, 0, 1, 1, 2, 2], alone),), 4)
    found = grow(Flat(instance), words, 200)
    assert (found is not None) == holds
    assert found is None or (found.peak, found.makespan) == ((2,), 3 * 402)


def test_an_order_that_deadlocks_is_refused_whatever_starts_are_claimed():
    """0B0 before its forward is possible on no timeline; and where ops last no time, starts alone prove nothing."""
    instance, found = grown_answer()
    rows = [list(row) for row in found.schedule.orders]
    rows[0][0], rows[0][5] = rows[0][5], rows[0][0]
    table = Table.of(type(found.schedule).of(rows))
    assert prove_starts(table, instance, found.starts) is None
    nothing = instance.with_(costs=Costs.make(4, F=0, B=0, W=0, comm=0))
    assert prove_starts(found.table, nothing, np.zeros_like(found.starts)) is None


def test_a_row_too_short_is_refused():
    instance, found = grown_answer()
    assert prove_starts(found.table, instance, found.starts[:-1]) is None


def test_rows_of_other_ranks_are_refused():
    found = grown_answer("makespan")[1]
    words = found.words
    changed = (words.rows[1], words.rows[0], *words.rows[2:])
    assert grow(found.flat, Words(words.flat, words.steps, changed, words.rounds), found.n) is None


def test_the_search_keeps_orders_and_figures_of_what_was_written_down():
    instance, found = grown_answer()
    search = Search(instance, Budget(10, 1.0), 0, 1, None)
    search.offer_words(found.words, found.n, "test")
    assert search.grown is not None
    assert search.value == found.span == search.measure(found.orders)
    assert search.orders == found.orders
    assert search.schedule == found.schedule
    search.offer(found.orders, "the same again")
    assert search.grown is not None


@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_a_solution_makes_its_ops_when_they_are_asked_for(objective):
    instance = grown_answer(objective, 1000)[0]
    solution = solve(instance, time_limit=10, workers=1)
    assert isinstance(solution.answer, grown.Grown)
    record = solution.record
    claims = {"makespan": solution.timeline.makespan, "span": record.span, "peak": list(record.peak)}
    report = verify(solution.schedule, instance, timeline=solution.timeline.starts, claims=claims)
    assert report.verdict is Verdict.PROVED
    assert record.makespan == replay(solution.schedule, instance).makespan
    assert record.value == solution.timeline.value(objective)


@pytest.mark.parametrize(
    ("edges", "gangs"), [(((0, 2), (1, 2)), {}), ((), {0: (0, 1)})], ids=["two sources", "a stage on two ranks"]
)
def test_stages_that_are_no_plain_chain_are_timed_op_by_op(edges, gangs):
    placement = custom([0, 1, 0], 2, edges=edges, gangs=gangs)
    instance = Instance(placement, 400, Costs.make(3, F=1, B=2, W=1, comm=1), Memory.make(3, 2, F=1, B=0, W=-1, cap=6))
    solution = solve(instance, time_limit=2, workers=1)
    assert not isinstance(solution.answer, grown.Grown)
    claims = {"makespan": solution.timeline.makespan, "peak": list(solution.record.peak)}
    assert (
        verify(solution.schedule, instance, timeline=solution.timeline.starts, claims=claims).verdict is Verdict.PROVED
    )
    rows = [start for row in solution.timeline.starts for start in row]
    assert prove_starts(Table.of(solution.schedule), instance, np.array(rows, np.int64)) is None
