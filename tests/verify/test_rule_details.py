"""What the rules say in their words and leave to others: details that mutation testing found no other test to hold."""

import pytest

from bubbleproof.schedules.placement import custom, loop
from bubbleproof.schedules.program import Program
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.verify import Verdict, verify, verify_program
from tests.verify.model import pipeline

FUSED = {"F": 1, "B": 2}
ONE = ["0F0 0SEND_F0 0RECV_B0 0BW0", "1RECV_F0 1F0 1BW0 1SEND_B0"]


def judge(rows, m=1, placement=None, **options):
    return verify_program(Program.parse(rows), pipeline(len(rows), m, placement, **FUSED), **options)


def message(report, rule):
    (found,) = [violation for violation in report.violations if violation.rule == rule]
    return found.message


def test_a_missing_message_is_called_an_output_or_a_gradient():
    assert "the output of microbatch 0 from stage 0 to stage 1" in message(judge(["0F0 0RECV_B0 0BW0", ONE[1]]), "V501")
    assert "the gradient of microbatch 0 from stage 1 to stage 0" in message(
        judge([ONE[0], "1RECV_F0 1F0 1BW0"]), "V501"
    )


def test_copies_are_called_sent_or_received_and_four_places_are_listed():
    four = judge(["0F0 0SEND_F0 0SEND_F0 0SEND_F0 0SEND_F0 0RECV_B0 0BW0", ONE[1]], channel="eager")
    assert message(four, "V503") == (
        "the output of microbatch 0 from stage 0 to stage 1 is sent 4 times: 0SEND_F0 at positions 1, 2, 3, 4 of rank 0"
    )
    five = judge(["0F0 0SEND_F0 0SEND_F0 0SEND_F0 0SEND_F0 0SEND_F0 0RECV_B0 0BW0", ONE[1]], channel="eager")
    assert "sent 5 times: 0SEND_F0 at positions 1, 2, 3, 4, … of rank 0" in message(five, "V503")
    receive = judge([ONE[0], "1RECV_F0 1RECV_F0 1F0 1BW0 1SEND_B0"])
    assert message(receive, "V503") == (
        "the output of microbatch 0 from stage 0 to stage 1 is received 2 times: 1RECV_F0 at positions 0, 1 of rank 1"
    )


def test_a_transfer_inside_a_rank_sends_to_or_receives_from_a_stage():
    placement = custom([0, 0])
    rows = ["0F0 {} 1F0 1BW0 0BW0"]
    sends = judge([rows[0].format("0SEND_F0")], placement=placement)
    assert "stage 0 sends to stage 1, which is on the same rank 0" in message(sends, "V506")
    receives = judge([rows[0].format("1RECV_F0")], placement=placement)
    assert "stage 1 receives from stage 0, which is on the same rank 0" in message(receives, "V506")


@pytest.mark.parametrize(
    ("rows", "missing"),
    [(["0SEND_F0 0RECV_B0 0BW0", ONE[1]], "0F0"), ([ONE[0], "1RECV_F0 1BW0 1SEND_B0"], "1F0")],
    ids=["producer", "consumer"],
)
def test_a_transfer_whose_op_is_missing_stands_neither_before_nor_behind_it(rows, missing):
    report = judge(rows)
    assert dict(report.counts) == {"V101": 1}
    assert report.violations[0].op == missing


CROSSED = [
    "0F0 0SEND_F0 0F1 0SEND_F1 0F2 0SEND_F2 0RECV_B0 0BW0 0RECV_B1 0BW1 0RECV_B2 0BW2",
    "{} 1F0 1F1 1F2 1BW0 1SEND_B0 1BW1 1SEND_B1 1BW2 1SEND_B2",
]


def test_the_number_of_crossed_messages_beyond_the_first_is_said():
    two = judge([CROSSED[0], CROSSED[1].format("1RECV_F1 1RECV_F0 1RECV_F2")], 3, channel="eager")
    three = judge([CROSSED[0], CROSSED[1].format("1RECV_F1 1RECV_F2 1RECV_F0")], 3, channel="eager")
    assert message(two, "V510").endswith("; 1 more meets another than its own")
    assert message(three, "V510").endswith("; 2 more meet another than its own")


