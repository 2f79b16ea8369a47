"""``bubbleproof pareto``: what it prints and writes, and what a killed run leaves behind."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bubbleproof.cli import main
from bubbleproof.schedules.draw.front import Label, Picture, Step, render, write

EXAMPLES = Path(__file__).parents[2] / "examples"
INSTANCE = """\
format = "bubbleproof-instance/1"
name = "small"
microbatches = 3
units = { time = "us", memory = "GB" }
[placement]
kind = "linear"
ranks = 2
[cost]
F = 2
B = 3
W = 1
comm = 1
[memory]
F = 3
B = -1
"""
PARETO = ["pareto", "small.toml", "--workers", "1", "--time-limit", "20"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    Path("small.toml").write_text(INSTANCE)
    return tmp_path


def test_the_front_is_printed_as_a_table_and_a_curve(here, capsys):
    assert main(PARETO) == 0
    captured = capsys.readouterr()
    out = captured.out
    assert "small: 2 ranks, 2 stages (linear placement), 3 microbatches" in out
    assert "objective: makespan; the same cap for every rank; the least feasible is 3 GB" in out
    rows = [line.split()[:2] for line in out.splitlines() if "certified" in line]
    assert rows == [["3", "39"], ["5", "37"], ["6", "26"], ["8", "25"], ["9", "23"]]
    assert "memory cap of every rank, GB; █ best found, ▁ lower bound, ░ open between" in out
    assert "zb-h1" in out
    assert out.endswith("the value under every cap is proved best\n")
    assert "no cap: best 23 us  bound 23  gap 0" in captured.err


def test_json_is_the_document_of_the_file(here, capsys):
    assert main([*PARETO, "-o", "front.json", "--json", "-q"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert json.loads(captured.out) == json.loads(Path("front.json").read_text())
    assert json.loads(captured.out)["complete"]


def test_each_schedule_of_the_front_is_written_for_verify(here, capsys):
    assert main([*PARETO, "--schedules", "folder"]) == 0
    capsys.readouterr()
    files = sorted(Path("folder").iterdir())
    assert [file.name for file in files] == ["cap-3.json", "cap-5.json", "cap-6.json", "cap-8.json", "cap-9.json"]
    for file in files:
        assert main(["verify", str(file)]) == 0


def test_the_picture_is_a_file_that_stands_alone(here):
    assert main([*PARETO, "--svg", "front.svg"]) == 0
    root = ElementTree.parse("front.svg").getroot()
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert {"small: makespan against memory cap", "memory cap of every rank, GB", "makespan, us"} <= set(texts)
    assert any("zb-h2" in (text or "") for text in texts)


def test_only_the_caps_asked_for_are_shown(here, capsys):
    assert main([*PARETO, "--caps", "6,7"]) == 3
    rows = [line.split()[:2] for line in capsys.readouterr().out.splitlines() if "certified" in line]
    assert rows == [["6", "26"], ["7", "26"]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--caps", "2"], "cap 2: the least feasible one is 3"),
        (["--points", "0"], "'0' is below 1"),
        (["--svg", "no/where.svg"], "there is no directory"),
        (["-o", "small.toml"], "small.toml: not JSON"),
    ],
)
def test_bad_options_are_one_line(here, capsys, words, message):
    assert main([*PARETO, *words]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_is_ended_loses_one_point_at_most(tmp_path, sent):
    out = tmp_path / "front.json"
    command = [sys.executable, "-m", "bubbleproof.cli", "pareto", str(EXAMPLES / "vee-lm-head.toml"), "-o", str(out)]
    command += ["--workers", "1", "--point-limit", "2", "--points", "30"]
    process = subprocess.Popen(
        [*command, "--time-limit", "100"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    lines = [process.stderr.readline() for _ in range(2)]
    process.send_signal(sent)
    _, rest = process.communicate(timeout=60)
    assert "Traceback" not in rest
    kept = json.loads(out.read_text())
    assert 2 <= len(kept["solved"]) <= 2 + rest.count("best")
    assert all("best" in line for line in lines)
    done = subprocess.run([*command, "--time-limit", "3"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    content = json.loads(out.read_text())
    assert content["solved"][: len(kept["solved"])] == kept["solved"]
    assert len(content["solved"]) > len(kept["solved"])


def picture(steps, labels=()):
    return Picture("t", "s", tuple(Step(*step) for step in steps), (), tuple(Label(*x) for x in labels), "cap", "span")


def test_a_picture_of_a_single_point_can_be_drawn():
    one = picture([(5, None, 7, 7)])
    assert "█" in render(one)
    ElementTree.fromstring(write(one))
    assert set(render(picture([(0, None, 0, 0)]), unicode=False)) <= set(map(chr, range(128)))


def test_what_is_open_between_value_and_bound_is_shaded():
    text = render(picture([(0, 50, 100, 60), (50, None, 50, 50)]), 60, 10)
    assert "░" in text
    assert "░" not in render(picture([(0, 50, 100, 100), (50, None, 50, 50)]), 60, 10).split(";")[0]


def test_families_far_outside_are_named_below_the_picture():
    drawn = write(picture([(0, 10, 100, 90), (10, None, 80, 80)], [("near", 10, 90), ("far & wide", 1000, 85)]))
    assert ">near</text>" in drawn
    assert "far outside: far &amp; wide" in drawn
