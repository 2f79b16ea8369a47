"""Going on from a file: what an earlier solve left is taken over where it holds, and kept up to date."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from bubbleproof.schedules.errors import BubbleproofError
from bubbleproof.schedules.formats.schedule_json import Document
from bubbleproof.solver.published import judge_family
from bubbleproof.solver.result import Solution
from bubbleproof.verify.certificate import Certificate, check

if TYPE_CHECKING:
    from bubbleproof.solver.search import Search

__all__ = ["Keep", "Keeper", "take_up"]

Keep: TypeAlias = Callable[[Solution], None]
"""Called with the best solution so far when it has improved."""

_SHARE = 10
"""After keeping a solution took t seconds, the next one is kept t times this later at the earliest."""


class Keeper:
    """Hands a solution on whenever it has improved, but spends at most about a tenth of the time on that.

    Parameters
    ----------
    make
        Makes the solution, judged.
    """

    def __init__(self, keep: Keep, make: Callable[[], Solution]) -> None:
        self.keep, self.make = keep, make
        self.due = 0.0
        self.busy = False

    def improved(self) -> None:
        """There is a better schedule or bound."""
        begun = monotonic()
        if self.busy or begun < self.due:
            return
        self.busy = True  # making a solution may report a first schedule, which calls this again
        try:
            self.keep(self.make())
        finally:
            self.busy = False
        now = monotonic()
        self.due = now + _SHARE * (now - begun)


def take_up(search: Search, document: Document, proof: Iterable[str] | None) -> None:
    """Begin a search with the schedule and the bound of an earlier one.

    The schedule is judged and timed anew. A certificate is checked anew, and so is a proof. A bound that only CP-SAT
    claimed is taken over as such. A bound by a proof that is not there, or does not hold, is left out.

    Raises
    ------
    BubbleproofError
        The document is about another instance, its schedule breaks a rule, or its record contradicts itself.
    """
    instance = search.instance
    if document.instance.with_(name="", units=instance.units) != instance.with_(name=""):
        raise BubbleproofError("cannot go on: the file is about another instance, cap or objective")
    from bubbleproof.verify import Verdict, verify

    report = verify(document.schedule, instance)
    if report.verdict is not Verdict.PROVED:
        first = report.violations[0] if report.violations else report.verdict.value
        raise BubbleproofError(f"cannot go on: the schedule in the file does not hold: {first}")
    record = document.record or {}
    source = record.get("source")
    judge_family(search, source if isinstance(source, str) and source.isprintable() else "file", document.schedule)
    bound, by = record.get("bound"), record.get("proof")
    if isinstance(bound, int) and bound > search.reached():
        raise BubbleproofError(
            f"cannot go on: the file claims that nothing is below {bound}, but its schedule has {search.reached()}"
        )
    _take_certificate(search, record.get("certificate"))
    if proof is not None:
        from bubbleproof.solver.refute.prove import take_proof

        take_proof(search, tuple(proof))
    if by == "cp-sat" and isinstance(bound, int) and not isinstance(bound, bool):
        search.raise_bound(bound, "cp-sat")
        if search.proof == "cp-sat":
            search.extra_notes.append(f"the bound of {bound} is taken over from the file, where CP-SAT claims it")


def _take_certificate(search: Search, raw: object) -> None:
    """Use the certificate of the file if it holds and is better than that of this version."""
    if raw is None:
        return
    try:
        certificate = msgspec.convert(raw, Certificate)
    except msgspec.ValidationError:
        return
    if certificate.objective not in ("span", search.instance.objective) or certificate.value <= search.bound:
        return
    if check(search.instance, certificate).accepted:
        search.certificate = certificate
        search.raise_bound(certificate.value, certificate.rule)