@pytest.mark.parametrize(
    ("inputs", "outputs", "words"),
    [
        ([(1,), (2,), (3,), (4,)], [(2,), (3,), (4,), (5,)], "messages of different shapes are exchanged"),
        ([(1,), (2,), (3,), (2,)], [(2,), (3,), (2,), (5,)], "silent wrong data, all shapes are equal"),
        ([None, (2,), (3,), None], [(2,), (3,), None, (5,)], "silent wrong data if shapes are equal"),
    ],
)
def test_what_crossed_messages_do_depends_on_all_their_shapes(inputs, outputs, words):
    """Two ranks with two stages each: the outputs of stages 0 and 2 travel on one lane, and are received crossed."""
    rows = [
        "0F0 0SEND_F0 2RECV_F0 2F0 2SEND_F0 2RECV_B0 2BW0 2SEND_B0 0RECV_B0 0BW0",
        "3RECV_F0 1RECV_F0 1F0 1SEND_F0 3F0 3BW0 3SEND_B0 1RECV_B0 1BW0 1SEND_B0",
    ]
    report = judge(rows, placement=loop(2, 2), channel="eager", inputs=inputs, outputs=outputs)
    assert message(report, "V510").startswith(words)


def test_one_known_pair_of_shapes_does_not_speak_for_the_others():
    """Three messages in a circle; the tensors of two stages are alike, that of the third is not."""
    rows = [
        "0F0 0SEND_F0 2RECV_F0 2F0 2SEND_F0 4RECV_F0 4F0 4SEND_F0 "
        "4RECV_B0 4BW0 4SEND_B0 2RECV_B0 2BW0 2SEND_B0 0RECV_B0 0BW0",
        "3RECV_F0 5RECV_F0 1RECV_F0 1F0 1SEND_F0 3F0 3SEND_F0 5F0 5BW0 "
        "5SEND_B0 3RECV_B0 3BW0 3SEND_B0 1RECV_B0 1BW0 1SEND_B0",
    ]
    shapes = {"alike": (2,), "other": (3,)}
    made = [shapes["alike"], (9,), shapes["alike"], (9,), shapes["other"], (9,)]
    taken = [(1,), made[0], made[1], made[2], made[3], made[4]]
    options = {"placement": loop(2, 3), "channel": "eager"}
    assert message(judge(rows, inputs=taken, outputs=made, **options), "V510").startswith("messages of different")
    made[4] = taken[5] = None
    assert message(judge(rows, inputs=taken, outputs=made, **options), "V510").startswith("silent wrong data if")


def test_a_circle_of_three_ranks_is_told_in_its_direction():
    rows = [
        "0F0 0SEND_F0 3RECV_F0 3F0 3SEND_F0 3RECV_B0 3BW0 0RECV_B0 3SEND_B0 0BW0",
        "1RECV_F0 1F0 1SEND_F0 4RECV_F0 4F0 4SEND_F0 4RECV_B0 4BW0 4SEND_B0 1RECV_B0 1BW0 1SEND_B0",
        "2RECV_F0 2F0 2SEND_F0 5RECV_F0 5F0 5BW0 5SEND_B0 2RECV_B0 2BW0 2SEND_B0",
    ]
    report = judge(rows, placement=loop(3, 2), channel="rendezvous-rank")
    assert dict(report.counts) == {"V601": 1}
    waits = report.violations[0].witness["waits"]
    assert [(wait["rank"], wait["waits_for_rank"]) for wait in waits] == [(0, 1), (1, 2), (2, 0)]


def test_pictures_of_long_rows_leave_out_what_is_far_from_the_circle():
    """Twenty microbatches one after the other; only the last is sent too late."""
    first = " ".join(f"0F{j} 0SEND_F{j} 0RECV_B{j} 0BW{j}" for j in range(20))
    second = " ".join(f"1RECV_F{j} 1F{j} 1BW{j} 1SEND_B{j}" for j in range(20))
    report = judge([first.replace("0SEND_F19 0RECV_B19", "0RECV_B19 0SEND_F19"), second], 20)
    picture = report.violations[0].witness["picture"]
    assert "…" in picture
    assert "0F0" not in picture


