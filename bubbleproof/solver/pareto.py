"""`pareto`: the best objective under every memory cap, from the least that is feasible to where more brings nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from time import monotonic
from typing import TypeAlias

import msgspec

from bubbleproof.schedules.errors import BubbleproofError, FamilyError
from bubbleproof.schedules.families.family import Family
from bubbleproof.schedules.formats.schedule_json import Document
from bubbleproof.schedules.instance import Instance
from bubbleproof.solver.driver import solve
from bubbleproof.solver.front import CapRule, Front
from bubbleproof.solver.front_file import (
    FamilyPoint,
    ParetoDocument,
    SolvedCap,
    document,
    evidence,
    load,
    measured,
    save,
)
from bubbleproof.solver.result import Level, Record

__all__ = ["OnSolved", "Pareto", "pareto"]

OnSolved: TypeAlias = Callable[["Pareto", SolvedCap], None]


@dataclass
class Pareto:
    """A front on its way: what is known, which caps were solved, and the published families.

    Parameters
    ----------
    interrupted
        Whether Ctrl-C has ended the last run.
    """

    front: Front
    solved: list[SolvedCap] = field(default_factory=list)
    families: list[FamilyPoint] = field(default_factory=list)
    interrupted: bool = False

    @property
    def document(self) -> ParetoDocument:
        """What is written to the file."""
        return document(self.front, self.solved, self.families)

    def limit_of(self, cap: int | None) -> int:
        """The longest time in milliseconds that a cap was given so far."""
        return max((one.limit for one in self.solved if one.cap == cap), default=0)


def pareto(
    instance: Instance,
    *,
    points: int = 12,
    time_limit: float = 300.0,
    point_limit: float = 20.0,
    caps: Sequence[int] = (),
    workers: int = 0,
    seed: int = 0,
    path: Path | None = None,
    on_solved: OnSolved | None = None,
) -> Pareto:
    """The front of an instance: for every cap the best objective known, and how good it is.

    First without a cap and under the least feasible one; then, again and again, in the middle of the range of caps
    where most is open between what is reached and what is proved. When the number of points is used up, or every cap
    worth asking was asked, what is left of the time goes to the open points, each time with twice the limit.

    Parameters
    ----------
    points
        How many different caps to solve.
    time_limit, point_limit
        Seconds for this run, and for the first solve of one cap.
    caps
        Solve these caps and no others; see `CapRule` for what one number means where ranks have different caps.
    workers, seed
        As for `solve`.
    path
        A file that is replaced after each solve. If it exists, the run goes on from what it holds; a run that is killed
        loses the solve under way and no more.
    on_solved
        Called after each solve.

    Raises
    ------
    BubbleproofError
        A limit is not positive, a cap is infeasible, or the file is not the front of this instance.
    """
    if not (time_limit > 0 and point_limit > 0) or points < 1:
        raise BubbleproofError("time limits must be above 0 seconds, and at least one point is needed")
    rule = CapRule.of(instance)
    state = Pareto(Front(instance.with_cap(None), rule))
    if path is not None and path.exists():
        state = Pareto(*load(path, instance, rule))
    for cap in caps:
        if cap < state.front.least:
            raise BubbleproofError(f"cap {cap}: the least feasible one is {state.front.least}")
    run = _Run(state, monotonic() + time_limit, point_limit, points, tuple(caps), workers, seed, path, on_solved)
    try:
        run.go()
    except KeyboardInterrupt:
        state.interrupted = True
    return state


@dataclass
class _Run:
    state: Pareto
    deadline: float
    point_limit: float
    points: int
    caps: tuple[int, ...]
    workers: int
    seed: int
    path: Path | None
    on_solved: OnSolved | None

    def go(self) -> None:
        """Solve one cap after the other until time is out, all is proved, or Ctrl-C."""
        if not self.state.families:
            self.build_families()
        while not self.state.interrupted and monotonic() < self.deadline:
            chosen = self.choose()
            if chosen is None:
                return
            cap, seconds = chosen
            left = self.deadline - monotonic()
            if left <= 0 or (self.state.solved and left < seconds / 4):
                return  # a solve that has hardly begun brings nothing
            self.solve(cap, min(seconds, left))

    def choose(self) -> tuple[int | None, float] | None:
        """The next cap and its limit in seconds; None if there is nothing to do."""
        asked = {one.cap for one in self.state.solved}
        if self.caps:
            new = [cap for cap in self.caps if cap not in asked]
            return (new[0], self.point_limit) if new else self.again(list(self.caps))
        front = self.state.front
        if None not in asked:
            return None, self.point_limit
        if front.least not in asked:
            return front.least, self.point_limit
        if len(asked) < self.points:
            cap = front.next_cap(asked)
            if cap is not None:
                return cap, self.point_limit
        return self.again(sorted(asked, key=lambda cap: (cap is None, cap or 0)))

    def again(self, caps: Sequence[int | None]) -> tuple[int | None, float] | None:
        """Of the open caps the one that had the least time, with twice the time."""
        front = self.state.front
        still = []
        for cap in caps:
            best = front.best(cap)
            if best is None or front.bound(cap).bound < best.value:
                still.append(cap)
        if not still:
            return None
        cap = min(still, key=self.state.limit_of)
        return cap, max(self.point_limit, 2 * self.state.limit_of(cap) / 1000)

    def solve(self, cap: int | None, seconds: float) -> None:
        """Solve one cap, take what it brings, and write it down."""
        front = self.state.front
        solution = solve(
            front.at(cap),
            time_limit=seconds,
            workers=self.workers,
            seed=self.seed,
            resume=self.known(cap),
        )
        record = solution.record
        front.add(measured(solution.schedule, record.source, front, f"cap {cap}"))
        best = front.best(cap)
        solved = SolvedCap(
            cap=cap,
            value=record.value if best is None else best.value,
            bound=record.bound,
            level=_level_of_bound(record),
            proof=record.proof,
            certificate=record.certificate,
            limit=ceil(seconds * 1000),
            milliseconds=record.milliseconds,
            stopped=record.stopped,
            seed=record.seed,
            workers=record.workers,
            versions=record.versions,
        )
        front.evidence += evidence(front, solved, f"cap {cap}")
        self.state.solved.append(solved)
        self.state.interrupted = record.stopped == "interrupted"
        if self.path is not None:
            save(self.path, self.state.document)
        if self.on_solved is not None:
            self.on_solved(self.state, solved)

    def known(self, cap: int | None) -> Document | None:
        """What other caps say about this one, to begin with: their best schedule that fits, and their best bound."""
        front = self.state.front
        best = front.best(cap)
        if best is None:
            return None
        evidence = front.bound(cap)
        record = {
            "source": best.source,
            "bound": min(evidence.bound, best.value),
            "proof": evidence.proof,
            "certificate": msgspec.to_builtins(evidence.certificate),
        }
        return Document(best.schedule, front.at(cap), None, record)

    def build_families(self) -> None:
        """Every published family that can be built is a schedule of the front, and a point to compare with."""
        from bubbleproof.schedules.families import FAMILIES

        front = self.state.front
        registry: dict[str, Family] = FAMILIES
        for name, family in registry.items():
            try:
                found = measured(family.build(front.instance), name, front, name)
            except FamilyError as error:
                self.state.families.append(FamilyPoint(name=name, cap=None, value=None, reason=str(error)))
                continue
            self.state.families.append(FamilyPoint(name=name, cap=found.reach, value=found.value))
            front.add(found)


def _level_of_bound(record: Record) -> Level:
    """How the bound of a solve is known, whether or not the value meets it."""
    if record.certificate is not None and record.certificate.value >= record.bound:
        return "certified"
    return "proof-checked" if record.level == "proof-checked" else "solver-claimed"
