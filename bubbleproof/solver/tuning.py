"""Settings of the greedy: a short list that is good on published pipelines, then hill climbing over the settings.

Both are deterministic: which settings are tried depends on the instance and the seed only.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from bubbleproof.solver.flat import Flat
from bubbleproof.solver.heuristics import Knobs

__all__ = ["grid", "neighbour"]

_UNLIMITED = 1 << 40


def _depths(flat: Flat, factor: int, extra: int) -> tuple[int, ...]:
    """In-flight limits that fall linearly along the route: ``factor · (S − s) + extra``, at least 1.

    On one chunk per rank (1, 0) is the warm-up of 1F1B and ZB-H1, (2, −1) that of ZB-H2.
    """
    stages = flat.instance.stages
    return tuple(max(1, factor * (stages - flat.stage[q]) + extra) for q in range(0, len(flat.rank), flat.width))


def _fits(flat: Flat, extra: int) -> tuple[int, ...]:
    """In-flight limits equal to the forwards that fit in before the first backward can be back, plus `extra`."""
    width = flat.width
    found = [0] * (len(flat.rank) // width)
    if not flat.instance.placement.plain:
        return _fits_graph(flat, extra)
    for base in range(0, len(flat.rank), width):  # lines of a route in ascending order of stages
        if flat.stage[base] < flat.instance.stages - 1:
            continue
        wait = flat.duration[base]
        for queue in range(base, base - flat.instance.stages * width, -width):
            if queue != base:
                hop = flat.inputs[queue + width][0][1] + flat.inputs[queue + 1][1][1]
                wait += flat.duration[queue] + flat.duration[queue + width + 1] + hop
            found[queue // width] = max(1, wait // max(1, flat.duration[queue]) + extra)
    return tuple(found)


def _fits_graph(flat: Flat, extra: int) -> tuple[int, ...]:
    """The same for stages that are no chain."""
    width, stages = flat.width, flat.instance.stages
    back = [0] * len(flat.rank)
    """Of each queue with a backward: from the last forward that it follows from to its start."""
    found = [1] * (len(flat.rank) // width)
    for top in range(stages * width, len(flat.rank) + 1, stages * width):
        for base in range(top - width, top - stages * width - 1, -width):
            for source, delay in flat.inputs[base + 1][1:]:
                there = flat.inputs[source - 1]
                forth = max((time for queue, time in there if queue == base), default=0) + flat.duration[source - 1]
                back[base + 1] = max(back[base + 1], forth + back[source] + flat.duration[source] + delay)
            found[base // width] = max(1, (flat.duration[base] + back[base + 1]) // max(1, flat.duration[base]) + extra)
    return tuple(found)


def grid(flat: Flat) -> Iterator[Knobs]:
    """Settings in the order in which to try them: the first dozen span what is usually good."""
    p = flat.ranks
    hold = (_UNLIMITED,) * p
    depths: list[tuple[int, ...] | None] = [_depths(flat, 1, 0), _fits(flat, 0), _depths(flat, 2, 0), None]
    depths += [
        _depths(flat, 1, 1),
        _depths(flat, 2, -1),
        _fits(flat, 1),
        _depths(flat, 2, 1),
        _depths(flat, 3, 0),
        _depths(flat, 1, p // 2),
    ]
    if flat.instance.placement.groups:  # `hold` means nothing there, and `delay` is about ops of several ranks
        fills = (50, 0) if flat.width == 3 else (0,)
        for depth in (None, *(depth for depth in depths if depth is not None)):
            for late, delay, fill in product((True, False), (50, 100, 15, 0), fills):
                yield Knobs(depth, (delay,) * p, (fill,) * p, hold, late)
        return
    lates = (True, False) if len(flat.rank) > flat.width * p else (True,)
    for delay, fill in ((50, 0), (100, 50), (0, 100), (50, 50), (100, 100), (100, 0), (50, 90)):
        for late in lates:
            for depth in depths:
                yield Knobs(depth, (delay,) * p, (fill,) * p, hold, late)
    for held in (tuple(range(p)), (0,) * p, (1,) * p):
        for depth in (depths[0], depths[2], depths[3]):
            for fill in (0, 100):
                yield Knobs(depth, (50,) * p, (fill,) * p, held)


def neighbour(flat: Flat, knobs: Knobs, rng: random.Random) -> Knobs:
    """Change one kind of setting on a random range of ranks, or of lines for the depth."""
    p, lines, width = flat.ranks, len(flat.rank) // flat.width, flat.width
    kind = rng.randrange(4)
    count = lines if kind == 0 else p
    low = rng.randrange(count)
    high = min(count, low + rng.choice((1, 1, 2, 3, count)))
    if kind == 0:
        stages = flat.instance.stages
        depth = list(knobs.depth or (_UNLIMITED,) * lines)
        change, share = rng.choice((-1, 1, 1, 2)), rng.random()
        for line in range(low, high):
            if share < 0.5:
                depth[line] = max(1, min(depth[line], flat.size[line * width]) + change)
            elif share < 0.65:
                depth[line] = _UNLIMITED
            else:
                depth[line] = max(1, rng.randrange(1, 4) * (stages - flat.stage[line * width]) + change)
        return replace(knobs, depth=tuple(depth))
    field = ("depth", "delay", "fill", "hold")[kind]
    values = list(getattr(knobs, field))
    value, slope = rng.randrange(0, 141), rng.choice((0, 0, 1, -1))
    if field == "hold":
        value = rng.choice((_UNLIMITED, rng.randrange(0, 2 * p)))
    for rank in range(low, high):
        values[rank] = max(0, value + slope * (rank - low))
    changed = tuple(values)
    if field == "delay":
        return replace(knobs, delay=changed)
    return replace(knobs, fill=changed) if field == "fill" else replace(knobs, hold=changed)
