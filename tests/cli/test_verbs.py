"""Each verb on small inputs: what it prints, writes and returns."""

import json
import os
from pathlib import Path

import pytest

from bubbleproof.cli import main
from bubbleproof.schedules.formats import schedule_json

INSTANCE = """\
format = "bubbleproof-instance/1"
name = "small"
microbatches = 4
units = { time = "us", memory = "GB" }
[placement]
kind = "linear"
ranks = 2
[cost]
F = 3
B = 4
W = 2
[memory]
F = 5
cap = 10
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    Path("small.toml").write_text(INSTANCE)
    return tmp_path


def printed(capsys, *argv, code=0):
    assert main(argv) == code
    return capsys.readouterr()


def as_json(capsys, *argv, code=0):
    out = printed(capsys, *argv, "--json", code=code).out
    assert out.count("\n") == 1
    return json.loads(out)


SOLVE = ["solve", "small.toml", "--workers", "1", "--time-limit", "10"]


def test_solve_reports_value_bound_gap_evidence_families_and_a_picture(here, capsys):
    captured = printed(capsys, *SOLVE, "-o", "out.json")
    out = captured.out
    for words in (
        "small: 2 ranks, 2 stages (linear placement), 4 microbatches, backward split",
        "objective           makespan (last end − first start over all ranks)",
        "lower bound         41 us",
        "best                41 us",
        "gap                 0\n",
        "(bubble/step)",
        "(bubble/compute)",
        "cap 10 GB",
        "published families",
        "1f1b",
        "rank 1 ",
    ):
        assert words in out
    assert "best 41 us  bound 41 us  gap 0" in captured.err
    assert max(map(len, out.splitlines())) < 130


def test_solve_does_not_say_of_families_what_it_had_no_time_to_find_out(here, capsys):
    out = printed(capsys, *SOLVE, "-q", "--time-limit", "0.000001", code=3).out
    assert "published families were not compared" in out


def test_solve_writes_what_it_found_with_times_and_record(here, capsys):
    record = as_json(capsys, *SOLVE, "-o", "out.json")
    document = schedule_json.load(Path("out.json"))
    assert document.record == record
    assert (record["format"], record["value"], record["bound"], record["gap"]) == ("bubbleproof-record/1", 41, 41, "0")
    assert document.starts is not None
    assert max(row[-1] for row in document.starts) < 41
    assert "certificate" in as_json(capsys, "verify", "out.json")


def test_solve_is_quiet_when_asked(here, capsys):
    assert printed(capsys, *SOLVE, "-q").err == ""


def test_solve_says_what_it_reached_in_second_objectives(here, capsys):
    out = printed(capsys, *SOLVE, "-q", "--then", "peak", "--then", "splits", "-o", "out.json").out
    assert "then peak           10 GB (the largest of all ranks); certified" in out
    assert "(backwards are split); " in out
    record = schedule_json.load(Path("out.json")).record
    first = record["then"][0]
    assert (first["name"], first["level"]) == ("peak", "certified")
    captured = printed(capsys, *SOLVE, "-q", "--then", "peak", "--microbatches", "any", code=2)
    assert "--then are about one number of microbatches" in captured.err


def test_solve_takes_cap_objective_and_microbatches_from_the_command_line(here, capsys):
    tight = as_json(capsys, *SOLVE, "--cap", "5", "-q")
    assert (tight["peak"], tight["value"]) == ([5, 5], 64)
    more = as_json(capsys, *SOLVE, "--microbatches", "5", "--objective", "span", "-q", code=0)
    assert more["objective"] == "span"
    assert more["value"] >= 45


@pytest.mark.parametrize("seed", ["0", "7"])
def test_the_same_seed_and_one_worker_give_the_same_file(here, capsys, seed):
    for name in ("a.json", "b.json"):
        printed(capsys, *SOLVE, "--seed", seed, "-q", "-o", name)
    first, second = (schedule_json.load(Path(name)).schedule for name in ("a.json", "b.json"))
    assert first == second


def family(capsys, name="1f1b", *more):
    printed(capsys, "families", name, "--ranks", "2", "--microbatches", "4", *more, "-o", "s.json")


def test_verify_says_what_was_checked_and_assumed(here, capsys):
    family(capsys)
    out = printed(capsys, "verify", "s.json").out
    assert out.startswith("s.json: PROVED\n")
    assert "checked: " in out
    assert "assumed: Ops last, and change memory, as the instance states it for their stage and microbatch." in out


def test_verify_shows_a_deadlock_and_returns_1(here, capsys):
    Path("dead.csv").write_text("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n")
    out = printed(capsys, "verify", "dead.csv", code=1).out
    assert out.startswith("dead.csv: VIOLATED\n")
    assert "inferred: 2 ranks" in out
    report = as_json(capsys, "verify", "dead.csv", code=1)
    assert report["verdict"] == "VIOLATED"
    assert report["violations"][0]["witness"]
    assert any("inferred: 2 stages" in note for note in report["inferred"])


def test_verify_holds_a_file_to_the_times_and_figures_that_it_claims(here, capsys):
    printed(capsys, *SOLVE, "-q", "-o", "out.json")
    raw = json.loads(Path("out.json").read_text())
    for change in (
        lambda r: r["starts"][1].__setitem__(0, 0),
        lambda r: r["record"].__setitem__("value", 40),
        lambda r: r["record"]["peak"].__setitem__(0, 1),
        lambda r: r["record"]["certificate"].__setitem__("value", 10**6),
        lambda r: r["record"]["certificate"].__setitem__("rule", "faith"),
        lambda r: r["record"]["certificate"].__setitem__("value", 40),
        lambda r: r["record"].__setitem__("certificate", None),
        lambda r: r["record"].__setitem__("bound", 42),
        lambda r: r["record"].update(bound=42, proof="cp-sat", level="solver-claimed"),
        lambda r: r["record"].__setitem__("gap", "1/7"),
        lambda r: r["record"].update(bound=40, proof="cp-sat", level="open"),
        lambda r: r["record"].__setitem__("span", r["record"]["span"] + 1),
        lambda r: r["record"].__setitem__("makespan", 40),
        lambda r: r["record"].__setitem__("objective", "span"),
        lambda r: r["record"].__setitem__("objective", ["span"]),
    ):
        changed = json.loads(json.dumps(raw))
        change(changed)
        Path("changed.json").write_text(json.dumps(changed))
        assert printed(capsys, "verify", "changed.json", code=1).out.startswith("changed.json: VIOLATED\n")
    printed(capsys, "verify", "out.json", code=0)


def test_verify_judges_under_another_instance_when_told(here, capsys):
    family(capsys, "gpipe")
    printed(capsys, "verify", "s.json")
    out = printed(capsys, "verify", "s.json", "--instance", "small.toml", code=1).out
    assert "given: the instance small.toml instead of the one in the file" in out
    printed(capsys, "verify", "s.json", "--instance", "small.toml", "--cap", "20")


def test_show_draws_a_file_and_a_family_the_same(here, capsys):
    family(capsys)
    from_file = printed(capsys, "show", "s.json").out
    from_name = printed(capsys, "show", "1f1b", "--ranks", "2", "--microbatches", "4").out
    for out in (from_file, from_name):
        assert "rank 0 F0-F1-······BW0###F2-" in out
        assert "makespan            15\n" in out
    assert "\x1b[" not in from_file
    assert "\x1b[48;5;" in printed(capsys, "show", "s.json", "--color", "always").out


def test_show_fits_the_width_that_is_asked_for(here, capsys):
    family(capsys, "zb-h1")
    for width in (40, 60, 100, 200):
        rows = printed(capsys, "show", "s.json", "--width", str(width)).out.splitlines()
        picture = [row for row in rows if row.startswith("rank ")]
        assert len(picture) == 2
        assert all(len(row) <= width for row in picture)


def test_show_gives_every_figure_as_json(here, capsys):
    found = as_json(capsys, "show", "1f1b", "--ranks", "4", "--microbatches", "4", "--cost", "F=1,BW=2")
    assert (found["makespan"], found["bubble"]["makespan"]) == (21, {"step": "3/7", "compute": "3/4"})
    assert [rank["peak"]["memory"] for rank in found["ranks"]] == [4, 3, 2, 1]
    assert found["critical_path"][0] == "0F0"


def test_show_writes_a_picture(here, capsys):
    out = printed(capsys, "show", "1f1b", "--svg", "p.svg").out
    assert "picture written to p.svg" in out
    assert Path("p.svg").read_text().startswith("<svg ")


def test_show_adds_a_table_of_the_ranks(here, capsys):
    out = printed(capsys, "show", "1f1b", "--ranks-table").out
    assert "rank  stages  busy  fill  steady  drain  peak" in out


def test_compare_puts_families_and_files_side_by_side(here, capsys):
    family(capsys)
    out = printed(capsys, "compare", "small.toml", "s.json", "--families", "gpipe,chimera").out
    names = [line.split()[0] for line in out.splitlines() if line]
    assert names.index("s.json") < names.index("gpipe")
    assert "gpipe needs 20 GB on rank 0, cap 10 GB" in out
    assert "chimera needs a bidirectional placement" in out
    assert max(len(line) for line in out.splitlines() if not line.startswith("chimera")) <= 80
    rows = as_json(capsys, "compare", "small.toml", "--families", "1f1b,gpipe")
    assert [(row["name"], row["excess"]) for row in rows] == [
        ("1f1b", ""),
        ("gpipe", "needs 20 GB on rank 0, cap 10 GB"),
    ]


def test_compare_returns_1_for_a_file_that_cannot_run_on_the_instance(here, capsys):
    family(capsys, "1f1b", "--cost", "F=1,BW=2")
    printed(capsys, "families", "1f1b", "--ranks", "3", "-o", "other.json")
    out = printed(capsys, "compare", "small.toml", "other.json", "--families", "none", code=1).out
    assert "other.json cannot run on this instance: V100" in out


def test_families_lists_all_with_references_as_json(here, capsys):
    listed = as_json(capsys, "families")
    assert {"1f1b", "gpipe", "zb-v", "dualpipev"} <= {entry["name"] for entry in listed}
    assert all(entry["reference"] for entry in listed)
    assert "zb-v" in printed(capsys, "families").out


@pytest.mark.parametrize("target", ["torch-csv", "perfetto", "svg", "json", "dot", "graphml"])
def test_export_writes_the_same_to_a_file_and_to_standard_output(here, capsys, target):
    family(capsys, "zb-h1")
    shown = printed(capsys, "export", "s.json", "--to", target).out
    assert printed(capsys, "export", "s.json", "--to", target, "-o", "x").out == ""
    assert Path("x").read_text() == shown
    assert as_json(capsys, "export", "s.json", "--to", target)["text"] == shown


def test_export_refuses_what_the_judge_refuses_and_writes_nothing(here, capsys):
    Path("bad.csv").write_text("0F0,0B0\n1F0\n")
    captured = printed(capsys, "export", "bad.csv", "--to", "perfetto", "-o", "x", code=1)
    assert "bad.csv: VIOLATED; nothing is written" in captured.err
    assert not os.path.exists("x")


def test_import_gives_back_what_export_wrote(here, capsys):
    family(capsys, "zb-h1")
    printed(capsys, "export", "s.json", "--to", "torch-csv", "-o", "s.csv")
    captured = printed(capsys, "import", "s.csv", "--from", "torch-csv", "-o", "back.json")
    assert "assumed: costs F = 1, B = 1, W = 1, comm = 0" in captured.err
    before, after = schedule_json.load(Path("s.json")), schedule_json.load(Path("back.json"))
    assert before.schedule == after.schedule
    assert before.instance.costs == after.instance.costs
    printed(capsys, "import", "s.csv", "--from", "torch-csv", "--instance", "small.toml", "-o", "back.json")
    assert schedule_json.load(Path("back.json")).instance.name == "small"


def test_import_refuses_a_violated_schedule(here, capsys):
    Path("bad.csv").write_text("0F0,0B0\n1F0\n")
    printed(capsys, "import", "bad.csv", "--from", "torch-csv", "-o", "x.json", code=1)
    assert not os.path.exists("x.json")
