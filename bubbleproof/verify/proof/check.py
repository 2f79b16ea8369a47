"""Checks that a proof refutes the model of "there is a schedule of length at most T"; docs/proofs.md has the theory.

Nothing in the file is believed: the model is built from the instance, each inference is recomputed from one constraint
of it, and each nogood is derived from inferences by unit propagation.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import NoReturn

import msgspec

from bubbleproof.schedules.instance import Instance
from bubbleproof.verify.proof.domain import EQ, GE, LE, NE, Atom, State
from bubbleproof.verify.proof.model import Disjunctive, Linear, Model, build
from bubbleproof.verify.proof.ops import Unmodelled
from bubbleproof.verify.proof.rules import linear_fails, one_at_a_time_fails

__all__ = ["PROOF_FORMAT", "ProofVerdict", "check_proof", "claimed_length", "header"]

PROOF_FORMAT = "bubbleproof-proof/1"

_ATOM = re.compile(r"a ([1-9]\d{0,17}) \[([A-Za-z_]\w*) (>=|<=|==|!=) (-?\d{1,18})\]", re.ASCII)
_STEP = re.compile(
    r"([in]) ([1-9]\d{0,17})((?: -?[1-9]\d{0,17})*) 0((?: -?[1-9]\d{0,17})*)( c:[1-9]\d{0,17})?( l:\w+)?", re.ASCII
)


class ProofVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a proof shows that no schedule of an instance has an objective of at most `length`.

    Parameters
    ----------
    accepted
        It does.
    reason
        What was checked; or the first line that is wrong and why.
    inferences, nogoods
        How many steps of each sort were checked.
    variables, constraints
        The size of the model.
    """

    accepted: bool
    length: int
    reason: str
    inferences: int = 0
    nogoods: int = 0
    variables: int = 0
    constraints: int = 0


class _Rejected(Exception):
    """The proof is wrong; the text says where and why."""


def digest(model: Model) -> str:
    """A fingerprint of a model, by which a file is matched with the question that it answers."""
    text = msgspec.json.encode(
        [
            [[v.name, v.low, v.high] for v in model.variables],
            [[c.tasks] if isinstance(c, Disjunctive) else [c.terms, c.bound, c.when] for c in model.constraints],
        ]
    )
    return hashlib.sha256(text).hexdigest()


def header(model: Model, objective: str, length: int) -> str:
    """The first line of the file of a proof."""
    return f"p {PROOF_FORMAT} {objective} {length} {digest(model)}"


def claimed_length(first_line: str) -> int | None:
    """The length that the file of a proof claims to be impossible, by its first line; None if it is no such file."""
    match = re.fullmatch(rf"p {re.escape(PROOF_FORMAT)} \w+ (-?\d{{1,18}}) \w+\r?\n?", first_line, re.ASCII)
    return None if match is None else int(match[1])


def check_proof(instance: Instance, length: int, lines: Iterable[str]) -> ProofVerdict:
    """Check a proof that no schedule of an instance has an objective of at most `length`.

    Parameters
    ----------
    lines
        The lines of the file, without their ends or with them.

    Returns
    -------
    ProofVerdict
        Never an exception for what the lines say.
    """
    try:
        model = build(instance, length)
    except Unmodelled as error:
        return ProofVerdict(accepted=False, length=length, reason=str(error))
    checker = _Checker(model, header(model, instance.objective, length))
    try:
        number = 0
        for number, line in enumerate(lines, 1):
            try:
                checker.take(line.rstrip("\r\n"), number)
            except _Rejected as error:
                raise _Rejected(f"line {number}: {error}") from None
        checker.end(number)
    except _Rejected as error:
        return ProofVerdict(accepted=False, length=length, reason=str(error))
    return ProofVerdict(
        accepted=True,
        length=length,
        reason=f"no schedule has a {instance.objective} of {length} or less: {checker.inferences} inferences and "
        f"{checker.nogoods} nogoods checked over a model of {len(model.variables)} variables and "
        f"{len(model.constraints)} constraints",
        inferences=checker.inferences,
        nogoods=checker.nogoods,
        variables=len(model.variables),
        constraints=len(model.constraints),
    )


def _reject(text: str) -> NoReturn:
    raise _Rejected(text)


