"""Published schedules: each is a candidate, and the record compares them all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bubbleproof.schedules.errors import FamilyError
from bubbleproof.solver.budget import OPS_PER_EFFORT
from bubbleproof.solver.flat import Flat, peaks
from bubbleproof.solver.measure import timeline_of
from bubbleproof.solver.result import FamilyResult

if TYPE_CHECKING:
    from bubbleproof.schedules.schedule import Schedule
    from bubbleproof.solver.search import Search

__all__ = ["compare_families", "judge_family"]


def compare_families(search: Search) -> None:
    """Build every published family; each is a candidate, and the record compares them all."""
    from bubbleproof.schedules.families import FAMILIES

    for name, family in FAMILIES.items():
        search.budget.spend(search.flat.ops / OPS_PER_EFFORT)
        try:
            schedule = family.build(search.instance)
        except FamilyError as error:
            search.families.append(FamilyResult(name=name, value=None, peak=None, reason=str(error)))
            continue
        search.families.append(judge_family(search, name, schedule))


def judge_family(search: Search, name: str, schedule: Schedule) -> FamilyResult:
    """Time a family's schedule under the instance's costs and caps, and take it if it is the best."""
    value, held = _figures(search, schedule)
    cap, reason = search.instance.memory.cap, ""
    for rank, peak in enumerate(held):
        if cap is not None and peak > cap[rank]:
            reason = f"takes {peak} on rank {rank}, where the cap is {cap[rank]}"
            break
    if not reason:
        search.accept(value, name, family=schedule)
        search.offer(search.flat.orders(schedule), name)
    return FamilyResult(name=name, value=value, peak=max(held), reason=reason)


def _figures(search: Search, schedule: Schedule) -> tuple[int, list[int]]:
    """Objective and peak of each rank of a schedule, through queues where they describe it, which is faster."""
    instance = search.instance
    flat = Flat(instance.with_(costs=replace(instance.costs, split="BW" not in schedule.kinds)))
    orders = flat.orders(schedule)
    if orders is not None and flat.schedule(orders) == schedule:
        value = search.measure(orders, flat)
        if value is not None:
            static = instance.memory.static
            return value, [peak + s for peak, s in zip(peaks(flat, orders), static, strict=True)]
    timeline = timeline_of(schedule, instance)
    return timeline.value(instance.objective), [peak.memory for peak in timeline.peaks]
