"""Each rule about communication on its smallest example: the fault is named with its place, nothing else is."""

import json

import pytest

from bubbleproof.schedules.errors import InstanceError
from bubbleproof.schedules.placement import bidirectional, loop, vee
from bubbleproof.schedules.program import CHANNELS, Program, Transfer
from bubbleproof.verify import Verdict, verify, verify_program
from bubbleproof.verify.rules.catalogue import ADVICE, FAMILIES, PROGRAM_RULES
from tests.verify.model import pipeline

FUSED = {"F": 1, "B": 2}
ONE = ["0F0 0SEND_F0 0RECV_B0 0BW0", "1RECV_F0 1F0 1BW0 1SEND_B0"]
TWO = [
    "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0BW0 0RECV_B1 0BW1",
    "1RECV_F0 1F0 1RECV_F1 1BW0 1SEND_B0 1F1 1BW1 1SEND_B1",
]


def judge(rows, m=1, placement=None, instance=None, **options):
    instance = instance or pipeline(len(rows), m, placement, **FUSED)
    return verify_program(Program.parse(rows), instance, **options)


def only(report, rule):
    """The single violation, of the expected rule and no other."""
    assert dict(report.counts) == {rule: 1}, str(report)
    assert report.verdict is Verdict.VIOLATED
    (violation,) = report.violations
    return violation


def place(violation):
    return violation.rank, violation.position, violation.op


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize(("rows", "m"), [(ONE, 1), (TWO, 2)])
def test_a_correct_program_is_proved_under_every_channel(rows, m, channel):
    report = judge(rows, m, channel=channel)
    assert report.verdict is Verdict.PROVED, str(report)
    assert report.channel.stops == (None, None)
    assert report.channel.transfers == 4 * m
    assert report.facts.slots == 4 * m


def test_v100_rows_for_another_number_of_ranks_and_nothing_else():
    report = judge(ONE, instance=pipeline(3, 1, **FUSED))
    assert dict(report.counts) == {"V100": 1}
    assert report.rules == ("V100",)
    assert report.channel is None


def test_rules_about_ops_count_positions_in_the_whole_row():
    rows = ["0F0 0SEND_F0 0RECV_B0 0BW0 0BW0", ONE[1]]
    assert only(judge(rows), "V102").witness == {"places": [[0, 3], [0, 4]]}


def test_v501_a_missing_send_is_named_with_the_receive_that_waits_for_it():
    violation = only(judge(["0F0 0RECV_B0 0BW0", ONE[1]]), "V501")
    assert place(violation) == (0, None, "0SEND_F0")
    assert violation.message == (
        "0SEND_F0 is missing on rank 0: the output of microbatch 0 from stage 0 to stage 1 is never sent; "
        "rank 1 receives it at position 0"
    )


def test_v502_a_missing_receive_is_named_with_its_send():
    violation = only(judge([ONE[0], "1F0 1BW0 1SEND_B0"]), "V502")
    assert place(violation) == (1, None, "1RECV_F0")
    assert violation.message.endswith("is never received; rank 0 sends it at position 1")


def test_a_program_without_any_communication_misses_both_ends_of_every_message():
    report = judge(["0F0 0BW0", "1F0 1BW0"])
    assert dict(report.counts) == {"V501": 2, "V502": 2}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (["0F0 0SEND_F0 0SEND_F0 0RECV_B0 0BW0", ONE[1]], (0, 2, "0SEND_F0")),
        ([ONE[0], "1RECV_F0 1F0 1BW0 1SEND_B0 1RECV_F0"], (1, 4, "1RECV_F0")),
    ],
)
def test_v503_a_copy_of_a_transfer_is_named_and_does_not_show_as_crossed_messages(rows, expected):
    violation = only(judge(rows), "V503")
    assert place(violation) == expected
    assert " 2 times: " in violation.message


@pytest.mark.parametrize("stray", ["0SEND_F1", "5RECV_F0", "7SEND_B9"])
def test_v504_a_message_that_does_not_exist(stray):
    violation = only(judge([ONE[0], f"{ONE[1]} {stray}"]), "V504")
    assert place(violation) == (1, 4, stray)


