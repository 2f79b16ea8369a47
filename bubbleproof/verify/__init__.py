"""The judge: decides whether a schedule is complete, free of deadlock, within its memory and truly timed.

Its rules are written from docs/semantics.md and share no code with what builds, times or finds schedules; only the
data types are common.
"""

from bubbleproof.verify.judge import verify
from bubbleproof.verify.report import Facts, Report, Verdict, Violation

__all__ = ["Facts", "Report", "Verdict", "Violation", "verify"]
