"""V9xx: what the consumer model of a runtime says about a program.

Source: docs/semantics.md, the sections on runtimes.
"""

from __future__ import annotations

from collections.abc import Iterator

from bubbleproof.verify.exchange import ProgramCase
from bubbleproof.verify.report import Violation
from bubbleproof.verify.rules.rule import Rule, rule

__all__ = ["RULES"]

_HOW = {
    "wrong": "ends with wrong gradients, weights or losses",
    "hang": "hangs",
    "crash": "raises",
    "refused": "refuses the program",
}


def _not_asked(case: ProgramCase) -> str:
    return "" if case.setting.prediction is not None else "No runtime was asked about the program."


@rule(
    "V901",
    "fails-on-runtime",
    idle=_not_asked,
    example="RecvGrad(0) RecvActivation(1) BackwardPass(0) in a stream for DeepSpeed's engine",
    seen="DeepSpeed 0.19.8 receives gradients and activations into the same memory",
)
def fails_on_runtime(case: ProgramCase) -> Iterator[Violation]:
    """The runtime that the file is for trains right with it.

    Asked is the consumer model of the runtime: its buffers, its queues, its checks. A program can be right by all other
    rules and fail here, since a runtime has fewer places for tensors than a program has names.

    Source: semantics, the section on the runtime.
    """
    said = case.setting.prediction
    if said is None or said.outcome == "ok":
        return
    place = "" if said.rank is None else f" on rank {said.rank}"
    message = f"the runtime {_HOW[said.outcome]}{place}: {said.reason}"
    yield Violation("V901", said.rank, said.position, None, message)


RULES: tuple[Rule[ProgramCase], ...] = (fails_on_runtime,)
