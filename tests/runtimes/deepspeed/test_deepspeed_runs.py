"""Schedules that train on DeepSpeed's pipeline engine, with the gradients of an unpipelined model."""

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
from bubbleproof.schedules.formats import deepspeed
from bubbleproof.schedules.formats.schedule_json import Document, dumps
from bubbleproof.schedules.instructions import Instruction, Streams
from bubbleproof.schedules.lower import lower
from bubbleproof.schedules.placement import Placement, linear, vee
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.verify import Verdict, verify_program
from bubbleproof.verify.runtimes.deepspeed import Engine, predict

pytestmark = pytest.mark.runtime

FINDINGS = Path(__file__).parents[2] / "corpus" / "findings"


@pytest.fixture(scope="module")
def server(server_of: Callable[[str], Any]) -> Any:
    """DeepSpeed on the CPU."""
    return server_of("deepspeed")


def instance(where: int | Placement, microbatches: int, *, split: bool = True, cap: int | None = None) -> Instance:
    placement = linear(where) if isinstance(where, int) else where
    stages, ranks = placement.stages, placement.ranks
    costs = Costs.make(stages, F=4, B=5, W=3 if split else None, comm=1)
    return Instance(placement, microbatches, costs, Memory.make(stages, ranks, cap=cap))


def launch(given: Instance, **more: Any) -> dict[str, Any]:
    layers = [1 + stage % 2 for stage in range(given.stages)]  # uneven stages
    two = given.stages > given.ranks
    return {"microbatches": given.microbatches, "layers": layers, "vee": two, "seconds": 20, **more}


def explained(seen: dict[str, Any]) -> str:
    """What a run that went wrong has to say: for a hang, where each rank waits."""
    waits = "; ".join(f"rank {rank} waits at {one}" for rank, one in seen["waits"].items())
    return f"{seen['outcome']}: {waits or seen['error']}\n" + "\n".join(map(str, seen["stacks"].values()))


SOLVED = {
    "p=3 m=5, F, B and W": instance(3, 5, cap=3),
    "p=4 m=2, fewer microbatches than ranks": instance(4, 2),
    "p=2 m=5, no multiple": instance(2, 5, cap=3),
    "p=3 m=4, fused backwards": instance(3, 4, split=False, cap=3),
    "vee p=2 m=5": instance(vee(2), 5, cap=5),
    "vee p=2 m=4, fused backwards": instance(vee(2), 4, split=False),
}


@pytest.mark.parametrize("name", SOLVED)
def test_a_solved_schedule_trains_like_the_unpipelined_model(server: Any, evidence: Any, name: str) -> None:
    given = SOLVED[name]
    schedule = solve(given, time_limit=3, workers=1).schedule
    seen = server.ask(**launch(given, schedule=dumps(Document(schedule, given)), steps=2))
    assert seen["outcome"] == "ok", explained(seen)
    evidence.trained("deepspeed", f"solved, {name}", schedule, given, seen, server.versions, ["uneven", "messages"])


@pytest.mark.parametrize("family", ["gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2", "zb-v", "v-half"])
def test_a_published_schedule_trains_like_the_unpipelined_model(server: Any, evidence: Any, family: str) -> None:
    given = instance(vee(3), 7) if "v" in family else instance(3, 5)
    schedule = FAMILIES[family].build(given)
    seen = server.ask(**launch(given, schedule=dumps(Document(schedule, given))))
    assert seen["outcome"] == "ok", explained(seen)
    evidence.trained("deepspeed", family, schedule, given, seen, server.versions, ["uneven", "messages"])


MORE: dict[str, dict[str, Any]] = {
    "two steps on two replicas": {"replicas": 2, "steps": 2},
    "stages that end with a view, tensors of unequal width": {"view": True, "widths": [4, 6, 5]},
    "float32, DeepSpeed as it is": {"float32": True},
}


@pytest.mark.parametrize("what", MORE)
def test_split_backwards_train_under_other_circumstances(server: Any, evidence: Any, what: str) -> None:
    given = instance(2, 3)
    schedule = FAMILIES["zb-h1"].build(given)
    seen = server.ask(**launch(given, schedule=dumps(Document(schedule, given)), **MORE[what]))
    assert seen["outcome"] == "ok", explained(seen)
    evidence.trained("deepspeed", f"zb-h1, {what}", schedule, given, seen, server.versions, ["uneven", "messages"])