class _Checker:
    """The state of one check: what has been derived so far."""

    def __init__(self, model: Model, first_line: str) -> None:
        self.model, self.first_line = model, first_line
        self.names = {v.name: i for i, v in enumerate(model.variables)}
        self.low = [v.low for v in model.variables]
        self.high = [v.high for v in model.variables]
        self.atoms: dict[int, Atom] = {}
        self.pending: dict[int, list[Atom]] = {}
        """The inferences since the last nogood: for each the atoms that cannot hold together."""
        self.derived: dict[int, list[Atom]] = {}
        self.unused: set[int] = set()
        self.last = len(model.constraints)
        self.refuted = self.concluded = False
        self.inferences = self.nogoods = 0

    def take(self, line: str, number: int) -> None:
        """Check one line."""
        if number == 1:
            self._header(line)
        elif self.concluded:
            _reject("there is more after the conclusion")
        elif line.startswith("a "):
            self._atom(line)
        elif line == "c UNSAT":
            self.concluded = True
        else:
            match = _STEP.fullmatch(line) or _reject(f"not a line of a proof: {line[:60]!r}")
            if self.refuted:
                _reject("a step after the empty nogood, which ends a proof")
            step = int(match[2])
            if step <= self.last:
                _reject(f"step {step} does not come after step {self.last}")
            self.last = step
            first, second = ([int(x) for x in match[group].split()] for group in (3, 4))
            if match[1] == "i":
                self._inference(step, first, second, (match[5] or "")[3:], (match[6] or "")[3:])
            elif match[5] or match[6]:
                _reject("a nogood has no constraint and no rule")
            else:
                self._nogood(step, first, second)

    def end(self, lines: int) -> None:
        """Whether the proof is complete."""
        if not lines:
            _reject("the proof is empty")
        if not self.concluded:
            _reject("the proof has no conclusion; it may be cut short")
        if not self.refuted and not self.model.empty:
            _reject("the conclusion does not follow: no empty nogood was derived")
        if self.pending or self.unused:
            _reject(f"step {min([*self.pending, *self.unused])} is never used")

    def _header(self, line: str) -> None:
        if line == self.first_line:
            return
        said, want = line.split(" "), self.first_line.split(" ")
        if said[:2] != want[:2]:
            _reject(f"no proof file: it does not begin with {' '.join(want[:2])!r}")
        if said[2:4] != want[2:4]:
            _reject(f"a proof about {' '.join(said[2:4])[:60]!r}, where {' '.join(want[2:4])!r} is asked")
        _reject("a proof about another instance: the fingerprint of its model is another")

    def _atom(self, line: str) -> None:
        match = _ATOM.fullmatch(line) or _reject(f"not an atom: {line[:60]!r}")
        number, variable = int(match[1]), self.names.get(match[2])
        if variable is None:
            _reject(f"the model has no variable {match[2][:40]!r}")
        if number in self.atoms:
            _reject(f"atom {number} is defined twice")
        self.atoms[number] = Atom(variable, {">=": GE, "<=": LE, "==": EQ, "!=": NE}[match[3]], int(match[4]))

    def _literal(self, number: int) -> Atom:
        atom = self.atoms.get(abs(number))
        if atom is None:
            _reject(f"atom {abs(number)} is not defined")
        return atom if number > 0 else atom.negated()

    def _inference(self, step: int, premises: list[int], conclusion: list[int], tag: str, rule: str) -> None:
        """Check that one constraint, or one nogood derived before, forbids the premises without the conclusion."""
        if len(conclusion) > 1:
            _reject("an inference has one conclusion or none")
        atoms = [self._literal(x) for x in premises] + [self._literal(x).negated() for x in conclusion]
        state = State(self.low, self.high)
        for atom in atoms:
            state.assume(atom)
        if not self._fails(state, tag, rule):
            _reject(f"step {step} does not follow by {rule or 'no rule'} from {tag or 'nothing'}")
        self.pending[step] = atoms
        self.inferences += 1

    def _fails(self, state: State, tag: str, rule: str) -> bool:
        if rule == "initial_domain" and not tag:
            return state.failed
        if not tag:
            return False
        number = int(tag)
        if rule == "nogood":
            nogood = self.derived.get(number)
            if nogood is None:
                _reject(f"there is no nogood {number} before")
            self.unused.discard(number)
            return state.failed or all(state.holds(atom) for atom in nogood)
        if number > len(self.model.constraints):
            _reject(f"the model has no constraint {number}")
        constraint = self.model.constraints[number - 1]
        if isinstance(constraint, Linear):
            return rule == "linear_bounds" and (state.failed or linear_fails(constraint, state))
        return rule == "time_table" and (state.failed or one_at_a_time_fails(constraint, state))

    def _nogood(self, step: int, atoms: list[int], hints: list[int]) -> None:
        """Check that unit propagation over the inferences named, in this order, refutes the atoms together."""
        nogood = [self._literal(x) for x in atoms]
        state = State(self.low, self.high)
        for atom in nogood:
            state.assume(atom)
        for hint in hints:
            inference = self.pending.pop(hint, None)
            if inference is None:
                _reject(f"step {hint} is no inference since the last nogood, or is named twice")
            if not state.failed:
                _propagate(state, inference, hint)
        if not state.failed:
            _reject(f"nogood {step} does not follow from the inferences it names")
        if self.pending:
            _reject(f"step {min(self.pending)} is not used by the nogood after it")
        self.nogoods += 1
        self.refuted = not nogood
        if nogood:
            self.derived[step] = nogood
            self.unused.add(step)


def _propagate(state: State, inference: Sequence[Atom], hint: int) -> None:
    """Take the negation of the only atom of an inference that does not hold yet."""
    open_atoms = [atom for atom in inference if not state.holds(atom)]
    if not open_atoms:
        state.failed = True
    elif len(open_atoms) > 1:
        _reject(f"step {hint} says nothing yet where it is named: {len(open_atoms)} of its atoms are open")
    else:
        state.assume(open_atoms[0].negated())
