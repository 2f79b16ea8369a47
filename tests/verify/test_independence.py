"""The judge shares data types and nothing else, and starts without the heavy libraries."""

import ast
import subprocess
import sys

import pytest

import bubbleproof.verify

SHARED = {
    "op",
    "placement",
    "costs",
    "instance",
    "schedule",
    "errors",
    "pattern",
    "program",
    "table",
    "instructions",
    "nodes",
}


def imports(path):
    """Every module that a file names in an import, at any depth of its functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def test_the_judge_imports_only_data_types_of_the_rest_of_the_package(pytestconfig):
    allowed = {"bubbleproof.schedules", *(f"bubbleproof.schedules.{name}" for name in SHARED)}
    files = sorted((pytestconfig.rootpath / "bubbleproof" / "verify").rglob("*.py"))
    assert len(files) > 10
    for file in files:
        for module in imports(file):
            if module.startswith("bubbleproof.") and not module.startswith("bubbleproof.verify"):
                parent = module.rsplit(".", 1)[0]
                assert module in allowed or parent in allowed - {"bubbleproof.schedules"}, f"{file} imports {module}"


@pytest.mark.parametrize("heavy", ["numpy", "networkx", "ortools", "rich", "msgspec"])
def test_judging_a_small_schedule_needs_no_heavy_library(heavy):
    code = f"""
import sys
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import linear
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.verify import verify
instance = Instance(linear(1), 1, Costs.make(1, F=1, B=1), Memory.make(1, 1))
print(verify(Schedule.parse(["0BW0 0F0"]), instance))
assert {heavy!r} not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("VIOLATED")


def test_the_public_names_are_those_of_the_report_and_the_judge():
    assert {"Facts", "Report", "Verdict", "Violation", "verify"} <= set(bubbleproof.verify.__all__)
