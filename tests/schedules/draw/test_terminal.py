"""The terminal timeline: exact where it has room, within its width always, readable without colour."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.draw.terminal import MIN_WIDTH, render
from bubbleproof.schedules.families import build
from bubbleproof.schedules.instance import Instance, Units
from bubbleproof.schedules.op import Op, Overlap
from bubbleproof.schedules.placement import linear, vee
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import replay
from tests.strategies import instances, schedules

ANSI = re.compile(r"\x1b\[[0-9;]*m")


def one_rank(rows, microbatches, *, cap=None, unit="1", placement=None, **costs):
    placement = placement or linear(1)
    made = Costs.make(placement.stages, **costs)
    memory = Memory.make(placement.stages, placement.ranks, cap=cap)
    return replay(Schedule.parse(rows), Instance(placement, microbatches, made, memory, units=Units(unit)))


def rows(text):
    return [line for line in text.splitlines() if line.startswith("rank ")]


def test_a_small_timeline_is_drawn_to_scale_with_every_label():
    text = render(one_rank(["0F0 0B0 0W0 0F1 0BW1"], 2, F=2, B=3, W=1), width=70, unicode=False)
    assert text.splitlines() == [
        "                                                           idle  peak",
        "rank 0 F0------B0==========W0~~F1------BW1#############    0.0%     1",
        "       +-------------------+-------------------+--------",
        "       0                   5                  10",
        "       F- forward   B= gradient of the input",
        "       W~ gradient of the weights   BW# both gradients   .. idle",
    ]


def test_idle_time_is_dotted_and_counted():
    text = render(one_rank(["0F0 0BW0", "1F0 1BW0"], 1, placement=linear(2), F=1, B=2), width=62, unicode=False)
    assert rows(text) == [
        "rank 0 F0----..................BW0#########   50.0%     1",
        "rank 1 ......F0----BW0#########............   50.0%     1",
    ]


@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("width", [1, 40, 57, 80, 160, 300])
def test_no_line_is_wider_than_the_window(width, colour):
    instance = Instance(vee(4), 8, Costs.make(8, F=11, B=13, W=7, comm=2), Memory.make(8, 4, cap=9), units=Units("us"))
    text = ANSI.sub("", render(replay(build("zb-v", instance), instance), width, colour=colour))
    assert max(map(len, text.splitlines())) <= max(width, MIN_WIDTH)
    assert len(rows(text)) == 4


@pytest.mark.parametrize("width", [60, 80, 200])
def test_colour_changes_no_column(width):
    instance = Instance(linear(4), 12, Costs.make(4, F=11, B=13, W=7), Memory.make(4, 4))
    timeline = replay(build("zb-h1", instance), instance)
    plain, coloured = render(timeline, width), render(timeline, width, colour=True)
    assert "\x1b[" not in plain
    assert "\x1b[48;5;" in coloured
    for before, after in zip(rows(plain), rows(ANSI.sub("", coloured)), strict=True):
        # in colour the filling is blank; labels, idle time and figures stay
        assert len(before) == len(after)
        assert all(b == a or (b in "-=~#&" and a == " ") for b, a in zip(before, after, strict=True))


def test_the_kinds_differ_without_colour_even_in_one_column():
    timeline = one_rank(
        [" ".join(f"0F{j} 0B{j} 0W{j} 0F{j + 1} 0BW{j + 1}" for j in range(0, 8, 2))], 8, F=1, B=1, W=1, BW=1
    )
    (row,) = rows(render(timeline, 41, unicode=False))
    assert row.split()[2] == "FBWF#" * 4


def test_where_ops_are_finer_than_columns_the_longest_share_is_drawn():
    timeline = one_rank([" ".join(f"0F{j} 0BW{j}" for j in range(40))], 40, F=1, B=9)
    (row,) = rows(render(timeline, MIN_WIDTH, unicode=False))
    assert set(row.split()[2]) == {"#"}


def test_a_pair_is_one_cell_that_names_both():
    schedule = Schedule.of([[Op("F", 0, 0), Overlap(Op("F", 0, 1), Op("BW", 0, 0)), Op("BW", 0, 1)]])
    instance = Instance(linear(1), 2, Costs.make(1, F=1, B=2), Memory.make(1, 1))
    (row,) = rows(render(replay(schedule, instance), 100))
    assert "F1&BW0" in row


def test_the_stage_is_named_where_a_rank_holds_several():
    assert "3BW0" in render(one_rank(["0F0 3F0 3BW0 0BW0", "1F0 2F0 2BW0 1BW0"], 1, placement=vee(2), F=1, B=2), 120)


def test_a_peak_above_the_cap_is_marked():
    instance = Instance(linear(1), 2, Costs.make(1, F=1, B=2), Memory.make(1, 1, cap=1))
    text = render(replay(Schedule.parse(["0F0 0F1 0BW0 0BW1"]), instance), 80)
    assert rows(text)[0].endswith(" 2!")


def test_a_window_shows_only_its_times():
    timeline = one_rank([" ".join(f"0F{j} 0BW{j}" for j in range(30))], 30, F=1, B=2)
    (row,) = rows(render(timeline, 80, window=(30, 36)))
    assert "F10" in row
    assert "BW11" in row
    assert "F12" not in row


def test_many_ranks_can_be_cut_in_the_middle():
    instance = Instance(linear(40), 2, Costs.make(40, F=1, B=2), Memory.make(40, 40))
    text = render(replay(build("1f1b", instance), instance), 80, max_ranks=6)
    assert [row.split()[1] for row in rows(text)] == ["0", "1", "2", "37", "38", "39"]
    assert "⋮" in text


@given(st.data())
@settings(max_examples=50)
def test_any_timeline_can_be_drawn_at_any_width(data):
    instance = data.draw(instances())
    timeline = replay(data.draw(schedules(instance)), instance)
    width = data.draw(st.integers(1, 200))
    text = render(timeline, width, unicode=False, max_ranks=data.draw(st.none() | st.integers(1, 3)))
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= max(width, MIN_WIDTH)
