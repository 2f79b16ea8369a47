"""docs/runtimes.md says what the records say, and the records come from tests that exist."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bubbleproof import Instance
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.families import FAMILIES
from bubbleproof.schedules.placement import linear, vee
from tests.runtimes.evidence import DOCUMENT, TARGETS, document
from tests.runtimes.records import FOLDER, Evidence, features_of, load

HERE = Path(__file__).parent


def test_the_document_is_what_the_records_give() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document(), "run python -m tests.runtimes.evidence"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_every_entry_comes_from_a_test_that_exists_and_from_a_known_target(path: Path) -> None:
    assert path.stem in TARGETS
    for kind, entries in load(path.stem).items():
        assert kind in ("trained", "accepted", "mutants", "faults")
        for what, entry in entries.items():
            file, _, function = entry["test"].partition("::")
            found = [each for each in HERE.rglob(file) if f"def {function}(" in each.read_text(encoding="utf-8")]
            assert found, f"{what}: no test {entry['test']}"
            assert entry["versions"]


def test_no_disagreement_is_on_record() -> None:
    for target in TARGETS:
        for what, entry in load(target).get("mutants", {}).items():
            assert entry["disagreed"] == 0, (target, what)


def instance(placement: object, m: int) -> Instance:
    stages, ranks = placement.stages, placement.ranks  # type: ignore[attr-defined]
    return Instance(placement, m, Costs.make(stages, F=1, B=1, W=1), Memory.make(stages, ranks))  # type: ignore[arg-type]


def test_features_are_read_off_the_schedule() -> None:
    flat, turned = instance(linear(3), 4), instance(vee(4), 3)
    assert features_of(FAMILIES["1f1b"].build(flat), flat) == ["fused", "m mod p ≠ 0"]
    assert features_of(FAMILIES["zb-v"].build(turned), turned) == ["split", "vee", "m < p", "m mod p ≠ 0"]


def test_a_run_with_wrong_gradients_is_never_recorded() -> None:
    evidence, given = Evidence(), instance(linear(2), 2)
    recorder, schedule = evidence.of_test("test_evidence.py::test"), FAMILIES["1f1b"].build(given)
    for seen in (
        {"outcome": "ok", "gradient_error": 1e-3, "loss_error": 0.0},
        {"outcome": "ok", "gradient_error": 0.0, "loss_error": 1e-3},
        {"outcome": "hang", "gradient_error": 0.0, "loss_error": 0.0},
    ):
        with pytest.raises(AssertionError):
            recorder.trained("torch", "it", schedule, given, seen, {"torch": "2"})
    assert not evidence.found


def test_records_of_other_tests_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.runtimes.records.FOLDER", tmp_path)
    for test, what in (("a.py::one", "first"), ("a.py::two", "second")):
        evidence = Evidence()
        evidence.of_test(test).compared("torch", what, {"ok": 3}, 0, {"torch": "2"})
        evidence.write()
    assert set(json.loads((tmp_path / "torch.json").read_text())["mutants"]) == {"first", "second"}
