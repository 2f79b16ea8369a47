"""An instance: everything that a schedule is timed, checked and optimised against."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias, get_args

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import InstanceError
from bubbleproof.schedules.op import Kind, Op, Overlap, Slot, members
from bubbleproof.schedules.placement import Placement

__all__ = ["MAX_STAGE_MICROBATCHES", "Instance", "Objective", "Units"]

Objective: TypeAlias = Literal["makespan", "span"]

MAX_STAGE_MICROBATCHES = 1_000_000
"""Largest m·S that is accepted: three million ops, about a gigabyte of them."""


@dataclass(frozen=True)
class Units:
    """The units in which an instance counts time and memory. Only their names; all figures are integers."""

    time: str = "1"
    memory: str = "1"


@dataclass(frozen=True)
class Instance:
    """A pipeline, its microbatches, its costs and memory, and what to minimise.

    Parameters
    ----------
    placement
        Which rank holds which stage.
    microbatches
        m ≥ 1.
    costs, memory
        Durations and memory changes per stage, or per stage and microbatch.
    objective
        ``makespan``: last end − first start over all ranks. ``span``: the longest, over ranks, of last end − first
        start on that rank.
    name, units
        For people and files.
    route_of_microbatch
        For a placement with two routes, the route of each microbatch. Left empty: the first half, rounded up, follows
        route 0, the rest route 1.

    Raises
    ------
    InstanceError
        Sizes that do not fit together, m < 1, m·S beyond `MAX_STAGE_MICROBATCHES`, or a cap below what a single
        microbatch needs on that rank.
    """

    placement: Placement
    microbatches: int
    costs: Costs
    memory: Memory
    objective: Objective = "makespan"
    name: str = ""
    units: Units = Units()
    route_of_microbatch: tuple[int, ...] = ()

    limit: ClassVar[int] = MAX_STAGE_MICROBATCHES
    """Largest m·S; more where no op becomes an object."""

    def __post_init__(self) -> None:
        m, stages, ranks = self.microbatches, self.stages, self.ranks
        if isinstance(m, bool) or not isinstance(m, int) or m < 1:
            raise InstanceError(f"microbatches = {m!r}: at least one is needed")
        if m * stages > self.limit:
            raise InstanceError(
                f"microbatches × stages = {m} × {stages} = {m * stages} is beyond the limit of {self.limit}"
            )
        if self.objective not in get_args(Objective):
            raise InstanceError(f"objective = {self.objective!r} is neither makespan nor span")
        for name, have, want in (
            ("cost", len(self.costs.F), stages),
            ("memory", len(self.memory.F), stages),
            ("memory.static", len(self.memory.static), ranks),
            ("memory.cap", ranks if self.memory.cap is None else len(self.memory.cap), ranks),
        ):
            if have != want:
                raise InstanceError(f"{name} has {have} entries for {want}")
        for name, count in (("cost", self.costs.microbatches), ("memory", self.memory.microbatches)):
            if count not in (None, m):
                raise InstanceError(f"{name} is given for each of {count} microbatches, but there are {m}")
        for (a, b), _ in self.costs.comm:
            if not (0 <= a < ranks and 0 <= b < ranks) or a == b:
                raise InstanceError(f'cost.comm."{a}-{b}": an edge joins two different ranks of 0 … {ranks - 1}')
        if (self.costs.R is None) != (self.memory.R is None):
            given, missing = ("memory.R", "cost.R") if self.costs.R is None else ("cost.R", "memory.R")
            raise InstanceError(f"{given} without {missing}: recompute takes time and saves memory")
        if self.placement.groups:
            self._check_gangs()
        self._check_routes()
        self._check_cap()

    def _check_gangs(self) -> None:
        """Refuse what is not defined for stages on several ranks."""
        if self.costs.channel != "latency":
            raise InstanceError("stages on several ranks: their messages cannot occupy channels")
        if self.costs.overlap_B is not None or self.costs.overlap_BW is not None or self.recompute:
            raise InstanceError("stages on several ranks: neither overlapped pairs nor recompute are defined")

    def _check_routes(self) -> None:
        routes = len(self.placement.routes)
        if not self.route_of_microbatch:
            half = (self.microbatches + 1) // 2
            chosen = tuple(0 if routes == 1 or j < half else 1 for j in range(self.microbatches))
            object.__setattr__(self, "route_of_microbatch", chosen)
        if len(self.route_of_microbatch) != self.microbatches:
            raise InstanceError(
                f"route_of_microbatch has {len(self.route_of_microbatch)} entries for {self.microbatches} microbatches"
            )
        for j, route in enumerate(self.route_of_microbatch):
            if not 0 <= route < routes:
                raise InstanceError(f"route_of_microbatch[{j}] = {route}, but the placement has {routes} route(s)")

    def _check_cap(self) -> None:
        """Refuse a cap under which not even one microbatch can run alone."""
        if self.memory.cap is None:
            return
        for rank, cap in enumerate(self.memory.cap):
            need = self.least_cap(rank)
            if need > cap:
                unit = "" if self.units.memory == "1" else f" {self.units.memory}"
                raise InstanceError(
                    f"memory.cap of rank {rank} = {cap}{unit}, but one microbatch alone needs {need}{unit} there"
                )

    def least_cap(self, rank: int) -> int:
        """The least cap of a rank under which a schedule exists: each microbatch must fit alone."""
        return max(self.least_memory(rank, k, microbatch=j) for k, j in self._kinds_of_microbatch())

    def _kinds_of_microbatch(self) -> Iterator[tuple[int, int]]:
        """(route, the first microbatch) of each class."""
        for alike in self.classes:
            if alike:
                yield self.route_of_microbatch[alike[0]], alike[0]

    def least_memory(self, rank: int, route: int = 0, *, split: bool = False, microbatch: int | None = None) -> int:
        """Least peak of a rank while one microbatch passes alone: all its forwards, then the backwards in reverse.

        With fused backwards, which every instance allows, each backward only gives back, so the peak is the sum of the
        forwards. With B and W apart (`split`) a W that gives back follows its B at once, and a W that takes waits until
        all backwards are done: every level is then the lowest that any order of the microbatch's ops can have there.
        Where memory differs from microbatch to microbatch, name the `microbatch`. Where the instance allows it, every
        forward is recomputed just before its backward.
        """
        memory = self.memory

        def change(kind: Kind, stage: int) -> int:
            return memory.of(kind, stage, microbatch, again=memory.R is not None)

        groups = self.placement.groups
        mine = [s for s, r in enumerate(self.placement.routes[route]) if r == rank or (groups and rank in groups[s])]
        level = peak = memory.static[rank] + sum(change("F", stage) for stage in mine)
        for stage in reversed(mine):
            steps = (change("B", stage), min(0, change("W", stage))) if split else (change("BW", stage),)
            again = 0 if memory.R is None else memory.R[stage]
            for step in (again, *steps):
                level += step
                peak = max(peak, level)
        return peak

    @cached_property
    def classes(self) -> tuple[tuple[int, ...], ...]:
        """The microbatches, ascending, in classes of equal ones: same route, durations and memory.

        If no figure is given per microbatch, class k has those of route k. Inside a class the order of the microbatches
        does not matter (docs/semantics.md, theorem 5); the classes are in the order of their first microbatches then.
        """
        rows = [row for table in (self.costs, self.memory) for _, stages in table.varying for row in stages]
        if not rows:
            found: list[list[int]] = [[] for _ in self.placement.routes]
            for j, route in enumerate(self.route_of_microbatch):
                found[route].append(j)
            return tuple(map(tuple, found))
        equal: dict[tuple[int, ...], list[int]] = {}
        for j, key in enumerate(zip(self.route_of_microbatch, *rows, strict=True)):
            equal.setdefault(key, []).append(j)
        return tuple(map(tuple, equal.values()))

    @property
    def identical(self) -> bool:
        """Whether all microbatches of a route have the same durations and memory."""
        return sum(map(bool, self.classes)) == len(set(self.route_of_microbatch))

    @property
    def recompute(self) -> bool:
        """Whether a schedule may run R before a backward."""
        return self.costs.R is not None

    @property
    def ranks(self) -> int:
        """Number of ranks p."""
        return self.placement.ranks

    @property
    def stages(self) -> int:
        """Number of stages S."""
        return self.placement.stages

    def rank_of(self, stage: int, microbatch: int) -> int:
        """The rank on which this stage of this microbatch runs; of a stage on several ranks the first."""
        return self.placement.routes[self.route_of_microbatch[microbatch]][stage]

    def ranks_of(self, stage: int, microbatch: int) -> tuple[int, ...]:
        """The ranks on which this stage of this microbatch runs, ascending; one, unless the stage is a gang."""
        groups = self.placement.groups
        return groups[stage] if groups else (self.rank_of(stage, microbatch),)

    def duration(self, slot: Slot) -> int:
        """Duration of an op, or of an overlapped pair."""
        if isinstance(slot, Overlap):
            forward, backward = slot
            pair = self.costs.overlap_B if backward.kind == "B" else self.costs.overlap_BW
            if pair is not None:
                name = f"overlap_{backward.kind}"
                return self.costs.figure(name, forward.stage, forward.microbatch) + self.costs.overhead
        return sum(self.costs.of(op.kind, op.stage, op.microbatch) for op in members(slot))

    def message(self, stage: int, to_stage: int, microbatch: int) -> int:
        """Time of the message of one microbatch between two neighbouring stages; 0 if both are on one rank.

        The longest, over all pairs of their ranks, if a stage occupies several; from a stage to itself nothing goes.
        """
        if stage == to_stage:
            return 0
        if self.placement.groups:
            groups = self.placement.groups
            return max(self.costs.message(a, b) for a in groups[stage] for b in groups[to_stage])
        return self.costs.message(self.rank_of(stage, microbatch), self.rank_of(to_stage, microbatch))

    def ops(self) -> Iterator[Op]:
        """Every op that a schedule of this instance runs, with split backwards where the instance allows them."""
        kinds = ("F", *self.costs.backward_kinds)
        for microbatch in range(self.microbatches):
            for stage in range(self.stages):
                for kind in kinds:
                    yield Op(kind, stage, microbatch)

    @cached_property
    def work(self) -> tuple[int, ...]:
        """For each rank the total duration of its ops: no pairs, backwards split where the instance allows it."""
        work = [0] * self.ranks
        kinds = ("F", *self.costs.backward_kinds)
        for alike in self.classes:
            for stage in range(self.stages if alike else 0):
                each = sum(self.costs.of(kind, stage, alike[0]) for kind in kinds)
                for rank in self.ranks_of(stage, alike[0]):
                    work[rank] += each * len(alike)
        return tuple(work)

    def with_(self, **changes: object) -> Instance:
        """A copy with some fields replaced; a new m or placement drops the routes chosen for the old one."""
        if "microbatches" in changes or "placement" in changes:
            changes.setdefault("route_of_microbatch", ())
        return replace(self, **changes)  # type: ignore[arg-type]

    def with_cap(self, cap: int | tuple[int, ...] | None) -> Instance:
        """A copy under another memory cap: one number for every rank, one per rank, or None."""
        caps = (cap,) * self.ranks if isinstance(cap, int) else cap
        return self.with_(memory=replace(self.memory, cap=caps))

    @classmethod
    def load(cls, path: str | Path) -> Instance:
        """Read an instance from a TOML file.

        Raises
        ------
        FormatError, InstanceError
            The file cannot be read, has unknown keys, or describes no possible instance.
        """
        from bubbleproof.schedules.formats.instance_toml import load

        return load(Path(path))
