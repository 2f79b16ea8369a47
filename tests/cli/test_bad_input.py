"""Whatever the user gets wrong: one line on standard error that names it, no traceback, exit code 2."""

import os
from pathlib import Path

import pytest

from bubbleproof.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples"
GOOD = """\
format = "bubbleproof-instance/1"
microbatches = 4
[placement]
kind = "custom"
ranks = 2
rank_of_stage = [0, 1]
[cost]
F = 3
B = 4
W = 2
[memory]
F = 5
cap = 20
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a verb in an empty directory that holds good.toml, good.json and good.csv; give the code and both outputs."""
    monkeypatch.chdir(tmp_path)
    Path("good.toml").write_text(GOOD)
    Path("good").write_text("'")
    assert main(["families", "1f1b", "--ranks", "2", "--microbatches", "4", "-o", "good.json"]) == 0
    assert main(["export", "good.json", "--to", "torch-csv", "-o", "good.csv"]) == 0
    capsys.readouterr()

    def call(*argv):
        code = main(argv)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def refused(result, *words):
    code, out, err = result
    assert (code, out) == (2, "")
    assert err.startswith("bubbleproof: error: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("F = 3", "FF = 3", ["bad.toml", "unknown key cost.FF", "did you mean F?"]),
        ("F = 3", "F = -3", ["bad.toml", "cost.F = -3"]),
        ("F = 3", "F = 3.5", ["bad.toml", "cost.F = 3.5", "integer"]),
        ("[0, 1]", "[0, 2]", ["bad.toml", "stage 1 is on rank 2, but ranks are 0 … 1"]),
        ("[0, 1]", "[0, 0]", ["bad.toml", "rank 1 holds no stage"]),
        ("[0, 1]", "[]", ["bad.toml", "placement has no stage"]),
        ("cap = 20", "cap = 4", ["bad.toml", "memory.cap of rank 0 = 4", "one microbatch alone needs 5"]),
        ("ranks = 2", "ranks = 0", ["bad.toml", "placement.ranks = 0"]),
        ("= 4\n", "= 0\n", ["bad.toml", "microbatches = 0"]),
        ("= 4\n", "= 600000\n", ["bad.toml", "600000 × 2 = 1200000 is beyond the limit of 1000000"]),
        ("W = 2", 'W = 2\ncomm = { "0-1" = 1, "00-1" = 2 }', ["bad.toml", "cost.comm", "'00-1' is no edge"]),
        ("[cost]", "[cost", ["bad.toml", "not TOML", "line 7"]),
    ],
)
def test_a_bad_instance(run, old, new, words):
    Path("bad.toml").write_text(GOOD.replace(old, new, 1))
    refused(run("solve", "bad.toml"), *words)
    refused(run("compare", "bad.toml"), *words)


@pytest.mark.parametrize("verb", ["solve", "compare", "verify", "show", "export", "import"])
@pytest.mark.parametrize(
    ("content", "word"),
    [
        (None, "no such file"),
        (b"", "the file is empty"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"{", "f"),
        ("directory", "is a directory"),
    ],
)
def test_an_unreadable_file(run, verb, content, word):
    for name in ("f.toml",) if verb in ("solve", "compare") else ("f.json", "f.csv"):
        if content == "directory":
            Path(name).mkdir()
        elif content is not None:
            Path(name).write_bytes(content)
        more = {"export": ["--to", "svg"], "import": ["--from", "torch-csv" if ".csv" in name else "json"]}.get(
            verb, []
        )
        refused(run(verb, name, *more), name, word)


def test_a_file_without_read_permission(run):
    Path("good.toml").chmod(0)
    if os.access("good.toml", os.R_OK):
        pytest.skip("this user may read everything")
    refused(run("solve", "good.toml"), "permission denied")