def test_pictures_of_long_deadlocks_of_ops_leave_out_what_is_far():
    first = " ".join(f"0F{j} 0BW{j}" for j in range(20))
    second = " ".join(f"1F{j} 1BW{j}" for j in range(18)) + " 1F19 1BW19 1F18 1BW18"
    report = verify(Schedule.parse([first, second]), pipeline(2, 20, **FUSED))
    (violation,) = report.violations
    assert violation.rule == "V202"
    assert "…" in violation.witness["picture"]


@pytest.mark.parametrize(
    "rows",
    [
        ["0F0 0SEND_F0 0RECV_B0", ONE[1]],
        [ONE[0], "1RECV_F0 1BW0 1F0 1SEND_B0"],
        ["0F0 0RECV_B0 0SEND_F0 0BW0", ONE[1]],
    ],
    ids=["incomplete", "against its own order", "stuck"],
)
def test_no_advice_on_time_is_given_where_nothing_runs_to_its_end(rows):
    report = judge(rows)
    assert report.verdict is Verdict.VIOLATED
    assert report.advice == ()
    assert "Time lost in queues was not judged: the program does not run to its end." in report.assumptions


def test_no_advice_on_time_is_given_where_the_ops_deadlock():
    rows = [
        "0F0 0SEND_F0 0RECV_B0 0BW0 0F1 0SEND_F1 0RECV_B1 0BW1",
        "1RECV_F1 1F1 1BW1 1SEND_B1 1RECV_F0 1F0 1BW0 1SEND_B0",
    ]
    report = judge(rows, 2)
    assert "V202" in report.counts
    assert "Time lost in queues was not judged: the program does not run to its end." in report.assumptions


def test_where_transfers_are_left_to_the_runtime_a_deadlock_of_ops_says_nothing_about_channels():
    report = judge(["0F0 0BW0 0F1 0BW1", "1F1 1BW1 1F0 1BW0"], 2, transfers=False)
    assert dict(report.counts) == {"V202": 1}
    assert not any("whatever the channel" in sentence for sentence in report.assumptions)


def test_half_a_backward_where_none_can_be_split_is_not_also_missing():
    for half in ("B", "W"):
        report = verify(Schedule.parse([f"0F0 0{half}0"]), pipeline(1, 1, **FUSED))
        assert dict(report.counts) == {"V106": 1}


def test_four_places_of_a_copied_op_are_listed():
    def said(copies):
        rows = [" ".join(["0F0"] * copies + ["0BW0"])]
        return message(verify(Schedule.parse(rows), pipeline(1, 1, **FUSED)), "V102")

    assert said(4).endswith("position 3 of rank 0")
    assert said(6).endswith("position 3 of rank 0 and 2 more")
    assert said(5).endswith("position 3 of rank 0 and 1 more")


OTHER = "Only the number of ranks was checked; in orders for other ranks nothing means anything."


def test_of_orders_for_other_ranks_nothing_else_is_judged_or_said():
    instance = pipeline(2, 1, memory={"cap": 9}, **FUSED)
    claims = {"makespan": 7, "span": 7, "peak": [7]}
    report = verify(Schedule.parse(["0BW0 0F0"]), instance, timeline=[[5, 0]], claims=claims)
    assert dict(report.counts) == {"V100": 1}
    assert report.rules == ("V100",)
    assert [sentence for sentence in report.assumptions if "judged" in sentence or "claimed" in sentence] == []
    assert OTHER in report.assumptions


