"""Each rule on its smallest example: the fault is named with its place and values, and its neighbours are silent."""

import pytest

from bubbleproof.schedules.op import Op, Overlap
from bubbleproof.schedules.placement import bidirectional, loop, vee
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.verify import Verdict, verify
from tests.verify.model import pipeline

ONE = ["0F0 0B0 0W0"]
TWO = ["0F0 0F1 0B0 0W0 0B1 0W1", "1F0 1B0 1W0 1F1 1B1 1W1"]
FUSED = {"F": 1, "B": 2}


def judge(rows, instance=None, **claims):
    instance = instance or pipeline(len(rows), 1 if len(rows) == 1 else 2)
    return verify(Schedule.parse(rows), instance, **claims)


def only(report, rule):
    """The single violation, of the expected rule and no other."""
    assert dict(report.counts) == {rule: 1}
    assert report.verdict is Verdict.VIOLATED
    (violation,) = report.violations
    return violation


def place(violation):
    return violation.rank, violation.position, violation.op


def test_a_correct_schedule_is_proved_with_its_figures():
    report = judge(TWO)
    assert report.verdict is Verdict.PROVED
    assert report.violations == ()
    assert (report.facts.makespan, report.facts.span, report.facts.peak) == (8, 8, (2, 1))
    assert report.facts.slots == 12


def test_v100_orders_for_another_number_of_ranks_and_nothing_else():
    report = judge(TWO, pipeline(3, 2))
    assert only(report, "V100").witness == {"orders": 2, "ranks": 3}
    assert report.rules == ("V100",)
    assert report.facts.peak == (None, None, None)


@pytest.mark.parametrize(
    ("row", "missing"),
    [("0B0 0W0", "0F0"), ("0F0 0B0", "0W0"), ("0F0 0W0", "0B0"), ("0F0", "0B0"), ("0BW0", "0F0")],
)
def test_v101_a_missing_op_is_named_once(row, missing):
    violation = only(judge([row]), "V101")
    assert place(violation) == (0, None, missing)
    assert violation.witness == {"stage": 0, "microbatch": 0}


def test_v101_an_instance_without_split_misses_the_fused_backward():
    violation = only(judge(["0F0"], pipeline(1, 1, **FUSED)), "V101")
    assert violation.message == "0BW0 is missing on rank 0: stage 0 has no backward of microbatch 0"


def test_v101_says_that_the_other_half_is_there():
    assert only(judge(["0F0 0W0"]), "V101").message == "0B0 is missing on rank 0, though 0W0 is there"
    assert only(judge(["0F0 0B0"]), "V101").message == "0W0 is missing on rank 0, though 0B0 is there"


def test_v102_a_duplicate_is_named_with_its_places_and_causes_no_fault_of_order():
    report = judge(["0B0 0F0 0B0 0W0"])
    violation = only(report, "V102")
    assert place(violation) == (0, 2, "0B0")
    assert violation.witness == {"places": [[0, 0], [0, 2]]}
    assert violation.message == "0B0 occurs 2 times: at position 0 of rank 0, position 2 of rank 0"


def test_v102_lists_four_places_and_counts_the_rest():
    assert only(judge(["0F0 0F0 0F0 0F0 0F0 0F0 0B0 0W0"]), "V102").message.endswith("position 3 of rank 0 and 2 more")


@pytest.mark.parametrize(
    ("op", "fault"),
    [
        (Op("F", 1, 0), "1F0 at position 3 of rank 0: stage 1 is not in 0 … 0"),
        (Op("F", 0, 1), "0F1 at position 3 of rank 0: microbatch 1 is not in 0 … 0"),
        (Op("F", -1, 0), "-1F0 at position 3 of rank 0: stage -1 is not in 0 … 0"),
        (Op("B", 0, -1), "0B-1 at position 3 of rank 0: microbatch -1 is not in 0 … 0"),
        (Op("X", 0, 0), "0X0 at position 3 of rank 0: kind 'X' is none of F, B, W, BW, R"),
        (Op("F", 2, 3), "2F3 at position 3 of rank 0: stage 2 is not in 0 … 0 and microbatch 3 is not in 0 … 0"),
    ],
)
def test_v103_an_op_that_does_not_exist(op, fault):
    schedule = Schedule.of([[*Schedule.parse(ONE).orders[0], op]])
    violation = only(verify(schedule, pipeline(1, 1)), "V103")
    assert violation.message == fault
    assert place(violation) == (0, 3, str(op))
    assert violation.witness == {"stages": 1, "microbatches": 1}


