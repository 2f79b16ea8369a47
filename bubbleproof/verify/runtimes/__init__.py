"""Consumer models: what a runtime does with a program that it is given, action by action."""

from __future__ import annotations

from bubbleproof.verify.runtimes.prediction import OUTCOMES, Outcome, Prediction

__all__ = ["OUTCOMES", "Outcome", "Prediction"]
