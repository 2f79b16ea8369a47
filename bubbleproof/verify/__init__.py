"""The judge: decides whether a schedule is complete, free of deadlock, within its memory and truly timed.

Its rules are written from docs/semantics.md and share no code with what builds, times or finds schedules; only the
data types are common.

The package can be called: ``bubbleproof.verify(…)`` is `verify`, whether or not this package, which has the same name,
was imported before by something else.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bubbleproof.verify.judge import verify
from bubbleproof.verify.report import ChannelFacts, Facts, Report, Verdict, Violation

if TYPE_CHECKING:
    from bubbleproof.verify.program_judge import verify_program

__all__ = ["ChannelFacts", "Facts", "Report", "Verdict", "Violation", "verify", "verify_program"]


def __getattr__(name: str) -> Any:
    """Import the judge of programs on first use; a schedule does not need it."""
    if name != "verify_program":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from bubbleproof.verify.program_judge import verify_program

    return verify_program


class _Judge(ModuleType):
    """A module that can be called like its main function."""

    __call__ = staticmethod(verify)


sys.modules[__name__].__class__ = _Judge