def test_v104_an_op_on_the_wrong_rank_is_not_also_missing_or_out_of_order():
    rows = ["0F1 0B0 0W0 0B1 0W1", "1F0 1B0 1W0 1F1 1B1 1W1 0F0"]
    violation = only(judge(rows), "V104")
    assert place(violation) == (1, 6, "0F0")
    assert violation.message == "0F0 stands on rank 1 (position 6), but stage 0 of microbatch 0 is on rank 0"
    assert violation.witness == {"belongs_on": 0}


def test_v104_follows_the_route_of_the_microbatch():
    instance = pipeline(placement=bidirectional(2))
    assert judge(["0F0 0B0 0W0 1F1 1B1 1W1", "0F1 1F0 1B0 1W0 0B1 0W1"], instance).verdict is Verdict.PROVED
    rows = ["0F0 0B0 0W0 0F1 0B1 0W1", "1F0 1B0 1W0 1F1 1B1 1W1"]
    report = judge(rows, instance)
    assert dict(report.counts) == {"V104": 6}
    assert {violation.op for violation in report.violations} == {"0F1", "0B1", "0W1", "1F1", "1B1", "1W1"}


@pytest.mark.parametrize(
    ("row", "others"), [("0B0 0W0", "0B0 and 0W0 occur"), ("0B0", "0B0 occurs"), ("0W0", "0W0 occurs")]
)
def test_v105_a_fused_backward_and_halves_of_the_same(row, others):
    violation = only(judge([f"0F0 0BW0 {row}"]), "V105")
    assert place(violation) == (0, 1, "0BW0")
    assert violation.message == f"0BW0 (position 1 of rank 0) is a whole backward, but {others} as well"


def test_v106_half_a_backward_on_an_instance_that_cannot_split():
    report = judge(ONE, pipeline(1, 1, **FUSED))
    assert dict(report.counts) == {"V106": 2}
    assert [place(v) for v in report.violations] == [(0, 1, "0B0"), (0, 2, "0W0")]
    assert report.facts.makespan is None


@pytest.mark.parametrize(
    ("pair", "fault"),
    [
        (Overlap(Op("F", 0, 0), Op("BW", 0, 0)), "both are of microbatch 0"),
        (Overlap(Op("BW", 0, 0), Op("F", 0, 1)), "0BW0 is no forward and 0F1 is no backward that can be overlapped"),
        (Overlap(Op("F", 0, 0), Op("F", 0, 1)), "0F1 is no backward that can be overlapped"),
    ],
)
def test_v107_a_pair_that_is_none(pair, fault):
    rest = [op for op in (Op(k, 0, j) for j in (0, 1) for k in ("F", "BW")) if op not in pair]
    schedule = Schedule.of([[*(op for op in rest if op.kind == "F"), pair, *(op for op in rest if op.kind != "F")]])
    report = verify(schedule, pipeline(1, 2))
    assert report.counts["V107"] == 1
    violation = report.violations[0]
    assert violation.rule == "V107"
    assert violation.message.endswith(fault)
    assert violation.op == str(pair)


def test_v107_w_cannot_be_overlapped():
    schedule = Schedule.of([[Op("F", 0, 0), Op("B", 0, 0), Overlap(Op("F", 0, 1), Op("W", 0, 0)), Op("BW", 0, 1)]])
    assert only(verify(schedule, pipeline(1, 2)), "V107").message.endswith("0W0 is no backward that can be overlapped")


@pytest.mark.parametrize(
    ("row", "op", "needs", "at", "later"),
    [("0B0 0F0 0W0", "0B0", "0F0", 0, 1), ("0F0 0W0 0B0", "0W0", "0B0", 1, 2), ("0BW0 0F0", "0BW0", "0F0", 0, 1)],
)
def test_v201_an_op_before_its_input_on_the_same_rank(row, op, needs, at, later):
    violation = only(judge([row]), "V201")
    assert place(violation) == (0, at, op)
    assert violation.witness == {"needs": needs, "needed_position": later}
    assert violation.message == f"{op} stands at position {at} of rank 0, its input {needs} only at position {later}"


