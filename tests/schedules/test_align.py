import itertools
import random

import pytest

from bubbleproof.schedules.align import align
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import ScheduleError
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Op, Overlap
from bubbleproof.schedules.placement import custom, linear, vee
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import replay


def random_case(rng, placement, m):
    """A random instance and a random order of it that cannot deadlock: a random run of the pipeline."""
    stages = placement.stages

    def draw():
        return [rng.randint(0, 3) for _ in range(stages)]

    costs = Costs.make(stages, F=draw(), B=draw(), W=draw(), comm=rng.randint(0, 2))
    instance = Instance(placement, m, costs, Memory.make(stages, placement.ranks))
    done, left = set(), set(instance.ops())
    orders = [[] for _ in range(placement.ranks)]
    while left:
        ready = sorted(
            op
            for op in left
            if (op.kind == "W" and Op("B", op.stage, op.microbatch) in done)
            or (op.kind == "F" and (op.stage == 0 or Op("F", op.stage - 1, op.microbatch) in done))
            or (
                op.kind == "B"
                and Op("F", op.stage, op.microbatch) in done
                and (op.stage == stages - 1 or Op("B", op.stage + 1, op.microbatch) in done)
            )
        )
        op = rng.choice(ready)
        left.remove(op)
        done.add(op)
        orders[instance.rank_of(op.stage, op.microbatch)].append(op)
    return instance, Schedule.of(orders)


PLACEMENTS = [linear(2), linear(3), vee(2), custom([0, 1, 0])]


@pytest.mark.parametrize("seed", range(60))
def test_least_span_equals_the_best_over_all_first_starts(seed):
    rng = random.Random(seed)
    instance, schedule = random_case(rng, PLACEMENTS[seed % 4], 2)
    reach = range(replay(schedule, instance).makespan + 1)
    best = min(
        replay(schedule, instance, release=release).span
        for zero in range(instance.ranks)
        for rest in itertools.product(reach, repeat=instance.ranks - 1)
        for release in [(*rest[:zero], 0, *rest[zero:])]
    )
    assert align(schedule, instance).span == best


@pytest.mark.parametrize("seed", range(40))
def test_least_span_is_the_period_of_the_order_repeated_without_a_barrier(seed):
    instance, schedule = random_case(random.Random(seed), PLACEMENTS[seed % 4], 2)

    def repeated(times):
        def shifted(slot, by):
            if isinstance(slot, Overlap):
                return Overlap(shifted(slot.forward, by), shifted(slot.backward, by))
            return slot._replace(microbatch=slot.microbatch + by)

        orders = [[shifted(slot, 2 * k) for k in range(times) for slot in order] for order in schedule.orders]
        return replay(Schedule.of(orders), instance.with_(microbatches=2 * times)).makespan

    # cycles of 1, 2 or 3 ranks all return within 6 repetitions
    growth = repeated(36) - repeated(30)
    assert -(-growth // 6) == align(schedule, instance).span


def test_a_rank_that_would_wait_starts_later():
    costs = Costs.make(2, F=[1, 0], B=[1, 2], W=[0, 2])
    instance = Instance(linear(2), 2, costs, Memory.make(2, 2))
    schedule = Schedule.parse(["0F0 0F1 0B1 0W1 0B0 0W0", "1F0 1F1 1B1 1B0 1W1 1W0"])
    assert replay(schedule, instance).spans == (7, 9)
    assert align(schedule, instance).spans == (7, 8)


def test_the_soonest_timeline_is_kept_where_it_has_the_least_span():
    instance = Instance(linear(2), 1, Costs.make(2, F=1, B=[1, 9]), Memory.make(2, 2))
    schedule = Schedule.parse(["0F0 0BW0", "1F0 1BW0"])
    assert align(schedule, instance) == replay(schedule, instance)


def test_an_order_that_deadlocks_is_refused():
    instance = Instance(linear(1), 1, Costs.make(1, F=1, B=1), Memory.make(1, 1))
    with pytest.raises(ScheduleError, match="deadlock"):
        align(Schedule.parse(["0BW0 0F0"]), instance)
