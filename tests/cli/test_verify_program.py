"""``verify`` on files with communication, as a user calls it."""

import json
from pathlib import Path

import pytest

from bubbleproof.cli import main

DATA = Path(__file__).parents[1] / "data" / "torch_csv"
WRONG = str(DATA / "bug_defer_ZBVZeroBubble_pp2_mb3_comms.csv")
RIGHT = str(DATA / "ZBVZeroBubble_pp2_mb4_comms.csv")
SIZES = ["--ranks", "2", "--stages", "4", "--microbatches", "3", "--placement", "0,1,1,0"]


def run(capsys, *arguments):
    code = main(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("channel", ["eager", "rendezvous-pair", "rendezvous-rank", "per-direction", "per-edge"])
def test_a_right_file_passes(capsys, channel):
    code, out, _ = run(capsys, "verify", RIGHT, "--format", "torch-comms", "--target", "torch", "--channel", channel)
    assert code == 0
    assert "PROVED" in out
    assert f"under {channel}: makespan" in out


def test_a_wrong_file_is_named_with_cause_and_picture(capsys):
    code, out, _ = run(capsys, "verify", WRONG, "--target", "torch", *SIZES)
    assert code == 1
    assert "V510: silent wrong data if shapes are equal" in out
    assert "V601: deadlock under rendezvous-pair: rank 0 waits to send F1 of stage 0 to rank 1" in out
    assert "[0SEND_F1]" in out
    assert "inferred: format torch-comms, from the transfers in the file" in out
    assert "these never end: rank 0 at 0SEND_F1 (position 5), rank 1 at 2SEND_F0 (position 5)" in out


def test_what_is_given_is_checked_against_the_file(capsys):
    code, _, err = run(capsys, "verify", RIGHT, "--format", "torch-comms", "--ranks", "3")
    assert code == 2
    assert "2 ranks in the file, but 3 given" in err
    code, out, _ = run(capsys, "verify", RIGHT, "--format", "torch-comms", "--placement", "0,1,0,1", "--json")
    assert code == 1
    assert {"V104", "V507"} <= set(json.loads(out)["counts"])
    code, out, _ = run(capsys, "verify", RIGHT, "--format", "torch-comms", "--microbatches", "3", "--json")
    assert set(json.loads(out)["counts"]) == {"V103", "V504"}


def test_the_report_as_json_holds_the_certificate_or_the_witness(capsys):
    code, out, _ = run(capsys, "verify", RIGHT, "--json")
    report = json.loads(out)
    assert (code, report["verdict"], report["channel"]["channel"]) == (0, "PROVED", "rendezvous-pair")
    assert sum(map(len, report["order"])) == sum(len(line.split(",")) for line in Path(RIGHT).read_text().splitlines())
    code, out, _ = run(capsys, "verify", WRONG, "--json", "--channel", "rendezvous-rank")
    report = json.loads(out)
    assert (code, report["order"]) == (1, None)
    assert [v["rule"] for v in report["violations"]] == ["V510", "V601"]


def test_compute_only_files_are_held_to_the_rules_of_torch(capsys, tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("0F0,0F1,0B0,0B1\n1F1,1F0,1B0,1B1\n")
    assert run(capsys, "verify", str(path))[0] == 0
    code, out, _ = run(capsys, "verify", str(path), "--target", "torch")
    assert code == 1
    assert "V705" in out


def test_options_about_communication_are_refused_for_files_without_any(capsys, tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("0F0,0B0\n1F0,1B0\n")
    options = [["--channel", "eager"], ["--no-transfers"], ["--no-scale-grads"], ["--fused-stages", "0"]]
    for option in [*options, ["--message-memory", "1"]]:
        code, _, err = run(capsys, "verify", str(path), *option)
        assert code == 2
        assert f"{option[0]} is about communication, and the file has none" in err


def test_a_schedule_is_exported_with_its_communication_and_passes(capsys, tmp_path):
    schedule, comms, program = (str(tmp_path / name) for name in ("s.json", "s.comms.csv", "s.program.json"))
    assert run(capsys, "families", "zb-v", "--ranks", "2", "--microbatches", "3", "-o", schedule)[0] == 0
    assert run(capsys, "export", schedule, "--to", "torch-comms", "-o", comms)[0] == 0
    assert run(capsys, "export", schedule, "--to", "program", "-o", program)[0] == 0
    assert run(capsys, "verify", comms, "--target", "torch", "--channel", "rendezvous-rank")[0] == 0
    assert run(capsys, "verify", program, "--target", "torch", "--channel", "batched")[0] == 0
    code, out, _ = run(capsys, "verify", program, "--cap", "6", "--message-memory", "2")
    assert code == 1
    assert "V801" in out
    assert run(capsys, "verify", program, "--message-memory", "1,2")[0] == 2
    assert run(capsys, "verify", program, "--cost", "F=1,B=1")[0] == 2


def test_a_file_whose_transfers_the_runtime_adds(capsys, tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("0F0,0B0,0REDUCE_GRAD\n1F0,1B0,1REDUCE_GRAD\n")
    assert run(capsys, "verify", str(path), "--format", "torch-comms")[0] == 1
    assert run(capsys, "verify", str(path), "--format", "torch-comms", "--no-transfers")[0] == 0