def test_v201_between_two_stages_of_one_rank():
    instance = pipeline(1, 1, loop(1, 2))
    report = judge(["1F0 0F0 1B0 1W0 0B0 0W0"], instance)
    assert place(only(report, "V201")) == (0, 0, "1F0")
    report = judge(["0F0 1F0 0B0 0W0 1B0 1W0"], instance)
    assert only(report, "V201").witness == {"needs": "1B0", "needed_position": 4}


def test_v202_the_witness_is_the_cycle_in_words_data_and_picture():
    rows = ["0F0 0B0 0W0 0F1 0B1 0W1", "1F1 1B1 1W1 1F0 1B0 1W0"]
    violation = only(judge(rows), "V202")
    assert place(violation) == (0, 1, "0B0")
    assert violation.message == (
        "deadlock: rank 0 waits at 0B0 (position 1) for 1B0 of rank 1, which waits at 1F1 (position 0, before 1B0 at "
        "position 4) for 0F1 of rank 0, which comes after 0B0 (position 3); 2 of 2 ranks stop, and 11 of 12 slots "
        "never run"
    )
    first = {"rank": 0, "position": 1, "op": "0B0", "needs": "1B0", "needed_rank": 1, "needed_position": 4}
    second = {"rank": 1, "position": 0, "op": "1F1", "needs": "0F1", "needed_rank": 0, "needed_position": 3}
    assert violation.witness["waits"] == [first, second]
    assert violation.witness["stopped"] == [1, 0]
    assert violation.witness["picture"].splitlines() == [
        "        0     1     2     3     4     5",
        "rank 0  0F0  [0B0]  0W0  [0F1]  0B1   0W1",
        "rank 1 [1F1]  1B1   1W1   1F0  [1B0]  1W0",
    ]


def test_v202_a_rank_outside_the_cycle_stops_too():
    rows = ["0F0 0BW0 0F1 0BW1", "1F0 1F1 1BW0 1BW1", "2F1 2BW1 2F0 2BW0"]
    violation = only(judge(rows, pipeline(3, 2)), "V202")
    assert {wait["rank"] for wait in violation.witness["waits"]} == {0, 1}
    assert violation.witness["stopped"] == [1, 1, 0]


def test_v202_two_pairs_that_need_each_other():
    rows = ["0F0 (0F1;0BW0) 0BW1", "1F0 (1F1;1BW0) 1BW1"]
    violation = only(judge(rows), "V202")
    assert violation.message.startswith(
        "deadlock: rank 0 waits at 0BW0 (position 1) for 1BW0 of rank 1, which waits at 1F1 (position 1) for 0F1 of "
        "rank 0, which is in the slot of 0BW0; "
    )


def test_v301_names_the_first_instant_over_the_cap_and_the_peak():
    rows = ["0F0 0F1 0F2 0BW0 0BW1 0BW2"]
    violation = only(judge(rows, pipeline(1, 3, memory={"F": 2, "static": 1, "cap": 4})), "V301")
    assert place(violation) == (0, 1, "0F1")
    assert violation.message == (
        "rank 0 holds 5 once 0F1 has started (position 1), its cap is 4; its peak is 7, once 0F2 has started (position "
        "2)"
    )
    assert violation.witness == {
        "level": 5, "cap": 4, "static": 1, "peak": 7, "peak_position": 2, "instants_over": 3,
    }  # fmt: skip
    assert judge(rows, pipeline(1, 3, memory={"F": 2, "static": 1, "cap": 7})).verdict is Verdict.PROVED


def test_v301_a_backward_may_take_memory():
    violation = only(judge(["0F0 0F1 0B0 0B1 0W0 0W1"], pipeline(1, 2, memory={"F": 1, "B": 1, "cap": 3})), "V301")
    assert violation.message == "rank 0 holds 4 once 0B1 has ended (position 3), its cap is 3"


