"""What a schedule family is, and the preconditions that several families share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bubbleproof.schedules.errors import FamilyError
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Slot
from bubbleproof.schedules.placement import Placement, linear
from bubbleproof.schedules.schedule import Schedule

__all__ = [
    "Family",
    "Reason",
    "at_positions",
    "linear_only",
    "need_one_chunk",
    "need_placement",
    "need_split",
    "require",
]

Reason = str | None
"""Why a family cannot be built on an instance, as the rest of a sentence that begins with its name; None if it can."""


@dataclass(frozen=True)
class Family:
    """A published way to order the ops of a pipeline, for any size.

    Parameters
    ----------
    name, summary, reference
        Its name on the command line, one line on what it does, and where it is defined.
    order
        The pure function from an instance (and the integers named in `options`) to a schedule. It raises FamilyError
        where `why_not` gives a reason.
    why_not
        The reason why the family cannot be built on an instance, or None.
    placement
        The placement that it is meant for, from a number of ranks and of chunks per rank.
    chunks
        Chunks per rank to use when the user does not say.
    needs_split
        Whether it runs B and W apart, so that the instance must allow it.
    options
        Names of the integers that `order` takes besides the instance.
    """

    name: str
    summary: str
    reference: str
    order: Callable[..., Schedule]
    why_not: Callable[[Instance], Reason]
    placement: Callable[[int, int], Placement]
    chunks: int = 1
    needs_split: bool = False
    options: tuple[str, ...] = ()

    def applicable(self, instance: Instance) -> str | None:
        """None if the family can be built on this instance, else the reason why not."""
        if instance.placement.groups:
            return "needs every stage on one rank"
        return self.why_not(instance)

    def build(self, instance: Instance, **options: int) -> Schedule:
        """The schedule of this family for an instance.

        Raises
        ------
        FamilyError
            The instance does not meet the preconditions, or the family takes no such option.
        """
        for option in options:
            if option not in self.options:
                known = ", ".join(self.options) or "none"
                raise FamilyError(f"{self.name} takes no option {option!r}; its options: {known}")
        if instance.placement.groups:
            require(self.name, self.applicable(instance))
        return self.order(instance, **options)


def require(name: str, reason: Reason) -> None:
    """Raise FamilyError if there is a reason against building the family."""
    if reason is not None:
        raise FamilyError(f"{name} {reason}")


def linear_only(ranks: int, chunks: int) -> Placement:
    """The linear placement, for families that give each rank one chunk whatever is asked for."""
    return linear(ranks)


def _describe(placement: Placement) -> str:
    routes = "" if len(placement.routes) == 1 else " on two routes"
    return f"{placement.kind} with {placement.stages} stages{routes} on {placement.ranks} ranks"


def need_one_chunk(instance: Instance) -> Reason:
    """The family wants one stage per rank; which rank holds which stage does not matter."""
    if instance.placement.one_chunk:
        return None
    return f"needs one stage per rank (a linear placement); this one is {_describe(instance.placement)}"


def need_placement(instance: Instance, make: Callable[[int, int], Placement], what: str) -> Reason:
    """The family wants exactly the stages and ranks that `make(ranks, chunks)` gives, under whatever name."""
    chunks, rest = divmod(instance.stages, instance.ranks)
    if not rest and chunks and instance.placement.routes == make(instance.ranks, chunks).routes:
        return None
    return f"needs {what}; this one is {_describe(instance.placement)}"


def need_split(instance: Instance) -> Reason:
    """The family runs B and W apart."""
    return None if instance.costs.split else "needs a backward that is split into B and W (cost.W, split = true)"


def at_positions(instance: Instance, rows: Sequence[Sequence[Slot]], name: str) -> Schedule:
    """The schedule in which the rank that holds stage s runs ``rows[s]``; for one stage per rank."""
    orders: list[Sequence[Slot]] = [()] * instance.ranks
    for stage, rank in enumerate(instance.placement.routes[0]):
        orders[rank] = rows[stage]
    return Schedule.of(orders, name)
