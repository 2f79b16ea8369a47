"""A solver that lies and a file that was altered are caught: by the judge, by `verify`, or by a proof."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path

import pytest

from bubbleproof.cli import main
from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.families import FAMILIES
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import linear
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import replay
from bubbleproof.solver import InternalError, solve
from bubbleproof.solver.cpsat.improve import improve
from bubbleproof.solver.cpsat.objective import Answer, Question
from bubbleproof.solver.flat import Flat
from bubbleproof.solver.refute import prove
from bubbleproof.solver.refute.ask import Refutation
from bubbleproof.solver.search import Search

OPEN = Instance(linear(4), 16, Costs.make(4, F=3, B=4, W=2), Memory.make(4, 4, cap=3))
"""The certificate is below the optimum and the greedy above it: CP-SAT has work to do."""
OPTIMUM = 192

CLAIMED = Instance(linear(4), 12, Costs.make(4, F=1, B=1, W=1), Memory.make(4, 4, cap=3))
"""CP-SAT proves its optimum of 44 at once."""


@pytest.fixture(scope="module", autouse=True)
def without_crossings():
    """The rule `crossing` would certify these instances before CP-SAT or a proof is asked for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bubbleproof.solver.search.raise_by_crossings", lambda search: None)
        yield


def solved(instance=OPEN, time_limit=1, **options):
    return solve(instance, time_limit=time_limit, workers=1, **options)


@pytest.fixture
def few_heuristics(monkeypatch):
    """One microbatch at a time, then CP-SAT: much is left to be found."""

    def run(self):
        self.one_at_a_time()
        improve(self)

    monkeypatch.setattr(Search, "run", run)


def answers(monkeypatch, change):
    """CP-SAT's answers, changed on the way."""
    true = Question.ask
    monkeypatch.setattr(Question, "ask", lambda self: change(self, true(self)))


def reversed_orders(answer):
    return None if answer.orders is None else [order[::-1] for order in answer.orders]


FALSE_ANSWERS = {
    "orders that run backwards": lambda q, a: replace(a, orders=reversed_orders(a)),
    "orders of one rank for all": lambda q, a: replace(a, orders=a.orders and [a.orders[0]] * 4),
    "orders without an op": lambda q, a: replace(a, orders=a.orders and [a.orders[0][:-1], *a.orders[1:]]),
    "orders with an op twice": lambda q, a: replace(
        a, orders=a.orders and [a.orders[0] + a.orders[0][-1:], *a.orders[1:]]
    ),
    "found, where it is impossible": lambda q, a: Answer("found", [sorted(o) for o in q.flat_orders], a.effort),
}


@pytest.mark.parametrize("name", FALSE_ANSWERS)
def test_a_schedule_that_cp_sat_makes_up_is_never_handed_out(name, monkeypatch, few_heuristics):
    flat = Flat(OPEN)
    served = [[q for q in queues for _ in range(flat.size[q])] for queues in flat.queues_of_rank]
    monkeypatch.setattr(Question, "flat_orders", served, raising=False)
    answers(monkeypatch, FALSE_ANSWERS[name])
    record = solve(OPEN, time_limit=1, workers=1).record
    assert record.value >= OPTIMUM
    assert record.bound <= OPTIMUM


def test_a_false_claim_that_nothing_is_below_is_refuted_where_a_proof_is_asked_for(monkeypatch):
    def run(self):
        self.one_at_a_time()
        self.refuted(self.reached() - 1)

    monkeypatch.setattr(Search, "run", run)
    claimed = solved(time_limit=20).record
    assert claimed.level == "solver-claimed"  # never more than what it is: a claim
    assert claimed.value > OPTIMUM
    pytest.importorskip("pumpkin_solver")
    with pytest.raises(InternalError, match="nothing is below"):
        solved(time_limit=20, proof=True)


def test_a_claim_that_a_schedule_found_elsewhere_contradicts_is_an_internal_error(monkeypatch):
    true = Search.report

    def lie(self, source):
        true(self, source)
        if source == "cp-sat" and self.value is not None:
            self.bound = self.value + 1

    monkeypatch.setattr(Search, "report", lie)
    with pytest.raises(InternalError, match="nothing is below"):
        solved(CLAIMED, time_limit=10)


