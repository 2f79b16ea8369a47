"""Chimera and Hanayo: microbatches enter every second slot, and two streams share the ranks without ever colliding.

With slots of equal length for F and BW, a microbatch that enters a pipeline of S stages in slot t runs F of stage s in
slot t + s and BW of stage s in slot t + 2S − 1 − s. If microbatches enter two slots apart, each rank is busy every
second slot. Chimera fills the others with a second pipeline in the opposite direction (p must be even), Hanayo with the
second arm of a vee.
"""

from __future__ import annotations

from collections.abc import Sequence

from bubbleproof.schedules.families.dualpipe import bidirectional_placement
from bubbleproof.schedules.families.family import Family, Reason, need_placement, require
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Op
from bubbleproof.schedules.placement import wave
from bubbleproof.schedules.schedule import Schedule

__all__ = ["CHIMERA", "HANAYO", "chimera", "hanayo"]


def _by_slots(instance: Instance, entry: Sequence[int], name: str) -> Schedule:
    """The order in which the slots come, for microbatches that enter in the given slots."""
    rows: list[list[tuple[int, Op]]] = [[] for _ in range(instance.ranks)]
    last = 2 * instance.stages - 1
    for j, t in enumerate(entry):
        for s in range(instance.stages):
            row = rows[instance.rank_of(s, j)]
            row.append((t + s, Op("F", s, j)))
            row.append((t + last - s, Op("BW", s, j)))
    return Schedule.of(([op for _, op in sorted(row)] for row in rows), name)


def _why_not_chimera(instance: Instance) -> Reason:
    reason = need_placement(instance, bidirectional_placement, "a bidirectional placement")
    if reason is not None:
        return reason
    p, m, down = instance.ranks, instance.microbatches, instance.route_of_microbatch.count(0)
    if p % 2 or m % 2:
        return f"needs even p and even m; this instance has p = {p}, m = {m}"
    if 2 * down != m:
        return f"needs half of the microbatches on each route; this instance has {down} and {m - down}"
    return None


def chimera(instance: Instance) -> Schedule:
    """Chimera: two 1F1B pipelines in opposite directions through two copies of the weights.

    A basic unit of p microbatches, half of them each way, runs without conflict; more than p are run as units
    concatenated directly, the last one possibly incomplete. If F = BW, nothing is communicated and p divides m, the
    bubble/step is (p − 2)/(2m + p − 2); for m = p and any times the makespan is m(F + BW) + (p − 2) max(F, BW). With
    BW > F the concatenation leaves bubbles between the units, as the paper says; its remedies (forward doubling,
    backward halving) change the ops and are not this family. Ranks hold p/2 + 1 to p microbatches of one stage.
    Source: arXiv 2107.06925, section 3 and Fig. 3, Table 2 (one pair of pipelines).
    Preconditions: a bidirectional placement with even p, m even with half of the microbatches on each route.
    """
    require("chimera", _why_not_chimera(instance))
    p = instance.ranks
    count = [0, 0]
    entry = []
    for route in instance.route_of_microbatch:
        unit, place = divmod(count[route], p // 2)
        entry.append(2 * p * unit + 2 * place)
        count[route] += 1
    return _by_slots(instance, entry, "chimera")


def _why_not_hanayo(instance: Instance) -> Reason:
    what = "a wave placement with an even number 2w of chunks per rank"
    reason = need_placement(instance, wave, what)
    if reason is None and instance.stages // instance.ranks % 2:
        reason = f"needs {what}; this one has {instance.stages // instance.ranks}"
    if reason is None and instance.microbatches != instance.ranks:
        reason = f"needs m = p; this instance has m = {instance.microbatches}, p = {instance.ranks}"
    return reason


def hanayo(instance: Instance) -> Schedule:
    """Hanayo with w waves: Chimera's picture folded onto half the ranks, so that no weights are doubled.

    With f and b the times of F and BW of one chunk and no communication the makespan is
    2wp(f + b) + 2(p − 1) max(f, b); chunks are 1/(2w) as long, so the bubble shrinks as 1/w. Rank r runs p − r forwards
    before the first wave comes back.
    Source: arXiv 2308.15762 (waves as a transformation of Chimera). The order is derived from that transformation; an
    independent implementation (the elf pipeline library) has the same one for m = p. For other m implementations
    differ, and this family is not defined.
    Preconditions: a wave placement with 2w chunks per rank (a vee for w = 1), m = p.
    """
    require("hanayo", _why_not_hanayo(instance))
    return _by_slots(instance, range(0, 2 * instance.microbatches, 2), "hanayo")


CHIMERA = Family(
    name="chimera",
    summary="two 1F1B pipelines in opposite directions, two copies of the weights",
    reference="arXiv 2107.06925, Fig. 3",
    order=chimera,
    why_not=_why_not_chimera,
    placement=bidirectional_placement,
)

HANAYO = Family(
    name="hanayo",
    summary="waves over an even number of chunks per rank, for as many microbatches as ranks",
    reference="arXiv 2308.15762",
    order=hanayo,
    why_not=_why_not_hanayo,
    placement=wave,
    chunks=2,
)