@pytest.mark.parametrize("target", [None, "torch"])
@pytest.mark.parametrize("row", ["0F1 0F0 0BW0 0REDUCE_GRAD 0BW1", "0F1 0F0 0BW0 0BW1"])
def test_of_rows_for_other_ranks_nothing_else_is_judged_or_said(row, target):
    shapes = {"inputs": [(1,), (1,)], "outputs": [(2,), (2,)], "message_memory": [1, 1]}
    instance = pipeline(2, 2, memory={"cap": 9}, **FUSED)
    report = verify_program(Program.parse([row]), instance, target=target, fused_stages=[0], **shapes)
    assert dict(report.counts) == {"V100": 1}
    assert report.rules == ("V100",)
    said = [sentence for sentence in report.assumptions if sentence != OTHER]
    assert OTHER in report.assumptions
    assert [sentence.split(" ")[0] for sentence in said] == ["Replicas", "Ops", "Channel"]


def test_two_slots_at_one_time_are_named_at_the_beginning_of_a_rank_too():
    report = verify(Schedule.parse(["0F0 0BW0"]), pipeline(1, 1, **FUSED), timeline=[[0, 0]])
    (violation,) = report.violations
    assert (violation.rule, violation.rank, violation.position) == ("V402", 0, 1)


@pytest.mark.parametrize(
    ("claims", "judged"),
    [
        (None, False),
        ({"value": 3}, False),
        ({"makespan": 3}, True),
        ({"span": 3}, True),
        ({"peak": [1]}, True),
        ({"makespan": 3, "span": 3, "peak": [1]}, True),
    ],
    ids=str,
)
def test_it_is_said_exactly_if_no_figure_is_claimed(claims, judged):
    report = verify(Schedule.parse(["0F0 0BW0"]), pipeline(1, 1, **FUSED), claims=claims)
    assert report.verdict is Verdict.PROVED
    assert ("V405" in report.rules) == judged
    assert ("No makespan, span or peak is claimed." in report.assumptions) == (not judged)


def test_unlike_groups_are_told_once_for_each_pair_of_ranks():
    rows = [
        "0F0 0F1 0SEND_F0 0SEND_F1 0F2 0F3 0SEND_F2 0SEND_F3 0RECV_B0 0BW0 0RECV_B1 0BW1 0RECV_B2 0BW2 0RECV_B3 0BW3",
        "1RECV_F0 1F0 1RECV_F1 1F1 1RECV_F2 1F2 1RECV_F3 1F3 1BW0 1BW1 1SEND_B0 1SEND_B1 1BW2 1BW3 1SEND_B2 1SEND_B3",
    ]
    report = judge(rows, 4, channel="batched")
    assert [(advice.rule, advice.op) for advice in report.advice if advice.rule == "A902"] == [
        ("A902", "0SEND_F1"),
        ("A902", "1SEND_B1"),
    ]


def test_what_is_not_an_addition_to_the_gradients_may_follow_their_reduction():
    report = verify_program(Program.parse(["0F0 0BW0 0REDUCE_GRAD 0F1"]), pipeline(1, 2, **FUSED))
    assert dict(report.counts) == {"V101": 1}
    nothing = verify_program(Program.parse(["0F0 0REDUCE_GRAD"]), pipeline(1, 1, **FUSED))
    assert dict(nothing.counts) == {"V101": 1}


def test_four_places_of_a_reduction_are_listed():
    report = verify_program(Program.parse(["0F0 0BW0" + " 0REDUCE_GRAD" * 6]), pipeline(1, 1, **FUSED))
    assert message(report, "V702") == "stage 0 is reduced 6 times, at positions 2, 3, 4, 5 of rank 0"


def test_figures_of_starts_that_are_no_timeline_are_not_judged():
    claims = {"makespan": 8, "span": 8}
    report = verify(Schedule.parse(["0F0 0BW0"]), pipeline(1, 1, **FUSED), timeline=[[0]], claims=claims)
    assert dict(report.counts) == {"V401": 1}


@pytest.mark.parametrize("peak", [5, None, "12", {"0": 2}])
def test_a_claimed_peak_that_is_no_list_is_false(peak):
    report = verify(Schedule.parse(["0F0 0BW0"]), pipeline(1, 1, **FUSED), claims={"peak": peak})
    assert dict(report.counts) == {"V405": 1}


