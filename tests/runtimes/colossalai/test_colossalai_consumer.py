"""What the model of ColossalAI's scheduler says about nodes; no runtime needed."""

from __future__ import annotations

from itertools import pairwise

import pytest

from bubbleproof import Instance
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.families import FAMILIES
from bubbleproof.schedules.formats.scheduled_node import nodes_of
from bubbleproof.schedules.lower import lower
from bubbleproof.schedules.nodes import Node, NodeLists
from bubbleproof.schedules.placement import vee
from bubbleproof.verify.runtimes.colossalai import predict


def nodes(p: int, m: int, family: str = "zb-v") -> NodeLists:
    given = Instance(vee(p), m, Costs.make(2 * p, F=4, B=5, W=3, comm=1), Memory.make(2 * p, p))
    program = lower(FAMILIES[family].build(given), given, reduce=False, blocking=True)
    return nodes_of(program, given, "colossalai")


def changed(right: NodeLists, rank: int, old: str, new: str) -> NodeLists:
    """The text of a row with a part replaced by another."""
    text = " ".join(map(str, right.rows[rank]))
    assert old in text
    rows = list(right.rows)
    rows[rank] = tuple(node(word) for word in text.replace(old, new, 1).split())
    return NodeLists.of("colossalai", rows, right.rank_of_stage, right.microbatches)


def node(text: str) -> Node:
    name, _, rest = text.rstrip(")").partition("(")
    chunk, microbatch = map(int, rest.split(","))
    return Node(name, chunk, microbatch)


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize(("p", "m"), [(1, 2), (2, 4), (3, 6), (4, 4)])
def test_what_the_one_linear_extension_makes_trains_right(p: int, m: int, overlap: bool) -> None:
    for family in ("zb-v", "v-half"):
        assert predict(nodes(p, m, family), overlap=overlap).outcome == "ok"


def test_a_number_of_microbatches_that_is_no_multiple_is_refused_by_colossalai_alone() -> None:
    right = nodes(2, 3)
    assert predict(right).outcome == "refused"
    assert predict(right).reason == "3 microbatches are no multiple of 2 ranks"
    assert predict(right, scheduler="bubbleproof").outcome == "ok"


@pytest.mark.parametrize(
    ("rank", "old", "new", "outcome", "why"),
    [
        (0, "W(0,1)", "", "wrong", "the gradients of stage 0 are wrong"),
        (0, "W(0,1)", "W(0,1) W(0,1)", "crash", "no backward has left anything for it"),
        (0, "B(0,0)", "W(0,0) B(0,0)", "crash", "no backward has left anything for it"),
        (1, "F(1,0)", "", "crash", "nothing waits to be sent"),
        (0, "F(0,0)", "F(0,3)", "ok", ""),
        (0, "SEND_FORWARD(0,0)", "", "crash", "a shape arrives where a size has been awaited"),
        (0, "SEND_FORWARD(0,0)", "RECV_FORWARD(1,0) SEND_FORWARD(0,0)", "hang", "rank 0 waits at RECV_FORWARD(1,0)"),
        (1, "RECV_FORWARD(0,0)", "", "crash", "nothing has been received for it"),
        (0, "SEND_FORWARD(0,0)", "SEND_FORWARD(0,0) SEND_FORWARD(0,0)", "crash", "nothing waits to be sent"),
        (1, "F(0,0)", "F(0,0) F(0,0)", "crash", "nothing has been received for it"),
        (1, "F(0,0)", "F(0,0) SEND_FORWARD(0,0)", "ok", ""),
    ],
)
def test_the_outcome_follows_from_what_the_queues_hold(rank: int, old: str, new: str, outcome: str, why: str) -> None:
    said = predict(changed(nodes(2, 2), rank, old, new))
    assert said.outcome == outcome, said
    assert why in said.reason


def test_the_scheduler_of_bubbleproof_notices_a_missing_weight_gradient() -> None:
    said = predict(changed(nodes(2, 2), 0, "W(0,1)", ""), scheduler="bubbleproof")
    assert (said.outcome, said.reason) == ("crash", "a W is missing")


def test_messages_of_two_kinds_that_change_places_are_taken_for_each_other() -> None:
    """Between two ranks nothing tells messages apart but their turn."""
    right = nodes(2, 4)
    row = list(right.rows[1])
    sends = [at for at, one in enumerate(row) if one.type.startswith("SEND")]
    pairs = [(a, b) for a, b in pairwise(sends) if row[a].type != row[b].type and b == a + 1]
    assert {predict(swapped(right, 1, a, b)).outcome for a, b in pairs} <= {"wrong", "crash"}


def swapped(right: NodeLists, rank: int, a: int, b: int) -> NodeLists:
    rows = [list(row) for row in right.rows]
    rows[rank][a], rows[rank][b] = rows[rank][b], rows[rank][a]
    return NodeLists.of("colossalai", rows, right.rank_of_stage, right.microbatches)


def test_a_schedule_is_judged_before_nodes_are_made() -> None:
    from bubbleproof.runtimes.colossalai import nodes_for
    from bubbleproof.schedules.schedule import Schedule

    given = Instance(vee(1), 1, Costs.make(2, F=1, B=1, W=1), Memory.make(2, 1))
    with pytest.raises(FormatError, match="not for ColossalAI: V"):
        nodes_for(Schedule.parse(["0F0 1F0 1B0 0B0 0W0"]), given)
    assert nodes_for(Schedule.parse(["0F0 1F0 1B0 1W0 0B0 0W0"]), given).microbatches == 1