def test_deepspeeds_own_engine_runs_streams_without_split_backwards(server: Any, evidence: Any) -> None:
    given = instance(3, 5, split=False)
    schedule = FAMILIES["1f1b"].build(given)
    text = deepspeed.dumps(lowered(schedule, given))
    seen = server.ask(**launch(given, streams=text, engine="stock", steps=2))
    assert seen["outcome"] == "ok", explained(seen)
    also = ["uneven", "messages"]
    evidence.trained("deepspeed", "1f1b on DeepSpeed's own engine", schedule, given, seen, server.versions, also)


@pytest.mark.parametrize(("ranks", "microbatches"), [(1, 3), (2, 1), (3, 2), (4, 7)])
def test_deepspeeds_own_schedule_is_read_and_found_right(server: Any, ranks: int, microbatches: int) -> None:
    seen = server.ask(read=[ranks, microbatches], seconds=20)
    streams = deepspeed.loads_streams(seen["streams"])
    given = instance(ranks, microbatches, split=False)
    assert deepspeed.program_of(streams).schedule == FAMILIES["1f1b"].build(given)
    assert deepspeed.loads_streams(seen["text"]).rows == streams.rows
    assert predict(streams).outcome == "ok"


def test_deepspeeds_own_schedule_for_vees_is_read_and_found_right(server: Any) -> None:
    seen = server.ask(read=[3, 7, True], seconds=20)
    streams = deepspeed.loads_streams(seen["streams"])
    given = instance(vee(3), 7, split=False)
    said = predict(streams)
    report = verify_program(deepspeed.program_of(streams), given, channel="batched", prediction=said)
    assert (said.outcome, report.verdict) == ("ok", Verdict.PROVED)
    assert deepspeed.loads_streams(seen["text"]).rows == streams.rows


