"""Schedules of the MPMD runtimes for JAX as files."""

from __future__ import annotations

import json

import pytest

from bubbleproof import Instance
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.families import FAMILIES
from bubbleproof.schedules.formats.jax_mpmd import loads_grid, loads_tasks, write_grid, write_tasks
from bubbleproof.schedules.placement import Placement, bidirectional, custom, linear, loop, vee
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import replay


def instance(placement: Placement, m: int = 4) -> Instance:
    stages = placement.stages
    return Instance(placement, m, Costs.make(stages, F=3, B=4, W=2, comm=1), Memory.make(stages, placement.ranks))


@pytest.mark.parametrize(
    ("family", "placement"),
    [("1f1b", linear(3)), ("zb-h1", linear(4)), ("zb-v", vee(2)), ("interleaved-1f1b", loop(2, 2))],
)
def test_a_grid_holds_the_schedule(family: str, placement: Placement) -> None:
    given = instance(placement)
    schedule = FAMILIES[family].build(given)
    assert loads_grid(write_grid(replay(schedule, given)), "x") == schedule


@pytest.mark.parametrize(("family", "placement"), [("1f1b", linear(3)), ("interleaved-1f1b", loop(2, 2))])
def test_tasks_hold_the_schedule(family: str, placement: Placement) -> None:
    given = instance(placement)
    schedule = FAMILIES[family].build(given)
    assert loads_tasks(write_tasks(replay(schedule, given)), "x") == schedule


def test_a_grid_holds_a_schedule_of_an_instance_that_allows_recompute_and_uses_none() -> None:
    given = instance(linear(2))
    given = given.with_(costs=Costs.make(2, F=3, B=4, W=2, R=3), memory=Memory.make(2, 2, F=3, B=-2, W=-1, R=2))
    schedule = FAMILIES["1f1b"].build(given)
    assert loads_grid(write_grid(replay(schedule, given)), "x") == schedule


def test_what_the_runtimes_cannot_express_is_refused() -> None:
    uneven = instance(custom([0, 0, 1]), 1)
    order = Schedule.parse(["0F0 1F0 1BW0 0BW0", "2F0 2BW0"])
    with pytest.raises(FormatError, match=r"equally many stages .* \[2, 1\]"):
        write_grid(replay(order, uneven))
    assert loads_tasks(write_tasks(replay(order, uneven)), "x") == order
    late = instance(linear(2), 1)
    with pytest.raises(FormatError, match=r"0B0: on stage 0 JaxPP wants W right after B; write 0BW0"):
        write_tasks(replay(Schedule.parse(["0F0 0B0 0W0", "1F0 1B0 1W0"]).parse(["0F0 0B0", "1F0 1B0 1W0"]), late))
    swapped = instance(linear(2), 2)
    with pytest.raises(FormatError, match="0F0 after 0F1"):
        write_tasks(replay(Schedule.parse(["0F1 0F0 0BW0 0BW1", "1F0 1BW0 1F1 1BW1"]), swapped))
    both = instance(bidirectional(2), 2)
    with pytest.raises(FormatError, match=r"two for each\. Nearest: a vee on 2 ranks"):
        write_grid(replay(FAMILIES["chimera"].build(both), both))


GRID = {
    "format": "spectrax-grid/1",
    "rank_of_stage": [0, 1],
    "microbatches": 1,
    "rows": [[["FWD", 0, 0], None], [None, ["FWD", 0, 0]], [None, ["BWD", 0, 0]], [["BWD", 0, 0], None]],
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "format = 'other'"),
        ({"rows": [[["FWD", 0, 0]]]}, "row 0 has 1 cells for 2 ranks"),
        ({"rows": [[["FWD", 0, 3], None]]}, "no virtual stage 3"),
        ({"rows": [[["FWD", -1, 0], None]]}, "microbatch -1"),
        ({"rows": [[["FORWARD", 0, 0], None]]}, "Invalid enum value"),
        ({"more": 1}, "unknown field"),
        ({"rank_of_stage": [0, -1]}, r"rank_of_stage\[1\] = -1"),
    ],
)
def test_a_grid_that_is_none_is_refused_with_the_place(change: dict[str, object], message: str) -> None:
    assert str(loads_grid(json.dumps(GRID), "g.json")) == "0F0 0BW0\n1F0 1BW0"
    with pytest.raises(FormatError, match=message):
        loads_grid(json.dumps({**GRID, **change}), "g.json")
