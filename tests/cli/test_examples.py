"""The examples can be read, and mean what their comments say."""

import json
from pathlib import Path

import pytest

from bubbleproof.cli import main
from bubbleproof.schedules.instance import Instance

EXAMPLES = Path(__file__).parents[2] / "examples"
TABLE = json.loads((Path(__file__).parents[1] / "data" / "zb_table5.json").read_text())["rows"]


def test_the_promised_settings_are_there():
    names = {path.stem for path in EXAMPLES.glob("*.toml")}
    assert {"llama-405B-p16-m64", "loop-lm-head", "vee-lm-head", "bidirectional-moe"} <= names
    assert len([name for name in names if name.startswith("zb-")]) == 12


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_example_loads_under_its_own_name(path):
    assert Instance.load(path).name == path.stem


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row["id"])
def test_the_settings_of_the_zero_bubble_paper_have_its_figures(row):
    instance = Instance.load(EXAMPLES / f"zb-{row['model']}-p{row['p']}-m{row['m']}.toml")
    assert (instance.ranks, instance.stages, instance.microbatches) == (row["p"], row["p"], row["m"])
    assert instance.objective == "span"
    costs, memory = instance.costs, instance.memory
    assert (costs.F[0], costs.B[0], costs.W[0], costs.message(0, 1)) == (row["F"], row["B"], row["W"], row["comm"])
    assert (memory.F[0], memory.B[0], memory.W[0]) == (row["mem_F"], row["mem_B"], row["mem_W"])
    assert memory.cap == (row["cap_zb1p"],) * row["p"]


def test_gpipe_on_the_405b_layout_is_refused_with_the_256_gb_that_it_needs(capsys):
    assert main(["compare", str(EXAMPLES / "llama-405B-p16-m64.toml"), "--families", "gpipe,1f1b"]) == 0
    out = capsys.readouterr().out
    assert "gpipe needs 256 GB on rank 0, cap 80 GB" in out
    row = next(line for line in out.splitlines() if line.startswith("1f1b"))
    assert row.split() == ["1f1b", "237", "237", "19.0%", "23.4%", "64", "yes"]


@pytest.mark.parametrize("name", ["loop-lm-head", "vee-lm-head", "bidirectional-moe", "llama-405B-p16-m64"])
def test_a_solved_example_is_proved_by_the_judge(name, tmp_path, capsys):
    out = tmp_path / "out.json"
    code = main(["solve", str(EXAMPLES / f"{name}.toml"), "--time-limit", "2", "--workers", "1", "-q", "-o", str(out)])
    assert code in (0, 3)
    assert main(["verify", str(out)]) == 0
    assert f"{out}: PROVED" in capsys.readouterr().out
