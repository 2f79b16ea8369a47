"""Runtimes run in environments of their own; here is how a test talks to one."""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


class Server:
    """A process of a runtime's own Python that answers one job per line."""

    def __init__(self, python: Path, script: Path, log: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.log = log.open("w")
        self.process = subprocess.Popen(
            [str(python), str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=environment,
            start_new_session=True,
        )
        self.versions: dict[str, str] = self._answer(120)

    def ask(self, **job: Any) -> dict[str, Any]:
        """Run one job; the server itself keeps the time limit, this one only guards against its own failure."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return self._answer(job["seconds"] + 60)

    def _answer(self, seconds: float) -> dict[str, Any]:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self.close()
            raise RuntimeError(f"the runtime's server gave no answer; its log is {self.log.name}")
        return dict(json.loads(line))

    def close(self) -> None:
        """End the server and whatever it started."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.log):
            if pipe is not None:
                pipe.close()


def python_of(name: str) -> Path:
    """The Python of a runtime's environment, made if need be; if it cannot be made, the test is skipped.

    ``BUBBLEPROOF_<NAME>_PYTHON`` names another one.
    """
    given = os.environ.get(f"BUBBLEPROOF_{name.upper()}_PYTHON")
    if given:
        return Path(given)
    script = Path(__file__).parent / "environment.sh"
    made = subprocess.run([script, name], capture_output=True, text=True, timeout=900)
    if made.returncode:
        reason = (made.stderr.strip().splitlines() or ["no reason given"])[-1]
        pytest.skip(f"no environment for {name}: {reason[:200]}")
    return Path(made.stdout.strip())


@pytest.fixture(scope="session")
def torch_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """PyTorch on the CPU, in its own environment."""
    log = tmp_path_factory.mktemp("torch") / "server.log"
    server = Server(python_of("torch"), Path(__file__).parent / "torch" / "executor.py", log)
    yield server
    server.close()


@pytest.fixture(scope="session")
def spectrax_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """spectrax on virtual CPU devices, in its own environment."""
    log = tmp_path_factory.mktemp("spectrax") / "server.log"
    server = Server(python_of("spectrax"), Path(__file__).parent / "spectrax" / "executor.py", log)
    yield server
    server.close()


@pytest.fixture(scope="session")
def evidence(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """What was shown on each runtime: target → list of entries; written with ``--record-evidence``."""
    found: dict[str, Any] = {}
    yield found
    if request.config.getoption("--record-evidence"):
        folder = ROOT / "docs" / "evidence"
        folder.mkdir(exist_ok=True)
        for target, entries in found.items():
            text = json.dumps(entries, indent=1, sort_keys=True, ensure_ascii=False)
            (folder / f"{target}.json").write_text(text + "\n", encoding="utf-8")
