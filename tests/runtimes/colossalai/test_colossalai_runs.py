"""Schedules that train on ColossalAI's zero-bubble scheduler, with the gradients of an unpipelined model."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bubbleproof import Instance, solve
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.families import FAMILIES
from bubbleproof.schedules.formats.schedule_json import Document, dumps
from bubbleproof.schedules.formats.scheduled_node import dumps as dumps_nodes
from bubbleproof.schedules.formats.scheduled_node import loads_nodes, nodes_of
from bubbleproof.schedules.lower import lower
from bubbleproof.schedules.nodes import NODE_OPS, Node, NodeLists
from bubbleproof.schedules.placement import vee
from bubbleproof.verify import Verdict, verify_program
from bubbleproof.verify.runtimes.colossalai import Scheduler, predict

pytestmark = pytest.mark.runtime

FINDINGS = Path(__file__).parents[2] / "corpus" / "findings"


@pytest.fixture(scope="module")
def server(server_of: Callable[[str], Any]) -> Any:
    """ColossalAI on the CPU."""
    return server_of("colossalai")


def instance(ranks: int, microbatches: int, *, split: bool = True, cap: int | None = None) -> Instance:
    costs = Costs.make(2 * ranks, F=4, B=5, W=3 if split else None, comm=1)
    return Instance(vee(ranks), microbatches, costs, Memory.make(2 * ranks, ranks, cap=cap))


def launch(ranks: int, scheduler: Scheduler = "bubbleproof", **more: Any) -> dict[str, Any]:
    layers = [1 + stage % 2 for stage in range(2 * ranks)]  # uneven stages
    return {"scheduler": scheduler, "layers": layers, "seconds": 20, **more}


def explained(seen: dict[str, Any]) -> str:
    """What a run that went wrong has to say: for a hang, where each rank waits."""
    waits = "; ".join(f"rank {rank} waits at {one}" for rank, one in seen["waits"].items())
    return f"{seen['outcome']}: {waits or seen['error']}\n" + "\n".join(map(str, seen["stacks"].values()))


SOLVED: dict[str, tuple[Instance, Scheduler]] = {
    "p=2 m=4, F, B and W": (instance(2, 4, cap=4), "stock"),
    "p=3 m=3": (instance(3, 3), "stock"),
    "p=4 m=2, fewer microbatches than ranks": (instance(4, 2), "bubbleproof"),
    "p=2 m=5, no multiple": (instance(2, 5, cap=5), "bubbleproof"),
    "p=2 m=4, fused backwards": (instance(2, 4, split=False), "stock"),
}


@pytest.mark.parametrize("name", SOLVED)
def test_a_solved_schedule_trains_like_the_unpipelined_model(server: Any, evidence: Any, name: str) -> None:
    given, scheduler = SOLVED[name]
    schedule = solve(given, time_limit=3, workers=1).schedule
    steps = 2 if scheduler == "bubbleproof" else 1  # see the finding about the second step
    seen = server.ask(**launch(given.ranks, scheduler, schedule=dumps(Document(schedule, given)), steps=steps))
    assert seen["outcome"] == "ok", explained(seen)
    what = f"solved, {name}" + ("" if scheduler == "bubbleproof" else ", ColossalAI's own class")
    evidence.trained("colossalai", what, schedule, given, seen, server.versions, ["uneven", "messages"])


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("family", ["zb-v", "v-half", "v-min"])
def test_a_published_schedule_trains_like_the_unpipelined_model(
    server: Any, evidence: Any, family: str, overlap: bool
) -> None:
    given = instance(3, 4)
    schedule = FAMILIES[family].build(given)
    seen = server.ask(**launch(3, schedule=dumps(Document(schedule, given)), overlap=overlap, steps=2))
    assert seen["outcome"] == "ok", explained(seen)
    what = f"{family}, {'overlapped' if overlap else 'blocking'}"
    evidence.trained("colossalai", what, schedule, given, seen, server.versions, ["uneven", "messages"])


@pytest.mark.parametrize(("ranks", "microbatches"), [(2, 4), (4, 4)])
def test_colossalais_own_schedule_is_read_found_right_and_trains(server: Any, ranks: int, microbatches: int) -> None:
    times = {"f_cost": 4, "b_cost": 5, "w_cost": 3, "c_cost": 1, "f_mem": 2, "b_mem": -1, "w_mem": -1}
    text = server.ask(read={"n_stage": ranks, "n_micro": microbatches, **times}, seconds=20)["nodes"]
    nodes = loads_nodes(text)
    said = predict(nodes)
    report = verify_program(nodes.program(), instance(ranks, microbatches), channel="rendezvous-rank", prediction=said)
    assert (said.outcome, report.verdict) == ("ok", Verdict.PROVED)
    seen = server.ask(**launch(ranks, "stock", nodes=text))
    assert seen["outcome"] == "ok", explained(seen)


def lists(family: str, given: Instance) -> NodeLists:
    return nodes_of(lower(FAMILIES[family].build(given), given, reduce=False, blocking=True), given, "colossalai")


def mutants(right: NodeLists, rng: random.Random, count: int) -> Iterator[tuple[str, NodeLists]]:
    """Nodes that differ from right ones by one fault of a kind that people make."""
    kinds = ("drop", "swap neighbours", "swap", "move transfer", "repeat", "chunk", "move", "type", "drop W")
    for number in range(count):
        rows = [list(row) for row in right.rows]
        row = rng.choice(rows)
        at = rng.randrange(len(row) - 1)
        kind = kinds[number % len(kinds)]
        if kind == "drop":
            del row[at]
        elif kind == "repeat":
            row.insert(rng.randrange(len(row) + 1), row[at])
        elif kind == "swap neighbours":
            row[at], row[at + 1] = row[at + 1], row[at]
        elif kind == "swap":
            other = rng.randrange(len(row))
            row[at], row[other] = row[other], row[at]
        elif kind == "move":
            row.insert(rng.randrange(len(row)), row.pop(at))
        elif kind == "move transfer":
            at = rng.choice([place for place, one in enumerate(row) if one.type not in NODE_OPS])
            row.insert(max(0, at + rng.choice((-3, -2, -1, 1, 2, 3))), row.pop(at))
        elif kind == "chunk":
            row[at] = row[at]._replace(chunk=1 - row[at].chunk)
        elif kind == "type":
            row[at] = row[at]._replace(type=rng.choice((*NODE_OPS, "SEND_FORWARD", "RECV_BACKWARD")))
        else:
            del row[rng.choice([place for place, one in enumerate(row) if one.type == "W"])]
        yield kind, NodeLists.of("colossalai", rows, right.rank_of_stage, right.microbatches)


def naive(right: NodeLists) -> NodeLists:
    """Receives right before their use and sends right after what makes them: what people write first."""
    rows = []
    for row in right.rows:
        left, made = list(row), list[Node]()
        for one in row:
            if one.type not in NODE_OPS:
                continue
            kind = {"F": "FORWARD", "B": "BACKWARD"}.get(one.type)
            for way in ("RECV", "", "SEND"):
                wanted = (f"{way}_{kind}" if way else one.type), one.chunk, one.microbatch
                made += [node for node in left if (node.type, node.chunk, node.microbatch) == wanted]
        rows.append(made)
    return NodeLists.of("colossalai", rows, right.rank_of_stage, right.microbatches)


BASES: tuple[tuple[int, int, str, Scheduler, bool], ...] = (
    (2, 2, "zb-v", "stock", True),
    (2, 4, "v-half", "stock", False),
    (3, 3, "zb-v", "stock", True),
    (3, 2, "v-min", "bubbleproof", True),
)


@pytest.mark.parametrize(("ranks", "microbatches", "family", "scheduler", "overlap"), BASES)
def test_the_model_says_what_colossalai_does_with_mutated_nodes(
    server: Any, evidence: Any, ranks: int, microbatches: int, family: str, scheduler: Scheduler, overlap: bool
) -> None:
    rng = random.Random(10 * ranks + microbatches)
    agreed: Counter[str] = Counter()
    wrong = []
    right = lists(family, instance(ranks, microbatches))
    for kind, mutant in [("naive", naive(right)), *mutants(right, rng, 24)]:
        said = predict(mutant, scheduler=scheduler, overlap=overlap)
        seen = server.ask(**launch(ranks, scheduler, nodes=dumps_nodes(mutant), overlap=overlap, seconds=3))
        if seen["outcome"] == said.outcome:
            agreed[said.outcome] += 1
        else:
            wrong.append((kind, said, explained(seen), str(mutant)))
    how = f"{scheduler} scheduler, {'overlapped' if overlap else 'blocking'}"
    what = f"nodes of {family} on {ranks} ranks, {how}"
    evidence.compared("colossalai", what, agreed, len(wrong), server.versions)
    assert not wrong, "\n".join(map(str, wrong))
    assert len(agreed) >= 3


@pytest.mark.parametrize(("ranks", "microbatches"), [(2, 3), (3, 2)])
def test_colossalai_refuses_what_the_model_says(server: Any, ranks: int, microbatches: int) -> None:
    nodes = lists("zb-v", instance(ranks, microbatches))
    seen = server.ask(**launch(ranks, "stock", nodes=dumps_nodes(nodes)))
    assert (seen["outcome"], predict(nodes).outcome) == ("refused", "refused"), explained(seen)


def finding(name: str) -> tuple[dict[str, Any], str, str]:
    """The entry of a finding, the text of its file and that of the repaired one."""
    entry = json.loads((FINDINGS / "colossalai.json").read_text(encoding="utf-8"))[name]
    texts = [(FINDINGS / entry[key][0]).read_text(encoding="utf-8") for key in ("verify", "repaired")]
    return entry, texts[0], texts[1]


def shown(seen: dict[str, Any]) -> dict[str, str]:
    return {"outcome": seen["outcome"], "gradient_error": f"{seen['gradient_error']:.1e}"}


@pytest.mark.parametrize("name", ["weight gradient missing", "first messages wait", "messages taken for each other"])
def test_what_colossalai_accepts_and_does_not_train_right_is_found_by_verify_and_gone_when_repaired(
    server: Any, evidence: Any, name: str
) -> None:
    entry, text, repaired = finding(name)
    before, after = (server.ask(**launch(2, "stock", nodes=one, seconds=5)) for one in (text, repaired))
    evidence.fault("colossalai", name, server.versions, before=shown(before), rules=entry["rules"], after=shown(after))
    assert before["outcome"] == entry["seen"], explained(before)
    assert after["outcome"] == "ok", explained(after)
    if entry["seen"] == "wrong":
        assert before["gradient_error"] > 0.1
    else:
        assert len(before["waits"]) == 2


def test_colossalais_own_linear_layers_keep_the_weight_gradient_of_one_microbatch(server: Any, evidence: Any) -> None:
    nodes = dumps_nodes(lists("zb-v", instance(2, 2)))
    before, after = (server.ask(**launch(2, "stock", nodes=nodes, own_layers=own)) for own in (True, False))
    what = "weight gradients of ColossalAI's own layers"
    evidence.fault("colossalai", what, server.versions, before=shown(before), rules=[], after=shown(after))
    assert (before["outcome"], after["outcome"]) == ("wrong", "ok"), explained(after)
    assert before["gradient_error"] > 0.1
    one = dumps_nodes(lists("zb-v", instance(2, 1)))
    alone = server.ask(**launch(2, nodes=one, own_layers=True))
    assert alone["outcome"] == "ok", explained(alone)


def test_colossalais_scheduler_waits_twice_for_its_sends_and_hangs_in_its_second_step(
    server: Any, evidence: Any
) -> None:
    nodes = dumps_nodes(lists("zb-v", instance(2, 2)))
    before = server.ask(**launch(2, "stock", nodes=nodes, steps=2, seconds=5))
    after = server.ask(**launch(2, "bubbleproof", nodes=nodes, steps=3))
    evidence.fault("colossalai", "second step", server.versions, before=shown(before), rules=[], after=shown(after))
    assert (before["outcome"], after["outcome"]) == ("hang", "ok"), explained(after)