def test_v301_a_pair_takes_before_it_gives():
    rows = ["0F0 (0F1;0BW0) 0BW1"]
    assert judge(rows, pipeline(1, 2, memory={"cap": 2})).verdict is Verdict.PROVED
    assert place(only(judge(rows, pipeline(1, 2, memory={"cap": 1})), "V301")) == (0, 1, "0F1")


def test_v301_each_rank_has_its_own_cap():
    assert only(judge(TWO, pipeline(memory={"cap": [2, 1]}).with_cap((1, 1))), "V301").rank == 0
    assert judge(TWO, pipeline(memory={"cap": [2, 1]})).verdict is Verdict.PROVED


def test_v301_is_silent_on_a_rank_whose_ops_are_wrong_and_says_so():
    rows = ["0F0 0F1 0B0 0W0 0B1", "1F0 1B0 1W0 1F1 1B1 1W1"]
    report = judge(rows, pipeline(memory={"cap": 1}))
    assert dict(report.counts) == {"V101": 1}
    assert report.facts.peak == (None, 1)
    assert any("Rank(s) 0 run other ops" in sentence for sentence in report.assumptions)


STARTS = [[0, 1, 3, 4, 6, 7], [1, 2, 3, 4, 5, 6]]


def moved(rank, position, start):
    rows = [list(row) for row in STARTS]
    rows[rank][position] = start
    return rows


def test_claimed_starts_that_hold_are_proved_and_measured():
    report = judge(TWO, timeline=STARTS)
    assert report.verdict is Verdict.PROVED
    assert (report.facts.claimed_makespan, report.facts.claimed_span) == (8, 8)
    late = [[start + 5 for start in row] for row in STARTS]
    assert judge(TWO, timeline=late).facts.claimed_makespan == 8


def test_v401_another_number_of_starts_than_slots():
    violation = only(judge(TWO, timeline=[STARTS[0], STARTS[1][:-1]]), "V401")
    assert (violation.rank, violation.witness) == (1, {"claimed": 5, "slots": 6})
    violation = only(judge(TWO, timeline=STARTS[:1]), "V401")
    assert (violation.rank, violation.witness) == (None, {"claimed": 1, "ranks": 2})


def test_v402_two_slots_of_a_rank_at_once():
    violation = only(judge(TWO, timeline=moved(0, 5, 6)), "V402")
    assert place(violation) == (0, 5, "0W1")
    assert violation.message == "0W1 (position 5 of rank 0) starts at 6, but 0B1 ends at 7"


def test_v403_a_slot_before_its_message():
    violation = only(judge(TWO, timeline=moved(0, 2, 2)), "V403")
    assert place(violation) == (0, 2, "0B0")
    assert violation.message == "0B0 (position 2 of rank 0) starts at 2, but 1B0 of rank 1 ends at 3"
    instance = pipeline(F=1, B=1, W=1, comm={(0, 1): 0, (1, 0): 4})
    report = judge(TWO, instance, timeline=[[0, 1, 7, 8, 10, 11], STARTS[1]])
    assert report.verdict is Verdict.PROVED
    violation = only(judge(TWO, instance, timeline=[[0, 1, 7, 8, 9, 10], STARTS[1]]), "V403")
    assert violation.message.endswith("1B1 of rank 1 ends at 6 and its message takes 4")
    assert violation.witness == {"start": 9, "earliest": 10, "needs": "1B1", "message": 4}


def test_v403_looks_at_both_inputs_of_a_pair_and_past_a_rank_without_starts():
    rows = ["0F0 0F1 0BW0 0BW1", "1F0 (1F1;1BW0) 1BW1", "2F0 2BW0 2F1 2BW1"]
    instance = pipeline(3, 2, **FUSED)
    first = only(judge(rows, instance, timeline=[[0, 1, 8, 12], [1, 4, 10], [2, 3, 7, 8]]), "V403")
    assert (place(first), first.witness["needs"]) == ((1, 1, "1BW0"), "2BW0")
    counts = judge(rows, instance, timeline=[[0, 4, 8, 12], [1, 4, 10], [2, 3, 7, 8]]).counts
    assert dict(counts) == {"V403": 2}
    for absent in (0, 2):
        broken = [[0, 4, 8, 12], [1, 4, 10], [2, 3, 7, 8]]
        broken[absent] = []
        report = judge(rows, instance, timeline=broken)
        assert dict(report.counts) == {"V401": 1, "V403": 1}
        assert report.violations[1].witness["needs"] == ("2BW0" if absent == 0 else "0F1")


