"""Fixtures of the tests that execute schedules: a server for each target, and the record of what ran."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.runtimes.records import Evidence
from tests.runtimes.server import HERE, Server, python_of


@pytest.fixture(scope="session")
def server_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Server]]:
    """Starts the executor of a target in the target's environment, once; skips if there is no environment."""
    running: dict[str, Server] = {}

    def started(target: str) -> Server:
        if target not in running:
            log = tmp_path_factory.mktemp(target) / "server.log"
            running[target] = Server(python_of(target), HERE / target / "executor.py", log)
        return running[target]

    yield started
    for server in running.values():
        server.close()


@pytest.fixture(scope="session")
def torch_server(server_of: Callable[[str], Server]) -> Server:
    """PyTorch on the CPU."""
    return server_of("torch")


@pytest.fixture(scope="session")
def spectrax_server(server_of: Callable[[str], Server]) -> Server:
    """spectrax on virtual CPU devices."""
    return server_of("spectrax")


@pytest.fixture(scope="session")
def _all_evidence(request: pytest.FixtureRequest) -> Iterator[Evidence]:
    found = Evidence()
    yield found
    if request.config.getoption("--record-evidence"):
        found.write()


@pytest.fixture
def evidence(request: pytest.FixtureRequest, _all_evidence: Evidence) -> Any:
    """Where a test says what it saw a runtime do; kept in tests/data/runtimes with ``--record-evidence``."""
    return _all_evidence.of_test(f"{request.path.name}::{request.function.__name__}")
