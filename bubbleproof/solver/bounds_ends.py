"""The rule `ends` of docs/bounds.md: what several chunks per rank lose before their first backward and at the end.

`bubbleproof.verify.ends` computes the same from the definitions; here the numbers come from prefix sums, and each
knapsack is solved once for all ranks that share it.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from math import gcd
from typing import NamedTuple

__all__ = ["Ends", "Passage", "find_ends"]

_CELLS = 5000
"""Up to so many units of memory a knapsack is solved exactly (part of the rule)."""


class Passage(NamedTuple):
    """One route through a rank: for each of its stages there, ascending, what a microbatch adds; and least times."""

    n: int
    f: tuple[int, ...]
    b: tuple[int, ...]
    w: tuple[int, ...]
    a: tuple[int, ...]
    q: tuple[int, ...]
    until_backward: int
    """From the first start on the rank to the first backward."""
    from_forward: int
    """From the start of F at the last of the stages to the end of the backward at the first of them."""


class Ends(NamedTuple):
    """What the rule finds on a rank."""

    opening: int
    """Idle time before the first backward."""
    behind: int
    """Idle time after the last forward, less what W is left after the last backward; may be negative."""
    least: int
    """Least work of W after the last backward."""
    apart: bool
    """Whether the two idle times cannot be the same."""

    def rest(self, tail: int, left: int, clipped: bool) -> int:
        """Idle time, and time after the rank's work, given the tail and the most W left."""

        def at(y: int) -> int:
            after = tail - y
            return max(0, self.behind + y) + (max(0, after) if clipped else after)

        within = [min(max(y, self.least), left) for y in (self.least, -self.behind, tail, left)]
        closing = min(map(at, within))
        if self.apart:
            return self.opening + closing
        return max(self.opening + at(left) - max(0, self.behind + left), closing)


@lru_cache(maxsize=256)
def _knapsack(items: tuple[tuple[int, int], ...], room: int) -> int | None:
    """The most value of items (weight, value), each any number of times; None without a limit."""
    items = tuple(item for item in items if item[1])
    if not items:
        return 0
    if min(items)[0] == 0:
        return None
    unit = gcd(*(weight for weight, _ in items))
    cells = room // unit
    if cells > _CELLS:
        return max(cells * unit * value // weight for weight, value in items)
    useful = [
        (weight // unit, value)
        for weight, value in set(items)
        if not any(v >= value and w <= weight and (w, v) != (weight, value) for w, v in items)
    ]
    best = [0] * (cells + 1)
    for weight, value in useful:  # one item after the other, each any number of times
        for cell in range(weight, cells + 1):
            candidate = best[cell - weight] + value
            if candidate > best[cell]:
                best[cell] = candidate
    return max(best)


def _with_bundle(taken: int, value: int, items: tuple[tuple[int, int], ...], room: int | None, total: int) -> int:
    """The most value next to one bundle that is surely there, at most `total`."""
    rest = None if room is None else _knapsack(items, room - taken)
    return total if rest is None else min(total, value + rest)


def find_ends(passages: list[Passage], room: int | None) -> Ends:
    """Apply the rule to the routes through one rank; `room` is its cap less the static part, None if not counted."""
    forwards: list[tuple[int, int]] = []
    backwards: list[tuple[int, int]] = []
    for x in passages:
        taken = list(accumulate(x.a))
        forwards += zip(taken, accumulate(x.f), strict=True)
        backwards += zip(taken, accumulate(b + w for b, w in zip(x.b, x.w, strict=True)), strict=True)
        backwards += zip(x.q, x.w, strict=True)
    all_forwards = sum(x.n * sum(x.f) for x in passages)
    all_backwards = sum(x.n * (sum(x.b) + sum(x.w)) for x in passages)
    rising, falling = tuple(sorted(forwards)), tuple(sorted(backwards))
    opening, behind = [], []
    for x in passages:
        a, f, bw = sum(x.a), sum(x.f), sum(x.b) + sum(x.w)
        opening.append(x.until_backward - _with_bundle(a, f, rising, room, all_forwards))
        behind.append(x.from_forward - x.f[-1] - _with_bundle(a, bw, falling, room, all_backwards))
    together = room is None or sum(x.n * sum(x.a) for x in passages) <= room
    return Ends(max(0, min(opening)), min(behind), min(x.w[0] for x in passages), not together)
