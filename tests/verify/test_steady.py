"""Claimed times of a pattern: right for every n, or not."""

from dataclasses import replace

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.families import FAMILIES
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Op
from bubbleproof.schedules.pattern import IndexedOp, PeriodicSchedule, Segment
from bubbleproof.schedules.placement import bidirectional, linear, vee
from bubbleproof.schedules.timeline import replay
from bubbleproof.solver.flat import Flat
from bubbleproof.solver.heuristics import greedy, one_at_a_time
from bubbleproof.solver.periodic import find_period
from bubbleproof.solver.steady import timed
from bubbleproof.solver.tuning import grid
from bubbleproof.verify import Verdict, verify
from bubbleproof.verify.induction import cutoff, induct
from bubbleproof.verify.steady import steady

PLACES = {"linear": linear, "vee": vee, "bidirectional": bidirectional}
FAR = 50


def starts(pattern, n):
    """The claimed starts for n blocks, from the definition."""
    for row in pattern.rows:
        found = []
        for segment in row:
            blocks = {"once": [0], "up": range(n), "down": range(n - 1, -1, -1)}[segment.repeat]
            for block in blocks:
                found += [start + segment.per_n * n + segment.per_block * block for start in segment.starts]
        yield found


def shifted(pattern, n):
    rows = list(starts(pattern, n))
    least = min(start for row in rows for start in row)
    return [[start - least for start in row] for row in rows]


def holds(pattern, instance, n):
    """Whether the judge of single schedules accepts the claimed starts for n blocks."""
    report = verify(pattern.schedule(n), pattern.instance(instance, n), timeline=shifted(pattern, n))
    return not {"V402", "V403"} & set(report.counts), report.facts


@st.composite
def timed_patterns(draw):
    """Words found in a greedy schedule of a random instance, with their times, perhaps from a larger n on."""
    placement = PLACES[draw(st.sampled_from(sorted(PLACES)))](draw(st.sampled_from([2, 4])))
    f, b, w, c = (draw(st.integers(0, 3)) for _ in range(4))
    costs = Costs.make(placement.stages, F=f, B=b, W=draw(st.sampled_from([w, w, None])), comm=c)
    memory = Memory.make(placement.stages, placement.ranks, F=1, cap=placement.ranks * draw(st.integers(2, 4)))
    objective = draw(st.sampled_from(["makespan", "span"]))
    instance = Instance(placement, 4 * draw(st.integers(4, 10)), costs, memory, objective)
    flat = Flat(instance)
    orders = greedy(flat, list(grid(flat))[draw(st.integers(0, 5))]) or one_at_a_time(flat)
    routes = len(placement.routes)
    words = next(filter(None, (find_period(flat, orders, (step,) * routes) for step in (1, 2, 3))), None)
    assume(words is not None)
    found = timed(words, draw(st.integers(1, 3)))
    assume(found is not None)
    return found, instance


MANY = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))


@MANY
@given(case=timed_patterns(), more=st.integers(0, 12))
def test_times_that_are_found_hold_for_every_n_and_bound_the_earliest_ones(case, more):
    found, instance = case
    answer = steady(found.pattern, instance)
    assert not answer.reason
    n = found.pattern.least + more
    right, facts = holds(found.pattern, instance, n)
    assert right
    assert (answer.makespan.at(n), answer.span.at(n)) == (facts.claimed_makespan, facts.claimed_span)
    length = answer.makespan if instance.objective == "makespan" else answer.span
    assert length.at(n) == found.level + found.growth * n
    at = found.pattern.instance(instance, n)
    assert replay(found.pattern.schedule(n), at).makespan <= answer.makespan.at(n)


@MANY
@given(case=timed_patterns(), data=st.data())
def test_tampered_times_are_accepted_just_if_they_hold_for_every_n(case, data):
    found, instance = case
    pattern = found.pattern
    rank = data.draw(st.integers(0, instance.ranks - 1))
    row = list(pattern.rows[rank])
    which = data.draw(st.integers(0, len(row) - 1))
    segment = row[which]
    by = data.draw(st.sampled_from([-1, 1, 2]))
    what = data.draw(st.sampled_from(["starts", "starts", "all", "per_n", "per_block"]))
    if what == "starts":
        at = data.draw(st.integers(0, len(segment.starts) - 1))
        segment = replace(segment, starts=(*segment.starts[:at], segment.starts[at] + by, *segment.starts[at + 1 :]))
    elif what == "all":
        segment = replace(segment, starts=tuple(start + by for start in segment.starts))
    else:
        segment = replace(segment, **{what: getattr(segment, what) + by})
    row[which] = segment
    tampered = replace(pattern, rows=(*pattern.rows[:rank], tuple(row), *pattern.rows[rank + 1 :]))
    far = [*range(tampered.least, tampered.least + 12), FAR]
    assert (not steady(tampered, instance).reason) == all(holds(tampered, instance, n)[0] for n in far)


def gpipe(p, f, b, c):
    """GPipe as two loops per rank, with the times that it has."""
    rows = []
    for rank in range(p):
        forward = Segment((IndexedOp("F", rank, 0, "b", 0),), "up", (rank * (f + c),), 0, f)
        begin = (p - 1) * (f + c) + (p - 1 - rank) * (b + c)
        backward = Segment((IndexedOp("BW", rank, 0, "b", 0),), "up", (begin,), f, b)
        rows.append((forward, backward))
    return PeriodicSchedule(tuple(rows), (1,), (0,), 1, "gpipe")


