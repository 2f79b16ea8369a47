"""The rules of the judge, one module per family, each rule a generator of violations with a stable id.

Those of programs are in `catalogue`, with all families: judging a schedule does without loading them.
"""

from __future__ import annotations

from bubbleproof.verify.case import Case
from bubbleproof.verify.rules import completeness, memory, order, timeline
from bubbleproof.verify.rules.rule import AnyRule, Rule

__all__ = ["RULES", "AnyRule", "Rule"]

RULES: tuple[Rule[Case], ...] = (*completeness.RULES, *order.RULES, *memory.RULES, *timeline.RULES)
"""The rules of every schedule, with communication or without."""
