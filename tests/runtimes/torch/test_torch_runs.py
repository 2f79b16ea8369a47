"""Schedules that train on PyTorch, in processes of their own, with the gradients of an unpipelined model."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from bubbleproof import Instance, solve
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.families import FAMILIES
from bubbleproof.schedules.formats import torch_comms, torch_csv
from bubbleproof.schedules.formats.schedule_json import Document, dumps
from bubbleproof.schedules.lower import lower
from bubbleproof.schedules.placement import Placement, custom, linear, loop, vee
from bubbleproof.schedules.program import Collective, Program, Transfer
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.verify import Verdict
from bubbleproof.verify.program_judge import verify_program
from bubbleproof.verify.runtimes.torch import predict

pytestmark = pytest.mark.runtime

TOLERANCE = 1e-6


def instance(placement: Placement, microbatches: int, *, split: bool = True, cap: int | None = None) -> Instance:
    stages, ranks = placement.stages, placement.ranks
    costs = Costs.make(stages, F=4, B=5, W=3 if split else None, comm=1)
    return Instance(placement, microbatches, costs, Memory.make(stages, ranks, cap=cap))


def launch(given: Instance, **more: Any) -> dict[str, Any]:
    hidden = [6 + 2 * stage for stage in range(given.stages)]  # uneven stages
    return {
        "microbatches": given.microbatches,
        "rank_of_stage": list(given.placement.routes[0]),
        "hidden": hidden,
        "layers": [1 + stage % 3 for stage in range(given.stages)],
        "scale_grads": True,
        "seconds": 10,
        **more,
    }


SOLVED = {
    "linear p=2 m=5": instance(linear(2), 5, cap=2),
    "linear p=4 m=6, cap below p": instance(linear(4), 6, cap=3),
    "linear p=4 m=3, fewer microbatches than ranks": instance(linear(4), 3),
    "vee p=2 m=4": instance(vee(2), 4, cap=4),
    "vee p=3 m=5, no multiple": instance(vee(3), 5, cap=6),
    "loop p=2 v=2 m=3, no multiple": instance(loop(2, 2), 3, cap=6),
    "uneven chunks, three stages and one": instance(custom([0, 0, 1, 0]), 4, cap=8),
    "fused backwards": instance(linear(3), 5, split=False, cap=3),
}


@pytest.mark.parametrize("communication", ["torch", "bubbleproof"])
@pytest.mark.parametrize("name", SOLVED)
def test_a_solved_schedule_trains_like_the_unpipelined_model(
    torch_server: Any, evidence: Any, name: str, communication: str
) -> None:
    given = SOLVED[name]
    solution = solve(given, time_limit=3, workers=1)
    text = dumps(Document(solution.schedule, given))
    seen = torch_server.ask(**launch(given, schedule=text, communication=communication, steps=2))
    what = f"solved, {name}, communication by {'PyTorch' if communication == 'torch' else 'bubbleproof'}"
    also = ["uneven", *(["messages"] if communication == "bubbleproof" else [])]
    evidence.trained("torch", what, solution.schedule, given, seen, torch_server.versions, also)


@pytest.mark.parametrize("family", ["1f1b", "zb-h1", "zb-h2", "zb-v", "interleaved-1f1b", "looped-bfs", "dualpipev"])
def test_a_published_schedule_trains_like_the_unpipelined_model(torch_server: Any, evidence: Any, family: str) -> None:
    chunks = {"zb-v": vee(2), "dualpipev": vee(2), "interleaved-1f1b": loop(2, 2), "looped-bfs": loop(2, 2)}
    given = instance(chunks.get(family, linear(3)), 6)
    schedule = FAMILIES[family].build(given)
    seen = torch_server.ask(**launch(given, schedule=dumps(Document(schedule, given))))
    evidence.trained("torch", family, schedule, given, seen, torch_server.versions, ["uneven"])


BASES = (
    (instance(linear(2), 3), "1f1b"),
    (instance(linear(3), 4), "zb-h1"),
    (instance(vee(2), 3), "zb-v"),
    (instance(loop(2, 2), 4), "interleaved-1f1b"),
)


def mutants(program: Program, rng: random.Random, count: int) -> Iterator[tuple[str, Program]]:
    """Programs that differ from a right one by one fault of a kind that people make."""
    for number in range(count):
        rows = [list(row) for row in program.rows]
        row = rng.choice(rows)
        at = rng.randrange(len(row))
        kind = ("drop", "repeat", "swap neighbours", "swap", "move", "reduce", "receive", "send")[number % 8]
        if kind == "drop":
            del row[at]
        elif kind == "repeat":
            row.insert(rng.randrange(len(row) + 1), row[at])
        elif kind == "swap neighbours":
            at = min(at, len(row) - 2)
            row[at], row[at + 1] = row[at + 1], row[at]
        elif kind == "swap":
            other = rng.randrange(len(row))
            row[at], row[other] = row[other], row[at]
        elif kind == "move":
            row.insert(rng.randrange(len(row)), row.pop(at))
        else:  # an action of one kind somewhere else, or not at all
            wanted = [i for i, action in enumerate(row) if _is(kind, action)]
            action = row.pop(rng.choice(wanted))
            if rng.random() < 0.7:
                row.insert(rng.randrange(len(row) + 1), action)
        yield kind, Program.of(rows)


def _is(kind: str, action: Any) -> bool:
    if kind == "reduce":
        return isinstance(action, Collective)
    return isinstance(action, Transfer) and action.sends == (kind == "send")


def naive(program: Program) -> Program:
    """Receives right before their use, sends right after their op: what people write first."""
    rows = []
    for row in program.rows:
        receives = {action: None for action in row if isinstance(action, Transfer) and not action.sends}
        made: list[Any] = []
        for action in row:
            if isinstance(action, Transfer):
                if action.sends:
                    made.append(action)
                continue
            wanted = None if isinstance(action, Collective) else _input_of(action)
            if wanted in receives:
                made.append(wanted)
            made.append(action)
        rows.append(made)
    return Program.of(rows)


def _input_of(op: Any) -> Transfer | None:
    kind = {"F": "RECV_F", "B": "RECV_B", "BW": "RECV_B"}.get(op.kind)
    return Transfer(kind, op.stage, op.microbatch) if kind else None  # type: ignore[arg-type]


def test_the_model_says_what_pytorch_does_with_mutated_programs(torch_server: Any, evidence: Any) -> None:
    rng = random.Random(20)
    agreed: Counter[str] = Counter()
    undecided, wrong = 0, []
    for given, family in BASES:
        program = lower(FAMILIES[family].build(given), given)
        for kind, mutant in [("naive", naive(program)), *mutants(program, rng, 32)]:
            said = predict(mutant, given)
            text = "".join(",".join(map(torch_comms.cell_text, row)) + "\n" for row in mutant.rows)
            seen = torch_server.ask(**launch(given, csv=text, format="compute_comms", seconds=2))
            if not said.certain:
                undecided += 1
            elif seen["outcome"] == said.outcome:
                agreed[said.outcome] += 1
            else:
                wrong.append((family, kind, said, seen["outcome"], seen["error"], str(mutant)))
            judged = verify_program(mutant, given, channel="eager", target="torch")
            if seen["outcome"] != "ok" and judged.verdict is Verdict.PROVED:
                wrong.append((family, kind, "the judge proves it", seen["outcome"], seen["error"], str(mutant)))
    evidence.compared("torch", "programs", agreed, len(wrong), torch_server.versions, undecided)
    assert not wrong, "\n".join(map(str, wrong))
    assert sum(agreed.values()) >= 100
    assert set(agreed) == {"ok", "refused", "crash", "hang", "wrong"}


def test_the_model_says_what_pytorch_does_with_mutated_orders(torch_server: Any, evidence: Any) -> None:
    rng = random.Random(21)
    agreed: Counter[str] = Counter()
    wrong = []
    for given, family in BASES:
        program = Program.of(FAMILIES[family].build(given).orders)
        for number in range(12):
            rows = [list(row) for row in program.rows]
            row = rng.choice(rows)
            at, other = rng.randrange(len(row)), rng.randrange(len(row))
            if number % 3 == 0:
                row[at], row[other] = row[other], row[at]
            elif number % 3 == 1:
                row[at] = row[other]
            else:
                del row[at]
            mutant = Program.of(rows)
            said = predict(mutant, given, transfers=False)
            text = "".join(",".join(map(torch_csv.cell_text, row)) + "\n" for row in mutant.schedule.orders)
            seen = torch_server.ask(**launch(given, csv=text, format="compute_only", seconds=2))
            if seen["outcome"] == said.outcome:
                agreed[said.outcome] += 1
            elif said.certain:
                wrong.append((family, said, seen["outcome"], seen["error"], str(mutant)))
    evidence.compared("torch", "orders", agreed, len(wrong), torch_server.versions)
    assert not wrong, "\n".join(map(str, wrong))
    assert sum(agreed.values()) >= 40


def deferred(schedule: Schedule, given: Instance) -> Program:
    """What PyTorch's deferred receives make of an order: each receive moves to just before its use."""
    return naive(lower(schedule, given))


def test_deferred_receives_train_wrong_and_the_judge_sees_it_in_the_schedule(torch_server: Any, evidence: Any) -> None:
    from bubbleproof.solver.repair import repair

    given = instance(vee(2), 3)
    schedule = FAMILIES["zb-v"].build(given)
    text = torch_csv.dumps(schedule, given)
    before = torch_server.ask(**launch(given, csv=text, format="compute_only", defer=True))
    program = deferred(schedule, given)
    report = verify_program(program, given, channel="eager", target="torch")
    fixed = repair(program, given, channel="rendezvous-pair", target="torch")
    rows = torch_comms.dumps(fixed.program, given)
    after = torch_server.ask(**launch(given, csv=rows, format="compute_comms"))
    evidence.fault(
        "torch",
        "deferred receives",
        torch_server.versions,
        before={"outcome": before["outcome"], "gradient_error": f"{before['gradient_error']:.1e}"},
        rules=sorted(report.counts),
        after={"outcome": after["outcome"], "gradient_error": f"{after['gradient_error']:.1e}"},
    )
    assert before["outcome"] == "wrong"
    assert before["gradient_error"] > 1
    assert "V510" in report.counts
    assert after["outcome"] == "ok"
    assert after["gradient_error"] <= TOLERANCE
