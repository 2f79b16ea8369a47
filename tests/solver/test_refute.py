"""`solve --proof`: what Pumpkin writes is cut down, checked, and told in the record; nothing unchecked counts."""

from __future__ import annotations

import pytest

from bubbleproof.cli import main
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import BubbleproofError
from bubbleproof.schedules.formats.schedule_json import Document, save
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import linear, vee
from bubbleproof.solver import InternalError, solve
from bubbleproof.solver.refute import ask
from bubbleproof.solver.refute.ask import refute
from bubbleproof.solver.refute.trim import Unusable, trim
from bubbleproof.solver.search import Search
from bubbleproof.verify.proof import check_proof

pytest.importorskip("pumpkin_solver", reason="the solver for proofs is an optional dependency")


@pytest.fixture(scope="module", autouse=True)
def without_crossings():
    """The rule `crossing` would certify these instances before CP-SAT or a proof is asked for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bubbleproof.solver.search.raise_by_crossings", lambda search: None)
        yield


def pipeline(p, m, F, B, W, cap, comm=0, objective="makespan", place=linear, memory=(1, 0, -1)):
    placement = place(p)
    costs = Costs.make(placement.stages, F=F, B=B, W=W, comm=comm)
    held = Memory.make(placement.stages, p, F=memory[0], B=memory[1], W=memory[2], cap=cap)
    return Instance(placement, m, costs, held, objective)


@pytest.mark.parametrize(
    ("instance", "optimum"),
    [
        (pipeline(4, 12, 1, 1, 1, 3), 44),
        (pipeline(4, 16, 3, 4, 2, 3), 192),
        (pipeline(4, 8, 18, 18, 9, 12, 1, "span", memory=(3, -1, -2)), 453),
        (pipeline(3, 4, 1, 1, 1, 5, place=vee), 27),
    ],
)
def test_a_length_is_refuted_with_a_proof_exactly_below_the_optimum(instance, optimum):
    below = refute(instance, optimum - 1, seconds=30)
    assert below.verdict == "refuted"
    verdict = check_proof(instance, optimum - 1, below.lines)
    assert verdict.accepted, verdict.reason
    assert refute(instance, optimum, seconds=30).verdict == "found"


def test_a_proof_about_576_ops_takes_seconds_to_find_and_less_to_check():
    instance = pipeline(8, 24, 18, 18, 9, 5, 1)
    found = refute(instance, 1740, seconds=60)
    verdict = check_proof(instance, 1740, found.lines)
    assert verdict.accepted, verdict.reason
    assert verdict.variables == 576
    assert verdict.inferences > 100


def test_the_record_says_proof_checked_and_the_lines_are_the_proof():
    instance = pipeline(4, 12, 1, 1, 1, 3)
    solution = solve(instance, time_limit=10, workers=1, proof=True)
    record = solution.record
    assert (record.value, record.bound, record.level, record.proof) == (44, 44, "proof-checked", "proof-log")
    assert record.refutation.length == 43
    assert record.refutation.nogoods > 0
    assert check_proof(instance, 43, solution.proof).accepted


def test_a_certified_value_is_proved_as_well_and_stays_certified():
    solution = solve(pipeline(8, 16, 1, 1, 1, 8), time_limit=10, workers=1, proof=True)
    record = solution.record
    assert (record.value, record.level, record.refutation.length, record.refutation.variables) == (
        55,
        "certified",
        54,
        384,
    )
    assert check_proof(solution.timeline.instance, 54, solution.proof).accepted


def test_a_proof_that_the_checker_refuses_counts_for_nothing_and_is_told(monkeypatch):
    def cut(instance, length, **options):
        found = refute(instance, length, **options)
        return ask.Refutation(found.verdict, (*found.lines[:-2], found.lines[-1]), None, 1)

    monkeypatch.setattr("bubbleproof.solver.refute.prove.refute", cut)
    solution = solve(pipeline(4, 12, 1, 1, 1, 3), time_limit=10, workers=1, proof=True)
    assert solution.record.level == "solver-claimed"
    assert solution.proof is None
    assert any("not accepted" in note for note in solution.record.notes)


def test_a_schedule_below_a_bound_that_cp_sat_claims_is_an_internal_error(monkeypatch):
    def run(self):
        self.one_at_a_time()
        self.refuted(self.reached() - 1)

    monkeypatch.setattr(Search, "run", run)
    with pytest.raises(InternalError, match="nothing is below"):
        solve(pipeline(4, 16, 3, 4, 2, 3), time_limit=10, workers=1, proof=True)


def test_without_the_solver_a_proof_is_refused_before_the_search(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BubbleproofError, match=r"bubbleproof\[proof\]"):
        solve(pipeline(4, 12, 1, 1, 1, 3), proof=True)


def test_where_the_model_does_not_apply_the_record_says_why_there_is_no_proof():
    costs = Costs.make(2, F=2, B=2, W=2, overlap_B=3)
    solution = solve(Instance(linear(2), 3, costs, Memory.make(2, 2)), time_limit=2, workers=1, proof=True)
    assert any("no proof: a pair" in note for note in solution.record.notes)
    assert solution.record.refutation is None


def test_the_verbs_write_a_proof_and_check_it_again(tmp_path, capsys):
    instance = pipeline(4, 12, 1, 1, 1, 3)
    problem, best, proof = (str(tmp_path / name) for name in ("instance.json", "best.json", "best.proof"))
    from bubbleproof.schedules.families import FAMILIES

    save(tmp_path / "instance.json", Document(FAMILIES["1f1b"].build(instance), instance))
    assert main(["solve", problem, "-q", "--workers", "1", "-o", best, "--proof", proof]) == 0
    assert "proof-checked: optimal" in capsys.readouterr().out
    assert main(["verify", best, "--proof", proof]) == 0
    assert "so this schedule is optimal" in capsys.readouterr().out
    assert main(["verify", best]) == 1
    assert "no proof is given that could be checked" in " ".join(capsys.readouterr().out.split())
    (tmp_path / "best.proof").write_text("\n".join((tmp_path / "best.proof").read_text().splitlines()[:-1]))
    assert main(["verify", best, "--proof", proof]) == 1
    assert "cut short" in capsys.readouterr().out
    assert main(["verify", problem, "--proof", problem]) == 1
    assert "is no proof file" in capsys.readouterr().out


def test_trimming_keeps_what_the_empty_nogood_rests_on_and_numbers_it_anew():
    log = [
        "a 1 [x >= 3]", "a 2 [y <= 4]", "a 7 [z <= 1]",
        "i 20 7 0 2 c:5 l:linear_bounds", "n 21 7 -2 0 20",
        "i 22 1 0 c:6 l:time_table", "n 23 1 0 22",
        "i 24 0 -1 c:23 l:nogood", "i 25 -1 0 c:7 l:linear_bounds", "n 26 0 24 25",
        "c UNSAT",
    ]  # fmt: skip
    assert list(trim(log, 10)) == [
        "a 1 [x >= 3]", "i 11 1 0 c:6 l:time_table", "n 12 1 0 11",
        "i 13 0 -1 c:12 l:nogood", "i 14 -1 0 c:7 l:linear_bounds", "n 15 0 13 14",
        "c UNSAT",
    ]  # fmt: skip


@pytest.mark.parametrize("log", [[], ["c UNSAT"], ["n 5 1 0"], ["n 5 0 4"], ["d 3"]])
def test_a_log_without_a_proof_is_unusable(log):
    with pytest.raises(Unusable):
        list(trim(log, 0))
