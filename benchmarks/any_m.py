"""Whether the number of microbatches matters: m ∈ {24, 64, 256, 1024} in two cost sets, and every m at once.

Run as ``uv run python -m benchmarks.any_m [--time-limit 10] [--rows zb …]``; it takes some minutes. Each line is solved
in a process of its own with one worker, and what is counted is processor time of that process, of a solve that takes
less than a second the least of several. Results are kept in benchmarks/any_m.json, and without ``--rows`` the table
and the plot are written from it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

from benchmarks.plot import write_plot
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.formats.files import write_atomic
from bubbleproof.schedules.instance import Instance, Objective
from bubbleproof.schedules.placement import linear

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data" / "zb_table5.json"
RESULTS, TABLE, PLOT = (ROOT / "benchmarks" / f"any_m.{kind}" for kind in ("json", "md", "svg"))

SIZES = (24, 64, 256, 1024)
MEASURED = {8: "1.5B", 16: "14.6B"}
OBJECTIVES: tuple[Objective, ...] = ("makespan", "span")
REPEATS = 5
RATIO = 2.0


class Line(NamedTuple):
    """All m of one instance."""

    costs: str
    ranks: int
    cap: str
    objective: Objective

    @property
    def name(self) -> str:
        """What it is called in table and file."""
        return f"{self.costs} p={self.ranks} cap {self.cap} {self.objective}"

    def instance(self, microbatches: int) -> Instance:
        """With so many microbatches."""
        p = self.ranks
        room = {"p": p, "2p": 2 * p, "p/2+1": p // 2 + 1}[self.cap]
        if self.costs == "unit":
            costs, memory = Costs.make(p, F=1, B=1, W=1), Memory.make(p, p, F=1, B=0, W=-1, cap=room)
        else:
            found = next(r for r in json.loads(DATA.read_text())["rows"] if (r["model"], r["p"]) == (MEASURED[p], p))
            costs = Costs.make(p, F=found["F"], B=found["B"], W=found["W"], comm=found["comm"])
            take = found["mem_F"]
            memory = Memory.make(p, p, F=take, B=found["mem_B"], W=found["mem_W"], cap=room * take)
        return Instance(linear(p), microbatches, costs, memory, self.objective, f"{self.name} m={microbatches}")


def lines() -> Iterator[Line]:
    for cap in ("p", "2p", "p/2+1"):
        for costs in ("unit", "zb"):
            for ranks in (8, 16):
                for objective in OBJECTIVES:
                    yield Line(costs, ranks, cap, objective)


def measured(work: Callable[[], Any]) -> tuple[Any, float]:
    """What work gives back, and the least processor seconds of a few runs."""
    least, result = float("inf"), None
    for _ in range(REPEATS):
        begun = process_time()
        result = work()
        least = min(least, process_time() - begun)
        if least > 1:
            break
    return result, least


def solved(line: Line, limit: float) -> dict[str, Any]:
    """All m of a line, each judged again op by op, and every m at once."""
    from benchmarks.rows import warm
    from bubbleproof.solver import solve, solve_every
    from bubbleproof.verify import Verdict, verify

    warm()
    solve(line.instance(100), time_limit=1, workers=1)
    sizes, checked = {}, True
    for m in SIZES:
        instance = line.instance(m)
        solution, seconds = measured(lambda at=instance: solve(at, time_limit=limit, workers=1))
        begun = process_time()
        timeline = solution.timeline
        written = process_time() - begun
        record = solution.record
        claims = {"makespan": timeline.makespan, "span": timeline.span, "peak": list(record.peak)}
        report = verify(solution.schedule, instance, timeline=timeline.starts, claims=claims)
        checked = checked and report.verdict is Verdict.PROVED and timeline.value() == record.value
        sizes[str(m)] = {
            "value": record.value,
            "bound": record.bound,
            "level": record.level,
            "source": record.source,
            "seconds": round(seconds, 4),
            "written in": round(written, 4),
        }
    begun = process_time()
    every = solve_every(line.instance(24), time_limit=limit, workers=1)
    seconds = process_time() - begun
    records = [found.record for found in every.classes]
    return {
        "sizes": sizes,
        "checked": checked,
        "every": {
            "seconds": round(seconds, 3),
            "modulus": records[0].modulus,
            "per microbatch": records[0].per_microbatch,
            "constants": [record.constant for record in records],
            "least": max(record.least for record in records),
            "compared from": max(record.compared_from for record in records),
            "bound per microbatch": records[0].bound_per_microbatch,
            "excess": [record.excess for record in records],
            "level": "certified" if every.certified else "open",
        },
        "limit": limit,
    }


def in_a_process_of_its_own(name: str, limit: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.any_m", "--one", name, "--time-limit", str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def ratio(found: dict[str, Any]) -> float:
    """Processor time at the most microbatches over that at the fewest."""
    sizes = found["sizes"]
    return float(sizes[str(SIZES[-1])]["seconds"] / sizes[str(SIZES[0])]["seconds"])


def levels(found: dict[str, Any]) -> set[str]:
    return {size["level"] for size in found["sizes"].values()}


def row(line: Line, found: dict[str, Any]) -> str:
    cells = []
    for size in (found["sizes"][str(m)] for m in SIZES):
        gap = 100 * (size["value"] / size["bound"] - 1)
        cells.append(f"{size['seconds']:.3f} {size['level']}" + (f" {gap:.2f} %" if gap else ""))
    every = found["every"]
    constants = [Fraction(constant) for constant in every["constants"]]
    most = f"{float(max(constants)):g}" if len(constants) == 1 else f"≤ {float(max(constants)):g}"
    more = float(Fraction(every["per microbatch"]) / Fraction(every["bound per microbatch"]) - 1)
    level = every["level"] if every["level"] == "certified" or not more else f"open, {100 * more:.2f} % for large m"
    text = f"{most} + {float(Fraction(every['per microbatch'])):g} m, m ≥ {every['least']}: {level}"
    written = found["sizes"][str(SIZES[-1])]["written in"]
    return (
        f"| {line.name} | {' | '.join(cells)} | {ratio(found):.2f} | {text} | {every['seconds']:.1f} | {written:.2f} |"
    )


def summary(solved_lines: list[tuple[Line, dict[str, Any]]]) -> list[str]:
    same = [found for _, found in solved_lines if len(levels(found)) == 1]
    fast = [found for _, found in solved_lines if ratio(found) <= RATIO]
    certified = [found for _, found in solved_lines if levels(found) == {"certified"}]
    every = [found for _, found in solved_lines if found["every"]["level"] == "certified"]
    count = len(solved_lines)
    return [
        f"same evidence level at every m: {len(same)} of {count}",
        f"time at m = {SIZES[-1]} at most {RATIO:g} times that at m = {SIZES[0]}: {len(fast)} of {count}, "
        f"largest ratio {max((ratio(f) for _, f in solved_lines), default=0.0):.2f}",
        f"`certified` at every m: {len(certified)}; for all m at once: {len(every)}",
        "every schedule accepted again by the judge of single ops: "
        + ("yes" if all(found["checked"] for _, found in solved_lines) else "NO"),
    ]


def page(solved_lines: list[tuple[Line, dict[str, Any]]], limit: float) -> str:
    titles = " | ".join(f"m = {m}" for m in SIZES)
    return "\n".join(
        [
            "# The number of microbatches does not matter",
            "",
            f"`uv run python -m benchmarks.any_m --time-limit {limit:g}`; Python {platform.python_version()}, "
            f"{os.cpu_count()} cores shared with other work.",
            "",
            "Processor seconds of `solve` with one worker, in a process with its libraries loaded, until the judged",
            "answer is there; op objects are made when they are asked for (the last column, at the largest m). `zb`:",
            "measured costs of the 1.5B (p = 8) and 14.6B (p = 16) settings of the zero-bubble paper, in microseconds,",
            "memory in two parts. Up to 8,000 ops (m = 256 on 8 ranks) the time includes building and timing the",
            "published families, which the record compares; above it does not. At cap 2p and m = 24 on 16 ranks more",
            "microbatches fit than there are, so that instance is an easier one. Where a line is open its time is what",
            "the limit allows. *For every m*: `solve_every`",
            "(`solve --microbatches any`), T(m) of its patterns and its time.",
            "",
            *(f"* {text}" for text in summary(solved_lines)),
            "",
            "![processor time by m](any_m.svg)",
            "",
            f"| instance | {titles} | ratio | for every m | seconds | as objects |",
            f"|---|{'---|' * len(SIZES)}---:|---|---:|---:|",
            *(row(*pair) for pair in solved_lines),
            "",
        ]
    )


def plot(solved_lines: list[tuple[Line, dict[str, Any]]]) -> None:
    """Lines that are certified at every m."""
    series = {
        line.name: [(float(m), float(found["sizes"][str(m)]["seconds"])) for m in SIZES]
        for line, found in solved_lines
        if levels(found) == {"certified"} and line.objective == "makespan"
    }
    write_plot(PLOT, series, "microbatches", "processor seconds")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--time-limit", type=float, default=10.0, help="most seconds per solve")
    parser.add_argument("--rows", nargs="*", help="only lines whose name contains one of these; writes no table")
    parser.add_argument("--fresh", action="store_true", help="solve again what an earlier run has solved")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        line = next(line for line in lines() if line.name == chosen.one)
        print(json.dumps(solved(line, chosen.time_limit)))
        return 0
    found: dict[str, Any] = {} if chosen.fresh or not RESULTS.exists() else json.loads(RESULTS.read_text())["rows"]
    picked = [line for line in lines() if not chosen.rows or any(part in line.name for part in chosen.rows)]
    for line in picked:
        if line.name not in found or found[line.name]["limit"] < chosen.time_limit:
            found[line.name] = in_a_process_of_its_own(line.name, chosen.time_limit)
            texts = ",\n".join(
                f"{json.dumps(name)}: {json.dumps(found[name], sort_keys=True)}" for name in sorted(found)
            )
            write_atomic(RESULTS, f'{{"rows": {{\n{texts}\n}}}}\n')
        print(row(line, found[line.name]), flush=True)
    solved_lines = [(line, found[line.name]) for line in picked]
    print("\n".join(summary(solved_lines)))
    if not chosen.rows:
        write_atomic(TABLE, page(solved_lines, chosen.time_limit))
        plot(solved_lines)
    return int(not all(f["checked"] and len(levels(f)) == 1 and ratio(f) <= RATIO for _, f in solved_lines))


if __name__ == "__main__":
    raise SystemExit(main())