@given(p=st.integers(1, 4), f=st.integers(1, 3), b=st.integers(1, 3), c=st.integers(0, 2), n=st.integers(1, 9))
def test_gpipe_with_its_two_loops_takes_what_its_formula_says(p, f, b, c, n):
    instance = Instance(linear(p), 4, Costs.make(p, F=f, B=b, comm=c), Memory.make(p, p, F=0))
    pattern = gpipe(p, f, b, c)
    answer = induct(pattern, instance)
    assert answer.verdict == Verdict.PROVED
    assert answer.makespan.at(n) == (n + p - 1) * (f + b) + 2 * (p - 1) * c
    assert pattern.schedule(n).orders == FAMILIES["gpipe"].build(instance.with_(microbatches=n)).orders


def test_a_descending_loop_starts_with_its_last_block():
    """One rank, all forwards, then the backwards from the last microbatch to the first."""
    forward = Segment((IndexedOp("F", 0, 0, "b", 0),), "up", (0,), 0, 2)
    backward = Segment((IndexedOp("BW", 0, 0, "b", 0),), "down", (-3,), 5, -3)
    instance = Instance(linear(1), 4, Costs.make(1, F=2, B=3), Memory.make(1, 1, F=0))
    pattern = PeriodicSchedule(((forward, backward),), (1,), (0,))
    assert list(starts(pattern, 2)) == [[0, 2, 4, 7]]
    answer = induct(pattern, instance)
    assert (answer.verdict, answer.makespan.lines) == (Verdict.PROVED, ((0, 5),))
    late = replace(backward, starts=(-4,))
    assert induct(replace(pattern, rows=((forward, late),)), instance).verdict == Verdict.VIOLATED


def test_false_times_make_a_pattern_violated_and_say_where():
    pattern = gpipe(2, 1, 1, 1)
    (first, second) = pattern.rows
    early = replace(pattern, rows=(first, (replace(second[0], starts=(1,)), second[1])))
    instance = Instance(linear(2), 4, Costs.make(2, F=1, B=1, comm=1), Memory.make(2, 2, F=0))
    answer = induct(early, instance)
    assert answer.verdict == Verdict.VIOLATED
    assert answer.reason == "claimed times: 1F[b] of rank 1 starts before its input 0F[b] of rank 0 is there"


def test_times_spare_the_induction_all_but_two_schedules():
    """The order of ZB-H1 on eight ranks would be judged for 1 to 15 blocks."""
    instance = Instance(linear(8), 40, Costs.make(8, F=1, B=1, W=1), Memory.make(8, 8, F=1, cap=8))
    flat = Flat(instance)
    words = find_period(flat, flat.orders(FAMILIES["zb-h1"].build(instance)), (1,))
    found = timed(words)
    assert cutoff(found.pattern, 8) == 15
    answer = induct(found.pattern, instance)
    assert (answer.verdict, answer.checked) == (Verdict.PROVED, 2)
    untimed = replace(
        found.pattern, rows=tuple(tuple(replace(s, starts=None) for s in row) for row in found.pattern.rows)
    )
    assert induct(untimed, instance).checked == 15


def test_ops_of_no_duration_leave_deadlock_to_the_other_theorem():
    """Both forwards wait for each other's rank, which no time forbids if nothing lasts."""
    instance = Instance(vee(2), 2, Costs.make(4, F=0, B=0), Memory.make(4, 2, F=0))
    rows = []
    for stages in ((0, 3), (1, 2)):
        ops = [IndexedOp(kind, s, 0, "b", 0) for kind in ("F", "BW") for s in sorted(stages)]
        rows.append((Segment(tuple(sorted(ops, key=lambda op: -op.stage)), "up", (0,) * 4, 0, 0),))
    pattern = PeriodicSchedule(tuple(rows), (1,), (0,))
    assert not steady(pattern, instance).reason
    assert not steady(pattern, instance).all_last
    assert induct(pattern, instance).verdict == Verdict.VIOLATED


def test_times_say_nothing_where_messages_occupy_channels():
    pattern = gpipe(2, 1, 1, 1)
    costs = Costs.make(2, F=1, B=1, comm=1, channel="pair")
    assert "channels" in steady(pattern, Instance(linear(2), 4, costs, Memory.make(2, 2, F=0))).reason


def test_a_pair_lasts_as_its_instance_says():
    slot = (IndexedOp("F", 0, 0, "b", 1), IndexedOp("BW", 0, 0, "b", 0))
    rows = (
        (
            Segment((IndexedOp("F", 0, 0, "", 0),), "once", (0,)),
            Segment((slot,), "up", (3,), 0, 4),
            Segment((IndexedOp("BW", 0, 0, "n", 0),), "once", (3,), 4),
        ),
    )
    pattern = PeriodicSchedule(rows, (1,), (1,))
    fast = Instance(linear(1), 4, Costs.make(1, F=3, B=3, overlap_BW=4), Memory.make(1, 1, F=0))
    assert induct(pattern, fast).makespan.lines == ((6, 4),)
    slow = replace(fast, costs=Costs.make(1, F=3, B=3))
    assert induct(pattern, slow).verdict == Verdict.VIOLATED
    assert str(pattern.schedule(2).orders[0][0]) == str(Op("F", 0, 0))
