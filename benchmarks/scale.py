"""How long the judge takes: from ten thousand to ten million actions, beside PyTorch's simulator, and to start.

Run as ``uv run python -m benchmarks.scale [--torch PYTHON]``; it takes some minutes and writes benchmarks/scale.md and
benchmarks/scale.svg. PYTHON is the interpreter of an environment of its own with torch 2.13 (``pip install
torch==2.13.0``); without it the comparison is left out, and the page says so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.plot import write_plot
from benchmarks.tables import lowered, torch_text, zb_h1
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import linear
from bubbleproof.schedules.table import LargeInstance, Table
from bubbleproof.verify import verify_program
from bubbleproof.verify.bulk_program import proof_of_program
from bubbleproof.verify.exchange import Setting

HERE = Path(__file__).parent
RANKS = (64, 8)
TARGETS = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
TORCH_SIZES = ((8, 64), (64, 64), (64, 512), (64, 4096), (64, 8192))
LARGEST_BY_OBJECTS = 150_000


def instance_of(ranks: int, microbatches: int) -> Instance:
    costs = Costs.make(ranks, F=10, B=11, W=7, comm=1)
    return LargeInstance(linear(ranks), microbatches, costs, Memory.make(ranks, ranks, F=3, B=-2))


def case(ranks: int, microbatches: int) -> tuple[Table, Instance]:
    instance = instance_of(ranks, microbatches)
    return lowered(zb_h1(ranks, microbatches), instance), instance


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and processor seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def one(ranks: int, microbatches: int) -> dict[str, float]:
    """One size in this process: what it takes to judge, without making the program."""
    table, instance = case(ranks, microbatches)

    def judge() -> None:
        report = proof_of_program(table, instance, Setting())
        assert report is not None
        assert report.channel is not None

    repeats = 3 if len(table) < 2_000_000 else 1
    wall, cpu = min((timed(judge) for _ in range(repeats)), key=lambda pair: pair[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = {"actions": len(table), "wall": wall, "cpu": cpu, "peak": peak}
    if len(table) <= LARGEST_BY_OBJECTS:
        program = table.program()
        found["objects"] = timed(lambda: verify_program(program, instance))[1]
    return found


def in_a_process_of_its_own(*words: object) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scale", *map(str, words)], capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def sizes() -> list[str]:
    """Judging alone, by size; also draws the plot."""
    lines = [
        "| ranks | microbatches | actions | wall [s] | processor [s] | per action [ns] | peak of the process [MiB] "
        "| one by one, per action [ns] |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    series: dict[str, list[tuple[float, float]]] = {}
    for ranks in RANKS:
        for target in TARGETS:
            microbatches = max(1, round(target / (3 * ranks + 4 * (ranks - 1))))
            found = in_a_process_of_its_own("--one", ranks, microbatches)
            count, each = found["actions"], found["cpu"] / found["actions"] * 1e9
            series.setdefault(f"arrays, {ranks} ranks", []).append((count, each))
            slow = found.get("objects")
            if slow is not None:
                series.setdefault(f"one by one, {ranks} ranks", []).append((count, slow / count * 1e9))
            lines.append(
                f"| {ranks} | {microbatches} | {count:,} | {found['wall']:.2f} | {found['cpu']:.2f} | {each:.0f} "
                f"| {found['peak']:.0f} | {'' if slow is None else f'{slow / count * 1e9:.0f}'} |"
            )
            print(lines[-1], flush=True)
    write_plot(HERE / "scale.svg", series, "actions", "processor time per action [ns]")
    return lines


def whole_process(folder: Path) -> list[str]:
    """The command line on files: from the start of the process to its exit."""
    lines = ["| file | size [MB] | actions | wall [s] | processor [s] | peak [MiB] |", "|---|---:|---:|---:|---:|---:|"]
    program, _ = case(64, 4096)
    for name, table in (("with communication", program), ("ops only", program.ops())):
        path = folder / f"{name.replace(' ', '-')}.csv"
        path.write_text(torch_text(table))
        command = [sys.executable, "-m", "bubbleproof.cli", "verify", str(path)]
        begin = time.perf_counter()
        _, status, usage = os.wait4(subprocess.Popen(command, stdout=subprocess.DEVNULL).pid, 0)
        wall = time.perf_counter() - begin
        assert status == 0
        cpu = usage.ru_utime + usage.ru_stime
        megabytes = path.stat().st_size / 1e6
        lines.append(
            f"| 64 ranks, 4096 microbatches, {name} | {megabytes:.1f} | {len(table):,} | {wall:.2f} | {cpu:.2f} "
            f"| {usage.ru_maxrss / 1024:.0f} |"
        )
        print(lines[-1], flush=True)
    return lines


SIMULATE = """
import sys, time, torch
from torch.distributed.pipelining import schedules as s
for line in sys.stdin:
    path, stages = line.split()
    rows = {r: [s._Action.from_str(cell) for cell in row.split(",")] for r, row in enumerate(open(path))}
    wall, cpu = time.perf_counter(), time.process_time()
    s._simulate_comms_compute(rows, lambda stage: stage, int(stages))
    print(time.perf_counter() - wall, time.process_time() - cpu, torch.__version__, flush=True)
