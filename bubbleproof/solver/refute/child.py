"""The process that asks Pumpkin. Apart from ours, because a call to the solver can neither be stopped nor interrupted.

Reads a `Question` as JSON from standard input, writes Pumpkin's log to its `log`, and a `Reply` to standard output.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

__all__ = ["Question", "Reply", "main"]


class Question(msgspec.Struct):
    """A model, as in `bubbleproof.verify.proof.model`, where the log goes, and the seconds allowed.

    Parameters
    ----------
    variables
        Name, least value, greatest value, whether it is a 0–1 variable.
    constraints
        ``(terms, bound, when)`` for a linear one, ``(tasks,)`` for one task at a time.
    log
        File of the proof; empty for none.
    """

    variables: list[tuple[str, int, int, bool]]
    constraints: list[Any]
    log: str
    seconds: float
    seed: int


class Reply(msgspec.Struct):
    """``impossible``, ``found`` (with the values of all variables), or ``unknown``."""

    verdict: str
    values: list[int] = []


def main() -> None:
    """Answer one question."""
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=Question)
    sys.stdout.buffer.write(msgspec.json.encode(_answer(question)))


def _answer(question: Question) -> Reply:
    import pumpkin_solver
    from pumpkin_solver import constraints

    model = pumpkin_solver.Model(proof=question.log or None, seed=question.seed)
    booleans: dict[int, Any] = {}
    integers = []
    for index, (name, low, high, boolean) in enumerate(question.variables):
        if boolean:
            booleans[index] = model.new_boolean_variable(name=name)
            integers.append(booleans[index].as_integer())
        else:
            integers.append(model.new_integer_variable(low, high, name=name))
    for constraint in question.constraints:
        tag = model.new_constraint_tag()  # numbered from 1, as the constraints of the model are
        if len(constraint) == 1:
            starts = [integers[v] for v, _ in constraint[0]]
            lasting = [duration for _, duration in constraint[0]]
            model.add_constraint(constraints.Cumulative(starts, lasting, [1] * len(starts), 1, tag))
            continue
        terms, bound, when = constraint
        added = constraints.LessThanOrEquals([integers[v].scaled(c) for c, v in terms], bound, tag)
        if when is None:
            model.add_constraint(added)
        else:
            model.add_implication(added, booleans[when[0]] if when[1] else booleans[when[0]].negate())
    result = model.satisfy(timeout=question.seconds)
    kinds = pumpkin_solver.SatisfactionResult
    if isinstance(result, kinds.Satisfiable):
        found = result._0
        return Reply("found", [int(found.int_value(x)) for x in integers])
    return Reply("impossible" if isinstance(result, kinds.Unsatisfiable) else "unknown")


if __name__ == "__main__":
    main()
