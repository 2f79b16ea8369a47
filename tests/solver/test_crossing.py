"""The rule `crossing`: no bound exceeds an optimum, and caps below the number of ranks are no longer loose."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import msgspec
import pytest

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance, Objective
from bubbleproof.schedules.placement import custom, linear
from bubbleproof.solver.bounds import lower_bounds
from bubbleproof.solver.cpsat.objective import Question
from bubbleproof.solver.crossing import Rising, kept, places
from bubbleproof.solver.flat import Flat
from bubbleproof.verify.certificate import Certificate, check
from bubbleproof.verify.crossing import Crossings, crossings
from bubbleproof.verify.normal_form import Refused, Step

ENOUGH = 10**9


def raised(place: Rising, most: int = 400_000) -> Rising:
    """A place with all that the rule gives there, unless that takes too many comparisons."""
    for certificate in place.rise(0, ENOUGH, most):
        assert certificate.value == place.bound
    return place


def unit(p: int, m: int, cap: int, times: tuple[int, int, int] = (1, 1, 1), comm: int = 0) -> Instance:
    f, b, w = times
    return Instance(linear(p), m, Costs.make(p, F=f, B=b, W=w, comm=comm), Memory.make(p, p, cap=cap))


def draw(rng: random.Random) -> Instance:
    """A pipeline with caps of few microbatches: equal or unequal ranks, messages, split or fused, two-part memory."""
    p, m, equal = rng.choice([2, 3, 3, 4]), rng.choice([4, 5, 6, 7]), rng.random() < 0.6

    def some(low: int, high: int) -> list[int]:
        return [rng.randint(low, high)] * p if equal else [rng.randint(low, high) for _ in range(p)]

    split = rng.random() < 0.85
    edges = {(a, b): rng.randint(0, 2) for a in range(p) for b in range(p) if abs(a - b) == 1}
    comm = rng.choice([0, 1, 2]) if rng.random() < 0.7 else edges
    costs = Costs.make(p, F=some(1, 6), B=some(1, 6), W=some(0, 6) if split else None, comm=comm)
    taken = some(1, 6)
    kept = [rng.randint(0, taken[0])] * p if equal else [rng.randint(0, a) for a in taken]
    freed = [q - a for a, q in zip(taken, kept, strict=True)]
    cap = tuple(a * rng.randint(2, max(2, p)) + rng.choice([0, 0, 1, 2]) for a in taken)
    memory = replace(Memory.make(p, p, F=taken, B=freed if split else None), cap=cap)
    objective: Objective = rng.choice(["makespan", "span"])
    return Instance(linear(p), m, costs, memory, objective)


def attack(seeds: range) -> tuple[int, int]:
    """(instances in which the rule gives more than all others, those of them in which it gives the optimum)."""
    better = met = 0
    for seed in seeds:
        instance = draw(random.Random(seed))
        found = [raised(place) for place in places(instance)]
        if not found:
            continue
        best = max(found, key=lambda place: place.bound)
        verdict = check(instance, best.certificate)
        assert verdict.accepted
        if best.exhausted:
            assert verdict.proved == best.bound
            assert not check(instance, msgspec.structs.replace(best.certificate, value=best.bound + 1)).accepted
        if best.bound > lower_bounds(instance)[0].value:
            better += 1
            flat = Flat(instance)
            for length, expected in ((best.bound - 1, False), (best.bound, True)):
                question = Question(flat, length, effort=2.0, seconds=20, seed=0, linearization=0, hint=None)
                reached = question.ask().verdict == "found"
                assert expected or not reached, (instance, best.certificate)
                met += expected and reached
    return better, met


def test_no_schedule_of_random_pipelines_is_shorter_than_the_bound() -> None:
    better, met = attack(range(800))
    assert better >= 25
    assert met >= better // 2


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 9000, 1000))
def test_no_schedule_of_thousands_of_random_pipelines_is_shorter_than_the_bound(start: int) -> None:
    assert attack(range(start, start + 1000))[0] >= 25


@pytest.mark.parametrize(("cap", "m", "optimum"), [(3, 8, 31), (3, 12, 44), (3, 16, 57), (3, 24, 84), (2, 8, 41)])
def test_known_optima_of_four_ranks_below_the_cap_of_four_are_certified(cap: int, m: int, optimum: int) -> None:
    instance = unit(4, m, cap)
    assert lower_bounds(instance)[0].value < optimum
    place = raised(places(instance)[0])
    assert place.exhausted
    assert place.bound == optimum
    assert check(instance, place.certificate).accepted


def test_eight_ranks_with_room_for_five_microbatches_wait_for_each_other_in_every_pattern() -> None:
    place = raised(places(unit(8, 24, 5, (18, 18, 9), 1))[0], 5_000_000)
    assert (place.exhausted, place.bound) == (True, 1753)


def test_the_enumeration_agrees_with_trying_all_integers() -> None:
    rng = random.Random(5)
    for _ in range(60):
        p, n = rng.choice([2, 3]), rng.choice([2, 3])
        f, b, c, w = rng.randint(1, 5), rng.randint(1, 5), rng.randint(0, 2), rng.randint(0, 6)
        turn = f + b + 2 * c
        x = Crossings(p, n, turn, 2 * c, f, p * turn + w - 2 * c, f + b + w)
        count = n + rng.randint(0, 4 - n)
        pairs = [(i, j) for j in range(count + 1) for i in range(max(0, j - n + 1), j)]
        least = min(
            longest(x, count, dict(zip(pairs, steps, strict=True)))
            for steps in product(range(1, p + 1), repeat=len(pairs))
        )
        every = range(count + 1)
        assert x.least(every, least)[0] == least
        assert x.least(every, least + 100)[0] == least
        assert x.least(every, least - 1)[0] is None


def test_fewer_microbatches_that_meet_never_give_more_than_an_optimum_and_sometimes_all_of_it() -> None:
    assert fewer(range(600)) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 9000, 1000))
def test_fewer_microbatches_of_thousands_of_pipelines_never_give_more_than_an_optimum(start: int) -> None:
    assert fewer(range(start, start + 1000)) >= 5


def fewer(seeds: range) -> int:
    """Of how many random pipelines some of the microbatches, chosen at random, give more than all other rules."""
    better = 0
    for seed in seeds:
        rng = random.Random(seed)
        instance = draw(rng)
        found = places(instance)
        if not found:
            continue
        inner = [j for j in range(1, instance.microbatches - 1) if rng.random() < 0.6]
        some = (0, *inner, instance.microbatches - 1)
        place = raised(Rising(instance, found[0].rank, found[0].via, some))
        assert place.certificate.windows == some
        assert check(instance, place.certificate).accepted
        if place.exhausted:
            assert not check(instance, msgspec.structs.replace(place.certificate, value=place.bound + 1)).accepted
        if place.bound > lower_bounds(instance)[0].value:
            better += 1
            flat = Flat(instance)
            question = Question(flat, place.bound - 1, effort=2.0, seconds=20, seed=0, linearization=0, hint=None)
            assert question.ask().verdict != "found", (instance, place.certificate)
    return better


def test_what_meets_is_named_in_order_from_the_first_microbatch_to_the_last() -> None:
    instance = unit(4, 8, 3)
    for windows in ((0,), (1, 7), (0, 6), (0, 3, 3, 7), (0, 4, 2, 7), (0, 7, 8), (-1, 0, 7)):
        claim = Certificate(rule="crossing", objective="makespan", value=1, rank=0, windows=windows)
        verdict = check(instance, claim)
        assert not verdict.accepted
        assert "0 the first and 7 the last" in verdict.reason


def test_two_or_three_of_each_nine_microbatches_in_flight_beat_the_windows_of_many_ranks() -> None:
    instance = unit(16, 64, 9, (18, 18, 12), 1)
    others = lower_bounds(instance)[0].value
    bounds = []
    for some in list(kept(64, 9))[:2]:
        place = raised(Rising(instance, 0, -1, some), 4_000_000)
        assert check(instance, place.certificate).accepted
        bounds.append(place.bound)
    assert max(bounds) > others  # which ones are kept matters: more of them may give less


def longest(x: Crossings, count: int, steps: dict[tuple[int, int], int]) -> int:
    """The value of the last microbatch for given integers, by the definition in docs/bounds.md."""
    g: dict[int, int] = {}
    complete: list[int] = []
    for j in range(count + 1):
        v = j * x.forward
        if j >= x.cap:
            complete.append(g[j - x.cap])
            v = x.lap + max(value + u * x.load for u, value in enumerate(reversed(complete)))
        for i in range(max(0, j - x.cap + 1), j):
            h, old = steps[i, j], g[i]
            if h < x.ranks:
                g[i] = max(old, v - h * x.turn)
            v = max(v, old + h * x.turn - x.slack)
        g[j] = v
    return g[count]


def test_the_rule_says_where_it_does_not_apply() -> None:
    for instance, rank, reason in (
        (unit(4, 8, 3), 3, "needs two ranks"),
        (unit(4, 8, 1), 0, "at least two microbatches"),
        (unit(4, 3, 3), 0, "less than all"),
        (replace(unit(4, 8, 3), memory=Memory.make(4, 4)), 0, "cannot be counted"),
        (Instance(custom([0, 1, 0]), 8, Costs.make(3, F=1, B=1), Memory.make(3, 2, cap=4)), 0, "one chunk per rank"),
    ):
        claim = Certificate(rule="crossing", objective="makespan", value=1, rank=rank)
        verdict = check(instance, claim)
        assert not verdict.accepted
        assert reason in verdict.reason


def test_w_counts_only_where_a_forward_has_to_wait_for_it() -> None:
    def lap(memory_b: int, times: tuple[int, int, int], cap: int) -> int:
        f, b, w = times
        memory = Memory.make(4, 4, F=6, B=memory_b, cap=cap)
        return crossings(Step(Instance(linear(4), 8, Costs.make(4, F=f, B=b, W=w), memory)), 0).lap

    assert lap(0, (1, 2, 1), 18) == 4 * 3 + 1  # all is freed at W
    assert lap(-4, (1, 2, 1), 18) == 4 * 3 + 1  # one B gives room for two W more, and lasts as long as both
    assert lap(-4, (1, 1, 1), 18) == 4 * 2  # it does not
    assert lap(-4, (1, 2, 1), 20) == 4 * 3  # three forwards and one W fit at once
    assert lap(-6, (1, 2, 1), 18) == 4 * 3  # nothing is left for W to free


def test_solve_reports_the_rule_as_its_proof() -> None:
    from bubbleproof.solver import solve

    record = solve(unit(4, 16, 3), time_limit=20, workers=1).record
    assert (record.value, record.bound, record.level, record.proof) == (57, 57, "certified", "crossing")


def test_a_rank_without_the_rule_is_refused_before_anything_is_counted() -> None:
    with pytest.raises(Refused):
        Rising(unit(4, 8, 3), 3, -1)