"""


def beside_torch(python: str | None, folder: Path) -> list[str]:
    """The same lowered schedules, in turn, each from actions that have been read."""
    if python is None:
        return ["Not measured: no interpreter with torch was given (`--torch`)."]
    process = subprocess.Popen([python, "-c", SIMULATE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    lines = [
        "| ranks | microbatches | actions | torch, processor [s] | bubbleproof, processor [s] | times as fast |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    version = ""
    for ranks, microbatches in TORCH_SIZES:
        table, instance = case(ranks, microbatches)
        path = folder / f"{ranks}-{microbatches}.csv"
        path.write_text(torch_text(table))
        judge = partial(proof_of_program, table, instance, Setting())
        ours = [timed(judge)[1] for _ in range(2)]
        process.stdin.write(f"{path} {ranks}\n")
        process.stdin.flush()
        answer = process.stdout.readline().split()
        if not answer:
            return ["Not measured: the interpreter given has no torch with the pipelining schedules of 2.13."]
        ours.append(timed(judge)[1])
        theirs, version = float(answer[1]), answer[2]
        best = min(ours)
        lines.append(f"| {ranks} | {microbatches} | {len(table):,} | {theirs:.2f} | {best:.3f} | {theirs / best:.1f} |")
        print(lines[-1], flush=True)
    process.stdin.close()
    process.wait()
    return [
        f"`_simulate_comms_compute` of torch {version} (progress under unbounded sends) beside the whole judgement "
        "here; both from actions in memory, one run of torch between three here, of which the best counts.",
        "",
        *lines,
    ]


def start(folder: Path, runs: int) -> list[str]:
    """A whole `verify` of a small file and a bare import of numpy, in turn."""
    path = folder / "small.csv"
    path.write_text(torch_text(zb_h1(4, 8)))
    commands = {
        "`bubbleproof verify small.csv`": [str(Path(sys.executable).parent / "bubbleproof"), "verify", str(path)],
        "`python -c 'import numpy'`": [sys.executable, "-c", "import numpy"],
        "`python -c pass`": [sys.executable, "-c", "pass"],
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for turn in range(runs + 1):
        for name, command in commands.items():
            begin = time.perf_counter()
            _, status, usage = os.wait4(subprocess.Popen(command, stdout=subprocess.DEVNULL).pid, 0)
            wall = time.perf_counter() - begin
            assert status == 0
            if turn:  # the first fills the caches
                found[name].append((wall, usage.ru_utime + usage.ru_stime))
    lines = ["| command | wall, median [ms] | processor, median [ms] | fewest [ms] |", "|---|---:|---:|---:|"]
    for name, values in found.items():
        wall = statistics.median(wall for wall, _ in values) * 1000
        cpu = statistics.median(cpu for _, cpu in values) * 1000
        lines.append(f"| {name} | {wall:.0f} | {cpu:.0f} | {min(cpu for _, cpu in values) * 1000:.0f} |")
        print(lines[-1], flush=True)
    return [f"{runs} runs of each in turn, after one that is not counted.", "", *lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", metavar="PYTHON", help="interpreter of an environment with torch 2.13")
    parser.add_argument("--one", nargs=2, type=int, metavar=("RANKS", "MICROBATCHES"), help="one size, as JSON")
    parser.add_argument("--runs", type=int, default=30, help="runs of each command for the time to start")
    parser.add_argument("--out", type=Path, default=HERE / "scale.md")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(*options.one)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        page = [
            "# Scale",
            "",
            "Written by `uv run python -m benchmarks.scale`. ZB-H1 with its sends and receives: 3 ops and up to 4",
            "transfers of each stage and microbatch, judged in every rule under the channel `rendezvous-pair`.",
            f"Python {platform.python_version()}; {os.cpu_count()} cores, shared with other work.",
            "",
            "## Time by size",
            "",
            "One process for each size; the program is made before the clock starts.",
            "",
            *sizes(),
            "",
            "![time per action](scale.svg)",
            "",
            "## A file of a million actions and more, whole process",
            "",
            *whole_process(folder),
            "",
            "## Beside PyTorch's simulator",
            "",
            *beside_torch(options.torch, folder),
            "",
            "## Time to start",
            "",
            *start(folder, options.runs),
        ]
        options.out.write_text("\n".join(page) + "\n")


if __name__ == "__main__":
    main()