@pytest.mark.parametrize(("stray", "end"), [("0RECV_F0", "first"), ("0SEND_B0", "first"), ("1SEND_F0", "last")])
def test_v505_a_transfer_beyond_the_ends_of_the_pipeline(stray, end):
    rank = int(stray[0])
    rows = [f"{row} {stray}" if rank == r else row for r, row in enumerate(ONE)]
    violation = only(judge(rows), "V505")
    assert place(violation) == (rank, 4, stray)
    assert violation.message.endswith(f"stage {rank} is the {end} one")


def test_v506_a_transfer_between_two_stages_of_one_rank():
    rows = [
        "0F0 0SEND_F0 0RECV_B0 0BW0",
        "1RECV_F0 1F0 1SEND_F0 2F0 2BW0 1BW0 1SEND_B0",
    ]
    instance = pipeline(2, 1, vee(2), **FUSED)
    rows = [
        "0F0 0SEND_F0 3RECV_F0 3F0 3BW0 3SEND_B0 0RECV_B0 0BW0",
        "1RECV_F0 1F0 1SEND_F0 2F0 2SEND_F0 2RECV_B0 2BW0 1BW0 1SEND_B0",
    ]
    violation = only(judge(rows, instance=instance), "V506")
    assert place(violation) == (1, 2, "1SEND_F0")


def test_v507_a_transfer_on_a_wrong_rank_is_not_also_missing():
    violation = only(judge(["0F0 0RECV_B0 0BW0", "0SEND_F0 1RECV_F0 1F0 1BW0 1SEND_B0"]), "V507")
    assert place(violation) == (1, 0, "0SEND_F0")
    assert violation.witness == {"belongs_on": 0}


def test_v508_a_send_before_what_makes_it():
    violation = only(judge(["0SEND_F0 0F0 0RECV_B0 0BW0", ONE[1]]), "V508")
    assert place(violation) == (0, 0, "0SEND_F0")
    assert only(judge([ONE[0], "1RECV_F0 1F0 1SEND_B0 1BW0"]), "V508").op == "1SEND_B0"


def test_v509_a_receive_after_what_uses_it():
    violation = only(judge([ONE[0], "1F0 1RECV_F0 1BW0 1SEND_B0"]), "V509")
    assert place(violation) == (1, 1, "1RECV_F0")
    assert only(judge(["0F0 0SEND_F0 0BW0 0RECV_B0", ONE[1]]), "V509").op == "0RECV_B0"


CROSSED = ["0F0 0SEND_F0 0F1 0SEND_F1", "1RECV_F1 1RECV_F0 1F0 1F1 1BW0 1SEND_B0 1BW1 1SEND_B1"]
CROSSED[0] += " 0RECV_B0 0BW0 0RECV_B1 0BW1"


def test_v510_exchanged_receives_of_equal_shape_are_silent_wrong_data():
    shapes = {"inputs": [None, (8, 16)], "outputs": [(8, 16), None]}
    violation = only(judge(CROSSED, 2, **shapes), "V510")
    assert place(violation) == (1, 0, "1RECV_F1")
    assert violation.message == (
        "silent wrong data, all shapes are equal: of the messages from rank 0 to rank 1, number 0 is sent as 0SEND_F0 "
        "(position 1) and received as 1RECV_F1 (position 0); 1 more meets another than its own"
    )
    assert [wrong["sent"] for wrong in violation.witness["wrong"]] == ["0SEND_F0", "0SEND_F1"]


def test_v510_says_what_it_cannot_know_without_shapes():
    assert only(judge(CROSSED, 2), "V510").message.startswith("silent wrong data if shapes are equal: ")