@pytest.mark.parametrize("share", [10, 50, 90])
def test_a_truncated_schedule(run, share):
    text = Path("good.json").read_text()
    Path("cut.json").write_text(text[: len(text) * share // 100])
    refused(run("verify", "cut.json"), "cut.json: not JSON: line 1, column", "the file may be cut short")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["verify", "good.csv", "--ranks", "3"], ["2 ranks in the file, but 3 given"]),
        (["verify", "good.json", "--microbatches", "5"], ["--microbatches 5, but its instance has 4"]),
        (["verify", "good.json", "--placement", "1,0"], ["--placement 1,0, but its instance has 0,1"]),
        (["verify", "good.csv", "--cost", "F=1"], ["at least F and B"]),
        (["verify", "good.csv", "--cost", "F=1,B=x"], ["'x' is no integer"]),
        (["verify", "good.csv", "--instance", "good.toml", "--cost", "F=1,B=1"], ["give one of them"]),
        (["verify", "good.json", "--cost", "F=1,B=1"], ["the file has its own costs"]),
        (["verify", "good.csv", "--placement", "0,-1"], ["'-1' is no integer"]),
        (["verify", "good.csv", "--ranks", "\u0662"], ["is no integer"]),
        (["verify", "good.toml"], ["a .toml file is an instance"]),
        (["verify", "good.txt"], ["good.txt: no such file"]),
        (["verify", "."], ["is a directory, not a file"]),
        (["verify", "good"], ["the name does not tell the format"]),
        (["import", "good", "--from", "megatron"], ["good: no list of arguments, as a shell would read it"]),
        (["prove", "os:system"], ["os:system failed at m = ", "TypeError: ", ", line "]),
        (["prove", "builtins:str"], ["builtins:str made a str, not a bubbleproof.Schedule"]),
        (["show", "good.json", "--width", "99999999"], ["'99999999' is above 100000"]),
        (["verify", "good.csv", "--cap", "0"], ["memory.cap of rank 0 = 0"]),
        (["verify", "good.csv", "--cap", "1,2,3"], ["memory.cap has 3 entries for 2"]),
        (["solve", "good.toml", "--time-limit", "0"], ["seconds above 0"]),
        (["solve", "good.toml", "--time-limit", "nan"], ["seconds above 0"]),
        (["solve", "good.toml", "--cap", "4"], ["one microbatch alone needs 5"]),
        (["solve", "good.toml", "--microbatches", "0"], ["'0' is below 1"]),
        (["solve", "good.toml", "--objective", "time"], ["invalid choice: 'time'"]),
        (["solve", "good.toml", "-o", "no/where.json"], ["cannot write: there is no directory"]),
        (["solve", "good.toml", "-o", "."], ["is a directory"]),
        (["solve", "good.toml", "-o", ""], ["'' is no file name"]),
        (["export", "good.json", "--to", "svg", "-o", ""], ["'' is no file name"]),
        (["import", "good.csv", "--from", "torch-csv", "-o", ""], ["'' is no file name"]),
        (["families", "1f1b", "-o", ""], ["'' is no file name"]),
        (["show", "1f1b", "--svg", ""], ["'' is no file name"]),
        (["show", "1f1c"], ["no family and no file is named '1f1c'; did you mean 1f1b?"]),
        (["show", "good.json", "--window", "5:5"], ["a window is two times"]),
        (["show", "1f1b", "--placement", "0,1"], ["has its own placement"]),
        (["families", "v-half", "--chunks", "3"], ["--chunks does not go with the family v-half"]),
        (["show", "1f1b", "--chunks", "2"], ["--chunks does not go with the family 1f1b"]),
        (["families", "zb-h3"], ["did you mean zb-h"]),
        (["families", "zb-h1", "--cost", "F=1,BW=2"], ["zb-h1"]),
        (["families", "1f1b", "--ranks", "2000000"], ["beyond the limit of 100000 stages"]),
        (["families", "1f1b", "--instance", "good.toml", "--ranks", "2"], ["--ranks does not go with --instance"]),
        (["compare", "good.toml", "--families", "1f1c"], ["did you mean 1f1b?"]),
        (["export", "good.json", "--to", "pdf"], ["invalid choice: 'pdf'"]),
        (["export", "good.json", "--to", "svg", "-o", "no/x.svg"], ["cannot write"]),
        (["import", "good.csv"], ["required: --from"]),
        (["import", "good.json", "--from", "torch-csv"], ["good.json: line 1, cell 1"]),
        (["frobnicate"], ["invalid choice: 'frobnicate'"]),
        (["verify"], ["required: FILE"]),
        (["verify", "a\nb.json"], ["no such file"]),
    ],
)
def test_a_bad_option(run, argv, words):
    refused(run(*argv), *words)


def test_a_result_that_could_not_be_written_is_refused_before_the_search(run, monkeypatch):
    def never(*_, **__):
        raise AssertionError("searched")

    monkeypatch.setattr("bubbleproof.solver.solve", never)
    refused(run("solve", "good.toml", "-o", "/proc/out.json"), "/proc/out.json: cannot write")


def test_nothing_is_written_when_the_input_is_bad(run):
    before = sorted(os.listdir())
    run("solve", "nothing.toml", "-o", "out.json")
    run("import", "good.json", "--from", "torch-csv", "-o", "out.json")
    run("export", "good.csv", "--to", "perfetto", "--ranks", "3", "-o", "out.json")
    assert sorted(os.listdir()) == before
