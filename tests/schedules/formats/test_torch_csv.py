"""PyTorch's compute-only CSV: its own files are read and written back; what its reader lets pass is refused."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import BubbleproofError, FormatError
from bubbleproof.schedules.formats import torch_csv
from bubbleproof.schedules.formats.infer import infer_instance
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Op, Overlap
from bubbleproof.schedules.placement import bidirectional, linear
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import replay
from bubbleproof.verify import Verdict, verify
from tests.strategies import instances, schedules

DATA = Path(__file__).parents[2] / "data"
INDEX = json.loads((DATA / "torch_csv" / "index.json").read_text())["cases"]
BUILT_IN = [case for case in INDEX if case["level"] == "compute"]
CORRECT = [case for case in BUILT_IN if case["correct"]]


def name(case):
    return case["file"]


@pytest.mark.parametrize("case", CORRECT, ids=name)
def test_an_order_of_pytorch_is_read_with_its_placement_and_written_back(case):
    path = DATA / "torch_csv" / case["file"]
    schedule = torch_csv.load(path)
    instance = infer_instance(schedule, path.name).instance
    assert list(instance.placement.routes[0]) == case["placement"]
    assert (instance.ranks, instance.stages) == (case["ranks"], case["stages"])
    assert instance.microbatches == case["microbatches"]
    assert verify(schedule, instance).verdict == Verdict.PROVED
    text = torch_csv.dumps(schedule, instance)
    assert torch_csv.loads(text) == schedule
    idle_dropped = [",".join(cell for cell in line.split(",") if cell) for line in path.read_text().splitlines()]
    assert text.splitlines() == idle_dropped


@pytest.mark.parametrize("case", [case for case in BUILT_IN if not case["correct"]], ids=name)
def test_the_orders_that_pytorch_gets_wrong_are_read_and_judged_wrong(case):
    schedule = torch_csv.load(DATA / "torch_csv" / case["file"])
    instance = infer_instance(schedule, "f", microbatches=case["microbatches"]).instance
    assert verify(schedule, instance).verdict == Verdict.VIOLATED


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("2F0garbage", "'garbage' follows the action 2F0 (PyTorch would skip it without a word)"),
        ("0F0.5", "'.5' follows the action 0F0"),
        ("0F0 0B0", "' 0B0' follows the action 0F0"),
        ("2BW0", "BW comes from files written before torch 2.6"),
        ("0f0", "kinds are upper-case letters"),
        ("1F\u0661", "the character U+0661 is no digit 0 … 9"),
        ("\u00a00F0", "the character U+00A0 is no digit 0 … 9"),
        ("0F", "the microbatch is missing"),
        ("0FOO", "an action is stage, kind (F, I, W or B), microbatch, like 2F0"),
        ("0F-1", "an action is stage, kind"),
        ("-1F0", "an action is stage, kind"),
        ("2 F0", "an action is stage, kind"),
        ("None", "an action is stage, kind"),
        ("0F9999999999", "'9' follows the action 0F999999999"),
        ('"0F0"', "cells are written without quotes"),
        ("# GPipe", "the format has no comments"),
        ("0SEND_F1", "communication and sharding actions do not belong"),
        ("1UNSHARD", "communication and sharding actions do not belong"),
        ("0REDUCE_GRAD", "communication and sharding actions do not belong"),
        ("rank 0", "an action is stage, kind"),
        ("()OVERLAP_F_B", "a pair has two actions"),
        ("(0F7;)OVERLAP_F_B", "an action is missing"),
        ("(0F7;7B3)F", "a group of actions ends with )OVERLAP_F_B"),
        ("(0F7;7B3) OVERLAP_F_B", "a group of actions ends with )OVERLAP_F_B"),
        ("(0F7;7B3", "a group of actions ends with )OVERLAP_F_B"),
        ("(0SEND_F1;7B3)OVERLAP_F_B", "communication and sharding"),
        ("(7B3;0F7)OVERLAP_F_B", "a pair is a forward (F) followed by a backward"),
        ("(0F7;7W3)OVERLAP_F_B", "a pair is a forward (F) followed by a backward"),
        ("((0F7;7B3)OVERLAP_F_B;7B3)OVERLAP_F_B", "a group of actions ends with"),
    ],
)
def test_a_bad_cell_is_refused_with_line_cell_text_and_reason(cell, reason):
    with pytest.raises(FormatError) as caught:
        torch_csv.loads(f"0F0,0B0\n,1F0,{cell},1B0\n", "x.csv")
    assert str(caught.value).startswith(f"x.csv: line 2, cell 3: {ascii(cell.strip(' '))[:12]}"[:36])
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\ufeff0F0,0B0\n", "line 1, cell 1: byte order mark"),
        ("0F0,0B0\n\n", "line 2: blank line"),
        ("\n0F0,0B0\n", "line 1: blank line"),
        ("0F0,0B0\n,,,\n", "line 2: only empty cells"),
        ("", "the file is empty"),
    ],
)
def test_a_bad_line_is_refused_with_its_number(text, message):
    with pytest.raises(FormatError, match=message):
        torch_csv.loads(text)


def test_line_ends_blanks_and_leading_zeros_do_not_matter():
    same = Schedule.parse(["0F0 0BW0", "1F0 1BW0"])
    for text in ("0F0,0B0\n1F0,1B0\n", "0F0,0B0\r\n1F0,1B0", " 0F00 ,\t0B0,\n,,1F0,,01B0 \n"):
        assert torch_csv.loads(text) == same


def test_the_letters_are_translated_and_pairs_kept():
    schedule = torch_csv.loads("0F0,0I0,0W0,0B1,(0F3;0I2)OVERLAP_F_B\n")
    assert schedule.orders == (
        (Op("F", 0, 0), Op("B", 0, 0), Op("W", 0, 0), Op("BW", 0, 1), Overlap(Op("F", 0, 3), Op("B", 0, 2))),
    )


def small(microbatches, placement=None, split=True):
    placement = placement or linear(2)
    costs = Costs.make(placement.stages, F=1, B=1, W=1 if split else None)
    return Instance(placement, microbatches, costs, Memory.make(placement.stages, placement.ranks))


def test_last_stage_forwards_out_of_order_are_not_exported():
    """PyTorch pairs losses with forwards by position and would train on wrong gradients without an error."""
    schedule = Schedule.parse(["0F0 0F1 0BW0 0BW1", "1F1 1F0 1BW0 1BW1"])
    with pytest.raises(FormatError, match="rank 1 runs 1F0 after 1F1"):
        torch_csv.dumps(schedule, small(2))


def test_two_routes_are_not_exported():
    with pytest.raises(FormatError, match="bidirectional"):
        torch_csv.dumps(Schedule.of([[], []]), small(2, bidirectional(2)))


@given(st.data())
@settings(max_examples=60)
def test_what_is_exported_reads_back_as_the_same_orders(data):
    instance = data.draw(instances(routes=False))
    schedule = data.draw(schedules(instance))
    forwards = [op.microbatch for _, _, op in schedule.ops() if op.kind == "F" and op.stage == instance.stages - 1]
    if instance.stages > 1 and forwards != sorted(forwards):
        with pytest.raises(FormatError, match="microbatch order"):
            torch_csv.write(replay(schedule, instance))
    else:
        assert torch_csv.loads(torch_csv.write(replay(schedule, instance))) == schedule


_CELLS = st.sampled_from(
    ["0F0", "1B0", "0I1", "2W0", "(0F7;7B3)OVERLAP_F_B", "", " ", ",", "\n", "\r\n", ";", "(", ")", "BW", "\u0661", "#"]
)


@given(st.text(max_size=80) | st.lists(_CELLS, max_size=12).map("".join))
@settings(max_examples=400)
def test_whatever_the_text_only_our_errors_leave_the_reader(text):
    with contextlib.suppress(BubbleproofError):
        infer_instance(torch_csv.loads(text), "f")
