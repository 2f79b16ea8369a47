"""Cuts a log in the DRCP format down to the steps that its conclusion rests on, and numbers them anew.

A solver logs each nogood that it learns; many are never used again. What is left is a proof by the strict rules of
`bubbleproof.verify.proof.check`: every line of it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

__all__ = ["Unusable", "trim"]


class Unusable(Exception):
    """The log is no complete proof in a form that is known here."""


class _Step:
    """A nogood with the inferences that derive it, as they stand in the log."""

    __slots__ = ("atoms", "inferences", "number")

    def __init__(self, number: int, atoms: list[int], inferences: list[tuple[str, ...]]) -> None:
        self.number, self.atoms, self.inferences = number, atoms, inferences


def trim(lines: Iterable[str], constraints: int) -> Iterator[str]:
    """The lines of the trimmed proof, without a header.

    Parameters
    ----------
    lines
        The log of a solver.
    constraints
        The number of constraints of the model; steps are numbered from there.

    Raises
    ------
    Unusable
        A line cannot be read, or there is no empty nogood.
    """
    atoms: dict[int, str] = {}
    steps: list[_Step] = []
    pending: dict[str, tuple[str, ...]] = {}
    for line in lines:
        sort, _, rest = line.rstrip("\n").partition(" ")
        if sort == "a":
            number, _, atom = rest.partition(" ")
            atoms[int(number)] = atom
        elif sort == "i":
            number, _, inference = rest.partition(" ")
            pending[number] = tuple(inference.split(" "))
        elif sort == "n":
            number, *body = rest.split(" ")
            cut = body.index("0") if "0" in body else len(body)
            try:
                steps.append(_Step(int(number), [int(x) for x in body[:cut]], [pending[x] for x in body[cut + 1 :]]))
            except KeyError as error:
                raise Unusable(f"nogood {number} names step {error}, which is not among those before it") from None
            pending = {}
            if cut == 0:
                break
        elif sort != "c":
            raise Unusable(f"unknown line {line[:60]!r}")
    if not steps or steps[-1].atoms:
        raise Unusable("the log has no empty nogood")
    return _written(_needed(steps), atoms, constraints)


def _needed(steps: list[_Step]) -> list[_Step]:
    """The steps that the last one rests on, in order."""
    wanted = {steps[-1].number}
    found = []
    for step in reversed(steps):
        if step.number in wanted:
            found.append(step)
            wanted.update(int(_tag(body)) for body in step.inferences if body[-1] == "l:nogood")
    return found[::-1]


def _tag(body: tuple[str, ...]) -> str:
    for part in body:
        if part.startswith("c:"):
            return part[2:]
    raise Unusable(f"an inference without a constraint: {' '.join(body)[:60]!r}")


def _written(steps: list[_Step], atoms: dict[int, str], number: int) -> Iterator[str]:
    known: dict[int, int] = {}
    renamed: dict[str, str] = {}

    def literals(given: Iterable[int], new: list[str]) -> str:
        written = []
        for literal in given:
            if abs(literal) not in known:
                known[abs(literal)] = len(known) + 1
                new.append(f"a {known[abs(literal)]} {atoms[abs(literal)]}")
            written.append(f"{'-' if literal < 0 else ''}{known[abs(literal)]} ")
        return "".join(written)

    for step in steps:
        hints = []
        for body in step.inferences:
            new: list[str] = []
            cut = body.index("0")
            end = next((i for i, part in enumerate(body) if i > cut and part[1:2] == ":"), len(body))
            premises = literals(map(int, body[:cut]), new)
            conclusion = literals(map(int, body[cut + 1 : end]), new)
            number += 1
            label = body[-1]
            reason = [] if label == "l:initial_domain" else [_tag(body)]
            if label == "l:nogood":
                reason = [renamed[reason[0]]]
            yield from new
            yield " ".join([f"i {number} {premises}0 {conclusion}".rstrip(), *(f"c:{tag}" for tag in reason), label])
            hints.append(str(number))
        new = []
        clause = literals(step.atoms, new)
        number += 1
        renamed[str(step.number)] = str(number)
        yield from new
        yield f"n {number} {clause}0 {' '.join(hints)}".rstrip()
    yield "c UNSAT"
