"""Programs and their text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbleproof.schedules.errors import ScheduleError
from bubbleproof.schedules.op import KINDS, Op, Overlap
from bubbleproof.schedules.program import (
    COLLECTIVE_KINDS,
    TRANSFER_KINDS,
    Collective,
    Program,
    Transfer,
    parse_action,
)

_NUMBERS = st.integers(0, 12)
_ACTIONS = st.one_of(
    st.builds(Op, st.sampled_from(KINDS), _NUMBERS, _NUMBERS),
    st.builds(
        Overlap,
        st.builds(Op, st.just("F"), _NUMBERS, _NUMBERS),
        st.builds(Op, st.sampled_from(["B", "BW"]), _NUMBERS, _NUMBERS),
    ),
    st.builds(Transfer, st.sampled_from(TRANSFER_KINDS), _NUMBERS, _NUMBERS),
    st.builds(Collective, st.sampled_from(COLLECTIVE_KINDS), _NUMBERS),
)


@given(st.lists(st.lists(_ACTIONS, max_size=6), max_size=4))
def test_a_program_is_read_back_from_its_text(rows):
    program = Program.of(rows)
    assert Program.parse(str(program).split("\n") if rows else []) == program


def test_each_action_has_its_own_text():
    row = "0F0 2SEND_F0 3RECV_F0 2SEND_B0 1RECV_B0 (0F1;3BW0) 2UNSHARD 2RESHARD 2REDUCE_GRAD"
    (actions,) = Program.parse([row]).rows
    assert actions == (
        Op("F", 0, 0),
        Transfer("SEND_F", 2, 0),
        Transfer("RECV_F", 3, 0),
        Transfer("SEND_B", 2, 0),
        Transfer("RECV_B", 1, 0),
        Overlap(Op("F", 0, 1), Op("BW", 3, 0)),
        Collective("UNSHARD", 2),
        Collective("RESHARD", 2),
        Collective("REDUCE_GRAD", 2),
    )


@pytest.mark.parametrize(
    ("one", "other"), [("2SEND_F7", "3RECV_F7"), ("2SEND_B7", "1RECV_B7"), ("0SEND_B1", "-1RECV_B1")]
)
def test_a_transfer_knows_the_other_end_of_its_message(one, other):
    transfer = parse_action(one)
    assert str(transfer.other_end) == other
    assert transfer.other_end.other_end == transfer


def test_the_schedule_of_a_program_is_what_is_left_without_communication():
    program = Program.parse(["0F0 0SEND_F0 0RECV_B0 0BW0 0REDUCE_GRAD", "1RECV_F0 1F0 1BW0 1SEND_B0 1REDUCE_GRAD"])
    assert str(program.schedule) == "0F0 0BW0\n1F0 1BW0"
    assert program.slot_positions == ((0, 3), (1, 2))


@pytest.mark.parametrize(
    "text",
    ["2SEND_F", "SEND_F0", "2SEND_G0", "2send_f0", "2SEND_F0x", "2REDUCE_GRAD5", "2 SEND_F0", "٢SEND_F0", "2FOO", ""],
)
def test_what_is_no_action_is_refused_whole(text):
    with pytest.raises(ScheduleError, match=r"no op"):
        parse_action(text)
