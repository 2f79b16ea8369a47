"""No lower bound exceeds what a published schedule reaches at its own peak memory, at sizes beyond enumeration."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from bubbleproof.schedules.align import align
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.families import FAMILIES
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.timeline import replay
from bubbleproof.solver.bounds import lower_bounds
from bubbleproof.verify.certificate import check


def posed(name: str, rng: random.Random) -> Instance:
    """An instance that the family may apply to, with random costs and memory."""
    family, p = FAMILIES[name], rng.choice([2, 4, 6])
    m = rng.choice([p, p, 4, 8, 12])
    where = family.placement(p, max(2, family.chunks) if family.chunks > 1 else 1)
    stages = where.stages

    def cost(low: int, high: int) -> int | list[int]:
        return rng.randint(low, high) if rng.random() < 0.6 else [rng.randint(low, high) for _ in range(stages)]

    f, b, w = cost(1, 9), cost(1, 9), cost(0, 6)
    overlap = cost(5, 25) if rng.random() < 0.5 else None
    split = family.needs_split or rng.random() < 0.5
    costs = Costs.make(
        stages, F=f, B=b, W=w if split else None, overlap_B=overlap, overlap_BW=overlap, comm=rng.choice([0, 0, 1, 3])
    )
    taken = rng.choice([1, 4, 7])
    memory = Memory.make(stages, p, F=taken, B=-rng.randint(0, taken) if split else None)
    return Instance(where, m, costs, memory)


@pytest.mark.parametrize("name", FAMILIES)
def test_no_bound_exceeds_a_family_at_its_own_peak(name: str) -> None:
    rng = random.Random(name)
    compared = 0
    for _ in range(30):
        instance = posed(name, rng)
        if FAMILIES[name].applicable(instance) is not None:
            continue
        schedule = FAMILIES[name].build(instance)
        soon = replay(schedule, instance)
        capped = instance.with_cap(tuple(peak.memory for peak in soon.peaks))
        for objective, value in (("makespan", soon.makespan), ("span", align(schedule, instance).span)):
            target = replace(capped, objective=objective)
            for certificate in lower_bounds(target):
                assert certificate.value <= value, (target, certificate)
                assert check(target, certificate).proved == certificate.value
        compared += 1
    assert compared >= 8
