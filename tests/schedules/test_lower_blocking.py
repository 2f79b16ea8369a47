"""Placing messages where transfers block."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbleproof import Instance
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.families import FAMILIES
from bubbleproof.schedules.lower import lower
from bubbleproof.schedules.placement import Placement, linear, loop, vee
from bubbleproof.verify import Verdict, verify_program

PLACED = {
    "1f1b": linear(4),
    "zb-h1": linear(4),
    "zb-h2": linear(8),
    "zb-v": vee(4),
    "interleaved-1f1b": loop(4, 2),
    "looped-bfs": loop(4, 2),
    "dualpipev": vee(4),
}


def instance(placement: Placement, m: int, f: int, b: int, w: int, comm: int) -> Instance:
    costs = Costs.make(placement.stages, F=f, B=b, W=w, comm=comm)
    return Instance(placement, m, costs, Memory.make(placement.stages, placement.ranks))


@pytest.mark.parametrize(
    ("family", "before", "after"),
    [("zb-h1", 706, 575), ("zb-h2", 815, 621), ("zb-v", 1407, 1132), ("interleaved-1f1b", 1683, 1180)],
)
def test_waiting_for_blocking_transfers_shrinks(family: str, before: int, after: int) -> None:
    case = instance(PLACED[family], 16, 10, 10, 10, 1)
    schedule = FAMILIES[family].build(case)
    for blocking, most in ((False, before), (True, after)):
        program = lower(schedule, case, blocking=blocking)
        channel = verify_program(program, case, channel="rendezvous-rank").channel
        assert channel is not None
        assert channel.makespan == most


@given(
    st.sampled_from(sorted(PLACED)),
    st.integers(0, 3),
    st.integers(0, 5),
    st.integers(0, 5),
    st.integers(0, 5),
    st.integers(0, 4),
)
def test_the_result_is_safe_and_never_longer(family: str, more: int, f: int, b: int, w: int, comm: int) -> None:
    case = instance(PLACED[family], 8 + 4 * more, f, b, w, comm)
    schedule = FAMILIES[family].build(case)
    made = {}
    for blocking in (False, True):
        program = lower(schedule, case, blocking=blocking)
        assert program.schedule == schedule
        report = verify_program(program, case, channel="rendezvous-rank")
        assert report.verdict is Verdict.PROVED
        assert report.channel is not None
        made[blocking] = report.channel.makespan
    assert made[True] is not None
    assert made[False] is not None
    assert made[True] <= made[False]
