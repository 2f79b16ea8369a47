"""The finite check of a pattern is enough: its answer against the judge for every n, and patterns that break late."""

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings

from bubbleproof.schedules.errors import InstanceError, ScheduleError
from bubbleproof.schedules.formats import pattern_json
from bubbleproof.schedules.pattern import IndexedOp, PeriodicSchedule, Segment
from bubbleproof.schedules.placement import loop, vee
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.verify import Verdict, verify
from bubbleproof.verify.induction import cutoff, induct
from tests.verify.model import pipeline
from tests.verify.patterns import patterns


def pattern(*rows, steps=(1,), bases=(0,), least=1):
    """A pattern from text: blank-separated ops, loops as {…}; every row one rank."""
    built = []
    for row in rows:
        segments = []
        for part in row.replace("{", "|up ").replace("}", "|").split("|"):
            words = part.split()
            repeat = "up" if words[:1] == ["up"] else "once"
            words = words[1:] if repeat == "up" else words
            if words:
                slots = tuple(pattern_json._slot(word, list(steps), "test") for word in words)
                segments.append(Segment(slots, repeat))
        built.append(tuple(segments))
    return PeriodicSchedule(tuple(built), steps, bases, least)


def first_wrong(pattern, instance, last):
    """The smallest n whose schedule breaks a rule, one by one."""
    for n in range(pattern.least, last + 1):
        if verify(pattern.schedule(n), pattern.instance(instance, n)).verdict != Verdict.PROVED:
            return n
    return None


ONE_F_ONE_B = ("0F[0] {0F[b+1] 0BW[b]} 0BW[n]", "{1F[b] 1BW[b]} 1F[n] 1BW[n]")


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=patterns())
def test_the_answer_for_all_n_is_that_of_the_judge_for_each_n(case):
    pattern, instance = case
    found = induct(pattern, instance)
    wrong = first_wrong(pattern, instance, found.checked + 6)
    if found.verdict == Verdict.PROVED:
        assert wrong is None
    else:
        assert found.verdict == Verdict.VIOLATED
        assert wrong == found.n if wrong is not None else found.n > found.checked + 6
    for n in range(pattern.least, pattern.least + 5) if found.peaks else ():
        report = verify(pattern.schedule(n), pattern.instance(instance, n))
        assert report.facts.peak == tuple(peak.at(n) for peak in found.peaks)


