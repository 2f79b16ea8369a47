"""The consumer model of DeepSpeed on streams whose outcome follows from what the engine holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from bubbleproof import Instance
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.families import FAMILIES
from bubbleproof.schedules.formats import deepspeed
from bubbleproof.schedules.instructions import Instruction, Streams, parse_instruction
from bubbleproof.schedules.lower import lower
from bubbleproof.schedules.placement import linear, vee
from bubbleproof.schedules.program import Program
from bubbleproof.verify import Verdict, verify_program
from bubbleproof.verify.runtimes.deepspeed import predict

DATA = Path(__file__).parents[2] / "data" / "deepspeed"
SHORT = {
    "L": "LoadMicroBatch",
    "F": "ForwardPass",
    "BW": "BackwardPass",
    "B": "BackwardInput",
    "W": "BackwardWeight",
    "SA": "SendActivation",
    "RA": "RecvActivation",
    "SG": "SendGrad",
    "RG": "RecvGrad",
}


def streams(*rows: str, m: int) -> Streams:
    """Streams in short names; each row ends with the reduction and the optimizer step."""
    made = []
    for row in rows:
        short = [Instruction(SHORT[word[:-1]], int(word[-1])) for word in row.split()]  # type: ignore[arg-type]
        made.append([*short, parse_instruction("ReduceGrads()"), parse_instruction("OptimizerStep()")])
    return Streams.of(made, m)


RIGHT = ("L0 F0 SA0 L1 F1 SA1 RG0 BW0 RG1 BW1", "RA0 L0 F0 RA1 BW0 SG0 L1 F1 BW1 SG1")


def test_deepspeeds_own_schedule_trains_right() -> None:
    found = deepspeed.loads_streams((DATA / "train-p4-m5.txt").read_text(encoding="utf-8"))
    assert predict(found).outcome == "ok"


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("family", ["gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2"])
@pytest.mark.parametrize("m", [1, 2, 5])
def test_every_linear_schedule_trains_right_on_the_engine_that_keeps_losses_and_gradients_apart(
    ranks: int, family: str, m: int
) -> None:
    given = Instance(linear(ranks), m, Costs.make(ranks, F=4, B=5, W=3, comm=1), Memory.make(ranks, ranks))
    for blocking in (False, True):
        program = lower(FAMILIES[family].build(given), given, reduce=False, blocking=blocking)
        said = predict(deepspeed.streams_of(program, given), engine="bubbleproof")
        assert said.outcome == "ok"
        assert verify_program(program, given, prediction=said).verdict is Verdict.PROVED


CASES = {
    "as it should be": (RIGHT, "stock", "ok", ""),
    "two forwards before their backwards on the last stage: there is one loss": (
        ("L0 F0 SA0 L1 F1 SA1 RG0 BW0 RG1 BW1", "RA0 L0 F0 RA1 L1 F1 BW0 SG0 BW1 SG1"),
        *("stock", "crash", "SendGrad(buffer_id=0): the input has no gradient"),
    ),
    "the same where losses are kept apart": (
        ("L0 F0 SA0 L1 F1 SA1 RG0 BW0 RG1 BW1", "RA0 L0 F0 RA1 L1 F1 BW0 SG0 BW1 SG1"),
        *("bubbleproof", "ok", ""),
    ),
    "an activation received between a gradient and its use overwrites it": (
        (
            "L0 F0 SA0 L1 F1 SA1 RG0 BW0 RG1 BW1",
            "RA0 F0 SA0 RG0 RA1 BW0 SG0 F1 SA1 RG1 BW1 SG1",
            "RA0 L0 F0 BW0 SG0 RA0 L0 F0 BW0 SG0",
        ),
        *("stock", "wrong", "the gradients of stage 0 are wrong"),
    ),
    "both ranks send": (
        ("L0 F0 SA0 L1 F1 SA1 RG0 BW0 RG1 BW1", "RA0 L0 F0 BW0 SG0 RA0 L0 F0 BW0 SG0"),
        *("stock", "hang", "rank 0 waits at SendActivation(buffer_id=1); rank 1 waits at"),
    ),
    "labels of another microbatch": (
        ("L0 F0 SA0 L1 F1 SA1 RG0 BW0 RG1 BW1", "L1 L0 RA0 F0 RA1 BW0 SG0 F1 BW1 SG1"),
        *("stock", "wrong", "the gradients of stage 0 are wrong"),
    ),
    "a backward without its gradient": (
        ("L0 F0 SA0 BW0 RG0", "RA0 L0 F0 BW0 SG0"),
        *("stock", "crash", "no gradient was received"),
    ),
    "a load too many": (("L0 F0 L1 BW0",), "stock", "crash", "the iterator has no more than 1 items"),
    "nothing to do on the last stage": (("L0 F0", ""), "stock", "crash", "no forward on the last stage"),
    "split backwards are not known": (("L0 F0 B0 W0",), "stock", "crash", "the engine does not understand it"),
    "split backwards": (("L0 F0 B0 W0",), "bubbleproof", "ok", ""),
    "W without B": (("L0 F0 W0 B0",), "bubbleproof", "crash", "its BackwardInput has not run"),
    "W left out": (("L0 F0 B0 L1 F1 B1 W1",), "bubbleproof", "wrong", "the gradients of stage 0 are wrong"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_outcome_follows_from_what_the_engine_holds(name: str) -> None:
    rows, engine, outcome, reason = CASES[name]
    m = max(row.count("F") for row in rows)
    said = predict(streams(*rows, m=m), engine=engine)  # type: ignore[arg-type]  # one of the engines
    assert said.outcome == outcome, said
    assert reason in said.reason


def on_vee(family: str, ranks: int, m: int) -> tuple[Instance, Program, Streams]:
    stages = 2 * ranks
    given = Instance(vee(ranks), m, Costs.make(stages, F=4, B=5, W=3, comm=1), Memory.make(stages, ranks))
    program = lower(FAMILIES[family].build(given), given, reduce=False, blocking=True)
    return given, program, deepspeed.streams_of(program, given)


@pytest.mark.parametrize("family", ["zb-v", "v-half", "v-min"])
@pytest.mark.parametrize(("ranks", "m"), [(2, 4), (2, 7), (3, 6)])
def test_schedules_on_a_vee_train_right(family: str, ranks: int, m: int) -> None:
    given, program, found = on_vee(family, ranks, m)
    said = predict(found, engine="bubbleproof")
    assert said.outcome == "ok", said
    assert verify_program(program, given, channel="rendezvous-rank", prediction=said).verdict is Verdict.PROVED
    assert predict(found).reason == f"BackwardInput(buffer_id={m}, phase=1): the engine does not understand it"


def test_deepspeeds_own_schedule_for_vees_trains_right_and_too_few_microbatches_are_refused() -> None:
    found = deepspeed.loads_streams((DATA / "dualpipev-p2-m5.txt").read_text(encoding="utf-8"))
    assert predict(found).outcome == "ok"
    assert predict(Streams(found.rows, 3, found.buffers)).outcome == "refused"


def changed(row: tuple[Instruction, ...], text: str, into: str) -> list[Instruction]:
    """A row with the first occurrence of some instructions, given as text, changed into others."""
    whole = " ".join(str(one).replace(", ", ",") for one in row)
    assert text in whole
    return [parse_instruction(word) for word in whole.replace(text, into, 1).split()]


@pytest.mark.parametrize(
    ("rank", "text", "into", "outcome", "why"),
    [
        (0, "SendActivation(buffer_id=1,phase=0) CommitP2P()", "", "hang", "rank 1 waits at"),
        (
            0,
            "SendActivation(buffer_id=1,phase=0) CommitP2P()",
            "SendActivation(buffer_id=1,phase=0)",
            "hang",
            "rank 0 waits at",
        ),
        (0, "ForwardPass(buffer_id=0,phase=0)", "", "crash", "the buffer has no output"),
        (1, "RecvActivation(buffer_id=1,phase=0)", "RecvActivation(buffer_id=2,phase=0)", "crash", "no input"),
        (1, "BackwardWeight(buffer_id=0,phase=0)", "", "wrong", "the gradients of rank 1 are wrong"),
        (1, "BackwardWeight(buffer_id=0,phase=0)", "BackwardWeight(buffer_id=9,phase=0)", "crash", "8 buffers"),
        (1, "BackwardWeight(buffer_id=0,phase=0)", "BackwardWeight(buffer_id=0)", "crash", "no phase is given"),
        (
            0,
            "LoadMicroBatch(buffer_id=1)",
            "LoadMicroBatch(buffer_id=1) LoadMicroBatch(buffer_id=1)",
            "crash",
            "more than",
        ),
    ],
)
def test_the_outcome_on_a_vee_follows_from_what_the_engine_holds(
    rank: int, text: str, into: str, outcome: str, why: str
) -> None:
    _, _, right = on_vee("zb-v", 2, 4)
    rows = [list(row) for row in right.rows]
    rows[rank] = changed(right.rows[rank], text, into)
    said = predict(Streams.of(rows, 4, right.buffers), engine="bubbleproof")
    assert said.outcome == outcome, said
    assert why in said.reason


def test_a_reduction_that_is_missing_matters_only_with_replicas() -> None:
    rows = [[one for one in row if one.name != "ReduceGrads"] for row in streams(*RIGHT, m=2).rows]
    bare = Streams.of(rows, 2)
    assert predict(bare).outcome == "ok"
    assert predict(bare, replicas=2).outcome == "wrong"


def test_a_buffer_that_is_not_there_raises() -> None:
    full = streams(*RIGHT, m=2)
    assert predict(Streams(full.rows, 2, (1, 2))).reason == "LoadMicroBatch(buffer_id=1): there are 1 buffers"


def test_weights_that_change_in_between_are_noticed() -> None:
    row = [parse_instruction(f"{name}(buffer_id=0)") for name in ("LoadMicroBatch", "ForwardPass", "BackwardPass")]
    step = parse_instruction("OptimizerStep()")
    assert predict(Streams.of([[*row, step, *row, step]], 2)).outcome == "wrong"
    assert predict(Streams.of([[*row, *row, step]], 2)).outcome == "ok"
    assert predict(Streams.of([[*row, *row[:2], step, row[2], step]], 2)).outcome == "crash"