def test_v510_messages_of_different_shapes_are_no_silent_fault():
    rows = [
        "0F0 0SEND_F0 0F1 3RECV_F0 3F0 3BW0 3SEND_B0 0SEND_F1 0RECV_B0 0BW0 3RECV_F1 3F1 3BW1 3SEND_B1 0RECV_B1 0BW1",
        "1RECV_F0 1F0 2F0 2SEND_F0 1RECV_F1 2RECV_B0 2BW0 1BW0 1SEND_B0 1F1 2F1 2SEND_F1 2RECV_B1 2BW1 1BW1 1SEND_B1",
    ]
    instance = pipeline(2, 2, vee(2), **FUSED)
    shapes = {"inputs": [None, (8, 16), (8, 16), (8, 32)], "outputs": [(8, 16), (8, 16), (8, 32), None]}
    report = judge(rows, instance=instance, channel="eager", **shapes)
    assert only(report, "V510").message.startswith("messages of different shapes are exchanged, an error or truncated")
    # with communicators of their own, outputs and gradients do not meet at all
    assert judge(rows, instance=instance, channel="per-direction", **shapes).verdict is Verdict.PROVED


DEADLOCK = [
    "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0BW0 0RECV_B1 0BW1",
    "1RECV_F0 1F0 1BW0 1SEND_B0 1RECV_F1 1F1 1BW1 1SEND_B1",
]


@pytest.mark.parametrize("channel", ["rendezvous-pair", "rendezvous-rank"])
def test_v601_two_ranks_that_both_send_first_wait_for_each_other(channel):
    report = judge(DEADLOCK, 2, channel=channel)
    violation = only(report, "V601")
    assert place(violation) == (0, 3, "0SEND_F1")
    assert violation.message == (
        f"deadlock under {channel}: rank 0 waits to send F1 of stage 0 to rank 1 (0SEND_F1 at position 3, before "
        "0RECV_B0 at position 4), which waits to send B0 of stage 1 to rank 0 (1SEND_B0 at position 3, before 1RECV_F1 "
        "at position 4), and so on in a circle"
    )
    assert violation.witness["shortest"] is True
    assert "[0SEND_F1]" in violation.witness["picture"]
    assert "[1RECV_F1]" in violation.witness["picture"]
    assert report.channel.stops == (3, 3)
    assert report.order is None


@pytest.mark.parametrize("channel", ["eager", "per-direction", "per-edge", "batched", "even-odd"])
def test_v601_the_same_program_runs_where_the_two_sends_do_not_share_a_queue(channel):
    assert judge(DEADLOCK, 2, channel=channel).verdict is Verdict.PROVED


def test_v601_a_send_that_stands_behind_an_op_that_waits_for_its_answer_deadlocks_even_if_sends_never_block():
    rows = ["0F0 0RECV_B0 0BW0 0SEND_F0", ONE[1]]
    for channel in CHANNELS:
        assert only(judge(rows, channel=channel), "V601").rank == 0


def test_v601_is_left_to_v202_where_the_ops_deadlock_by_themselves():
    rows = [
        "0F0 0SEND_F0 0RECV_B0 0BW0 0F1 0SEND_F1 0RECV_B1 0BW1",
        "1RECV_F0 1F0 1RECV_F1 1F1 1BW0 1SEND_B0 1BW1 1SEND_B1",
    ]
    report = judge(rows, 2)
    assert dict(report.counts) == {"V202": 1}
    assert any("deadlock by themselves" in sentence for sentence in report.assumptions)


def test_v601_batched_groups_wait_for_each_other_as_wholes():
    rows = [
        "0F0 0F1 0SEND_F0 0RECV_B0 0SEND_F1 0BW0 0RECV_B1 0BW1",
        "1RECV_F0 1F0 1RECV_F1 1BW0 1SEND_B0 1F1 1BW1 1SEND_B1",
    ]
    rows[0] = "0F0 0SEND_F0 0RECV_B0 0F1 0SEND_F1 0BW0 0RECV_B1 0BW1"
    assert judge(rows, 2, channel="per-edge").verdict is Verdict.PROVED
    violation = only(judge(rows, 2, channel="batched"), "V601")
    assert violation.witness["waits"][0]["op"] == "0RECV_B0"


