"""Runtimes run in environments of their own; here is how a test talks to one."""

from __future__ import annotations

import json
import os
import select
import subprocess
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


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
        self.versions: dict[str, str] = self._answer(300)  # libraries of gigabytes, perhaps for the first time

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


def python_of(target: str) -> Path:
    """The Python of a target's environment, made if need be; if it cannot be made, the test is skipped.

    ``BUBBLEPROOF_<TARGET>_PYTHON`` names another one.
    """
    given = os.environ.get(f"BUBBLEPROOF_{target.upper()}_PYTHON")
    if given:
        return Path(given)
    made = subprocess.run([HERE / "environment.sh", target], capture_output=True, text=True, timeout=900)
    if made.returncode:
        reason = (made.stderr.strip().splitlines() or ["no reason given"])[-1]
        pytest.skip(f"no environment for {target}: {reason[:200]}")
    return Path(made.stdout.strip())
