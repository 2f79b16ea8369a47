"""Many instances solved one after the other in a few processes: restartable, with progress and a budget of time.

Results are kept in a JSON file that is replaced after every row; a row that is there and proved, or had at least the
time that is asked for now, is not solved again. ``--fresh`` forgets them.
"""

from __future__ import annotations

import argparse
import json
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from time import monotonic
from typing import Any

from bubbleproof.schedules.formats.files import write_atomic
from bubbleproof.schedules.instance import Instance

Result = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """An instance under a unique name, what is known about it, and the most seconds it is worth (None: as asked)."""

    name: str
    instance: Instance
    known: Mapping[str, Any]
    seconds: float | None = None


def arguments(description: str, time_limit: float, total: float | None = None) -> argparse.ArgumentParser:
    """The options that all drivers share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--time-limit", type=float, default=time_limit, help="most seconds per row")
    parser.add_argument("--total", type=float, default=total, help="seconds for all rows together, shared out fairly")
    parser.add_argument("--processes", type=int, default=2, help="rows solved at once")
    parser.add_argument("--workers", type=int, default=1, help="workers of each row")
    parser.add_argument("--rows", nargs="*", help="only rows whose name contains one of these; writes no table")
    parser.add_argument("--fresh", action="store_true", help="solve again what an earlier run has solved")
    return parser


def solve_row(row: Row, limit: float, seed: int, workers: int) -> Result:
    """Solve one row; what goes wrong is a result too."""
    from bubbleproof.solver import solve
    from bubbleproof.verify import Verdict, verify

    first: dict[str, int] = {}

    def progress(step: Any) -> None:
        target = row.known.get("target")
        if target is not None and step.value is not None and step.value <= target:
            first.setdefault("milliseconds to target", step.milliseconds)

    try:
        solution = solve(
            row.instance, time_limit=limit, workers=workers, seed=seed, by_clock=True, on_progress=progress
        )
        record = solution.record
        report = verify(solution.schedule, row.instance)
        cap = row.instance.memory.cap
        return {
            "value": record.value,
            "bound": record.bound,
            "level": record.level,
            "proof": record.proof,
            "source": record.source,
            "peak": list(record.peak),
            "milliseconds": record.milliseconds,
            "stopped": record.stopped,
            "valid": report.verdict is Verdict.PROVED,
            "within caps": cap is None or all(a <= b for a, b in zip(record.peak, cap, strict=True)),
            **first,
        }
    except Exception:
        return {"crash": traceback.format_exc()}


def warm() -> None:
    """Import in each process what every solve needs, so that the first row does not pay for it."""
    import ortools.sat.python.cp_model  # noqa: F401

    import bubbleproof.schedules.families
    import bubbleproof.solver.driver
    import bubbleproof.verify  # noqa: F401


def run(
    path: Path, rows: Sequence[Row], chosen: argparse.Namespace, show: Callable[[Row, Result], str], seed: int = 0
) -> dict[str, Result]:
    """Solve rows and return the result of each by its name.

    With a total, what is left of it is shared out among the rows that are left, in their order: put quick ones first.
    """
    found: dict[str, Result] = {}
    if path.exists() and not chosen.fresh:
        found = json.loads(path.read_text())["rows"]
    picked = [row for row in rows if not chosen.rows or any(part in row.name for part in chosen.rows)]
    left = [row for row in picked if not _settled(found.get(row.name), min(chosen.time_limit, row.seconds or 1e9))]
    print(f"{len(picked)} rows, {len(picked) - len(left)} of them solved before", flush=True)
    begun, running = monotonic(), dict[Future[Result], tuple[Row, float]]()
    done = len(picked) - len(left)
    with ProcessPoolExecutor(chosen.processes, get_context("spawn"), warm) as pool:
        while left or running:
            while left and len(running) < chosen.processes:
                limit = min(chosen.time_limit, left[0].seconds or 1e9)
                if chosen.total is not None:
                    open_time = max(0.0, chosen.total - (monotonic() - begun)) * chosen.processes
                    limit = max(1.0, min(limit, open_time / len(left)))
                row = left.pop(0)
                running[pool.submit(solve_row, row, limit, seed, chosen.workers)] = row, limit
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                row, limit = running.pop(future)
                done += 1
                result = {**future.result(), "limit": limit, "workers": chosen.workers}
                found[row.name] = result
                _save(path, found, seed)
                words = "CRASH" if "crash" in result else show(row, result)
                print(f"{done}/{len(picked)} {monotonic() - begun:.0f} s  {row.name}: {words}", flush=True)
    return {row.name: found[row.name] for row in picked}


def _save(path: Path, found: dict[str, Result], seed: int) -> None:
    """Replace the file of results: a line for each row."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(found[name], sort_keys=True)}" for name in sorted(found))
    write_atomic(path, f'{{"seed": {seed}, "rows": {{\n{lines}\n}}}}\n')


def _settled(result: Result | None, limit: float) -> bool:
    """Whether a result from an earlier run need not be improved."""
    if result is None or "crash" in result:
        return False
    return bool(result["value"] == result["bound"] or result["limit"] >= limit)


def gap(result: Result) -> float:
    """Value over bound minus one, in percent."""
    return float(100 * (result["value"] / result["bound"] - 1)) if result["bound"] else 0.0


def summary(result: Result) -> str:
    """One line of progress."""
    return (
        f"{result['value']} bound {result['bound']} gap {gap(result):.3f} % {result['level']} "
        f"in {result['milliseconds'] / 1000:.1f} s"
    )
