"""A proof is accepted as it was written, and rejected once it is corrupted in any way that makes it none."""

from __future__ import annotations

import random
import re
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import pytest

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import linear
from bubbleproof.verify.proof import Linear, build, check_proof, claimed_length, header
from bubbleproof.verify.proof import check as checker

DATA = Path(__file__).parents[1] / "data" / "proofs"
UNIT = Instance(linear(4), 12, Costs.make(4, F=1, B=1, W=1), Memory.make(4, 4, cap=3))
TWO_PART = Instance(
    linear(4), 8, Costs.make(4, F=18, B=18, W=9, comm=1), Memory.make(4, 4, F=3, B=-1, W=-2, cap=12), "span"
)
CASES = {"unit-p4-m12-cap3": (UNIT, 44), "two-part-p4-m8-span": (TWO_PART, 453)}
"""Instances with their optima; each proof refutes the length just below."""


@pytest.fixture(params=CASES)
def proof(request) -> tuple[Instance, int, list[str]]:
    """An instance, a length, and the lines of the proof that it is impossible."""
    instance, optimum = CASES[request.param]
    return instance, optimum - 1, (DATA / f"{request.param}.proof").read_text().splitlines()


@pytest.fixture(autouse=True)
def models_are_built_once(monkeypatch):
    """Thousands of checks of few questions: the models are kept."""
    monkeypatch.setattr(checker, "build", lru_cache(build))


def accepted(instance: Instance, length: int, lines: list[str]) -> bool:
    return check_proof(instance, length, lines).accepted


def forged(instance: Instance, length: int, lines: list[str]) -> list[str]:
    """The same steps under the header of another question."""
    return [header(build(instance, length), instance.objective, length), *lines[1:]]


def test_the_proofs_hold_and_name_their_length(proof):
    instance, length, lines = proof
    verdict = check_proof(instance, length, lines)
    assert verdict.accepted, verdict.reason
    assert verdict.nogoods == sum(line[0] == "n" for line in lines) > 10
    assert verdict.inferences == sum(line[0] == "i" for line in lines) > 40
    assert claimed_length(lines[0]) == length
    assert sum("__" in line for line in lines) == 0 or instance is TWO_PART


def test_no_line_can_be_dropped(proof):
    instance, length, lines = proof
    for i in range(len(lines)):
        assert not accepted(instance, length, lines[:i] + lines[i + 1 :]), lines[i]


