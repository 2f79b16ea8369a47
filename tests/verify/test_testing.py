"""`check_generator` finds each planted bug at the smallest size, and nothing in generators without one."""

import subprocess
import sys

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import BubbleproofError, FamilyError
from bubbleproof.schedules.families import FAMILIES
from bubbleproof.schedules.op import Op
from bubbleproof.schedules.placement import vee
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.verify import Verdict, verify
from bubbleproof.verify.testing import (
    BadSchedule,
    NothingChecked,
    Size,
    assert_schedule,
    check_generator,
    find_counterexample,
    instances,
    near_valid_schedules,
)
from tests.verify import buggy_generators as buggy
from tests.verify.model import pipeline


def ranks(instance):
    """The promise of 1F1B and its relatives: no rank holds more than p microbatches."""
    return instance.ranks


VEE = {"placement": "vee", "chunks": 2}

BUGS = [
    (buggy.interleaved_one_off, {"chunks": (1, 2, 3)}, (1, 1, 2), {"V201"}),
    (buggy.interleaved_one_off, {"ranks": (2, 3), "chunks": 2}, (2, 2, 2), {"V201"}),
    (buggy.interleaved_group_of_two, {"chunks": (1, 2, 3)}, (3, 3, 2), {"V201"}),
    (buggy.zero_bubble_deferring_all, {"peak": ranks}, (1, 2, 1), {"V301"}),
    (buggy.zero_bubble_deferring_all, {"peak": ranks, "ranks": (2, 3, 4)}, (2, 3, 1), {"V301"}),
    (buggy.last_stage_from_one, {}, (1, 1, 1), {"V101", "V103"}),
    (buggy.last_stage_forwards_from_one, {"ranks": (2, 3, 4)}, (2, 1, 1), {"V101", "V103"}),
    (buggy.deferring_receives, {**VEE, "channel": "eager"}, (2, 3, 2), {"V510"}),
    (buggy.deferring_receives, {**VEE, "channel": "rendezvous-pair"}, (2, 2, 2), {"V601"}),
    (buggy.greedy_by_costs, {}, (2, 1, 1), {"V201"}),
    (buggy.ignores_its_cap, {"cap": "any"}, (2, 2, 1), {"V301"}),
]


@pytest.mark.parametrize(("generator", "options", "size", "rules"), BUGS)
def test_the_smallest_size_at_which_a_generator_is_wrong_is_found(generator, options, size, rules):
    found = find_counterexample(generator, **options)
    assert found is not None
    assert found.size == Size(*size)
    assert rules <= set(found.report.counts)


@pytest.mark.parametrize(
    ("generator", "options"),
    [
        (buggy.interleaved, {"chunks": (1, 2, 3)}),
        (buggy.one_f_one_b, {"peak": ranks}),
        (buggy.zero_bubble, {"peak": ranks, "examples": 30}),
        (buggy.zero_bubble_deferring_all, {"examples": 30}),
        (buggy.communicating, {**VEE, "examples": 20}),
    ],
)
def test_generators_without_a_bug_pass(generator, options):
    checked = check_generator(generator, **options)
    assert checked.sizes == 32 * (3 if generator is buggy.interleaved else 1)
    assert checked.examples >= 20


@pytest.mark.parametrize("name", FAMILIES)
def test_every_published_family_passes_under_drawn_costs(name):
    family = FAMILIES[name]
    checked = check_generator(
        family.build,
        ranks=range(1, 5),
        microbatches=(1, 2, 4, 8),
        placement=family.placement,
        chunks=family.chunks,
        examples=10,
    )
    assert len(checked.refused) < checked.sizes


def test_a_failure_shows_the_case_the_rule_and_the_marked_picture():
    with pytest.raises(BadSchedule) as caught:
        check_generator(buggy.zero_bubble_deferring_all, ranks=2, peak=ranks)
    assert (
        str(caught.value)
        == """\
wrong for p = 2 ranks, m = 3 microbatches, v = 1 chunks per rank (linear placement, F = 1, B = 1, W = 1, BW = 2, \
promised peak [2, 2])
  V301: rank 0 holds 3 once 0F2 has started (position 3), its cap is 2
  V301: rank 1 holds 3 once 1F2 has started (position 4), its cap is 2

        0     1     2     3     4     5     6     7     8
rank 0  0F0   0F1   0B0  [0F2]  0B1   0B2   0W0   0W1   0W2
rank 1  1F0   1B0   1F1   1B1  [1F2]  1B2   1W0   1W1   1W2"""
    )


def test_silent_wrong_data_is_shown_with_the_transfers_in_the_picture():
    found = find_counterexample(buggy.deferring_receives, **VEE, channel="eager")
    (violation,) = [v for v in found.report.violations if v.rule == "V510"][:1]
    assert f"[{violation.op}]" in found.picture
    assert "silent wrong data" in str(found)


def test_the_costs_of_a_counterexample_that_depends_on_them_are_shrunk():
    """The bug needs a message that takes longer than a forward; 1 against 0 is the simplest case of it."""
    found = find_counterexample(buggy.greedy_by_costs)
    costs = found.instance.costs
    assert (set(costs.F), set(costs.B), set(costs.W)) == ({0}, {0}, {0})
    assert max(time for _, time in costs.comm) == 1
    assert "messages" in str(found)


def test_the_same_counterexample_is_found_every_time():
    one, two = (find_counterexample(buggy.ignores_its_cap, cap="any") for _ in range(2))
    assert one.instance == two.instance
    assert one.schedule == two.schedule


