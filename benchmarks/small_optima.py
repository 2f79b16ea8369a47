"""Every small instance with a known optimum: solved, and compared with it.

Run as ``uv run python -m benchmarks.small_optima [--time-limit 120] [--workers 0] [--rows v-p4 …]``. Without ``--rows``
it writes benchmarks/small_optima.md. The one row that is left out has ops that occupy all ranks at once, which no
schedule of this language has.
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

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data" / "small_optima.json"
TABLE = ROOT / "benchmarks" / "small_optima.md"
LEFT_OUT = "te-m4-m2"
PLACEMENTS = {"linear": linear, "V": vee}


def rows() -> Iterator[tuple[Instance, int]]:
    """Each instance and its optimum."""
    for row in json.loads(DATA.read_text())["rows"]:
        if row["id"] == LEFT_OUT:
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
    lines = [
        "| instance | objective | optimum | value | bound | level | proved by | seconds |",
        "|---|---|---:|---:|---:|---|---|---:|",
    ]
    print("\n".join(lines))
    missed = 0
    for instance, optimum in rows():
        if chosen.rows and not any(part in instance.name for part in chosen.rows):
            continue
        record = solve(instance, time_limit=chosen.time_limit, workers=chosen.workers).record
        missed += not record.value == record.bound == optimum
        lines.append(
            f"| {instance.name} | {record.objective} | {optimum} | {record.value} | {record.bound} | {record.level} "
            f"| {record.proof} | {record.milliseconds / 1000:.1f} |"
        )
        print(lines[-1], flush=True)
    if not chosen.rows:
        head = (
            "# Small instances with a known optimum\n\n"
            f"`uv run python -m benchmarks.small_optima`, {chosen.time_limit:g} s per row, 2 cores shared with other "
            f"work. {len(lines) - 2} rows, {missed} missed. {LEFT_OUT} is left out: it has ops that occupy all ranks "
            "at once, which no schedule of this language has.\n\n"
        )
        TABLE.write_text(head + "\n".join(lines) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