def test_split_backwards_with_what_was_never_executed_are_refused(server: Any) -> None:
    given = instance(2, 2)
    text = dumps(Document(FAMILIES["zb-h1"].build(given), given))
    config = {"zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True}
    seen = server.ask(**launch(given, schedule=text, config=config, float32=True))
    assert (seen["outcome"], "a ZeRO optimizer" in seen["error"]) == ("refused", True), explained(seen)


def lowered(schedule: Schedule, given: Instance) -> Streams:
    return deepspeed.streams_of(lower(schedule, given, reduce=False, blocking=True), given)


def mutants(streams: Streams, rng: random.Random, count: int) -> Iterator[tuple[str, Streams]]:
    """Streams that differ from right ones by one fault of a kind that people make."""
    for number in range(count):
        rows = [list(row) for row in streams.rows]
        row = rng.choice(rows)
        at = rng.randrange(len(row) - 3)
        kind = ("drop", "repeat", "swap neighbours", "swap", "move", "buffer", "receive", "end")[number % 8]
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
        elif kind == "buffer":
            at = rng.choice([place for place, one in enumerate(row) if one.buffer is not None])
            row[at] = row[at]._replace(
                buffer=((row[at].buffer or 0) + rng.choice((1, 1, 2))) % max(3, *streams.buffers)
            )
        else:  # an instruction of one kind somewhere else, or not at all
            ends = range(len(row) - 3, len(row))
            commits = [place for place, one in enumerate(row) if one.name == "CommitP2P"]
            receives = [place for place, one in enumerate(row) if one.name in ("RecvActivation", "RecvGrad")]
            one = row.pop(rng.choice(receives if kind == "receive" else commits or ends))
            if rng.random() < 0.75:
                row.insert(rng.randrange(len(row) + 1), one)
        yield kind, Streams.of(rows, streams.microbatches, streams.buffers)


def naive(streams: Streams) -> Streams:
    """Receives right before their use and sends right after what makes them: what people write first."""
    if streams.vee:
        return Streams.of([_uncommitted(row) for row in streams.rows], streams.microbatches, streams.buffers)
    rows = []
    for row in streams.rows:
        rest = [one for one in row if not one.name.startswith(("Send", "Recv"))]
        for one in row:
            use = {"RecvActivation": "ForwardPass", "RecvGrad": "Backward"}.get(one.name)
            made = {"SendActivation": "ForwardPass", "SendGrad": "Backward"}.get(one.name)
            for place, other in enumerate(rest):
                if other.buffer == one.buffer and other.name.startswith(use or made or ""):
                    rest.insert(place if use else place + 1, one)
                    break
        rows.append(rest)
    return Streams.of(rows, streams.microbatches, streams.buffers)


def _uncommitted(row: tuple[Instruction, ...]) -> list[Instruction]:
    """Commits only before a backward: what is sent by then goes together."""
    made = []
    for one in row:
        if one.name.startswith("Backward"):
            made.append(Instruction("CommitP2P"))
        if one.name != "CommitP2P":
            made.append(one)
    return made


BASES: tuple[tuple[Instance, str, Engine], ...] = (
    (instance(2, 2, split=False), "1f1b", "stock"),
    (instance(3, 3, split=False), "1f1b", "stock"),
    (instance(3, 2), "zb-h1", "bubbleproof"),
    (instance(2, 3), "gpipe", "bubbleproof"),
    (instance(vee(2), 4), "zb-v", "bubbleproof"),
)


@pytest.mark.parametrize(("given", "family", "engine"), BASES)
def test_the_model_says_what_deepspeed_does_with_mutated_streams(
    server: Any, evidence: Any, given: Instance, family: str, engine: Engine
) -> None:
    rng = random.Random(given.stages * 10 + given.microbatches)
    agreed: Counter[str] = Counter()
    undecided, wrong = 0, []
    right = lowered(FAMILIES[family].build(given), given)
    for kind, mutant in [("naive", naive(right)), *mutants(right, rng, 20)]:
        said = predict(mutant, engine=engine)
        seen = server.ask(**launch(given, streams=deepspeed.dumps(mutant), engine=engine, seconds=3))
        if not said.certain:
            undecided += 1
        elif seen["outcome"] == said.outcome:
            agreed[said.outcome] += 1
        else:
            wrong.append((family, engine, kind, said, explained(seen), str(mutant)))
    what = f"streams of {family} on {given.ranks} ranks, {engine} engine"
    evidence.compared("deepspeed", what, agreed, len(wrong), server.versions, undecided)
    assert not wrong, "\n".join(map(str, wrong))
    assert sum(agreed.values()) >= 18
    assert len(agreed) >= 3


def finding(name: str) -> tuple[dict[str, Any], str, str]:
    """The entry of a finding, the text of its file and that of the repaired one."""
    entry = json.loads((FINDINGS / "deepspeed.json").read_text(encoding="utf-8"))[name]
    texts = [(FINDINGS / entry[key][0]).read_text(encoding="utf-8") for key in ("verify", "repaired")]
    return entry, texts[0], texts[1]


@pytest.mark.parametrize("name", ["gradient overwritten", "labels of another microbatch", "both ranks send"])
def test_what_deepspeed_accepts_and_does_not_train_right_is_found_by_verify_and_gone_when_repaired(
    server: Any, evidence: Any, name: str
) -> None:
    entry, text, repaired = finding(name)
    streams = deepspeed.loads_streams(text)
    job = launch(instance(streams.ranks, streams.microbatches), engine="stock", seconds=5)
    before, after = server.ask(**job, streams=text), server.ask(**job, streams=repaired)
    shown = [
        {"outcome": seen["outcome"], "gradient_error": f"{seen['gradient_error']:.1e}"} for seen in (before, after)
    ]
    evidence.fault("deepspeed", name, server.versions, before=shown[0], rules=entry["rules"], after=shown[1])
    assert before["outcome"] == entry["seen"], explained(before)
    assert after["outcome"] == "ok", explained(after)
    if entry["seen"] == "wrong":
        assert before["gradient_error"] > 0.1
    else:
        assert len(before["waits"]) == streams.ranks


@pytest.mark.parametrize(("widths", "separate", "outcome"), [([8, 6, 9, 8], {1}, "ok"), ([8, 9, 6, 8], (), "wrong")])
def test_only_a_stage_whose_output_is_larger_than_its_input_receives_gradients_into_memory_of_its_own(
    server: Any, widths: list[int], separate: set[int], outcome: str
) -> None:
    _, text, _ = finding("gradient overwritten")
    streams = deepspeed.loads_streams(text)
    assert predict(streams, separate=separate).outcome == outcome
    seen = server.ask(**launch(instance(3, 2), streams=text, engine="stock", widths=widths))
    assert seen["outcome"] == outcome, explained(seen)
