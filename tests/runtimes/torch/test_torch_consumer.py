"""The consumer model of PyTorch against what PyTorch 2.13 was seen to do with each file of the corpus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bubbleproof import Instance
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import BubbleproofError
from bubbleproof.schedules.formats import torch_comms, torch_csv
from bubbleproof.schedules.placement import custom
from bubbleproof.schedules.program import Program
from bubbleproof.verify.runtimes.torch import predict

CORPUS = Path(__file__).parents[2] / "corpus"
CASES = json.loads((CORPUS / "manifest.json").read_text())["cases"]
SEEN = {"ok": "ok", "rejected_on_load": "refused", "crash": "crash", "hang": "hang", "wrong_gradients": "wrong"}


def instance_of(case: dict[str, Any]) -> Instance:
    stages, ranks = len(case["placement"]), case["ranks"]
    costs, memory = Costs.make(stages, F=1, B=1, W=1), Memory.make(stages, ranks)
    return Instance(custom(case["placement"], ranks), case["microbatches"], costs, memory)


def readable() -> list[dict[str, Any]]:
    found = []
    for case in CASES:
        reader = torch_comms if case["format"] == "compute_comms" else torch_csv
        try:
            reader.load(CORPUS / case["file"])
        except BubbleproofError:
            continue
        found.append(case)
    return found


READABLE = readable()


def test_most_of_the_corpus_can_be_read() -> None:
    assert len(READABLE) == 140


@pytest.mark.parametrize("case", READABLE, ids=lambda case: case["file"])
def test_the_model_says_what_pytorch_did(case: dict[str, Any]) -> None:
    comms = case["format"] == "compute_comms"
    path = CORPUS / case["file"]
    program = torch_comms.load(path) if comms else Program.of(torch_csv.load(path).orders)
    said = predict(program, instance_of(case), scale_grads=case["scale_grads"], transfers=comms)
    # gradients right but losses returned in another order is wrong as well
    seen = "wrong" if case["losses_match"] is False else SEEN[case["outcome"]]
    assert said.outcome == seen, said
    assert said.reason or said.outcome == "ok"
