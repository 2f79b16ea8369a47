"""Random periodic schedules: complete for every n, and wrong in all other ways, some of them only for large n."""

from __future__ import annotations

from hypothesis import strategies as st

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.pattern import IndexedOp, PeriodicSchedule, Segment
from bubbleproof.schedules.placement import bidirectional, custom, linear, loop, vee

PLACEMENTS = [
    linear(1),
    linear(2),
    linear(3),
    loop(2, 2),
    vee(2),
    bidirectional(2),
    custom([0, 2, 1, 0, 2]),
    loop(1, 2),
]


@st.composite
def patterns(draw) -> tuple[PeriodicSchedule, Instance]:
    """A pattern and an instance for it.

    Each class of ops has some microbatches before its loop, those of its loop and some after it. All are put in an
    order that a pipeline could have, with more or less noise.
    """
    placement = draw(st.sampled_from(PLACEMENTS))
    routes, depth = len(placement.routes), placement.stages
    step, base = draw(st.sampled_from([1, 1, 2])), draw(st.integers(0, 4))
    kinds = draw(st.sampled_from([("F", "BW"), ("F", "B", "W")]))
    noise = draw(st.sampled_from([0, 0, 2, 8]))
    loops = draw(st.sampled_from([1, 1, 2]))

    def rank_of(kind, stage):
        return {"F": stage, "W": 2 * depth - stage + 1}.get(kind, 2 * depth - stage)

    def ordered(ops):
        keys = [4 * rank_of(op.kind, op.stage) + 8 * op.offset // step + draw(st.integers(-noise, noise)) for op in ops]
        return tuple(op for _, op in sorted(zip(keys, ops, strict=True), key=lambda pair: pair[0]))

    rows = []
    for rank in range(placement.ranks):
        classes = [
            (kind, stage, route)
            for route in range(routes)
            for stage in range(depth)
            if placement.routes[route][stage] == rank
            for kind in kinds
        ]
        before, after = [], []
        body = [[] for _ in range(loops)]
        for kind, stage, route in classes:
            early = max(0, min(base, base - rank_of(kind, stage) + draw(st.integers(0, 2))))
            before += [IndexedOp(kind, stage, route, "", o) for o in range(early)]
            which = 0 if kind == "F" else loops - 1
            body[which] += [IndexedOp(kind, stage, route, "b", early + o) for o in range(step)]
            after += [IndexedOp(kind, stage, route, "n", o) for o in range(early, base)]
        late = [op for op in before if draw(st.integers(0, 15)) == 0]
        before = [op for op in before if op not in late]
        repeat = draw(st.sampled_from(["up", "up", "up", "down"]))
        segments = [Segment(ordered(before)), *(Segment(ordered(ops), repeat) for ops in body)]
        segments += [Segment(tuple(late)), Segment(ordered(after))]
        rows.append(tuple(segment for segment in segments if segment.slots))
    split = 1 if "W" in kinds else None
    memory = Memory.make(depth, placement.ranks, F=2, B=draw(st.sampled_from([None, -1, 1])))
    instance = Instance(placement, 2 * routes, Costs.make(depth, F=1, B=1, W=split), memory)
    if draw(st.booleans()):
        instance = instance.with_cap(draw(st.integers(4 * depth, 40)))
    return PeriodicSchedule(tuple(rows), (step,) * routes, (base,) * routes), instance
