"""Stage graphs that are no chain: against every order of tiny instances, and against the judge."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bubbleproof.schedules.align import align
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import InstanceError
from bubbleproof.schedules.formats import perfetto, torch_csv
from bubbleproof.schedules.formats.instance_toml import load
from bubbleproof.schedules.formats.jax_mpmd import grid_of
from bubbleproof.schedules.formats.megatron import recognise
from bubbleproof.schedules.graph import dag
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.lower import lower
from bubbleproof.schedules.op import Op
from bubbleproof.schedules.placement import custom
from bubbleproof.schedules.program import Program
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import replay
from bubbleproof.solver.bounds import lower_bounds
from bubbleproof.solver.driver import solve
from bubbleproof.solver.every import solve_every
from bubbleproof.solver.flat import Flat, least_span, peaks, replay_flat
from bubbleproof.solver.heuristics import greedy
from bubbleproof.solver.measure import plain_is_best
from bubbleproof.solver.repair.driver import repair
from bubbleproof.solver.tuning import grid
from bubbleproof.verify import Verdict, verify
from bubbleproof.verify.certificate import Certificate, check
from bubbleproof.verify.forall import prove
from bubbleproof.verify.program_judge import verify_program
from bubbleproof.verify.proof import Unmodelled
from bubbleproof.verify.proof.model import build
from tests.brute import Tiny, least_makespan

ENCODERS = ((0, 2), (1, 2))
GRAPHS = (
    (3, ENCODERS),
    (3, ((0, 1), (0, 2))),
    (3, ((0, 1), (1, 2), (0, 2))),
    (4, ((0, 1), (0, 2), (1, 3), (2, 3))),
    (4, ((0, 2), (1, 2), (1, 3))),
)


def posed(rng: random.Random, m: int, graphs=GRAPHS, channel: str = "latency") -> Instance:
    """A small instance of a graph: unequal stages, messages, at times a cap, at times unlike microbatches."""
    stages, edges = rng.choice(graphs)
    ranks = rng.randint(1, stages)
    places = [*range(ranks), *(rng.randrange(ranks) for _ in range(stages - ranks))]
    rng.shuffle(places)
    placement = custom(places, ranks, edges)
    split = rng.random() < 0.5

    def figures(low: int, high: int, varied: bool):
        return [
            [rng.randint(low, high) for _ in range(m)] if varied and rng.random() < 0.4 else rng.randint(low, high)
            for _ in range(stages)
        ]

    varied = not split and rng.random() < 0.5  # both at once make trying everything slow
    costs = Costs.make(
        stages,
        F=figures(0, 3, varied),
        B=figures(0, 3, varied),
        W=figures(0, 2, varied) if split else None,
        comm={(a, b): rng.randint(0, 2) for a in range(ranks) for b in range(ranks) if a != b},
        channel=channel,  # type: ignore[arg-type]
    )
    memory = Memory.make(stages, ranks, F=figures(0, 3, varied), B=None)
    instance = Instance(placement, m, costs, memory, rng.choice(["makespan", "span"]))
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


@pytest.mark.parametrize("seed", range(30))
def test_what_is_called_optimal_is_the_least_of_all_orders(seed):
    instance = posed(random.Random(seed), 2, GRAPHS[:3]).with_(objective="makespan")
    least = least_makespan(instance)
    record = solve(instance, time_limit=5, workers=1).record
    assert record.bound <= least <= record.value
    assert record.value == least or not plain_is_best(instance)
    assert record.level != "open" or not plain_is_best(instance)


@pytest.mark.parametrize("seed", [s for s in range(30, 66) if s != 35])
def test_no_certificate_exceeds_the_least_of_all_orders(seed):
    instance = posed(random.Random(seed), 2).with_(objective="makespan")
    least = least_makespan(instance)
    found = lower_bounds(instance)
    assert {c.rule for c in found} >= {"path", "busy"}
    for certificate in found:
        assert certificate.value <= least, certificate
        assert check(instance, certificate).accepted


@pytest.mark.parametrize("channel", ["latency", "pair", "rank"])
@pytest.mark.parametrize("seed", range(25))
def test_the_judge_and_the_replay_agree_on_every_order(seed, channel):
    rng = random.Random(seed)
    instance = posed(rng, 3, channel=channel)
    for _ in range(4):
        schedule = random_order(instance, rng)
        line = replay(schedule, instance)
        facts = verify(schedule, instance).facts
        assert (facts.makespan, facts.span) == (line.makespan, line.span)
        assert facts.peak == tuple(peak.memory for peak in line.peaks)
        best = align(schedule, instance)
        assert verify(schedule, instance, timeline=best.starts).counts.keys() <= {"V301"}
        for certificate in lower_bounds(instance):
            proved = check(instance, certificate).proved
            assert proved is not None
            if all(p <= c for p, c in zip(facts.peak, instance.memory.cap or facts.peak, strict=True)):
                assert proved <= (best.span if instance.objective == "span" else line.makespan)


@pytest.mark.parametrize("channel", ["latency", "pair", "rank"])
@pytest.mark.parametrize("seed", range(20))
def test_queues_are_timed_like_the_schedule_and_the_greedy_keeps_the_caps(seed, channel):
    instance = posed(random.Random(seed), 4, channel=channel)
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
        assert flat.cap is None or all(x <= cap for x, cap in zip(peaks(flat, orders), flat.cap, strict=True))
        assert verify(schedule, instance).verdict is Verdict.PROVED


@pytest.mark.parametrize("seed", range(12))
def test_the_span_that_is_found_is_at_least_the_bound_and_judged(seed):
    instance = posed(random.Random(seed), 2).with_(objective="span")
    record = solve(instance, time_limit=20, workers=1).record  # ends when proved
    assert record.bound <= record.value
    assert record.level != "open" or not plain_is_best(instance)


def test_no_order_has_a_smaller_span_than_what_is_refuted_though_the_second_encoder_starts_first():
    placement = custom([0, 1, 0], 2, ENCODERS)
    for seed in range(12):
        rng = random.Random(seed)
        costs = Costs.make(
            3, F=[rng.randint(0, 3) for _ in range(3)], B=[rng.randint(1, 4) for _ in range(3)], comm=rng.randint(0, 3)
        )
        instance = Instance(placement, 2, costs, Memory.make(3, 2), "span")
        record = solve(instance, time_limit=20, workers=1).record
        least = min(align(random_order(instance, rng), instance).span for _ in range(150))
        assert record.bound <= record.value <= least


def encoders(m: int = 2) -> Instance:
    """Two encoders on ranks 0 and 1, the decoder on rank 2."""
    return Instance(custom([0, 1, 2], 3, ENCODERS), m, Costs.make(3, F=[1, 5, 1], B=1, comm=1), Memory.make(3, 3))


def test_a_stage_waits_for_all_that_feed_it_and_a_backward_for_all_that_it_feeds():
    line = replay(Schedule.parse(["0F0 0BW0", "1F0 1BW0", "2F0 2BW0"]), encoders(1))
    assert line.starts == ((0, 9), (0, 9), (6, 7))  # both encoders at once
    report = verify(Schedule.parse(["0F0 0BW0", "1F0 1BW0", "2BW0 2F0"]), encoders(1))
    assert dict(report.counts) == {"V201": 1}


def test_a_deadlock_through_an_edge_that_a_chain_does_not_have_is_shown():
    instance = Instance(custom([0, 0, 1], 2, ((0, 1), (0, 2))), 2, Costs.make(3, F=1, B=1), Memory.make(3, 2))
    report = verify(Schedule.parse(["0F0 1F0 1BW0 0BW0 0F1 1F1 1BW1 0BW1", "2F0 2F1 2BW0 2BW1"]), instance)
    assert report.counts == {"V202": 1}
    assert "waits at 0BW0" in report.violations[0].message


def test_both_encoders_work_at_the_same_time_in_the_best_schedule():
    record = solve(encoders(4), time_limit=5).record
    # rank 1 runs four forwards; the last goes up, through 2F and 2BW, and comes down to its own backward
    assert (record.value, record.bound) == (25, 25)


def test_messages_of_all_edges_are_counted_and_drawn():
    line = replay(Schedule.parse(["0F0 0BW0", "1F0 1BW0", "2F0 2BW0"]), encoders(1))
    assert [(t.sent, t.received) for t in line.traffic] == [(1, 1), (1, 1), (2, 2)]
    assert {(a, b) for a, b in dag(line.schedule, line.instance).edges if "F0" in a and b == "2F0"} == {
        ("0F0", "2F0"),
        ("1F0", "2F0"),
    }
    assert perfetto.write(line).count('"message"') == 8


def test_a_family_for_a_chain_is_right_for_a_graph_with_fewer_dependencies():
    record = solve(encoders(6), time_limit=5).record
    assert {found.name for found in record.families if found.value is not None} >= {"1f1b", "gpipe"}


@pytest.mark.parametrize(
    "act",
    [
        lambda instance, schedule: lower(schedule, instance),
        lambda instance, schedule: torch_csv.dumps(schedule, instance),
        lambda instance, schedule: verify_program(Program.of(schedule.orders), instance),
        lambda instance, schedule: repair(schedule, instance),
        lambda instance, schedule: prove(lambda _: schedule, instance),
        lambda instance, schedule: verify(schedule, instance, target="torch"),
        lambda instance, schedule: grid_of(schedule, instance),
        lambda instance, schedule: recognise(schedule, instance),
        lambda instance, schedule: solve_every(instance, time_limit=1),
    ],
)
def test_what_cannot_express_a_graph_refuses_it(act):
    with pytest.raises(
        InstanceError, match=r"needs stages in a chain, each feeding the next; here stage 0 feeds 2\. Nearest: "
    ):
        act(encoders(1), Schedule.parse(["0F0 0BW0", "1F0 1BW0", "2F0 2BW0"]))


def test_proofs_know_no_graph():
    with pytest.raises(Unmodelled, match="placement.edges"):
        build(encoders(1), 5)


def test_rules_for_chains_are_refused_on_a_graph():
    certificate = Certificate(rule="load", objective="makespan", value=1, rank=0)
    verdict = check(encoders(), certificate)
    assert (verdict.accepted, verdict.proved) == (False, None)
    assert "needs stages in a chain" in verdict.reason


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (((0, 1), (1, 3)), r"1 → 3, but stages are 0 … 2"),
        (((0, 1), (1, 2), (0, 1)), "0 → 1 occurs twice"),
        (((0, 1), (1, 2), (2, 1)), "has a cycle: 2 → 1 → 2"),
        (((0, 1), (1, 0), (1, 2)), "has a cycle: 1 → 0 → 1"),
        (((1, 1), (0, 2)), "has a cycle: 1 → 1"),
        (((0, 1), (2, 1)), "2 → 1; number the stages so that edges lead upwards"),
        (((0, 1),), "stage 2 is on no edge"),
    ],
)
def test_edges_that_are_no_graph_of_the_stages_are_refused(edges, message):
    with pytest.raises(InstanceError, match=message):
        custom([0, 1, 2], 3, edges)


def test_the_edges_of_a_chain_are_a_chain():
    placement = custom([0, 1, 0], 2, ((1, 2), (0, 1)))
    assert placement.plain
    assert placement == custom([0, 1, 0], 2)
    assert placement.predecessors == ((), (0,), (1,))
    assert placement.successors == ((1,), (2,), ())


def test_the_example_with_two_encoders_is_solved_and_judged():
    posed_by_file = load(Path(__file__).parents[2] / "examples/two-encoders.toml")
    solution = solve(posed_by_file, time_limit=10, workers=1)
    assert (solution.record.value, solution.record.level) == (49_440, "certified")
    assert {c.rule for c in lower_bounds(posed_by_file)} >= {"path", "busy", "held", "window", "load"}
