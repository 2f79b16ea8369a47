"""Kernels of a steady state, and warm-up and cool-down fitted around them."""

import itertools
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import linear, loop, vee
from bubbleproof.solver import solve, solve_every
from bubbleproof.solver.budget import Budget
from bubbleproof.solver.cpsat.constraints import Steady
from bubbleproof.solver.cpsat.kernel import fast_kernel, find_kernel, overlaid
from bubbleproof.solver.cpsat.objective import Question
from bubbleproof.solver.flat import Flat
from bubbleproof.solver.heuristics import greedy, one_at_a_time
from bubbleproof.solver.periodic import cut_period, find_period
from bubbleproof.solver.steady import timed
from bubbleproof.solver.tuning import grid
from bubbleproof.verify import Verdict, verify
from bubbleproof.verify.induction import induct

PLACES = {"linear": linear, "vee": vee, "loop": lambda p: loop(p, 2)}


def an_instance(p, m, times, cap, place=linear, objective="makespan", held=1):
    """F takes 2, B leaves `held` of it, W frees the rest."""
    f, b, w, c = times
    placement = place(p)
    n = placement.stages
    memory = Memory.make(n, p, F=2, B=held - 2, W=-held, cap=cap)
    return Instance(placement, m, Costs.make(n, F=f, B=b, W=w, comm=c), memory, objective)


def fits(rows, lasts, growth, cap, held):
    """Whether ops of two ranks (F, B, W each), repeated for ever, keep apart and within the cap: by laying them out."""
    blocks = 2 + max(max(row) for row in rows) // growth + 1
    for row in rows:
        ops = sorted((row[i] + growth * n, i) for n in range(2 * blocks) for i in range(3))
        for (begin, i), (later, _) in itertools.pairwise(ops):
            if begin + lasts[i] > later:
                return False
        level = 0
        for _, i in ops:
            level += (2, held - 2, -held)[i]
            if level > cap:
                return False
    return True


def some_kernel(lasts, comm, growth, cap, held):
    """Whether two ranks can repeat one microbatch every `growth`: all residues, with the least waits in between."""
    f, b, w = lasts
    for rest in itertools.product(range(growth), repeat=5):

        def after(time, residue):
            return time + (residue - time) % growth

        f1 = after(f + comm, rest[0])
        b1 = after(f1 + f, rest[1])
        b0 = after(b1 + b + comm, rest[2])
        if fits([(0, b0, after(b0 + b, rest[3])), (f1, b1, after(b1 + b, rest[4]))], (f, b, w), growth, cap, held):
            return True
    return False


@pytest.mark.parametrize(
    ("times", "cap", "held"),
    [
        ((1, 1, 1, 0), 2, 2),
        ((1, 1, 1, 0), 4, 2),
        ((1, 1, 1, 1), 4, 2),
        ((1, 1, 1, 0), 3, 1),
        ((1, 1, 1, 1), 3, 1),
        ((1, 2, 1, 0), 3, 1),
        ((2, 1, 1, 0), 2, 0),
        ((1, 1, 1, 1), 6, 2),
    ],
)
def test_the_shortest_period_of_two_ranks_is_that_of_all_ways_to_lay_them_out(times, cap, held):
    flat = Flat(an_instance(2, 4, times, cap, held=held))
    least = sum(times[:3])
    while not some_kernel(times[:3], times[3], least, cap, held):
        least += 1
        assert least < 12
    for growth in range(sum(times[:3]), least + 2):
        answer = find_kernel(flat, 1, growth, effort=10, seconds=60, seed=0)
        assert (answer.kernel is not None, answer.impossible) == (growth >= least, growth < least)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    place=st.sampled_from(sorted(PLACES)),
    times=st.tuples(*[st.integers(1, 4)] * 3, st.integers(0, 2)),
    p=st.integers(2, 4),
    step=st.integers(1, 3),
    cap=st.integers(4, 20),
    held=st.integers(0, 2),
)
def test_a_kernel_repeats_without_deadlock_within_the_caps_and_in_its_period(place, times, p, step, cap, held):
    """The judge decides it for every number of blocks."""
    instance = an_instance(p, 4, times, cap, PLACES[place], held=held)
    kernel = fast_kernel(Flat(instance), step, Fraction(2 * p * sum(times)), Budget(10, 0.4))
    if kernel is None:
        return
    large = Flat(instance.with_(microbatches=step * (kernel_depth(kernel) + 4)))
    words = find_period(large, overlaid(large, kernel), (step,))
    assert words is not None
    found = timed(words, words.apart)
    assert found is not None
    assert found.growth <= kernel.growth
    induction = induct(found.pattern, instance)
    assert induction.verdict is Verdict.PROVED
    for n in (words.apart, words.apart + 7):
        at = instance.with_(microbatches=found.pattern.microbatches(n))
        assert verify(found.pattern.schedule(n), at).verdict is Verdict.PROVED


