"""Targets whose runtime is not run here: their files are written and read back, which shows no more than that."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import pytest

from bubbleproof import Instance
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.families import FAMILIES
from bubbleproof.schedules.formats import format_named
from bubbleproof.schedules.placement import linear, vee
from bubbleproof.schedules.timeline import replay
from tests.runtimes.records import CONSTRUCTED

pytestmark = pytest.mark.runtime


@pytest.mark.parametrize(
    ("target", "form", "family"),
    [
        (*target, family)
        for target in (("jaxpp", "jaxpp"), ("sailsg", "sail-sg"), ("primus", "primus"))
        for family in ("1f1b", "zb-v")
    ],
)
def test_what_is_written_reads_back(evidence: Any, target: str, form: str, family: str) -> None:
    placement = vee(2) if family == "zb-v" else linear(3)
    stages, ranks = placement.stages, placement.ranks
    given = Instance(placement, 4, Costs.make(stages, F=1, B=1, W=1), Memory.make(stages, ranks))
    schedule = FAMILIES[family].build(given)
    chosen = format_named(form)
    text = chosen.writer()(replay(schedule, given))
    assert chosen.reader()(text, "file").orders == schedule.orders
    versions = {"bubbleproof": metadata.version("bubbleproof")}
    evidence.accepted(
        target, family, schedule, given, versions, by="writing the file and reading it back", level=CONSTRUCTED
    )
