"""Stages that occupy several ranks at once: against every order of tiny instances, and against the judge."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from bubbleproof.schedules.align import align
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import FamilyError, InstanceError, ScheduleError
from bubbleproof.schedules.families import FAMILIES
from bubbleproof.schedules.formats import perfetto, torch_csv
from bubbleproof.schedules.formats.instance_toml import dumps, load, loads
from bubbleproof.schedules.graph import dag
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.lower import lower
from bubbleproof.schedules.op import Op
from bubbleproof.schedules.placement import custom
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import replay
from bubbleproof.solver.bounds import lower_bounds
from bubbleproof.solver.cpsat.window import Window
from bubbleproof.solver.cpsat.windows import Rearranging
from bubbleproof.solver.driver import solve
from bubbleproof.solver.flat import Flat, least_span, peaks, replay_flat
from bubbleproof.solver.heuristics import greedy
from bubbleproof.solver.measure import plain_is_best
from bubbleproof.solver.tuning import grid
from bubbleproof.verify import Verdict, verify
from bubbleproof.verify.certificate import Certificate, check
from bubbleproof.verify.proof import Unmodelled
from bubbleproof.verify.proof.model import build
from tests.brute import Tiny, least_makespan

LAYOUTS = (
    ([0, 0, 1], 2, (), {0: (0, 1)}),
    ([0, 1, 0], 2, (), {2: (0, 1)}),
    ([0, 0, 1], 2, ((0, 1), (0, 2)), {0: (0, 1)}),
    ([0, 1, 0], 2, ((0, 2), (1, 2)), {2: (0, 1)}),
    ([0, 2, 0], 3, (), {0: (0, 1), 2: (0, 2)}),
    ([0, 1, 0], 3, (), {0: (0, 1, 2), 1: (1, 2)}),
)


def posed(rng: random.Random, m: int) -> Instance:
    """A small instance with gangs: unequal stages, messages, at times a cap, at times unlike microbatches."""
    where, ranks, edges, gangs = rng.choice(LAYOUTS)
    split = rng.random() < 0.5

    def figures(low: int, high: int, varied: bool):
        return [
            [rng.randint(low, high) for _ in range(m)] if varied and rng.random() < 0.4 else rng.randint(low, high)
            for _ in where
        ]

    varied = not split and rng.random() < 0.4
    costs = Costs.make(
        3,
        F=figures(0, 3, varied),
        B=figures(0, 3, varied),
        W=figures(0, 2, varied) if split else None,
        comm={(a, b): rng.randint(0, 2) for a in range(ranks) for b in range(ranks) if a != b},
    )
    memory = Memory.make(3, ranks, F=figures(0, 3, varied), B=None)
    objective = rng.choice(["makespan", "span"])
    instance = Instance(custom(where, ranks, edges, gangs), m, costs, memory, objective)
    if rng.random() < 0.4:
        return instance
    need = [max(instance.least_memory(r, microbatch=j, split=split) for j in range(m)) for r in range(ranks)]
    return instance.with_cap(tuple(x + rng.randint(0, 3) for x in need))


def random_order(instance: Instance, rng: random.Random) -> Schedule:
    """Any order that runs."""
    tiny, ends = Tiny(instance), {}
    orders: list[list[Op]] = [[] for _ in range(instance.ranks)]
    while jobs := [job for job in tiny.next_jobs(ends) if tiny.inputs(job, ends) is not None]:
        job = rng.choice(jobs)
        ends[job] = 0
        for rank in tiny.ranks(job[1], job[2]):
            orders[rank].append(Op(*job))  # type: ignore[arg-type]
    return Schedule.of(orders)


@pytest.mark.parametrize("seed", range(24))
def test_what_is_called_optimal_is_the_least_of_all_orders(seed):
    instance = posed(random.Random(seed), 2).with_(objective="makespan")
    least = least_makespan(instance)
    for certificate in lower_bounds(instance):
        assert certificate.value <= least, certificate
    record = solve(instance, time_limit=10, workers=1).record
    assert record.bound <= least <= record.value
    if plain_is_best(instance):
        assert record.value == least
        assert record.level != "open"


@pytest.mark.parametrize("seed", range(60))
def test_the_judge_and_the_replay_agree_on_every_order(seed):
    rng = random.Random(seed)
    instance = posed(rng, 3)
    for _ in range(4):
        schedule = random_order(instance, rng)
        line = replay(schedule, instance)
        facts = verify(schedule, instance).facts
        assert (facts.makespan, facts.span) == (line.makespan, line.span)
        assert facts.peak == tuple(peak.memory for peak in line.peaks)
        best = align(schedule, instance)
        assert best.span <= line.span
        assert verify(schedule, instance, timeline=best.starts).counts.keys() <= {"V301"}
        for certificate in lower_bounds(instance):
            proved = check(instance, certificate).proved
            assert proved is not None
            if all(p <= c for p, c in zip(facts.peak, instance.memory.cap or facts.peak, strict=True)):
                assert proved <= (best.span if instance.objective == "span" else line.makespan)


@pytest.mark.parametrize("seed", range(40))
def test_queues_are_timed_like_the_schedule_and_the_greedy_keeps_the_caps(seed):
    instance = posed(random.Random(seed), 4)
    flat = Flat(instance)
    for knobs in list(grid(flat))[::7]:
        orders = greedy(flat, knobs)
        if orders is None:
            continue
        schedule = flat.schedule(orders)
        times, least = replay_flat(flat, orders), least_span(flat, orders)
        assert times is not None
        assert least is not None
        assert (times.makespan, least.span) == (replay(schedule, instance).makespan, align(schedule, instance).span)
        assert [list(row) for row in times.rows(orders)] == [list(r) for r in replay(schedule, instance).ends]
        assert flat.cap is None or all(x <= cap for x, cap in zip(peaks(flat, orders), flat.cap, strict=True))
        assert verify(schedule, instance).verdict is Verdict.PROVED


@pytest.mark.parametrize("seed", range(12))
def test_the_span_that_is_found_is_at_least_the_bound_and_no_order_is_below_it(seed):
    rng = random.Random(seed)
    instance = posed(rng, 2).with_(objective="span")
    record = solve(instance, time_limit=20, workers=1).record
    schedules = [random_order(instance, rng) for _ in range(60)]
    fitting = [s for s in schedules if verify(s, instance).verdict is Verdict.PROVED]
    assert record.bound <= min([record.value, *(align(s, instance).span for s in fitting)])


@pytest.mark.parametrize("seed", range(8))
def test_windows_of_orders_with_joint_ops_give_orders_that_run(seed):
    rng = random.Random(seed)
    instance = posed(rng, 12)
    flat = Flat(instance)
    knobs = next(k for k in grid(flat) if greedy(flat, k) is not None)
    orders = greedy(flat, knobs)
    times = replay_flat(flat, orders)
    low = rng.randrange(times.makespan)
    wide = times.makespan // 3
    window = Window(flat, orders, times, [0] * flat.ranks, low, low + wide, times.makespan, True)
    answer = Rearranging(window, seed, 2.0, 10.0).ask()
    assert answer.verdict == "found"
    again = replay_flat(flat, answer.orders)
    assert again.makespan <= times.makespan
    assert verify(flat.schedule(answer.orders), instance).verdict is Verdict.PROVED


def embedded(m: int = 1) -> Instance:
    """An embedding on both ranks, then one stage on each."""
    return Instance(custom([0, 0, 1], 2, gangs={0: (0, 1)}), m, Costs.make(3, F=1, B=1), Memory.make(3, 2))


RIGHT = "0F0 1F0 1BW0 0BW0", "0F0 2F0 2BW0 0BW0"


def test_an_op_of_several_ranks_starts_when_all_of_them_are_free():
    instance = embedded(2)
    line = replay(
        Schedule.parse(["0F0 1F0 0F1 1F1 1BW0 1BW1 0BW0 0BW1", "0F0 0F1 2F0 2BW0 2F1 2BW1 0BW0 0BW1"]), instance
    )
    assert line.starts == ((0, 1, 2, 3, 5, 7, 8, 9), (0, 2, 3, 4, 5, 6, 8, 9))
    assert line.makespan == 10
    assert line.busy == (8, 8)


def test_ranks_that_come_to_two_joint_ops_in_different_orders_deadlock():
    instance = embedded(2)
    rows = ["0F0 0F1 1F0 1F1 1BW0 1BW1 0BW0 0BW1", "0F1 0F0 2F0 2BW0 2F1 2BW1 0BW0 0BW1"]
    report = verify(Schedule.parse(rows), instance)
    assert report.counts == {"V202": 1}
    assert (
        "rank 0 waits at 0F0 (position 0) for 0F1 of rank 1, which waits at 0F1 (position 0) for 0F0 of"
        in report.violations[0].message
    )
    with pytest.raises(ScheduleError, match="deadlock"):
        replay(Schedule.parse(rows), instance)


@pytest.mark.parametrize(
    ("rows", "counts", "words"),
    [
        (["0F0 1F0 1BW0 0BW0", "2F0 2BW0 0BW0"], {"V101": 1}, "0F0 is missing on rank 1, on which its stage runs"),
        (["0F0 1F0 1BW0 0BW0", "0F0 2F0 2BW0"], {"V101": 1}, "0BW0 is missing on rank 1"),
        (["1F0 1BW0 0BW0", "2F0 2BW0 0BW0"], {"V101": 2}, "0F0 is missing on rank 0"),
        (["0F0 1F0 1BW0 0BW0", "0F0 0F0 2F0 2BW0 0BW0"], {"V102": 1}, "0F0 occurs 2 times"),
        (["0F0 1F0 2F0 2BW0 1BW0 0BW0", "0F0 0BW0"], {"V104": 2}, "stands on rank 0"),
        (["0F0 1F0 1BW0 0BW0", "2F0 0F0 2BW0 0BW0"], {"V202": 1}, "deadlock"),
    ],
)
def test_what_is_wrong_with_a_copy_is_named(rows, counts, words):
    report = verify(Schedule.parse(rows), embedded())
    assert report.counts == counts
    assert words in report.violations[0].message
    with pytest.raises(ScheduleError):
        replay(Schedule.parse(rows), embedded())


def test_copies_that_start_apart_are_refused():
    schedule = Schedule.parse(list(RIGHT))
    assert verify(schedule, embedded(), timeline=[[0, 1, 4, 5], [0, 2, 3, 5]]).verdict is Verdict.PROVED
    report = verify(schedule, embedded(), timeline=[[0, 1, 4, 6], [0, 2, 3, 5]])
    assert report.counts == {"V406": 1}
    assert report.violations[0].message == "0BW0 runs on ranks 0, 1 at once, but starts at 6 on rank 0, at 5 on rank 1"


def test_memory_of_a_joint_op_counts_on_every_rank():
    instance = embedded(2).with_(memory=Memory.make(3, 2, F=[2, 1, 1], B=[-2, -1, -1], cap=3))
    twice = Schedule.parse(["0F0 0F1 1F0 1F1 1BW0 1BW1 0BW0 0BW1", "0F0 0F1 2F0 2BW0 2F1 2BW1 0BW0 0BW1"])
    assert verify(twice, instance).counts == {"V301": 2}
    record = solve(instance, time_limit=10, workers=1).record
    assert (record.value, record.peak) == (12, (3, 3))
    assert record.level != "open"


def test_pictures_and_graphs_show_every_copy():
    line = replay(Schedule.parse(list(RIGHT)), embedded())
    assert [(t.sent, t.received) for t in line.traffic] == [(2, 2), (2, 2)]
    assert ("0F0", "2F0") in dag(line.schedule, line.instance).edges
    assert "0BW0" in perfetto.write(line)


def test_an_instance_with_gangs_is_read_and_written():
    text = """format = "bubbleproof-instance/1"
