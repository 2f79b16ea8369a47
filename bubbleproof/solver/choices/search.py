"""Searching over choices: the greedy under many wishes, hill climbing over them, then questions to CP-SAT."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, product
from typing import TYPE_CHECKING, Any

from bubbleproof.schedules.instance import Instance
from bubbleproof.solver.choices.greedy import Chooser, Wishes

if TYPE_CHECKING:
    from bubbleproof.solver.search import Search

__all__ = ["choose", "wishes"]

_MANY = 1 << 40

_OPS_PER_EFFORT = 100_000
"""Ops that the greedy places and times per unit of effort."""

_STARTS = 12
"""Settings of the list from which climbing begins again."""

_SMALL_MODEL = 120
"""Forwards up to which CP-SAT is asked about the whole instance as long as there is time; above, climbing goes on."""

_WHOLE_MODEL = 700
"""Forwards up to which CP-SAT is asked about the whole instance."""

_FREE_MODEL = 9
"""Forwards up to which CP-SAT is asked about all orders of the microbatches, where order symmetry does not hold."""


def wishes(chooser: Chooser) -> Iterator[Wishes]:
    """Settings in the order in which to try them."""
    instance = chooser.instance
    p, n, stages = instance.ranks, len(chooser.lines), instance.stages
    costs = instance.costs
    fuses = [(_MANY, _MANY), (0, _MANY)] if costs.split else [(0, _MANY)]
    pairs = (0, 50, -1) if costs.overlap_B or costs.overlap_BW else (-1,)
    keeps: list[tuple[int, ...]] = [(_MANY,) * n]
    if instance.recompute and instance.memory.cap is not None:
        keeps = [(0,) * n, *((k,) * n for k in (1, 2, 4)), (_MANY,) * n]
        keeps += [
            tuple(0 if line.stage < stages * part // 4 else _MANY for line in chooser.lines) for part in (1, 2, 3)
        ]
    falling = [
        tuple(max(1, factor * (stages - line.stage) + extra) for line in chooser.lines)
        for factor, extra in ((1, 0), (2, -1), (1, 1), (2, 1))
    ]
    depths = [(_MANY,) * n, *falling, (stages,) * n, (stages + 1,) * n]
    lates = (True, False) if n > p else (True,)
    for delay, fill, fuse, keep, pair, depth, late in product((50, 100), (0, 100), fuses, keeps, pairs, depths, lates):
        yield Wishes(depth, keep, (fuse,) * n, (pair,) * p, (delay,) * p, (fill,) * p, late)


def neighbour(chooser: Chooser, old: Wishes, rng: random.Random) -> Wishes:
    """Change one kind of setting on a random range of lines or ranks."""
    instance = chooser.instance
    kinds = ["depth", "delay", "fill"]
    if instance.costs.split:
        kinds.append("fuse")
    if instance.costs.overlap_B or instance.costs.overlap_BW:
        kinds.append("pair")
    if instance.recompute and instance.memory.cap is not None:
        kinds += ["keep", "keep"]
    kind = rng.choice(kinds)
    values = list(getattr(old, kind))
    low = rng.randrange(len(values))
    high = min(len(values), low + rng.choice((1, 1, 2, 3, len(values))))
    step, value = rng.choice((-1, 1, 1, 2)), rng.randrange(0, 141)
    for at in range(low, high):
        size = chooser.lines[at].size if kind in ("depth", "keep", "fuse") else 0
        if kind == "fuse":
            values[at] = tuple(sorted(rng.choice((0, rng.randrange(size + 1), _MANY)) for _ in range(2)))
        elif kind in ("depth", "keep"):
            least = 1 if kind == "depth" else 0
            values[at] = max(least, min(values[at], size) + step) if value < 100 else rng.choice((least, _MANY))
        elif kind == "pair":
            values[at] = rng.choice((-1, 0, value, 2 * value))
        else:
            values[at] = value
    changes: dict[str, Any] = {kind: tuple(values)}
    changed = replace(old, **changes)
    return replace(changed, late=not old.late) if rng.randrange(20) == 0 else changed


class _Climb:
    """Hill climbing over wishes."""

    def __init__(self, search: Search) -> None:
        self.search, self.chooser = search, Chooser(search.instance)
        self.best: tuple[int, Wishes] | None = None
        self.starts: list[tuple[int, Wishes]] = []
        """The best settings of the list, to begin again from."""

    def attempt(self, wanted: Wishes) -> int | None:
        """Build a schedule, and offer it if it is not worse than the best that was built."""
        search = self.search
        search.budget.spend(search.flat.ops / _OPS_PER_EFFORT)
        built = self.chooser.run(wanted)
        if built is None:
            return None
        schedule, makespan, span = built
        value = span if search.instance.objective == "span" else makespan
        if self.best is None or value <= self.best[0] or search.value is None or value < search.value:
            search.offer_schedule(schedule, "greedy with choices")
        return value

    def start(self) -> None:
        """Try the settings of the list."""
        for wanted in wishes(self.chooser):
            if self.search.done:
                return
            value = self.attempt(wanted)
            if value is not None:
                self.starts.append((value, wanted))
                if self.best is None or value < self.best[0]:
                    self.best = value, wanted
        self.starts = sorted(self.starts, key=lambda start: start[0])[:_STARTS]

    def climb(self, seed: int, *, afresh: bool = False) -> None:
        """Change settings at random and keep what is not worse, until that has brought nothing for a while.

        From the best settings so far or, `afresh`, from some that were good in the list.
        """
        if self.best is None:
            return
        rng = random.Random(seed)
        value, wanted = rng.choice(self.starts) if afresh and self.starts else self.best
        patience, idle = max(100, min(3000, 300_000 // self.search.flat.ops)), 0
        while idle < patience and not self.search.done:
            changed = neighbour(self.chooser, wanted, rng)
            found = self.attempt(changed)
            idle += 1
            if found is not None and found <= value:
                idle = idle if found == value else 0
                value, wanted = found, changed
        if value <= self.best[0]:
            self.best = value, wanted


def choose(search: Search) -> None:
    """Search over choices until proved.

    Raises
    ------
    OutOfBudget
        The time or effort ended first.
    """
    search.choices = "recompute, fused backwards and pairs were searched by heuristics only"
    climbing = _Climb(search)
    climbing.start()
    climbing.climb(search.seed)
    if search.done:
        return
    instance = search.instance
    if instance.microbatches * instance.stages <= _WHOLE_MODEL and modelled(instance):
        from bubbleproof.solver.choices.narrow import narrow
        from bubbleproof.solver.choices.windows import rearrange

        search.choices = "CP-SAT chose recompute, fused backwards and pairs"
        if not provable(instance):
            search.choices += "; with recompute, microbatch order is a restriction, so it refuted nothing"
        if instance.microbatches * instance.stages > _SMALL_MODEL:
            for seed in count(search.seed + 1):
                if search.done:
                    return
                climbing.climb(seed, afresh=seed % 4 > 0)
                rearrange(search, ordered=ordered(instance))
        climbing.climb(search.seed + 1, afresh=True)
        rearrange(search, ordered=ordered(instance))
        narrow(search, ordered=ordered(instance))
    for seed in count(search.seed + 1):
        if search.done or climbing.best is None:
            return
        climbing.climb(seed, afresh=seed % 4 > 0)


def modelled(instance: Instance) -> bool:
    """Whether the model of choices counts memory rightly: no B and no W takes any."""
    memory, split = instance.memory, instance.costs.split
    return (
        memory.cap is None
        or not split
        or all(
            memory.of("B", s, j) <= 0 and memory.of("W", s, j) <= 0
            for s in range(instance.stages)
            for j in range(instance.microbatches)
        )
    )


def ordered(instance: Instance) -> bool:
    """Whether CP-SAT is asked about schedules in microbatch order only."""
    chosen = instance.recompute and instance.memory.cap is not None
    return not chosen or instance.microbatches * instance.stages > _FREE_MODEL


def provable(instance: Instance) -> bool:
    """Whether what CP-SAT refutes is impossible: order symmetry holds, or all orders were asked about."""
    return not (instance.recompute and instance.memory.cap is not None) or not ordered(instance)
