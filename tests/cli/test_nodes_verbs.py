"""Files of nodes at the command line: out, judged, and in again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bubbleproof.cli import main

INSTANCE = """
format = "bubbleproof-instance/1"
microbatches = {m}
[placement]
kind = "{kind}"
ranks = 2
[cost]
F = 2
B = 2
W = 1
"""


def solved(folder: Path, kind: str, m: int) -> str:
    (folder / "in.toml").write_text(INSTANCE.format(kind=kind, m=m))
    family = {"vee": "zb-v", "linear": "zb-h1"}[kind]
    out = str(folder / "s.json")
    assert main(["families", family, "--instance", str(folder / "in.toml"), "-o", out]) == 0
    return out


@pytest.mark.parametrize(
    ("name", "suffix"), [("colossalai", "colossalai"), ("sail-sg", "sailsg"), ("primus", "primus")]
)
def test_nodes_go_out_are_proved_and_come_in_again(
    name: str, suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, back = str(tmp_path / f"x.{suffix}.json"), str(tmp_path / "back.json")
    given = solved(tmp_path, "vee", 4)
    assert main(["export", given, "--to", name, "-o", out]) == 0
    capsys.readouterr()
    assert main(["verify", out, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == "PROVED"
    assert report.get("runtime", {}).get("outcome") == ("ok" if name == "colossalai" else None)
    assert main(["import", out, "--from", name, "-o", back]) == 0
    orders = [json.loads(Path(file).read_text())["orders"] for file in (given, back)]
    assert orders[0] == orders[1]


def test_microbatches_that_colossalai_refuses_need_the_other_scheduler(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "x.colossalai.json")
    assert main(["export", solved(tmp_path, "vee", 3), "--to", "colossalai", "-o", out]) == 0
    assert "3 microbatches are no multiple of 2 ranks" in capsys.readouterr().err
    assert main(["verify", out]) == 0
    assert "ColossalAI on this file: trains right" in capsys.readouterr().out
    assert main(["verify", out, "--engine", "stock"]) == 1
    assert "V901: the runtime refuses the program" in capsys.readouterr().out


def test_another_placement_is_refused_for_colossalai(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", solved(tmp_path, "linear", 4), "--to", "colossalai"]) == 2
    assert "the placement vee on 2 ranks" in capsys.readouterr().err