def test_a_proof_cut_short_anywhere_is_rejected(proof):
    instance, length, lines = proof
    for i in range(len(lines)):
        assert not accepted(instance, length, lines[:i])
        assert not accepted(instance, length, [*lines[:i], lines[i][: len(lines[i]) // 2]])
        if i < len(lines) - 1:
            assert not accepted(instance, length, [*lines[:i], "c UNSAT"])


def test_no_line_can_stand_twice(proof):
    instance, length, lines = proof
    for i in range(len(lines)):
        assert not accepted(instance, length, [*lines[: i + 1], *lines[i:]]), lines[i]


def test_steps_cannot_change_places_and_atoms_cannot_come_after_their_use(proof):
    instance, length, lines = proof
    steps = [i for i, line in enumerate(lines) if line[0] in "in"]
    for a, b in pairwise(steps):
        swapped = list(lines)
        swapped[a], swapped[b] = lines[b], lines[a]
        assert not accepted(instance, length, swapped)
    for i, line in enumerate(lines):
        if line[0] == "a":
            assert not accepted(instance, length, [*lines[:i], *lines[i + 1 : -1], line, lines[-1]])


def literals(line: str) -> list[int]:
    """The positions, among the words of a step, of its literals."""
    words = line.split(" ")
    zero = words.index("0")
    ends = len(words) if words[0] == "i" else zero
    return [i for i in range(2, ends) if i != zero and ":" not in words[i]]


def test_no_literal_can_be_negated(proof):
    instance, length, lines = proof
    tried = 0
    for number, line in enumerate(lines):
        if line[0] not in "in":
            continue
        for place in literals(line):
            words = line.split(" ")
            words[place] = str(-int(words[place]))
            changed = [*lines[:number], " ".join(words), *lines[number + 1 :]]
            assert not accepted(instance, length, changed), (line, " ".join(words))
            tried += 1
    assert tried > 90


def test_no_bound_can_be_made_stronger_than_its_precedence_gives():
    """Inferences x ≥ a → y ≥ a + lag, and the like, whose conclusion is exactly what the constraint gives."""
    instance, length = UNIT, 43
    lines = (DATA / "unit-p4-m12-cap3.proof").read_text().splitlines()
    model = build(instance, length)
    numbers = {v.name: i for i, v in enumerate(model.variables)}
    atoms = {}
    tried = 0
    for number, line in enumerate(lines):
        match = re.fullmatch(r"a (\d+) \[(\w+) (>=|<=) (-?\d+)\]", line)
        if match:
            atoms[int(match[1])] = (numbers[match[2]], match[3], int(match[4]))
        match = re.fullmatch(r"i (\d+) (\d+) 0 (\d+) c:(\d+) l:linear_bounds", line)
        if not match:
            continue
        premise, conclusion = atoms[int(match[2])], atoms[int(match[3])]
        constraint = model.constraints[int(match[4]) - 1]
        assert isinstance(constraint, Linear)
        lag = -constraint.bound
        gives = premise[2] + lag if premise[1] == ">=" else premise[2] - lag
        if constraint.when is not None or len(constraint.terms) != 2 or conclusion[2] != gives:
            continue
        step = 1 if conclusion[1] == ">=" else -1
        atom = f"a 999999 [{model.variables[conclusion[0]].name} {conclusion[1]} {conclusion[2] + step}]"
        stronger = f"i {match[1]} {match[2]} 0 999999 c:{match[4]} l:linear_bounds"
        assert not accepted(instance, length, [*lines[:number], atom, stronger, *lines[number + 1 :]]), line
        tried += 1
    assert tried >= 9


def test_an_inference_must_name_its_rule_and_a_constraint_about_its_variables(proof):
    instance, length, lines = proof
    last = len(build(instance, length).constraints)
    for number, line in enumerate(lines):
        if line[0] != "i":
            continue
        before, _, rule = line.rpartition(" l:")
        others = {"initial_domain", "linear_bounds", "time_table", "nogood", "cumulative"} - {rule}
        variants = [f"{before} l:{other}" for other in others] + [before, before + " l:"]
        if " c:" in line:
            tag = int(re.search(r" c:(\d+)", line)[1])
            variants += [line.replace(f" c:{tag}", ""), line.replace(f" c:{tag}", f" c:{last + 1}")]
        for variant in variants:
            assert not accepted(instance, length, [*lines[:number], variant, *lines[number + 1 :]]), variant


def test_a_nogood_cannot_lose_an_atom_or_an_inference(proof):
    instance, length, lines = proof
    for number, line in enumerate(lines):
        if line[0] != "n":
            continue
        words = line.split(" ")
        for place in [i for i in range(2, len(words)) if words[i] != "0"]:
            shorter = " ".join(words[:place] + words[place + 1 :])
            assert not accepted(instance, length, [*lines[:number], shorter, *lines[number + 1 :]]), shorter


def test_another_question_is_named_as_such(proof):
    instance, length, lines = proof
    assert "is asked" in check_proof(instance, length + 1, lines).reason
    assert "is asked" in check_proof(instance, length - 1, lines).reason
    other = instance.with_(microbatches=instance.microbatches + 1, route_of_microbatch=())
    assert "another instance" in check_proof(other, length, lines).reason
    assert "no proof file" in check_proof(instance, length, ["x", *lines[1:]]).reason
    assert "empty" in check_proof(instance, length, []).reason


def test_steps_do_not_prove_what_is_false_under_a_forged_header(proof):
    """The optimum can be reached, and so can shorter lengths with cheaper ops or with more room."""
    instance, length, lines = proof
    assert not accepted(instance, length + 1, forged(instance, length + 1, lines))
    cheaper = instance.with_(costs=Costs.make(4, F=1, B=1, W=0))
    assert not accepted(cheaper, length, forged(cheaper, length, lines))
    roomier = instance.with_cap(40)
    assert not accepted(roomier, length, forged(roomier, length, lines))
    shorter = instance.with_(microbatches=instance.microbatches - 2, route_of_microbatch=())
    assert not accepted(shorter, length, forged(shorter, length, lines))


@pytest.mark.parametrize("seed", range(4))
def test_no_edit_of_characters_proves_that_the_optimum_is_impossible(proof, seed):
    instance, length, lines = proof
    rng = random.Random(seed)
    false = forged(instance, length + 1, lines)
    for _ in range(150):
        edited = list(false)
        for _ in range(rng.randint(1, 3)):
            i = rng.randrange(1, len(edited))
            line = edited[i]
            at = rng.randrange(len(line) + 1)
            edited[i] = line[:at] + rng.choice(["", "0", "1", "9", "-", " ", "c", "n"]) + line[at + rng.randint(0, 1) :]
        assert not accepted(instance, length + 1, edited)


@pytest.mark.parametrize(
    "line",
    ["", "x", "i", "n 1", "a 1 F0_0 >= 3", "a 1 [F0_0 > 3]", "a 1 [F9_9 >= 3]", "a 0 [F0_0 >= 3]", "c SAT",
     "a 1 [F0_0 >= 99999999999999999999]", "i 0 0 l:initial_domain", "n 99999999999999999999 0", "n 5 0", "p x",
     "i 9999 0 1 l:initial_domain", "n 9999 0 12345678", "n 9999 0 c:1", "i 9999 0 c:1 l:linear_bounds",
     "i 9999 0 c:337 l:time_table", "a ٣ [F0_0 >= 3]"],
)  # fmt: skip
def test_a_line_that_is_no_step_is_named_with_its_number(line):
    lines = (DATA / "unit-p4-m12-cap3.proof").read_text().splitlines()
    verdict = check_proof(UNIT, 43, [lines[0], line, *lines[1:]])
    assert not verdict.accepted
    assert verdict.reason.startswith("line 2: ")


def test_a_conclusion_is_the_end_and_needs_the_empty_nogood():
    lines = (DATA / "unit-p4-m12-cap3.proof").read_text().splitlines()
    assert "after the conclusion" in check_proof(UNIT, 43, [*lines, lines[1]]).reason
    assert "does not follow" in check_proof(UNIT, 43, [lines[0], "c UNSAT"]).reason
