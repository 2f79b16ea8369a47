"""What docs/findings.md tells of spectrax, run: each reproduction, and the right schedule."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bubbleproof import Instance
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.formats.jax_mpmd import loads_grid
from bubbleproof.schedules.formats.schedule_json import Document, dumps
from bubbleproof.schedules.placement import linear
from bubbleproof.verify.runtimes.spectrax import predict
from tests.runtimes.server import HERE

pytestmark = pytest.mark.runtime

FOLDER = HERE.parent / "corpus" / "findings"
FOUND = json.loads((FOLDER / "spectrax.json").read_text(encoding="utf-8"))
GIVEN = Instance(linear(2), 2, Costs.make(2, F=1, B=1, W=1), Memory.make(2, 2))


@pytest.mark.parametrize("name", FOUND)
def test_the_runtime_does_what_the_document_tells(server_of: Any, evidence: Any, name: str) -> None:
    server = server_of("spectrax")
    entry = FOUND[name]
    errors = []
    for file, expected in ((entry["verify"][0], entry["seen"]), (entry["repaired"][0], "ok")):
        schedule = loads_grid((FOLDER / file).read_text(encoding="utf-8"), file)
        assert predict(schedule, GIVEN).outcome == expected
        text = dumps(Document(schedule, GIVEN))
        seen = server.ask(schedule=text, hidden=[6, 8], check=False, seconds=120)
        assert seen["outcome"] == expected, seen
        errors.append(f"{seen['gradient_error']:.1e}")
    evidence.fault("spectrax", name, server.versions, seen=entry["seen"], before=errors[0], after=errors[1])
