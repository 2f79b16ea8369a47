"""The model that proofs refute: every schedule is a solution of it, so refuting it excludes every schedule."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields
from itertools import pairwise

import pytest

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import bidirectional, linear
from bubbleproof.solver.flat import Flat
from bubbleproof.verify.proof import Disjunctive, Model, Unmodelled, build, check_proof, header
from tests.proof_cases import random_instance, random_orders, solution_of, with_its_cap


def broken(model: Model, values: dict[str, int]) -> list[str]:
    """What of a model these values break."""
    found = []
    numbers = [values[v.name] for v in model.variables]
    found += [
        f"{v.name} = {x} in {v.low} … {v.high}"
        for v, x in zip(model.variables, numbers, strict=True)
        if not v.low <= x <= v.high
    ]
    for constraint in model.constraints:
        if isinstance(constraint, Disjunctive):
            busy = sorted((numbers[v], numbers[v] + d) for v, d in constraint.tasks)
            if any(end > start for (_, end), (start, _) in pairwise(busy)):
                found.append(f"overlap {busy}")
        elif constraint.when is None or numbers[constraint.when[0]] == constraint.when[1]:
            total = sum(c * numbers[v] for c, v in constraint.terms)
            if total > constraint.bound:
                found.append(
                    f"{[(c, model.variables[v].name) for c, v in constraint.terms]} = {total} > {constraint.bound}"
                )
    return found


@pytest.mark.parametrize("block", range(6))
def test_a_random_schedule_satisfies_the_model_of_its_own_length_and_cap(block):
    orders_seen = 0
    for seed in range(block * 100, block * 100 + 100):
        rng = random.Random(seed)
        instance = random_instance(rng)
        orders = random_orders(Flat(instance), rng)
        if rng.random() < 0.8:
            instance = with_its_cap(instance, orders)
        length, values = solution_of(instance, orders)
        for extra in (0, rng.randint(1, 9)):
            try:
                model = build(instance, length + extra)
            except Unmodelled:
                continue
            assert not model.empty, seed
            assert broken(model, values) == [], (seed, instance)
            orders_seen += any(v.boolean for v in model.variables)
    assert orders_seen > 5


def test_a_length_below_the_longest_chain_needs_no_steps():
    instance = Instance(linear(3), 2, Costs.make(3, F=1, B=1, W=1), Memory.make(3, 3))
    lines = [header(build(instance, 7), "makespan", 7), "c UNSAT"]
    assert check_proof(instance, 7, lines).accepted
    assert not check_proof(instance, 8, lines).accepted


@pytest.mark.parametrize(
    ("instance", "why"),
    [
        (Instance(linear(2), 2, Costs.make(2, F=2, B=2, W=2, overlap_B=3), Memory.make(2, 2)), "a pair"),
        (Instance(linear(2), 2, Costs.make(2, F=2, B=2, W=2, overlap_BW=5), Memory.make(2, 2)), "a pair"),
        (Instance(linear(2), 2, Costs.make(2, F=2, B=2, W=2, BW=3), Memory.make(2, 2)), "a fused backward"),
        (Instance(linear(2), 2, Costs.make(2, F=2, B=2, W=2), Memory.make(2, 2, F=1, B=1)), "a fused backward"),
        (Instance(linear(2), 2, Costs.make(2, F=1, B=1, R=1), Memory.make(2, 2, R=1, cap=2)), "recompute"),
        (Instance(bidirectional(2), 2, Costs.make(2, F=1, B=1), Memory.make(2, 2), "span"), "a single route"),
    ],
)
def test_an_instance_whose_best_schedule_the_model_may_lack_is_refused(instance, why):
    with pytest.raises(Unmodelled, match=why):
        build(instance, 10)
    verdict = check_proof(instance, 10, ["c UNSAT"])
    assert not verdict.accepted
    assert why in verdict.reason


def test_what_is_added_to_instances_later_is_refused_until_the_model_knows_it():
    @dataclass(frozen=True)
    class Later(Costs):
        surprise: int = 0

    known = Costs.make(2, F=1, B=1)
    given = {item.name: getattr(known, item.name) for item in fields(known) if item.init}
    build(Instance(linear(2), 2, Later(**given), Memory.make(2, 2)), 10)
    with pytest.raises(Unmodelled, match=r"later\.surprise"):
        build(Instance(linear(2), 2, Later(**given, surprise=1), Memory.make(2, 2)), 10)