@pytest.mark.parametrize("start", [-1, True, 0.0, "0", None])
def test_v404_a_start_that_is_no_time(start):
    violation = only(judge(TWO, timeline=moved(0, 0, start)), "V404")
    assert place(violation) == (0, 0, "0F0")
    assert violation.message == f"0F0 (position 0 of rank 0) starts at {start!r}, which is no integer ≥ 0"


def test_v405_claimed_figures_are_held_against_the_order():
    assert judge(TWO, claims={"makespan": 8, "span": 8, "peak": [2, 1], "seed": 7}).verdict is Verdict.PROVED
    assert only(judge(TWO, claims={"makespan": 7}), "V405").message == (
        "the makespan of the earliest starts is 8, claimed is 7"
    )
    assert only(judge(TWO, claims={"span": 7}), "V405").witness == {"span": 8, "claimed": "7"}
    assert only(judge(TWO, claims={"peak": [1, 1]}), "V405").message == (
        "the peaks of the ranks are [2, 1], claimed is [1, 1]"
    )


def test_v405_claimed_times_are_those_of_the_claimed_starts():
    late = moved(0, 5, 9)
    assert judge(TWO, timeline=late, claims={"makespan": 10, "span": 10}).verdict is Verdict.PROVED
    violation = only(judge(TWO, timeline=late, claims={"makespan": 8}), "V405")
    assert violation.message == "the makespan of the claimed starts is 10, claimed is 8"


def test_v405_is_not_asked_of_a_schedule_that_cannot_run():
    report = judge(["0B0 0F0 0W0"], claims={"makespan": 3, "peak": [1]})
    assert dict(report.counts) == {"V201": 1}
    assert "V405" not in report.rules
    assert "Claimed figures were not judged: the schedule is incomplete or deadlocks." in report.assumptions


def test_independent_faults_are_all_named():
    rows = [
        "0F0 0F1 0F2 0F2 0W0 0B0 0B1 0W1 0B2",  # 0F2 twice, 0W0 before 0B0, 0W2 missing
        "1F1 1B1 1W1 1F0 1B0 1W0 1F2 1BW2 1F9",  # 1F9 unknown
    ]
    report = judge(rows, pipeline(2, 3, memory={"cap": 1}))
    assert dict(report.counts) == {"V101": 1, "V102": 1, "V103": 1, "V201": 1}


def test_a_fault_on_one_rank_does_not_hide_a_deadlock_or_the_memory_of_others():
    rows = ["0F0 0BW0 0F1 0BW1", "1F1 1BW1 1F0 1BW0", "2F0 2F1 2BW1"]
    report = judge(rows, pipeline(3, 2, memory={"cap": 1}))
    assert dict(report.counts) == {"V101": 1, "V202": 1}
    rows = ["0F0 0F1 0BW0 0BW1", "1F0 1F1 1BW0 1BW1", "2F0 2F1 2BW1"]
    report = judge(rows, pipeline(3, 2, memory={"cap": 1}))
    assert dict(report.counts) == {"V101": 1, "V301": 2}
    rows = ["0F0 0F1 0BW0", "1F0 1F1 1BW0 1BW1", "2F0 2F1 2BW0 2BW1"]
    report = judge(rows, pipeline(3, 2, memory={"cap": 1}))
    assert [violation.rank for violation in report.violations if violation.rule == "V301"] == [1, 2]


def test_a_vee_order_on_a_loop_names_the_misplaced_stages_only():
    rows = ["0F0 3F0 3BW0 0BW0", "1F0 2F0 2BW0 1BW0"]
    assert judge(rows, pipeline(2, 1, vee(2))).verdict is Verdict.PROVED
    report = judge(rows, pipeline(2, 1, loop(2, 2)))
    assert dict(report.counts) == {"V104": 4}
