"""`solve`: the one entry to the search."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from math import ceil
from typing import NamedTuple

from bubbleproof.schedules.errors import BubbleproofError
from bubbleproof.schedules.formats.schedule_json import Document
from bubbleproof.schedules.instance import Instance, Objective
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import Timeline
from bubbleproof.solver.budget import Budget, OutOfBudget
from bubbleproof.solver.result import (
    Answer,
    InternalError,
    Level,
    OnProgress,
    Record,
    Second,
    Solution,
    Stopped,
    Then,
    gap,
)
from bubbleproof.solver.resume import Keep, Keeper, take_up
from bubbleproof.solver.search import Search

__all__ = ["solve"]

_FIRST = 0.6
"""Part of the time limit for the first objective, if there are second ones and it is not proved earlier."""

_LARGE = 10_000
"""Ops from which a schedule is judged as arrays."""

_EFFORT_PER_SECOND = 0.25
"""With one worker, effort allowed per second of time limit: effort, not the clock, should ends a search."""


def solve(
    instance: Instance,
    *,
    time_limit: float = 60.0,
    workers: int = 0,
    seed: int = 0,
    on_progress: OnProgress | None = None,
    objective: Objective | None = None,
    proof: bool = False,
    by_clock: bool = False,
    keep: Keep | None = None,
    resume: Document | None = None,
    resume_proof: Iterable[str] | None = None,
    then: Sequence[Then] = (),
) -> Solution:
    """Find the best schedule of an instance, and how good it is.

    A greedy schedule with a bound comes first (within a second at 32 ranks and 256 microbatches), then the published
    families, hill climbing over the greedy's settings, and CP-SAT until proved or out of time. Ctrl-C ends the search
    like the time limit: the best so far is returned.

    The search runs B and W apart wherever the instance splits backwards, and uses no overlapped pairs; families that
    fuse or overlap are candidates all the same. Where a pair or a fused backward is cheaper than its parts, CP-SAT's
    bounds do not hold for all schedules and are not used.

    Parameters
    ----------
    time_limit
        Seconds of wall time.
    workers
        Threads of CP-SAT; 0 for one per processor.
    seed
        Seed of all random choices. With ``workers=1``, two runs with the same seed and time limit give the same
        schedule provided that neither was cut by the wall clock (``record.stopped`` is not ``time``): the search then
        also has a budget of counted effort, which usually ends first.
    on_progress
        Called with each better schedule or bound.
    objective
        Overrides the instance's.
    proof
        Also look for a proof that nothing is better, by a solver that writes one, for as long as `time_limit` once more
        at most; the judge's own checker must accept it. Needs the package pumpkin-solver.
    by_clock
        Let one worker, too, use all of the time limit: no budget of counted effort.
    keep
        Called with the best solution so far when it has improved, to be written down; not more often than about a
        tenth of the time allows.
    resume, resume_proof
        Begin with the schedule and the bound of this document, which an earlier solve of the same instance has left,
        and with the lines of its proof. Everything that can be checked is checked anew.
    then
        Second objectives, in this order: ``peak``, the least largest peak of all ranks, and ``splits``, the fewest
        split backwards, each at the values of those before it. Two fifths of the time are kept for them.

    Returns
    -------
    Solution
        The schedule has passed `bubbleproof.verify.verify`.

    Raises
    ------
    BubbleproofError
        The time limit is not positive or the number of workers negative, the solver for proofs is not installed,
        or what to resume is about another instance or does not hold.
    InternalError
        The judge refuses the schedule, or a bound is above the value of a schedule. A bug.
    """
    if not time_limit > 0:
        raise BubbleproofError(f"time limit = {time_limit}: must be above 0 seconds")
    if workers < 0:
        raise BubbleproofError(f"workers = {workers}: must be at least 1, or 0 for one per processor")
    if proof:
        from bubbleproof.solver.refute.ask import available

        available()  # now, and not after the search
    if objective is not None and objective != instance.objective:
        instance = instance.with_(objective=objective)
    threads = workers or os.cpu_count() or 1
    effort = time_limit * _EFFORT_PER_SECOND if threads == 1 and not by_clock else None
    budget = Budget(time_limit, effort)
    if then:
        from bubbleproof.solver.then import check_then

        check_then(then)
        budget = Budget(_FIRST * time_limit, None if effort is None else _FIRST * effort)
    search = Search(instance, budget, seed, threads, on_progress)
    if resume is not None:
        take_up(search, resume, resume_proof)
    if keep is not None:
        search.keeper = Keeper(keep, lambda: _solution(search, "running"))
    stopped: Stopped
    try:
        search.run()
        stopped = "proved" if search.done else "effort"
    except OutOfBudget:
        stopped = budget.ended or "time"
    except KeyboardInterrupt:
        stopped = "interrupted"
    try:
        if proof and stopped != "interrupted":
            from bubbleproof.solver.refute.prove import prove

            prove(search, time_limit)
        seconds: tuple[Second, ...] = ()
        if then and stopped != "interrupted":
            from bubbleproof.solver.then import second_objectives

            rest = Budget(
                time_limit - min(time_limit, budget.elapsed) or 0.001, None if effort is None else effort - budget.used
            )
            seconds = second_objectives(search, then, rest, _level(search, search.reached()))
        return _solution(search, "proved" if search.done else stopped, seconds)
    except KeyboardInterrupt:
        if stopped == "interrupted":
            raise  # asked twice: now really stop
        return _solution(search, "proved" if search.done else "interrupted")


def _solution(search: Search, stopped: Stopped, then: tuple[Second, ...] = ()) -> Solution:
    instance, answer, figures = search.instance, *_answer(search)
    value = figures.span if instance.objective == "span" else figures.timed_makespan
    bound = search.bound
    if bound > value:
        raise InternalError(f"{search.proof} claims that nothing is below {bound}, but there is a schedule of {value}")
    milliseconds = ceil(search.budget.elapsed * 1000)
    return Solution(
        answer,
        Record(
            objective=instance.objective,
            value=value,
            bound=bound,
            gap=str(gap(value, bound)),
            level=_level(search, value),
            proof=search.proof,
            certificate=search.certificate,
            source=search.source,
            makespan=figures.makespan,
            span=figures.span,
            peak=figures.peak,
            seconds=ceil(milliseconds / 1000),
            milliseconds=milliseconds,
            stopped=stopped,
            seed=search.seed,
            workers=search.workers,
            versions=_versions(),
            families=tuple(search.families),
            notes=search.notes(),
            refutation=search.proved,
            then=then,
        ),
        search.proof_lines,
    )


@dataclass(frozen=True)
class _Whole:
    """A schedule and a timeline that are there."""

    schedule: Schedule
    timeline: Timeline


class _Figures(NamedTuple):
    """As in `Grown`."""

    makespan: int
    timed_makespan: int
    span: int
    peak: tuple[int, ...]


def _answer(search: Search) -> tuple[Answer, _Figures]:
    """The best schedule, judged, and its figures."""
    grown = search.grown
    if grown is not None:
        return grown, _Figures(grown.makespan, grown.timed_makespan, grown.span, grown.peak)
    schedule = search.schedule
    timeline = search.timeline(schedule)
    _judge(schedule, search.instance, timeline)
    peak = tuple(peak.memory for peak in timeline.peaks)
    figures = _Figures(search.makespan(timeline), timeline.makespan, timeline.span, peak)
    return _Whole(schedule, timeline), figures


def _judge(schedule: Schedule, instance: Instance, timeline: Timeline) -> None:
    from bubbleproof.verify import Verdict, verify

    if _holds(schedule, instance, timeline):
        return
    claims = {
        "makespan": timeline.makespan,
        "span": timeline.span,
        "peak": [peak.memory for peak in timeline.peaks],
    }
    report = verify(schedule, instance, timeline=timeline.starts, claims=claims)
    if report.verdict is not Verdict.PROVED:
        first = report.violations[0] if report.violations else report.verdict
        raise InternalError(f"the judge refuses the solver's schedule of {instance.name or 'the instance'}: {first}")


def _holds(schedule: Schedule, instance: Instance, timeline: Timeline) -> bool:
    """Whether the judge of large schedules accepts this one; if not, the judge of single ops says why."""
    if instance.microbatches * instance.stages * 2 < _LARGE:
        return False  # loading the array library takes longer than it saves
    from bubbleproof.schedules.table import Table
    from bubbleproof.verify.bulk import prove

    facts = prove(Table.of(schedule), instance, timeline=timeline.starts)
    figures = timeline.makespan, timeline.span, tuple(peak.memory for peak in timeline.peaks)
    return facts is not None and (facts.claimed_makespan, facts.claimed_span, facts.peak) == figures


def _level(search: Search, value: int) -> Level:
    """How the value is known to be optimal; the certificate is checked by the judge, not by us."""
    from bubbleproof.verify.certificate import check

    certificate = search.certificate
    if certificate is not None:
        verdict = check(search.instance, certificate)
        if not verdict.accepted:
            raise InternalError(f"the judge refuses the solver's certificate: {verdict.reason}")
        if certificate.value >= value:
            return "certified"
    if search.proved is not None and search.proved.length + 1 >= value:
        return "proof-checked"
    return "solver-claimed" if search.bound >= value and search.proof == "cp-sat" else "open"


def _versions() -> dict[str, str]:
    from bubbleproof import __version__

    return {"bubbleproof": __version__, "ortools": metadata.version("ortools")}
