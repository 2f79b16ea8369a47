"""Lists of nodes of the ScheduledNode family: three dialects, back again, and what they cannot express."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bubbleproof import Instance
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.families import FAMILIES
from bubbleproof.schedules.formats import FORMATS
from bubbleproof.schedules.formats.scheduled_node import dumps, in_turn, loads_nodes, nodes_of, refuse
from bubbleproof.schedules.lower import lower
from bubbleproof.schedules.nodes import DIALECTS, Dialect, Node, NodeLists
from bubbleproof.schedules.placement import Placement, linear, loop, vee, wave
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import replay
from bubbleproof.verify import Verdict, verify_program


def instance(placement: Placement, m: int, *, split: bool = True) -> Instance:
    costs = Costs.make(placement.stages, F=4, B=5, W=3 if split else None, comm=1)
    return Instance(placement, m, costs, Memory.make(placement.stages, placement.ranks))


def lists(family: str, given: Instance, dialect: Dialect) -> NodeLists:
    line = replay(FAMILIES[family].build(given), given)
    return nodes_of(lower(line.schedule, given, reduce=False, blocking=True), given, dialect, line)


CASES = [
    ("colossalai", "zb-v", vee(3), True),
    ("colossalai", "v-half", vee(4), True),
    ("sail-sg", "zb-h1", linear(3), True),
    ("sail-sg", "interleaved-1f1b", loop(3, 2), False),
    ("sail-sg", "zb-v", vee(3), True),
    ("primus", "zb-h1", linear(3), True),
    ("primus", "interleaved-1f1b", loop(3, 2), False),
    ("primus", "zb-v", vee(3), True),
]


@pytest.mark.parametrize(("dialect", "family", "placement", "split"), CASES)
def test_what_is_written_is_read_back_and_proved(
    dialect: Dialect, family: str, placement: Placement, split: bool
) -> None:
    given = instance(placement, 6, split=split)
    line = replay(FAMILIES[family].build(given), given)
    text = FORMATS[dialect].writer()(line)
    nodes = loads_nodes(text)
    assert FORMATS[dialect].reader()(text, "file").orders == line.schedule.orders
    assert nodes.program() == lower(line.schedule, given, reduce=False, blocking=True)
    report = verify_program(nodes.program(), given, channel="rendezvous-rank")
    assert report.verdict is Verdict.PROVED
    if dialect != "primus":  # which has no times
        assert dumps(nodes) == text


@pytest.mark.parametrize(("dialect", "family", "placement", "split"), CASES)
def test_a_bare_list_of_nodes_tells_its_dialect_and_placement(
    dialect: Dialect, family: str, placement: Placement, split: bool
) -> None:
    nodes = lists(family, instance(placement, 6, split=split), dialect)
    bare = json.dumps(json.loads(dumps(nodes))["rows"])
    found = loads_nodes(bare)
    assert (found.dialect, found.rank_of_stage, found.microbatches) == (dialect, placement.routes[0], 6)
    assert found.program() == nodes.program()


def test_the_nodes_of_colossalai_have_its_fields_and_two_nodes_for_a_fused_backward() -> None:
    nodes = lists("zb-v", instance(vee(2), 2), "colossalai")
    first = json.loads(dumps(nodes))["rows"][0][0]
    assert first == {
        "type": "F",
        "chunk": 0,
        "stage": 0,
        "minibatch": 0,
        "start_time": 0,
        "completion_time": 4,
        "rollback": False,
    }
    given = instance(vee(1), 1, split=False)
    fused = Schedule.parse(["0F0 1F0 1BW0 0BW0"])
    line = replay(fused, given)
    made = nodes_of(lower(fused, given, reduce=False), given, "colossalai", line)
    assert str(made) == "F(0,0) F(1,0) B(1,0) W(1,0) B(0,0) W(0,0)"
    assert made.rows[0][2] == Node("B", 1, 0, 8, 13)


def test_the_nodes_of_sail_sg_know_their_peers() -> None:
    rows = json.loads(dumps(lists("interleaved-1f1b", instance(loop(3, 2), 3, split=False), "sail-sg")))["rows"]
    sent = next(node for node in rows[2] if node["type"] == "SEND_FORWARD" and node["chunk"] == 0)
    taken = next(node for node in rows[0] if node["comm_pair_id"] == sent["comm_pair_id"])
    assert (sent["layer_group_idx"], sent["comm_peer_stage"], sent["comm_direction"]) == (2, 0, "NEXT")
    assert (taken["type"], taken["chunk"], taken["layer_group_idx"]) == ("RECV_FORWARD", 1, 3)
    assert (taken["comm_peer_stage"], taken["comm_direction"]) == (2, "PREV")
    op = next(node for node in rows[0] if node["type"] == "F" and node["chunk"] == 1)
    assert (op["recv_peer_stage"], op["send_peer_stage"]) == (2, 1)


def test_primus_gets_a_send_and_a_receive_where_a_rank_hands_a_tensor_to_itself() -> None:
    rows = json.loads(dumps(lists("zb-v", instance(vee(2), 2), "primus")))["rows"]
    turn = [node for node in rows[1] if node["args"] and node["args"]["from_pp_rank"] == node["args"]["to_pp_rank"]]
    assert [(node["func_type"], node["chunk"]) for node in turn[:2]] == [("SF", 0), ("RF", 1)]
    assert turn[0]["args"] == {"from_pp_rank": 1, "to_pp_rank": 1, "send_to_chunk": 1}
    assert turn[1]["args"] == {"from_pp_rank": 1, "to_pp_rank": 1, "recv_from_chunk": 0}
    assert len(turn) == 8


def test_other_placements_are_refused_with_the_nearest() -> None:
    given = instance(linear(2), 2)
    with pytest.raises(FormatError, match=r"this is linear with 2 stages on 2 ranks.*the placement vee on 2 ranks"):
        refuse(FAMILIES["zb-h1"].build(given), given, "colossalai")
    given = instance(wave(2, 3), 2)
    with pytest.raises(FormatError, match=r"wave of this instance is none\. Nearest: a loop or a vee on 2 ranks"):
        refuse(Schedule.parse(["", ""]), given, "primus")


LATE = ["0F0 0F1 1F0 1F1 1B1 0B1 1B0 0B0 1W1 0W1 1W0 0W0"]


@pytest.mark.parametrize("dialect", ["colossalai", "sail-sg"])
def test_microbatches_out_of_turn_are_refused_and_renamed(dialect: Dialect) -> None:
    given, late = instance(vee(1), 2), Schedule.parse(LATE)
    with pytest.raises(FormatError, match="stage 0 would run B of microbatches 1, 0 in the order of its forwards"):
        refuse(late, given, dialect)
    assert in_turn(late) == Schedule.parse(["0F0 0F1 1F0 1F1 1B0 0B0 1B1 0B1 1W0 0W0 1W1 0W1"])
    refuse(in_turn(late), given, dialect)
    refuse(late, given, "primus")


GOOD: dict[str, Any] = {"type": "F", "chunk": 0, "stage": 0, "minibatch": 0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "a node has one of func_type, minibatch and microbatch"),
        ("[[{}]]", "a node has one of"),
        (json.dumps([[GOOD | {"type": "G"}]]), r"rows\[0\]\[0\]: type = 'G'; known are F, B, W, BW, SEND_FORWARD"),
        (json.dumps([[GOOD | {"stage": 1}]]), "stage = 1, but it stands in the list of rank 0"),
        (json.dumps([[GOOD, GOOD | {"minibatch": -1}]]), r"rows\[0\]\[1\]: minibatch = -1; a whole number from 0"),
        (json.dumps([[GOOD | {"chunk": 99}]]), "100 chunks; from 1 to 64"),
        (json.dumps([[{"func_type": "F", "mini_batch": 0, "chunk": 1}]]), "do not tell where the stages are"),
        ('{"format": "x", "dialect": "y", "rank_of_stage": [], "microbatches": 1, "rows": []}', "format = 'x' is not"),
        (
            '{"format": "scheduled-nodes/1", "dialect": "y", "rank_of_stage": [], "microbatches": 1, "rows": []}',
            "dialect = 'y'; there are colossalai, sail-sg, primus",
        ),
        (
            '{"format": "scheduled-nodes/1", "dialect": "primus", "rank_of_stage": [1], "microbatches": 1,'
            ' "rows": [[]]}',
            r"rank_of_stage = \[1\] does not place stages on each of 1 ranks",
        ),
        (
            '{"format": "scheduled-nodes/1", "dialect": "colossalai", "rank_of_stage": [0], "microbatches": 1,'
            ' "rows": [[]]}',
            r"rank_of_stage = \[0\]; ColossalAI has the vee \(0, 0\)",
        ),
        ("[[1]]", "Expected `object`"),
    ],
)
def test_a_wrong_file_is_refused_at_its_place(text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        loads_nodes(text, "file")


def test_nodes_that_validate_the_optimizer_are_read_and_mean_nothing() -> None:
    rows = [[GOOD | {"type": "SEND_POST_VALIDATION"}, GOOD]]
    assert str(loads_nodes(json.dumps(rows)).program()) == "0F0"


def test_every_dialect_has_a_format_of_its_name() -> None:
    assert set(DIALECTS) <= set(FORMATS)
