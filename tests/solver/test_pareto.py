"""Pareto fronts: monotone, verified point by point, equal to solving each cap, and going on from a file."""

import itertools
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import BubbleproofError, FormatError
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import bidirectional, linear, vee
from bubbleproof.solver import solve
from bubbleproof.solver.front import CapRule, Evidence, Found, Front, attainable
from bubbleproof.solver.pareto import pareto
from bubbleproof.verify import Verdict, verify


def instance(
    p=2, m=3, *, f=2, b=3, w=1, placement=linear, objective="makespan", cap=None, static=0, memory=(3, -1, -2)
):
    where = placement(p)
    return Instance(
        where,
        m,
        Costs.make(where.stages, F=f, B=b, W=w, comm=1),
        Memory.make(where.stages, p, F=memory[0], B=memory[1], W=memory[2], static=static, cap=cap),
        objective,
        "small",
    )


def front_of(one, **options):
    return pareto(one, **{"workers": 1, "time_limit": 20.0, "point_limit": 4.0, "points": 40, **options})


def check_front(state):
    """Monotone; every schedule is accepted under its own cap with its own value, and none under one less."""
    front = state.front
    points = front.points()
    assert points[0].cap >= front.least
    for smaller, larger in itertools.pairwise(points):
        assert smaller.cap < larger.cap
        assert smaller.found.value > larger.found.value
        assert smaller.evidence.bound >= larger.evidence.bound
    for point in points:
        claims = {"peak": list(point.found.peak)}
        assert verify(point.found.schedule, front.at(point.cap), claims=claims).verdict is Verdict.PROVED
        assert point.evidence.bound <= point.found.value
        if point.cap > front.least:
            below = front.at(point.cap - 1)
            assert verify(point.found.schedule, below).verdict is Verdict.VIOLATED


@given(
    p=st.integers(1, 2),
    m=st.integers(1, 3),
    placement=st.sampled_from([linear, vee, bidirectional]),
    objective=st.sampled_from(["makespan", "span"]),
    f=st.integers(0, 3),
    w=st.none() | st.integers(0, 3),
    static=st.integers(0, 3),
)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_front_is_monotone_and_each_point_passes_the_judge_under_its_cap(p, m, placement, objective, f, w, static):
    memory = (3, -1, -2) if w is not None else (3, -3, 0)
    one = instance(p, m, f=f, w=w, placement=placement, objective=objective, static=static, memory=memory)
    check_front(front_of(one, time_limit=0.6, point_limit=0.2))


@pytest.mark.parametrize(
    "one",
    [
        instance(),
        instance(3, 4, objective="span"),
        instance(2, 3, placement=vee, f=1, b=1, w=1, memory=(1, 0, -1)),
    ],
    ids=["two ranks", "three ranks, span", "vee"],
)
def test_under_every_cap_the_front_has_the_value_that_solving_that_cap_alone_proves(one):
    state = front_of(one)
    check_front(state)
    assert state.front.closed
    last = state.front.points()[-1].cap
    for cap in range(state.front.least, last + 2):
        record = solve(one.with_cap(cap), time_limit=10, workers=1).record
        point = state.front.point(cap)
        assert record.value == record.bound
        assert (point.found.value, point.evidence.bound) == (record.value, record.value), cap
        assert point.level != "open"


def test_the_corners_of_a_small_front():
    """Two ranks, three microbatches, F=2 B=3 W=1, comm 1, memory +3 at F, −1 at B, −2 at W."""
    state = front_of(instance())
    assert [(point.cap, point.found.value, point.least) for point in state.front.points()] == [
        (3, 39, True),
        (5, 37, True),
        (6, 26, True),
        (8, 25, True),
        (9, 23, True),
    ]


