"""Feasible instances on which the zero-bubble paper's schedulers crash or return an invalid schedule: all solved.

Run as ``uv run python -m benchmarks.sail_failures [--time-limit 10] [--fresh]``; without ``--rows`` it writes
benchmarks/sail_failures.md. The instances are in benchmarks/data/sail_failures.json with how each scheduler fails.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from benchmarks.plot import write_gaps
from benchmarks.rows import Result, Row, arguments, gap, run, summary
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import linear, vee

ROOT = Path(__file__).parents[1]
DATA = ROOT / "benchmarks" / "data" / "sail_failures.json"
RESULTS, TABLE, PLOT = (ROOT / "benchmarks" / f"sail_failures.{kind}" for kind in ("json", "md", "svg"))


def rows() -> Iterator[Row]:
    """All instances; the known value is a proved optimum, or what the scheduler's own heuristic reaches."""
    for row in json.loads(DATA.read_text())["rows"]:
        placement = (vee if row["class"].startswith("V placement") else linear)(row["p"])
        costs = Costs.make(placement.stages, F=row["F"], B=row["B"], W=row["W"], comm=row["comm"])
        memory = Memory.make(placement.stages, row["p"], F=row["mem_F"], B=row["mem_B"], W=row["mem_W"], cap=row["cap"])
        known = {
            "class": row["class"],
            "failure": row["failure"],
            "reported": row["reported_span"],
            "optimum": row["true_optimum_span"],
            "target": row["true_optimum_span"] or row.get("heuristic_span"),
        }
        yield Row(row["id"], Instance(placement, row["m"], costs, memory, "span", row["id"]), known)


def fault(row: Row, result: Result) -> str:
    """What is wrong with a result; empty if nothing is."""
    if "crash" in result:
        return "crash"
    if not result["valid"] or not result["within caps"]:
        return "invalid"
    if row.known["target"] is not None and result["value"] > row.known["target"]:
        return f"above the known {row.known['target']}"
    if row.known["optimum"] is not None and result["bound"] > row.known["optimum"]:
        return f"bound above the optimum {row.known['optimum']}"
    return ""


def main() -> int:
    chosen = arguments(__doc__.splitlines()[0], 10.0).parse_args()
    every = list(rows())
    found = run(RESULTS, every, chosen, lambda row, result: fault(row, result) or summary(result))
    picked = [(row, found[row.name]) for row in every if row.name in found]
    faults = [f"{row.name}: {why}" for row, result in picked if (why := fault(row, result))]
    solved = [(row, result) for row, result in picked if "crash" not in result]
    lines = [
        "| class | instances | valid and within caps | proved | mean gap | largest gap |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    classes: dict[str, list[float]] = {}
    for name in sorted({row.known["class"] for row, _ in solved}):
        part = [result for row, result in solved if row.known["class"] == name]
        classes[name] = [gap(result) for result in part]
        good = sum(result["valid"] and result["within caps"] for result in part)
        lines.append(
            f"| {name} | {len(part)} | {good} | {sum(r['value'] == r['bound'] for r in part)} "
            f"| {sum(classes[name]) / len(part):.3f} % | {max(classes[name]):.3f} % |"
        )
    said = f"{len(picked) - len(faults)} of {len(picked)} solved; faults: {'; '.join(faults) or 'none'}"
    print("\n".join([*lines, said]))
    if not chosen.rows:
        head = (
            "# Instances on which published schedulers fail\n\n`uv run python -m benchmarks.sail_failures`, up to "
            f"{chosen.time_limit:g} s a row, span. {said}.\n\n"
        )
        TABLE.write_text(head + "\n".join(lines) + "\n")
        write_gaps(PLOT, {name.partition(",")[0]: gaps for name, gaps in classes.items()})
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(main())
