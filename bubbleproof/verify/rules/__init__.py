"""The rules of the judge, one module per family, each rule a generator of violations with a stable id."""

from __future__ import annotations

from bubbleproof.verify.rules import completeness, memory, order, timeline
from bubbleproof.verify.rules.rule import Rule

__all__ = ["FAMILIES", "RULES", "Rule", "document"]

FAMILIES: tuple[tuple[str, tuple[Rule, ...]], ...] = (
    ("Completeness and placement", completeness.RULES),
    ("Order and deadlock", order.RULES),
    ("Memory", memory.RULES),
    ("Claimed starts and figures", timeline.RULES),
)

RULES: tuple[Rule, ...] = tuple(rule for _, family in FAMILIES for rule in family)


def document() -> str:
    """The page docs/rules.md: every rule with its statement, reason and source."""
    lines = [
        "# Rules",
        "",
        "Written by `python -m bubbleproof.verify.rules`; edit the docstrings of `bubbleproof/verify/rules` instead.",
        "The words are those of [semantics.md](semantics.md). Ids are stable: a rule keeps its id; none is used again.",
        "",
    ]
    for title, family in FAMILIES:
        lines += [f"## {title}", ""]
        for rule in family:
            lines += [f"### {rule.id} {rule.name}", "", rule.statement, ""]
            for remark in rule.remarks:
                lines += [remark, ""]
    return "\n".join(lines)
