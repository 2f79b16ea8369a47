"""What only a real process shows: imports at start-up, signals, closed pipes, encodings."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
HEAVY = ("numpy", "networkx", "ortools", "rich")
COMMAND = [sys.executable, "-m", "bubbleproof.cli"]


@pytest.fixture
def schedule(tmp_path):
    from bubbleproof.cli import main

    path = tmp_path / "s.json"
    assert main(["families", "1f1b", "-o", str(path)]) == 0
    return path


@pytest.mark.parametrize(
    "argv",
    [
        ["verify", "FILE"],
        ["show", "FILE"],
        ["families"],
        ["families", "zb-v"],
        ["export", "FILE", "--to", "torch-csv"],
        ["export", "FILE", "--to", "perfetto"],
        ["compare", str(EXAMPLES / "llama-405B-p16-m64.toml")],
        ["--version"],
    ],
    ids=" ".join,
)
def test_a_verb_does_not_import_what_it_does_not_need(schedule, argv):
    argv = [str(schedule) if word == "FILE" else word for word in argv]
    program = (
        "import sys\nfrom bubbleproof.cli import main\n"
        f"code = main({argv!r})\n"
        f"print('loaded:', *(name for name in {HEAVY!r} if name in sys.modules))\nsys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "loaded:")


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_or_a_kill_prints_and_writes_the_best_so_far_and_returns_3(tmp_path, sent):
    """A setting that is far from proved after a second; the signal comes after the first line of progress."""
    out = tmp_path / "best.json"
    file = str(EXAMPLES / "vee-lm-head.toml")
    process = subprocess.Popen(
        [*COMMAND, "solve", file, "--time-limit", "100", "--workers", "2", "-o", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    first = process.stderr.readline()
    process.send_signal(sent)
    stdout, stderr = process.communicate(timeout=60)
    assert "best" in first
    assert "Traceback" not in stderr
    assert process.returncode == 3
    assert "interrupted" in stdout
    assert out.exists()


def test_ctrl_c_while_the_result_is_judged_does_not_lose_it(monkeypatch):
    from bubbleproof import Instance, solve
    from bubbleproof.solver import driver

    judge, calls = driver._judge, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        judge(*arguments)

    monkeypatch.setattr(driver, "_judge", interrupted)
    record = solve(Instance.load(EXAMPLES / "zb-1.5B-p8-m24.toml"), time_limit=60).record
    assert (record.level, len(calls)) == ("certified", 2)


def test_a_reader_that_goes_away_is_no_error(schedule):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*COMMAND, "verify", str(schedule)], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_disk_is_an_error_of_one_line(schedule):
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, "verify", str(schedule)], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr == "bubbleproof: error: cannot write the output: No space left on device\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_every_encoding_of_the_terminal_works(schedule, encoding):
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    for argv in (["show", str(schedule)], ["compare", str(EXAMPLES / "zb-1.5B-p8-m24.toml"), "--families", "1f1b"]):
        done = subprocess.run([*COMMAND, *argv], capture_output=True, env=environment)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.decode(encoding)
    shown = subprocess.run([*COMMAND, "show", str(schedule)], capture_output=True, env=environment).stdout
    assert ("·".encode() in shown) == (encoding == "utf-8")


def test_no_color_is_respected(schedule):
    shown = subprocess.run([*COMMAND, "show", str(schedule)], capture_output=True, env={**os.environ, "NO_COLOR": "1"})
    assert b"\x1b[" not in shown.stdout


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_output_is_no_error(schedule, closed):
    command = f'exec "{sys.executable}" -m bubbleproof.cli show "{schedule}" {closed}'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