def kernel_depth(kernel):
    """Blocks in flight."""
    return 1 + max(max(mine) for mine in kernel.starts if mine) // kernel.growth


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    place=st.sampled_from(sorted(PLACES)),
    times=st.tuples(*[st.integers(0, 4)] * 4),
    which=st.integers(0, 5),
    first=st.integers(0, 12),
    more=st.integers(1, 30),
)
def test_orders_cut_at_a_place_can_be_continued(place, times, which, first, more):
    instance = an_instance(2, 24, times, 16, PLACES[place], held=2)
    flat = Flat(instance)
    orders = greedy(flat, list(grid(flat))[which]) or one_at_a_time(flat)
    words = cut_period(flat, orders, (1,), first)
    if words is None:
        return
    assert words.orders(words.rounds) == orders
    larger = Flat(instance.with_(microbatches=24 + more))
    schedule = larger.schedule(words.orders(words.rounds + more))
    if find_period(flat, orders, (1,)) is not None:
        assert verify(schedule, larger.instance).verdict is Verdict.PROVED


def test_a_question_with_a_steady_state_is_answered_by_one():
    """p = 3, unit times, three in flight: 16 microbatches in 50, of which 4 to 11 repeat every 3."""
    flat = Flat(an_instance(3, 16, (1, 1, 1, 0), 6, held=2))
    steady = Steady(1, 3, 4, 11)

    def ask(length):
        question = Question(flat, length, effort=20, seconds=30, seed=0, linearization=0, hint=None, steady=steady)
        return question.ask()

    assert ask(49).verdict == "impossible"
    answer = ask(50)
    assert answer.orders is not None
    words = cut_period(flat, answer.orders, (1,), 4)
    assert words is not None
    assert timed(words, words.apart).growth == 3


def test_a_steady_state_slower_than_memory_allows_is_impossible():
    flat = Flat(an_instance(3, 16, (1, 1, 1, 0), 2, held=2))
    steady = Steady(1, 3, 4, 11)
    question = Question(flat, 400, effort=20, seconds=30, seed=0, linearization=0, hint=None, steady=steady)
    assert question.ask().verdict == "impossible"


def test_where_memory_sets_the_pace_a_kernel_of_all_in_flight_is_faster_than_the_greedy():
    """p = 4, unit times, three in flight: 10 units for three microbatches, whatever m leaves when divided by three."""
    solution = solve_every(an_instance(4, 24, (1, 1, 1, 0), 6, held=2), time_limit=30, workers=1)
    slopes = {found.record.per_microbatch for found in solution.classes}
    assert slopes == {"10/3"}
    for found in solution.classes:
        record = found.record
        for m in (found.pattern.microbatches(found.pattern.least + more) for more in (0, 1, 20)):
            at = an_instance(4, m, (1, 1, 1, 0), 6, held=2)
            schedule = found.pattern.schedule(found.pattern.blocks(m))
            length = Fraction(record.constant) + Fraction(record.per_microbatch) * m
            report = verify(schedule, at)
            assert report.verdict is Verdict.PROVED
            assert solve(at, time_limit=1, workers=1).record.bound <= length
