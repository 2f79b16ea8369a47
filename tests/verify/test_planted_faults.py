"""A fault planted at a random place of a random valid schedule is named, and nothing else is."""

from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bubbleproof.schedules.errors import InstanceError
from bubbleproof.schedules.op import Op, Overlap, members
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import replay
from bubbleproof.verify import Verdict, verify
from bubbleproof.verify.case import Case
from tests.strategies import instances_with_schedules
from tests.verify.model import edges

many = settings(max_examples=150, deadline=None)


def pick(data, schedule, wanted=lambda op: True):
    """A random (rank, position, op) among those wanted."""
    found = [place for place in schedule.ops() if wanted(place[2])]
    assume(found)
    return data.draw(st.sampled_from(found))


def edit(schedule, rank, change):
    """The schedule with the order of one rank changed in place by a function."""
    orders = [list(order) for order in schedule.orders]
    change(orders[rank])
    return Schedule.of(orders)


def without(schedule, rank, position, op):
    """The schedule without one op; the other member of its pair stays."""
    rest = [other for other in members(schedule.orders[rank][position]) if other != op]

    def change(order):
        order[position : position + 1] = rest

    return edit(schedule, rank, change)


def inserted(data, schedule, rank, slot):
    at = data.draw(st.integers(0, len(schedule.orders[rank])))
    return edit(schedule, rank, lambda order: order.insert(at, slot)), at


@many
@given(st.data())
def test_a_valid_schedule_passes_and_the_figures_are_those_of_the_replay(data):
    instance, schedule = data.draw(instances_with_schedules())
    line = replay(schedule, instance)
    plain = verify(schedule, instance)
    assert plain.verdict is Verdict.PROVED
    assert (plain.facts.makespan, plain.facts.span) == (line.makespan, line.span)
    assert Case(schedule, instance).run.starts == line.starts
    claims = {"makespan": line.makespan, "span": line.span, "peak": list(plain.facts.peak)}
    capped = instance.with_cap(plain.facts.peak)
    full = verify(schedule, capped, timeline=line.starts, claims=claims)
    assert full.verdict is Verdict.PROVED
    assert len(full.rules) == 17
    assert full.facts == replace(plain.facts, claimed_makespan=line.makespan, claimed_span=line.span)


@many
@given(st.data())
def test_a_dropped_op_is_missing(data):
    instance, schedule = data.draw(instances_with_schedules())
    rank, position, op = pick(data, schedule)
    report = verify(without(schedule, rank, position, op), instance)
    assert dict(report.counts) == {"V101": 1}
    # without BW an instance that can split is told of B, the first op of its usual form
    named = "B" if op.kind == "BW" and instance.costs.split else op.kind
    assert (report.violations[0].rank, report.violations[0].op) == (rank, str(op._replace(kind=named)))


@many
@given(st.data())
def test_a_duplicate_is_named_wherever_it_stands(data):
    instance, schedule = data.draw(instances_with_schedules())
    rank, _, op = pick(data, schedule)
    broken, _ = inserted(data, schedule, rank, op)
    report = verify(broken, instance)
    assert dict(report.counts) == {"V102": 1}
    assert (report.violations[0].rank, report.violations[0].op) == (rank, str(op))


@many
@given(st.data())
def test_an_op_that_does_not_exist_is_named(data):
    instance, schedule = data.draw(instances_with_schedules())
    rank = data.draw(st.integers(0, instance.ranks - 1))
    wrong = data.draw(
        st.sampled_from(
            [
                Op("F", instance.stages, 0),
                Op("B", 0, instance.microbatches),
                Op("W", -1, 0),
                Op("BW", 0, -1),
                Op("X", 0, 0),
            ]
        )
    )
    broken, at = inserted(data, schedule, rank, wrong)
    report = verify(broken, instance)
    assert dict(report.counts) == {"V103": 1}
    assert (report.violations[0].rank, report.violations[0].position, report.violations[0].op) == (rank, at, str(wrong))


@many
@given(st.data())
def test_an_op_moved_to_another_rank_is_named(data):
    instance, schedule = data.draw(instances_with_schedules())
    assume(instance.ranks > 1)
    rank, position, op = pick(data, schedule)
    other = data.draw(st.integers(0, instance.ranks - 1).filter(lambda r: r != rank))
    broken, at = inserted(data, without(schedule, rank, position, op), other, op)
    report = verify(broken, instance)
    assert dict(report.counts) == {"V104": 1}
    violation = report.violations[0]
    assert (violation.rank, violation.position, violation.op) == (other, at, str(op))
    assert violation.witness == {"belongs_on": rank}


@many
@given(st.data())
def test_a_whole_backward_next_to_its_halves_is_named(data):
    instance, schedule = data.draw(instances_with_schedules(max_microbatches=2))
    rank, _, op = pick(data, schedule, lambda op: op.kind == "B")
    broken, _ = inserted(data, schedule, rank, op._replace(kind="BW"))
    report = verify(broken, instance)
    assert dict(report.counts) == {"V105": 1}
    assert (report.violations[0].rank, report.violations[0].op) == (rank, str(op._replace(kind="BW")))


