"""V8xx: messages fit: their buffers into the memory of the ranks, their shapes to both ends.

Source: docs/semantics.md, section 9, "Buffers", and section 8, "Shapes".
"""

from __future__ import annotations

from collections.abc import Iterator

from bubbleproof.verify.exchange import ProgramCase
from bubbleproof.verify.queues import buffered_levels
from bubbleproof.verify.report import Violation
from bubbleproof.verify.rules.messages import idle_transfers
from bubbleproof.verify.rules.rule import Rule, rule

__all__ = ["RULES"]


def _idle_buffers(case: ProgramCase) -> str:
    reason = idle_transfers(case)
    if reason:
        return reason
    if case.setting.message_memory is None:
        return "The memory of messages was not given, so their buffers were not counted."
    return "" if case.instance.memory.cap is not None else "The instance gives no cap, so memory was not judged."


@rule(
    "V801",
    "buffers-over-the-cap",
    idle=_idle_buffers,
    example="1RECV_F0 1RECV_F1 1F0 1BW0 … with a cap that holds one activation and one message",
    seen="pytorch#128910 (sends held to the end of the step), pytorch#136380 (a receive buffer for every microbatch)",
)
def buffers_over_the_cap(case: ProgramCase) -> Iterator[Violation]:
    """At every instant the level of a rank with the buffers of its messages is at most its cap.

    Depends on the order of the row only. Not judged for a rank that is over its cap without buffers (V301).

    Source: semantics, Buffers.
    """
    caps = case.instance.memory.cap or ()
    for rank, cap in enumerate(caps):
        if not case.exact[rank] or any(level > cap for _, _, level in case.levels[rank]):
            continue
        over = [(level, position) for position, level in buffered_levels(case, rank) if level > cap]
        if over:
            position = over[0][1]
            peak = max(level for level, _ in over)
            text = str(case.program.rows[rank][position])
            message = (
                f"rank {rank} holds {over[0][0]} with its message buffers at {text} (position {position}), its cap is "
                f"{cap}; its peak with buffers is {peak}"
            )
            yield Violation("V801", rank, position, text, message, {"level": over[0][0], "peak": peak, "cap": cap})


def _idle_shapes(case: ProgramCase) -> str:
    if not case.same_ranks:
        return "Only the number of ranks was checked; in orders for other ranks nothing means anything."
    known = case.setting.inputs is not None and case.setting.outputs is not None
    return "" if known else "Shapes were not given, so their agreement was not judged."


@rule(
    "V802",
    "unlike-shapes",
    idle=_idle_shapes,
    example="stage 0 makes (8, 16), stage 1 takes (8, 32)",
    seen="pytorch#126600, DeepSpeed#3195 and #5696 (cut to the first shape)",
)
def unlike_shapes(case: ProgramCase) -> Iterator[Violation]:
    """What a stage makes has the shape that the next stage takes.

    Source: semantics, Shapes.
    """
    inputs, outputs = case.setting.inputs or (), case.setting.outputs or ()
    for stage in range(case.instance.stages - 1):
        made, taken = outputs[stage], inputs[stage + 1]
        if made is not None and taken is not None and made != taken:
            message = f"stage {stage} makes {made}, stage {stage + 1} takes {taken}"
            yield Violation(
                "V802", None, None, None, message, {"stage": stage, "made": list(made), "taken": list(taken)}
            )


RULES: tuple[Rule[ProgramCase], ...] = (buffers_over_the_cap, unlike_shapes)
