"""What the consumer model of the function for Megatron-core says of small programs; nothing is executed here."""

from __future__ import annotations

import pytest

from bubbleproof import Instance
from bubbleproof.runtimes.megatron import program_of
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.families import FAMILIES
from bubbleproof.schedules.placement import Placement, linear, loop, vee
from bubbleproof.schedules.program import Program, parse_action
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.verify.runtimes.megatron import predict


def instance(placement: Placement, m: int) -> Instance:
    stages, ranks = placement.stages, placement.ranks
    return Instance(placement, m, Costs.make(stages, F=1, B=1, W=1), Memory.make(stages, ranks))


def program(*rows: str) -> Program:
    return Program.of([parse_action(text) for text in row.split()] for row in rows)


@pytest.mark.parametrize(
    ("family", "placement"), [("zb-h1", linear(4)), ("zb-v", vee(3)), ("interleaved-1f1b", loop(3, 2))]
)
def test_published_schedules_are_given_messages_with_which_they_train_right(family: str, placement: Placement) -> None:
    given = instance(placement, 6)
    assert predict(program_of(FAMILIES[family].build(given), given), given).outcome == "ok"


def test_two_ranks_that_both_send_first_wait_in_a_circle() -> None:
    rows = (
        "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0BW0 0RECV_B1 0BW1",
        "1RECV_F0 1F0 1BW0 1SEND_B0 1RECV_F1 1F1 1BW1 1SEND_B1",
    )
    said = predict(program(*rows), instance(linear(2), 2))
    assert said.outcome == "hang"
    assert said.reason == ("rank 0 at 0SEND_F1 waits for rank 1, rank 1 at 1SEND_B0 waits for rank 0, in a circle")


def test_a_rank_that_numbers_two_microbatches_the_other_way_trains_wrong() -> None:
    rows = (
        "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0BW0 0RECV_B1 0BW1",
        "1RECV_F1 1RECV_F0 1F1 1BW1 1SEND_B1 1F0 1BW0 1SEND_B0",
    )
    assert predict(program(*rows), instance(linear(2), 2)).outcome == "wrong"


def test_a_missing_op_is_refused_and_a_missing_receive_raises() -> None:
    given = instance(linear(2), 1)
    full = "0F0 0SEND_F0 0RECV_B0 0BW0"
    assert "stage 1 has F for microbatch 0" in predict(program(full, "1RECV_F0 1F0 1SEND_B0"), given).reason
    assert predict(program(full, "1F0 1BW0 1SEND_B0"), given).outcome == "crash"


def test_a_schedule_that_deadlocks_is_not_run() -> None:
    with pytest.raises(FormatError, match="not for Megatron"):
        program_of(Schedule.parse(["0BW0 0F0", "1F0 1BW0"]), instance(linear(2), 1))
