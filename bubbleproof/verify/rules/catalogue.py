"""All rules: of schedules, of programs, and advice; and the page that lists them."""

from __future__ import annotations

from bubbleproof.verify.rules import (
    buffers,
    channel,
    completeness,
    gradients,
    memory,
    messages,
    order,
    runtime,
    timeline,
)
from bubbleproof.verify.rules.rule import AnyRule

__all__ = ["ADVICE", "FAMILIES", "PROGRAM_RULES", "document"]

FAMILIES: tuple[tuple[str, tuple[AnyRule, ...]], ...] = (
    ("Completeness and placement", completeness.RULES),
    ("Order and deadlock", order.RULES),
    ("Memory", memory.RULES),
    ("Claimed starts and figures", timeline.RULES),
    ("Messages", messages.RULES),
    ("Channels", channel.RULES),
    ("Gradients and losses", (*gradients.RULES, *gradients.TARGET_RULES)),
    ("Buffers and shapes", buffers.RULES),
    ("Runtimes", runtime.RULES),
    ("Advice", (*channel.ADVICE, *gradients.ADVICE)),
)

PROGRAM_RULES: tuple[AnyRule, ...] = (
    *completeness.RULES,
    *order.RULES,
    *memory.RULES,
    *messages.RULES,
    *channel.RULES,
    *gradients.RULES,
    *buffers.RULES,
)
"""The rules of a schedule with communication; starts are not claimed of one."""

ADVICE: tuple[AnyRule, ...] = (*channel.ADVICE, *gradients.ADVICE)
"""What is worth knowing about a schedule with communication and breaks nothing."""


def document() -> str:
    """The page docs/rules.md: every rule with its statement, reason, example and source."""
    lines = [
        "# Rules",
        "",
        "Written by `python -m bubbleproof.verify.rules`; edit the docstrings of `bubbleproof/verify/rules` instead.",
        "The words are those of [semantics.md](semantics.md). Ids are stable: a rule keeps its id; none is used again.",
        "V rules decide the verdict; A rules are advice and never do.",
        "Examples are rows of ranks, separated by |, with what else is needed in parentheses.",
        "",
    ]
    for title, family in FAMILIES:
        lines += [f"## {title}", ""]
        for rule in family:
            lines += [f"### {rule.id} {rule.name}", "", rule.statement, ""]
            for remark in rule.remarks:
                lines += [remark, ""]
            if rule.example:
                lines += [f"Breaks it: `{rule.example}`", ""]
            if rule.seen:
                lines += [f"Seen: {rule.seen}.", ""]
    return "\n".join(lines)
