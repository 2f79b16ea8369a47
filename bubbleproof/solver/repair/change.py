"""What a repair is: the repaired program, what was changed, what it costs, and how small the change is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from bubbleproof.schedules.errors import BubbleproofError
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Op, Overlap
from bubbleproof.schedules.program import Action, Program, Transfer
from bubbleproof.verify import Report

__all__ = ["Change", "Entry", "Level", "NoRepair", "Place", "Repair", "changes_between"]

Place: TypeAlias = tuple[int, int]
"""Rank and position in its row; positions count all actions, from 0."""

Level: TypeAlias = Literal["fewest", "open"]
"""``fewest``: proved that fewer moves will not do. ``open``: fewer might do, but not fewer than the bound."""


class NoRepair(BubbleproofError):
    """What is wrong lies outside what a repair changes, or none was found that the judge accepts."""


class Entry(NamedTuple):
    """An action of a row on its way to the repaired program."""

    action: Action
    origin: Place | None
    """Where it stood in what was given; None if it was not there."""


@dataclass(frozen=True)
class Change:
    """One change.

    Parameters
    ----------
    what
        ``moved``, ``added`` or ``dropped``.
    action
        The op, pair, transfer or collective, in text form.
    source
        (rank, position) in what was given; None for what is added.
    target
        (rank, position) in what is repaired; None for what is dropped.
    """

    what: Literal["moved", "added", "dropped"]
    action: str
    source: Place | None
    target: Place | None

    def __str__(self) -> str:
        def place(at: Place | None) -> str:
            return "" if at is None else f"rank {at[0]} position {at[1]}"

        if self.what == "moved":
            return f"moved {self.action} from {place(self.source)} to {place(self.target)}"
        if self.what == "added":
            return f"added {self.action} at {place(self.target)}"
        return f"dropped {self.action} from {place(self.source)}"


@dataclass(frozen=True)
class Repair:
    """A repaired program and what it took. There is none that the judge has not proved.

    Parameters
    ----------
    program, instance
        The result and what it was judged under. Of a schedule without communication it has no transfers.
    changes
        In the order of the ranks and positions of the result; what was dropped last. Empty: nothing was wrong.
    moved_ops, moved_transfers
        How many slots (ops and pairs) and how many transfers that were there changed their place. In this order they
        are what was minimised.
    level
        How much is known about that minimum.
    bound_ops, bound_transfers
        No repair moves fewer slots; none with this order of ops moves fewer transfers.
    makespan_before, makespan_after
        Last end − first start of the ops, under the channel if there are transfers; None before if what was given does
        not run to its end or is incomplete.
    before, report
        The judge's reports on what was given and on the result. The second says PROVED.
    """

    program: Program
    instance: Instance
    changes: tuple[Change, ...]
    moved_ops: int
    moved_transfers: int
    level: Level
    bound_ops: int
    bound_transfers: int
    makespan_before: int | None
    makespan_after: int | None
    before: Report
    report: Report

    @property
    def changed(self) -> bool:
        """Whether anything was to repair."""
        return bool(self.changes)


def changes_between(given: Program, rows: Sequence[Sequence[Entry]], moved: Iterable[Place]) -> tuple[Change, ...]:
    """The changes from a program to rows that know where their actions come from."""
    moved = set(moved)
    found: list[Change] = []
    used: set[Place] = set()
    for rank, row in enumerate(rows):
        for position, (action, origin) in enumerate(row):
            if origin is None:
                found.append(Change("added", str(action), None, (rank, position)))
                continue
            used.add(origin)
            if origin in moved or origin[0] != rank:
                found.append(Change("moved", str(action), origin, (rank, position)))
    for rank, position, action in given.actions():
        if (rank, position) not in used:
            found.append(Change("dropped", str(action), (rank, position), None))
    return tuple(found)


def counts(changes: Iterable[Change], given: Program) -> tuple[int, int]:
    """How many slots and how many transfers the changes move."""
    slots = transfers = 0
    for change in changes:
        if change.what == "moved" and change.source is not None:
            action = given.rows[change.source[0]][change.source[1]]
            slots += isinstance(action, Op | Overlap)
            transfers += isinstance(action, Transfer)
    return slots, transfers
