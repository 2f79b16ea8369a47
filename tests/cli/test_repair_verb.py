"""``repair`` says what it changed, writes only what is proved, and leaves alone what is right."""

import json
from pathlib import Path

from bubbleproof.cli import main
from bubbleproof.schedules.formats import torch_comms

TORCH = Path(__file__).parents[1] / "data" / "torch_csv"
DEFERRED = str(TORCH / "bug_defer_ZBVZeroBubble_pp2_mb3_comms.csv")


def test_deferred_receives_are_repaired_written_and_right_afterwards(tmp_path, capsys):
    out = str(tmp_path / "safe.csv")
    assert main(["repair", DEFERRED, "-o", out]) == 0
    text = capsys.readouterr().out
    assert "was wrong: V601: deadlock under rendezvous-pair" in text
    assert "moved: 0 ops or pairs, 4 transfers; proved fewest" in text
    assert "as given it never ends; repaired it takes 19, its ops alone 19" in text
    assert "the result is PROVED under rendezvous-pair" in text
    assert main(["verify", out]) == 0
    capsys.readouterr()
    assert main(["repair", out]) == 0
    assert "nothing to repair" in capsys.readouterr().out


def test_the_changes_as_json_lead_from_the_file_to_the_result(capsys):
    assert main(["repair", DEFERRED, "--channel", "rendezvous-rank", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    given = torch_comms.load(Path(DEFERRED))
    for change in found["changes"]:
        assert change["what"] == "moved"
        (rank, position), (to_rank, to) = change["from"], change["to"]
        assert str(given.rows[rank][position]) == change["action"] == found["rows"][to_rank][to]
    assert found["moved_transfers"] == len(found["changes"]) == found["bound_transfers"]
    assert (found["level"], found["verdict"], found["makespan_before"]) == ("fewest", "PROVED", None)


def test_a_program_is_written_with_its_instance(tmp_path, capsys):
    out = str(tmp_path / "safe.json")
    assert main(["repair", DEFERRED, "-o", out]) == 0
    assert main(["verify", out]) == 0
    assert main(["repair", out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["changes"] == []


def test_a_schedule_without_communication_has_its_ops_repaired(tmp_path, capsys):
    file, out = tmp_path / "cyclic.csv", tmp_path / "good.csv"
    file.write_text("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n")
    assert main(["repair", str(file), "--target", "torch", "-o", str(out)]) == 0
    assert "moved: 1 ops or pairs, 0 transfers; proved fewest" in capsys.readouterr().out
    assert main(["verify", str(out)]) == 0


def test_memory_over_the_cap_is_refused_with_a_reason_and_nothing_is_written(tmp_path, capsys):
    file, out = tmp_path / "greedy.csv", tmp_path / "good.csv"
    file.write_text("0F0,0F1,0B0,0B1\n")
    arguments = ["repair", str(file), "--cap", "1", "-o", str(out)]
    assert main(arguments) == 1
    assert "V301: memory is over the cap" in capsys.readouterr().out
    assert main([*arguments, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["repaired"] is False
    assert not out.exists()


def test_a_name_that_does_not_tell_what_to_write_is_refused(tmp_path, capsys):
    assert main(["repair", DEFERRED, "-o", str(tmp_path / "out.txt")]) == 2
    assert "out.txt: what to write is told by the name" in capsys.readouterr().err
