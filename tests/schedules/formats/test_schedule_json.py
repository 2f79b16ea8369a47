"""Schedule files: canonical, complete, strict."""

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import BubbleproofError
from bubbleproof.schedules.formats import pattern_json, schedule_json
from bubbleproof.schedules.formats.schedule_json import Document
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import linear
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import replay
from tests.strategies import instances, schedules

INSTANCE = Instance(linear(1), 2, Costs.make(1, F=3, B=2, W=1), Memory.make(1, 1, F=4, B=-1))
SCHEDULE = Schedule.parse(["0F0 0F1 0B0 0W0 0BW1"], "mine")
GOOD = (
    '{"format":"bubbleproof-schedule/1","instance":{"cost":{"B":2,"F":3,"W":1},"format":"bubbleproof-instance/1",'
    '"memory":{"B":-1,"F":4,"W":-3},"microbatches":2,"placement":{"kind":"linear","ranks":1}},"name":"mine",'
    '"orders":[["0F0","0F1","0B0","0W0","0BW1"]]}\n'
)


def test_the_canonical_text_is_fixed():
    assert schedule_json.dumps(Document(SCHEDULE, INSTANCE)) == GOOD


def test_a_file_gives_schedule_instance_times_and_record_back():
    document = Document(SCHEDULE, INSTANCE, ((0, 3, 6, 8, 9),), {"value": 12, "level": "open"})
    read = schedule_json.loads(schedule_json.dumps(document))
    assert read == document
    assert read.schedule.name == "mine"


@given(st.data())
@settings(max_examples=60)
def test_writing_and_reading_any_schedule_loses_nothing_and_is_canonical(data):
    instance = data.draw(instances())
    schedule = data.draw(schedules(instance))
    text = schedule_json.write(replay(schedule, instance))
    read = schedule_json.loads(text)
    assert (read.schedule, read.instance, read.starts) == (schedule, instance, replay(schedule, instance).starts)
    assert schedule_json.dumps(read) == text
    # neither the order of keys nor blanks in the file that is read matter
    shuffled = json.dumps(dict(reversed(json.loads(text).items())), indent=3)
    assert schedule_json.dumps(schedule_json.loads(shuffled)) == text


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"0B0"', '"0X0"', "orders[0][2]: '0X0' is no op"),
        ('"0B0"', '"0B0x"', "orders[0][2]: '0B0x' is no op"),
        ('"0B0"', '"0B\u0661"', "orders[0][2]: "),
        ('"0B0"', "3", "orders[0][2] = 3: expected a text, not an integer"),
        ('"0B0"', '"(0B0;0F0)"', "orders[0][2]: '(0B0;0F0)': a pair is a forward followed by a backward"),
        ('"orders"', '"order"', "unknown key order; did you mean orders?"),
        ('"F":3', '"F":3.5', "instance.cost.F = 3.5: expected an integer or a list"),
        ('"F":3', '"F":3,"F":4', "the key 'F' occurs twice in one object"),
        ('"F":3', '"F":NaN', "NaN is no JSON number"),
        ('"F":3', '"G":3', "unknown key instance.cost.G; known here: F, B, W"),
        ('"microbatches":2', '"microbatches":0', "instance.microbatches = 0: expected an integer ≥ 1"),
        ("schedule/1", "schedule/2", "format is 'bubbleproof-schedule/2', expected 'bubbleproof-schedule/1'"),
        ('"mine"', '"\\u0007"', "control characters are not allowed"),
        ('"mine"', '"\\ud800"', "control characters are not allowed"),
        ('"mine",', '"mine","record":{"a":"\\ud800"},', "s.json: record: "),
        ('"mine",', '"mine","starts":[[0,1]],', "starts[0] has 2 entries for 5 slots"),
        ('"mine",', '"mine","starts":[],', "starts has 0 rows for 1 ranks"),
        ('"mine",', '"mine","starts":[[0,1,2,3,-4]],', "starts[0][4] = -4 is outside"),
        ('"mine",', '"mine","starts":[[0,1,2,3,4.5]],', "starts[0][4] = 4.5: expected an integer"),
    ],
)
def test_a_bad_file_is_refused_in_one_line_with_the_place(old, new, message):
    assert old in GOOD
    with pytest.raises(BubbleproofError) as caught:
        schedule_json.loads(GOOD.replace(old, new, 1), "s.json")
    assert str(caught.value).startswith("s.json: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cut", range(0, len(GOOD) - 2, 17))
def test_a_truncated_file_is_refused_with_line_and_column(cut):
    with pytest.raises(BubbleproofError, match=r"s\.json: not JSON: line 1, column \d+: .*"):
        schedule_json.loads(GOOD[:cut], "s.json")


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "3", '{"a":' * 50_000, f'{{"a":{"9" * 5000}}}'])
def test_json_of_any_other_shape_is_refused(text):
    with pytest.raises(BubbleproofError):
        schedule_json.loads(text)


_PIECES = ['"', "0F0", "{", "}", "[", "]", ":", ",", "null", "1", '"starts"', '"record"', "-1", "1e5", "\\u0000"]


@given(
    st.text(max_size=100),
    st.integers(0, len(GOOD)),
    st.integers(0, 30),
    st.lists(st.sampled_from(_PIECES), max_size=4).map("".join),
)
@settings(max_examples=300)
def test_whatever_the_text_only_our_errors_leave_the_reader(text, at, skipped, piece):
    for candidate in (text, GOOD[:at] + piece + GOOD[at + skipped :], GOOD[:at] + text + GOOD[at + skipped :]):
        with contextlib.suppress(BubbleproofError):
            schedule_json.dumps(schedule_json.loads(candidate))


def test_half_a_character_in_a_word_is_an_error_of_the_user():
    with pytest.raises(BubbleproofError, match=r"^f: '\\ud800' holds half a character"):
        schedule_json.loads(GOOD.replace('"linear"', r'"\ud800"'), "f")


def test_a_strange_key_deep_inside_a_list_does_not_break_the_line_of_the_error():
    text = (
        '{"format":"bubbleproof-pattern/1","instance":{"format":"","microbatches":1,"cost":{"F":1,"B":1},'
        '"placement":{"kind":"linear"}},"steps":[1],"bases":[1],"least":1,"rows":[[{"repeat":"up",'
        '"slots":[],"a\\r\\nb%s":1}]]}'
    )
    for key in ("", "k" * 100_000):
        with pytest.raises(BubbleproofError) as caught:
            pattern_json.loads(text % key, "f")
        assert "unknown field `a\\r\\nb" in str(caught.value)
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 500
