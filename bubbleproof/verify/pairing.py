"""The rule `pairs` of docs/bounds.md: forwards before the first backward of a rank cannot be in pairs."""

from __future__ import annotations

from bubbleproof.verify.normal_form import Refused, Step

__all__ = ["pairs"]


def _first_backward(step: Step, rank: int, via: int) -> int:
    """Least time from the first start on `via` (−1: of the step) to the start of a backward on `rank`."""
    times = []
    for _, route in step.routes:
        origin = 0 if via < 0 or via not in route else route.index(via)
        trips = step.round_trips(route)
        times += [step.up(route, origin, s) + trips[s] for s, r in enumerate(route) if r == rank]
    return min(times)


def pairs(step: Step, rank: int, via: int) -> dict[str, int]:
    """The summands of the bound."""
    plain, head = step.shares(rank, pairs=False), step.head(rank, via)
    saved = max(
        (
            x.f + y.b + y.w * both - time
            for s, x in plain.items()
            for time, both in step.pair_times(s)
            for y in plain.values()
        ),
        default=0,
    )
    if saved <= 0:
        raise Refused("no pair on the rank is shorter than its members")
    chunks = step.chunks(rank)
    forwards, longest = sum(n for _, n in chunks), max(x.f for x in plain.values())
    work = sum(n * (plain[s].f + plain[s].b + plain[s].w) for s, n in chunks)
    room, least = step.room(rank), min(x.a for x in plain.values())
    open_ = forwards if room is None or not least else min(forwards, room // least)
    begin = _first_backward(step, rank, via)
    until = (begin - head) // longest if longest else 0
    alone = {0, open_, *(min(max(k, 0), open_) for k in (until, until + 1))}
    opening = min(saved * k + max(head, begin - longest * k) for k in alone)
    tail, left = step.tail(rank, via), step.open_weights(rank, plain)
    after = max(0, tail - left) if via in (-1, rank) else tail - left
    return {
        "work, if every forward were in a pair": work - saved * forwards,
        "forwards alone, and idle time, before the first backward": opening,
        "tail, less the W left for it": after,
    }
