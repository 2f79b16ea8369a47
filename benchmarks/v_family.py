"""The V family: two chunks per rank in a vee, from V-Min's memory to ZB-V's, against the published schedules.

Run as ``uv run python -m benchmarks.v_family [--time-limit 60] [--rows "cap 12" …] [--fresh]``; without ``--rows`` it
writes benchmarks/v_family.md. Two groups: p=8 m=16 with F=B=W=1 under each cap of 8 to 16 chunks and both objectives,
where "published" is the best of the published schedules whose peak fits under the cap; and p=4 m=8 with unequal times,
under the peaks of the published schedules. The figures of peers are in benchmarks/data/v_family.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from benchmarks.rows import Result, Row, arguments, gap, run, summary
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance, Objective
from bubbleproof.schedules.placement import vee

ROOT = Path(__file__).parents[1]
DATA = ROOT / "benchmarks" / "data" / "v_family.json"
RESULTS, TABLE = ROOT / "benchmarks" / "v_family.json", ROOT / "benchmarks" / "v_family.md"
OBJECTIVES: tuple[Objective, ...] = ("makespan", "span")
UNIT = "1:1:1 p=8"


def instance(p: int, m: int, times: tuple[int, int, int], cap: int, objective: Objective) -> Instance:
    """A vee of equal stages whose memory is freed at W."""
    f, b, w = times
    costs, memory = Costs.make(2 * p, F=f, B=b, W=w), Memory.make(2 * p, p, cap=cap)
    return Instance(vee(p), m, costs, memory, objective, f"vee p={p} m={m} {f}:{b}:{w} cap {cap} {objective}")


def rows() -> Iterator[Row]:
    """The rows, those with published optima first."""
    data = json.loads(DATA.read_text())
    for row in data["optima"]:
        times = (row["F"], row["B"], row["W"])
        posed = instance(row["p"], row["m"], times, row["cap_chunks"], "makespan")
        name = f"{':'.join(map(str, times))} p={row['p']} m={row['m']} cap {row['cap_chunks']} makespan"
        known = {"target": row["greedy"], "by": row["schedule"], "optimum": row["optimum"]}
        yield Row(name, posed, known)
    for objective in OBJECTIVES:
        for cap in range(8, 17):
            fits = [row for row in data["published"] if row["peak_chunks"] <= cap]
            best = min(fits, key=lambda row: (row[objective], row["id"]))
            known = {"target": best[objective], "by": best["schedule"], "optimum": None}
            yield Row(f"{UNIT} m=16 cap {cap} {objective}", instance(8, 16, (1, 1, 1), cap, objective), known)


def line(row: Row, result: Result) -> str:
    """One row of the table."""
    known = row.known
    return (
        f"| {row.name} | {known['by']} {known['target']} | {known['optimum'] or ''} | {result['value']} "
        f"| {result['bound']} | {gap(result):.2f} % | {result['level']} | {result['proof']} | {result['source']} "
        f"| {result['milliseconds'] / 1000:.1f} |"
    )


def main() -> int:
    chosen = arguments(__doc__.splitlines()[0], 60.0).parse_args()
    every = list(rows())
    found = run(RESULTS, every, chosen, lambda row, result: f"{summary(result)}; published {row.known['target']}")
    solved = [(row, found[row.name]) for row in every if "crash" not in found.get(row.name, {"crash": ""})]
    above = [row.name for row, r in solved if r["value"] > row.known["target"]]
    missed = [
        row.name for row, r in solved if row.known["optimum"] and not r["value"] == r["bound"] == row.known["optimum"]
    ]
    said = [
        f"{len(solved) - len(above)} of {len(solved)} at most the published value; above: {', '.join(above) or 'none'}",
        f"known optimum not reached or not proved: {', '.join(missed) or 'none'}",
    ]
    for objective in OBJECTIVES:
        group = [r for row, r in solved if row.name.startswith(UNIT) and row.name.endswith(objective)]
        proved = sum(r["value"] == r["bound"] for r in group)
        said.append(f"p=8 m=16, 9 caps, {objective}: {proved} of {len(group)} proved optimal")
    print("\n".join(said))
    if not chosen.rows:
        head = (
            "# The V family\n\n`uv run python -m benchmarks.v_family`, up to "
            f"{chosen.time_limit:g} s a row, one worker a row, two rows at once. Times in the unit of the costs; "
            "caps in chunks.\n\n"
        )
        table = [
            "| row | published | known optimum | value | bound | gap | level | proof | found by | seconds |",
            "|---|---|---:|---:|---:|---:|---|---|---|---:|",
            *(line(*pair) for pair in solved),
        ]
        TABLE.write_text(head + "\n".join(f"* {text}" for text in said) + "\n\n" + "\n".join(table) + "\n")
    return int(bool(above or missed) or len(solved) < len(found))


if __name__ == "__main__":
    raise SystemExit(main())
