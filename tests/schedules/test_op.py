import pytest

from bubbleproof.schedules.errors import ScheduleError
from bubbleproof.schedules.op import Op, Overlap, members, parse_slot


@pytest.mark.parametrize(
    ("text", "slot"),
    [
        ("2F0", Op("F", 2, 0)),
        ("10B3", Op("B", 10, 3)),
        ("0W12", Op("W", 0, 12)),
        ("7BW5", Op("BW", 7, 5)),
        ("(0F7;3BW5)", Overlap(Op("F", 0, 7), Op("BW", 3, 5))),
        ("(0F7;3B5)", Overlap(Op("F", 0, 7), Op("B", 3, 5))),
    ],
)
def test_text_form_reads_back(text, slot):
    assert parse_slot(text) == slot
    assert str(slot) == text


@pytest.mark.parametrize(
    "text",
    ["2F", "F0", "2f0", "2F0x", " 2F0", "2F0 ", "2I0", "-1F0", "2F٣", "2F0.5", "", "1234567890F0", "()", "(0F7)"],
)
def test_what_is_no_op_is_refused(text):
    with pytest.raises(ScheduleError, match="is no op|pair holds two ops"):
        parse_slot(text)


@pytest.mark.parametrize("text", ["(0F7;3BW5;1F0)", "(3BW5;0F7)", "(0F7;3W5)", "(0F7;3F5)", "((0F7;3B5);3B5)"])
def test_what_is_no_pair_is_refused(text):
    with pytest.raises(ScheduleError, match="op|pair"):
        parse_slot(text)


def test_members_of_a_pair_come_forward_first():
    pair = parse_slot("(0F7;3BW5)")
    assert members(pair) == (Op("F", 0, 7), Op("BW", 3, 5))
    assert members(Op("F", 0, 7)) == (Op("F", 0, 7),)
