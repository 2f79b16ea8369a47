"""A solve that is killed at any instant leaves a whole file, and the next one goes on from its schedule and bound."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from bubbleproof.cli import main
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import BubbleproofError
from bubbleproof.schedules.formats.schedule_json import Document, load, loads
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import vee
from bubbleproof.solver import solve

HARD = """
format = "bubbleproof-instance/1"
microbatches = 16
[placement]
kind = "vee"
ranks = 8
[cost]
F = 5
B = 8
W = 3
[memory]
cap = 12
"""
EASY = Instance(vee(2), 3, Costs.make(4, F=1, B=1, W=1), Memory.make(4, 2, cap=4))


@pytest.fixture(scope="module", autouse=True)
def without_crossings():
    """The rule `crossing` would certify these instances before CP-SAT or a proof is asked for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bubbleproof.solver.search.raise_by_crossings", lambda search: None)
        yield


def kept_by(instance: Instance, **options) -> list[Document]:
    """What `solve` hands out while it runs."""
    found = []
    solve(instance, workers=1, keep=lambda s: found.append(document_of(s)), **options)
    return found


def document_of(solution) -> Document:
    import msgspec

    record = msgspec.to_builtins(solution.record)
    return Document(solution.schedule, solution.timeline.instance, solution.timeline.starts, record)


def killed_after(seconds: float, problem: Path, out: Path) -> None:
    """Run the command and kill it; what it was doing at that moment is left to chance."""
    command = [sys.executable, "-m", "bubbleproof.cli", "solve", str(problem), "-q", "--workers", "1", "--resume"]
    process = subprocess.Popen([*command, "-o", str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(seconds)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def test_killed_again_and_again_the_file_is_whole_and_never_gets_worse(tmp_path):
    problem, out = tmp_path / "hard.toml", tmp_path / "best.json"
    problem.write_text(HARD)
    best, bound, seen = 10**9, 0, 0
    for seconds in (0.2, 0.5, 0.9, 1.4, 2.5, 1.1):
        killed_after(seconds, problem, out)
        if not out.exists():
            continue
        assert main(["verify", str(out)]) == 0
        record = load(out).record
        assert record["stopped"] == "running"
        assert record["value"] <= best
        assert record["bound"] >= bound
        best, bound, seen = record["value"], record["bound"], seen + 1
    assert seen >= 2
    main(["solve", str(problem), "-q", "--workers", "1", "--time-limit", "1", "--resume", "-o", str(out)])
    record = load(out).record
    assert record["value"] <= best
    assert record["bound"] >= bound
    assert record["stopped"] != "running"


@pytest.mark.parametrize("call", ["os.fdopen", "os.fsync", "os.chmod", "os.replace", "os.umask"])
def test_killed_inside_any_step_of_writing_the_old_file_or_the_new_one_is_there(tmp_path, call):
    out = tmp_path / "best.json"
    program = f"""
        import os, signal, sys
        from bubbleproof.cli import main
        arguments = ["solve", sys.argv[1], "-q", "--workers", "1", "--time-limit", "5", "--resume", "-o", sys.argv[2]]
        true, calls = {call}, 0
        def deadly(*given, **named):
            global calls
            calls += 1
            if calls == int(sys.argv[3]):
                os.kill(os.getpid(), signal.SIGKILL)
            return true(*given, **named)
        {call} = deadly
        main(arguments)
    """
    problem = tmp_path / "hard.toml"
    problem.write_text(HARD)
    last = 10**9
    for count in ("1", "2", "3"):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), str(problem), str(out), count],
            capture_output=True,
            check=False,
        )
        if done.returncode != -signal.SIGKILL:
            assert done.returncode in (0, 3), done.stderr.decode()
        if out.exists():
            value = load(out).record["value"]
            assert value <= last
            last = value
    assert out.exists()


def test_what_is_kept_gets_better_and_is_judged_each_time():
    found = kept_by(EASY, time_limit=5)
    values = [document.record["value"] for document in found]
    assert values == sorted(values, reverse=True)
    assert all(document.record["stopped"] == "running" for document in found)


