"""V3xx: no rank ever holds more than its cap.

Source: docs/semantics.md, "Memory" and section 4.
"""

from __future__ import annotations

from collections.abc import Iterator

from bubbleproof.schedules.op import Op
from bubbleproof.verify.case import Case
from bubbleproof.verify.report import Violation
from bubbleproof.verify.rules.rule import Rule, other_ranks, rule

__all__ = ["RULES"]


def _no_cap(case: Case) -> str:
    if case.instance.memory.cap is None:
        return "The instance gives no cap, so memory was not judged."
    return other_ranks(case)


@rule(
    "V301",
    "over-the-cap",
    idle=_no_cap,
    example="0F0 0F1 0BW0 0BW1 (a cap of one activation)",
    seen="sail-sg/zero-bubble-pipeline-parallelism#8, marin-community/marin#6532, pytorch#136766",
)
def over_the_cap(case: Case) -> Iterator[Violation]:
    """At every instant, the level of a rank is at most its cap.

    One violation per rank: the first instant over the cap, with the highest one. A rank whose ops are not exactly those
    that it should run is not judged, since levels then mean nothing.

    Source: semantics, Memory and theorem 4.
    """
    caps = case.instance.memory.cap or ()
    for rank, cap in enumerate(caps):
        if not case.exact[rank]:
            continue
        static = case.instance.memory.static[rank]
        if static > cap:
            message = f"rank {rank} holds {static} before its first op, its cap is {cap}"
            yield Violation("V301", rank, None, None, message, {"level": static, "cap": cap, "static": static})
            continue
        over = [change for change in case.levels[rank] if change[2] > cap]
        if not over:
            continue
        position, op, level = over[0]
        peak_position, peak_op, peak = max(over, key=lambda change: change[2])
        highest = (
            "" if peak == level else f"; its peak is {peak}, once {peak_op} {_when(peak_op)} (position {peak_position})"
        )
        yield Violation(
            "V301",
            rank,
            position,
            str(op),
            f"rank {rank} holds {level} once {op} {_when(op)} (position {position}), its cap is {cap}{highest}",
            {
                "level": level,
                "cap": cap,
                "static": static,
                "peak": peak,
                "peak_position": peak_position,
                "instants_over": len(over),
            },
        )


def _when(op: Op) -> str:
    return "has started" if op.kind in ("F", "R") else "has ended"


RULES: tuple[Rule[Case], ...] = (over_the_cap,)
