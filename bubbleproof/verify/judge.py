"""`verify`: every rule on one schedule, gathered into a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.verify.case import Case
from bubbleproof.verify.report import Report, Verdict, Violation
from bubbleproof.verify.rules import RULES, AnyRule

if TYPE_CHECKING:
    from bubbleproof.verify.exchange import Target

__all__ = ["ALWAYS_ASSUMED", "Gathered", "gather", "rules_for", "verify"]

ALWAYS_ASSUMED: tuple[str, ...] = (
    "Messages: each arrives a fixed time after its op ends; sends never block, and none is lost or delayed by another. "
    "The order of sends and receives was not checked.",
    "Ops last, and change memory, as the instance states it for their stage and microbatch.",
    "Memory is what the instance states for each op and rank; buffers of messages are not counted.",
    "Gradient reduction and the optimizer step are outside the schedule.",
)
"""What every verdict on a schedule without explicit communication rests on; docs/semantics.md, section 7."""

_OCCUPIED = {
    "pair": "Messages from one rank to another go one after the other, in the order of the ops that make them",
    "rank": "Messages that leave one rank go one after the other, in the order of the ops that make them",
}


def _assumed(instance: Instance) -> tuple[str, ...]:
    channel = instance.costs.channel
    if channel == "latency":
        return ALWAYS_ASSUMED
    first = (
        f"{_OCCUPIED[channel]}, each for its time; sends never block, and none is lost. Messages of different channels "
        "do not slow each other, and the order of receives was not checked."
    )
    return (first, *ALWAYS_ASSUMED[1:])


def verify(
    schedule: Schedule,
    instance: Instance,
    *,
    timeline: Sequence[Sequence[int]] | None = None,
    claims: Mapping[str, object] | None = None,
    target: Target | None = None,
    listed_per_rule: int = 10,
) -> Report:
    """Judge a schedule under an instance.

    Takes time and memory linear in the number of ops, but for the search of a shortest cycle in a deadlock.

    Parameters
    ----------
    timeline
        Claimed starts, for each rank one per slot, in the instance's unit of time. None: no starts are claimed.
    claims
        Claimed figures under the keys ``makespan``, ``span`` and ``peak`` (a list, one per rank); makespan and span are
        those of `timeline` if it is given, else of the earliest starts. Other keys are not looked at, so a solve record
        can be given as it is.
    target
        A runtime whose own rules hold as well.
    listed_per_rule
        How many violations of one rule the report lists; it counts all.

    Returns
    -------
    Report
        PROVED or VIOLATED, with the violations, the assumptions and the recomputed figures. Nothing that a schedule,
        timeline or claim contains raises an error.

    Raises
    ------
    InstanceError
        The stages are no chain, which every runtime wants.
    """
    if target is not None:
        instance.placement.need_plain(target)
    case = Case(schedule, instance, timeline, claims, target)
    gathered = gather(case, rules_for(target), _assumed(instance), listed_per_rule)
    return Report(
        verdict=Verdict.VIOLATED if gathered.counts else Verdict.PROVED,
        violations=tuple(gathered.listed),
        counts=gathered.counts,
        rules=tuple(gathered.checked),
        assumptions=tuple(gathered.assumptions),
        facts=case.facts,
        listed_per_rule=listed_per_rule,
    )


def rules_for(target: Target | None) -> tuple[AnyRule, ...]:
    """The rules of every schedule and those of the runtime that is asked for."""
    if target is None:
        return RULES
    from bubbleproof.verify.rules import gradients

    return (*RULES, *gradients.TARGET_RULES)


@dataclass(frozen=True)
class Gathered:
    """What a list of rules says about a case."""

    checked: list[str]
    listed: list[Violation]
    counts: dict[str, int]
    assumptions: dict[str, None]


def gather(case: Case, rules: Sequence[AnyRule], assumed: Sequence[str], listed_per_rule: int) -> Gathered:
    """Ask every rule; an idle one gives its reason as an assumption."""
    found = Gathered([], [], {}, dict.fromkeys(assumed))
    for rule in rules:
        reason = rule.idle(case)
        if reason:
            found.assumptions[reason] = None
            continue
        found.checked.append(rule.id)
        for violation in rule.check(case):
            found.counts[rule.id] = found.counts.get(rule.id, 0) + 1
            if found.counts[rule.id] <= listed_per_rule:
                found.listed.append(violation)
    if case.same_ranks:
        found.assumptions.update(dict.fromkeys(_not_judged(case)))
    return found


def _not_judged(case: Case) -> list[str]:
    """What faults of a schedule kept from being judged."""
    inexact = [str(rank) for rank, exact in enumerate(case.exact) if not exact]
    sentences = []
    if inexact:
        sentences.append(
            f"Rank(s) {', '.join(inexact)} run other ops than they should: their memory was not judged, no times were "
            "computed, and dependencies on ops that are missing or misplaced were taken as met."
        )
    if case.inverted:
        sentences.append("Dependencies against the order of their own rank (V201) were taken as met everywhere else.")
    return sentences
