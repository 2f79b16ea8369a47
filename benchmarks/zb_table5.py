"""The zero-bubble paper's 12 settings under three caps, two objectives and two memory models: 144 rows.

Run as ``uv run python -m benchmarks.zb_table5 [--time-limit 60] [--total 2000] [--rows 1.5B …] [--fresh]``. Two rows
run at once, each with one worker, which decides more rows than one row at a time with two. Results are kept in
benchmarks/zb_table5.json, and without ``--rows`` the table and the plot are written from it. "Published" is the least
among the published schedules (1F1B, ZB-H1, ZB-H2, ZB-1p, ZB-2p) that fit under the cap; where memory is freed at W
only, the least of 1F1B, ZB-H1 and ZB-H2, whose peaks follow from their warm-up.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.plot import write_gaps
from benchmarks.rows import Result, Row, arguments, gap, run, summary
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance, Objective, Units
from bubbleproof.schedules.placement import linear

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data" / "zb_table5.json"
RESULTS, TABLE, PLOT = (ROOT / "benchmarks" / f"zb_table5.{kind}" for kind in ("json", "md", "svg"))

OBJECTIVES: tuple[Objective, ...] = ("span", "makespan")
SHORT_WARM_UPS = {"1F1B": lambda p, r: p - r, "ZB-H1": lambda p, r: p - r, "ZB-H2": lambda p, r: 2 * (p - r) - 1}
"""Microbatches in flight on rank r, for the peak where all memory is freed at W."""


def rows() -> Iterator[Row]:
    """All rows, those that are proved quickly first, so that their time is left to the others."""
    settings = json.loads(DATA.read_text())["rows"]
    for cap in ("p", "2p", "p/2+1"):
        for setting in settings:
            for parts in ("two-part", "freed at W"):
                for objective in OBJECTIVES:
                    yield _row(setting, cap, parts, objective)


def _row(setting: dict[str, Any], cap: str, parts: str, objective: Objective) -> Row:
    p, m = setting["p"], setting["m"]
    room = {"p": p, "2p": 2 * p, "p/2+1": p // 2 + 1}[cap] * setting["mem_F"]
    changes = {"B": setting["mem_B"], "W": setting["mem_W"]} if parts == "two-part" else {"B": 0}
    instance = Instance(
        linear(p),
        m,
        Costs.make(p, F=setting["F"], B=setting["B"], W=setting["W"], comm=setting["comm"]),
        Memory.make(p, p, F=setting["mem_F"], **changes, cap=room),
        objective,
        f"{setting['model']} p={p} m={m} cap {cap} {parts} {objective}",
        Units("us", "B/(s·b)"),
    )
    return Row(instance.name, instance, {"published": _published(setting, parts, room, objective), "cap": cap})


def _published(setting: dict[str, Any], parts: str, room: int, objective: Objective) -> int | None:
    """The best published value that fits."""
    fitting = []
    for name, found in setting["schedules"].items():
        peak = found["peak_mem_max"]
        if parts == "freed at W":
            held = SHORT_WARM_UPS.get(name)
            peak = None if held is None else held(setting["p"], 0) * setting["mem_F"]
        if peak is not None and peak <= room:
            fitting.append(found[objective])
    return min(fitting, default=None)


def line(row: Row, result: Result) -> str:
    """One row of the table."""
    published = row.known["published"]
    better = "–" if published is None else f"{100 * (1 - result['value'] / published):.3f} %"
    return (
        f"| {row.name} | {published or '–'} | {result['value']} | {better} | {result['bound']} | {gap(result):.3f} % "
        f"| {result['level']} | {result['source']} | {result['proof']} | {result['milliseconds'] / 1000:.1f} |"
    )


def targets(found: list[tuple[Row, Result]]) -> list[str]:
    """What was to be shown, and what came out."""
    one_p = [r for row, r in found if row.name.endswith("cap p two-part span")]
    certified = [r for r in one_p if r["level"] == "certified" and r["milliseconds"] < 1000]
    lines = [f"ZB-1p rows (span, cap p, two-part) certified in under a second: {len(certified)} of {len(one_p)}"]
    for words in ("two-part span", "two-part makespan", "freed at W span", "freed at W makespan"):
        part = [(row, r) for row, r in found if row.name.endswith(f"cap 2p {words}")]
        above = sum(row.known["published"] is not None and r["value"] > row.known["published"] for row, r in part)
        most = max((gap(r) for _, r in part), default=0.0)
        closed = sum(r["value"] == r["bound"] for _, r in part)
        lines.append(
            f"cap 2p, {words}: {above} rows above the published value, largest gap {most:.3f} %, "
            f"closed {closed} of {len(part)}"
        )
    others = [r for row, r in found if row.known["cap"] != "2p" and not row.name.endswith("cap p two-part span")]
    wide = sum(gap(r) > 1 for r in others)
    proved = sum(r["value"] == r["bound"] for r in others)
    lines.append(
        f"all others: {wide} of {len(others)} with a gap above 1 %, largest "
        f"{max(map(gap, others), default=0.0):.3f} %, proved {proved}"
    )
    proved = sum(r["value"] == r["bound"] for _, r in found)
    lines.append(f"all rows: proved {proved} of {len(found)}")
    return lines


def main() -> int:
    chosen = arguments(__doc__.splitlines()[0], 60.0, 2000.0).parse_args()
    every = list(rows())
    found = run(RESULTS, every, chosen, lambda row, result: summary(result))
    solved = [(row, found[row.name]) for row in every if row.name in found and "crash" not in found[row.name]]
    said = targets(solved)
    print("\n".join(said))
    if not chosen.rows:

        def most(*, hardest: bool) -> float:
            limits = [r["limit"] for row, r in solved if row.name.endswith("cap 2p two-part span") == hardest]
            return max(limits, default=0.0)

        head = (
            "# Zero-bubble paper, Table 5: 12 settings, three caps, two objectives, two memory models\n\n"
            "`uv run python -m benchmarks.zb_table5`, 2 cores, "
            f"{chosen.processes} rows at a time with one worker each: up to {most(hardest=True):g} s for spans at cap "
            f"2p with memory in two parts, up to {most(hardest=False):g} s for all others. Times in microseconds.\n\n"
        )
        columns = "| instance | published | value | better by | bound | gap | level | found by | bound by | seconds |"
        table = [columns, "|---|---:|---:|---:|---:|---:|---|---|---|---:|", *(line(*pair) for pair in solved)]
        items = "\n".join(f"* {text}" for text in said)
        TABLE.write_text(f"{head}{items}\n\n![gaps](zb_table5.svg)\n\n" + "\n".join(table) + "\n")
        classes = {
            f"cap {cap}": [gap(r) for row, r in solved if row.known["cap"] == cap] for cap in ("p/2+1", "p", "2p")
        }
        write_gaps(PLOT, classes)
    return int(len(solved) < len(found))


if __name__ == "__main__":
    raise SystemExit(main())
