"""Bounds for every number of microbatches grow as they are said to."""

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import InstanceError
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.pattern import IndexedOp, PeriodicSchedule, Segment
from bubbleproof.schedules.placement import bidirectional, linear, vee
from bubbleproof.solver.bounds import lower_bounds
from bubbleproof.verify.certificate import check
from bubbleproof.verify.every import EveryCertificate, Rise, compare, rise
from bubbleproof.verify.growth import Growth
from bubbleproof.verify.normal_form import Refused


def an_instance(p, f, b, w, c, a, held, cap, place=linear, objective="makespan"):
    placement = place(p)
    n = placement.stages
    memory = Memory.make(n, p, F=a, B=held - a, W=-held, cap=cap)
    return Instance(placement, 1, Costs.make(n, F=f, B=b, W=w, comm=c), memory, objective)


@st.composite
def instances(draw):
    p = draw(st.integers(2, 4))
    place = draw(st.sampled_from([linear, vee, bidirectional]))
    placement = place(p if place is not bidirectional else 2 * (p // 2))
    n = placement.stages

    def per_stage(low, high):
        return draw(st.lists(st.integers(low, high), min_size=n, max_size=n))

    split = draw(st.booleans())
    costs = Costs.make(n, F=per_stage(0, 5), B=per_stage(0, 5), W=per_stage(0, 4) if split else None, comm=1)
    takes = per_stage(0, 4)
    keeps = [draw(st.integers(0, take)) for take in takes]
    memory = {"F": takes}
    if split:
        memory |= {"B": [k - t for k, t in zip(keeps, takes, strict=True)], "W": [-k for k in keeps]}
    cap = draw(st.none() | st.integers(0, 60))
    objective = draw(st.sampled_from(["makespan", "span"]))
    try:
        return Instance(placement, 2, costs, Memory.make(n, placement.ranks, cap=cap, **memory), objective)
    except InstanceError:
        assume(False)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(instance=instances(), m=st.integers(1, 200), data=st.data())
def test_what_a_rule_gives_for_every_m_is_what_it_gives_for_each(instance, m, data):
    """The solver's own search for the places that give the most is the other side."""
    at = instance.with_(microbatches=m)
    for certificate in lower_bounds(at):
        chosen = EveryCertificate(rule=certificate.rule, rank=certificate.rank, via=certificate.via)
        try:
            found = rise(instance, chosen)
        except Refused:
            continue
        if m >= found.first:
            assert found.at(m) <= max(c.value for c in lower_bounds(at))
            if certificate.rule != "window" or found.at(m) == certificate.value:
                assert found.at(m) == check(at, certificate).proved
        for _ in range(3):
            later = found.first + data.draw(st.integers(0, 500))
            best = max(c.value for c in lower_bounds(instance.with_(microbatches=later)))
            assert found.at(later) <= best


@pytest.mark.parametrize(
    ("instance", "rule", "rank", "first", "period", "growth"),
    [
        (an_instance(4, 1, 1, 1, 0, 1, 1, 3), "window", 0, 3 + 7, 1, 3),
        (an_instance(4, 18, 18, 9, 1, 1, 1, 4), "window", 0, 4 + 9, 1, 45),
        (an_instance(4, 3, 4, 2, 0, 1, 1, None), "load", 3, 7, 1, 9),
        (an_instance(4, 3, 4, 2, 0, 1, 1, 7), "arrival", 0, 7 + 7, 1, 9),
        (an_instance(4, 1, 1, 1, 0, 1, 1, 8, vee), "ends", 3, 1 + 8 + 8 + 8, 1, 6),
        (an_instance(4, 1, 1, 1, 0, 1, 1, 2), "residence", 0, 1, 2, 9),
        (an_instance(4, 1, 1, 1, 0, 1, 1, 2), "chain", -1, 1, 1, 0),
        (an_instance(2, 1, 2, 1, 0, 1, 1, 4, bidirectional), "load", 0, 2 * 4, 1, 4),
    ],
)
def test_rules_and_from_where_they_grow_evenly(instance, rule, rank, first, period, growth):
    found = rise(instance, EveryCertificate(rule=rule, rank=rank))
    assert (found.first, found.period, found.growth) == (first, period, growth)


def test_the_bound_of_a_tight_cap_grows_faster_than_the_work():
    """p = 4, unit times, two microbatches at once: 9 units for every two microbatches, where the work is 6."""
    instance = an_instance(4, 1, 1, 1, 0, 1, 1, 2)
    found = rise(instance, EveryCertificate(rule="residence", rank=0))
    assert [found.at(m) for m in (1, 2, 3, 100, 102)] == [5, 9, 14, 450, 459]


@pytest.mark.parametrize(
    ("instance", "certificate", "why"),
    [
        (an_instance(2, 1, 1, 1, 0, 1, 1, None), EveryCertificate(rule="window", rank=0), "in flight"),
        (an_instance(2, 1, 1, 1, 0, 1, 0, 2), EveryCertificate(rule="window", rank=0), "not bounded"),
        (an_instance(2, 1, 1, 1, 0, 1, 1, None), EveryCertificate(rule="ends", rank=0), "nothing limits"),
        (an_instance(2, 1, 1, 1, 0, 1, 1, 2), EveryCertificate(rule="load", rank=2), "no rank 2"),
        (an_instance(2, 1, 1, 1, 0, 1, 1, 2), EveryCertificate(rule="guess", rank=0), "not known"),
        (an_instance(2, 1, 1, 1, 0, 1, 1, 4, bidirectional), EveryCertificate(rule="ends", rank=0), "two routes"),
        (an_instance(2, 1, 1, 1, 0, 1, 1, 4, vee), EveryCertificate(rule="window", rank=0), "one chunk"),
        (an_instance(2, 997, 1, 1, 0, 1, 1, 1009), EveryCertificate(rule="residence", rank=0), "1009 microbatches"),
    ],
)
def test_where_nothing_is_known_for_every_m_the_bound_is_refused(instance, certificate, why):
    with pytest.raises(Refused, match=why):
        rise(instance, certificate)


def a_pattern(step, base):
    ops = tuple(IndexedOp(kind, 0, 0, "b", o) for o in range(step) for kind in ("F", "BW"))
    rest = tuple(IndexedOp(kind, 0, 0, "n", o) for o in range(base) for kind in ("F", "BW"))
    return PeriodicSchedule(((Segment(ops, "up"), Segment(rest)),), (step,), (base,))


def test_a_pattern_that_meets_a_bound_at_all_residues_is_optimal():
    pattern = a_pattern(2, 1)  # m = 3, 5, 7, …
    bound = Rise(first=6, period=3, values=(60, 70, 80), growth=30)
    met = compare(pattern, Growth(((10, 20),)), bound)
    assert (met.first, met.worst, met.optimal) == (7, 0, True)
    above = compare(pattern, Growth(((10, 20),)), Rise(6, 3, (60, 70, 79), 30))
    assert (above.worst, above.optimal) == (1, False)
    slower = compare(pattern, Growth(((10, 21),)), bound)
    assert (slower.worst, slower.per_microbatch) == (None, (21 / 2, 10))


def test_a_length_that_is_first_another_line_is_compared_from_where_it_is_not():
    pattern = a_pattern(1, 0)
    bound = Rise(first=1, period=1, values=(10,), growth=10)
    found = compare(pattern, Growth(((55, 5), (0, 10))), bound)
    assert (found.first, found.worst) == (11, 0)
    assert compare(a_pattern(7, 0), Growth(((0, 70),)), Rise(1, 997, (1,) * 997, 1)) is None
