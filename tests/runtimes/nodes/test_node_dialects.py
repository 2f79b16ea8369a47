"""sail-sg's and Primus's nodes: written and read back, and taken by their own code where there is a checkout of it.

``BUBBLEPROOF_SAILSG_CHECKOUT`` and ``BUBBLEPROOF_PRIMUS_CHECKOUT`` name folders with the sources. Nothing trains here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bubbleproof import Instance, solve
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.families import FAMILIES
from bubbleproof.schedules.formats.scheduled_node import FORMAT, dumps, loads_nodes, nodes_of
from bubbleproof.schedules.lower import lower
from bubbleproof.schedules.nodes import Dialect, NodeLists
from bubbleproof.schedules.placement import Placement, linear, loop, vee
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import replay

pytestmark = pytest.mark.runtime

TARGETS: dict[Dialect, str] = {"sail-sg": "sailsg", "primus": "primus"}


def instance(placement: Placement, m: int, *, split: bool = True) -> Instance:
    costs = Costs.make(placement.stages, F=4, B=5, W=3 if split else None, comm=1)
    return Instance(placement, m, costs, Memory.make(placement.stages, placement.ranks))


def nodes(schedule: Schedule, given: Instance, dialect: Dialect) -> NodeLists:
    program = lower(schedule, given, reduce=False, blocking=True)
    return nodes_of(program, given, dialect, replay(schedule, given))


def taken(dialect: Dialect, text: str, folder: Path) -> dict[str, Any]:
    """What the runtime's own code says of a file; skipped without its sources."""
    name = f"BUBBLEPROOF_{TARGETS[dialect].upper()}_CHECKOUT"
    checkout = os.environ.get(name)
    if not checkout:
        pytest.skip(f"no sources of {dialect}: {name} names no checkout")
    file = folder / "nodes.json"
    file.write_text(text)
    script = Path(__file__).parent / "accept.py"
    seen = subprocess.run([sys.executable, script, dialect, checkout, file], capture_output=True, text=True, timeout=60)
    if seen.returncode:
        return {"error": seen.stderr.strip().splitlines()[-1]}
    commit = subprocess.run(["git", "-C", checkout, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True)
    return {**json.loads(seen.stdout), "versions": {dialect: commit.stdout.strip() or "unknown"}}


CASES = {
    "1f1b": (linear(4), 6, "1f1b"),
    "zb-h1": (linear(4), 6, "zb-h1"),
    "zb-v": (vee(4), 6, "zb-v"),
    "interleaved": (loop(3, 2), 6, "interleaved-1f1b"),
    "solved, m < p": (vee(3), 2, ""),
}


def built(name: str) -> tuple[Schedule, Instance]:
    placement, m, family = CASES[name]
    given = instance(placement, m, split="1f1b" not in family)
    return FAMILIES[family].build(given) if family else solve(given, time_limit=2, workers=1).schedule, given


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dialect", TARGETS)
def test_nodes_are_written_and_read_back(evidence: Any, dialect: Dialect, name: str) -> None:
    schedule, given = built(name)
    made = nodes(schedule, given, dialect)
    assert loads_nodes(dumps(made)).program() == made.program()
    assert made.program().schedule.orders == schedule.orders
    by = "written, read back and judged"
    evidence.accepted(
        TARGETS[dialect], name, schedule, given, {"format": FORMAT}, by, ["messages"], level="constructed"
    )


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dialect", TARGETS)
def test_the_code_of_the_runtime_takes_the_nodes(evidence: Any, dialect: Dialect, name: str, tmp_path: Path) -> None:
    schedule, given = built(name)
    made = nodes(schedule, given, dialect)
    seen = taken(dialect, dumps(made), tmp_path)
    assert "error" not in seen, seen
    if "order" in seen:
        assert seen["order"] == [[f"{op.kind}{op.stage}.{op.microbatch}" for op in row] for row in schedule.orders]
    what = f"{name}, with its sources"
    evidence.accepted(TARGETS[dialect], what, schedule, given, seen["versions"], seen["by"], ["messages"])


def test_the_check_of_sail_sg_finds_a_deadlock_that_the_judge_finds(tmp_path: Path) -> None:
    """Both first receive from each other."""
    schedule, given = built("zb-v")
    made = nodes(schedule, given, "sail-sg")
    rows = [list(row) for row in made.rows]
    first = next(at for at, one in enumerate(rows[0]) if one.type == "RECV_FORWARD")
    rows[0].insert(0, rows[0].pop(first))
    seen = taken("sail-sg", dumps(NodeLists.of("sail-sg", rows, made.rank_of_stage, made.microbatches)), tmp_path)
    assert "Cannot find next runnable node" in seen["error"]
