"""The checker accepts an order of steps exactly when every step could be taken at its turn."""

import inspect

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbleproof.schedules.lower import lower
from bubbleproof.schedules.program import CHANNELS, Program
from bubbleproof.verify import channel_certificate, verify_program
from bubbleproof.verify.channel_certificate import check
from bubbleproof.verify.channels import certificate_of, channel_graph, progress
from bubbleproof.verify.exchange import ProgramCase, Setting
from tests.strategies import instances_with_schedules
from tests.verify.model import pipeline

many = settings(max_examples=100, deadline=None)
SIZES = {"max_ranks": 3, "max_chunks": 2, "max_microbatches": 3}
FUSED = {"F": 1, "B": 2}


def executable(graph, steps):
    """Whether the steps can be taken one after the other; wires and bounds of groups are passed on the way."""
    done = set()

    def passed(node):
        if node in done:
            return True
        action = any(node in row for row in graph.node_of)
        if not action and all(passed(edge.needs) for edge in graph.before[node]):
            done.add(node)
        return node in done

    for step in steps:
        rank, position = step[0]
        node = graph.node_of[rank][position]
        if not all(passed(edge.needs) for edge in graph.before[node]):
            return False
        done.add(node)
    return True


@many
@given(st.data())
def test_the_order_of_a_program_that_runs_is_accepted_under_its_channel(data):
    instance, schedule = data.draw(instances_with_schedules(**SIZES))
    program = lower(schedule, instance)
    for channel in CHANNELS:
        report = verify_program(program, instance, channel=channel)
        assert (report.order is None) == bool(report.counts)
        assert report.order is not None or channel == "even-odd"
        if report.order is not None:
            assert check(program, instance, channel, report.order) == ""


@many
@given(st.data())
def test_an_order_with_two_steps_exchanged_is_accepted_exactly_if_it_can_be_executed(data):
    instance, schedule = data.draw(instances_with_schedules(**SIZES))
    program = lower(schedule, instance)
    channel = data.draw(st.sampled_from(CHANNELS))
    case = ProgramCase(program, instance, Setting(channel))
    graph = channel_graph(case)
    found = progress(graph)
    if found.stuck:
        return
    steps = certificate_of(graph, found.order)
    assert executable(graph, steps)
    i = data.draw(st.integers(0, len(steps) - 1))
    j = data.draw(st.integers(max(0, i - 3), min(len(steps) - 1, i + 3)))
    steps[i], steps[j] = steps[j], steps[i]
    assert (check(program, instance, channel, steps) == "") == executable(graph, steps)


PROGRAM = Program.parse(["0F0 0SEND_F0 0RECV_B0 0BW0", "1RECV_F0 1F0 1BW0 1SEND_B0"])
STEPS = [((0, 0),), ((0, 1), (1, 0)), ((1, 1),), ((1, 2),), ((1, 3), (0, 2)), ((0, 3),)]
INSTANCE = pipeline(2, 1, **FUSED)


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        (STEPS, ""),
        (STEPS[:-1], "the steps are not every action once"),
        ([*STEPS, STEPS[0]], "the steps are not every action once"),
        ([*STEPS, ((2, 0),)], "the steps are not every action once"),
        ([], "the steps are not every action once"),
        ([STEPS[0], ((1, 0), (0, 1)), *STEPS[2:]], "neither one action nor the send and the receive"),
        ([STEPS[0], ((0, 1),), ((1, 0),), *STEPS[2:]], "neither one action nor the send and the receive"),
        ([((0, 0), (1, 1)), STEPS[1], *STEPS[3:]], "neither one action nor the send and the receive"),
        ([((0, 1), (1, 3)), STEPS[0], ((0, 2), (1, 0)), *STEPS[2:4], STEPS[5]], "neither one action nor the send"),
        ([STEPS[1], STEPS[0], *STEPS[2:]], "comes before what it waits for"),
        ([*STEPS[:4], STEPS[5], STEPS[4]], "comes before what it waits for"),
        ([*STEPS[:2], STEPS[3], STEPS[2], *STEPS[4:]], "comes before what it waits for"),
    ],
)
def test_what_is_no_certificate_is_refused_with_the_reason(steps, reason):
    said = check(PROGRAM, INSTANCE, "rendezvous-pair", steps)
    assert said.endswith(reason) or reason in said
    assert bool(said) == bool(reason)


def test_without_rendezvous_a_receive_comes_after_the_send_that_it_is_meant_for():
    steps = [((r, p),) for r, p in [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (1, 3), (0, 2), (0, 3)]]
    assert check(PROGRAM, INSTANCE, "eager", steps) == ""
    early = [steps[2], *steps[:2], *steps[3:]]
    assert "comes before what it waits for" in check(PROGRAM, INSTANCE, "eager", early)
    crossed = Program.parse(
        [
            "0F0 0F1 0SEND_F0 0SEND_F1 0RECV_B0 0RECV_B1 0BW0 0BW1",
            "1RECV_F1 1RECV_F0 1F0 1F1 1BW0 1BW1 1SEND_B0 1SEND_B1",
        ]
    )
    order = [((r, p),) for r in (0, 1) for p in range(8)]
    order = [*order[:4], *order[8:], *order[4:8]]
    assert "1RECV_F0" in check(crossed, pipeline(2, 2, **FUSED), "eager", order)


def test_a_deadlocked_program_has_no_certificate_at_all():
    """Every order of its steps is tried."""
    from itertools import permutations

    rows = ["0F0 0RECV_B0 0BW0 0SEND_F0", "1RECV_F0 1F0 1BW0 1SEND_B0"]
    program = Program.parse(rows)
    steps = [((0, 0),), ((0, 3), (1, 0)), ((1, 1),), ((1, 2),), ((1, 3), (0, 1)), ((0, 2),)]
    for channel in CHANNELS:
        if channel != "eager":
            assert all(check(program, INSTANCE, channel, order) for order in permutations(steps))


def test_the_checker_is_small_and_shares_nothing_with_what_finds_the_order():
    source = inspect.getsource(channel_certificate)
    code = [line for line in inspect.getsource(check).splitlines() if line.strip()]
    assert len(code) <= 50
    assert "bubbleproof.verify" not in source.replace("bubbleproof.verify.channel_certificate", "")
