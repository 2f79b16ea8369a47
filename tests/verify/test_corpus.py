"""Files whose outcome was observed on a real runtime: every verdict agrees, and the fault named is the planted one."""

import json
import re
from pathlib import Path

import pytest

from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.formats import torch_comms, torch_csv
from bubbleproof.schedules.formats.infer import infer_instance
from bubbleproof.verify import Verdict, verify, verify_program

CORPUS = Path(__file__).parents[1] / "corpus"
CASES = json.loads((CORPUS / "manifest.json").read_text())["cases"]

# For each kind of fault the rules of which each file of the kind breaks at least one set, and nothing outside it.
EXPECTED = {
    "b_and_iw_both": [{"V105"}],
    "cyclic_order": [{"V202"}],
    "deferred_recv_fifo": [{"V510"}],
    "duplicate_backward": [{"V102"}],
    "duplicate_forward": [{"V102"}],
    "duplicated_message": [{"V503"}],
    "extra_recv": [{"V503"}],
    "extra_send": [{"V503"}],
    "fifo_cancelling": [{"V510"}],
    "fifo_f_and_b": [{"V510"}],
    "fifo_same_kind": [{"V510"}],
    "fifo_two_edges": [{"V510"}],
    # a row that breaks off; a whole file without its transfers: nothing is sent, received or reduced
    "format": [{"V101"}, {"V501", "V502", "V701"}],
    "last_stage_forward_order": [{"V705"}],
    "local_dependency": [{"V201"}],
    "lost_and_doubled": [{"V101", "V105"}, {"V101", "V102"}],
    "microbatch_range": [{"V101", "V103"}, {"V103"}, {"V502", "V504"}],
    "missing_op": [{"V101"}],
    "missing_recv": [{"V502"}],
    # a send in the wrong direction is one beyond the end, and the right one is missing
    "missing_send": [{"V501"}, {"V501", "V505"}],
    "non_neighbour_edge": [{"V502", "V503"}],
    "noop_edge_comm": [{"V505"}],
    "order_within_microbatch": [{"V201"}],
    "overlap": [{"V101"}, {"V107"}, {"V202"}, {"V509"}],
    "placement": [{"V101"}, {"V101", "V103"}, {"V104"}],
    "recv_after_use": [{"V509"}],
    "reduce_grad": [{"V701"}, {"V702"}, {"V703"}],
    "self_send": [{"V506"}],
    "send_before_producer": [{"V508"}],
    # matters only where weights are sharded: advice, and no violation
    "unshard_reshard": [{"A903"}],
}

# The files whose fault is one of notation: the reader refuses them, and says the line and the cell.
REFUSED = {"format", "overlap"}


def name(case):
    return case["file"]


def read(case):
    """The program or the schedule of a file, and its instance under the parameters of the launch."""
    path = CORPUS / case["file"]
    comms = case["format"] == "compute_comms"
    found = torch_comms.load(path) if comms else torch_csv.load(path)
    instance = infer_instance(
        found.schedule if comms else found,
        path.name,
        ranks=case["ranks"],
        stages=case["stages"],
        microbatches=case["microbatches"],
        rank_of_stage=case["placement"],
    ).instance
    return found, instance


def judge(case, channel="eager"):
    """The report of a file for torch; messages were sent asynchronously when it was run."""
    found, instance = read(case)
    if case["format"] == "compute_only":
        return verify(found, instance, target="torch", listed_per_rule=1000)
    return verify_program(
        found, instance, channel=channel, target="torch", scale_grads=case["scale_grads"], listed_per_rule=1000
    )


def readable(case):
    try:
        read(case)
    except FormatError:
        return False
    return True


READABLE = [case for case in CASES if readable(case)]
UNREADABLE = [case for case in CASES if not readable(case)]


def test_the_corpus_is_whole():
    assert len(CASES) == 157
    assert {case["kind"] for case in READABLE if case["fault"]} == set(EXPECTED)
    assert len(READABLE) == 138
    assert {case["kind"] for case in UNREADABLE} == REFUSED
    assert all(case["fault"] for case in UNREADABLE)


