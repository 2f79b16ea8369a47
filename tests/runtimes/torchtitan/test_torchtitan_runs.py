"""torchtitan's own functions take our file with our arguments, build the stages that it expects, and train right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bubbleproof import Instance, solve
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.families import FAMILIES
from bubbleproof.schedules.formats import torch_csv, torchtitan
from bubbleproof.schedules.placement import Placement, linear, loop, vee
from bubbleproof.schedules.schedule import Schedule

pytestmark = pytest.mark.runtime

FINDINGS = Path(__file__).parents[2] / "corpus" / "findings"


def instance(placement: Placement, microbatches: int, cap: int | None = None) -> Instance:
    stages, ranks = placement.stages, placement.ranks
    costs = Costs.make(stages, F=4, B=5, W=3, comm=1)
    return Instance(placement, microbatches, costs, Memory.make(stages, ranks, cap=cap))


def job(schedule: Schedule, given: Instance, layers: int, **changed: str) -> dict[str, Any]:
    chunks = given.stages // given.ranks
    arguments = torchtitan.arguments(given, "FILE", microbatch_size=2, layers=layers if chunks > 2 else None)
    for name, value in changed.items():
        arguments = [f"--parallelism.{name}={value}" if f".{name}=" in each else each for each in arguments]
    return {
        "csv": torch_csv.dumps(schedule, given),
        "arguments": arguments,
        "rank_of_stage": list(given.placement.routes[0]),
        "layers": layers,
        "seconds": 20,
    }


SOLVED = {
    "linear p=2 m=5": (instance(linear(2), 5, cap=2), 4),
    "linear p=4 m=3, fewer microbatches than ranks": (instance(linear(4), 3), 7),
    "vee p=2 m=3": (instance(vee(2), 3, cap=4), 5),
    "loop p=2 v=2 m=3": (instance(loop(2, 2), 3, cap=6), 6),
    "loop p=2 v=3 m=4": (instance(loop(2, 3), 4, cap=9), 10),
}


@pytest.mark.parametrize("name", SOLVED)
def test_a_solved_schedule_trains_through_torchtitans_builder(server_of: Any, evidence: Any, name: str) -> None:
    given, layers = SOLVED[name]
    server = server_of("torchtitan")
    schedule = solve(given, time_limit=3, workers=1).schedule
    seen = server.ask(**job(schedule, given, layers))
    also = ["uneven"]  # torchtitan makes the first and the last stage shorter
    what = f"solved, {name}; torchtitan's options, module split, builder and reader, not its trainer"
    evidence.trained("torchtitan", what, schedule, given, seen, server.versions, also)


def test_pairs_are_taken(server_of: Any, evidence: Any) -> None:
    given = instance(vee(2), 4)
    server = server_of("torchtitan")
    schedule = FAMILIES["dualpipev"].build(given)
    seen = server.ask(**job(schedule, given, 6))
    what = "dualpipev; torchtitan's options, module split, builder and reader, not its trainer"
    evidence.trained("torchtitan", what, schedule, given, seen, server.versions, ["uneven"])


def test_a_file_that_pytorch_trains_wrongly_on_does_so_here(server_of: Any) -> None:
    given = instance(linear(2), 2)
    right = job(FAMILIES["1f1b"].build(given), given, 4)
    wrong = {**right, "csv": (FINDINGS / "torch-last-forwards-swapped.csv").read_text(encoding="utf-8")}
    assert server_of("torchtitan").ask(**wrong)["outcome"] == "wrong"


def test_a_vee_under_the_name_of_a_loop_is_taken_and_does_not_train(server_of: Any, evidence: Any) -> None:
    given = instance(vee(2), 1)
    server = server_of("torchtitan")
    schedule = torch_csv.load(FINDINGS / "torchtitan-vee.csv")
    wrong = job(schedule, given, 6, pipeline_parallel_schedule="PipelineScheduleMulti")
    seen = server.ask(**wrong)
    stages = {0: ([0, 2], [0, 3]), 1: ([1, 3], [1, 2])}  # whichever rank is first to say so
    assert seen["error"] in [
        f"RuntimeError: torchtitan built stages {built} on rank {rank}, the schedule runs {expected} there"
        for rank, (built, expected) in stages.items()
    ]
    seen = server.ask(**{**wrong, "unchecked": True, "seconds": 5})
    assert seen["outcome"] in ("crash", "hang"), seen  # whichever rank is first
    evidence.fault("torchtitan", "vee under the name of a loop", server.versions, seen="crash or hang")
    right = server.ask(**job(schedule, given, 6))
    assert right["outcome"] == "ok"


def test_another_number_of_microbatches_than_the_file_has_is_refused_when_it_is_loaded(server_of: Any) -> None:
    given = instance(linear(2), 4)
    schedule = FAMILIES["1f1b"].build(given)
    wrong = job(schedule, given, 4, pipeline_parallel_microbatch_size="1")
    seen = server_of("torchtitan").ask(**wrong)
    assert seen["outcome"] == "refused"
    assert "AssertionError" in seen["error"]
