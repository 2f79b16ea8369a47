"""Interleaved 1F1B and interleaved zero bubble: several chunks per rank in a loop, run depth first."""

from __future__ import annotations

from bubbleproof.schedules.errors import FamilyError
from bubbleproof.schedules.families.family import Family, Reason, need_placement, need_split, require
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Kind, Op, Slot
from bubbleproof.schedules.placement import loop
from bubbleproof.schedules.schedule import Schedule

__all__ = ["INTERLEAVED_ONE_F_ONE_B", "INTERLEAVED_ZB", "interleaved_one_f_one_b", "interleaved_zb"]


def _legal(group: int, ranks: int, microbatches: int) -> bool:
    """Megatron-Core's rule: p ≤ N ≤ m, and the last, smaller group of microbatches is empty or has at least p."""
    rest = microbatches % group if group else 1
    return ranks <= group <= microbatches and (rest == 0 or rest >= ranks)


def _why_not(instance: Instance) -> Reason:
    reason = need_placement(instance, loop, "a loop placement (stage s on rank s mod p)")
    if reason is None and instance.microbatches < instance.ranks:
        reason = f"needs m ≥ p microbatches; this instance has m = {instance.microbatches}, p = {instance.ranks}"
    return reason


def _why_not_zb(instance: Instance) -> Reason:
    return _why_not(instance) or need_split(instance)


def _group(name: str, instance: Instance, group: int | None) -> int:
    """The group size asked for, checked, or the smallest legal one; N = m always is."""
    p, m = instance.ranks, instance.microbatches
    if group is None:
        return next(n for n in range(p, m + 1) if _legal(n, p, m))
    if not _legal(group, p, m):
        raise FamilyError(
            f"{name} needs a group of p ≤ N ≤ m microbatches with m mod N either 0 or at least p; "
            f"N = {group}, p = {p}, m = {m}"
        )
    return group


def _depth_first(instance: Instance, rank: int, group: int, kind: Kind) -> list[Op]:
    """Ops of one kind of a rank: group by group of microbatches, in each group chunk by chunk.

    Forwards go through the chunks upwards, backwards downwards.
    """
    stages = instance.placement.stages_of_rank[rank]
    chunks = stages if kind == "F" else stages[::-1]
    m = instance.microbatches
    return [
        Op(kind, stage, j)
        for first in range(0, m, group)
        for stage in chunks
        for j in range(first, min(first + group, m))
    ]


def _alternate(forwards: list[Op], backwards: list[Op], warmup: int, delay: int | None) -> list[Slot]:
    """`warmup` forwards, then forward and backward in turn, then the backwards that are left.

    With a delay, the W of the backward `delay` places earlier follows each backward.
    """
    weights = [] if delay is None else [Op("W", stage, j) for _, stage, j in backwards]
    warmup = min(warmup, len(forwards))
    row: list[Slot] = list(forwards[:warmup])
    for k, backward in enumerate(backwards):
        row.extend(forwards[warmup + k : warmup + k + 1])
        row.append(backward)
        if delay is not None and k >= delay:
            row.append(weights[k - delay])
    if delay is not None:
        row.extend(weights[max(0, len(weights) - delay) :])
    return row


def interleaved_one_f_one_b(instance: Instance, group: int | None = None) -> Schedule:
    """1F1B over v chunks per rank: depth first in groups of N microbatches, (v − 1)N + 2(p − 1 − r) forwards first.

    The bubble is (p − 1)(F + BW)/v with F and BW the times of a rank's whole share, the peak of rank 0 is
    p + (p − 1)/v microbatches at N = p. PyTorch's Interleaved1F1B is this order with N = m/max(1, ⌊m/p⌋), which is
    the default here wherever PyTorch accepts m. A larger N hides more communication and takes more memory; N = m is
    nearly breadth first.
    Source: arXiv 2104.04473, section 2.2.2 (m a multiple of N = p); the warm-up and the rule for N are Megatron-Core's.
    Preconditions: a loop placement with any v ≥ 1, m ≥ p, p ≤ N ≤ m, m mod N either 0 or at least p.

    Parameters
    ----------
    group
        N, microbatches per group; left out, the smallest one that the rule allows.
    """
    require("interleaved-1f1b", _why_not(instance))
    p, v = instance.ranks, instance.stages // instance.ranks
    n = _group("interleaved-1f1b", instance, group)
    orders = []
    for r in range(p):
        forwards, backwards = (_depth_first(instance, r, n, kind) for kind in ("F", "BW"))
        orders.append(_alternate(forwards, backwards, (v - 1) * n + 2 * (p - 1 - r), None))
    return Schedule.of(orders, "interleaved-1f1b")


def interleaved_zb(instance: Instance, group: int | None = None) -> Schedule:
    """ZB-H1 over v chunks per rank: (v − 1)N + p − 1 − r forwards first, and rank r runs each W r ops of B late.

    The bubble is (p − 1)(F + B − W)/v with the times of a rank's whole share, the peak p microbatches, at N = p. With
    one chunk per rank it is ZB-H1.
    Source: PyTorch's InterleavedZeroBubble, after arXiv 2401.10241; the groups are those of interleaved 1F1B.
    Preconditions: those of interleaved 1F1B, and a split backward.

    Parameters
    ----------
    group
        N, microbatches per group; left out, the smallest one that the rule allows.
    """
    require("interleaved-zb", _why_not_zb(instance))
    p, v = instance.ranks, instance.stages // instance.ranks
    n = _group("interleaved-zb", instance, group)
    orders = []
    for r in range(p):
        forwards, backwards = (_depth_first(instance, r, n, kind) for kind in ("F", "B"))
        orders.append(_alternate(forwards, backwards, (v - 1) * n + p - 1 - r, r))
    return Schedule.of(orders, "interleaved-zb")


INTERLEAVED_ONE_F_ONE_B = Family(
    name="interleaved-1f1b",
    summary="1F1B over several chunks per rank: the bubble of 1F1B divided by the number of chunks",
    reference="arXiv 2104.04473, section 2.2.2",
    order=interleaved_one_f_one_b,
    why_not=_why_not,
    placement=loop,
    chunks=2,
    options=("group",),
)

INTERLEAVED_ZB = Family(
    name="interleaved-zb",
    summary="ZB-H1 over several chunks per rank (PyTorch's InterleavedZeroBubble)",
    reference="PyTorch InterleavedZeroBubble, after arXiv 2401.10241",
    order=interleaved_zb,
    why_not=_why_not_zb,
    placement=loop,
    chunks=2,
    needs_split=True,
    options=("group",),
)
