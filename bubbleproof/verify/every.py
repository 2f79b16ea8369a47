"""Lower bounds for every number of microbatches, and whether a timed pattern meets one.

Written from docs/bounds.md, section "For every number of microbatches": from some m on, what a rule gives grows by the
same amount with every `period` further microbatches. So two evaluations by the arithmetic of `certificate` say what it
gives for a whole residue class.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm

import msgspec

from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.pattern import PeriodicSchedule
from bubbleproof.verify.certificate import Certificate, check
from bubbleproof.verify.growth import Growth
from bubbleproof.verify.normal_form import Refused, Step

__all__ = ["Comparison", "EveryCertificate", "Rise", "compare", "rise"]

_LONGEST = 1000
"""Largest number of residue classes that are looked at."""


class EveryCertificate(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="format",
    tag="bubbleproof-every-certificate/1",
):
    """A rule of docs/bounds.md, to be applied at the same place for every number of microbatches.

    Parameters
    ----------
    rule, rank, via
        As in `Certificate`. The windows of the rule ``window`` are those at 0, K, 2K, … and at m − 1.
    """

    rule: str
    rank: int = -1
    via: int = -1


@dataclass(frozen=True)
class Rise:
    """What a rule gives for every m ≥ `first`: it grows by the same amount with every `period` microbatches.

    Parameters
    ----------
    values
        What it gives for m = first, first + 1, …, first + period − 1.
    growth
        By how much it grows with `period` more.
    """

    first: int
    period: int
    values: tuple[int, ...]
    growth: int

    def at(self, microbatches: int) -> int:
        """The bound for some m ≥ first."""
        times, which = divmod(microbatches - self.first, self.period)
        return self.values[which] + times * self.growth


def rise(instance: Instance, certificate: EveryCertificate) -> Rise:
    """What a rule gives for every number of microbatches from some on.

    Parameters
    ----------
    instance
        Its number of microbatches has no meaning.

    Raises
    ------
    Refused
        The rule does not apply, or is not known to grow evenly.
    """
    if instance.costs.varying or instance.memory.varying:
        raise Refused("microbatches differ")
    first, period = _even_from(instance, certificate)
    if period > _LONGEST:
        raise Refused(f"it grows evenly in steps of {period} microbatches only")
    values = tuple(_value(instance, certificate, first + more) for more in range(3 * period))
    growth = values[period] - values[0]
    steps = {later - value for value, later in zip(values, values[period:], strict=False)}
    if steps != {growth}:
        raise Refused("it does not grow evenly")  # the page and this file would disagree: rather no bound
    each, rest = divmod(growth, period)
    if not rest and all(value == values[0] + each * more for more, value in enumerate(values)):
        return Rise(first, 1, values[:1], each)
    return Rise(first, period, values[:period], growth)


def _value(instance: Instance, certificate: EveryCertificate, m: int) -> int:
    """What the rule gives for m microbatches, by the arithmetic that checks certificates."""
    at = instance.with_(microbatches=m)
    windows: tuple[int, ...] = ()
    if certificate.rule == "window":
        most = _most_held(Step(at), certificate.rank)
        windows = (*[i * most for i in range((m - 1) // most)], m - 1)
    verdict = check(
        at,
        Certificate(
            rule=certificate.rule,  # type: ignore[arg-type]  # an unknown one is refused there
            objective=instance.objective,
            value=0,
            rank=certificate.rank,
            via=certificate.via,
            windows=windows,
        ),
    )
    if verdict.proved is None:
        raise Refused(verdict.reason)
    return verdict.proved


def _most_held(step: Step, rank: int) -> int:
    """K of the rule ``window`` for many microbatches."""
    shares, room = step.shares(rank), step.room(rank)
    (x,) = shares.values()
    if room is None or not x.a:
        raise Refused("nothing limits how many microbatches are in flight")
    return room // x.a


def _even_from(instance: Instance, certificate: EveryCertificate) -> tuple[int, int]:
    """(first, period) of docs/bounds.md, section "For every number of microbatches"."""
    routes = len(instance.placement.routes)
    step, rank, rule = Step(instance.with_(microbatches=routes)), certificate.rank, certificate.rule
    if rule == "chain":
        return routes, 1
    if not 0 <= rank < instance.ranks:
        raise Refused(f"there is no rank {rank}")
    settled = _settled(step, certificate)
    if rule == "load":
        return routes * max(1, settled), routes
    if rule == "residence":
        return routes, routes * _residence_period(step, rank)
    if routes == 1 and rule in _SINGLE:
        first, period = _SINGLE[rule](step, rank)
        return first + settled, period
    raise Refused(f"rule {rule} is not known to grow evenly" + (" on two routes" if routes > 1 else ""))


def _settled(step: Step, certificate: EveryCertificate) -> int:
    """From how many microbatches of each route on `left`, or what follows after it, grows evenly."""
    rank = certificate.rank
    shares, room = step.shares(rank), step.room(rank)
    least = min(x.q for x in shares.values())
    if room is not None and least > 0:
        return 1 + (room - min(x.a for x in shares.values())) // least
    if certificate.via in (-1, rank):
        return _ceil(step.tail(rank, certificate.via), sum(x.w for x in shares.values()))
    return 1


def _residence_period(step: Step, rank: int) -> int:
    shares, room = step.shares(rank), step.room(rank)
    unit = gcd(*(x.a for x in shares.values()), *(x.q for x in shares.values()))
    area = 0
    for _, route in step.routes:
        trips = step.round_trips(route)
        mine = ((trips[s], shares[s]) for s, r in enumerate(route) if r == rank)
        area += sum(x.a * (trip + x.b) + x.q * x.w for trip, x in mine)
    if room is None or not area:
        raise Refused("the rule does not apply")
    held = room // unit * unit
    return held // gcd(held, area)


def _ends_from(step: Step, rank: int) -> tuple[int, int]:
    shares, room = step.shares(rank), step.room(rank)
    least_a, least_q = min(x.a for x in shares.values()), min(x.q for x in shares.values())
    if room is None or not least_a or (not least_q and any(x.w for x in shares.values())):
        raise Refused("nothing limits what is in flight or waits")
    return 1 + room // least_a + (room // least_q if least_q else 0), 1


def _window_from(step: Step, rank: int) -> tuple[int, int]:
    if not step.one_chunk:
        raise Refused("the rule needs one chunk per rank on one route")
    (x,), room, most = step.shares(rank).values(), step.room(rank), _most_held(step, rank)
    if room is None or (x.w and not x.q):
        raise Refused("the number of W that wait is not bounded")
    waiting = max(n + (room - n * x.a) // x.q for n in range(1, most + 1)) if x.q else 0
    return max(most, waiting) + most + 1, most


def _arrival_from(step: Step, rank: int) -> tuple[int, int]:
    shares, room, route = step.shares(rank), step.room(rank), step.routes[0][1]
    first, *others = [s for s, _ in step.chunks(rank)]
    x = shares[first]
    if room is not None and x.a:
        return room // x.a, 1
    rest = sum(shares[s].f + shares[s].b + shares[s].w for s in others)
    trip = step.round_trip(route, first)
    second = _ceil(step.up(route, first, others[0]), x.f) if others else 1
    return max(second, _ceil(trip, x.f + rest)), 1


_SINGLE = {"arrival": _arrival_from, "ends": _ends_from, "window": _window_from}
"""For each rule that needs one route, from how many microbatches on, `settled` not counted, and the period."""


def _ceil(amount: int, each: int) -> int:
    """How many of `each` it takes to reach an amount; 1 if none ever does."""
    return -(-amount // each) if each else 1


@dataclass(frozen=True)
class Comparison:
    """A timed pattern against a lower bound, for every m of the pattern from `first` on.

    Parameters
    ----------
    worst
        The largest difference between length and bound over the period; 0 if the pattern is optimal for every such m.
        None if it grows without end.
    per_microbatch
        How much the length grows with a microbatch, and how much the bound does.
    """

    first: int
    worst: int | None
    per_microbatch: tuple[Fraction, Fraction]

    @property
    def optimal(self) -> bool:
        """Whether the pattern is optimal for every m of its class from `first` on."""
        return self.worst == 0


def compare(pattern: PeriodicSchedule, length: Growth, bound: Rise) -> Comparison | None:
    """Compare the length of a timed pattern with a bound, for every m at once.

    Parameters
    ----------
    length
        Makespan or span of the pattern, as a function of n.

    Returns
    -------
    Comparison or None
        None if length and bound take too many microbatches to fall into step.
    """
    together = lcm(pattern.period, bound.period)
    if together > _LONGEST:
        return None
    slope = length.slope
    n = pattern.least
    # below the line of the largest slope the length is one of the others; it is left behind from some n on
    for level, other in length.lines:
        if other < slope:
            top = max(height for height, rising in length.lines if rising == slope)
            n = max(n, -(-(level - top) // (slope - other)))
    while pattern.microbatches(n) < bound.first:
        n += 1
    grows = (Fraction(slope, pattern.period), Fraction(bound.growth, bound.period))
    first = pattern.microbatches(n)
    if grows[0] != grows[1]:
        return Comparison(first, None, grows)
    worst = max(
        length.at(n + more) - bound.at(pattern.microbatches(n + more)) for more in range(together // pattern.period)
    )
    return Comparison(first, worst, grows)
