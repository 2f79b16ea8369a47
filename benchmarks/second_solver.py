"""Random instances, each solved twice: by `solve`, and by Pumpkin on the model that the judge builds for proofs.

Run as ``uv run python -m benchmarks.second_solver [--count 500] [--time-limit 3]``. With 500 instances or more it
writes benchmarks/second_solver.md. The two share no model: `solve` builds its own for CP-SAT. Pumpkin is asked whether
the value can be reached, and whether something below the bound can; its refutations are checked.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from pathlib import Path

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import bidirectional, linear, loop, vee
from bubbleproof.solver import solve
from bubbleproof.solver.refute.ask import refute
from bubbleproof.verify.proof import check_proof

TABLE = Path(__file__).parent / "second_solver.md"


def instances(seed: int) -> Instance:
    """One to five ranks, one or two chunks, unequal stages, a cap from the least possible upwards."""
    rng = random.Random(seed)
    p = rng.randint(1, 5)
    placement, objective = rng.choice([linear(p), linear(p), vee(p), loop(p, 2)]), rng.choice(["makespan", "span"])
    if rng.random() < 0.1:
        placement, objective = bidirectional(p), "makespan"
    stages, split = placement.stages, rng.random() < 0.7
    costs = Costs.make(
        stages,
        F=[rng.randint(1, 6) for _ in range(stages)],
        B=[rng.randint(1, 6) for _ in range(stages)],
        W=[rng.randint(0, 4) for _ in range(stages)] if split else None,
        comm=rng.choice([0, 0, 1, 2]),
        overhead=0 if split else rng.choice([0, 1]),  # with an overhead a fused backward may be better
    )
    taken = [rng.randint(1, 4) for _ in range(stages)]
    kept = [0 if rng.random() < 0.5 else rng.randint(0, f) for f in taken]
    memory = Memory.make(stages, p, F=taken, B=[-x for x in kept], static=rng.randint(0, 2))
    instance = Instance(placement, rng.randint(1, 24 // stages + 1), costs, memory, objective, f"random-{seed}")
    least = [
        max(instance.least_memory(rank, route) for route in set(instance.route_of_microbatch)) for rank in range(p)
    ]
    return instance.with_cap(tuple(x + rng.randint(0, 8) for x in least))


def compare(instance: Instance, seconds: float) -> tuple[str, str, str]:
    """The level of `solve`; what Pumpkin says of its value, and of what is below its bound."""
    record = solve(instance, time_limit=seconds, workers=1).record
    reached = refute(instance, record.value, seconds=seconds).verdict
    below = refute(instance, record.bound - 1, seconds=seconds)
    if below.verdict == "refuted" and not check_proof(instance, record.bound - 1, below.lines).accepted:
        return record.level, reached, "proof not accepted"
    return record.level, reached, below.verdict


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--time-limit", type=float, default=3.0, help="seconds for each solver and question")
    chosen = parser.parse_args()
    counts: Counter[tuple[str, str, str]] = Counter()
    wrong = []
    for seed in range(chosen.count):
        found = compare(instances(seed), chosen.time_limit)
        counts[found] += 1
        if found[1] == "refuted" or found[2] in ("found", "proof not accepted"):
            wrong.append(seed)
            print(f"random-{seed}: {found}", flush=True)
    lines = [
        "| level of `solve` | its value, says Pumpkin | below its bound, says Pumpkin | instances |",
        "|---|---|---|---:|",
        *(f"| {level} | {reached} | {below} | {n} |" for (level, reached, below), n in sorted(counts.items())),
    ]
    print("\n".join(lines))
    if chosen.count >= 500:
        TABLE.write_text(
            "# A second solver\n\n"
            f"`uv run python -m benchmarks.second_solver --count {chosen.count} --time-limit {chosen.time_limit:g}`: "
            "random instances, up to 5 ranks, linear, vee, loop and bidirectional, unequal stages, caps, both "
            "objectives. `found` and `refuted` are right here, `unknown` is out of time; every refutation is a proof "
            f"that the checker accepted. Contradictions: {len(wrong)}.\n\n" + "\n".join(lines) + "\n"
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