def test_a_bound_that_only_cp_sat_claims_stays_claimed_and_a_certified_one_is_checked_again():
    document = document_of(solve(EASY, time_limit=5, workers=1))
    best = document.record["value"]
    claimed = {**document.record, "certificate": None, "bound": best, "proof": "cp-sat", "level": "certified"}
    again = solve(EASY, time_limit=5, workers=1, resume=Document(document.schedule, EASY, None, claimed)).record
    assert again.value == best
    assert again.level in ("certified", "solver-claimed")
    if again.level == "solver-claimed":
        assert any("CP-SAT claims" in note for note in again.notes)
    false = {"rule": "load", "objective": "makespan", "value": best + 1, "rank": 0}
    false |= {"format": "bubbleproof-certificate/1"}
    record = {**document.record, "certificate": false, "bound": best, "proof": "load"}
    again = solve(EASY, time_limit=5, workers=1, resume=Document(document.schedule, EASY, None, record)).record
    assert again.bound <= best


def test_going_on_starts_from_the_schedule_of_the_file():
    best = solve(EASY, time_limit=5, workers=1)
    steps = []
    solve(EASY, time_limit=5, workers=1, resume=document_of(best), on_progress=steps.append)
    assert steps[0].value == best.record.value


def test_a_file_that_does_not_fit_is_refused():
    document = document_of(solve(EASY, time_limit=5, workers=1))
    with pytest.raises(BubbleproofError, match="another instance"):
        solve(EASY.with_cap(6), resume=document)
    with pytest.raises(BubbleproofError, match="another instance"):
        solve(EASY, objective="span", resume=document)
    too_high = {**document.record, "bound": document.record["value"] + 1, "proof": "cp-sat"}
    with pytest.raises(BubbleproofError, match="nothing is below"):
        solve(EASY, resume=Document(document.schedule, EASY, None, too_high))
    text = json.dumps({**json.loads(dumped(document)), "orders": [["0F0"], ["1F0"]], "starts": None, "record": None})
    with pytest.raises(BubbleproofError, match="does not hold: V1"):
        solve(EASY, resume=loads(text))


def dumped(document: Document) -> str:
    from bubbleproof.schedules.formats.schedule_json import dumps

    return dumps(document)


def test_without_resume_a_file_that_exists_is_replaced_at_the_end_only(tmp_path, monkeypatch):
    problem, out = tmp_path / "hard.toml", tmp_path / "best.json"
    problem.write_text(HARD.replace("ranks = 8", "ranks = 2"))
    seen = []
    monkeypatch.setattr("bubbleproof.solver.resume.Keeper.improved", lambda self: seen.append(1))
    out.write_text("something else\n")
    main(["solve", str(problem), "-q", "--workers", "1", "--time-limit", "1", "-o", str(out)])
    assert not seen
    assert load(out).record["stopped"] != "running"
    main(["solve", str(problem), "-q", "--workers", "1", "--time-limit", "1", "-o", str(tmp_path / "new.json")])
    assert seen


def test_resume_needs_a_file_and_refuses_one_that_is_none(tmp_path, capsys):
    problem, out = tmp_path / "hard.toml", tmp_path / "best.json"
    problem.write_text(HARD)
    assert main(["solve", str(problem), "--resume"]) == 2
    assert "name it with -o" in capsys.readouterr().err
    out.write_text("something else\n")
    assert main(["solve", str(problem), "--resume", "-o", str(out)]) == 2
    assert "not JSON" in capsys.readouterr().err
    assert out.read_text() == "something else\n"


def test_a_proof_on_disk_is_checked_again_and_its_level_kept(tmp_path, capsys):
    pytest.importorskip("pumpkin_solver")
    problem, out, proof = tmp_path / "p.toml", tmp_path / "best.json", tmp_path / "best.proof"
    problem.write_text(HARD.replace('"vee"', '"linear"').replace("ranks = 8", "ranks = 4").replace("12", "3"))
    command = ["solve", str(problem), "-q", "--workers", "1", "-o", str(out), "--proof", str(proof)]
    assert main([*command, "--time-limit", "20"]) == 0
    first = load(out).record
    assert first["level"] == "proof-checked"
    assert main([*command, "--resume", "--time-limit", "0.1"]) == 0
    again = load(out).record
    assert (again["level"], again["value"]) == ("proof-checked", first["value"])
    proof.write_text("\n".join(proof.read_text().splitlines()[:-3]))
    main([*command[:-2], "--resume", "--time-limit", "0.1"])
    assert load(out).record["level"] != "proof-checked"
