"""Schedules that train on Megatron-core, in processes of their own, with the gradients of an unpipelined model."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bubbleproof import Instance, solve
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.families import FAMILIES
from bubbleproof.schedules.formats import megatron, megatron_layout, program_json
from bubbleproof.schedules.formats.infer import infer_instance
from bubbleproof.schedules.formats.schedule_json import Document, dumps
from bubbleproof.schedules.lower import lower
from bubbleproof.schedules.op import Op
from bubbleproof.schedules.placement import Placement, custom, linear, loop, vee
from bubbleproof.schedules.program import Program, Transfer
from bubbleproof.verify.runtimes.megatron import predict

pytestmark = pytest.mark.runtime


@pytest.fixture(scope="module")
def megatron_server(server_of: Callable[[str], Any]) -> Any:
    """Megatron-core on the CPU."""
    return server_of("megatron")


def instance(placement: Placement, microbatches: int, *, split: bool = True, cap: int | None = None) -> Instance:
    stages, ranks = placement.stages, placement.ranks
    costs = Costs.make(stages, F=4, B=5, W=3 if split else None, comm=1)
    return Instance(placement, microbatches, costs, Memory.make(stages, ranks, cap=cap))


def launch(given: Instance, **more: Any) -> dict[str, Any]:
    return {
        "microbatches": given.microbatches,
        "rank_of_stage": list(given.placement.routes[0]),
        "layers": [1 + stage % 3 for stage in range(given.stages)],  # uneven stages
        "seconds": 10,
        **more,
    }


SOLVED = {
    "linear p=2 m=5": instance(linear(2), 5, cap=2),
    "linear p=4 m=6, cap below p": instance(linear(4), 6, cap=3),
    "linear p=4 m=3, fewer microbatches than ranks": instance(linear(4), 3),
    "vee p=2 m=4": instance(vee(2), 4, cap=4),
    "vee p=3 m=5, no multiple": instance(vee(3), 5, cap=6),
    "loop p=2 v=2 m=3, which Megatron refuses": instance(loop(2, 2), 3, cap=6),
    "uneven chunks, three stages and one": instance(custom([0, 0, 1, 0]), 4, cap=8),
    "messages to a rank that is no neighbour": instance(custom([0, 2, 1, 3]), 3),
    "fused backwards": instance(linear(3), 5, split=False, cap=3),
}


@pytest.mark.parametrize("name", SOLVED)
def test_a_solved_schedule_trains_like_the_unpipelined_model(megatron_server: Any, evidence: Any, name: str) -> None:
    given = SOLVED[name]
    schedule = solve(given, time_limit=3, workers=1).schedule
    seen = megatron_server.ask(**launch(given, schedule=dumps(Document(schedule, given)), steps=2))
    evidence.trained(
        "megatron", f"solved, {name}", schedule, given, seen, megatron_server.versions, ["uneven", "messages"]
    )


def test_outputs_may_be_freed_where_no_backward_is_split(megatron_server: Any, evidence: Any) -> None:
    given = instance(linear(3), 4, split=False)
    schedule = FAMILIES["1f1b"].build(given)
    seen = megatron_server.ask(**launch(given, schedule=dumps(Document(schedule, given)), deallocate=True))
    assert seen["outcome"] == "ok", seen


STOCK = [megatron.Stock(2, 1, 5), megatron.Stock(3, 1, 2), megatron.Stock(2, 2, 5, 3), megatron.Stock(3, 2, 6, 3)]


@pytest.mark.parametrize("stock", STOCK, ids=str)
def test_megatrons_own_order_is_the_one_that_is_imported(
    megatron_server: Any, evidence: Any, stock: megatron.Stock
) -> None:
    schedule = megatron.order(stock)
    given = infer_instance(schedule, "order", ranks=stock.ranks, microbatches=stock.microbatches).instance
    seen = megatron_server.ask(**launch(given, stock=stock.group))
    evidence.trained("megatron", f"own order, {stock}", schedule, given, seen, megatron_server.versions, ["uneven"])
    assert seen["trace"] == [[str(slot) for slot in row] for row in schedule.orders]


@pytest.mark.parametrize("stock", [megatron.Stock(2, 2, 3, 2), megatron.Stock(3, 2, 2, 3)], ids=str)
def test_sizes_that_are_refused_here_are_refused_by_megatron(megatron_server: Any, stock: megatron.Stock) -> None:
    with pytest.raises(FormatError):
        stock.refuse()
    given = instance(loop(stock.ranks, stock.chunks), stock.microbatches)
    seen = megatron_server.ask(**launch(given, stock=stock.group))
    assert seen["outcome"] == "refused", seen


def test_layouts_are_read_and_refused_as_megatron_does(megatron_server: Any) -> None:
    rng = random.Random(5)
    asked = [("Et*3|(t*6|)*2t*3L", 4), ("Et|(t*2|)*6tL", 4), ("Et|tL||", 2), ("|Et|tL|", 2), ("Et*2|t*4|t*3|mL", 4)]
    for _ in range(300):
        words = ["".join(rng.choices("Ettttm", k=rng.randrange(4))) for _ in range(rng.randrange(1, 6))]
        words[0] = "E" + words[0].replace("E", "t")
        words = [words[0], *(word.replace("E", "") if rng.random() < 0.9 else word for word in words[1:])]
        words[-1 if rng.random() < 0.8 else rng.randrange(len(words))] += "L"
        asked.append((megatron_layout.dumps(words), rng.choice((1, 2, 2, 3))))
    answers = megatron_server.ask(layouts=asked, seconds=60)["layouts"]
    refused = 0
    for (text, ranks), answer in zip(asked, answers, strict=True):
        words = megatron_layout.loads(text)
        try:
            megatron_layout.refuse(words, ranks)
        except FormatError:
            refused += 1
            want = None
        else:
            want = list(megatron_layout.layers_of(words))
        assert answer.get("layers") == want, (text, ranks, answer)
    assert 50 < refused < 250


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
        kind = ("drop", "repeat", "swap neighbours", "swap", "move", "relabel", "crossed sends")[number % 7]
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
        elif kind == "relabel":  # one rank numbers two microbatches the other way round
            row[:] = [a._replace(microbatch={0: 1, 1: 0}.get(a.microbatch, a.microbatch)) for a in row]
        else:
            wanted = [i for i, a in enumerate(row) if isinstance(a, Transfer) and a.sends]
            one, two = rng.sample(wanted, 2)
            row[one], row[two] = row[two], row[one]
        yield kind, Program.of(rows)


def naive(program: Program) -> Program:
    """Receives right before their use, sends right after their op: what people write first."""
    rows = []
    for row in program.rows:
        made: list[Any] = []
        transfers = {action for action in row if isinstance(action, Transfer)}
        for action in row:
            if isinstance(action, Transfer):
                continue
            assert isinstance(action, Op)
            way = "F" if action.kind == "F" else "B" if action.kind in ("B", "BW") else ""
            ends = [Transfer(f"{end}_{way}", *action[1:]) for end in ("RECV", "SEND")]  # type: ignore[arg-type]
            made += [each for each in (ends[0], action, ends[1]) if each is action or each in transfers]
        rows.append(made)
    return Program.of(rows)


def test_the_model_says_what_happens_with_mutated_programs(megatron_server: Any, evidence: Any) -> None:
    rng = random.Random(20)
    agreed: Counter[str] = Counter()
    wrong = []
    for given, family in BASES:
        program = lower(FAMILIES[family].build(given), given, reduce=False, blocking=True)
        for kind, mutant in [("naive", naive(program)), *mutants(program, rng, 21)]:
            said = predict(mutant, given)
            text = program_json.dumps(program_json.Document(mutant, given))
            seen = megatron_server.ask(**launch(given, program=text, seconds=2))
            if seen["outcome"] == said.outcome:
                agreed[said.outcome] += 1
            else:
                wrong.append((family, kind, said, seen["outcome"], seen["error"], seen["stacks"], str(mutant)))
    evidence.compared("megatron", "programs", agreed, len(wrong), megatron_server.versions)
    assert not wrong, "\n".join(map(str, wrong))
    assert sum(agreed.values()) >= 80
    assert set(agreed) == {"ok", "refused", "crash", "hang", "wrong"}
