"""`solve` against every order of small chains: one reaches its value, and none goes below its bound.

Run as ``uv run python -m benchmarks.brute_force [--share 10]``. The enumeration is tests/brute_arrays.py,
which shares nothing with the solver or the judge. ``--share N`` takes every N-th instance of each class.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance, Objective
from bubbleproof.schedules.placement import linear
from bubbleproof.solver import solve
from tests.brute_arrays import Orders

TABLE = Path(__file__).parent / "brute_force.md"

Numbers = int | tuple[int, ...]


def uniform(p: int, m: int, objective: Objective) -> Iterator[Instance]:
    """All costs from 0 to 3 (F from 1), message times 0, 1 and 3, every cap and none, both memory models."""
    for f, b, w, comm in product((1, 2, 3), (0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 3)):
        yield from _under_caps(p, m, (f, b, w), comm, objective)


def unequal(p: int, m: int, objective: Objective) -> Iterator[Instance]:
    """All costs from 1 to 3 of every op of every stage by itself, message times 0 and 1."""
    for times in product((1, 2, 3), repeat=3 * p):
        for comm in (0, 1):
            yield from _under_caps(p, m, (times[:p], times[p : 2 * p], times[2 * p :]), comm, objective)


def _under_caps(
    p: int, m: int, times: tuple[Numbers, Numbers, Numbers], comm: int, objective: Objective
) -> Iterator[Instance]:
    costs = Costs.make(p, F=times[0], B=times[1], W=times[2], comm=comm)
    for cap in (*range(1, m), None):
        for held, lost in ((1, 0), (3, -1)):
            memory = Memory.make(p, p, F=held, B=lost, cap=cap and held * cap)
            yield Instance(linear(p), m, costs, memory, objective)


CLASSES = [
    *(("uniform", uniform, p, m, 1) for p in (1, 2, 3) for m in (1, 2, 3)),
    ("unequal", unequal, 2, 2, 1),
    ("unequal", unequal, 2, 3, 7),
    ("unequal", unequal, 3, 2, 97),
    ("unequal", unequal, 3, 3, 997),
]
"""Name, instances, ranks, microbatches, and which share of them is taken: every n-th."""


def check(instance: Instance) -> str:
    """The level of a solve, or what is wrong with it."""
    record = solve(instance, time_limit=20, workers=1).record
    orders = Orders(instance)
    if not orders.reach(record.value):
        return "fault: no order reaches the value"
    if orders.reach(record.bound - 1):
        return "fault: an order is below the bound"
    if record.level != "open" and record.value != record.bound:
        return "fault: called proved with a gap"
    return record.level


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=int, default=1, help="take every n-th instance only")
    share, began = parser.parse_args().share, time.monotonic()
    lines, tried, faults = [], 0, 0
    for objective in ("makespan", "span"):
        for name, instances, p, m, step in CLASSES:
            counts: dict[str, int] = {}
            for k, instance in enumerate(instances(p, m, objective)):
                if k % (step * share) == 0:
                    level = check(instance)
                    counts[level] = counts.get(level, 0) + 1
                    if level.startswith("fault"):
                        print(level, instance, flush=True)
            every = step * share
            taken = "all" if every == 1 else f"every {every}th"
            row = [counts.get(level, 0) for level in ("certified", "solver-claimed", "open")]
            bad = sum(counts.values()) - sum(row)
            tried, faults = tried + sum(counts.values()), faults + bad
            lines.append(
                f"| {name} | {p} | {m} | {objective} | {taken} | {sum(counts.values())} | "
                + " | ".join(map(str, (*row, bad)))
                + " |"
            )
            print(lines[-1], f"{time.monotonic() - began:.0f} s", flush=True)
    TABLE.write_text(
        "# Every order of small chains\n\n"
        "`uv run python -m benchmarks.brute_force`: F, B and W per stage, message times, caps below m and none,"
        " memory freed at W and in two parts. A fault is a value no order reaches, a bound above an order's value, or"
        ' "proved" with a gap.\n\n'
        f"* {tried} instances, {faults} faults\n\n"
        "| costs | ranks | microbatches | objective | taken | instances | certified | solver-claimed | open"
        " | faults |\n"
        "|---|---:|---:|---|---|---:|---:|---:|---:|---:|\n" + "\n".join(lines) + "\n"
    )


if __name__ == "__main__":
    main()
