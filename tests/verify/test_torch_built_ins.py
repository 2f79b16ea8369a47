"""PyTorch's built-in schedules: exactly the wrong ones are called wrong, with the cause; channel models agree."""

import json
import re
from pathlib import Path

import pytest

from bubbleproof.schedules.formats import torch_comms, torch_csv
from bubbleproof.schedules.formats.infer import infer_instance
from bubbleproof.verify import Verdict, verify, verify_program

DATA = Path(__file__).parents[1] / "data" / "torch_csv"
CASES = json.loads((DATA / "index.json").read_text())["cases"]
COMMS = [case for case in CASES if case["level"] == "comms"]

# the columns of the index and the models that they stand for
MODELS = {
    "eager": "eager",
    "pair": "rendezvous-pair",
    "single": "rendezvous-rank",
    "dir": "per-direction",
    "edge": "per-edge",
}


def name(case):
    return case["file"]


def load(case):
    path = DATA / case["file"]
    found = torch_comms.load(path) if case["level"] == "comms" else torch_csv.load(path)
    schedule = found.schedule if case["level"] == "comms" else found
    instance = infer_instance(
        schedule,
        path.name,
        ranks=case["ranks"],
        stages=case["stages"],
        microbatches=case["microbatches"],
        rank_of_stage=case["placement"],
    ).instance
    return found, instance


def judge(case, channel="rendezvous-pair"):
    found, instance = load(case)
    if case["level"] == "comms":
        return verify_program(found, instance, channel=channel, target="torch", listed_per_rule=100)
    return verify(found, instance, target="torch", listed_per_rule=100)


@pytest.mark.parametrize("case", [case for case in CASES if case["correct"]], ids=name)
def test_the_right_ones_pass(case):
    assert judge(case).verdict is Verdict.PROVED


@pytest.mark.parametrize("case", [case for case in COMMS if case["correct"]], ids=name)
@pytest.mark.parametrize("channel", [*MODELS.values(), "batched"])
def test_the_right_ones_with_communication_pass_under_every_channel(case, channel):
    assert judge(case, channel).verdict is Verdict.PROVED


def test_there_are_five_wrong_ones():
    assert sum(not case["correct"] for case in CASES) == 5


@pytest.mark.parametrize("case", [c for c in CASES if not c["correct"] and c["level"] == "compute"], ids=name)
def test_forwards_numbered_from_one_are_named_op_by_op(case):
    """The last rank's first forward is missing, one beyond the last microbatch exists in its place."""
    report = judge(case)
    last, m = case["stages"] - 1, case["microbatches"]
    assert dict(report.counts) == {"V101": 1, "V103": 1}
    missing, unknown = report.violations
    assert missing.op == f"{last}F0"
    assert unknown.op == f"{last}F{m}"
    assert case["wrong"].startswith(f"last rank: the forwards of stage {last} are numbered 1..{m}")


@pytest.mark.parametrize("case", [c for c in COMMS if not c["correct"]], ids=name)
def test_reordered_receives_are_named_as_silent_wrong_data(case):
    report = judge(case, "eager")
    assert dict(report.counts) == {"V510": 1}
    (violation,) = report.violations
    assert violation.message.startswith("silent wrong data")
    (first,) = case["fifo_mismatch"]
    assert [violation.witness["from_rank"], violation.rank] == first["channel"]
    wrong = violation.witness["wrong"][0]
    assert (wrong["number"], wrong["sent"], wrong["received"]) == (
        first["position"],
        first["sent"],
        first["received_as"],
    )


@pytest.mark.parametrize("case", COMMS, ids=name)
@pytest.mark.parametrize(("column", "channel"), MODELS.items())
def test_the_queue_models_agree(case, column, channel):
    """A column says deadlock where no order of the named messages runs; lanes without tags cross them instead.

    Where each ordered pair of ranks has its own queue, crossed messages do not wait for each other: they are wrong data
    and no deadlock. Where each direction has its own queues too, forwards and gradients do not even cross.
    """
    report = judge(case, channel)
    broken = set(report.counts)
    if case["queue_model"][column] == "ok":
        assert "V601" not in broken
    elif column == "edge":
        assert broken == {"V510"}
    else:
        assert "V601" in broken
    assert (report.verdict is Verdict.PROVED) == (case["correct"] and case["queue_model"][column] == "ok")


@pytest.mark.parametrize("case", [c for c in COMMS if not c["correct"]], ids=name)
def test_the_witness_of_a_deadlock_is_among_the_stuck_heads_of_the_pair_queues(case):
    (deadlock,) = [v for v in judge(case).violations if v.rule == "V601"]
    heads = {(int(re.search(r"\d+", key)[0]), op) for key, op in case["pair_queue_stuck_heads"].items()}
    assert {(wait["rank"], wait["op"]) for wait in deadlock.witness["waits"]} <= heads
    assert len(deadlock.witness["waits"]) == 2
