"""The zero-bubble paper's 12 settings under the caps of p and of 2p forwards: 24 rows, objective span.

Run as ``uv run python -m benchmarks.zb_table5 [--time-limit 120] [--workers 0] [--rows 1.5B …]``. Without ``--rows`` it
writes benchmarks/zb_table5.md. "Published" is the least span among the published schedules (1F1B, ZB-H1, ZB-H2, ZB-1p,
ZB-2p) whose peak fits under the cap.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance, Units
from bubbleproof.schedules.placement import linear
from bubbleproof.solver import Solution, solve

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data" / "zb_table5.json"
TABLE = ROOT / "benchmarks" / "zb_table5.md"


def rows() -> Iterator[tuple[Instance, int]]:
    """Each row's instance and the best published span under its cap."""
    for row in json.loads(DATA.read_text())["rows"]:
        p = row["p"]
        costs = Costs.make(p, F=row["F"], B=row["B"], W=row["W"], comm=row["comm"])
        for times in (1, 2):
            cap = times * p * row["mem_F"]
            published = min(
                found["span"]
                for name, found in row["schedules"].items()
                if name != "1F1B-I" and found["peak_mem_max"] <= cap
            )
            memory = Memory.make(p, p, F=row["mem_F"], B=row["mem_B"], W=row["mem_W"], cap=cap)
            name = f"{row['model']} p={p} m={row['m']} cap {'p' if times == 1 else '2p'}"
            instance = Instance(linear(p), row["m"], costs, memory, "span", name, Units("us", "B/(s·b)"))
            yield instance, published


def line(instance: Instance, published: int, solution: Solution) -> str:
    """One row of the table."""
    record = solution.record
    gap = 100 * (record.value / record.bound - 1)
    better = 100 * (1 - record.value / published)
    return (
        f"| {instance.name} | {published} | {record.value} | {better:.3f} % | {record.bound} | {gap:.3f} % "
        f"| {record.level} | {record.milliseconds / 1000:.1f} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--time-limit", type=float, default=120.0, help="seconds per row")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--rows", nargs="*", help="only rows whose name contains one of these")
    chosen = parser.parse_args()
    lines = [
        "| instance | published | value | better by | bound | gap | level | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines))
    worse = 0
    for instance, published in rows():
        if chosen.rows and not any(part in instance.name for part in chosen.rows):
            continue
        solution = solve(instance, time_limit=chosen.time_limit, workers=chosen.workers)
        worse += solution.record.value > published
        lines.append(line(instance, published, solution))
        print(lines[-1], flush=True)
    if not chosen.rows:
        head = (
            "# Zero-bubble paper, Table 5: span in microseconds under the paper's memory model\n\n"
            f"`uv run python -m benchmarks.zb_table5`, {chosen.time_limit:g} s per row, "
            "2 cores shared with other work.\n\n"
        )
        TABLE.write_text(head + "\n".join(lines) + "\n")
    return 1 if worse else 0


if __name__ == "__main__":
    raise SystemExit(main())