microbatches = 2
[placement]
kind = "custom"
ranks = 3
rank_of_stage = [0, 1]
gangs = { "1" = [1, 2] }
[cost]
F = 1
B = 2
"""
    instance = loads(text)
    assert instance.placement == custom([0, 1], 3, gangs={1: (1, 2)})
    assert instance.placement.groups == ((0,), (1, 2))
    assert loads(dumps(instance)) == instance
    assert instance.work == (6, 6, 6)


@pytest.mark.parametrize(
    ("gangs", "message"),
    [
        ({3: (0, 1)}, r"stage 3, but stages are 0 … 2"),
        ({0: (0, 2)}, r"stage 0 is on rank 2, but ranks are 0 … 1"),
        ({0: (1,)}, r"ascending from rank 0"),
        ({0: (0, 0, 1)}, r"different ranks"),
    ],
)
def test_gangs_that_do_not_fit_the_placement_are_refused(gangs, message):
    with pytest.raises(InstanceError, match=message):
        custom([0, 0, 1], 2, gangs=gangs)


def test_a_gang_of_one_rank_is_a_stage_like_any_other():
    assert custom([0, 1], 2, gangs={0: (0,)}) == custom([0, 1], 2)


@pytest.mark.parametrize(
    "act",
    [
        lambda instance, schedule: lower(schedule, instance),
        lambda instance, schedule: torch_csv.dumps(schedule, instance),
        lambda instance, schedule: verify(schedule, instance, target="torch"),
    ],
)
def test_what_cannot_express_gangs_refuses_them(act):
    with pytest.raises(
        InstanceError, match=r"needs every stage on one rank; here stage 0 occupies ranks 0, 1\. Nearest: "
    ):
        act(embedded(), Schedule.parse(list(RIGHT)))


def test_proofs_families_pairs_and_channels_know_no_gangs():
    with pytest.raises(Unmodelled, match=r"placement.groups"):
        build(embedded(), 5)
    for family in FAMILIES.values():
        assert family.applicable(embedded()) == "needs every stage on one rank"
        with pytest.raises(FamilyError, match="needs every stage on one rank"):
            family.build(embedded())
    with pytest.raises(InstanceError, match="neither overlapped pairs nor recompute"):
        embedded().with_(costs=Costs.make(3, F=1, B=1, overlap_BW=1))
    with pytest.raises(InstanceError, match="cannot occupy channels"):
        embedded().with_(costs=Costs.make(3, F=1, B=1, channel="pair"))


def test_the_example_with_a_shared_embedding_is_solved():
    posed_by_file = load(Path(__file__).parents[2] / "examples/shared-embedding.toml")
    record = solve(posed_by_file, time_limit=4, workers=1).record
    assert record.bound <= record.value <= 1.25 * record.bound


@pytest.mark.parametrize("seed", range(10))
def test_a_bound_of_a_path_names_its_stages_and_holds_for_the_whole(seed):
    instance = posed(random.Random(seed), 2).with_(objective="makespan")
    on_paths = [c for c in lower_bounds(instance) if c.path]
    assert on_paths
    for certificate in on_paths:
        verdict = check(instance, certificate)
        assert verdict.accepted
        assert "alone" in verdict.reason or certificate.rank < 0
        wrong = msgspec.structs.replace(certificate, path=((2, 5), *certificate.path[1:]))
        assert not check(instance, wrong).accepted
        backwards = msgspec.structs.replace(certificate, path=certificate.path[::-1])
        assert not check(instance, backwards).accepted or len(certificate.path) == 1


def test_a_path_must_be_in_the_graph_and_pass_the_rank():
    instance = embedded(3)
    fine = Certificate(rule="load", objective="makespan", value=1, rank=1, path=((0, 1), (1, 0), (2, 1)))
    assert check(instance, fine).accepted
    for path, words in (
        (((0, 1), (2, 1)), "is no path of the stage graph"),
        (((1, 1), (2, 1)), "names a stage that is not on its rank"),
        (((1, 0),), "a rank that the path does not pass"),
        (((9, 0),), "names a stage that is not on its rank"),
    ):
        verdict = check(instance, msgspec.structs.replace(fine, path=path))
        assert not verdict.accepted
        assert words in verdict.reason


def test_a_stage_whose_w_takes_memory_is_not_left_out():
    memory = Memory.make(3, 2, F=2, B=-3, W=1, cap=12)
    instance = Instance(custom([0, 0, 1], 2, gangs={0: (0, 1)}), 2, Costs.make(3, F=1, B=1, W=1), memory)
    verdict = check(instance, Certificate(rule="load", objective="makespan", value=1, rank=0, path=((1, 0), (2, 1))))
    assert "stage 0 is left out, but its W takes memory" in verdict.reason
