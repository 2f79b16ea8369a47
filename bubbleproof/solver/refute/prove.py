"""A proof for the best schedule of a search: that nothing shorter exists, or else the best lower bound in reach."""

from __future__ import annotations

from importlib import metadata
from time import monotonic
from typing import TYPE_CHECKING

from bubbleproof.schedules.errors import BubbleproofError
from bubbleproof.solver.flat import Orders
from bubbleproof.solver.refute.ask import Refutation, refute
from bubbleproof.solver.refute.trim import Unusable
from bubbleproof.solver.result import InternalError, Proved
from bubbleproof.verify.proof import check_proof, claimed_length

if TYPE_CHECKING:
    from bubbleproof.solver.search import Search

__all__ = ["prove", "take_proof"]

_SHARE = 4
"""What is left of the time is divided by this for the next question when there is no proof for the value itself."""


def prove(search: Search, seconds: float) -> None:
    """Look for a proof that nothing is better than the best schedule, and give the search what comes of it.

    First the length just below the value is asked. A schedule that turns up instead becomes the best, and the question
    is asked again. If there is no answer in time, lengths between the certificate's bound and the value are asked, so
    that there is at least a lower bound with a proof. The search keeps the best proof that the judge's checker accepts.

    Raises
    ------
    InternalError
        CP-SAT has claimed a bound that a schedule beats. A fault of the solver or of its model.
    """
    _Prover(search, seconds).run()


def take_proof(search: Search, lines: tuple[str, ...]) -> None:
    """Use a proof that was written before, if the checker accepts it."""
    length = claimed_length(lines[0]) if lines else None
    if length is None:
        search.extra_notes.append("the proof of before is no proof file, and was not used")
    else:
        _Prover(search, 0.0).take(length, Refutation("refuted", lines))


class _Prover:
    def __init__(self, search: Search, seconds: float) -> None:
        self.search = search
        self.deadline = monotonic() + seconds
        self.low = 0 if search.proved is None else search.proved.length + 1
        """Below this, nothing need be asked."""
        self.high = search.reached()
        """There is a schedule of this length, and up to here no answer was had below it."""

    def run(self) -> None:
        """Ask until it is decided or the time is out."""
        certificate = self.search.certificate
        length, seconds = self.high - 1, self.left * (_SHARE - 1) / _SHARE
        while self.low <= length < self.high and self.left > 0:
            try:
                answer = refute(self.search.instance, length, seconds=seconds, seed=self.search.seed)
            except (BubbleproofError, Unusable) as error:  # the model does not apply, or the solver has failed
                self.search.extra_notes.append(str(error))
                return
            if answer.verdict == "refuted":
                if not self.take(length, answer):
                    return
                self.low = length + 1
            elif answer.verdict == "found" and self.better(answer.starts or {}):
                self.high = self.search.reached()
                length, seconds = self.high - 1, self.left * (_SHARE - 1) / _SHARE
                continue
            else:
                self.high = length
                self.low = max(self.low, certificate.value if certificate else 0)
            length, seconds = (self.low + self.high - 1) // 2, self.left / _SHARE
        if self.search.proved is None or self.search.proved.length + 1 < self.search.reached():
            self.search.extra_notes.append("no proof for the value was found in time")

    @property
    def left(self) -> float:
        """Seconds left."""
        return max(0.0, self.deadline - monotonic())

    def take(self, length: int, answer: Refutation) -> bool:
        """Have a proof checked, and use it if it holds."""
        search, begun = self.search, monotonic()
        verdict = check_proof(search.instance, length, answer.lines)
        if not verdict.accepted:
            search.extra_notes.append(f"a proof that no {length} is possible was not accepted: {verdict.reason}")
            return False
        search.proof_lines = answer.lines
        search.proved = Proved(
            length=length,
            solver=f"pumpkin-solver {metadata.version('pumpkin-solver')}" if verdict.nogoods else "none",
            variables=verdict.variables,
            constraints=verdict.constraints,
            inferences=verdict.inferences,
            nogoods=verdict.nogoods,
            bytes=sum(len(line) + 1 for line in answer.lines),
            milliseconds=answer.milliseconds,
            checked_in=int((monotonic() - begun) * 1000) + 1,
        )
        if length + 1 >= search.bound:
            search.bound, search.proof = length + 1, "proof-log"
            search.report("proof-log")
        return True

    def better(self, starts: dict[str, int]) -> bool:
        """Offer the schedule of a solution; whether it is better than the best."""
        search = self.search
        before = search.reached()
        search.offer(_orders(search, starts), "pumpkin")
        if search.reached() < search.bound:
            raise InternalError(
                f"{search.proof} claims that nothing is below {search.bound}, "
                f"but there is a schedule of {search.reached()}"
            )
        return search.reached() < before


def _orders(search: Search, starts: dict[str, int]) -> Orders:
    """The orders of the ranks in a solution of the model."""
    flat = search.flat
    orders: Orders = []
    for queues in flat.queues_of_rank:
        events = []
        for queue in queues:
            kind, stage = flat.kinds[queue % flat.width], flat.stage[queue]
            for j in flat.microbatches[flat.alike[queue]]:
                at = starts[f"{kind}{stage}_{j}"]
                events.append((at, at + flat.duration[queue], queue % flat.width, queue))
        orders.append([event[-1] for event in sorted(events)])
    return orders
