"""The table of formats: every entry leads to a function that exists, and names are told from suffixes."""

from pathlib import Path

import pytest

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.formats import FORMATS, format_named, guess_format
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import linear, vee
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import replay


@pytest.mark.parametrize("entry", FORMATS.values(), ids=lambda entry: entry.name)
def test_every_format_writes_a_small_schedule(entry):
    where, order = linear(1), "0F0 0BW0"
    if entry.name == "colossalai":  # which has two stages on each rank
        where, order = vee(1), "0F0 1F0 1BW0 0BW0"
    instance = Instance(where, 1, Costs.make(where.stages, F=1, B=1), Memory.make(where.stages, 1))
    text = entry.writer()(replay(Schedule.parse([order]), instance))
    # arguments choose an order and name no op
    assert ("F" if entry.name != "megatron" else "--pipeline-model-parallel-size 1") in text
    assert text.endswith("\n")


def test_what_can_be_read_gives_the_schedule_back():
    assert format_named("torch-csv").reader()("0F0,0B0\n", "f") == Schedule.parse(["0F0 0BW0"])
    with pytest.raises(FormatError, match="nothing can be imported from svg"):
        format_named("svg").reader()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.json", "json"), ("a.trace.json", "perfetto"), ("A.CSV", "torch-csv"), ("a.svg", "svg"), ("a.txt", None)],
)
def test_the_longest_suffix_tells_the_format(name, expected):
    found = guess_format(Path(name))
    assert (found and found.name) == expected


def test_an_unknown_format_is_refused_with_the_known_ones():
    with pytest.raises(FormatError, match="no format 'yaml'; there are json, torch-csv"):
        format_named("yaml")
