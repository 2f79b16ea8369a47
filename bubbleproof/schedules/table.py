"""A schedule or a program as arrays: one entry per op, transfer or collective and no Python object for any of them.

Rows of all ranks stand one after the other. An overlapped pair is two entries, of which the second is *joined* to the
first. What `Op` and `Program` cannot hold, millions of entries, is the only purpose of this form.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from bubbleproof.schedules.errors import ScheduleError
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import KINDS, Op, Overlap, members
from bubbleproof.schedules.program import COLLECTIVE_KINDS, TRANSFER_KINDS, Action, Collective, Program, Transfer
from bubbleproof.schedules.schedule import Schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CODES", "NAMES", "LargeInstance", "Table"]

NAMES: tuple[str, ...] = (*KINDS, *TRANSFER_KINDS, *COLLECTIVE_KINDS)
"""The kind that each code stands for: F, B, W, BW, R, then the transfers, then the collectives."""

CODES: dict[str, int] = {name: code for code, name in enumerate(NAMES)}

_LIMIT = 1 << 31
_TRANSFERS = len(KINDS)
_COLLECTIVES = len(KINDS) + len(TRANSFER_KINDS)


@dataclass(frozen=True)
class LargeInstance(Instance):
    """An instance whose schedules are tables only; its own size grows with m and S, not with m·S."""

    limit = 100_000_000


@dataclass(frozen=True, eq=False)
class Table:
    """The rows of all ranks.

    Parameters
    ----------
    kind
        int8, a code of `CODES` for each entry.
    stage, microbatch
        int32; the microbatch of a collective is −1.
    joined
        bool: the entry stands in the same slot as the entry before it.
    offsets
        int64, ranks + 1 entries: row r is ``offsets[r]:offsets[r + 1]``.
    """

    kind: NDArray[np.int8]
    stage: NDArray[np.int32]
    microbatch: NDArray[np.int32]
    joined: NDArray[np.bool_]
    offsets: NDArray[np.int64]
    name: str = ""

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.offsets) - 1

    def __len__(self) -> int:
        return len(self.kind)

    @cached_property
    def rank(self) -> NDArray[np.int32]:
        """The rank of each entry."""
        return np.repeat(np.arange(self.ranks, dtype=np.int32), np.diff(self.offsets))

    @cached_property
    def only_ops(self) -> bool:
        """Whether there is no transfer and no collective."""
        return bool((self.kind < _TRANSFERS).all())

    def ops(self) -> Table:
        """The table without its transfers and collectives."""
        if self.only_ops:
            return self
        keep = self.kind < _TRANSFERS
        counts = np.bincount(self.rank[keep], minlength=self.ranks)
        offsets = np.concatenate(([0], np.cumsum(counts)))
        return Table(self.kind[keep], self.stage[keep], self.microbatch[keep], self.joined[keep], offsets, self.name)

    @classmethod
    def of(cls, rows: Schedule | Program) -> Table:
        """The table of a schedule or a program.

        Raises
        ------
        ScheduleError
            An op of no known kind, or a number beyond 32 bits.
        """
        lines: Iterable[Iterable[Action]] = rows.orders if isinstance(rows, Schedule) else rows.rows
        kind: list[int] = []
        stage: list[int] = []
        microbatch: list[int] = []
        joined: list[bool] = []
        offsets = [0]
        for line in lines:
            for action in line:
                entries = members(action) if isinstance(action, Op | Overlap) else (action,)
                for index, entry in enumerate(entries):
                    number = -1 if isinstance(entry, Collective) else entry.microbatch
                    if entry.kind not in CODES or not (-_LIMIT <= entry.stage < _LIMIT and -_LIMIT <= number < _LIMIT):
                        raise ScheduleError(f"{str(entry)[:40]!r} does not fit into a table")
                    kind.append(CODES[entry.kind])
                    stage.append(entry.stage)
                    microbatch.append(number)
                    joined.append(index > 0)
            offsets.append(len(kind))
        return cls(
            np.array(kind, np.int8),
            np.array(stage, np.int32),
            np.array(microbatch, np.int32),
            np.array(joined, np.bool_),
            np.array(offsets, np.int64),
            rows.name,
        )

    def _rows(self) -> Iterable[list[Action]]:
        for rank in range(self.ranks):
            part = slice(self.offsets[rank], self.offsets[rank + 1])
            row: list[Action] = []
            columns = (self.kind[part], self.stage[part], self.microbatch[part], self.joined[part])
            for code, stage, microbatch, joined in zip(*(column.tolist() for column in columns), strict=True):
                name = NAMES[code]
                if code >= _COLLECTIVES:
                    row.append(Collective(name, stage))
                elif code >= _TRANSFERS:
                    row.append(Transfer(name, stage, microbatch))
                elif joined:
                    row[-1] = Overlap(row[-1], Op(name, stage, microbatch))  # type: ignore[arg-type]  # or of ops
                else:
                    row.append(Op(name, stage, microbatch))
            yield row

    def sample(self) -> Schedule:
        """A few of the ops: the first of each stage on each rank, the first of each kind, and a highest microbatch."""
        ops = self.ops()
        if not len(ops):
            return Schedule.of([()] * self.ranks, self.name)
        _, stages = np.unique((ops.stage.astype(np.int64) << 32) + ops.rank, return_index=True)
        _, kinds = np.unique(ops.kind, return_index=True)
        chosen = np.unique(np.concatenate((stages, kinds, [ops.microbatch.argmax()])))
        rows: list[list[Op]] = [[] for _ in range(self.ranks)]
        columns = (ops.rank, ops.kind, ops.stage, ops.microbatch)
        for rank, code, stage, microbatch in zip(*(column[chosen].tolist() for column in columns), strict=True):
            rows[rank].append(Op(NAMES[code], stage, microbatch))
        return Schedule.of(rows, self.name)

    def schedule(self) -> Schedule:
        """The same as objects. Takes about a gigabyte for three million ops."""
        return Schedule.of(self.ops()._rows(), self.name)  # type: ignore[arg-type]  # the rows hold slots only

    def program(self) -> Program:
        """The same as objects, transfers and collectives included."""
        return Program.of(self._rows(), self.name)
