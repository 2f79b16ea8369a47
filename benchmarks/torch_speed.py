"""Predicted against measured: a solved schedule and 1F1B on PyTorch's runtime, two processes with one thread each.

Run as ``BUBBLEPROOF_TORCH_PYTHON=… uv run python -m benchmarks.torch_speed [--rounds 15]`` on a machine with two free
cores. Costs are measured first, op by op, in runs of both schedules; from them the schedule is solved and both
makespans are predicted; then both are run by turns. Writes benchmarks/torch_speed.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from bubbleproof import Instance, solve
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.families import FAMILIES
from bubbleproof.schedules.formats import torch_csv
from bubbleproof.schedules.op import Op
from bubbleproof.schedules.placement import linear
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import replay
from tests.runtimes.server import HERE, Server, python_of

TABLE = Path(__file__).parent / "torch_speed.md"
RANKS, WIDTH, HIDDEN, ROWS = 2, 512, 512, 256
SETTINGS = {  # microbatches, layers of each stage
    "m = 2, stages 9 : 7": (2, (9, 7)),
    "m = 2, equal stages": (2, (8, 8)),
    "m = 3, equal stages": (3, (8, 8)),
    "m = 4, equal stages": (4, (8, 8)),
}
STEPS, WARM = 4, 1
UNIT = 1e-6  # a second has a million units


def run(server: Server, schedule: Schedule, given: Instance, layers: tuple[int, ...]) -> dict[str, Any]:
    """One run of some steps; the first is not counted."""
    seen = server.ask(
        csv=torch_csv.dumps(schedule, given),
        format="compute_only",
        microbatches=given.microbatches,
        rank_of_stage=list(given.placement.routes[0]),
        hidden=[HIDDEN] * RANKS,
        layers=list(layers),
        width=WIDTH,
        rows=ROWS,
        scale_grads=True,
        timed=True,
        steps=WARM + STEPS,
        seconds=120,
    )
    assert seen["outcome"] == "ok", seen
    return seen


def instance(m: int, costs: dict[str, int] | None = None) -> Instance:
    """The instance with measured costs, or with equal ones; the backward in one may differ from its parts."""
    if costs is None:
        made = Costs.make(RANKS, F=1, B=1, W=1)
    else:
        each = {ours: [costs[f"{stage}{torch}"] for stage in range(RANKS)] for ours, torch in KINDS.items()}
        made = Costs.make(RANKS, **each)
    return Instance(linear(RANKS), m, made, Memory.make(RANKS, RANKS))


KINDS = {"F": "F", "B": "I", "W": "W", "BW": "B"}


def split(schedule: Schedule) -> Schedule:
    """With every fused backward taken apart, to measure the parts."""
    orders = []
    for order in schedule.orders:
        made: list[Op] = []
        for op in order:
            assert isinstance(op, Op)
            made += [op] if op.kind == "F" else [op._replace(kind="B"), op._replace(kind="W")]
        orders.append(made)
    return Schedule.of(orders)


def low(seconds: list[float]) -> float:
    """The lower quartile: what else runs on a machine only adds."""
    return quantiles(seconds, n=4)[0]


def measured(server: Server, m: int, layers: tuple[int, ...], rounds: int) -> dict[str, int]:
    """Microseconds of each kind of op of each stage: lower quartiles over runs with fused and with split backwards."""
    given = instance(m)
    fused = FAMILIES["1f1b"].build(given)
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for schedule in (fused, split(fused)):
            for name, seconds in run(server, schedule, given, layers)["ops"].items():
                found.setdefault(name, []).extend(seconds[WARM * m :])
    return {name: round(low(seconds) / UNIT) for name, seconds in found.items()}


def compared(server: Server, name: str, rounds: int) -> list[str]:
    """One row of the table."""
    m, layers = SETTINGS[name]
    costs = measured(server, m, layers, max(2, rounds // 4))
    given = instance(m, costs)
    base = FAMILIES["1f1b"].build(given)
    best = solve(given, time_limit=5, workers=1)
    predicted = {key: replay(schedule, given).makespan for key, schedule in (("1f1b", base), ("ours", best.schedule))}
    seconds: dict[str, list[float]] = {"1f1b": [], "ours": []}
    for number in range(rounds):
        both = [("1f1b", base), ("ours", best.schedule)]
        for key, schedule in both if number % 2 else reversed(both):
            seconds[key] += run(server, schedule, given, layers)["step_seconds"][WARM:]
    middle = {key: median(values) * 1e3 for key, values in seconds.items()}
    least = {key: low(values) * 1e3 for key, values in seconds.items()}
    expected = 1 - predicted["ours"] / predicted["1f1b"]
    shown = ", ".join(
        f"stage {stage}: " + " ".join(f"{kind} {costs[f'{stage}{kind}'] / 1e3:.1f}" for kind in "FIWB")
        for stage in range(RANKS)
    )
    return [
        name,
        shown,
        f"{predicted['1f1b'] / 1e3:.1f}",
        f"{predicted['ours'] / 1e3:.1f}",
        f"{expected:.1%}",
        f"{middle['1f1b']:.1f} ({least['1f1b']:.1f})",
        f"{middle['ours']:.1f} ({least['ours']:.1f})",
        f"{1 - middle['ours'] / middle['1f1b']:.1%} ({1 - least['ours'] / least['1f1b']:.1%})",
    ]


HEAD = """\
# A better schedule is faster: 1F1B and a solved schedule on PyTorch's runtime

Written by `python -m benchmarks.torch_speed`. Two processes with one thread each, gloo, single precision; each stage
is some layers of two 512 × 512 matrices with a tanh, on 256 rows per microbatch, so nearly all time is in matrix
products. Costs are lower quartiles, measured on the same runtime (F; I: gradient of the input; W: of the weights; B:
both in one; stage 0 has no gradient of its input, so its I takes no time and its W all of it). The schedule is solved
for the makespan from these costs, without a memory cap; messages are taken to cost nothing. Then both run by turns,
{rounds} times {steps} steps each after a first one. Milliseconds; medians, in brackets lower quartiles.

"""
COLUMNS = ["setting", "costs", "1F1B predicted", "solved predicted", "gain predicted"]
COLUMNS += ["1F1B measured", "solved measured", "gain measured"]


def main() -> None:
    """Measure all settings and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", help="a setting, by the beginning of its name; nothing is written")
    given = parser.parse_args()
    log = Path(tempfile.mkdtemp()) / "server.log"
    server = Server(python_of("torch"), HERE / "torch" / "executor.py", log)
    rows = []
    for name in SETTINGS:
        if given.only is None or name.startswith(given.only):
            rows.append(compared(server, name, given.rounds))
            print(" | ".join(rows[-1]), flush=True)
    versions = ", ".join(f"{name} {version}" for name, version in server.versions.items())
    server.close()
    if given.only is None:
        table = [COLUMNS, ["---"] * len(COLUMNS), *rows]
        load = os.getloadavg()[1]
        foot = (
            f"\n{versions}; {os.cpu_count()} cores ({platform.machine()}), load of the machine at the end {load:.1f}.\n"
        )
        text = HEAD.format(rounds=given.rounds, steps=STEPS)
        TABLE.write_text(text + "\n".join(f"| {' | '.join(row)} |" for row in table) + "\n" + foot, encoding="utf-8")


if __name__ == "__main__":
    main()
