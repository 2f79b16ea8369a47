"""Certificates of lower bounds, and the arithmetic that checks them.

A certificate names a rule of docs/bounds.md and where to apply it. `check` recomputes the rule's number from the
instance alone, by the definitions of that page and without any solver, and accepts every claim that is not above it.
"""

from __future__ import annotations

from itertools import pairwise
from math import gcd
from typing import Literal, get_args

import msgspec

from bubbleproof.schedules.instance import Instance
from bubbleproof.verify.crossing import crossing
from bubbleproof.verify.ends import ends
from bubbleproof.verify.graph_rules import GRAPH_RULES
from bubbleproof.verify.normal_form import Refused, Step
from bubbleproof.verify.pairing import pairs
from bubbleproof.verify.restriction import restricted
from bubbleproof.verify.stays import stays

__all__ = ["RULES", "Certificate", "CertificateVerdict", "Rule", "check"]

Rule = Literal[
    "chain", "load", "window", "arrival", "ends", "pairs", "residence", "stays", "crossing", "path", "busy", "held"
]
RULES: tuple[Rule, ...] = get_args(Rule)


class Certificate(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="format",
    tag="bubbleproof-certificate/1",
):
    """The claim that no schedule of an instance has an objective below `value`, and why.

    Parameters
    ----------
    rule
        The rule of docs/bounds.md that proves it.
    objective
        ``span`` or ``makespan``. A bound on the span is one on the makespan too, not the other way round.
    value
        The bound, in the instance's time unit.
    rank
        The rank whose ops are counted; −1 for the rules ``chain`` and ``path``.
    via
        The rank whose span is bounded; −1 for the makespan of the whole step.
    windows
        For the rule ``window``: the microbatches whose windows are counted, ascending. For the rule ``crossing``: those
        whose meetings are counted, from the first microbatch to the last one; () for all.
    path
        The stages to which the rule is applied, all others left out, each with a rank that runs it; () for all stages.
    weights
        For the rule ``stays``: the weight of each phase of a stay on the rank, in the order of the rule.
    """

    rule: Rule
    objective: Literal["makespan", "span"]
    value: int
    rank: int = -1
    via: int = -1
    windows: tuple[int, ...] = ()
    path: tuple[tuple[int, int], ...] = ()
    weights: tuple[int, ...] = ()


class CertificateVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a certificate holds.

    Parameters
    ----------
    accepted
        The arithmetic gives at least the value that is claimed.
    proved
        What the arithmetic gives; None if the rule does not apply.
    reason
        The argument in numbers, or what is wrong with the certificate.
    """

    accepted: bool
    proved: int | None
    reason: str


def _chain(step: Step, certificate: Certificate) -> dict[str, int]:
    via, times = certificate.via, []
    for _, route in step.routes:
        if via < 0 or via in route:
            origin, last = 0 if via < 0 else route.index(via), len(route) - 1
            top = step.up(route, origin, last) + step.forward(last)
            ends = [(last, top)]
            top += step.backward(last, route[last])
            ends += [(s, top + time) for s, time in step.descent(route, last)]
            times += [time + step.completion(s, route[s]) for s, time in ends if via < 0 or route[s] == via]
    if not times:
        raise Refused(f"no microbatch passes rank {via}")
    return {"one microbatch from its first forward to its last op": max(times)}


def _after(tail: int, left: int, certificate: Certificate) -> int:
    """How much longer than all ops of the rank it takes, if `left` of W is to do when its last backward has ended.

    If another rank's span is bounded, that rank does not wait for this W.
    """
    return max(0, tail - left) if certificate.via in (-1, certificate.rank) else tail - left


def _load(step: Step, certificate: Certificate) -> dict[str, int]:
    rank, via = certificate.rank, certificate.via
    shares, plain = step.shares(rank), step.shares(rank, pairs=False)
    work = sum(n * (shares[s].f + shares[s].b + shares[s].w) for s, n in step.chunks(rank))
    alone = min(plain[s].f - x.f for s, x in shares.items()) + min(plain[s].b - x.b for s, x in shares.items())
    return {
        "head": step.head(rank, via),
        "work": work,
        "one forward and one backward that no pair holds": alone,
        "tail, less the W left for it": _after(step.tail(rank, via), step.open_weights(rank, shares), certificate),
    }


def _arrival(step: Step, certificate: Certificate) -> dict[str, int]:
    rank, via = certificate.rank, certificate.via
    if len(step.routes) != 1:
        raise Refused("the rule needs a single route")
    shares, room, route = step.shares(rank), step.room(rank), step.routes[0][1]
    first, *others = [s for s, _ in step.chunks(rank)]
    x = shares[first]
    started = step.m if room is None or not x.a else min(step.m, room // x.a)
    later = started
    if others and room is not None and x.a:
        later = min(started, (room - shares[others[0]].a) // x.a)
    until_second = step.up(route, first, others[0]) - later * x.f if others else 0
    rest = sum(shares[s].f + shares[s].b + shares[s].w for s in others)
    until_backward = step.round_trip(route, first) - started * x.f - later * rest
    work = sum(n * (shares[s].f + shares[s].b + shares[s].w) for s, n in step.chunks(rank))
    return {
        "head": step.head(rank, via),
        "work": work,
        "idle before what must arrive": max(0, until_second, until_backward),
        "tail, less the W left for it": _after(step.tail(rank, via), step.open_weights(rank, shares), certificate),
    }


def _residence(step: Step, certificate: Certificate) -> dict[str, int]:
    rank, via = certificate.rank, certificate.via
    room, shares = step.room(rank), step.shares(rank)
    if via not in (-1, rank):
        raise Refused("the rule bounds the makespan or the span of its own rank")
    if room is None:
        raise Refused(f"rank {rank} has no cap, or a W that takes memory")
    unit = gcd(*(x.a for x in shares.values()), *(x.q for x in shares.values()))
    area = 0
    for n, route in step.routes:
        trips = step.round_trips(route)
        area += n * sum(
            shares[s].a * (trips[s] + shares[s].b) + shares[s].q * shares[s].w for s, r in enumerate(route) if r == rank
        )
    if not area:
        raise Refused("the microbatches hold no memory")
    return {"head": step.head(rank, via), "memory times time, over the cap": -(-area // (room // unit * unit))}


def _window(step: Step, certificate: Certificate) -> dict[str, int]:
    m, rank, chosen = step.m, certificate.rank, certificate.windows
    if not step.one_chunk:
        raise Refused("the rule needs one chunk per rank on one route")
    ((stage, x),) = step.shares(rank).items()
    room, route = step.room(rank), step.routes[0][1]
    most = m if room is None or not x.a else min(m, room // x.a)
    if any(not 0 <= j < m for j in chosen) or any(k - j < most for j, k in pairwise(chosen)):
        raise Refused(f"windows must be microbatches 0 … {m - 1}, at least {most} apart")

    def left(n: int, j: int) -> int:
        """Most W not yet ended at the start of F of microbatch j, if n backwards have not."""
        return j + 1 if room is None or not x.q else min(j + 1, n + (room - n * x.a) // x.q)

    def older(j: int) -> int:
        """Most work of B and W that the window of microbatch j can hold, its own W included."""
        return max(n * x.b + left(n, j) * x.w for n in range(1, min(most, j + 1) + 1))

    length = step.round_trip(route, stage) + x.b
    idle = sum(max(0, length - min(most, m - j) * x.f - older(j) + x.w) for j in chosen if j < m - 1)
    tail = step.tail(rank, certificate.via)
    slack = length - x.f - older(m - 1) if m - 1 in chosen else -m * x.w
    most_left = max(left(n, m - 1) for n in range(1, most + 1))
    closing = min(max(0, slack + y * x.w) + _after(tail, y * x.w, certificate) for y in range(1, most_left + 1))
    return {
        "head": step.head(rank, certificate.via),
        "work": m * (x.f + x.b + x.w),
        "idle in windows": idle,
        "idle in the last window, and tail, less the W left for it": closing,
    }


def _pairs(step: Step, certificate: Certificate) -> dict[str, int]:
    return pairs(step, certificate.rank, certificate.via)


def _ends(step: Step, certificate: Certificate) -> dict[str, int]:
    return ends(step, certificate.rank, certificate.via)


def _stays(step: Step, certificate: Certificate) -> dict[str, int]:
    return stays(step, certificate.rank, certificate.via, certificate.weights)


def _crossing(step: Step, certificate: Certificate) -> dict[str, int]:
    return crossing(step, certificate.rank, certificate.via, certificate.value, certificate.windows)


_ARGUMENTS = {
    "chain": _chain,
    "load": _load,
    "window": _window,
    "arrival": _arrival,
    "ends": _ends,
    "pairs": _pairs,
    "residence": _residence,
    "stays": _stays,
    "crossing": _crossing,
}


def check(instance: Instance, certificate: Certificate) -> CertificateVerdict:
    """Check a certificate by arithmetic.

    Returns
    -------
    CertificateVerdict
        Accepted if the rule applies to the instance and gives at least the value claimed.
    """
    try:
        parts = _parts(instance, certificate)
    except Refused as refused:
        return CertificateVerdict(accepted=False, proved=None, reason=f"rule {certificate.rule}: {refused}")
    proved = sum(parts.values())
    what = "the makespan" if certificate.via < 0 else f"the span of rank {certificate.via}"
    terms = " + ".join(f"{value} ({name})" for name, value in parts.items())
    where = "" if certificate.rank < 0 else f", counted on rank {certificate.rank}"
    if certificate.path:
        where += f", of stages {', '.join(str(stage) for stage, _ in certificate.path)} alone"
    reason = f"rule {certificate.rule}: {what} is at least {terms} = {proved}{where}"
    if certificate.value > proved:
        reason += f", which is below the claimed {certificate.value}"
    return CertificateVerdict(accepted=certificate.value <= proved, proved=proved, reason=reason)


def _on_path(instance: Instance, certificate: Certificate) -> tuple[Instance, Certificate]:
    """The instance of the stages named alone, and the certificate in terms of its ranks."""
    left, ranks = restricted(instance, certificate.path)
    index = {rank: i for i, rank in enumerate(ranks)} | {-1: -1}
    if certificate.rank not in index or certificate.via not in index:
        raise Refused("a rank that the path does not pass")
    rank, via = index[certificate.rank], index[certificate.via]
    return left, msgspec.structs.replace(certificate, rank=rank, via=via, path=())


def _parts(instance: Instance, certificate: Certificate) -> dict[str, int]:
    """The summands of the bound."""
    rank, via = certificate.rank, certificate.via
    if certificate.rule not in RULES:
        raise Refused("no such rule")
    if certificate.objective not in ("makespan", "span"):
        raise Refused(f"no such objective as {certificate.objective!r}")
    if not -1 <= via < instance.ranks or not -1 <= rank < instance.ranks:
        raise Refused(f"rank {rank} via {via}: ranks are 0 … {instance.ranks - 1}")
    if certificate.objective == "span" and via < 0:
        raise Refused("a bound on the span names the rank whose span it bounds")
    if (rank < 0) != (certificate.rule in ("chain", "path")):
        raise Refused("a rank is named by every rule but chain and path")
    if certificate.windows and certificate.rule not in ("window", "crossing"):
        raise Refused("only the rules window and crossing count windows")
    if certificate.weights and certificate.rule != "stays":
        raise Refused("only the rule stays has weights")
    if certificate.path:
        return _parts(*_on_path(instance, certificate))
    if certificate.rule in GRAPH_RULES:
        return GRAPH_RULES[certificate.rule](instance, rank, via)
    step = Step(instance)
    if rank >= 0 and not step.held[rank]:
        raise Refused(f"no microbatch passes rank {rank}")
    return _ARGUMENTS[certificate.rule](step, certificate)
