"""Other versions of PyTorch than the pinned one: what is written for a version trains on it; what is refused fails.

Their environments are not made: pip installs builds for GPUs of several gigabytes for them. The variables
`BUBBLEPROOF_TORCH29_PYTHON` and `BUBBLEPROOF_TORCH214_PYTHON` name interpreters that have them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bubbleproof import Instance
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.families import FAMILIES
from bubbleproof.schedules.formats import torch_comms, torch_csv, torch_versions
from bubbleproof.schedules.lower import lower
from bubbleproof.schedules.placement import Placement, linear, loop, vee
from tests.runtimes.server import HERE, Server

pytestmark = pytest.mark.runtime

FINDINGS = HERE.parent / "corpus" / "findings"

VERSIONS = {"29": torch_versions.Version(2, 9), "214": torch_versions.Version(2, 14)}


@pytest.fixture(scope="module", params=VERSIONS)
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    name = f"BUBBLEPROOF_TORCH{request.param}_PYTHON"
    python = os.environ.get(name)
    if python is None:
        pytest.skip(f"{name} is not set")
    server = Server(Path(python), HERE / "torch" / "executor.py", tmp_path_factory.mktemp("torch") / "server.log")
    assert torch_versions.parse(server.versions["torch"]) == VERSIONS[request.param]
    yield server
    server.close()


def instance(placement: Placement, microbatches: int) -> Instance:
    stages, ranks = placement.stages, placement.ranks
    costs = Costs.make(stages, F=4, B=5, W=3, comm=1)
    return Instance(placement, microbatches, costs, Memory.make(stages, ranks))


def ask(server: Server, given: Instance, text: str, form: str, scale: bool = True) -> dict[str, Any]:
    hidden = [6 + 2 * stage for stage in range(given.stages)]
    return server.ask(
        csv=text,
        format=form,
        microbatches=given.microbatches,
        rank_of_stage=list(given.placement.routes[0]),
        hidden=hidden,
        scale_grads=scale,
        seconds=10,
    )


CASES = {"1f1b": linear(3), "zb-h1": linear(3), "zb-v": vee(2), "interleaved-1f1b": loop(2, 2), "dualpipev": vee(2)}


@pytest.mark.parametrize("family", CASES)
def test_what_is_written_for_a_version_trains_on_it(other: Server, evidence: Any, family: str) -> None:
    given = instance(CASES[family], 4)
    schedule = FAMILIES[family].build(given)
    version = torch_versions.parse(other.versions["torch"])
    if version < (2, 10) and CASES[family] == vee(2):
        pytest.skip("torch 2.9 begins with a message from each stage to the next, which gloo cannot send to itself")
    scale = "W" not in schedule.kinds or torch_versions.reduces(version)
    torch_versions.check(schedule, version, scale_grads=scale)
    compute = ask(other, given, torch_csv.dumps(schedule, given), "compute_only", scale)
    evidence.trained("torch", f"{family}, torch {version}", schedule, given, compute, other.versions, ["uneven"])
    program = lower(schedule, given, reduce=torch_versions.reduces(version))
    full = ask(other, given, torch_comms.dumps(program, given), "compute_comms", scale)
    what = f"{family}, torch {version}, communication by bubbleproof"
    evidence.trained("torch", what, schedule, given, full, other.versions, ["uneven", "messages"])


def test_before_2_10_split_backwards_are_not_scaled(other: Server, evidence: Any) -> None:
    given = instance(linear(2), 2)
    schedule = torch_csv.load(FINDINGS / "torch-split-not-scaled.csv")
    seen = ask(other, given, torch_csv.dumps(schedule, given), "compute_only")
    fused = ask(other, given, (FINDINGS / "torch-split-not-scaled-repaired.csv").read_text(), "compute_only")
    assert fused["outcome"] == "ok"
    version = torch_versions.parse(other.versions["torch"])
    if torch_versions.reduces(version):
        assert seen["outcome"] == "ok"
        return
    with pytest.raises(FormatError, match="does not scale the gradients of split backwards"):
        torch_versions.check(schedule, version)
    assert seen["outcome"] == "wrong"
    assert seen["gradient_error"] == pytest.approx(given.microbatches - 1)
    assert seen["loss_error"] < 1e-9
    evidence.fault(
        "torch", "split backwards not scaled", other.versions, gradient_error=f"{seen['gradient_error']:.1e}"
    )


def test_a_file_with_messages_for_the_other_side_of_2_10_is_refused_here_and_fails_there(other: Server) -> None:
    given = instance(linear(2), 3)
    schedule = FAMILIES["1f1b"].build(given)
    version = torch_versions.parse(other.versions["torch"])
    wrong = lower(schedule, given, reduce=not torch_versions.reduces(version))
    with pytest.raises(FormatError, match="REDUCE_GRAD"):
        torch_versions.check(wrong, version)
    seen = ask(other, given, torch_comms.dumps(wrong, given), "compute_comms")
    assert seen["outcome"] == ("wrong" if torch_versions.reduces(version) else "refused"), seen
