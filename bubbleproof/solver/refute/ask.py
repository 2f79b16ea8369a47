"""Asks for a proof that no schedule has an objective of at most T, and has the judge's own checker check it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Literal

import msgspec

from bubbleproof.schedules.errors import BubbleproofError
from bubbleproof.schedules.instance import Instance
from bubbleproof.solver.refute.child import Question, Reply
from bubbleproof.solver.refute.trim import trim
from bubbleproof.verify.proof import Linear, Model, build, header

__all__ = ["Refutation", "available", "refute"]

_GRACE = 10.0
"""Seconds that the child gets beyond its limit, to load and to end by itself."""


@dataclass(frozen=True)
class Refutation:
    """What was found out about one length.

    Parameters
    ----------
    verdict
        ``refuted``: no schedule has it, and `lines` is the proof, not yet checked. ``found``: the model has a solution,
        `starts`. ``unknown``: time ran out.
    starts
        Of each op, by the name of its variable.
    """

    verdict: Literal["refuted", "found", "unknown"]
    lines: tuple[str, ...] = ()
    starts: dict[str, int] | None = None
    milliseconds: int = 0


def available() -> None:
    """Find out whether the solver is installed.

    Raises
    ------
    BubbleproofError
        It is not.
    """
    from importlib.util import find_spec

    if find_spec("pumpkin_solver") is None:
        raise BubbleproofError("proofs need the solver Pumpkin: install bubbleproof[proof], or pumpkin-solver itself")


def refute(instance: Instance, length: int, *, seconds: float, seed: int = 0) -> Refutation:
    """Ask Pumpkin whether an objective of at most `length` is possible, with a proof if not.

    Raises
    ------
    Unmodelled
        The model of proofs does not cover the instance.
    BubbleproofError
        The solver is not installed, or ended in an unexpected way.
    """
    begun = monotonic()
    model = build(instance, length)
    first = header(model, instance.objective, length)
    if model.empty:
        return Refutation("refuted", (first, "c UNSAT"), None, _since(begun))
    available()
    with tempfile.TemporaryDirectory(prefix="bubbleproof-") as folder:
        log = Path(folder) / "log.drcp"
        reply = _ask(model, str(log), seconds, seed)
        if reply.verdict == "found":
            starts = {v.name: x for v, x in zip(model.variables, reply.values, strict=True)}
            return Refutation("found", (), starts, _since(begun))
        if reply.verdict != "impossible":
            return Refutation("unknown", (), None, _since(begun))
        proof = (first, *trim(_lines(log), len(model.constraints)))
    return Refutation("refuted", proof, None, _since(begun))


def _since(begun: float) -> int:
    return int((monotonic() - begun) * 1000) + 1


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="ascii") as file:
        yield from file


def _ask(model: Model, log: str, seconds: float, seed: int) -> Reply:
    question = Question(
        [(v.name, v.low, v.high, v.boolean) for v in model.variables],
        [(c.terms, c.bound, c.when) if isinstance(c, Linear) else (c.tasks,) for c in model.constraints],
        log,
        seconds,
        seed,
    )
    command = [sys.executable, "-m", "bubbleproof.solver.refute.child"]
    try:
        done = subprocess.run(
            command, input=msgspec.json.encode(question), capture_output=True, timeout=seconds + _GRACE, check=False
        )
    except subprocess.TimeoutExpired:
        return Reply("unknown")
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise BubbleproofError(f"Pumpkin failed: {said[-1] if said else f'exit code {done.returncode}'}")
    return msgspec.json.decode(done.stdout, type=Reply)
