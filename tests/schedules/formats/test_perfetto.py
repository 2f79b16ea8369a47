"""The Chrome trace holds every op, every message between ranks, and the memory of every rank."""

import json

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.formats import perfetto
from bubbleproof.schedules.instance import Instance, Units
from bubbleproof.schedules.placement import linear, vee
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import replay


def trace(rows, placement, microbatches, unit="us"):
    costs = Costs.make(placement.stages, F=3, B=2, W=1, comm=1)
    memory = Memory.make(placement.stages, placement.ranks, F=4, B=-1, static=10)
    instance = Instance(placement, microbatches, costs, memory, units=Units(unit, "MB"))
    return json.loads(perfetto.write(replay(Schedule.parse(rows), instance)))


def events(found, phase):
    return [event for event in found["traceEvents"] if event["ph"] == phase]


def test_each_op_is_a_slice_on_its_rank_with_its_times():
    found = trace(["0F0 0B0 0W0", "1F0 1BW0"], linear(2), 1)
    slices = {(e["tid"], e["name"]): (e["ts"], e["dur"], e["cat"]) for e in events(found, "X")}
    assert slices == {
        (0, "0F0"): (0, 3, "F"),
        (1, "1F0"): (4, 3, "F"),
        (1, "1BW0"): (7, 3, "BW"),
        (0, "0B0"): (11, 2, "B"),
        (0, "0W0"): (13, 1, "W"),
    }


def test_milliseconds_become_microseconds():
    found = trace(["0F0 0BW0"], linear(1), 1, unit="ms")
    assert [(e["ts"], e["dur"]) for e in events(found, "X")] == [(0, 3000), (3000, 3000)]


def test_an_unknown_unit_is_named():
    assert "1 of the time unit 'F'" in trace(["0F0 0BW0"], linear(1), 1, unit="F")["otherData"]["time unit"]


def test_arrows_join_ranks_and_never_ops_of_one_rank():
    found = trace(["0F0 3F0 3BW0 0BW0", "1F0 2F0 2BW0 1BW0"], vee(2), 1)
    starts, ends = events(found, "s"), events(found, "f")
    assert [e["id"] for e in starts] == [e["id"] for e in ends]
    pairs = sorted((s["tid"], e["tid"], s["name"]) for s, e in zip(starts, ends, strict=True))
    assert pairs == [(0, 1, "activation"), (0, 1, "gradient"), (1, 0, "activation"), (1, 0, "gradient")]


def test_the_memory_counter_follows_every_change():
    found = trace(["0F0 0B0 0W0"], linear(1), 1)
    assert [(e["ts"], e["args"]["held"]) for e in events(found, "C")] == [(0, 14), (5, 13), (6, 10)]
