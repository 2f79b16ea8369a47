"""`prove`: families for every m, and generators that are right for small m only, which must never be PROVED."""

from math import isqrt

import pytest

from bubbleproof.schedules.errors import BubbleproofError, FamilyError
from bubbleproof.schedules.families import FAMILIES, build
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Op
from bubbleproof.schedules.placement import loop
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.verify import Verdict
from bubbleproof.verify.forall import prove
from tests.verify import buggy_generators as buggy
from tests.verify.model import ONE, pipeline

# (family, p): m from which the pattern holds, its period, the largest peak of a rank there (an activation counts 1)
PERIODIC = {
    ("naive", 2): (1, 1, 1),
    ("gpipe", 2): (1, 1, 1),
    ("1f1b", 2): (2, 1, 2),
    ("eager-1f1b", 2): (3, 1, 3),
    ("looped-bfs", 2): (1, 1, 2),
    ("zb-h1", 2): (2, 1, 2),
    ("zb-h2", 2): (3, 1, 3),
    ("zb-v", 2): (4, 1, 4),
    ("v-half", 2): (4, 1, 4),
    ("v-min", 2): (4, 1, 4),
    ("chimera", 2): (2, 2, 2),
    ("dualpipe", 2): (6, 2, 3),
    ("dualpipev", 2): (4, 1, 5),
    ("1f1b", 4): (4, 1, 4),
    ("zb-h1", 4): (4, 1, 4),
    ("zb-h2", 4): (7, 1, 7),
    ("zb-v", 4): (8, 1, 8),
    ("dualpipe", 4): (8, 2, 5),
    ("dualpipev", 4): (8, 1, 9),
}


def of_family(name, ranks, **memory):
    family = FAMILIES[name]
    placement = family.placement(ranks, family.chunks)
    return pipeline(placement=placement, m=2, memory=memory, **ONE)


@pytest.mark.parametrize(("name", "ranks"), PERIODIC)
def test_a_family_is_proved_from_the_m_at_which_its_pattern_begins(name, ranks):
    answer = prove(FAMILIES[name].build, of_family(name, ranks))
    assert (answer.verdict, answer.generator) == (Verdict.PROVED, Verdict.BOUNDED)
    assert answer.open == ()
    (found,) = answer.proved
    pattern = found.induction.pattern
    peaks = found.induction.peaks
    least = pattern.microbatches(pattern.least)
    assert (least, pattern.period, max(peak.at(pattern.least) for peak in peaks)) == PERIODIC[name, ranks]
    assert (max(peak.slope for peak in peaks) > 0) == (name in ("gpipe", "looped-bfs"))


@pytest.mark.parametrize("name", ["interleaved-1f1b", "interleaved-zb"])
def test_interleaved_families_are_proved_for_multiples_of_p(name):
    answer = prove(FAMILIES[name].build, of_family(name, 2), multiple_of=2)
    assert answer.verdict == Verdict.PROVED
    assert answer.refused[:3] == (1, 3, 5)


def test_interleaved_1f1b_is_bounded_where_its_group_grows_with_m():
    """For even m the group is 2; for odd m it is the smallest that other remainders of m allow."""
    answer = prove(FAMILIES["interleaved-1f1b"].build, of_family("interleaved-1f1b", 2), periods=[2])
    assert answer.verdict == Verdict.BOUNDED
    assert [(found.modulus, found.residue) for found in answer.open] == [(2, 1)]
    assert len(answer.proved) == 1


def test_interleaved_1f1b_with_one_chunk_has_no_groups_and_is_proved_for_every_m():
    answer = prove(FAMILIES["interleaved-1f1b"].build, pipeline(placement=loop(2, 1), m=2))
    assert (answer.verdict, answer.refused) == (Verdict.PROVED, (1,))


def test_a_family_for_one_m_only_is_bounded():
    answer = prove(FAMILIES["hanayo"].build, of_family("hanayo", 2))
    assert answer.verdict == Verdict.BOUNDED
    assert set(answer.refused) == set(range(1, answer.up_to + 1)) - {2}


def test_chimera_on_four_ranks_has_a_pattern_for_either_remainder():
    answer = prove(FAMILIES["chimera"].build, of_family("chimera", 4))
    assert answer.verdict == Verdict.PROVED
    assert [(found.modulus, found.residue) for found in answer.proved] == [(4, 0), (4, 2)]


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_on_eight_ranks(name):
    multiple = 8 if name.startswith("interleaved") else 1
    answer = prove(FAMILIES[name].build, of_family(name, 8), multiple_of=multiple)
    assert answer.verdict == (Verdict.BOUNDED if name == "hanayo" else Verdict.PROVED)


@pytest.mark.parametrize(("cap", "first"), [(6, 7), (40, 41), (700, 701)])
def test_the_smallest_m_that_breaks_a_cap_is_found_however_large(cap, first):
    answer = prove(FAMILIES["gpipe"].build, of_family("gpipe", 2, cap=cap))
    assert (answer.verdict, answer.generator, answer.microbatches) == (Verdict.VIOLATED, Verdict.VIOLATED, first)
    assert answer.schedule == build("gpipe", pipeline(2, first))
    assert answer.report.counts == {"V301": 2}


def test_a_cap_that_is_broken_beyond_any_instance_is_violated_by_the_pattern_alone():
    answer = prove(FAMILIES["gpipe"].build, of_family("gpipe", 2, cap=10**9))
    assert (answer.verdict, answer.generator) == (Verdict.VIOLATED, Verdict.BOUNDED)
    assert (answer.microbatches, answer.schedule, answer.report) == (10**9 + 1, None, None)