TAMPERED = {
    "two ops change places": lambda s: Schedule((tuple(reversed(s.orders[0])), *s.orders[1:]), s.name),
    "an op is missing": lambda s: Schedule((s.orders[0][:-1], *s.orders[1:]), s.name),
    "an op stands twice": lambda s: Schedule((s.orders[0] + s.orders[0][-1:], *s.orders[1:]), s.name),
    "ranks change places": lambda s: Schedule(tuple(reversed(s.orders)), s.name),
    "all forwards come first": lambda s: Schedule(
        tuple(tuple(sorted(order, key=lambda op: op.kind != "F")) for order in s.orders), s.name
    ),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_schedule_altered_on_its_way_out_is_refused_by_the_judge(name, monkeypatch):
    true = Flat.schedule
    monkeypatch.setattr(Flat, "schedule", lambda self, *given: TAMPERED[name](true(self, *given)))
    # ValueError: already its times do not go with it
    with pytest.raises((InternalError, ValueError), match=r"the judge refuses|zip"):
        solved()


@pytest.mark.parametrize("change", [-1, 1])
def test_times_altered_on_their_way_out_are_refused_by_the_judge(change, monkeypatch):
    true = Search.timeline

    def shifted(self, schedule):
        timeline = true(self, schedule)
        rows = [list(row) for row in timeline.starts]
        rows[1][3] += change
        return replace(timeline, starts=tuple(map(tuple, rows)))

    monkeypatch.setattr(Search, "timeline", shifted)
    with pytest.raises(InternalError, match="the judge refuses"):
        solved()


def test_a_certificate_that_claims_too_much_is_refused_by_the_judge(monkeypatch):
    from bubbleproof.solver import search

    true = search.lower_bounds

    def greater(instance):
        import msgspec

        return [msgspec.structs.replace(c, value=c.value + 1) for c in true(instance)]

    monkeypatch.setattr(search, "lower_bounds", greater)
    with pytest.raises(InternalError, match="certificate"):
        solved()


@pytest.mark.parametrize(
    "answer",
    [
        Refutation("refuted", ()),
        Refutation("refuted", ("c UNSAT",)),
        Refutation("found", (), dict.fromkeys([f"{k}{s}_{j}" for k in "FBW" for s in range(4) for j in range(12)], 0)),
        Refutation("unknown"),
    ],
)
def test_what_a_lying_proof_solver_says_changes_no_level(answer, monkeypatch):
    monkeypatch.setattr("bubbleproof.solver.refute.ask.available", lambda: None)
    monkeypatch.setattr(prove, "refute", lambda *given, **named: answer)
    solution = solved(CLAIMED, time_limit=30, proof=True)
    assert solution.record.level == "solver-claimed"
    assert solution.record.refutation is None
    assert solution.proof is None


# ------------------------------------------------------------------ altered files


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """Three solved schedules: of level certified, proof-checked (with its proof), solver-claimed."""
    pytest.importorskip("pumpkin_solver")
    folder = tmp_path_factory.mktemp("solved")
    text = 'format = "bubbleproof-instance/1"\nmicrobatches = 12\n[placement]\nkind = "linear"\nranks = 4\n'
    text += "[cost]\nF = 1\nB = 1\nW = 1\n[memory]\ncap = {}\n"
    (folder / "certified.toml").write_text(text.format(8))
    (folder / "checked.toml").write_text(text.format(3))
    common = ["-q", "--workers", "1", "--time-limit", "30"]
    assert main(["solve", str(folder / "certified.toml"), *common, "-o", str(folder / "certified.json")]) == 0
    assert main(["solve", str(folder / "checked.toml"), *common, "-o", str(folder / "claimed.json")]) == 0
    proof = ["--proof", str(folder / "proof")]
    assert main(["solve", str(folder / "checked.toml"), *common, "-o", str(folder / "checked.json"), *proof]) == 0
    return folder


def verdict(folder: Path, name: str, document) -> int:
    path = folder / f"altered-{name}.json"
    path.write_text(json.dumps(document))
    proof = ["--proof", str(folder / "proof")] if name == "checked" else []
    return main(["verify", str(path), *proof])


def record(**changes):
    def alter(document):
        document["record"].update({k: v(document["record"]) if callable(v) else v for k, v in changes.items()})

    return alter


def certificate(**changes):
    def alter(document):
        found = document["record"]["certificate"]
        found.update({k: v(found) if callable(v) else v for k, v in changes.items()})

    return alter


def orders(change):
    def alter(document):
        change(document["orders"])

    return alter


def swap(rows):
    rows[0][2], rows[0][3] = rows[0][3], rows[0][2]


def starts(change):
    def alter(document):
        change(document["starts"])

    return alter


def earlier(rows):
    rows[2][5] -= 1


def instance(path, value):
    def alter(document):
        table = document["instance"]
        for key in path[:-1]:
            table = table[key]
        table[path[-1]] = value

    return alter


LEVELS = {"certified": "certified", "checked": "proof-checked", "claimed": "solver-claimed"}
EVERYWHERE = {
    "value lower": record(value=lambda r: r["value"] - 1),
    "value and bound lower": record(value=lambda r: r["value"] - 1, bound=lambda r: r["value"] - 1),
    "value and bound higher": record(value=lambda r: r["value"] + 1, bound=lambda r: r["value"] + 1),
    "bound above the value": record(bound=lambda r: r["value"] + 1),
    "bound below a level that closes the gap": record(bound=lambda r: r["value"] - 1),
    "gap": record(gap="1/7"),
    "level unknown": record(level="optimal"),
    "objective": record(objective="span"),
    "makespan": record(makespan=lambda r: r["makespan"] + 1),
    "span": record(span=lambda r: r["span"] - 1),
    "peak": record(peak=lambda r: [r["peak"][0] - 1, *r["peak"][1:]]),
    "certificate higher": certificate(value=lambda c: c["value"] + 1),
    "certificate of another rule": certificate(rule="chain", rank=-1, windows=[], value=lambda c: c["value"]),
    "certificate of no rule": certificate(rule="trust"),
    "certificate of a rank that is not there": certificate(rank=9),
    "ops swapped": orders(swap),
    "op dropped": orders(lambda rows: rows[1].pop()),
    "op twice": orders(lambda rows: rows[1].append(rows[1][-1])),
    "ranks swapped": orders(lambda rows: rows.reverse()),
    "start earlier": starts(earlier),
    "cap below the peak": instance(("memory", "cap"), 2),
    "dearer forwards": instance(("cost", "F"), 2),
    "fewer microbatches": instance(("microbatches",), 11),
    "more ranks": instance(("placement", "ranks"), 5),
}
PROVED = {
    "bound by a certificate that is gone": record(certificate=None),
    "bound by a rule that did not prove it": record(proof="residence"),
    "bound by a proof that is not there": record(proof="proof-log"),
    "bound by nobody": record(proof="faith"),
}


@pytest.mark.parametrize("file", LEVELS)
def test_the_files_hold_as_they_are(file, files):
    document = json.loads((files / f"{file}.json").read_text())
    assert document["record"]["level"] == LEVELS[file]
    assert verdict(files, file, document) == 0


@pytest.mark.parametrize("file", LEVELS)
@pytest.mark.parametrize("name", EVERYWHERE)
def test_an_altered_file_is_refused(file, name, files, capsys):
    document = json.loads((files / f"{file}.json").read_text())
    before = copy.deepcopy(document)
    EVERYWHERE[name](document)
    assert document != before
    assert verdict(files, file, document) in (1, 2)
    said = capsys.readouterr()
    assert "VIOLATED" in said.out or "error: " in said.err


@pytest.mark.parametrize(
    ("file", "claimed"),
    [("claimed", "certified"), ("claimed", "proof-checked"), ("checked", "certified"), ("certified", "solver-claimed")],
)
def test_a_level_that_the_evidence_does_not_give_is_refused(file, claimed, files):
    document = json.loads((files / f"{file}.json").read_text())
    document["record"]["level"] = claimed
    assert verdict(files, file, document) == 1


def test_a_proof_checked_level_needs_its_proof(files):
    assert main(["verify", str(files / "checked.json")]) == 1
    assert main(["verify", str(files / "checked.json"), "--proof", str(files / "checked.json")]) == 1
    assert main(["verify", str(files / "certified.json"), "--proof", str(files / "proof")]) == 1


@pytest.mark.parametrize("name", PROVED)
def test_a_bound_without_its_evidence_is_refused(name, files):
    document = json.loads((files / "certified.json").read_text())
    PROVED[name](document)
    assert verdict(files, "certified", document) == 1


def test_what_only_cp_sat_claims_is_named_as_unchecked(files, capsys):
    document = json.loads((files / "claimed.json").read_text())
    assert verdict(files, "claimed", document) == 0
    assert "CP-SAT's word; it was not checked" in capsys.readouterr().out


def test_a_false_optimum_does_not_survive_its_own_proof(files):
    """A longer schedule that claims to be optimal, with the proof of the true optimum."""
    document = json.loads((files / "checked.json").read_text())
    longer = FAMILIES["1f1b"].build(CLAIMED.with_cap(None))
    document["orders"] = [[str(op) for op in order] for order in longer.orders]
    value = replay(longer, CLAIMED).makespan
    assert value != 44
    document["instance"]["memory"] = {}
    document["starts"] = None
    document["record"] |= {"value": value, "bound": value, "makespan": value, "span": value, "peak": None}
    assert verdict(files, "checked", document) == 1
