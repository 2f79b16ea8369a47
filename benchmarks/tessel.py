"""Tessel's placements: its makespans reached, each within a tenth of the time that it took.

Run as ``uv run python -m benchmarks.tessel [--rows te-own …] [--fresh]``; without ``--rows`` it writes
benchmarks/tessel.md. The figures of Tessel (zhiqi-0/Tessel, commit 44f72c3) are in benchmarks/data/tessel.json: they
were measured on two cores shared with other work, as processor time where that was taken and else as wall time. A row
is a plan of Tessel's for one number of microbatches; its makespan is the better of what Tessel reports and of its order
without the barriers between its phases. The time limit of a row is a tenth of Tessel's time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.rows import Result, Row, arguments, run, summary
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import BubbleproofError
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import bidirectional, custom, linear

ROOT = Path(__file__).parents[1]
DATA = ROOT / "benchmarks" / "data" / "tessel.json"
RESULTS, TABLE = ROOT / "benchmarks" / "tessel.json", ROOT / "benchmarks" / "tessel.md"


_GANGS: dict[str, tuple[list[int], tuple[tuple[int, int], ...], tuple[int, ...], list[int]]] = {
    "mshape": ([0, 0, 1, 2, 3], (), (0,), [1, 3, 3, 3, 3]),
    "nnshape": ([0, 0, 1, 0, 2, 3], (), (0, 3), [1, 3, 3, 1, 3, 3]),
    "kshape": ([0, 1, 2, 3, 0], ((0, 1), (1, 4), (2, 3), (3, 4)), (4,), [3, 3, 3, 3, 1]),
}
"""Of placements in which some stages occupy all four ranks: (first) ranks, edges, those stages, times of backwards."""


def plans(row: dict[str, Any]) -> Iterator[tuple[int, int]]:
    """(microbatches, makespan) of everything that Tessel reports for one search."""
    if row.get("makespan_optimal") is not None:
        yield row["nmicros"], row["makespan_optimal"]
    elif "unrolled" in row:
        for m, length in row["unrolled"].items():
            yield int(m), min(length, row["asap_replay"].get(m, length))
    elif row.get("warmup") is not None and row["nmicros"] is not None:
        yield row["nmicros"], row["warmup"] + row["repetend"] + row["cooldown"]


def instance_of(row: dict[str, Any], m: int) -> Instance | str:
    """The instance of a row for m microbatches, or why there is none."""
    p, cap, shape = row["ndevs"], row["mem_cap"], row["placement"]
    if shape == "linear_split":
        weight = row["W"] or None
        costs = Costs.make(p, F=row["F"], B=row["B"], W=weight)
        memory = Memory.make(p, p, F=1, B=0 if weight else -1, cap=cap)
        return Instance(linear(p), m, costs, memory, "makespan")
    if row.get("inference"):
        return "a pass without backwards"
    if shape in _GANGS:
        where, edges, gangs, lasts = _GANGS[shape]
        takes = [0 if stage in gangs and shape != "kshape" else 1 for stage in range(len(where))]
        costs = Costs.make(len(where), F=1, B=lasts)
        memory = Memory.make(len(where), p, F=takes, B=None, cap=cap)
        return Instance(custom(where, p, edges, dict.fromkeys(gangs, range(p))), m, costs, memory, "makespan")
    costs = Costs.make(p, F=1, B=3)
    memory = Memory.make(p, p, F=1, B=-1, cap=cap)
    if shape == "vshape":
        return Instance(linear(p), m, costs, memory, "makespan")
    if shape == "xshape":  # a microbatch of Tessel's passes both ways
        return Instance(bidirectional(p), 2 * m, costs, memory, "makespan")
    return f"{shape}: not a placement of ours"


def rows() -> tuple[list[Row], list[str]]:
    """The rows that can be solved, and for each other one why not."""
    found, left_out = [], []
    for row in json.loads(DATA.read_text())["rows"]:
        name, any_plan = row["id"], False
        took = row.get("cpu_ms") or row.get("search_wall_ms")
        for m, makespan in plans(row):
            any_plan = True
            try:
                instance = instance_of(row, m)
            except BubbleproofError as error:
                instance = str(error)
            if isinstance(instance, str):
                left_out.append(f"{name}: {instance}")
                break
            known = {"target": makespan, "milliseconds": took, "m": m, "kind": row["placement"], "mode": row["mode"]}
            found.append(Row(f"{name} m={m}", instance, known, took / 10_000))
        if not any_plan:
            why = (
                row["status"] if row["status"] != "finished" else "the number of microbatches of the plan is not known"
            )
            left_out.append(f"{name}: no makespan to compare with ({why})")
    return found, left_out


def line(row: Row, result: Result) -> str:
    """One row of the table."""
    theirs, took = row.known["target"], row.known["milliseconds"]
    reached = result.get("milliseconds to target")
    words = "not reached" if reached is None else f"{max(1, reached) / 1000:.3f}"
    used = max(1, result["milliseconds"])
    return (
        f"| {row.name} | {row.known['mode']} | {theirs} | {took / 1000:.2f} | {result['value']} | {result['bound']} "
        f"| {result['level']} | {words} | {used / 1000:.3f} | {took / used:.0f} |"
    )


def main() -> int:
    chosen = arguments(__doc__.splitlines()[0], 60.0).parse_args()
    every, left_out = rows()
    found = run(RESULTS, every, chosen, lambda row, result: f"{summary(result)}; Tessel {row.known['target']}")
    solved = [(row, found[row.name]) for row in every if "crash" not in found.get(row.name, {"crash": ""})]
    missed = [row.name for row, r in solved if r["value"] > row.known["target"]]
    slow = [row.name for row, r in solved if r["milliseconds"] > row.known["milliseconds"] / 10 + 50]
    proved = sum(r["value"] == r["bound"] for _, r in solved)
    said = [
        f"{len(solved) - len(missed)} of {len(solved)} at most Tessel's; above: {', '.join(missed) or 'none'}",
        f"longer than a tenth of Tessel's time: {', '.join(slow) or 'none'}",
        f"proved optimal: {proved} of {len(solved)}",
    ]
    print("\n".join([*said, *left_out]))
    if not chosen.rows:
        head = (
            "# Tessel's placements\n\n`uv run python -m benchmarks.tessel`. Makespans in Tessel's steps, times in "
            "seconds. Each row may take a tenth of Tessel's time.\n\n"
        )
        columns = (
            "| plan | mode | Tessel | its seconds | value | bound | level | seconds to Tessel's | seconds | ratio |"
        )
        table = [columns, "|---|---|---:|---:|---:|---:|---|---:|---:|---:|", *(line(*pair) for pair in solved)]
        items = "\n".join(f"* {text}" for text in said)
        missing = "\n".join(f"* {text}" for text in left_out)
        TABLE.write_text(f"{head}{items}\n\n" + "\n".join(table) + f"\n\nNot compared:\n\n{missing}\n")
    return int(bool(missed) or len(solved) < len(found))


if __name__ == "__main__":
    raise SystemExit(main())