@pytest.mark.parametrize("least", [1, 2])
def test_the_attack_meets_right_patterns_and_deadlocks_that_begin_late(least):
    """Else the test above would prove little."""
    options = settings(
        max_examples=3000,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    find(patterns(), lambda case: induct(*case).verdict == Verdict.PROVED, settings=options)

    def breaks_late(case):
        found = induct(*case)
        return found.n is not None and found.n >= least and bool({"V201", "V202"} & set(found.report.counts))

    assert induct(*find(patterns(), breaks_late, settings=options)).n >= least


def test_1f1b_is_proved_with_its_peaks():
    found = induct(pattern(*ONE_F_ONE_B, bases=(1,)), pipeline(2, 1))
    assert found.verdict == Verdict.PROVED
    assert found.checked == 3
    assert [(peak.at(1), peak.slope) for peak in found.peaks] == [(2, 0), (1, 0)]


def test_a_dependency_that_turns_against_its_rank_at_block_51_is_found():
    """Right for the first fifty n: the backward of microbatch 55 comes into the loop, before its forward, at n = 51."""
    heads = " ".join(f"0F[{j}]" for j in range(60) if j != 55)
    row = f"{heads} {{0F[b+60]}} " + " ".join(f"0BW[{j}]" for j in range(5))
    row += " {0BW[b+5]} 0F[55] " + " ".join(f"0BW[n+{j}]" for j in range(5, 60))
    late = pattern(row, bases=(60,))
    assert first_wrong(late, pipeline(1, 1), 50) is None
    found = induct(late, pipeline(1, 1))
    assert (found.verdict, found.n) == (Verdict.VIOLATED, 51)
    assert set(found.report.counts) == {"V201"}


def test_a_deadlock_between_ranks_that_begins_at_block_51_is_found():
    """Rank 0 runs forwards of its second chunk before one of its first that they need through rank 1."""
    rest = [j for j in range(60) if j != 55]
    zero = " ".join(f"0F[{j}]" for j in rest) + " {0F[b+60]} " + " ".join(f"2F[{j}]" for j in range(5))
    zero += " {2F[b+5]} 0F[55] " + " ".join(f"2F[n+{j}]" for j in range(5, 60))
    one = " ".join(f"1F[{j}]" for j in rest) + " {1F[b+60]} 1F[55] {3F[b]} " + " ".join(f"3F[n+{j}]" for j in range(60))
    for stage in (3, 1):
        one += f" {{{stage}BW[b]}} " + " ".join(f"{stage}BW[n+{j}]" for j in range(60))
        zero += f" {{{stage - 1}BW[b]}} " + " ".join(f"{stage - 1}BW[n+{j}]" for j in range(60))
    late = pattern(zero, one, bases=(60,))
    found = induct(late, pipeline(placement=loop(2, 2), m=1))
    assert (found.verdict, found.n) == (Verdict.VIOLATED, 51)
    assert set(found.report.counts) == {"V202"}


def test_two_ops_that_meet_at_one_n_only_are_a_join_and_are_judged():
    """The last microbatch but five of n = 50 blocks is microbatch 55: its backward then stands before its forward."""
    heads = " ".join(f"0F[{j}]" for j in range(60) if j != 55)
    row = f"{heads} {{0F[b+60]}} " + " ".join(f"0BW[{j}]" for j in range(5))
    row += " {0BW[b+5]} 0BW[n+5] 0F[55] " + " ".join(f"0BW[n+{j}]" for j in range(6, 60))
    found = induct(pattern(row, bases=(60,)), pipeline(1, 1))
    assert (found.verdict, found.n) == (Verdict.VIOLATED, 50)


def test_memory_that_grows_by_one_per_block_breaks_the_cap_where_the_lines_say():
    """Ten microbatches a block, one of them kept to the end: no small n shows it, the slope does."""
    body = " ".join(f"0F[10b+{j}] 0BW[10b+{j}]" if j else "0F[10b]" for j in range(10))
    slow = pattern(f"{{{body}}} {{0BW[10b]}}", steps=(10,))
    found = induct(slow, pipeline(1, 1).with_cap(500))
    assert (found.verdict, found.n) == (Verdict.VIOLATED, 500)
    assert found.checked == 2
    assert found.report.facts.peak == (501,)
    assert found.peaks[0].slope == 1
    assert induct(slow, pipeline(1, 1)).verdict == Verdict.PROVED  # nothing was promised


def test_a_break_of_the_cap_too_far_to_build_is_told_without_a_schedule():
    gpipe = pattern("{0F[b]} {0BW[b]}")
    found = induct(gpipe, pipeline(1, 1).with_cap(10**9))
    assert (found.verdict, found.n, found.report) == (Verdict.VIOLATED, 10**9 + 1, None)


def test_a_pattern_that_is_complete_for_one_n_only_is_not_proved():
    """Two microbatches at n = 1; from n = 2 on the loop runs none of those between."""
    lame = PeriodicSchedule(
        (
            (
                Segment((IndexedOp("F", 0, 0, "", 0), IndexedOp("BW", 0, 0, "", 0))),
                Segment((IndexedOp("F", 0, 0, "n", 0), IndexedOp("BW", 0, 0, "n", 0))),
            ),
        ),
        (1,),
        (1,),
    )
    found = induct(lame, pipeline(1, 1))
    assert (found.verdict, found.n) == (Verdict.VIOLATED, 2)
    assert "V101" in found.report.counts


def test_a_check_that_would_take_too_long_is_unknown():
    found = induct(pattern(*ONE_F_ONE_B, bases=(1,)), pipeline(2, 1), most_slots=10)
    assert found.verdict == Verdict.UNKNOWN
    assert "too long" in found.reason
    heads = " ".join(f"0F[{j}]" for j in range(2000))
    tails = " ".join(f"0BW[n+{j}]" for j in range(2000))
    assert induct(pattern(f"{heads} {{0F[b+2000] 0BW[b]}} {tails}", bases=(2000,)), pipeline(1, 1)).verdict == (
        Verdict.UNKNOWN
    )


def test_the_cutoff_covers_the_blocks_between_an_op_and_its_input():
    assert cutoff(pattern(*ONE_F_ONE_B, bases=(1,)), 2) == 3
    wide = pattern("0F[0] 0F[1] 0F[2] {0F[b+3] 0BW[b]} 0BW[n] 0BW[n+1] 0BW[n+2]", bases=(3,))
    assert cutoff(wide, 1) == 4  # the forward of a block and the backward three blocks on: four blocks


def test_a_pattern_for_other_routes_than_the_placement_has_is_refused():
    two = pattern("{0F[0:b] 0BW[0:b] 0F[1:b] 0BW[1:b]}", steps=(1, 1), bases=(0, 0))
    with pytest.raises(InstanceError, match="route"):
        induct(two, pipeline(1, 1))


def test_the_schedules_of_a_pattern_are_its_text_with_the_blocks_written_out():
    found = pattern(*ONE_F_ONE_B, bases=(1,))
    assert str(found) == "0F[0] {0F[b+1] 0BW[b]}×n 0BW[n]\n{1F[b] 1BW[b]}×n 1F[n] 1BW[n]"
    assert found.schedule(2) == Schedule.parse(["0F0 0F1 0BW0 0F2 0BW1 0BW2", "1F0 1BW0 1F1 1BW1 1F2 1BW2"])
    assert (found.microbatches(2), found.blocks(3)) == (3, 2)
    with pytest.raises(ScheduleError, match="none of 2, 3"):
        found.blocks(1)


def test_descending_loops_and_two_routes_are_written_out():
    body = [Segment((IndexedOp("F", 0, 0, "b", 0),), "up"), Segment((IndexedOp("BW", 0, 0, "b", 0),), "down")]
    down = PeriodicSchedule((tuple(body),), (1,), (0,))
    assert down.schedule(3) == Schedule.parse(["0F0 0F1 0F2 0BW2 0BW1 0BW0"])
    two = pattern("{0F[0:b] 0F[1:b]}", steps=(1, 1), bases=(1, 0))
    assert two.schedule(2) == Schedule.parse(["0F0 0F3 0F1 0F4"])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: pattern("0F[b]"), "if and only if in a loop"),
        (lambda: pattern("{0F[0]}"), "if and only if in a loop"),
        (lambda: pattern("0F[3]"), "no microbatch for 0F"),
        (lambda: pattern("0F[n]"), "no microbatch for 0F"),
        (lambda: pattern("{0F[b-1]}"), "no microbatch for 0F"),
        (lambda: pattern("0F[n-2]", bases=(0,)), "no microbatch for 0F"),
        (lambda: pattern("0F[1:0]"), "which does not exist"),
        (lambda: pattern("0F[0]", steps=(0,)), "at least 1"),
        (lambda: pattern("0F[0]", least=0), "at least 1"),
        (lambda: pattern("", bases=(-1,)), "no microbatch at"),
        (lambda: pattern("", bases=(-5,)), "negative number"),
        (lambda: pattern("", bases=(0, 0)), "one or two routes"),
    ],
)
def test_what_is_no_pattern_is_refused(make, words):
    with pytest.raises(ScheduleError, match=words):
        make()


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=patterns())
def test_a_pattern_file_gives_the_pattern_back(case):
    made, instance = case
    text = pattern_json.dumps(made, instance)
    again, other = pattern_json.loads(text)
    assert (again, other) == (made, instance)
    assert pattern_json.dumps(again, other) == text


def test_the_pattern_of_a_vee_has_both_chunks_of_a_rank():
    instance = pipeline(placement=vee(1), m=1)
    assert induct(pattern("{0F[b] 1F[b] 1BW[b] 0BW[b]}"), instance).verdict == Verdict.PROVED
    assert induct(pattern("{0F[b] 1F[b] 0BW[b] 1BW[b]}"), instance).report.counts == {"V201": 1}
