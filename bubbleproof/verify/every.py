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
    if instance.placement.routes[1:]:
        raise Refused("there are two routes")
    first, period = _even_from(instance, certificate)
    if period > _LONGEST:
        raise Refused(f"it grows evenly in steps of {period} microbatches only")
    values = [_value(instance, certificate, first + more) for more in range(3 * period)]
    growth = values[period] - values[0]
    steps = {later - value for value, later in zip(values, values[period:], strict=False)}
    if steps != {growth}:
        raise Refused("it does not grow evenly")  # the page and this file would disagree: rather no bound
    return Rise(first, period, tuple(values[:period]), growth)


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
    step, rank = Step(instance.with_(microbatches=1)), certificate.rank
    if certificate.rule == "chain":
        return 1, 1
    if not 0 <= rank < instance.ranks:
        raise Refused(f"there is no rank {rank}")
    shares, room = step.shares(rank), step.room(rank)
    least_a, least_q = min(x.a for x in shares.values()), min(x.q for x in shares.values())
    weights = sum(x.w for x in shares.values())
    if room is not None and least_q > 0:
        settled = 1 + (room - least_a) // least_q
    elif certificate.via in (-1, rank):
        settled = _ceil(step.tail(rank, certificate.via), weights)
    else:
        settled = 1
    if certificate.rule == "load":
        return max(1, settled), 1
    if certificate.rule == "arrival":
        return max(1, settled, _arrival_from(step, rank)), 1
    if certificate.rule == "ends":
        if room is None or not least_a or (weights and not least_q):
            raise Refused("nothing limits what is in flight or waits")
        return 1 + room // least_a + (room // least_q if least_q else 0) + settled, 1
    if certificate.rule == "window" and step.one_chunk:
        (x,) = shares.values()
        most = _most_held(step, rank)
        assert room is not None
        if x.w and not x.q:
            raise Refused("the number of W that wait is not bounded")
        waiting = max(n + (room - n * x.a) // x.q for n in range(1, most + 1)) if x.q else 0
        return max(most, waiting, settled) + most + 1, most
    if certificate.rule == "residence" and room is not None:
        unit = gcd(*(x.a for x in shares.values()), *(x.q for x in shares.values()))
        trips = step.round_trips(step.routes[0][1])
        area = sum(x.a * (trips[s] + x.b) + x.q * x.w for s, x in shares.items())
        if unit and area:
            held = room // unit * unit
            return 1, held // gcd(held, area)
    raise Refused(f"rule {certificate.rule} is not known to grow evenly")


def _arrival_from(step: Step, rank: int) -> int:
    """From how many microbatches on the idle time of the rule ``arrival`` is the same."""
    shares, room, route = step.shares(rank), step.room(rank), step.routes[0][1]
    first, *others = [s for s, _ in step.chunks(rank)]
    x = shares[first]
    if room is not None and x.a:
        return room // x.a
    rest = sum(shares[s].f + shares[s].b + shares[s].w for s in others)
    trip = step.round_trip(route, first)
    return max(_ceil(step.up(route, first, others[0]), x.f) if others else 1, _ceil(trip, x.f + rest))


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
