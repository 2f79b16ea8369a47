"""Every reproduction of docs/findings.md is judged as the document says, and its live test exists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bubbleproof.cli import main

HERE = Path(__file__).parent / "findings"
ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
FOUND: dict[str, dict[str, Any]] = {
    f"{path.stem}: {name}": entry
    for path in sorted(HERE.glob("*.json"))
    if path.name.count(".") == 1
    for name, entry in json.loads(path.read_text(encoding="utf-8")).items()
}


def judged(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = main(["verify", str(HERE / arguments[0]), *arguments[1:], "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", FOUND)
def test_verify_says_of_a_reproduction_what_the_document_tells(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    entry = FOUND[name]
    if "refused" in entry:
        arguments = entry["verify"]
        assert main(["verify", str(HERE / arguments[0]), *arguments[1:]]) == 2
        assert entry["refused"] in capsys.readouterr().err
        return
    code, report = judged(entry["verify"], capsys)
    assert sorted(report["counts"]) == sorted(entry["rules"])
    assert code == (1 if entry["rules"] else 0)
    if "runtime" in report:
        assert report["runtime"]["outcome"] == entry["seen"]


@pytest.mark.parametrize("name", [name for name, entry in FOUND.items() if entry["repaired"]])
def test_the_repaired_schedule_is_proved(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, report = judged(FOUND[name]["repaired"], capsys)
    assert (code, report["counts"]) == (0, {})


def test_document_and_files_name_each_other() -> None:
    files = {path.name for path in HERE.glob("[!.]*")} - {f"{name.partition(':')[0]}.json" for name in FOUND}
    used = {entry[key][0] for entry in FOUND.values() for key in ("verify", "repaired") if entry[key]}
    assert files == used
    assert {name for name in files if f"`{name}`" not in TEXT} == set()


@pytest.mark.parametrize("name", FOUND)
def test_the_run_that_showed_it_is_a_test(name: str) -> None:
    file, _, function = FOUND[name]["test"].partition("::")
    found = list((ROOT / "tests" / "runtimes").rglob(file))
    assert found, f"no file {file}"
    assert f"def {function}(" in found[0].read_text(encoding="utf-8")
