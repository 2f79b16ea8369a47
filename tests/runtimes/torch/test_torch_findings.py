"""What docs/findings.md tells of PyTorch, run: each reproduction, and its repaired schedule."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.runtimes.server import HERE

pytestmark = pytest.mark.runtime

FOLDER = HERE.parent / "corpus" / "findings"
FOUND = json.loads((FOLDER / "torch.json").read_text(encoding="utf-8"))
HERE_WRONG = {name: entry for name, entry in FOUND.items() if entry["seen"] != "crash" and "refused" not in entry}


def ask(server: Any, entry: dict[str, Any], file: str, **more: Any) -> dict[str, Any]:
    stages = len(entry["run"]["rank_of_stage"])
    return dict(
        server.ask(
            csv=(FOLDER / file).read_text(encoding="utf-8"),
            hidden=[6 + 2 * stage for stage in range(stages)],
            scale_grads=True,
            seconds=10,
            **entry["run"],
            **more,
        )
    )


def shown(seen: dict[str, Any]) -> str:
    return f"{seen['gradient_error']:.1e}" if seen["outcome"] in ("ok", "wrong") else seen["error"][:120]


@pytest.mark.parametrize("name", HERE_WRONG)
def test_the_runtime_does_what_the_document_tells(torch_server: Any, evidence: Any, name: str) -> None:
    entry = FOUND[name]
    before = ask(torch_server, entry, entry["verify"][0])
    assert before["outcome"] == entry["seen"], before
    after = ask(torch_server, entry, entry["repaired"][0])
    assert after["outcome"] == "ok", after
    evidence.fault(
        "torch", name, torch_server.versions, seen=before["outcome"], before=shown(before), after=shown(after)
    )


def test_the_simulator_accepts_a_program_that_trains_wrong(torch_server: Any, evidence: Any) -> None:
    for name in ("receives swapped", "deferred receives"):
        seen = ask(torch_server, FOUND[name], FOUND[name]["verify"][0], simulate=True)
        given, computing = seen["simulated"]
        assert given.startswith("ValueError: Unsupported action type")
        assert (computing, seen["outcome"]) == ("accepted", "wrong"), seen
        evidence.fault("torch", f"simulator, {name}", torch_server.versions, simulator=computing, run=seen["outcome"])


def test_deferred_receives_come_out_of_pytorchs_own_option(torch_server: Any) -> None:
    entry = {**FOUND["deferred receives"]}
    entry["run"] = {**entry["run"], "format": "compute_only"}
    order = torch_server.ask(dump=["ZBVZeroBubble", 2, 3, 2], seconds=10)["csv"]
    stages = len(entry["run"]["rank_of_stage"])
    run = dict(entry["run"], csv=order, hidden=[6 + 2 * stage for stage in range(stages)], scale_grads=True, seconds=10)
    assert torch_server.ask(**run)["outcome"] == "ok"
    assert torch_server.ask(**run, defer=True)["outcome"] == "wrong"


def test_split_backwards_are_scaled_by_this_version(torch_server: Any) -> None:
    entry = FOUND["split backwards not scaled"]
    assert ask(torch_server, entry, entry["verify"][0])["outcome"] == "ok"


def test_pytorchs_own_1f1b_order_is_refused_by_pytorch(torch_server: Any) -> None:
    dumped = torch_server.ask(dump=["1F1B", 2, 2], seconds=10)["csv"]
    assert dumped == (FOLDER / "torch-1f1b-numbering.csv").read_text(encoding="utf-8")
    entry = FOUND["numbering of 1F1B"]
    assert ask(torch_server, entry, entry["verify"][0])["outcome"] == "refused"


def test_evaluation_fails_on_a_vee_and_not_on_a_loop(torch_server: Any, evidence: Any) -> None:
    entry = FOUND["evaluation of a vee"]
    file = entry["verify"][0]
    assert ask(torch_server, entry, file)["outcome"] == "ok"
    seen = ask(torch_server, entry, file, evaluate=True)
    assert seen["outcome"] == entry["seen"], seen
    evidence.fault("torch", "evaluation of a vee", torch_server.versions, error=seen["error"][:120])
    loop = {**entry, "run": {**entry["run"], "rank_of_stage": [0, 1, 0, 1]}}
    text = "0F0,2F0,2B0,0B0\n1F0,3F0,3B0,1B0\n"
    run = dict(loop["run"], csv=text, hidden=[6, 8, 10, 12], scale_grads=True, seconds=10)
    assert torch_server.ask(**run, evaluate=True)["outcome"] == "ok"