REDUCED = ["0F0 0SEND_F0 0RECV_B0 0BW0 0REDUCE_GRAD", "1RECV_F0 1F0 1BW0 1REDUCE_GRAD 1SEND_B0"]


def test_v701_a_stage_that_is_not_reduced_while_others_are():
    violation = only(judge([REDUCED[0], ONE[1]]), "V701")
    assert place(violation) == (1, None, "1REDUCE_GRAD")


def test_v701_a_program_without_any_reduction_is_wrong_for_torch_only_and_only_if_it_would_scale():
    assert judge(TWO, 2).verdict is Verdict.PROVED
    assert dict(judge(TWO, 2, target="torch").counts) == {"V701": 2}
    assert judge(TWO, 2, target="torch", scale_grads=False).verdict is Verdict.PROVED
    assert judge(ONE, 1, target="torch").verdict is Verdict.PROVED


def test_v701_each_replica_of_a_stage_is_reduced_where_it_runs():
    instance = pipeline(2, 2, bidirectional(2), **FUSED)
    rows = [
        "0F0 0SEND_F0 1RECV_F1 1F1 1BW1 1SEND_B1 0RECV_B0 0BW0 0REDUCE_GRAD 1REDUCE_GRAD",
        "1RECV_F0 0F1 0SEND_F1 1F0 1BW0 1SEND_B0 0RECV_B1 0BW1 0REDUCE_GRAD",
    ]
    report = judge(rows, instance=instance, channel="eager")
    assert place(only(report, "V701")) == (1, None, "1REDUCE_GRAD")


def test_v702_a_stage_that_is_reduced_twice():
    violation = only(judge([REDUCED[0] + " 0REDUCE_GRAD", REDUCED[1]]), "V702")
    assert place(violation) == (0, 5, "0REDUCE_GRAD")


def test_v703_a_reduction_before_the_last_weight_gradient():
    violation = only(judge(["0F0 0SEND_F0 0RECV_B0 0REDUCE_GRAD 0BW0", REDUCED[1]]), "V703")
    assert place(violation) == (0, 3, "0REDUCE_GRAD")
    split = pipeline(1, 1, F=1, B=1, W=1)
    assert only(judge(["0F0 0B0 0REDUCE_GRAD 0W0"], instance=split), "V703").witness == {"last": "0W0"}


@pytest.mark.parametrize("stray", ["1UNSHARD", "9REDUCE_GRAD"])
def test_v704_a_collective_of_a_stage_that_the_rank_does_not_hold(stray):
    assert place(only(judge([ONE[0] + " " + stray, ONE[1]]), "V704")) == (0, 4, stray)


def test_v705_forwards_of_the_last_stage_out_of_order_are_wrong_for_torch_only():
    rows = ["0F0 0F1 0BW0 0BW1"]
    rows = [rows[0], "1F1 1F0 1BW0 1BW1"]
    schedule = Program.parse(rows).schedule
    instance = pipeline(2, 2, **FUSED)
    assert verify(schedule, instance).verdict is Verdict.PROVED
    violation = only(verify(schedule, instance, target="torch"), "V705")
    assert place(violation) == (1, 1, "1F0")
    others = Program.parse(["0F1 0F0 0BW0 0BW1", "1F0 1F1 1BW0 1BW1"]).schedule
    assert verify(others, instance, target="torch").verdict is Verdict.PROVED
    alone, row = pipeline(1, 2, **FUSED), ["0F1 0F0 0BW0 0BW1 0REDUCE_GRAD"]
    assert "V705" not in judge(row, instance=alone).rules
    assert dict(judge(row, instance=alone, target="torch").counts) == {"V705": 1}


def test_v707_recompute_of_single_ops_is_unknown_to_torch():
    instance = pipeline(1, 1, memory={"R": 1}, F=1, B=1, R=1)
    schedule = Program.parse(["0F0 0R0 0BW0"]).schedule
    assert verify(schedule, instance).verdict is Verdict.PROVED
    violation = only(verify(schedule, instance, target="torch"), "V707")
    assert place(violation) == (0, 1, "0R0")


