"""DeepSpeed's streams of instructions through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bubbleproof.cli import main

DATA = Path(__file__).parents[1] / "data" / "deepspeed"


def family(tmp_path: Path, name: str, ranks: int, microbatches: int) -> str:
    file = str(tmp_path / f"{name}.json")
    assert main(["families", name, "--ranks", str(ranks), "--microbatches", str(microbatches), "-o", file]) == 0
    return file


@pytest.mark.parametrize(("name", "microbatches"), [("zb-h1", 5), ("1f1b", 2), ("gpipe", 3), ("zb-v", 8)])
def test_a_schedule_goes_out_is_judged_and_comes_back(
    name: str, microbatches: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out, back = (
        family(tmp_path, name, 3, microbatches),
        str(tmp_path / "x.deepspeed.json"),
        str(tmp_path / "b.json"),
    )
    assert main(["export", file, "--to", "deepspeed", "-o", out]) == 0
    note = capsys.readouterr().err
    assert f"gradient_accumulation_steps = {microbatches}" in note
    assert ("runs on DeepSpeed's own engine too" in note) == (name == "1f1b")
    assert main(["verify", out, "--engine", "bubbleproof", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["verdict"], report["runtime"]["outcome"]) == ("PROVED", "ok")
    assert main(["import", out, "--from", "deepspeed", "-o", back]) == 0
    orders = [json.loads(Path(each).read_text(encoding="utf-8"))["orders"] for each in (file, back)]
    assert orders[0] == orders[1]


@pytest.mark.parametrize("name", ["train-p4-m5.txt", "dualpipev-p2-m5.txt"])
def test_what_deepspeed_prints_of_its_own_schedules_is_judged(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(DATA / name), "--format", "deepspeed"]) == 0
    assert "DeepSpeed's engine on this file: trains right" in capsys.readouterr().out


def test_split_backwards_are_for_one_engine_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = family(tmp_path, "zb-h1", 2, 3), str(tmp_path / "x.deepspeed.json")
    assert main(["export", file, "--to", "deepspeed", "-o", out]) == 0
    assert main(["verify", out]) == 0
    assert main(["verify", out, "--engine", "stock"]) == 1
    assert "V901: the runtime raises on rank 1" in capsys.readouterr().out


def test_the_engine_is_asked_only_about_streams(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = family(tmp_path, "1f1b", 2, 3), str(tmp_path / "x.comms.csv")
    assert main(["export", file, "--to", "torch-comms", "-o", out]) == 0
    for each in (file, out):
        assert main(["verify", each, "--engine", "stock"]) == 2
        assert "--engine is about" in capsys.readouterr().err


def test_a_loop_is_refused_and_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = family(tmp_path, "looped-bfs", 2, 4), tmp_path / "x.deepspeed.json"
    assert main(["export", file, "--to", "deepspeed", "-o", str(out)]) == 2
    assert "this is loop with 4 stages on 2 ranks" in capsys.readouterr().err
    assert not out.exists()
