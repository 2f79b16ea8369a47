"""Bounds that take longer than the closed forms: asked for when a search has a first schedule and is not done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bubbleproof.solver.bounds import stays
from bubbleproof.solver.bounds_path import Part, parts
from bubbleproof.solver.crossing import Rising, kept, places

if TYPE_CHECKING:
    from bubbleproof.solver.search import Search

__all__ = ["raise_by_crossings", "raise_by_stays"]

_COMPARISONS_PER_EFFORT = 1_000_000
"""Comparisons of the rule `crossing` per unit of effort; about a second on a common machine."""

_CROSSINGS_SHARE = 0.15
"""Part of the time limit that the rule `crossing` may take."""

_FEWER_SHARE = 0.1
"""Part of that for each number of microbatches left out."""

_STAYS_EFFORT = 0.1
"""Effort that the rule `stays` counts for."""


def raise_by_crossings(search: Search) -> None:
    """Raise the bound by the patterns in which microbatches in flight can meet, where a cap makes them wait.

    Raises
    ------
    OutOfBudget
        The time or effort ended first.
    """
    search.crossed = True
    if search.done or search.value is None:
        return
    most = min(_CROSSINGS_SHARE * search.budget.seconds, search.budget.left) * _COMPARISONS_PER_EFFORT
    whole = Part((), search.instance, tuple(range(search.instance.ranks)))
    found = [(place, part) for part in (whole, *parts(search.instance)) for place in places(part.instance)[:1]]
    found = [each for each in found if each[0].crossings.cap < each[0].crossings.ranks]
    for place, part in sorted(found, key=lambda each: -each[0].bound)[:1]:
        for chosen in kept(part.instance.microbatches, place.crossings.cap):
            fewer = Rising(part.instance, place.rank, place.via, chosen)
            if not _rise(search, fewer, part, int(most * _FEWER_SHARE)):
                break
        _rise(search, place, part, int(most))


def _rise(search: Search, place: Rising, part: Part, most: int) -> bool:
    """Follow the rule `crossing` at one place; whether it was followed to its end.

    Raises
    ------
    OutOfBudget
        The time or effort ended first.
    """
    if search.done or search.value is None:
        return False
    before = 0
    for certificate in place.rise(search.bound, search.value, most):
        if certificate.value > search.bound:
            search.certificate = part.lifted(certificate)
            search.raise_bound(certificate.value, certificate.rule)
        search.budget.spend((place.compared - before) / _COMPARISONS_PER_EFFORT)
        before = place.compared
    search.budget.spend((place.compared - before) / _COMPARISONS_PER_EFFORT)
    return place.exhausted


def raise_by_stays(search: Search) -> None:
    """Raise the bound by how many microbatches can be where at once on a rank.

    Raises
    ------
    OutOfBudget
        The time or effort ended first.
    """
    if search.done or search.value is None:
        return
    for certificate in stays(search.instance, search.bound):
        search.certificate = certificate
        search.raise_bound(certificate.value, certificate.rule)
    search.budget.spend(_STAYS_EFFORT)
