"""The judge: decides whether a schedule is complete, free of deadlock, within its memory and truly timed.

Its rules are written from docs/semantics.md and share no code with what builds, times or finds schedules; only the
data types are common.
"""

from bubbleproof.verify.judge import verify
from bubbleproof.verify.program_judge import verify_program
from bubbleproof.verify.report import ChannelFacts, Facts, Report, Verdict, Violation

__all__ = ["ChannelFacts", "Facts", "Report", "Verdict", "Violation", "verify", "verify_program"]
