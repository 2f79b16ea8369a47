"""V4xx: claimed starts are a timeline of the order, and claimed figures are the true ones.

Source: docs/semantics.md, "Timeline", "Makespan", "Span", "Memory".
"""

from __future__ import annotations

from collections.abc import Iterator

from bubbleproof.verify.case import Case, is_integer
from bubbleproof.verify.place import Place
from bubbleproof.verify.report import Violation
from bubbleproof.verify.rules.rule import Rule, other_ranks, rule
from bubbleproof.verify.wires import Wires

__all__ = ["RULES"]


def _no_starts(case: Case) -> str:
    if case.timeline is None:
        return "No starts are claimed; makespan and span are those of the earliest starts."
    return other_ranks(case)


@rule("V401", "count-of-starts", idle=_no_starts, example="two starts for three slots")
def count_of_starts(case: Case) -> Iterator[Violation]:
    """A claimed timeline has one start for each slot of each rank.

    A rank with another number of starts is not judged any further in time.

    Source: semantics, Timeline.
    """
    timeline = case.timeline or ()
    ranks = case.schedule.ranks
    if len(timeline) != ranks:
        message = f"starts are claimed for {len(timeline)} ranks, the schedule has {ranks}"
        yield Violation("V401", None, None, None, message, {"claimed": len(timeline), "ranks": ranks})
        return
    for rank, (row, order) in enumerate(zip(timeline, case.schedule.orders, strict=True)):
        if len(row) != len(order):
            message = f"rank {rank} has {len(order)} slots, but {len(row)} starts are claimed for it"
            yield Violation("V401", rank, None, None, message, {"claimed": len(row), "slots": len(order)})


@rule("V402", "busy-rank", idle=_no_starts, example="0F0 at 0 lasting 2, 0BW0 at 1")
def busy_rank(case: Case) -> Iterator[Violation]:
    """No slot starts before the slot before it on its rank has ended.

    Source: semantics, Timeline (order edges).
    """
    for rank, row in case.claimed.items():
        order, durations = case.schedule.orders[rank], case.durations[rank]
        for position in range(1, len(order)):
            end = row[position - 1] + durations[position - 1]
            if row[position] < end:
                op, before = str(order[position]), str(order[position - 1])
                message = (
                    f"{op} (position {position} of rank {rank}) starts at {row[position]}, but {before} ends at {end}"
                )
                yield Violation("V402", rank, position, op, message, {"start": row[position], "earliest": end})


@rule("V403", "before-its-message", idle=_no_starts, example="0F0 ends at 1, 1F0 of another rank starts at 0")
def before_its_message(case: Case) -> Iterator[Violation]:
    """No slot starts before what it needs from another rank has ended and its message has arrived.

    Inputs on the same rank are covered by V201 and V402. On an occupied channel a message starts when the one before it
    has arrived.

    Source: semantics, Timeline (data edges) and Occupied channels.
    """
    wires = Wires(case)
    for rank, row in case.claimed.items():
        for position, (start, duration) in enumerate(zip(row, case.durations[rank], strict=True)):
            wires.ended(Place(rank, position), start + duration)
    for rank, row in case.claimed.items():
        for needs in case.waits[rank]:
            for need in needs:
                source_rank, source = need.source
                if source_rank not in case.claimed or need.to >= 0 or need.gathers:
                    continue  # what copies on other ranks wait for is asked there; that all start together is V406
                position = need.at.position
                end = case.claimed[source_rank][source] + case.durations[source_rank][source]
                arrival = wires.arrival(need, end)
                if row[position] >= arrival:
                    continue
                travel, queued = case.message(need), arrival - end - case.message(need)
                message = (
                    f"{need.op} (position {position} of rank {rank}) starts at {row[position]}, but {need.needs} of "
                    f"rank {source_rank} ends at {end}"
                    + (f", its message waits {queued} for earlier ones" if queued else "")
                    + (f" and its message takes {travel}" if travel else "")
                )
                witness = {
                    "start": row[position],
                    "earliest": arrival,
                    "needs": str(need.needs),
                    "message": travel,
                }
                yield Violation("V403", rank, position, str(need.op), message, witness)


@rule("V404", "bad-start", idle=_no_starts, example="0F0 at −1")
def bad_start(case: Case) -> Iterator[Violation]:
    """Every claimed start is an integer ≥ 0.

    Source: semantics, Timeline.
    """
    for rank, row in case.rows.items():
        for position, start in enumerate(row):
            if not is_integer(start) or start < 0:
                op = str(case.schedule.orders[rank][position])
                message = f"{op} (position {position} of rank {rank}) starts at {start!r}, which is no integer ≥ 0"
                yield Violation("V404", rank, position, op, message, {"start": str(start)})


@rule("V406", "apart", idle=_no_starts, example="0F0 of ranks 0 and 1, at 0 on the one and at 1 on the other")
def apart(case: Case) -> Iterator[Violation]:
    """An op of a stage on several ranks starts at the same time on all of them.

    Source: semantics, Gangs.
    """
    for op, places in case.places.items():
        homes = case.homes(op)
        starts = {
            p.rank: case.claimed[p.rank][p.position] for p in places if p.rank in homes and p.rank in case.claimed
        }
        if len(homes) > 1 and len(set(starts.values())) > 1:
            when = ", ".join(f"at {start} on rank {rank}" for rank, start in sorted(starts.items()))
            first = places[0]
            message = f"{op} runs on ranks {', '.join(map(str, homes))} at once, but starts {when}"
            yield Violation("V406", first.rank, first.position, str(op), message, {"starts": sorted(starts.items())})


def _no_claims(case: Case) -> str:
    if not any(key in case.claims for key in ("makespan", "span", "peak")):
        return "No makespan, span or peak is claimed."
    if case.same_ranks and case.facts.makespan is None:
        return "Claimed figures were not judged: the schedule is incomplete or deadlocks."
    return other_ranks(case)


@rule("V405", "false-figure", idle=_no_claims, example="a makespan of 7 for an order that takes 8")
def false_figure(case: Case) -> Iterator[Violation]:
    """A claimed makespan, span or peak is the one that follows from the order (times: from the claimed starts, if any).

    Source: semantics, Makespan, Span, Memory.
    """
    facts = case.facts
    claimed_starts = case.timeline is not None
    if claimed_starts and facts.claimed_makespan is None:
        makespan, span, whose = None, None, ""
    elif claimed_starts:
        makespan, span, whose = facts.claimed_makespan, facts.claimed_span, "of the claimed starts"
    else:
        makespan, span, whose = facts.makespan, facts.span, "of the earliest starts"
    for key, true in (("makespan", makespan), ("span", span)):
        if key in case.claims and true is not None and case.claims[key] != true:
            message = f"the {key} {whose} is {true}, claimed is {case.claims[key]!r}"
            yield Violation("V405", None, None, None, message, {key: true, "claimed": str(case.claims[key])})
    if "peak" in case.claims:
        peak = case.claims["peak"]
        if not isinstance(peak, list | tuple) or list(peak) != list(facts.peak):
            message = f"the peaks of the ranks are {list(facts.peak)}, claimed is {peak!r}"
            yield Violation("V405", None, None, None, message, {"peak": list(facts.peak), "claimed": str(peak)})


RULES: tuple[Rule[Case], ...] = (count_of_starts, busy_rank, before_its_message, bad_start, false_figure, apart)