def test_sizes_are_tried_in_ascending_order_and_none_is_left_out():
    seen = []

    def generator(instance):
        seen.append((instance.ranks, instance.microbatches, instance.stages // instance.ranks))
        return buggy.interleaved(instance)

    check_generator(generator, ranks=(2, 1), microbatches=(4, 2), chunks=(2, 1), costs="unit")
    assert seen == [(p, m, v) for p in (1, 2) for m in (2, 4) for v in (1, 2)]


def test_an_exception_of_the_generator_is_a_counterexample_that_says_where():
    def generator(instance):
        return Schedule.of([[[Op("F", 0, 0), Op("BW", 0, 0)][j] for j in range(2 * instance.microbatches)]])

    found = find_counterexample(generator, ranks=1)
    assert found.size == (1, 2, 1)
    assert "IndexError" in found.error
    assert "test_testing.py" in found.error


def test_a_generator_that_returns_something_else_is_wrong():
    found = find_counterexample(lambda instance: [["0F0"]])
    assert found.error == "the generator returned a list, which is neither a Schedule nor a Program"


def test_a_generator_that_refuses_everything_does_not_pass():
    def refuse(instance):
        raise FamilyError("not today")

    with pytest.raises(NothingChecked, match="all 32 sizes"):
        check_generator(refuse)


def test_another_exception_can_be_the_way_to_refuse():
    def generator(instance):
        if instance.microbatches < instance.ranks:
            raise ValueError("too few microbatches")
        return buggy.one_f_one_b(instance)

    assert find_counterexample(generator).size == (2, 1, 1)
    assert Size(3, 2, 1) in check_generator(generator, refuses=ValueError).refused


def test_costs_memory_and_caps_can_be_given_as_functions():
    def generator(instance):
        assert set(instance.costs.F) == {3}
        assert set(instance.memory.F) == {2}
        assert instance.memory.cap == (2 * instance.ranks,) * instance.ranks
        return buggy.one_f_one_b(instance)

    checked = check_generator(
        generator,
        costs=lambda placement: Costs.make(placement.stages, F=3, B=4),
        memory=lambda placement: Memory.make(placement.stages, placement.ranks, F=2),
        cap=lambda instance: 2 * instance.ranks,
    )
    assert checked.examples == 0


def test_a_promise_that_no_schedule_can_keep_is_told():
    found = find_counterexample(buggy.one_f_one_b, peak=lambda instance: 0)
    assert "no schedule keeps the promised peak of 0" in found.error


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ranks": ()}, "one or more integers"),
        ({"microbatches": (0, 1)}, "≥ 1"),
        ({"placement": "spiral"}, "'spiral' is none of"),
        ({"channel": "eager"}, "make a Program"),
    ],
)
def test_wrong_options_are_told(options, words):
    with pytest.raises(BubbleproofError, match=words):
        check_generator(buggy.one_f_one_b, **options)


def test_the_assertion_passes_a_right_schedule_and_gives_its_report():
    instance = pipeline(2, 2)
    assert assert_schedule(buggy.one_f_one_b(instance), instance, peak=2).verdict == Verdict.PROVED


def test_the_assertion_prints_the_violation_and_the_picture():
    instance = pipeline(2, 2)
    with pytest.raises(BadSchedule) as caught:
        assert_schedule(Schedule.parse(["0F0 0BW0 0F1 0BW1", "1F0 1F1 1BW0 1BW1"]), instance)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("V202: deadlock: ")
    assert lines[-2:] == ["rank 0  0F0  [0BW0] [0F1]   0BW1", "rank 1  1F0  [1F1]  [1BW0]  1BW1"]


def test_the_assertion_judges_programs_and_claimed_starts():
    instance = pipeline(2, 1, F=1, B=1)
    schedule = buggy.one_f_one_b(instance)
    with pytest.raises(BadSchedule, match="V403"):
        assert_schedule(schedule, instance, timeline=[[0, 1], [0, 1]])
    with pytest.raises(BubbleproofError, match="without a channel"):
        assert_schedule(schedule, instance, timeline=[[0, 1], [0, 1]], channel="eager")
    instance = pipeline(placement=vee(2), m=3)
    with pytest.raises(BadSchedule, match="V510"):
        assert_schedule(buggy.deferring_receives(instance), instance, channel="eager")


@settings(max_examples=50)
@given(data=st.data())
def test_near_valid_schedules_are_judged_without_an_error(data):
    instance = data.draw(instances())
    schedule = data.draw(near_valid_schedules(instance))
    assert verify(schedule, instance).verdict in (Verdict.PROVED, Verdict.VIOLATED)


def test_most_near_valid_schedules_are_wrong_and_some_are_right():
    instance = pipeline(2, 2)
    for verdict in (Verdict.PROVED, Verdict.VIOLATED):
        found = find(
            near_valid_schedules(instance),
            lambda schedule, verdict=verdict: verify(schedule, instance).verdict == verdict,
            settings=settings(database=None),
        )
        assert found.ranks == 2


def test_without_hypothesis_sizes_are_tried_and_the_rest_says_what_to_install():
    code = """
import sys
sys.modules["hypothesis"] = None
from bubbleproof.schedules.families import build
from bubbleproof.schedules.errors import BubbleproofError
from bubbleproof.verify import testing
assert testing.check_generator(lambda i: build("1f1b", i), costs="unit").sizes == 32
for use in (lambda: testing.check_generator(lambda i: build("1f1b", i)), lambda: testing.instances):
    try:
        use()
    except BubbleproofError as error:
        assert "pip install 'bubbleproof[testing]'" in str(error)
    else:
        raise SystemExit(1)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_unknown_names_of_the_module_are_attribute_errors():
    from bubbleproof.verify import testing

    with pytest.raises(AttributeError, match="'nothing'"):
        testing.nothing  # noqa: B018  # the access is the test
