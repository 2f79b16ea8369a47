"""A schedule as the judge sees it: where every op stands, what it needs, how long it lasts.

Written from docs/semantics.md, section 1, alone. Shares data types with the rest of the package, and no rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, TypeAlias

from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import BACKWARDS, KINDS, Op, Overlap, Slot, members
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.verify.execution import Run, execute, extent, levels
from bubbleproof.verify.place import Place
from bubbleproof.verify.report import Facts

__all__ = ["Case", "Need", "Place", "is_integer", "well_formed"]


class Need(NamedTuple):
    """The op at one place needs the op at another."""

    op: Op
    at: Place
    needs: Op
    source: Place
    to: int = -1
    """The rank to which the message goes, if that is not the one of `at`; see `Case._gathering`."""
    gathers: bool = False
    """Whether the op on several ranks starts only when another of its ranks has come so far."""


Unit: TypeAlias = tuple[str, int, int]
"""F, R, W or G (the backward in either form), stage, microbatch: what dependencies are between."""


def well_formed(pair: Overlap) -> bool:
    """Whether a pair is a forward and a backward of two different microbatches."""
    forward, backward = pair
    return forward.kind == "F" and backward.kind in BACKWARDS and forward.microbatch != backward.microbatch


class Case:
    """One schedule, its instance, and what is claimed about it.

    Parameters
    ----------
    timeline
        Claimed starts, per rank and position, or None.
    claims
        Claimed figures: ``makespan``, ``span``, ``peak``; other keys are not looked at.
    target
        The runtime whose own rules hold as well; None for those of every runtime.
    """

    def __init__(
        self,
        schedule: Schedule,
        instance: Instance,
        timeline: Sequence[Sequence[int]] | None = None,
        claims: Mapping[str, object] | None = None,
        target: str | None = None,
    ) -> None:
        self.schedule = schedule
        self.instance = instance
        self.timeline = timeline
        self.claims = claims or {}
        self.target = target
        self._stages = instance.stages
        self._microbatches = instance.microbatches

    @property
    def same_ranks(self) -> bool:
        """Whether there is one order for each rank of the instance; without that, nothing else is looked at."""
        return self.schedule.ranks == self.instance.ranks

    def known(self, op: Op) -> bool:
        """Whether the instance has such an op at all."""
        if op.kind == "R" and self.instance.costs.R is None:
            return False
        return op.kind in KINDS and 0 <= op.stage < self._stages and 0 <= op.microbatch < self._microbatches

    def homes(self, op: Op) -> tuple[int, ...]:
        """The ranks on which an op of the instance belongs: one, unless its stage is a gang."""
        groups = self.instance.placement.groups
        return groups[op.stage] if groups else (self.home(op),)

    def home(self, op: Op) -> int:
        """The rank on which an op of the instance belongs; of several the first."""
        route = self.instance.route_of_microbatch[op.microbatch]
        return self.instance.placement.routes[route][op.stage]

    def text(self, place: Place) -> str:
        """The slot at a place, in text form."""
        return str(self.schedule.orders[place.rank][place.position])

    @cached_property
    def places(self) -> dict[Op, list[Place]]:
        """Where each op of the instance occurs, wrong ranks included, by rank and position."""
        found: dict[Op, list[Place]] = {}
        for rank, position, op in self.schedule.ops():
            if self.known(op):
                found.setdefault(op, []).append(Place(rank, position))
        return found

    def cells(self) -> Iterator[tuple[int, int]]:
        """Every (stage, microbatch)."""
        for microbatch in range(self._microbatches):
            for stage in range(self._stages):
                yield stage, microbatch

    def forms(self, stage: int, microbatch: int) -> tuple[str, ...]:
        """Which kinds of backward op occur for a stage and a microbatch."""
        return tuple(kind for kind in ("B", "W", "BW") if Op(kind, stage, microbatch) in self.places)

    @cached_property
    def exact(self) -> tuple[bool, ...]:
        """For each rank whether it runs exactly the ops that it should; else its times and levels mean nothing."""
        exact = [True] * self.instance.ranks
        for rank, _, slot in self.schedule.slots():
            if not all(map(self.known, members(slot))) or (isinstance(slot, Overlap) and not well_formed(slot)):
                exact[rank] = False
        for op, places in self.places.items():
            homes = self.homes(op)
            if len(places) != len(homes) or any(place.rank not in homes for place in places):
                for rank in homes:
                    exact[rank] = False
                for place in places:
                    exact[place.rank] = False
            elif len(homes) > 1 and {place.rank for place in places} != set(homes):
                for rank in homes:
                    exact[rank] = False
        allowed = (("B", "W"), ("BW",)) if self.instance.costs.split else (("BW",),)
        for stage, microbatch in self.cells():
            forward = Op("F", stage, microbatch)
            if forward not in self.places or self.forms(stage, microbatch) not in allowed:
                for rank in self.homes(forward):
                    exact[rank] = False
        return tuple(exact)

    @cached_property
    def _units(self) -> dict[Unit, dict[int, tuple[tuple[Op, Place], tuple[Op, Place]]]]:
        """For each unit and each of its own ranks the first and the last of its copies there.

        A copy too many (V102, V105) must not make an order look wrong that is right without it. So whoever needs a
        unit is served by its first copy, and only its last copy has needs.
        """
        units: dict[Unit, dict[int, tuple[tuple[Op, Place], tuple[Op, Place]]]] = {}
        for op, places in self.places.items():
            homes = self.homes(op)
            unit = ("G" if op.kind in BACKWARDS else op.kind, op.stage, op.microbatch)
            for place in places:
                if place.rank in homes:
                    this, copies = (op, place), units.setdefault(unit, {})
                    first, last = copies.get(place.rank, (this, this))
                    copies[place.rank] = (min(first, this, key=_position), max(last, this, key=_position))
        return units

    @cached_property
    def _neighbours(self) -> tuple[list[list[int]], list[list[int]]]:
        """For each stage those that feed it, and those that it feeds: the one before and the one behind in a chain."""
        feeding: list[list[int]] = [[] for _ in range(self._stages)]
        fed: list[list[int]] = [[] for _ in range(self._stages)]
        for a, b in self.instance.placement.edges or [(s, s + 1) for s in range(self._stages - 1)]:
            feeding[b].append(a)
            fed[a].append(b)
        return feeding, fed

    def needs(self) -> Iterator[Need]:
        """Every dependency between two ops that are there, each on its own rank."""
        feeding, fed = self._neighbours
        for (letter, stage, microbatch), copies in self._units.items():
            inputs: list[Unit] = []
            if letter == "F":
                inputs.extend(("F", other, microbatch) for other in feeding[stage])
            elif letter == "G":
                inputs.append(("F", stage, microbatch))
                inputs.append(("R", stage, microbatch))
                inputs.extend(("G", other, microbatch) for other in fed[stage])
            elif letter == "R":
                inputs.append(("F", stage, microbatch))
            elif letter == "W" and Op("B", stage, microbatch) in self.places:
                inputs.append(("G", stage, microbatch))
            own = [self._units[unit] for unit in inputs if unit[1] == stage and unit in self._units]
            sources = [x for unit in inputs if unit[1] != stage for x, _ in self._units.get(unit, {}).values()]
            for rank, (_, (op, at)) in copies.items():
                for needed, source in [*(found[rank][0] for found in own if rank in found), *sources]:
                    yield Need(op, at, needed, source)
                if len(copies) > 1:
                    yield from self._gathering(op, at, copies, sources)

    def _gathering(
        self,
        op: Op,
        at: Place,
        copies: Mapping[int, tuple[tuple[Op, Place], tuple[Op, Place]]],
        sources: Sequence[tuple[Op, Place]],
    ) -> Iterator[Need]:
        """What the copies on other ranks wait for: all start together, so this one waits for it as well."""
        for rank, (_, (_, place)) in copies.items():
            if rank != at.rank:
                for needed, source in sources:
                    yield Need(op, at, needed, source, to=rank)
                if place.position:
                    before = members(self.schedule.orders[rank][place.position - 1])
                    if before:
                        yield Need(op, at, before[-1], Place(rank, place.position - 1), gathers=True)

    @cached_property
    def _sorted_needs(self) -> tuple[tuple[Need, ...], list[list[list[Need]]]]:
        """`inverted` and `waits`, in one pass."""
        inverted: list[Need] = []
        waits: list[list[list[Need]]] = [[[] for _ in order] for order in self.schedule.orders]
        for need in self.needs():
            (rank, position), (source_rank, source_position) = need.at, need.source
            if rank != source_rank or (need.to >= 0 and source_position < position):
                waits[rank][position].append(need)
            elif position < source_position and need.to < 0:
                inverted.append(need)
        return tuple(inverted), waits

    @property
    def inverted(self) -> tuple[Need, ...]:
        """Dependencies against the order of one rank; the members of one pair do not count."""
        return self._sorted_needs[0]

    @property
    def waits(self) -> list[list[list[Need]]]:
        """For each rank and position the needs that another rank serves."""
        return self._sorted_needs[1]

    def duration(self, slot: Slot) -> int:
        """How long a slot lasts; 0 if it holds an op that the instance does not have."""
        if not all(map(self.known, members(slot))):
            return 0
        costs = self.instance.costs
        if isinstance(slot, Overlap) and well_formed(slot):
            together = costs.overlap_B if slot.backward.kind == "B" else costs.overlap_BW
            if together is not None:
                forward, backward = slot
                return costs.figure(f"overlap_{backward.kind}", forward.stage, forward.microbatch) + costs.overhead
        return sum(costs.figure(*op) + costs.overhead for op in members(slot))

    @cached_property
    def durations(self) -> list[list[int]]:
        """For each rank and position how long the slot lasts."""
        return [[self.duration(slot) for slot in order] for order in self.schedule.orders]

    def message(self, need: Need) -> int:
        """How long it takes until what one op made is there for the other."""
        if need.gathers:
            return 0
        return self.instance.costs.message(need.source.rank, need.at.rank if need.to < 0 else need.to)

    def change(self, op: Op) -> int:
        """What an op adds to the memory of its rank; of a forward that is recomputed only the stash."""
        memory = self.instance.memory
        if op.kind == "F" and memory.R is not None and Op("R", op.stage, op.microbatch) in self.places:
            return memory.of("F", op.stage, op.microbatch) - memory.R[op.stage]
        return memory.of(op.kind, op.stage, op.microbatch)

    @cached_property
    def run(self) -> Run:
        """A maximal execution."""
        return execute(self)

    @cached_property
    def levels(self) -> dict[int, list[tuple[int, Op, int]]]:
        """For each exact rank its level after every change; see `levels`."""
        return {rank: list(levels(self, rank)) for rank, exact in enumerate(self.exact) if exact}

    @cached_property
    def rows(self) -> dict[int, Sequence[int]]:
        """The claimed starts of each rank that has one for every slot."""
        if self.timeline is None or len(self.timeline) != self.schedule.ranks:
            return {}
        pairs = enumerate(zip(self.timeline, self.schedule.orders, strict=True))
        return {rank: row for rank, (row, order) in pairs if len(row) == len(order)}

    @cached_property
    def claimed(self) -> dict[int, Sequence[int]]:
        """Those of `rows` that hold integers only."""
        return {rank: row for rank, row in self.rows.items() if all(map(is_integer, row))}

    @cached_property
    def facts(self) -> Facts:
        """The figures of the report."""
        slots = sum(bool(members(slot)) for _, _, slot in self.schedule.slots())
        if not self.same_ranks:
            return Facts(slots, None, None, (None,) * self.instance.ranks)
        timed = all(self.exact) and not self.inverted and not self.run.deadlock
        makespan, span = extent(self, self.run.starts) if timed else (None, None)
        static = self.instance.memory.static
        peak = tuple(
            max([static[rank], *(level for _, _, level in self.levels[rank])]) if exact else None
            for rank, exact in enumerate(self.exact)
        )
        if not timed or self.timeline is None or len(self.claimed) != self.schedule.ranks:
            return Facts(slots, makespan, span, peak)
        return Facts(slots, makespan, span, peak, *extent(self, [self.claimed[r] for r in range(self.schedule.ranks)]))


def is_integer(value: object) -> bool:
    """Whether a claimed start is an integer, which a truth value is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def _position(copy: tuple[Op, Place]) -> int:
    return copy[1].position