def test_a_bound_on_memory_is_proved_of_1f1b_and_not_of_one_less():
    assert prove(FAMILIES["1f1b"].build, of_family("1f1b", 4, cap=4)).verdict == Verdict.PROVED
    answer = prove(FAMILIES["1f1b"].build, of_family("1f1b", 4, cap=3))
    assert (answer.verdict, answer.microbatches) == (Verdict.VIOLATED, 4)


def swapped(instance: Instance) -> Schedule:
    """1F1B with the first two ops of the last rank exchanged."""
    *others, last = build("1f1b", instance).orders
    return Schedule.of([*others, [last[1], last[0], *last[2:]]])


@pytest.mark.parametrize("at", [3, 50, 63])
def test_a_dependency_that_flips_at_some_m_is_a_counterexample(at):
    answer = prove(lambda i: swapped(i) if i.microbatches >= at else build("1f1b", i), pipeline(2, 2))
    assert (answer.verdict, answer.microbatches) == (Verdict.VIOLATED, at)
    assert "V201" in answer.report.counts


def test_a_single_wrong_m_is_a_counterexample_although_its_neighbours_fit_the_pattern():
    answer = prove(lambda i: swapped(i) if i.microbatches == 57 else build("1f1b", i), pipeline(2, 2))
    assert (answer.verdict, answer.microbatches) == (Verdict.VIOLATED, 57)


def test_what_flips_beyond_the_m_compared_is_never_proved_of_the_generator():
    """The pattern is right for every m, and the generator does not make it: the answer says so of neither."""

    def generator(instance):
        return swapped(instance) if instance.microbatches >= 200 else build("1f1b", instance)

    answer = prove(generator, pipeline(2, 2))
    assert answer.generator == Verdict.BOUNDED
    assert answer.up_to < 200
    assert prove(generator, pipeline(2, 2), up_to=205).microbatches == 200


def eager(instance: Instance, extra: int) -> Schedule:
    """1F1B with so many forwards more before the first backward."""
    p, m = instance.ranks, instance.microbatches
    orders = []
    for s in range(p):
        warmup = min(p - 1 - s + extra, m)
        order = [Op("F", s, j) for j in range(warmup)]
        for j in range(m):
            order += [Op("F", s, i) for i in range(warmup + j, min(warmup + j + 1, m))]
            order.append(Op("BW", s, j))
        orders.append(order)
    return Schedule.of(orders)


def keeping_one_in_ten(instance: Instance) -> Schedule:
    """Memory grows by one for every ten microbatches: the backward of the first of them waits for the end."""
    m = instance.microbatches
    order = [Op(kind, 0, j) for j in range(m) for kind in (("F", "BW") if j % 10 else ("F",))]
    return Schedule.of([[*order, *(Op("BW", 0, j) for j in range(0, m, 10))]])


def test_memory_that_grows_by_one_in_ten_microbatches_has_a_period_of_ten_and_breaks_every_cap():
    free = prove(keeping_one_in_ten, pipeline(1, 1), periods=[1, 10])
    assert free.verdict == Verdict.PROVED
    assert {(found.modulus, found.induction.peaks[0].slope) for found in free.proved} == {(10, 1)}
    answer = prove(keeping_one_in_ten, pipeline(1, 1, memory={"cap": 30}), periods=[1, 10])
    assert (answer.verdict, answer.generator, answer.microbatches) == (Verdict.VIOLATED, Verdict.VIOLATED, 292)
    assert len(answer.report.violations) == 1


def test_memory_that_grows_is_bounded_where_its_period_is_not_looked_for():
    answer = prove(keeping_one_in_ten, pipeline(1, 1, memory={"cap": 30}), periods=[1, 2, 3])
    assert (answer.verdict, answer.proved) == (Verdict.BOUNDED, ())


@pytest.mark.parametrize("extra", [isqrt, int.bit_length, lambda m: m // 10, lambda m: m // 50])
def test_a_generator_that_is_not_periodic_is_bounded(extra):
    answer = prove(lambda i: eager(i, extra(i.microbatches)), pipeline(2, 2), periods=[1, 2, 3])
    assert answer.verdict == Verdict.BOUNDED
    assert answer.proved == ()


def test_a_pattern_is_not_taken_where_the_generator_goes_by_another_remainder():
    """Every ninth m looks alike for a while, but the order goes by m mod 8."""
    answer = prove(
        lambda i: eager(i, 1 if i.microbatches % 8 == 0 else isqrt(i.microbatches)), pipeline(2, 2), periods=[8, 9]
    )
    assert [(found.modulus, found.residue) for found in answer.proved] == [(8, 0)]


def test_only_the_m_asked_for_are_judged():
    def generator(instance):
        return swapped(instance) if instance.microbatches < 5 else build("1f1b", instance)

    assert prove(generator, pipeline(2, 2)).microbatches == 1
    assert prove(generator, pipeline(2, 2), first=5).verdict == Verdict.PROVED


def test_a_generator_that_refuses_every_m_is_an_error():
    def refuse(instance):
        raise FamilyError("no")

    with pytest.raises(FamilyError, match="refuses every"):
        prove(refuse, pipeline(2, 2))


@pytest.mark.parametrize("options", [{"first": 0}, {"first": 9, "up_to": 8}, {"multiple_of": 0}])
def test_a_range_of_m_that_is_none_is_an_error(options):
    with pytest.raises(BubbleproofError, match="no range"):
        prove(FAMILIES["1f1b"].build, pipeline(2, 2), **options)


def test_the_buggy_zero_bubble_is_proved_to_need_more_than_any_cap():
    answer = prove(buggy.zero_bubble_deferring_all, pipeline(4, 1, memory={"cap": 100}))
    assert (answer.verdict, answer.microbatches) == (Verdict.VIOLATED, 101)