def test_different_caps_are_shifted_together():
    one = instance(3, 3, cap=(12, 9, 10))
    rule = CapRule.of(one)
    assert rule.offsets == (0, -3, -2)
    assert rule.at(one, 8).memory.cap == (8, 5, 6)
    assert rule.reach((7, 5, 5)) == 8
    assert rule.least(one) == 6  # rank 1 needs 3
    state = front_of(one)
    check_front(state)
    assert state.front.least == 6


def test_a_schedule_counts_for_larger_caps_and_a_bound_for_smaller_ones():
    one = instance(2, 3)
    front = Front(one, CapRule.of(one))
    solution = solve(one.with_cap(6), time_limit=5, workers=1)
    front.add(Found(6, 26, solution.record.peak, "test", solution.schedule))
    assert front.best(5) is None
    assert front.best(7) is front.best(None) is front.best(6)
    front.evidence.append(Evidence(9, 26, "solver-claimed", "cp-sat", None))
    assert front.bound(8).bound == front.bound(9).bound == 26
    assert front.bound(10).bound < 26
    assert front.point(9).level == "solver-claimed"
    assert front.point(10).level == "open"
    assert not front.add(Found(7, 26, solution.record.peak, "not better", solution.schedule))
    assert not front.add(Found(6, 27, solution.record.peak, "not better", solution.schedule))


def test_attainable_levels_of_a_rank_are_the_sums_of_open_microbatches():
    one = instance(1, 2, static=1)
    assert attainable(one, CapRule.of(one)) == [1, 3, 4, 5, 6, 7]


def test_only_the_caps_asked_for_are_solved():
    state = front_of(instance(), caps=(6, 4))
    assert [solved.cap for solved in state.solved] == [6, 4]
    with pytest.raises(BubbleproofError, match="cap 2: the least feasible one is 3"):
        front_of(instance(), caps=(2,))


def test_a_second_run_goes_on_from_the_file(tmp_path):
    path = tmp_path / "front.json"
    first = front_of(instance(3, 4), points=2, time_limit=0.2, point_limit=0.1, path=path)
    again = front_of(instance(3, 4), points=5, path=path)
    assert again.solved[: len(first.solved)] == first.solved
    assert len(again.solved) > len(first.solved)
    third = front_of(instance(3, 4), points=5, time_limit=0.01, path=path)
    assert third.document.points == again.document.points
    check_front(third)


def test_a_finished_front_is_not_solved_again(tmp_path):
    path = tmp_path / "front.json"
    assert front_of(instance(), path=path).front.closed
    text = path.read_bytes()
    state = front_of(instance(), path=path)
    assert state.front.closed
    assert path.read_bytes() == text


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "front.json"
    front_of(instance(), path=path)
    return path


def test_the_file_of_another_instance_is_refused(written):
    for other in (instance(m=4), instance(objective="span"), instance(cap=(6, 5))):
        with pytest.raises(FormatError, match=r"front of another instance \(small\)"):
            front_of(other, path=written)


def test_the_caps_of_the_instance_do_not_matter_if_they_are_equal(written):
    assert front_of(instance(cap=6), path=written).front.closed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d["schedules"][0].update(value=1), "says value 1 under cap 3, but has value 39"),
        (lambda d: d["schedules"][0].update(peak=[0, 0]), "says value 39"),
        (lambda d: d["schedules"][1]["orders"][0].pop(), "no schedule of this instance"),
        (lambda d: d["schedules"][1]["orders"][0].reverse(), "no schedule of this instance"),
        (lambda d: d["solved"][0]["certificate"].update(value=1000), "certificate"),
        (lambda d: d["solved"][0].update(bound=10**6, level="certified"), "no certificate proves it"),
        (lambda d: d.update(extra=1), "unknown key extra"),
        (lambda d: d.update(format="bubbleproof-schedule/1"), "no pareto file"),
    ],
)
def test_a_file_that_says_what_is_not_so_is_refused(written, change, words):
    content = json.loads(written.read_text())
    change(content)
    written.write_text(json.dumps(content))
    with pytest.raises(FormatError, match=words):
        front_of(instance(), path=written)
