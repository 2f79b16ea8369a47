"""PyTorch's CSV with communication: read whole, refused at its place, written back."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.formats import program_json, torch_comms
from bubbleproof.schedules.formats.infer import infer_instance
from bubbleproof.schedules.lower import lower
from bubbleproof.schedules.program import Program
from bubbleproof.schedules.timeline import replay
from tests.strategies import instances_with_schedules
from tests.verify.model import pipeline

DATA = Path(__file__).parents[2] / "data" / "torch_csv"
FILES = [case for case in json.loads((DATA / "index.json").read_text())["cases"] if case["level"] == "comms"]


@pytest.mark.parametrize("case", FILES, ids=lambda case: case["file"])
def test_a_file_of_pytorch_is_read_and_written_back_letter_by_letter(case):
    path = DATA / case["file"]
    program = torch_comms.load(path)
    instance = infer_instance(program.schedule, path.name).instance
    assert list(instance.placement.routes[0]) == case["placement"]
    assert torch_comms.dumps(program, instance).splitlines() == path.read_text().splitlines()


def test_every_kind_of_cell_is_read():
    text = (
        "0UNSHARD, 0F0,0SEND_F0,\t0RECV_B0 ,(0F1;0B0)OVERLAP_F_B,0I1,0W1,0RESHARD,0REDUCE_GRAD\r\n1RECV_F0,1SEND_B0\r\n"
    )
    assert torch_comms.loads(text) == Program.parse(
        ["0UNSHARD 0F0 0SEND_F0 0RECV_B0 (0F1;0BW0) 0B1 0W1 0RESHARD 0REDUCE_GRAD", "1RECV_F0 1SEND_B0"]
    )


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("", "an empty cell; PyTorch refuses it in a file with communication"),
        ("0SEND_F", "the microbatch is missing"),
        ("0SEND_F1x", "like 3SEND_F1, and nothing else"),
        ("0SEND_F1 0F2", "is a comma missing? PyTorch would skip what follows the blank"),
        ("0REDUCE_GRAD5", "REDUCE_GRAD is of a whole stage and has no microbatch"),
        ("0UNSHARD 0F0", "is a comma missing?"),
        ("0BW1", "BW comes from files written before torch 2.6"),
        ("0SEND_F\u0661", "like 3SEND_F1, and nothing else"),
        ("(0SEND_F1;7B3)OVERLAP_F_B", "communication and sharding"),
        ("0send_f1", "an action is stage, kind"),
        ("0F0 0SEND_F0", "' 0SEND_F0' follows the action 0F0"),
    ],
)
def test_what_is_no_action_is_refused_with_row_cell_and_reason(cell, reason):
    with pytest.raises(FormatError) as refused:
        torch_comms.loads(f"0F0,0SEND_F0\n1RECV_F0,1F0,{cell},1B0\n", "mine.csv")
    assert str(refused.value).startswith("mine.csv: line 2, cell 3")
    assert reason in str(refused.value)


def test_forwards_of_the_last_stage_out_of_order_are_not_written():
    program = Program.parse(["0F0 0F1 0BW0 0BW1", "1F1 1F0 1BW0 1BW1"])
    with pytest.raises(FormatError, match="must be in microbatch order"):
        torch_comms.dumps(program, pipeline(2, 2, F=1, B=2))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_program_is_read_back_from_json_and_equal_programs_are_equal_files(data):
    instance, schedule = data.draw(instances_with_schedules())
    document = program_json.Document(lower(schedule, instance), instance)
    text = program_json.dumps(document)
    assert program_json.loads(text) == document
    assert program_json.dumps(program_json.loads(text)) == text
    assert program_json.write(replay(schedule, instance)) == text


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": "bubbleproof-schedule/1"}, "no program file: format is 'bubbleproof-schedule/1'"),
        ({"format": None}, "there is no format key"),
        ({"rows": [["0F0", "0SEND"]]}, r"program: rows\[0\]\[1\]: '0SEND' is no op"),
        ({"rows": "0F0"}, "rows"),
        ({"name": "a\nb"}, "control characters"),
        ({"extra": 1}, "extra"),
    ],
)
def test_a_broken_program_file_is_refused_with_its_place(change, reason):
    instance = pipeline(1, 1, F=1, B=2)
    raw = json.loads(program_json.dumps(program_json.Document(Program.parse(["0F0 0BW0"]), instance)))
    raw = {key: value for key, value in {**raw, **change}.items() if value is not None}
    with pytest.raises(Exception, match=reason):
        program_json.loads(json.dumps(raw))


def test_a_program_file_is_loaded_and_saved(tmp_path):
    instance = pipeline(1, 1, F=1, B=2)
    program = Program.parse(["0F0 0BW0 0REDUCE_GRAD"], "mine")
    program_json.save(tmp_path / "p.json", program_json.Document(program, instance))
    assert Program.load(tmp_path / "p.json") == (program, instance)
