"""`solve_every`: one pattern for every number of microbatches, proved, with a bound for all of them."""

import random
from fractions import Fraction

import pytest

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import BubbleproofError
from bubbleproof.schedules.formats import pattern_json
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import bidirectional, linear, vee
from bubbleproof.schedules.timeline import replay
from bubbleproof.solver import solve_every
from bubbleproof.solver.bounds import lower_bounds
from bubbleproof.verify import Verdict, verify
from bubbleproof.verify.induction import induct


def an_instance(p, times, cap, place=linear, objective="makespan"):
    f, b, w, c = times
    placement = place(p)
    n = placement.stages
    costs = Costs.make(n, F=f, B=b, W=w, comm=c)
    return Instance(placement, 10, costs, Memory.make(n, p, F=1, B=0, W=-1, cap=cap), objective)


def length(record, m):
    value = Fraction(record.constant) + Fraction(record.per_microbatch) * m
    assert value.denominator == 1
    return int(value)


CERTIFIED = [
    (an_instance(8, (18, 18, 9, 1), 8), "217", "45"),
    (an_instance(8, (18, 18, 9, 1), 15), "140", "45"),
    (an_instance(8, (3, 4, 2, 0), 8), "35", "9"),
    (an_instance(8, (3, 4, 2, 0), 15), "21", "9"),
    (an_instance(16, (18, 18, 9, 1), 16), "465", "45"),
    (an_instance(4, (18, 18, 9, 1), 4, objective="span"), "93", "45"),
    (an_instance(8, (1, 1, 1, 0), 10, vee), "17", "6"),
    (an_instance(8, (1, 1, 1, 0), 16, vee), "7", "6"),
]


@pytest.mark.parametrize(("instance", "constant", "slope"), CERTIFIED)
def test_optimal_for_every_number_of_microbatches(instance, constant, slope):
    solution = solve_every(instance, time_limit=20, workers=1)
    (found,) = solution.classes
    record = found.record
    assert (record.constant, record.per_microbatch, record.level, record.excess) == (constant, slope, "certified", 0)
    assert solution.certified
    assert induct(found.pattern, instance).verdict == Verdict.PROVED
    rng = random.Random(0)
    for m in [record.least, record.compared_from, *(rng.randint(record.compared_from, 300) for _ in range(2))]:
        at = instance.with_(microbatches=m)
        schedule = found.pattern.schedule(found.pattern.blocks(m))
        assert verify(schedule, at).verdict == Verdict.PROVED
        if instance.objective == "makespan":
            assert replay(schedule, at).makespan <= length(record, m)
        if m >= record.compared_from:
            assert max(c.value for c in lower_bounds(at)) == length(record, m)


def test_a_tight_cap_needs_several_microbatches_per_block_and_a_pattern_for_each_class():
    """p = 4, unit times, cap 3: memory sets the period, and one microbatch per block is too slow."""
    instance = an_instance(4, (1, 1, 1, 0), 3)
    solution = solve_every(instance, time_limit=6, workers=1)
    assert not solution.certified
    assert len(solution.classes) == solution.classes[0].record.modulus > 1
    assert [found.record.residue for found in solution.classes] == list(range(len(solution.classes)))
    for found in solution.classes:
        assert Fraction(found.record.per_microbatch) < 4
        assert found.record.level == "open"
        for n in (found.pattern.least, 20):
            m = found.pattern.microbatches(n)
            assert verify(found.pattern.schedule(n), instance.with_(microbatches=m)).verdict == Verdict.PROVED


def test_two_routes_have_a_pattern_for_even_and_one_for_odd_numbers():
    instance = an_instance(2, (1, 2, 1, 0), 8, bidirectional)
    solution = solve_every(instance, time_limit=6, workers=1)
    assert [(c.record.modulus, c.record.residue) for c in solution.classes] == [(2, 0), (2, 1)]
    for found in solution.classes:
        assert found.record.certificate.rule == "load"
        at = found.pattern.instance(instance, found.pattern.least + 3)
        assert verify(found.pattern.schedule(found.pattern.least + 3), at).verdict == Verdict.PROVED


def test_costs_per_microbatch_are_refused_with_what_comes_nearest():
    varying = Instance(linear(2), 3, Costs.make(2, F=[[1, 2, 3], 4], B=1, W=1), Memory.make(2, 2))
    with pytest.raises(
        BubbleproofError, match=r"the same cost and memory for each .* each of 3\. Nearest: the greatest"
    ):
        solve_every(varying, time_limit=1)


def test_the_pattern_file_keeps_times_and_bound(tmp_path):
    (found,) = solve_every(CERTIFIED[2][0], time_limit=20, workers=1).classes
    at = found.pattern.instance(CERTIFIED[2][0], found.pattern.least)
    pattern_json.save(tmp_path / "p.json", found.pattern, at, {"rule": "window"})
    again = pattern_json.load_file(tmp_path / "p.json")
    assert (again.pattern, again.instance, again.bound) == (found.pattern, at, {"rule": "window"})
    assert again.pattern.timed


def test_progress_tells_of_each_better_pattern():
    told = []
    solve_every(CERTIFIED[0][0], time_limit=20, workers=1, on_progress=told.append)
    assert told[-1].value == told[-1].bound == 1297
    assert told[-1].source == "greedy; 45 per microbatch"
