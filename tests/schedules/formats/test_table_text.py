"""Reading rows into arrays: the same ops as the ordinary readers, or no answer."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbleproof.schedules.errors import BubbleproofError
from bubbleproof.schedules.formats import table_text, torch_csv
from bubbleproof.schedules.formats.table_text import TORCH_COMMS, TORCH_COMPUTE, json_rows, torch_rows
from bubbleproof.schedules.op import KINDS, Op, Overlap
from bubbleproof.schedules.program import COLLECTIVE_KINDS, TRANSFER_KINDS, Collective, Program, Transfer
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.table import Table

NUMBERS = st.integers(0, 10**9 - 1) | st.integers(0, 20)
OPS = st.builds(Op, st.sampled_from(KINDS), NUMBERS, NUMBERS)
PAIRS = st.builds(
    Overlap,
    st.builds(Op, st.just("F"), NUMBERS, NUMBERS),
    st.builds(Op, st.sampled_from(["B", "BW"]), NUMBERS, NUMBERS),
)
OTHERS = st.builds(Transfer, st.sampled_from(TRANSFER_KINDS), NUMBERS, NUMBERS) | st.builds(
    Collective, st.sampled_from(COLLECTIVE_KINDS), NUMBERS
)
TORCH_OPS = st.builds(Op, st.sampled_from(["F", "B", "W", "BW"]), NUMBERS, NUMBERS)  # PyTorch has no recompute
TORCH = {"F": "F", "B": "I", "W": "W", "BW": "B"}


def rows_of(cells):
    return st.lists(st.lists(cells, min_size=1, max_size=12), min_size=1, max_size=4)


def torch_cell(action):
    if isinstance(action, Overlap):
        return f"({torch_cell(action.forward)};{torch_cell(action.backward)})OVERLAP_F_B"
    return f"{action.stage}{TORCH[action.kind]}{action.microbatch}" if isinstance(action, Op) else str(action)


def same(table, expected):
    return all(
        np.array_equal(getattr(table, name), getattr(expected, name))
        for name in ("kind", "stage", "microbatch", "joined", "offsets")
    )


@settings(max_examples=150, deadline=None)
@given(rows=rows_of(OPS | PAIRS | OTHERS))
def test_json_rows_are_read_as_they_were_written(rows):
    program = Program.of(rows)
    text = json.dumps([[str(action) for action in row] for row in program.rows], separators=(",", ":"))
    table = json_rows(text)
    assert same(table, Table.of(program))
    assert table.program() == program


@settings(max_examples=150, deadline=None)
@given(rows=rows_of(TORCH_OPS | PAIRS | OTHERS), end=st.sampled_from(["", "\n", "\r\n"]), short=st.booleans())
def test_torch_rows_are_read_as_they_were_written(rows, end, short):
    text = ("\r\n" if end == "\r\n" else "\n").join(",".join(map(torch_cell, row)) for row in rows) + end
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_text, "_CHUNK", 45 if short else 1 << 23)  # the longest cell has 43 bytes
        assert same(torch_rows(text, TORCH_COMMS), Table.of(Program.of(rows)))


@settings(max_examples=300, deadline=None)
@given(rows=rows_of(TORCH_OPS | PAIRS), data=st.data())
def test_a_damaged_file_is_read_like_the_ordinary_reader_reads_it_or_not_at_all(rows, data):
    text = list("\n".join(",".join(["", *map(torch_cell, row)]) for row in rows))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        text[at : at + data.draw(st.integers(0, 2))] = data.draw(st.text("0129FIWBV_(;),\n\r \t\"'[]é٣", max_size=3))
    damaged = "".join(text)
    table = torch_rows(damaged, TORCH_COMPUTE)
    if table is not None:
        assert table.schedule() == torch_csv.loads(damaged)


@pytest.mark.parametrize(
    "text",
    [
        *("", "0F0\n\n", "0F", "F0", "0F0F", "0F0 ", "1234567890F0", "0REDUCE_GRAD5", "0RXXXXXX_GRAD", "0SEND_F"),
        *("(0F0;0B1)", "(0F0;0B1)OVERLAP_F_Bx", "(0W0;0B1)OVERLAP_F_B", "(0F0;0F1)OVERLAP_F_B", "0F0;0B1"),
        *("(0F0)OVERLAP_F_B", "(0F0;0B1;0B2)OVERLAP_F_B", "(0F0,0B1)OVERLAP_F_B", "0F\u0663", "0BW0", "-1F0"),
    ],
)
def test_what_is_not_plain_is_not_read(text):
    assert torch_rows(text, TORCH_COMMS) is None


def test_idle_cells_are_left_out():
    assert len(torch_rows(",0F0,,", TORCH_COMMS)) == 1


@pytest.mark.parametrize(
    "text",
    ['[["0F0", "0F1"]]', '[["0F0"],[]]', "[]", '[["0F0""0F1"]]', '[["0F0,0F1"]]', '[["0F0\\u0030"]]', '[["0F0"]]]'],
)
def test_json_that_is_not_canonical_is_not_read(text):
    assert json_rows(text) is None


@given(rows=rows_of(OPS | PAIRS))
def test_a_table_gives_its_schedule_back(rows):
    schedule = Schedule.of(rows)
    assert Table.of(schedule).schedule() == schedule


def test_a_table_without_messages_keeps_its_ops():
    program = Program.parse(["0F0 0SEND_F0 0UNSHARD 0BW0", "1RECV_F0"])
    assert Table.of(program).ops().schedule() == program.schedule


def test_what_a_table_cannot_hold_is_refused():
    for op in (Op("F", 2**31, 0), Op("X", 0, 0)):
        with pytest.raises(BubbleproofError):
            Table.of(Schedule.of([[op]]))
