import networkx as nx
import pytest

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import ScheduleError
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import linear
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import replay

ROWS = ["0F0 0F1 0B0 0W0 0F2 (0F3;0B1) 0W1 0B2 0W2 0BW3", "1F0 1BW0 1F1 1BW1 1F2 1BW2 1F3 1BW3"]


def make(cap=None, **memory):
    costs = Costs.make(2, F=1, B=2, W=3, comm=4, overlap_B=2)
    return Instance(linear(2), 4, costs, Memory.make(2, 2, cap=cap, **memory))


def longest(graph):
    end = {}
    for node in nx.topological_sort(graph):
        start = max((end[u] + data["delay"] for u, _, data in graph.in_edges(node, data=True)), default=0)
        end[node] = start + graph.nodes[node]["duration"]
    return max(end.values())


def test_the_longest_path_of_the_dag_is_the_makespan():
    schedule = Schedule.parse(ROWS)
    graph = schedule.dag(make())
    assert nx.is_directed_acyclic_graph(graph)
    assert longest(graph) == replay(schedule, make()).makespan


def test_edges_say_why():
    graph = Schedule.parse(ROWS).dag(make())
    assert graph.edges["0F0", "1F0"] == {"kinds": "data", "delay": 4}
    assert graph.edges["0B0", "0W0"] == {"kinds": "data+order", "delay": 0}
    assert graph.edges["0F0", "0F1"] == {"kinds": "order", "delay": 0}
    assert graph.edges["1BW1", "(0F3;0B1)"] == {"kinds": "data", "delay": 4}
    assert graph.nodes["1BW0"] == {"rank": 1, "position": 1, "duration": 5}


def test_a_memory_edge_comes_from_the_last_slot_whose_memory_is_needed():
    # the cap of 3 is needed by (0F3;0B1) only after 0W0 has given one back; one slot fewer and no edge is needed
    graph = Schedule.parse(ROWS).dag(make(cap=3))
    found = {(u, v) for u, v, data in graph.edges(data=True) if "memory" in data["kinds"] and v.startswith(("0", "("))}
    assert found == {("0W0", "(0F3;0B1)")}
    none = Schedule.parse(ROWS).dag(make(cap=4)).edges(data=True)
    assert not [1 for *_, data in none if "memory" in data["kinds"]]


def test_without_the_causing_slot_the_cap_would_be_exceeded():
    graph = Schedule.parse(ROWS).dag(make(cap=2, F=1))
    causes = {v: u for u, v, data in graph.edges(data=True) if "memory" in data["kinds"] and data["kinds"] != "data"}
    assert causes["0F2"] == "0W0"


def test_a_cyclic_schedule_has_no_dag():
    with pytest.raises(ScheduleError, match="deadlock"):
        Schedule.parse(["0B0 0F0", "1F0 1B0"]).dag(make())


def test_dot_names_every_slot_and_edge():
    schedule = Schedule.parse(ROWS, 'say "hi"')
    graph, text = schedule.dag(make()), schedule.dot(make())
    assert text.startswith('digraph "say \\"hi\\"" {')
    assert text.count(" -> ") == graph.number_of_edges()
    assert all(f'"{node}" [' in text for node in graph)


def test_graphml_reads_back_as_the_same_graph():
    schedule = Schedule.parse(ROWS)
    read = nx.parse_graphml(schedule.graphml(make()))
    graph = schedule.dag(make())
    assert dict(read.nodes(data=True)) == dict(graph.nodes(data=True))
    assert {(u, v): d for u, v, d in read.edges(data=True)} == {(u, v): d for u, v, d in graph.edges(data=True)}
