"""DualPipe and DualPipeV: two streams of microbatches meet on every rank, whose forwards and backwards overlap."""

from __future__ import annotations

from collections.abc import Sequence

from bubbleproof.schedules.families.family import Family, Reason, need_placement, need_split, require
from bubbleproof.schedules.families.zb_v import vee_placement, why_no_split_vee
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Kind, Op, Overlap, Slot
from bubbleproof.schedules.placement import Placement, bidirectional
from bubbleproof.schedules.schedule import Schedule

__all__ = ["DUALPIPE", "DUALPIPEV", "bidirectional_placement", "dualpipe", "dualpipev"]


def bidirectional_placement(ranks: int, chunks: int) -> Placement:
    """The bidirectional placement, whatever number of chunks is asked for."""
    return bidirectional(ranks)


def _why_not(instance: Instance) -> Reason:
    reason = need_placement(instance, bidirectional_placement, "a bidirectional placement") or need_split(instance)
    if reason is not None:
        return reason
    p, m, down = instance.ranks, instance.microbatches, instance.route_of_microbatch.count(0)
    if p % 2 or m % 2 or m < 2 * p:
        return f"needs even p, even m and m ≥ 2p; this instance has p = {p}, m = {m}"
    if 2 * down != m:
        return f"needs half of the microbatches on each route; this instance has {down} and {m - down}"
    return None


def _why_not_v(instance: Instance) -> Reason:
    reason = why_no_split_vee(instance)
    if reason is None and instance.microbatches < 2 * instance.ranks:
        reason = f"needs m ≥ 2p microbatches; this instance has m = {instance.microbatches}, p = {instance.ranks}"
    return reason


class _Row:
    """The order of one rank, which serves two streams of equally many microbatches.

    Stream 0 is the one whose forwards the rank runs first, stream 1 the one whose backwards it runs first. Each stream
    is one stage and the microbatches that pass it.
    """

    def __init__(self, stages: tuple[int, int], microbatches: tuple[Sequence[int], Sequence[int]]) -> None:
        self.slots: list[Slot] = []
        self._stages = stages
        self._microbatches = microbatches
        self._started = {"F": [0, 0], "B": [0, 0]}
        self._waiting: list[Op] = []  # the Ws of the Bs so far, first in, first out

    def _next(self, kind: Kind, stream: int) -> Op:
        count = self._started["F" if kind == "F" else "B"]
        microbatch = self._microbatches[stream][count[stream]]
        count[stream] += 1
        return Op(kind, self._stages[stream], microbatch)

    def forward(self, stream: int) -> None:
        self.slots.append(self._next("F", stream))

    def backward(self, stream: int, split: bool = False) -> None:
        """A fused backward, or its B alone; the W then waits for `weight`."""
        op = self._next("B" if split else "BW", stream)
        self.slots.append(op)
        if split:
            self._waiting.append(Op("W", op.stage, op.microbatch))

    def pair(self, forward: int, backward: int) -> None:
        """A forward of one stream overlapped with a fused backward of the other."""
        self.slots.append(Overlap(self._next("F", forward), self._next("BW", backward)))

    def weight(self) -> None:
        self.slots.append(self._waiting.pop(0))


def _fill(row: _Row, depth: int, half: int, count: int) -> list[Slot]:
    """The eight phases of a rank.

    `depth` is its distance from the nearer end of the pipeline, `half` the number of such distances (half the ranks of
    DualPipe), `count` the number of microbatches per stream.
    """
    inner = half - 1 - depth  # how many ranks lie between this one and the middle
    for _ in range(2 * inner):
        row.forward(0)
    for _ in range(depth + 1):
        row.forward(0)
        row.forward(1)
    for _ in range(inner):
        row.backward(1, split=True)
        row.weight()
        row.forward(1)
    for k in range(count - 2 * half + depth + 1):
        if k == 0 and inner == 0:  # in the middle the backward would only wait for its partner
            row.forward(0)
            row.backward(1)
        else:
            row.pair(0, 1)
        row.pair(1, 0)
    for _ in range(inner):
        row.backward(1)
        row.pair(1, 0)
    # the second half of the last 2(depth + 1) backwards is split, so that Ws are left to fill the end
    for k in range(2 * (depth + 1)):
        row.backward(1 - k % 2, split=k > depth)
    for _ in range(inner):
        row.weight()
        row.backward(0, split=True)
    for _ in range(depth + 1):
        row.weight()
    return row.slots


def dualpipe(instance: Instance) -> Schedule:
    """DualPipe: microbatches enter at both ends, half of them at each, through two copies of the weights.

    In the middle of the step every slot is a pair: the forward of one direction overlapped with the fused backward of
    the other. The bubble of the slowest rank is (p/2 − 1)(F&B + BW − 3W) if F = B ≥ W, and the peak of every rank p + 1
    microbatches of one stage; elsewhere the formula, which the authors state without conditions, does not hold.
    Source: arXiv 2412.19437, section 3.2.1 and Fig. 5, and the authors' repository deepseek-ai/DualPipe.
    Preconditions: a bidirectional placement with even p, split backward, m even and ≥ 2p, half of the microbatches on
    each route. In the two middle ranks the first pair is not overlapped.
    """
    require("dualpipe", _why_not(instance))
    p, m = instance.ranks, instance.microbatches
    routes = [[j for j in range(m) if instance.route_of_microbatch[j] == route] for route in (0, 1)]
    orders = []
    for r in range(p):
        near = r < p // 2
        # the stream that enters at the nearer end comes first
        stages, passing = ((r, p - 1 - r), (routes[0], routes[1])) if near else ((p - 1 - r, r), (routes[1], routes[0]))
        orders.append(_fill(_Row(stages, passing), min(r, p - 1 - r), p // 2, m // 2))
    return Schedule.of(orders, "dualpipe")


def dualpipev(instance: Instance) -> Schedule:
    """DualPipeV: DualPipe cut in half, so that its two ends are the two arms of a vee and no weights are doubled.

    The bubble and the peak are those of DualPipe on 2p ranks with the times of one chunk: (p − 1)(F&B + BW − 3W) if
    F = B ≥ W, and 2p + 1 chunk activations. On the last rank the first pair is not overlapped.
    Source: "DualPipe could be better without the Dual" (Sea AI Lab, 2025) and deepseek-ai/DualPipe; PyTorch's DualPipeV
    runs the same order.
    Preconditions: a vee placement, split backward, m ≥ 2p.
    """
    require("dualpipev", _why_not_v(instance))
    p, all_of_them = instance.ranks, range(instance.microbatches)
    orders = [
        _fill(_Row((r, 2 * p - 1 - r), (all_of_them, all_of_them)), r, p, instance.microbatches) for r in range(p)
    ]
    return Schedule.of(orders, "dualpipev")


DUALPIPE = Family(
    name="dualpipe",
    summary="bidirectional pipeline of overlapped forward-backward pairs, two copies of the weights",
    reference="arXiv 2412.19437, Fig. 5; deepseek-ai/DualPipe",
    order=dualpipe,
    why_not=_why_not,
    placement=bidirectional_placement,
    needs_split=True,
)

DUALPIPEV = Family(
    name="dualpipev",
    summary="DualPipe folded into a vee: overlapped pairs without doubled weights",
    reference="Sea AI Lab 2025; deepseek-ai/DualPipe; PyTorch DualPipeV",
    order=dualpipev,
    why_not=_why_not_v,
    placement=vee_placement,
    chunks=2,
    needs_split=True,
)