@pytest.mark.parametrize("case", [case for case in READABLE if not case["fault"]], ids=name)
def test_a_file_that_ran_right_and_has_no_fault_is_proved(case):
    report = judge(case)
    assert report.verdict is Verdict.PROVED, str(report)
    assert report.advice == () or {advice.rule for advice in report.advice} == {"A901"}


@pytest.mark.parametrize("case", [case for case in READABLE if case["fault"]], ids=name)
def test_the_planted_fault_is_named_and_nothing_else(case):
    report = judge(case)
    named = set(report.counts) or {advice.rule for advice in report.advice}
    assert named in EXPECTED[case["kind"]], str(report)
    assert (report.verdict is Verdict.VIOLATED) == (case["level"] != "fsdp")


@pytest.mark.parametrize("case", [case for case in READABLE if case["level"] not in ("none", "format")], ids=name)
def test_a_fault_is_named_at_a_place_of_the_planted_ops(case):
    """Rank, op and, where the op is there, position of what is named are those of the manifest."""
    report = judge(case)
    planted = {}
    for op in case["ops"]:
        for text in (op["op"], *re.findall(r"[0-9]+[FIBW][0-9]+", op["op"])):
            planted.setdefault((op["rank"], split(letters(text))), set()).update(op["index"])
    named = {place for found in (*report.violations, *report.advice) for place in places(found)}
    assert any((r, op) in planted and (p is None or p in planted[r, op]) for r, op, p in named), (named, planted)


def letters(text):
    """An op of the manifest, which writes B for both halves and I for the first, in the package's letters."""
    return re.sub(r"([0-9])([IB])([0-9])", lambda m: m[1] + {"I": "B", "B": "BW"}[m[2]] + m[3], text)


def split(text):
    """An op without the form of its backward: the judge may name the other form of one that is missing."""
    return re.sub(r"([0-9])(BW|W)([0-9])", r"\1B\3", text.removesuffix("OVERLAP_F_B"))


def places(violation):
    """(rank, op, position) of everything that a violation names."""
    found = [(violation.rank, split(violation.op or ""), violation.position)]
    witness = violation.witness or {}
    for wait in witness.get("waits", ()):
        found.append((wait["rank"], split(wait["op"]), wait["position"]))
        found.append((wait.get("needed_rank"), split(wait.get("needs", "")), wait.get("needed_position")))
    for wrong in witness.get("wrong", ()):
        found.append((violation.rank, wrong["received"], wrong["receive_position"]))
        found.append((witness["from_rank"], wrong["sent"], wrong["send_position"]))
    return found


@pytest.mark.parametrize("case", UNREADABLE, ids=name)
def test_a_fault_of_notation_is_refused_at_its_place(case):
    with pytest.raises(FormatError) as refused:
        read(case)
    (place, *_) = case["ops"]
    if "cell" in place:
        assert f": line {place['row'] + 1}, cell {place['cell'] + 1}" in str(refused.value)
    elif "row" in place and case["file"] not in ("shared/fmt_extra_row.csv", "shared/fmt_missing_row.csv"):
        assert f": line {place['row'] + 1}" in str(refused.value)
    elif "row" in place:
        assert f"ranks in the file, but {case['ranks']} given" in str(refused.value)


RENDEZVOUS = [case for case in READABLE if case.get("rendezvous")]


@pytest.mark.parametrize("case", RENDEZVOUS, ids=name)
def test_where_each_rank_stops_under_rendezvous_is_as_computed_independently(case):
    stops = judge(case, "rendezvous-rank").channel.stops
    expected = {stuck["rank"]: stuck["index"] for stuck in case["rendezvous_stuck"] or []}
    assert {rank: position for rank, position in enumerate(stops) if position is not None} == expected


@pytest.mark.parametrize("case", [case for case in RENDEZVOUS if not case["fault"]], ids=name)
def test_a_program_without_another_fault_deadlocks_under_rendezvous_exactly_where_it_was_computed_to(case):
    report = judge(case, "rendezvous-rank")
    assert dict(report.counts) == ({"V601": 1} if case["rendezvous"] == "deadlock" else {})
    assert (report.order is None) == (case["rendezvous"] == "deadlock")
