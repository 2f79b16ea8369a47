"""A thousand random instances: no crash, no invalid schedule, no cap exceeded, and how far they are from proved.

Run as ``uv run python -m benchmarks.random1000 [--time-limit 1.5] [--count 1000] [--fresh]``; without ``--rows`` it
writes benchmarks/random1000.md and .svg. Stages, edges, caps and statics are unequal, memory is freed in one or two
parts or taken by B, there may be fewer microbatches than ranks, and backwards may be fused. The same number always
gives the same instance.
"""

from __future__ import annotations

import random
from pathlib import Path

from benchmarks.plot import write_gaps
from benchmarks.rows import Result, Row, arguments, gap, run, summary
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import Placement, bidirectional, custom, linear, loop, vee, wave

ROOT = Path(__file__).parents[1]
RESULTS, TABLE, PLOT = (ROOT / "benchmarks" / f"random1000.{kind}" for kind in ("json", "md", "svg"))
KINDS = ("linear", "loop", "vee", "wave", "custom", "bidirectional")


def placement_of(kind: str, rng: random.Random) -> Placement:
    """A placement of a kind."""
    p = rng.choice((2, 2, 3, 4, 4, 6, 8))
    if kind in ("loop", "wave"):
        return (loop if kind == "loop" else wave)(p, rng.choice((2, 2, 3)))
    if kind == "custom":
        held = [*range(p), *(rng.randrange(p) for _ in range(rng.randrange(p + 1)))]
        rng.shuffle(held)
        return custom(held, p)
    return {"linear": linear, "vee": vee, "bidirectional": bidirectional}[kind](p)


def memory_of(stages: int, split: bool, rng: random.Random) -> tuple[str, dict[str, list[int]]]:
    """Changes of memory for each stage, and in which way they are given back."""
    taken = [rng.randint(1, 9) for _ in range(stages)]
    if rng.random() < 0.4:
        taken = [taken[0]] * stages
    way = rng.choice(("at W", "two parts", "B takes")) if split else "at BW"
    if way == "two parts":
        freed = [-rng.randint(0, f) for f in taken]
    elif way == "B takes":
        freed = [rng.randint(1, 3) for _ in taken]
    else:
        freed = [0 if split else -f for f in taken]
    return way, {"F": taken, "B": freed, "W": [-f - b for f, b in zip(taken, freed, strict=True)]}


def row(number: int) -> Row:
    """The instance of a number."""
    rng = random.Random(number)
    kind = KINDS[number % len(KINDS)]
    placement = placement_of(kind, rng)
    p, stages = placement.ranks, placement.stages
    split = rng.random() < 0.75
    equal = rng.random() < 0.2

    def times(low: int, high: int) -> list[int]:
        return [rng.randint(low, high)] * stages if equal else [rng.randint(low, high) for _ in range(stages)]

    top = rng.choice((3, 9, 40, 20_000))
    comm: int | dict[tuple[int, int], int] = rng.randint(0, max(1, top // 3))
    if rng.random() < 0.3:
        comm = {(a, b): rng.randint(0, top) for a in range(p) for b in range(p) if a != b}
    costs = Costs.make(stages, F=times(1, top), B=times(1, top), W=times(0, top) if split else None, comm=comm)
    way, changes = memory_of(stages, split, rng)
    static = [rng.randint(0, 20) for _ in range(p)]
    m = rng.choice((1, 2, max(1, p - 1), p, p + 1, 2 * p, 3 * p, 4 * p))
    bare = Instance(placement, m, costs, Memory.make(stages, p, **changes, static=static))
    cap = None
    if rng.random() < 0.85:
        more = rng.choice((1.0, 1.2, 2.0, 4.0, 8.0))
        cap = []
        for rank in range(p):
            need = bare.least_cap(rank)
            held = need - static[rank]
            cap.append(need + int(held * (more - 1) * rng.uniform(0.5, 1.5)))
    memory = Memory.make(stages, p, **changes, static=static, cap=cap)
    instance = Instance(placement, m, costs, memory, rng.choice(("makespan", "span")), f"random {number:04} {kind}")
    return Row(instance.name, instance, {"class": kind, "memory": way, "split": split, "caps": cap is not None})


def fault(result: Result) -> str:
    """What is wrong with a result; empty if nothing is."""
    if "crash" in result:
        return "crash"
    if not result["valid"]:
        return "invalid"
    if not result["within caps"]:
        return "cap exceeded"
    return "bound above value" if result["bound"] > result["value"] else ""


def main() -> int:
    parser = arguments(__doc__.splitlines()[0], 1.5)
    parser.add_argument("--count", type=int, default=1000, help="so many instances")
    chosen = parser.parse_args()
    every = [row(number) for number in range(chosen.count)]
    found = run(RESULTS, every, chosen, lambda _, result: fault(result) or summary(result))
    picked = [(one, found[one.name]) for one in every if one.name in found]
    faults = [f"{one.name}: {why}" for one, result in picked if (why := fault(result))]
    solved = [(one, result) for one, result in picked if "crash" not in result]
    lines = ["| class | instances | proved | median gap | 90 % below | largest gap |", "|---|---:|---:|---:|---:|---:|"]
    classes: dict[str, list[float]] = {kind: [] for kind in KINDS}
    ways: dict[str, list[float]] = {}
    for one, result in solved:
        classes[one.known["class"]].append(gap(result))
        ways.setdefault(f"memory freed {one.known['memory']}".replace("freed B takes", "taken by B"), []).append(
            gap(result)
        )
        ways.setdefault("fewer microbatches than ranks", [])
        if one.instance.microbatches < one.instance.ranks:
            ways["fewer microbatches than ranks"].append(gap(result))
    for name, gaps in [*classes.items(), *sorted(ways.items()), ("all", [gap(r) for _, r in solved])]:
        if gaps:
            ordered = sorted(gaps)
            lines.append(
                f"| {name} | {len(gaps)} | {sum(g <= 0 for g in gaps)} | {ordered[len(gaps) // 2]:.3f} % "
                f"| {ordered[9 * len(gaps) // 10]:.3f} % | {ordered[-1]:.3f} % |"
            )
    said = f"{len(picked)} instances, {len(faults)} faults ({'; '.join(faults[:20]) or 'none'})"
    print("\n".join([*lines, said]))
    if not chosen.rows:
        head = (
            "# A thousand random instances\n\n`uv run python -m benchmarks.random1000`, up to "
            f"{chosen.time_limit:g} s each with one worker. A fault is a crash, a schedule that the judge refuses, "
            f"a cap exceeded, or a bound above the value. {said}.\n\n"
        )
        TABLE.write_text(head + "![gaps](random1000.svg)\n\n" + "\n".join(lines) + "\n")
        write_gaps(PLOT, {name: gaps for name, gaps in classes.items() if gaps})
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(main())