def test_each_forward_of_the_last_stage_behind_a_later_one_is_named():
    report = judge(["0F2 0F0 0F1 0BW0 0BW1 0BW2"], 3, target="torch", scale_grads=False)
    assert dict(report.counts) == {"V705": 2}
    assert [violation.witness["after"] for violation in report.violations] == ["0F2", "0F2"]
    twice = judge(["0F0 0F0 0F1 0BW0 0BW1"], 2, target="torch", scale_grads=False)
    assert dict(twice.counts) == {"V102": 1}


def test_a_stage_that_is_only_reduced_is_not_taken_to_be_sharded():
    row = "0UNSHARD 0F0 1F0 1BW0 1REDUCE_GRAD 0BW0 0RESHARD 0REDUCE_GRAD"
    report = judge([row], placement=custom([0, 0]))
    assert report.verdict is Verdict.PROVED
    assert report.advice == ()


def advice(row, m):
    report = verify_program(Program.parse([row]), pipeline(1, m, **FUSED))
    assert report.verdict is Verdict.PROVED
    return [(found.op, found.message.partition(": ")[2] or found.message) for found in report.advice]


def test_each_stretch_in_which_a_stage_is_used_while_sharded_is_advised_once():
    row = "0F0 0F1 0UNSHARD 0F2 0RESHARD 0BW0 0BW1 0UNSHARD 0RESHARD 0BW2"
    assert [op for op, _ in advice(row, 3)] == ["0F0", "0BW0", "0BW2"]


def test_gathering_twice_and_freeing_twice_are_told_apart():
    row = "0UNSHARD 0UNSHARD 0F0 0BW0 0RESHARD 0RESHARD"
    assert advice(row, 1) == [("0UNSHARD", "stage 0 is gathered already"), ("0RESHARD", "stage 0 is not gathered")]


def test_buffers_are_judged_only_with_transfers_and_a_cap_and_on_ranks_that_run_what_they_should():
    capped = pipeline(2, 1, memory={"cap": 1}, **FUSED)
    sizes = {"message_memory": [5, 5]}
    left = verify_program(Program.parse(["0F0 0BW0", "1F0 1BW0"]), capped, transfers=False, **sizes)
    assert left.verdict is Verdict.PROVED
    assert "V801" not in left.rules
    assert "V801" not in judge(ONE, **sizes).rules
    assert set(verify_program(Program.parse(ONE), capped, **sizes).counts) == {"V801"}
    broken = verify_program(Program.parse(["0F0 0SEND_F0 0RECV_B0", "1RECV_F0 1F0 1SEND_B0"]), capped, **sizes)
    assert dict(broken.counts) == {"V101": 2}


def test_the_first_level_over_a_cap_and_the_peak_with_buffers_are_both_said():
    rows = [
        "0F0 0SEND_F0 0F1 0SEND_F1 0F2 0SEND_F2 0RECV_B0 0BW0 0RECV_B1 0BW1 0RECV_B2 0BW2",
        "1RECV_F0 1RECV_F1 1RECV_F2 1F0 1F1 1F2 1BW0 1SEND_B0 1BW1 1SEND_B1 1BW2 1SEND_B2",
    ]
    instance = pipeline(2, 3, memory={"cap": [100, 8]}, **FUSED)
    report = verify_program(Program.parse(rows), instance, channel="eager", message_memory=[5, 5])
    (violation,) = report.violations
    assert (violation.rule, violation.rank, violation.position, violation.op) == ("V801", 1, 1, "1RECV_F1")
    assert violation.witness == {"level": 10, "peak": 15, "cap": 8}


def test_shapes_are_judged_only_if_those_of_both_ends_are_given():
    for given in ({"inputs": [(1,), (2,)]}, {"outputs": [(1,), (2,)]}):
        report = judge(ONE, **given)
        assert "V802" not in report.rules
        assert "Shapes were not given, so their agreement was not judged." in report.assumptions


@pytest.mark.parametrize(("made", "taken"), [(None, (2,)), ((2,), None), (None, None)], ids=str)
def test_a_shape_that_is_not_known_agrees_with_every_other(made, taken):
    assert judge(ONE, inputs=[(1,), taken], outputs=[made, (3,)]).verdict is Verdict.PROVED
