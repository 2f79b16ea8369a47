"""Second objectives: least peak and fewest splits at the best value, against all schedules of tiny instances."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import BubbleproofError, ScheduleError
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Op
from bubbleproof.schedules.placement import custom, linear, vee
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.solver import solve
from bubbleproof.solver.measure import timeline_of
from bubbleproof.verify import Verdict, verify
from bubbleproof.verify.certificate import check


def orders(instance: Instance, rank: int) -> Iterator[tuple[Op, ...]]:
    """Every order of one rank in microbatch order, each backward split or fused."""
    stages = [s for s in range(instance.stages) if instance.rank_of(s, 0) == rank]
    m, start = instance.microbatches, dict.fromkeys(stages, (0, 0, ()))

    def extend(order: tuple[Op, ...], states: dict[int, tuple[int, int, tuple[int, ...]]]) -> Iterator[tuple[Op, ...]]:
        if all(state == (m, m, ()) for state in states.values()):
            yield order
        for s, (f, b, pending) in states.items():
            steps = [(Op("F", s, f), (f + 1, b, pending))] if f < m else []
            if b < f:
                steps.append((Op("BW", s, b), (f, b + 1, pending)))
                if instance.costs.split:
                    steps.append((Op("B", s, b), (f, b + 1, (*pending, b))))
            if pending:
                steps.append((Op("W", s, pending[0]), (f, b, pending[1:])))
            for op, then in steps:
                yield from extend((*order, op), {**states, s: then})

    yield from extend((), start)


def figures(instance: Instance) -> list[tuple[int, int, int]]:
    """(value, largest peak, splits) of every schedule that keeps the cap."""
    found = []
    for rows in product(*(list(orders(instance, rank)) for rank in range(instance.ranks))):
        schedule = Schedule(rows)
        try:
            timeline = timeline_of(schedule, instance)
        except ScheduleError:
            continue
        peak = max(peak.memory for peak in timeline.peaks)
        if instance.memory.cap is None or peak <= max(instance.memory.cap):
            found.append((timeline.value(), peak, sum(op.kind == "W" for _, _, op in schedule.ops())))
    return found


def instance(placement, m, objective="makespan", memory=None, **costs) -> Instance:
    stages = placement.stages
    made = Memory.make(stages, placement.ranks, **(memory or {}))
    return Instance(placement, m, Costs.make(stages, **costs), made, objective)


TINY = [
    instance(linear(2), 3, F=1, B=2),
    instance(linear(2), 2, F=1, B=1, W=1),
    instance(linear(2), 2, "span", F=1, B=2, W=2, comm=1),
    instance(linear(2), 2, F=[1, 2], B=[2, 1], W=1, memory={"F": 3, "B": -2}),
    instance(linear(2), 2, F=2, B=1, W=3, memory={"F": 2, "B": -1, "cap": 4}),
    instance(custom([0, 1, 0]), 2, F=1, B=1, memory={"F": [1, 2, 1]}),
    instance(linear(1), 3, F=1, B=1, W=1),
]


@pytest.mark.parametrize("tiny", TINY, ids=range(len(TINY)))
@pytest.mark.parametrize("then", [("peak", "splits"), ("splits", "peak")])
def test_second_objectives_are_those_of_the_best_schedules(tiny, then):
    """In the order given: the second is the best among those that are best in the first."""
    every = figures(tiny)
    value = min(v for v, _, _ in every)
    best = [(peak, splits) if then[0] == "peak" else (splits, peak) for v, peak, splits in every if v == value]
    solution = solve(tiny, time_limit=20, workers=1, then=then)
    record = solution.record
    assert record.value == value
    assert tuple(second.name for second in record.then) == then
    found = tuple(second.value for second in record.then)
    assert found[0] == min(best)[0]
    assert found in best
    assert all(second.bound <= true for second, true in zip(record.then, min(best), strict=True))
    by_name = {second.name: second.value for second in record.then}
    assert max(record.peak) == by_name["peak"]
    assert sum(op.kind == "W" for _, _, op in solution.schedule.ops()) == by_name["splits"]
    assert verify(solution.schedule, tiny).verdict is Verdict.PROVED


def test_the_least_peak_of_zb_1p_is_certified_by_the_bound_under_the_next_lower_cap():
    """The cap of the published setting is p·M_B; nothing below it reaches the value."""
    example = Instance.load("examples/zb-1.5B-p8-m24.toml")
    capped = solve(example, time_limit=4, workers=1, then=["peak"]).record
    (second,) = capped.then
    assert (capped.level, second.level, second.value) == ("certified", "certified", max(example.memory.cap))
    below = example.with_cap(second.value - 1)
    assert second.certificate is not None
    assert second.certificate.value > capped.value
    assert check(below, second.certificate).accepted


def test_a_second_objective_is_open_if_the_first_one_is():
    example = Instance.load("examples/bidirectional-moe.toml")
    record = solve(example, time_limit=2, workers=1, then=["peak", "splits"]).record
    assert record.level == "open"
    assert [second.level for second in record.then] == ["open", "open"]
    assert max(record.peak) == record.then[0].value


def test_each_second_objective_is_asked_for_once():
    tiny = instance(vee(2), 2, F=1, B=1)
    for then in (["peak", "peak"], ["time"]):
        with pytest.raises(BubbleproofError, match="each of peak, splits at most once"):
            solve(tiny, then=then)
