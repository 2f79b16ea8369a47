"""ZB-V: two chunks per rank in a vee, no bubble at equal times with the memory of 1F1B."""

from __future__ import annotations

from bubbleproof.schedules.families.family import Family, Reason, need_placement, need_split, require
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Kind, Op, Slot
from bubbleproof.schedules.placement import Placement, vee
from bubbleproof.schedules.schedule import Schedule

__all__ = ["ZB_V", "vee_placement", "why_no_split_vee", "zb_v"]


def vee_placement(ranks: int, chunks: int) -> Placement:
    """The vee placement, whatever number of chunks is asked for: it has two per rank."""
    return vee(ranks)


def why_no_split_vee(instance: Instance) -> Reason:
    """The preconditions of the families on a vee that run B and W apart."""
    return need_placement(instance, vee_placement, "a vee placement (stages r and 2p − 1 − r on rank r)") or need_split(
        instance
    )


class _Row:
    """The order of one rank, op by op; each (kind, chunk) runs its microbatches in ascending order."""

    def __init__(self, stages: tuple[int, int], microbatches: int) -> None:
        self.slots: list[Slot] = []
        self.done: dict[tuple[Kind, int], int] = {(kind, chunk): 0 for kind in ("F", "B", "W") for chunk in (0, 1)}
        self._stages = stages
        self._microbatches = microbatches

    def add(self, chunk: int, *kinds: Kind) -> None:
        """Append the next op of each kind of a chunk; nothing for those that have run out of microbatches."""
        for kind in kinds:
            j = self.done[kind, chunk]
            self.done[kind, chunk] += 1
            if j < self._microbatches:
                self.slots.append(Op(kind, self._stages[chunk], j))


def _order(rank: int, ranks: int, microbatches: int) -> list[Slot]:
    """The published pattern, in five phases; it is laid out for m ≥ 2p − 1 and the microbatches beyond m left out."""
    row = _Row((rank, 2 * ranks - 1 - rank), microbatches)
    count = max(microbatches, 2 * ranks - 1)
    for _ in range(2 * (ranks - rank) - 1):
        row.add(0, "F")
    for _ in range(rank):
        row.add(1, "F")
        row.add(0, "F")
    for _ in range(ranks - rank):
        row.add(1, "F", "B", "W")
    while row.done["F", 0] < count or row.done["F", 1] < count:
        if row.done["F", 0] < count:
            row.add(0, "F")
        row.add(0, "B", "W")
        if row.done["F", 1] < count:
            row.add(1, "F")
        row.add(1, "B", "W")
    for _ in range(rank):
        row.add(0, "B")
        row.add(1, "B")
    for _ in range(ranks - rank):
        row.add(0, "B", "W")
    for chunk in (1, 0):
        while row.done["W", chunk] < count:
            row.add(chunk, "W")
    return row.slots


def zb_v(instance: Instance) -> Schedule:
    """The zero-bubble schedule on a vee, in the handcrafted form for F = B = W.

    With f the time of one op of one chunk, F = B = W = f, no communication and m ≥ 2p − 1: the span is 6mf (no bubble),
    the makespan 6mf + (p − 1)f, and every rank holds 2p chunk activations, as much as rank 0 of 1F1B. The order does
    not adapt to other times, under which bubbles appear.
    Source: arXiv 2401.10241, section 6; PyTorch's ZBVZeroBubble runs the same order.
    Preconditions: a vee placement, split backward; any m (below 2p − 1 the pattern is cut short).
    """
    require("zb-v", why_no_split_vee(instance))
    p = instance.ranks
    return Schedule.of((_order(r, p, instance.microbatches) for r in range(p)), "zb-v")


ZB_V = Family(
    name="zb-v",
    summary="zero bubble on a vee: no bubble at equal times with the memory of 1F1B",
    reference="arXiv 2401.10241, section 6",
    order=zb_v,
    why_not=why_no_split_vee,
    placement=vee_placement,
    chunks=2,
    needs_split=True,
)
