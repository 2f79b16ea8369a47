"""Settings of all tests."""

import signal
from pathlib import Path

import pytest
from hypothesis import settings

# on a busy machine the time of a single example says nothing
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

# what starts the tests in the background may ignore Ctrl-C, for itself and all it starts; some tests send it
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    text = "write what the runtime tests saw to tests/data/runtimes"
    parser.addoption("--record-evidence", action="store_true", help=text)


STATUS = Path("/proc/self/status")


def interrupts_are_caught():
    """Whether the process catches SIGINT, as the system sees it: libraries can change that behind Python's back."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("SigCgt:"))
    return bool(int(line.split()[1], 16) >> (signal.SIGINT - 1) & 1)


@pytest.fixture(autouse=True)
def ctrl_c_keeps_its_meaning():
    """No test, and so nothing that it calls, may leave Ctrl-C with another meaning than it had."""
    before = interrupts_are_caught() if STATUS.exists() else None
    yield
    assert before is None or interrupts_are_caught() == before
