"""Reports: ordered verdicts that are no truth values, limited lists with counts, JSON, text, pictures."""

import msgspec
import pytest

from bubbleproof.schedules.schedule import Schedule
from bubbleproof.verify import Report, Verdict, verify
from bubbleproof.verify.rules import RULES
from bubbleproof.verify.rules.catalogue import document
from bubbleproof.verify.witness import grid
from tests.verify.model import pipeline

HANGS = Schedule.parse(["0F0 0BW0 0F1 0BW1", "1F1 1BW1 1F0 1BW0"])
FUSED = {"F": 1, "B": 2}


def test_verdicts_are_ordered_and_the_worst_of_several_is_their_maximum():
    assert sorted(set(Verdict)) == [Verdict.PROVED, Verdict.BOUNDED, Verdict.UNKNOWN, Verdict.VIOLATED]
    assert max(Verdict.PROVED, Verdict.UNKNOWN, Verdict.BOUNDED) is Verdict.UNKNOWN
    with pytest.raises(TypeError):
        assert Verdict.PROVED < "VIOLATED"


def test_a_verdict_is_no_truth_value():
    for verdict in Verdict:
        with pytest.raises(TypeError, match="no truth value"):
            bool(verdict)


def test_a_report_lists_a_few_violations_of_a_rule_and_counts_all():
    report = verify(Schedule.of([[], []]), pipeline(2, 50, **FUSED), listed_per_rule=3)
    assert dict(report.counts) == {"V101": 200}
    assert len(report.violations) == 3
    assert "V101: 197 more of this rule are not listed" in str(report)


def test_json_is_canonical_and_loses_nothing():
    report = verify(HANGS, pipeline(**FUSED), timeline=[[0, 1, 3, 4], [0, 1, 3, 4]])
    data = report.to_json()
    assert msgspec.json.decode(data, type=Report) == report
    plain = msgspec.json.decode(data)
    assert plain["format"] == "bubbleproof-report/1"
    assert plain["verdict"] == "VIOLATED"
    assert list(plain) == sorted(plain)
    assert set(plain["violations"][0]) == {"rule", "rank", "position", "op", "message", "witness"}
    assert data == verify(HANGS, pipeline(**FUSED), timeline=((0, 1, 3, 4), (0, 1, 3, 4))).to_json()


def test_the_text_of_a_report_has_the_verdict_the_picture_and_the_assumptions():
    lines = str(verify(HANGS, pipeline(**FUSED))).splitlines()
    assert lines[0] == "VIOLATED"
    assert not any("more of this rule" in line for line in lines)
    assert lines[1].startswith("V202: deadlock: rank 0 waits at 0BW0")
    assert lines[3] == "    rank 0  0F0  [0BW0] [0F1]  0BW1"
    assert "assumed: Ops last, and change memory, as the instance states it for their stage and microbatch." in lines


def test_what_was_not_checked_is_said_once():
    report = verify(HANGS, pipeline(**FUSED))
    assert len(set(report.assumptions)) == len(report.assumptions)
    assert "The instance gives no cap, so memory was not judged." in report.assumptions
    assert "No starts are claimed; makespan and span are those of the earliest starts." in report.assumptions
    assert not set(report.rules) & {"V301", "V401", "V402", "V403", "V404", "V405"}
    judged = verify(HANGS, pipeline(memory={"cap": 9}, **FUSED), timeline=[[0] * 4] * 2)
    assert not any("no cap" in sentence or "No starts" in sentence for sentence in judged.assumptions)


def test_a_grid_has_a_column_per_position_and_brackets_around_marked_cells():
    assert grid(Schedule.parse(["0F0 0BW0", "1F0"]), {(0, 1)}).splitlines() == [
        "        0     1",
        "rank 0  0F0  [0BW0]",
        "rank 1  1F0",
    ]


def test_a_grid_can_leave_out_what_is_far_from_the_marks():
    row = " ".join(f"0F{j}" for j in range(20))
    lines = grid(Schedule.parse([row]), [(0, 3), (0, 12)], around_marked=True).splitlines()
    assert " ".join(lines[1].split()) == "rank 0 … 0F1 0F2 [0F3] 0F4 0F5 … 0F10 0F11 [0F12] 0F13 0F14 …"
    assert grid(Schedule.parse([row]), [(0, 3)]).splitlines()[1].count("0F") == 20


def test_an_empty_schedule_is_incomplete_and_nothing_breaks():
    report = verify(Schedule.of([[], []]), pipeline(2, 1, **FUSED), timeline=[[], []])
    assert dict(report.counts) == {"V101": 4}
    assert grid(Schedule.of([]), []) == ""


def test_ids_are_unique_and_every_rule_states_itself_and_its_source():
    assert len({rule.id for rule in RULES}) == len({rule.name for rule in RULES}) == len(RULES) == 17
    for rule in RULES:
        assert rule.statement.endswith(".")
        assert rule.statement.count(". ") == 0
        assert rule.remarks[-1].startswith("Source: ")


def test_the_page_of_rules_is_current(pytestconfig):
    page = pytestconfig.rootpath / "docs" / "rules.md"
    assert page.read_text(encoding="utf-8") == document(), "run: python -m bubbleproof.verify.rules > docs/rules.md"


def test_every_test_that_the_semantics_name_exists(pytestconfig):
    import re

    text = (pytestconfig.rootpath / "docs" / "semantics.md").read_text(encoding="utf-8")
    files = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    assert len(files) >= 5
    for file, function in files:
        source = (pytestconfig.rootpath / file).read_text(encoding="utf-8")
        assert not function or f"def {function}(" in source
    theorems = (pytestconfig.rootpath / "tests/verify/test_theorems.py").read_text(encoding="utf-8")
    for function in re.findall(r"`::(\w+)`", text):
        assert f"def {function}(" in theorems
