"""The witness of a deadlock: a true cycle, and none has fewer waits."""

import random

import networkx as nx
import pytest

from bubbleproof.schedules.op import Op, parse_slot
from bubbleproof.schedules.placement import custom, linear, loop, vee
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.verify import verify
from tests.verify.model import inputs, pipeline


def fewest_waits(schedule, instance):
    """Shortest cycle in the graph in which going back on a rank is free and a wait costs 1."""
    at = {op: (rank, position) for rank, position, op in schedule.ops()}
    graph = nx.DiGraph()
    for rank, order in enumerate(schedule.orders):
        graph.add_weighted_edges_from(((rank, i), (rank, i - 1), 0) for i in range(1, len(order)))
    waits = [
        (place, at[needed])
        for op, place in at.items()
        for needed in inputs(op, at, instance)
        if at[needed][0] != place[0]
    ]
    graph.add_weighted_edges_from((u, v, 1) for u, v in waits)
    found = []
    for u, v in waits:
        distance = nx.single_source_dijkstra_path_length(graph, v)
        if u in distance:
            found.append(distance[u] + 1)
    return min(found, default=None)


def is_a_cycle(waits, schedule, instance):
    present = {op for _, _, op in schedule.ops()}
    for wait, following in zip(waits, (*waits[1:], waits[0]), strict=True):
        op, needed = parse_slot(wait["op"]), parse_slot(wait["needs"])
        assert needed in inputs(op, present, instance)
        assert schedule.orders[wait["rank"]][wait["position"]] == op
        assert schedule.orders[wait["needed_rank"]][wait["needed_position"]] == needed
        assert following["rank"] == wait["needed_rank"]
        assert following["position"] <= wait["needed_position"]


def random_orders(instance, chance, disorder):
    """A random topological order dealt to the ranks, then slots moved by some places."""
    ready = [Op("F", 0, j) for j in range(instance.microbatches)]
    orders = [[] for _ in range(instance.ranks)]
    while ready:
        kind, stage, j = op = ready.pop(chance.randrange(len(ready)))
        orders[instance.rank_of(stage, j)].append(op)
        if kind == "F":
            ready.append(Op("F", stage + 1, j) if stage + 1 < instance.stages else Op("BW", stage, j))
        elif stage > 0:
            ready.append(Op("BW", stage - 1, j))
    for order in orders:
        for _ in range(disorder):
            order.insert(chance.randrange(len(order)), order.pop(chance.randrange(len(order))))
    return Schedule.of(orders)


@pytest.mark.parametrize(
    ("placement", "lengths"),
    [
        (linear(4), {2}),
        (vee(3), {2}),
        (loop(3, 2), {2, 3}),
        (loop(4, 2), {2, 4}),
        (custom([0, 1, 2, 3, 1, 0, 2, 4, 0, 3]), {2, 3}),
    ],
    ids=["linear", "vee", "loop3", "loop4", "custom"],
)
def test_no_cycle_has_fewer_waits_than_the_witness(placement, lengths):
    instance = pipeline(placement=placement, m=3, F=1, B=2)
    chance = random.Random(5)
    seen = set()
    for trial in range(400):
        schedule = random_orders(instance, chance, 1 + trial % 2)
        report = verify(schedule, instance)
        if "V201" in report.counts:
            continue
        best = fewest_waits(schedule, instance)
        assert ("V202" in report.counts) == (best is not None)
        if best is not None:
            waits = report.violations[0].witness["waits"]
            is_a_cycle(waits, schedule, instance)
            assert len(waits) == best
            seen.add(best)
    assert lengths <= seen


def test_the_witness_is_the_first_cycle_of_the_lowest_rank():
    rows = ["0F0 0BW0 0F1 0BW1 0F2 0BW2", "1F1 1BW1 1F0 1BW0 1F2 1BW2"]
    waits = verify(Schedule.parse(rows), pipeline(2, 3, F=1, B=2)).violations[0].witness["waits"]
    assert [(wait["rank"], wait["position"]) for wait in waits] == [(0, 1), (1, 0)]


def test_a_deadlock_in_a_long_schedule_is_found_in_time():
    """Every second microbatch closes a cycle of its own; the search must not look at them one by one for long."""
    m = 4000
    rows = [[], []]
    for j in range(0, m, 2):
        rows[0] += [Op("F", 0, j), Op("BW", 0, j), Op("F", 0, j + 1), Op("BW", 0, j + 1)]
        rows[1] += [Op("F", 1, j + 1), Op("BW", 1, j + 1), Op("F", 1, j), Op("BW", 1, j)]
    report = verify(Schedule.of(rows), pipeline(2, m, F=1, B=2))
    assert [w["op"] for w in report.violations[0].witness["waits"]] == ["0BW0", "1F1"]
    assert report.violations[0].witness["stopped"] == [1, 0]
