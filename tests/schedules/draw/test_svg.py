"""The SVG is well-formed, complete, stands alone, and is drawn to scale."""

from decimal import Decimal
from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.draw import svg
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import linear
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import replay
from tests.strategies import instances, schedules

NAMESPACE = {"s": "http://www.w3.org/2000/svg"}


def cells(text):
    root = ElementTree.fromstring(text)
    return {
        rect.find("s:title", NAMESPACE).text.split(":")[0]: rect
        for rect in root.findall("s:rect", NAMESPACE)
        if rect.find("s:title", NAMESPACE) is not None
    }


def pipeline(name=""):
    instance = Instance(linear(2), 1, Costs.make(2, F=1, B=3), Memory.make(2, 2), name=name)
    return replay(Schedule.parse(["0F0 0BW0", "1F0 1BW0"]), instance)


def test_boxes_are_as_long_as_their_ops_and_rows_are_ranks():
    found = cells(svg.write(pipeline()))
    left = {name: Decimal(rect.get("x")) for name, rect in found.items()}
    width = {name: Decimal(rect.get("width")) for name, rect in found.items()}
    assert width["0F0"] * 3 == width["0BW0"]
    assert left["1F0"] - left["0F0"] == width["0F0"]
    assert left["0BW0"] == left["1BW0"] + width["1BW0"]
    assert found["0F0"].get("y") == found["0BW0"].get("y") != found["1F0"].get("y")


def test_a_tooltip_says_stage_microbatch_and_times():
    title = cells(svg.write(pipeline()))["0BW0"].find("s:title", NAMESPACE).text
    assert title == "0BW0: BW of stage 0, microbatch 0; 5 to 8 (3)"


def test_names_from_files_cannot_break_out_of_the_text():
    text = svg.write(pipeline(name='<script>alert("x")</script>&'))
    assert "<script>" not in text
    assert (
        'on <script>alert("x")</script>&' in "on " + ElementTree.fromstring(text).findall("s:text", NAMESPACE)[0].text
    )


def test_the_file_needs_nothing_from_elsewhere():
    text = svg.write(pipeline())
    assert "href" not in text
    assert "<script" not in text
    assert text.count("http") == 1  # the name of the language itself


@given(st.data())
@settings(max_examples=40)
def test_every_op_has_its_box(data):
    instance = data.draw(instances())
    schedule = data.draw(schedules(instance))
    assert set(cells(svg.write(replay(schedule, instance)))) == {str(slot) for _, _, slot in schedule.slots()}
