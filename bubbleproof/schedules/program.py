"""Programs: schedules that also say when each rank sends, receives, and reduces gradients.

Text form: ``2SEND_F0`` is stage 2 sending the output of its forward of microbatch 0 to stage 3; ``3RECV_F0`` is stage 3
taking it; ``2SEND_B0`` is stage 2 sending the gradient of its input to stage 1; ``1RECV_B0`` is stage 1 taking it. The
stage named is always the one that performs the transfer. ``1REDUCE_GRAD``, ``1UNSHARD`` and ``1RESHARD`` act on a whole
stage and have no microbatch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

from bubbleproof.schedules.errors import ScheduleError
from bubbleproof.schedules.op import Op, Overlap, Slot, parse_slot
from bubbleproof.schedules.schedule import Schedule

if TYPE_CHECKING:
    from bubbleproof.schedules.instance import Instance

__all__ = [
    "CHANNELS",
    "COLLECTIVE_KINDS",
    "TRANSFER_KINDS",
    "Action",
    "Channel",
    "Collective",
    "CollectiveKind",
    "Program",
    "Transfer",
    "TransferKind",
    "parse_action",
]

TransferKind: TypeAlias = Literal["SEND_F", "RECV_F", "SEND_B", "RECV_B"]
"""F: the output of a forward, towards the last stage. B: the gradient of a stage's input, towards the first stage."""

CollectiveKind: TypeAlias = Literal["UNSHARD", "RESHARD", "REDUCE_GRAD"]
"""Gather the weights of a stage, free them again, and reduce its gradients over the replicas of the stage."""

Channel: TypeAlias = Literal[
    "eager", "rendezvous-pair", "rendezvous-rank", "per-direction", "per-edge", "batched", "even-odd"
]
"""How a runtime carries messages; docs/semantics.md defines each."""

TRANSFER_KINDS: tuple[TransferKind, ...] = get_args(TransferKind)
COLLECTIVE_KINDS: tuple[CollectiveKind, ...] = get_args(CollectiveKind)
CHANNELS: tuple[Channel, ...] = get_args(Channel)


_OTHER_END: dict[TransferKind, TransferKind] = {
    "SEND_F": "RECV_F",
    "RECV_F": "SEND_F",
    "SEND_B": "RECV_B",
    "RECV_B": "SEND_B",
}


class Transfer(NamedTuple):
    """One end of a message: the named stage sends or receives it."""

    kind: TransferKind
    stage: int
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"

    @property
    def sends(self) -> bool:
        """Whether this end sends."""
        return self.kind in ("SEND_F", "SEND_B")

    @property
    def direction(self) -> Literal["F", "B"]:
        """F for the output of a forward, B for a gradient."""
        return "F" if self.kind in ("SEND_F", "RECV_F") else "B"

    @property
    def peer_stage(self) -> int:
        """The stage at the other end; −1 or S at the two ends of the pipeline, where there is none."""
        return self.stage + (1 if self.kind in ("SEND_F", "RECV_B") else -1)

    @property
    def other_end(self) -> Transfer:
        """The transfer that the stage at the other end performs for the same message."""
        return Transfer(_OTHER_END[self.kind], self.peer_stage, self.microbatch)


class Collective(NamedTuple):
    """An action of all replicas of one stage."""

    kind: CollectiveKind
    stage: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}"


Action: TypeAlias = Slot | Transfer | Collective
"""What stands at one position of a rank's row: an op, an overlapped pair, a transfer or a collective."""

# [0-9], not \d: \d accepts digits of every script, and int() would read them
_TRANSFER = re.compile(r"([0-9]{1,9})(SEND_F|RECV_F|SEND_B|RECV_B)([0-9]{1,9})")
_COLLECTIVE = re.compile(r"([0-9]{1,9})(UNSHARD|RESHARD|REDUCE_GRAD)")


def parse_action(text: str) -> Action:
    """Read the text form of an action.

    Raises
    ------
    ScheduleError
        The whole text is no op, pair, transfer or collective.
    """
    if match := _TRANSFER.fullmatch(text):
        stage, kind, microbatch = match.groups()
        return Transfer(kind, int(stage), int(microbatch))  # type: ignore[arg-type]  # the pattern admits only kinds
    if match := _COLLECTIVE.fullmatch(text):
        stage, kind = match.groups()
        return Collective(kind, int(stage))  # type: ignore[arg-type]  # the pattern admits only kinds
    try:
        return parse_slot(text)
    except ScheduleError as error:
        if text.startswith("("):
            raise
        raise ScheduleError(f"{error}, a transfer like 2SEND_F0 or a collective like 2REDUCE_GRAD") from None


@dataclass(frozen=True)
class Program:
    """What each rank does, in order: its ops, its transfers and its collectives.

    Parameters
    ----------
    rows
        ``rows[r]`` is the row of rank r.
    name
        Where the program comes from, for people. Programs with equal rows are equal whatever their names.
    """

    rows: tuple[tuple[Action, ...], ...]
    name: str = field(default="", compare=False)

    @classmethod
    def of(cls, rows: Iterable[Iterable[Action]], name: str = "") -> Program:
        """A program from any iterables of actions."""
        return cls(tuple(tuple(row) for row in rows), name)

    @classmethod
    def parse(cls, rows: Iterable[str], name: str = "") -> Program:
        """A program from one line of blank-separated actions per rank, such as ``0F0 0SEND_F0 0RECV_B0 0BW0``."""
        return cls.of(([parse_action(word) for word in row.split()] for row in rows), name)

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.rows)

    def actions(self) -> Iterator[tuple[int, int, Action]]:
        """(rank, position, action) of every action; positions count all actions of the row."""
        for rank, row in enumerate(self.rows):
            for position, action in enumerate(row):
                yield rank, position, action

    def transfers(self) -> Iterator[tuple[int, int, Transfer]]:
        """(rank, position, transfer) of every transfer, rank by rank in the order of the rows."""
        for rank, position, action in self.actions():
            if isinstance(action, Transfer):
                yield rank, position, action

    def collectives(self) -> Iterator[tuple[int, int, Collective]]:
        """(rank, position, collective) of every collective, rank by rank in the order of the rows."""
        for rank, position, action in self.actions():
            if isinstance(action, Collective):
                yield rank, position, action

    @cached_property
    def slot_positions(self) -> tuple[tuple[int, ...], ...]:
        """For each rank the positions, in its row, of its slots: slot k of the schedule stands at entry k."""
        return tuple(
            tuple(position for position, action in enumerate(row) if isinstance(action, Op | Overlap))
            for row in self.rows
        )

    @cached_property
    def schedule(self) -> Schedule:
        """The schedule that is left when transfers and collectives are taken out."""
        return Schedule.of(
            ([action for action in row if isinstance(action, Op | Overlap)] for row in self.rows), self.name
        )

    def __str__(self) -> str:
        return "\n".join(" ".join(map(str, row)) for row in self.rows)

    @classmethod
    def load(cls, path: str | Path) -> tuple[Program, Instance]:
        """Read a program file (JSON) with the instance inside it."""
        from bubbleproof.schedules.formats.program_json import load

        document = load(Path(path))
        return document.program, document.instance
