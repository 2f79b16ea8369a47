"""Schedules that train on spectrax (JAX), with the gradients of an unpipelined model."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from bubbleproof import Instance, solve
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.families import FAMILIES
from bubbleproof.schedules.formats.schedule_json import Document, dumps
from bubbleproof.schedules.placement import Placement, linear, loop, vee
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.verify.runtimes.spectrax import predict

pytestmark = pytest.mark.runtime


def instance(placement: Placement, microbatches: int, *, split: bool = True, cap: int | None = None) -> Instance:
    stages, ranks = placement.stages, placement.ranks
    costs = Costs.make(stages, F=4, B=5, W=3 if split else None, comm=1)
    return Instance(placement, microbatches, costs, Memory.make(stages, ranks, cap=cap))


def launch(schedule: Schedule, given: Instance, **more: Any) -> dict[str, Any]:
    hidden = [6 + 2 * stage for stage in range(given.stages)]  # uneven stages
    return {"schedule": dumps(Document(schedule, given)), "hidden": hidden, "seconds": 120, **more}


SOLVED = {
    "linear p=3 m=5, F, B and W": instance(linear(3), 5, cap=3),
    "linear p=4 m=2, fewer microbatches than ranks": instance(linear(4), 2),
    "vee p=2 m=3": instance(vee(2), 3, cap=4),
    "loop p=2 v=2 m=3, no multiple": instance(loop(2, 2), 3, cap=6),
    "fused backwards": instance(linear(3), 4, split=False, cap=3),
}


@pytest.mark.parametrize("name", SOLVED)
def test_a_solved_schedule_trains_like_the_unpipelined_model(spectrax_server: Any, evidence: Any, name: str) -> None:
    given = SOLVED[name]
    solution = solve(given, time_limit=3, workers=1)
    seen = spectrax_server.ask(**launch(solution.schedule, given))
    evidence.trained(
        "spectrax", f"solved, {name}", solution.schedule, given, seen, spectrax_server.versions, ["uneven"]
    )


def test_the_model_says_what_spectrax_does_with_mutated_schedules(spectrax_server: Any, evidence: Any) -> None:
    rng = random.Random(7)
    agreed: Counter[str] = Counter()
    wrong = []
    for placement, family in ((linear(2), "1f1b"), (linear(2), "zb-h1"), (vee(2), "zb-v")):
        given = instance(placement, 2)
        schedule = FAMILIES[family].build(given)
        for number in range(24):
            rows = [list(row) for row in schedule.orders]
            row = rng.choice(rows)
            at, other = rng.randrange(len(row)), rng.randrange(len(row))
            if number % 3 == 0:
                del row[at]
            elif number % 3 == 1:
                row[at], row[other] = row[other], row[at]
            else:
                row.insert(other, row[at])
            mutant = Schedule.of(rows)
            said = predict(mutant, given)
            seen = spectrax_server.ask(**launch(mutant, given, check=False))
            if seen["outcome"] == said.outcome:
                agreed[said.outcome] += 1
            else:
                wrong.append((family, said, seen["outcome"], seen["error"], str(mutant)))
    evidence.compared("spectrax", "schedules", agreed, len(wrong), spectrax_server.versions)
    assert not wrong, "\n".join(map(str, wrong))
    assert sum(agreed.values()) >= 60
    assert set(agreed) == {"ok", "crash", "wrong"}
