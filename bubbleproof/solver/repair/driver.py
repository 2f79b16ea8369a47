"""`repair`: ops first, then reductions, then communication around them; the judge has the last word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Op, Overlap
from bubbleproof.schedules.program import Channel, Program
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.solver.repair.change import Entry, NoRepair, Place, Repair, changes_between, counts
from bubbleproof.solver.repair.collectives import repaired_collectives
from bubbleproof.solver.repair.messages import Messages
from bubbleproof.solver.repair.ops import Orders, repaired_orders
from bubbleproof.verify import Report, Verdict, verify, verify_program
from bubbleproof.verify.exchange import Target

__all__ = ["repair"]

_CHOICES = 16
"""How many equally small sets of transfers are compared by time."""

_OUTSIDE = {
    "V100": "the number of ranks is not that of the instance",
    "V301": "memory is over the cap; a repair keeps the order of ops where it can, `solve` finds one that fits",
    "V706": "a stage that cannot split its backward has split ones",
    "V801": "buffers of messages are over the cap",
    "V802": "stages do not fit together",
}
"""Rules whose violations no repair mends."""


def repair(
    given: Program | Schedule,
    instance: Instance,
    *,
    channel: Channel = "rendezvous-pair",
    target: Target | None = None,
    scale_grads: bool = True,
    seconds: float = 10,
) -> Repair:
    """The smallest change that makes a program or schedule safe, and its proof.

    First the fewest slots are moved such that the ops can run; ops that are missing are added, copies dropped, ops on a
    wrong rank moved to theirs. Around that order of ops the fewest transfers are moved; those that are missing are
    added, those that are no end of any message dropped. Of equally small changes, as many as are looked at, the one
    that takes the least time is taken.

    Parameters
    ----------
    given
        A program, or a schedule without communication, of which only the order of ops is repaired.
    channel
        The model under which messages have to travel; a schedule without communication has none.
    target, scale_grads
        As for `verify_program`.
    seconds
        For each of the two searches. After that the best change so far is taken, at the level ``open``.

    Returns
    -------
    Repair
        With no changes, and the program that was given, if nothing is wrong.

    Raises
    ------
    NoRepair
        What is wrong is not a matter of order and communication, such as memory over the cap; or no change was found
        that the judge proves safe.
    InstanceError
        The stages are no chain.
    """
    instance.placement.need_plain("repair")
    judge = _Judge(instance, channel, target, scale_grads, isinstance(given, Program))
    program = given if isinstance(given, Program) else Program.of(given.orders, given.name)
    before = judge.report(program)
    if before.verdict == Verdict.PROVED:
        time = judge.makespan(before)
        return Repair(program, instance, (), 0, 0, "fewest", 0, 0, time, time, before, before)
    if before.counts.keys() <= _OUTSIDE.keys() or "V100" in before.counts:
        raise NoRepair(_refusal(before))
    ops_wrong = [rule for rule in before.counts if rule[:2] in ("V1", "V2") or rule == "V705"]
    orders: Orders | None = None
    if ops_wrong:
        orders = repaired_orders(program.rows, instance, in_order=target == "torch", seconds=seconds)
    best: Repair | None = None
    last = before
    for rows, moved, bound in _candidates(program, orders, judge, seconds):
        built = Program.of(([entry.action for entry in row] for row in rows), program.name)
        report = judge.report(built)
        if report.verdict != Verdict.PROVED:
            last = report
            continue
        found = _repair(program, built, rows, moved, (orders.bound if orders else 0, bound), judge, before, report)
        if best is None or _size(found) < _size(best):
            best = found
    if best is None:
        raise NoRepair(_refusal(last))
    return best


def _size(found: Repair) -> tuple[int, int, int]:
    return found.moved_ops, found.moved_transfers, found.makespan_after or 0


class _Judge:
    """The judge with its settings."""

    def __init__(
        self, instance: Instance, channel: Channel, target: Target | None, scale_grads: bool, communicates: bool
    ) -> None:
        self.instance = instance
        self.channel = channel
        self.target = target
        self.communicates = communicates
        self.scale_grads = scale_grads

    def report(self, program: Program) -> Report:
        if not self.communicates:
            return verify(program.schedule, self.instance, target=self.target)
        return verify_program(
            program, self.instance, channel=self.channel, target=self.target, scale_grads=self.scale_grads
        )

    def makespan(self, report: Report) -> int | None:
        return report.channel.makespan if report.channel is not None else report.facts.makespan


def _refusal(report: Report) -> str:
    """Why there is no repair, by what the judge still objects to."""
    reasons = [f"{rule}: {_OUTSIDE[rule]}" for rule in report.counts if rule in _OUTSIDE]
    if reasons:
        return "no repair; " + "; ".join(reasons)
    return f"no repair was found; the judge still says {report.violations[0]}"


def _repair(
    given: Program,
    built: Program,
    rows: Sequence[Sequence[Entry]],
    moved: set[Place],
    bounds: tuple[int, int],
    judge: _Judge,
    before: Report,
    report: Report,
) -> Repair:
    changes = changes_between(given, rows, moved)
    ops, transfers = counts(changes, given)
    bound_ops, bound_transfers = bounds
    return Repair(
        program=built,
        instance=judge.instance,
        changes=changes,
        moved_ops=ops,
        moved_transfers=transfers,
        level="fewest" if (ops, transfers) == bounds else "open",
        bound_ops=bound_ops,
        bound_transfers=bound_transfers,
        makespan_before=judge.makespan(before),
        makespan_after=judge.makespan(report),
        before=before,
        report=report,
    )


def _candidates(
    program: Program, orders: Orders | None, judge: _Judge, seconds: float
) -> Iterator[tuple[list[list[Entry]], set[Place], int]]:
    """Rows, the origins of what they move, and how few transfers any repair around the same order of ops moves."""
    given = [[Entry(action, (r, i)) for i, action in enumerate(row)] for r, row in enumerate(program.rows)]
    merged = [given] if orders is None else [_merged(given, orders, late) for late in (False, True)]
    if not judge.communicates:
        assert orders is not None, "a schedule without communication is wrong in its ops or not at all"
        yield merged[0], set(orders.moved), 0
        return
    needed = judge.target is not None and judge.scale_grads and judge.instance.microbatches > 1
    for rows in merged:
        rows, moved = repaired_collectives(rows, judge.instance, needed=needed)
        moved |= orders.moved if orders else set()
        yield from _communicating(rows, moved, judge, seconds)


def _communicating(
    rows: list[list[Entry]], moved: set[Place], judge: _Judge, seconds: float
) -> Iterator[tuple[list[list[Entry]], set[Place], int]]:
    bound: int | None = None
    waits: list[Channel] = [judge.channel]
    if judge.channel in ("batched", "even-odd"):
        waits.append("rendezvous-rank")  # an order of single calls is the best guess where groups do not fit
    for channel in waits:
        messages = Messages(rows, judge.instance, channel)
        found = messages.fewest(seconds)
        spare, strays = messages.unavoidable()
        if bound is None:
            bound = found.bound - spare + strays
        for choice in messages.choices(found, _CHOICES, seconds / 4):
            built, more = messages.placed(choice)
            yield built, moved | more, bound


def _merged(given: list[list[Entry]], orders: Orders, late: bool) -> list[list[Entry]]:
    """The given rows with their slots in the new orders; transfers and collectives stay behind the slot before them.

    Parameters
    ----------
    late
        Whether moved slots come behind what follows the slot before them, or before it.
    """
    merged = []
    for rank, row in enumerate(given):
        kept = {entry.origin for entry in orders.orders[rank] if entry.origin and entry.origin[0] == rank}
        kept -= orders.moved
        following: dict[Place | None, list[Entry]] = {None: []}
        last: Place | None = None
        for entry in row:
            if isinstance(entry.action, Op | Overlap):
                if entry.origin in kept:
                    last = entry.origin
                    following[last] = []
            else:
                following[last].append(entry)
        built: list[Entry] = []
        waiting = list(following[None])
        for entry in orders.orders[rank]:
            stays = entry.origin in kept
            if stays or late:
                built += waiting
                waiting = []
            built.append(entry)
            if stays:
                waiting = list(following[entry.origin])
        merged.append(built + waiting)
    return merged