@many
@given(st.data())
def test_halves_are_named_where_backwards_cannot_be_split(data):
    instance, schedule = data.draw(instances_with_schedules())
    halves = sum(op.kind in ("B", "W") for _, _, op in schedule.ops())
    assume(halves)
    fused = replace(instance, costs=replace(instance.costs, split=False))
    assert dict(verify(schedule, fused).counts) == {"V106": halves}


@many
@given(st.data())
def test_a_pair_of_one_microbatch_is_named(data):
    instance, schedule = data.draw(instances_with_schedules(pairs=False))
    rank, position, op = pick(data, schedule, lambda op: op.kind in ("B", "BW") and op.stage == instance.stages - 1)
    forward = Op("F", op.stage, op.microbatch)
    alone = without(schedule, rank, position, op)
    pair = Overlap(forward, op)

    def change(order):
        order[order.index(forward)] = pair

    report = verify(edit(alone, rank, change), instance)
    assert report.counts["V107"] == 1
    assert report.violations[0].op == str(pair)
    assert report.facts.makespan is None
    # what passed between the two in the order of their rank may now be late for others, but only as order faults
    assert set(report.counts) <= {"V107", "V201", "V202"}


@many
@given(st.data())
def test_an_input_moved_behind_its_op_is_named(data):
    instance, schedule = data.draw(instances_with_schedules(pairs=False))
    need = data.draw(st.sampled_from([n for n in Case(schedule, instance).needs() if n.at.rank == n.source.rank]))

    def change(order):
        order.insert(need.at.position, order.pop(need.source.position))

    report = verify(edit(schedule, need.at.rank, change), instance)
    assert set(report.counts) <= {"V201", "V202"}
    broken = [v for v in report.violations if v.rule == "V201" and v.op == str(need.op)]
    assert [v.witness["needs"] for v in broken] == [str(need.needs)]
    assert broken[0].rank == need.at.rank


@many
@given(st.data())
def test_a_cap_one_below_the_peak_is_broken_where_it_is(data):
    instance, schedule = data.draw(instances_with_schedules())
    peak = verify(schedule, instance).facts.peak
    rank = data.draw(st.integers(0, instance.ranks - 1))
    caps = tuple(top - (r == rank) for r, top in enumerate(peak))
    try:
        tight = instance.with_cap(caps)
    except InstanceError:
        assume(False)
    report = verify(schedule, tight)
    assert dict(report.counts) == {"V301": 1}
    violation = report.violations[0]
    assert violation.rank == rank
    assert violation.witness["level"] == violation.witness["peak"] == peak[rank]
    assert parse_member(schedule, violation)


def parse_member(schedule, violation):
    """Whether the op that a violation names stands where it says."""
    return violation.op in map(str, members(schedule.orders[violation.rank][violation.position]))


@many
@given(st.data())
def test_a_start_one_too_early_is_named(data):
    instance, schedule = data.draw(instances_with_schedules())
    starts = [list(row) for row in Case(schedule, instance).run.starts]
    places = [(r, i) for r, row in enumerate(starts) for i in range(len(row))]
    rank, position = data.draw(st.sampled_from(places))
    starts[rank][position] -= 1
    report = verify(schedule, instance, timeline=starts)
    expected = set()
    if starts[rank][position] < 0:
        expected.add("V404")
    for u, v, w in edges(schedule, instance):
        if v == (rank, position) and starts[u[0]][u[1]] + w > starts[rank][position]:
            expected.add("V402" if u == (rank, position - 1) else "V403" if u[0] != rank else "V402")
    assert set(report.counts) == expected
    assert expected
    assert all((v.rank, v.position) == (rank, position) for v in report.violations)


@many
@given(st.data())
def test_the_ranks_with_wrong_ops_are_those_whose_figures_are_withheld(data):
    instance, schedule = data.draw(instances_with_schedules())
    orders = [list(order) for order in schedule.orders]
    for _ in range(data.draw(st.integers(1, 3))):
        rank = data.draw(st.integers(0, instance.ranks - 1))
        match data.draw(st.sampled_from(["drop", "copy", "move"])):
            case "drop" if orders[rank]:
                orders[rank].pop(data.draw(st.integers(0, len(orders[rank]) - 1)))
            case "copy" if orders[rank]:
                orders[rank].append(data.draw(st.sampled_from(orders[rank])))
            case "move" if orders[rank]:
                to = data.draw(st.integers(0, instance.ranks - 1))
                orders[to].append(orders[rank].pop(data.draw(st.integers(0, len(orders[rank]) - 1))))
    report = verify(Schedule.of(orders), instance, listed_per_rule=1000)
    # an op named by V101, V102 or V104 is wrong on the rank where it stands and on the one where it belongs
    named = set()
    for violation in report.violations:
        if violation.rule in ("V101", "V102", "V104"):
            named.add(violation.rank)
            witness = violation.witness
            named |= {rank for rank, _ in witness.get("places", [])} | {witness.get("belongs_on", violation.rank)}
    assert {rank for rank, peak in enumerate(report.facts.peak) if peak is None} == named
