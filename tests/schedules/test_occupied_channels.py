"""Messages that occupy a channel go one after the other: the timeline, the judge and the solver agree on when."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbleproof.schedules.align import align
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import FormatError, InstanceError, ScheduleError
from bubbleproof.schedules.formats import instance_toml
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Op
from bubbleproof.schedules.placement import bidirectional, custom, linear, vee
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import replay
from bubbleproof.solver import solve
from bubbleproof.solver.bounds import lower_bounds
from bubbleproof.solver.flat import Flat, least_span, replay_flat
from bubbleproof.verify import Verdict, verify
from bubbleproof.verify.certificate import check
from bubbleproof.verify.strategies import instances_with_schedules, schedules
from tests import occupied

OCCUPIED = {"channels": ("pair", "rank")}


def two_ranks(channel: str, comm: int = 3) -> Instance:
    return Instance(linear(2), 2, Costs.make(2, F=1, B=1, comm=comm, channel=channel), Memory.make(2, 2))


ONE_F_ONE_B = Schedule.parse(["0F0 0F1 0BW0 0BW1", "1F0 1BW0 1F1 1BW1"])


def test_the_second_message_of_a_pair_of_ranks_waits_for_the_first():
    """F0 ends at 1 and its message at 4; that of F1, ready at 2, starts at 4 and ends at 7."""
    assert replay(ONE_F_ONE_B, two_ranks("latency")).starts[1] == (4, 5, 6, 7)
    assert replay(ONE_F_ONE_B, two_ranks("pair")).starts[1] == (4, 5, 7, 8)


def test_a_rank_queue_holds_back_messages_to_other_ranks_too():
    """Rank 1 sends F1 forward before BW0's gradient back, on one queue or on two."""
    schedule = Schedule.parse(["0F0 0F1 0BW0 0BW1", "1F0 1F1 1BW0 1BW1", "2F0 2BW0 2F1 2BW1"])
    times = {}
    for channel in ("latency", "pair", "rank"):
        costs = Costs.make(3, F=1, B=1, comm={(0, 1): 0, (1, 2): 9, (2, 1): 0}, channel=channel)
        times[channel] = replay(schedule, Instance(linear(3), 2, costs, Memory.make(3, 3)))
    assert times["latency"].makespan < times["pair"].makespan <= times["rank"].makespan
    # message of 1F1 on 1→2 goes from 11 to 20; the gradient of 1BW0 is ready at 14 and leaves at once or at 20
    assert times["pair"].starts[0][2] == 14
    assert times["rank"].starts[0][2] == 20


def test_the_judge_refuses_a_start_that_only_a_free_channel_allows():
    instance = two_ranks("pair")
    starts = [list(row) for row in replay(ONE_F_ONE_B, instance).starts]
    assert verify(ONE_F_ONE_B, instance, timeline=starts).verdict is Verdict.PROVED
    starts[1][2] -= 1
    report = verify(ONE_F_ONE_B, instance, timeline=starts)
    assert [(v.rule, v.rank, v.position) for v in report.violations] == [("V403", 1, 2)]
    assert "waits 2 for earlier ones and its message takes 3" in report.violations[0].message
    assert verify(ONE_F_ONE_B, two_ranks("latency"), timeline=starts).verdict is Verdict.PROVED
    assert "one after the other" in report.assumptions[0]


@settings(max_examples=80)
@given(instances_with_schedules(**OCCUPIED))
def test_replay_judge_and_a_naive_graph_agree(case):
    instance, schedule = case
    timeline = replay(schedule, instance)
    assert [list(row) for row in timeline.starts] == occupied.soon(schedule, instance)
    facts = verify(schedule, instance, timeline=timeline.starts).facts
    assert (facts.makespan, facts.span) == (timeline.makespan, timeline.span)
    aligned = align(schedule, instance)
    assert aligned.span == occupied.least_span(schedule, instance)
    report = verify(schedule, instance, timeline=aligned.starts, claims={"span": aligned.span})
    assert report.verdict is Verdict.PROVED


@settings(max_examples=100)
@given(instances_with_schedules(pairs=False, fused=False, overlap=False, **OCCUPIED))
def test_queues_of_the_solver_give_the_same_times(case):
    instance, schedule = case
    flat = Flat(instance)
    orders = flat.orders(schedule)
    schedule = flat.schedule(orders)
    times = replay_flat(flat, orders)
    if times is None:  # renaming to microbatch order is only safe for valid orders; these are
        raise AssertionError("deadlock")
    assert times.makespan == replay(schedule, instance).makespan
    assert least_span(flat, orders).span == align(schedule, instance).span


@settings(max_examples=100)
@given(instances_with_schedules(pairs=False, **OCCUPIED))
def test_a_channel_only_delays(case):
    """So every timeline under a channel is one without, and every lower bound stays one."""
    instance, schedule = case
    timeline = replay(schedule, instance)
    free = {channel: instance.with_(costs=_with(instance.costs, channel)) for channel in ("latency", "pair", "rank")}
    found = [replay(schedule, free[channel]).makespan for channel in ("latency", "pair", "rank")]
    assert found == sorted(found)
    assert verify(schedule, free["latency"], timeline=timeline.starts).verdict is Verdict.PROVED


def _with(costs: Costs, channel: str) -> Costs:
    from dataclasses import replace

    return replace(costs, channel=channel)