def test_v706_a_split_backward_of_a_stage_that_cannot_split():
    split = pipeline(1, 1, F=1, B=1, W=1)
    report = judge(["0F0 0B0 0W0"], instance=split, fused_stages=[0])
    assert dict(report.counts) == {"V706": 2}
    assert [place(violation) for violation in report.violations] == [(0, 1, "0B0"), (0, 2, "0W0")]
    assert judge(["0F0 0BW0"], instance=split, fused_stages=[0]).verdict is Verdict.PROVED


def test_v801_posted_receives_count_until_they_are_used():
    rows = ["0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0BW0 0RECV_B1 0BW1", "1RECV_F0 1RECV_F1 1F0 1BW0 1SEND_B0 1F1 1BW1"]
    rows[1] += " 1SEND_B1"
    capped = pipeline(2, 2, memory={"cap": [9, 12], "F": 1}, **FUSED)
    assert judge(rows, instance=capped, channel="eager", message_memory=[6, 6]).verdict is Verdict.PROVED
    violation = only(judge(rows, instance=capped, channel="eager", message_memory=[7, 7]), "V801")
    assert place(violation) == (1, 1, "1RECV_F1")
    assert violation.witness == {"level": 14, "peak": 14, "cap": 12}
    assert judge(rows, instance=capped, channel="eager").channel.posted_receives == (1, 2)


def test_v801_torch_keeps_what_it_sends_to_the_end_of_the_step():
    capped = pipeline(2, 2, memory={"cap": [7, 12], "F": 1}, **FUSED)
    assert judge(TWO, instance=capped, message_memory=[3, 3]).verdict is Verdict.PROVED
    report = judge(TWO, instance=capped, message_memory=[3, 3], target="torch", scale_grads=False)
    assert place(only(report, "V801")) == (0, 3, "0SEND_F1")


def test_v801_is_not_asked_where_the_ops_alone_are_over_the_cap():
    capped = pipeline(2, 2, memory={"cap": [1, 12], "F": 1}, **FUSED)
    assert dict(judge(TWO, instance=capped, message_memory=[3, 3]).counts) == {"V301": 1}


def test_figures_for_another_number_of_stages_are_refused():
    for name in ("inputs", "outputs", "message_memory"):
        with pytest.raises(InstanceError, match=f"{name} has 1 entries for 2 stages"):
            judge(ONE, **{name: [1]})


def test_the_memory_of_messages_is_that_of_the_instance_if_it_is_not_given():
    capped = pipeline(2, 2, memory={"cap": [9, 12], "F": 1, "message": 7}, **FUSED)
    report = judge(TWO, instance=capped, target="torch", scale_grads=False)
    assert dict(report.counts) == {"V801": 2}


def test_any_program_is_judged_whatever_its_numbers():
    rows = [[Transfer("RECV_F", -1, -100), Transfer("SEND_B", 1, -100)], [Transfer("RECV_F", 10**9, 10**9)]]
    for channel in CHANNELS:
        report = verify_program(Program.of(rows), pipeline(2, 1, **FUSED), channel=channel)
        assert report.counts["V504"] == 3


def test_v802_shapes_that_do_not_fit():
    shapes = {"inputs": [None, (8, 32)], "outputs": [(8, 16), None]}
    assert only(judge(ONE, **shapes), "V802").message == "stage 0 makes (8, 16), stage 1 takes (8, 32)"


