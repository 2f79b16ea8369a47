"""Proofs that nothing is shorter: how long Pumpkin takes to write one, and our checker to check it.

Run as ``uv run python -m benchmarks.proofs [--time-limit 60]``; writes benchmarks/proofs.md. The lengths are the
largest that can be refuted.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance, Objective
from bubbleproof.schedules.placement import Placement, linear, vee
from bubbleproof.solver.refute.ask import refute
from bubbleproof.verify.proof import build, check_proof

TABLE = Path(__file__).parent / "proofs.md"


def pipeline(
    p: int,
    m: int,
    times: tuple[int, int, int, int],
    cap: int,
    objective: Objective = "makespan",
    held: tuple[int, int, int] = (1, 0, -1),
    place: Callable[[int], Placement] = linear,
) -> Instance:
    placement = place(p)
    forward, backward, weight, comm = times
    costs = Costs.make(placement.stages, F=forward, B=backward, W=weight, comm=comm)
    memory = Memory.make(placement.stages, p, F=held[0], B=held[1], W=held[2], cap=cap)
    name = f"{placement.kind} p={p} m={m}, F, B, W, c = {', '.join(map(str, times))}, cap {cap} of {held[0]}"
    return Instance(placement, m, costs, memory, objective, name)


def rows() -> Iterator[tuple[Instance, int]]:
    """Instances, and lengths that no schedule has."""
    yield pipeline(4, 16, (3, 4, 2, 0), 3), 191
    yield pipeline(8, 16, (1, 1, 1, 0), 8), 54
    yield pipeline(8, 24, (1, 1, 1, 0), 5), 96
    yield pipeline(8, 24, (3, 4, 2, 0), 5), 331
    yield pipeline(8, 24, (18, 18, 9, 1), 5), 1752
    yield pipeline(8, 24, (18, 18, 9, 1), 8, "span"), 1296
    yield pipeline(8, 64, (18, 18, 9, 1), 8), 3096
    yield pipeline(16, 48, (18, 18, 9, 1), 16), 2624
    yield pipeline(4, 8, (18, 18, 9, 1), 12, "span", (3, -1, -2)), 452
    yield pipeline(3, 4, (1, 1, 1, 0), 4, place=vee), 28
    yield pipeline(3, 4, (1, 1, 1, 0), 5, place=vee), 26


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for each question")
    chosen = parser.parse_args()
    lines = [
        "| instance | ops | objective | refuted | one more | constraints | inferences | nogoods | kB "
        "| solver, s | checker, s |",
        "|---|---:|---|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    print("\n".join(lines))
    failed = 0
    for instance, length in rows():
        found = refute(instance, length, seconds=chosen.time_limit)
        if found.verdict != "refuted":
            failed += 1
            print(f"{instance.name}: {found.verdict}")
            continue
        begun = perf_counter()
        verdict = check_proof(instance, length, found.lines)
        seconds = perf_counter() - begun
        failed += not verdict.accepted
        more = refute(instance, length + 1, seconds=chosen.time_limit).verdict
        ops = len([v for v in build(instance, length).variables if v.name[0] in "FBW" and not v.boolean])
        size = sum(len(line) + 1 for line in found.lines) / 1000
        lines.append(
            f"| {instance.name} | {ops} | {instance.objective} | {length} | {more} | {verdict.constraints} "
            f"| {verdict.inferences} | {verdict.nogoods} | {size:.1f} "
            f"| {found.milliseconds / 1000:.1f} | {seconds:.2f} |"
        )
        print(lines[-1], flush=True)
    TABLE.write_text(
        "# Proofs that nothing is shorter\n\n"
        f"`uv run python -m benchmarks.proofs --time-limit {chosen.time_limit:g}`, one core of a machine shared with "
        "other work. *refuted* is the length, *one more* what Pumpkin says of the next one (`found`: it is the "
        "optimum). The solver's time includes building the model, starting its process and trimming the log. Without "
        "nogoods, the windows of the model alone are contradictory.\n\n" + "\n".join(lines) + "\n"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