@settings(max_examples=60)
@given(st.data())
def test_on_one_route_repeating_without_a_barrier_has_the_least_span_as_its_period(data):
    """All messages of an iteration have arrived when the first rank's first forward of the next one starts."""
    placement = data.draw(st.sampled_from([linear(2), linear(3), vee(2), custom([0, 1, 0, 1])]))
    costs = Costs.make(
        placement.stages,
        F=data.draw(st.integers(1, 4)),
        B=data.draw(st.integers(1, 4)),
        comm=data.draw(st.integers(0, 6)),
        channel=data.draw(st.sampled_from(["pair", "rank"])),
    )
    instance = Instance(placement, 2, costs, Memory.make(placement.stages, placement.ranks))
    schedule = data.draw(schedules(instance, pairs=False))
    span = align(schedule, instance).span
    first, second = (occupied.repeated(schedule, instance, n) for n in (7, 13))
    assert span - 1 < Fraction(second - first, 6) <= span


def every_order(instance: Instance, rank: int):
    """All orders of one rank that keep its cap, with B before W and F before both."""
    cells = [(s, j) for j in range(instance.microbatches) for s in range(instance.stages)]
    mine = [cell for cell in cells if instance.rank_of(*cell) == rank]
    kinds = ("F", *instance.costs.backward_kinds)

    def extend(order, done, level):
        if all(n == len(kinds) for n in done.values()):
            yield tuple(order)
        for s, j in mine:
            if done[s, j] < len(kinds):
                op = Op(kinds[done[s, j]], s, j)
                now = level + instance.memory.of(op.kind, s)
                if instance.memory.cap is None or now <= instance.memory.cap[rank]:
                    yield from extend([*order, op], {**done, (s, j): done[s, j] + 1}, now)

    yield from extend([], dict.fromkeys(mine, 0), instance.memory.static[rank])


CASES = [
    (linear(2), 3, {"F": 1, "B": 2}, None),
    (linear(2), 2, {"F": 2, "B": 1, "W": 1}, None),
    (linear(2), 2, {"F": [1, 3], "B": 2, "W": [2, 1]}, 1),
    (linear(3), 2, {"F": 1, "B": 1}, None),
    (linear(3), 2, {"F": [2, 1, 3], "B": [1, 2, 1]}, 1),
    (custom([0, 1, 0]), 2, {"F": 1, "B": 1}, None),
    (bidirectional(2), 2, {"F": 1, "B": 2}, None),
]


@pytest.mark.parametrize(("channel", "comm"), [("pair", 5), ("rank", 2), ("rank", 5)])
@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_the_solver_is_as_good_as_all_orders_together(case, channel, objective, comm):
    """Also those out of microbatch order, which order symmetry leaves out; and no bound is above the best."""
    placement, m, times, cap = case
    costs = Costs.make(placement.stages, comm=comm, channel=channel, **times)
    instance = Instance(placement, m, costs, Memory.make(placement.stages, placement.ranks, cap=cap), objective)
    best = None
    for orders in product(*(list(every_order(instance, rank)) for rank in range(instance.ranks))):
        schedule = Schedule(orders)
        try:
            timeline = replay(schedule, instance) if objective == "makespan" else align(schedule, instance)
        except ScheduleError:  # they deadlock
            continue
        value = timeline.value()
        best = value if best is None else min(best, value)
    for bound in lower_bounds(instance):
        assert bound.value <= best
        assert check(instance, bound).accepted
    record = solve(instance, time_limit=20, workers=1).record
    assert (record.value, record.bound) == (best, best)


def test_the_file_says_what_messages_occupy():
    text = 'format = "bubbleproof-instance/1"\nmicrobatches = 2\n[placement]\nkind = "linear"\nranks = 2\n[cost]\n'
    instance = instance_toml.loads(text + 'F = 1\nB = 1\ncomm = 3\nchannel = "rank"\n')
    assert instance.costs.channel == "rank"
    assert instance_toml.loads(instance_toml.dumps(instance)) == instance
    with pytest.raises(FormatError, match=r"cost.channel = lane: none of latency, pair, rank"):
        instance_toml.loads(text + 'F = 1\nB = 1\nchannel = "lane"\n')
    with pytest.raises(InstanceError, match=r"cost\.channel = 'lane' is none of latency, pair, rank"):
        Costs.make(2, F=1, B=1, channel="lane")


def test_messages_on_a_channel_are_nodes_of_the_graph_and_its_longest_path_is_the_makespan():
    import networkx as nx

    instance = two_ranks("pair")
    graph = ONE_F_ONE_B.dag(instance)
    assert graph.edges["0F0→1F0", "0F1→1F1"]["kinds"] == "channel"
    assert graph.nodes["0F0→1F0"] == {"channel": "0→1", "duration": 3}
    for source, target, found in graph.edges(data=True):
        found["weight"] = graph.nodes[source]["duration"] + found["delay"]
        assert target
    path = nx.dag_longest_path_length(graph)
    timeline = replay(ONE_F_ONE_B, instance)
    assert path + 1 == timeline.makespan
    # through the message of 0F0, for which that of 0F1 waits
    assert list(map(str, timeline.critical_path)) == ["0F0", "1F1", "1BW1", "0BW1"]