def test_a901_a_receive_long_before_its_data_is_advice_with_the_time_lost():
    rows = [
        "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0BW0 0RECV_B1 0BW1",
        "1RECV_F0 1F0 1SEND_F0 1RECV_B0 1RECV_F1 1F1 1SEND_F1 1BW0 1SEND_B0 1RECV_B1 1BW1 1SEND_B1",
        "2RECV_F0 2F0 2BW0 2SEND_B0 2RECV_F1 2F1 2BW1 2SEND_B1",
    ]
    report = judge(rows, 2, channel="rendezvous-rank")
    assert report.verdict is Verdict.PROVED
    (advice,) = report.advice
    assert place(advice) == (1, 3, "1RECV_B0")
    assert advice.witness == {"ops": 1, "time": 3, "behind": "1RECV_F1", "lost_in_all": 1}
    assert advice.message == (
        "1RECV_B0 at position 3 of rank 1 is posted 1 ops before its data can exist; 1RECV_F1 (position 4) waits "
        "behind it for 3; the channel costs the program 1 in all"
    )
    assert report.channel.makespan == report.facts.makespan + 1
    assert judge(rows, 2).advice == ()


def test_a902_unlike_groups_are_advice():
    rows = ["0F0 0F1 0SEND_F0 0SEND_F1 0RECV_B0 0BW0 0RECV_B1 0BW1", "1RECV_F0 1F0 1RECV_F1 1F1 1BW0 1SEND_B0 1BW1"]
    rows[1] += " 1SEND_B1"
    report = judge(rows, 2, channel="batched")
    assert [advice.rule for advice in report.advice if advice.rule == "A902"] == ["A902"]
    assert judge(rows, 2).advice == () or {advice.rule for advice in judge(rows, 2).advice} == {"A901"}


def test_a903_ops_of_a_sharded_stage_are_advice():
    rows = ["0UNSHARD 0F0 0RESHARD 0BW0"]
    report = judge(rows)
    assert report.verdict is Verdict.PROVED
    assert [place(advice) for advice in report.advice] == [(0, 3, "0BW0")]
    assert judge(["0UNSHARD 0F0 0RESHARD 0UNSHARD 0BW0 0RESHARD"]).advice == ()
    assert [a.op for a in judge(["0UNSHARD 0UNSHARD 0F0 0BW0 0RESHARD 0RESHARD"]).advice] == ["0UNSHARD", "0RESHARD"]


def test_a_program_whose_transfers_are_left_to_the_runtime_is_judged_without_them():
    report = judge(["0F0 0BW0 0REDUCE_GRAD", "1F0 1BW0 1REDUCE_GRAD"], transfers=False)
    assert report.verdict is Verdict.PROVED
    assert report.channel is None
    assert not any(rule.startswith(("V5", "V6")) for rule in report.rules)


def test_reports_of_programs_are_canonical_json():
    report = judge(DEADLOCK, 2)
    data = json.loads(report.to_json())
    assert data["channel"]["channel"] == "rendezvous-pair"
    assert data["violations"][0]["rule"] == "V601"
    assert judge(DEADLOCK, 2).to_json() == report.to_json()


def test_stages_two_apart_on_a_loop_have_lanes_in_both_directions():
    rows = [
        "0F0 0SEND_F0 2RECV_F0 2F0 2SEND_F0 2RECV_B0 2BW0 2SEND_B0 0RECV_B0 0BW0",
        "1RECV_F0 1F0 1SEND_F0 3RECV_F0 3F0 3BW0 3SEND_B0 1RECV_B0 1BW0 1SEND_B0",
    ]
    instance = pipeline(2, 1, loop(2, 2), **FUSED)
    for channel in CHANNELS[:-1]:
        assert judge(rows, instance=instance, channel=channel).verdict is Verdict.PROVED
    # odd ranks receive first: the last forward is awaited before the output that it depends on is sent
    assert only(judge(rows, instance=instance, channel="even-odd"), "V601").op == "2RECV_F0"


def test_every_rule_has_a_unique_id_and_a_page_with_an_example_and_a_source():
    rules = [rule for _, family in FAMILIES for rule in family]
    assert len({rule.id for rule in rules}) == len(rules)
    assert {rule.id for rule in (*PROGRAM_RULES, *ADVICE)} <= {rule.id for rule in rules}
    for rule in rules:
        assert rule.statement.endswith("."), rule.id
        assert rule.example, rule.id
        assert any(remark.startswith("Source: ") for remark in rule.remarks), rule.id
