"""The rule `ends` of docs/bounds.md: idle time before the first backward of a rank and after its last forward."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from bubbleproof.verify.normal_form import Share, Step

__all__ = ["ends", "fullest"]

_CELLS = 5000
"""Above so many units of memory the exact knapsack gives way to the fractional one."""


def fullest(items: Sequence[tuple[int, int]], room: int) -> int | None:
    """The most value that items (weight, value), each any number of times, can have within `room`; None if no limit.

    Exact if the room has at most `_CELLS` units of the weights' greatest common divisor, else by the best ratio.
    """
    items = [(weight, value) for weight, value in items if value]
    if not all(weight for weight, _ in items):
        return None
    if not items:
        return 0
    unit = gcd(*(weight for weight, _ in items))
    cells = max(0, room) // unit
    if cells > _CELLS:
        return max(cells * unit * value // weight for weight, value in items)
    best = [0] * (cells + 1)
    for cell in range(1, cells + 1):
        best[cell] = max([best[cell - 1]] + [best[cell - w // unit] + v for w, v in items if w // unit <= cell])
    return best[cells]


def _held(step: Step, rank: int) -> list[tuple[int, Sequence[int], list[int]]]:
    """(microbatches, route, its stages on the rank) of each route that passes the rank."""
    found = [(n, route, [s for s, r in enumerate(route) if r == rank]) for n, route in step.routes]
    return [x for x in found if x[2]]


def _most(base: Share, more: list[tuple[int, int]], room: int | None, total: int) -> int:
    """`fullest` on top of one bundle (its memory a, its value f) that is surely there, and at most `total`."""
    if room is None:
        return total
    rest = fullest(more, room - base.a)
    return total if rest is None else min(total, base.f + rest)


def ends(step: Step, rank: int, via: int) -> dict[str, int]:
    """The summands of the bound."""
    shares, room, held = step.shares(rank), step.room(rank), _held(step, rank)
    work = sum(n * (shares[s].f + shares[s].b + shares[s].w) for s, n in step.chunks(rank))
    started, open_ = [], []
    for _, _, stages in held:
        for k in range(1, len(stages) + 1):
            taken = sum(shares[s].a for s in stages[:k])
            started.append((taken, sum(shares[s].f for s in stages[:k])))
            open_.append((taken, sum(shares[s].b + shares[s].w for s in stages[:k])))
        open_ += [(shares[s].q, shares[s].w) for s in stages]
    forwards = sum(n * shares[s].f for n, _, stages in held for s in stages)
    opening, slack = [], []
    for _, route, stages in held:
        first, last = stages[0], stages[-1]
        taken, trip = sum(shares[s].a for s in stages), step.round_trip(route, last)
        base = Share(sum(shares[s].f for s in stages), 0, 0, taken, 0)
        opening.append(step.up(route, first, last) + trip - _most(base, started, room, forwards))
        back = 0 if first == last else step.backward(last, rank) + step.down(route, last, first)
        base = Share(sum(shares[s].b + shares[s].w for s in stages), 0, 0, taken, 0)
        slack.append(trip + back + shares[first].b - shares[last].f - _most(base, open_, room, work - forwards))
    before = max(0, min(opening))
    tail, left, behind = step.tail(rank, via), step.open_weights(rank, shares), min(slack)
    least = min(shares[stages[0]].w for _, _, stages in held)

    def closing(weights: int) -> int:
        """Idle time after the last forward, and time after the rank's work, with so much W after the last backward."""
        after = tail - weights
        return max(0, behind + weights) + (max(0, after) if via in (-1, rank) else after)

    after = min(closing(y) for y in (least, left, *(y for y in (-behind, tail) if least < y < left)))
    if room is None or sum(n * shares[s].a for n, _, stages in held for s in stages) <= room:
        # all forwards may come before the first backward, and both idle times may be the same one
        alone = before + closing(left) - max(0, behind + left)
        before, after = (before, alone - before) if alone > after else (0, after)
    return {
        "head": step.head(rank, via),
        "work": work,
        "idle before the first backward": before,
        "idle after the last forward, and tail, less the W left for it": after,
    }
