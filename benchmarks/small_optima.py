"""Every small instance with a known optimum: solved, and compared with it.

Run as ``uv run python -m benchmarks.small_optima [--time-limit 120] [--workers 0] [--rows v-p4 …]``. The one row that
is left out has ops that occupy all ranks at once, which no schedule of this language has.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import linear, vee
from bubbleproof.solver import solve

DATA = Path(__file__).parents[1] / "tests" / "data" / "small_optima.json"
PLACEMENTS = {"linear": linear, "V": vee}


def rows() -> Iterator[tuple[Instance, int]]:
    """Each instance and its optimum."""
    for row in json.loads(DATA.read_text())["rows"]:
        if row["placement"] not in PLACEMENTS:
            continue
        placement = PLACEMENTS[row["placement"]](row["p"])
        fused = row["W"] == 0
        costs = Costs.make(placement.stages, F=row["F"], B=row["B"], W=None if fused else row["W"], comm=row["comm"])
        memory = Memory.make(placement.stages, row["p"], F=row["mem_F"], B=row["mem_B"], W=row["mem_W"], cap=row["cap"])
        yield Instance(placement, row["m"], costs, memory, row["objective"], row["id"]), row["optimum"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--time-limit", type=float, default=120.0, help="seconds per row")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--rows", nargs="*", help="only rows whose name contains one of these")
    chosen = parser.parse_args()
    missed = 0
    for instance, optimum in rows():
        if chosen.rows and not any(part in instance.name for part in chosen.rows):
            continue
        record = solve(instance, time_limit=chosen.time_limit, workers=chosen.workers).record
        good = record.value == record.bound == optimum
        missed += not good
        print(
            f"{'ok    ' if good else 'MISSED'} {instance.name}: {record.value} (bound {record.bound}, "
            f"optimum {optimum}), {record.level}, {record.milliseconds / 1000:.1f} s",
            flush=True,
        )
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
