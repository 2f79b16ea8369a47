"""V2xx: the orders of the ranks can be executed to the end.

Source: docs/semantics.md, "Dependencies" and section 2.
"""

from __future__ import annotations

from collections.abc import Iterator

from bubbleproof.verify.case import Case, Need
from bubbleproof.verify.cycle import shortest_cycle
from bubbleproof.verify.report import Violation
from bubbleproof.verify.rules.rule import Rule, other_ranks, rule
from bubbleproof.verify.witness import cycle_words, grid

__all__ = ["RULES"]


@rule(
    "V201",
    "before-its-input",
    idle=other_ranks,
    example="0F0 0W0 0B0",
    seen="torch's simulator accepts a W before its B and the last stage's backward before its forward",
)
def before_its_input(case: Case) -> Iterator[Violation]:
    """On its own rank, no op stands before an op that it needs.

    The rank would wait for itself; a runtime that does not check reads stale data instead. W before its B and the last
    stage's backward before its forward pass some simulators.

    Source: semantics, Dependencies and Waits.
    """
    for need in case.inverted:
        (rank, position), source = need.at, need.source.position
        yield Violation(
            "V201",
            rank,
            position,
            str(need.op),
            f"{need.op} stands at position {position} of rank {rank}, its input {need.needs} only at position {source}",
            {"needs": str(need.needs), "needed_position": source},
        )


def _wait(need: Need) -> dict[str, object]:
    return {
        "rank": need.at.rank,
        "position": need.at.position,
        "op": str(need.op),
        "needs": str(need.needs),
        "needed_rank": need.source.rank,
        "needed_position": need.source.position,
    }


@rule(
    "V202",
    "deadlock",
    idle=other_ranks,
    example="0F0 0BW0 0F1 0BW1 | 1F0 1F1 1BW0 1BW1",
    seen="torch 2.13 refuses such an order without naming an op, and hangs on it if the file has communication",
)
def deadlock(case: Case) -> Iterator[Violation]:
    """No ranks wait for each other in a circle: the orders and the dependencies between ranks have no cycle.

    The witness is a cycle with the fewest waits, each with its rank and position. `stopped` says where each rank
    hangs in an execution, which may be before that cycle: other ranks wait for those in it. Where V201 is broken, the
    rank is taken to go on, so that both faults show.

    Source: semantics, theorem 1 and lemma 1.
    """
    run = case.run
    if not run.deadlock:
        return
    cycle = shortest_cycle(case, run)
    never = sum(len(order) - len(done) for order, done in zip(case.schedule.orders, run.starts, strict=True))
    stopped = sum(position is not None for position in run.stopped)
    marked = {place for wait in cycle for place in (wait.at, wait.source)}
    first = cycle[0]
    yield Violation(
        "V202",
        first.at.rank,
        first.at.position,
        str(first.op),
        f"deadlock: {cycle_words(cycle)}; {stopped} of {case.schedule.ranks} ranks stop, and "
        f"{never} of {sum(map(len, case.schedule.orders))} slots never run",
        {
            "waits": [_wait(need) for need in cycle],
            "stopped": list(run.stopped),
            "picture": grid(case.schedule, marked, around_marked=True),
        },
    )


RULES: tuple[Rule[Case], ...] = (before_its_input, deadlock)
