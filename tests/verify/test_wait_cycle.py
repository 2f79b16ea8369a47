"""The wait cycle of a deadlock closes, and none has fewer ranks: against another library on the same graph."""

import networkx as nx
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbleproof.schedules.lower import lower
from bubbleproof.schedules.program import CHANNELS, Program, Transfer
from bubbleproof.verify.exchange import ProgramCase, Setting
from bubbleproof.verify.wait_cycle import wait_cycle
from tests.strategies import instances_with_schedules


def fewest_ranks(graph, stuck):
    """The least number of changes of rank on any closed walk among what is stuck."""
    walks = nx.DiGraph()
    for node in stuck:
        for edge in graph.before[node]:
            if edge.needs in stuck:
                walks.add_edge((node, edge.rank), (edge.needs, edge.rank), weight=0)
        if len(graph.places[node]) == 2:
            one, other = (place.rank for place in graph.places[node])
            walks.add_edge((node, one), (node, other), weight=1)
            walks.add_edge((node, other), (node, one), weight=1)
    # a message cannot close a circle with itself alone: go on from where it has been entered
    best = None
    for node in stuck:
        if len(graph.places[node]) == 2:
            for here, there in [(0, 1), (1, 0)]:
                start = (node, graph.places[node][here].rank)
                end = (node, graph.places[node][there].rank)
                rest = walks.copy()
                rest.remove_edges_from([(start, end), (end, start)])
                if start in rest and end in rest and nx.has_path(rest, start, end):
                    length = 1 + nx.shortest_path_length(rest, start, end, weight="weight")
                    best = length if best is None else min(best, length)
    return best


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_cycle_found_has_the_fewest_ranks(data):
    instance, schedule = data.draw(instances_with_schedules(max_ranks=4, max_chunks=2, max_microbatches=4))
    rows = [list(row) for row in lower(schedule, instance).rows]
    for row in rows:
        for _ in range(data.draw(st.integers(0, 3))):
            places = [p for p, action in enumerate(row) if isinstance(action, Transfer)]
            if places:
                row.insert(data.draw(st.integers(0, len(row) - 1)), row.pop(data.draw(st.sampled_from(places))))
    case = ProgramCase(Program.of(rows), instance, Setting(data.draw(st.sampled_from(CHANNELS))))
    if not case.progress.stuck:
        return
    hops, exhaustive = wait_cycle(case.graph, case.progress)
    assert exhaustive
    stuck = {node for node, start in enumerate(case.progress.starts) if start is None}
    assert len(hops) == fewest_ranks(case.graph, stuck)
    for hop, after in zip(hops, [*hops[1:], hops[0]], strict=True):
        assert hop.at.rank == hop.behind.rank
        # what one rank waits at and what the next is behind are the two ends of one message
        assert any({hop.at, after.behind} == set(places) for places in case.graph.places)
        assert hop.at.rank != after.at.rank
