"""The errors that a user can cause. Each message is one line that names the place, the value and the limit."""

from __future__ import annotations

__all__ = ["BubbleproofError", "FamilyError", "FormatError", "InstanceError", "ScheduleError"]


class BubbleproofError(Exception):
    """Anything wrong with what the user gave. The command line prints it as one line and exits with 2."""


class InstanceError(BubbleproofError):
    """An instance that cannot be meant: a negative cost, a stage on no rank, a cap too small."""


class ScheduleError(BubbleproofError):
    """A schedule that cannot be read or timed under its instance."""


class FamilyError(BubbleproofError):
    """A family was asked for outside its preconditions."""


class FormatError(BubbleproofError):
    """A file that does not follow its format; the message says file, row and column where they are known."""
