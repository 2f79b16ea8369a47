"""Nodes: what each rank does, in order, in the form that the ScheduledNode family of runtimes shares.

ColossalAI, sail-sg's zero-bubble and Primus take a list of nodes for each rank. A node has a type (an op, or one end of
a transfer), a chunk of its rank, a microbatch and times. Which stage a chunk is follows from the placement. A node of
another type, such as those of sail-sg's validation of the optimizer, is kept with its name and means nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias, get_args

from bubbleproof.schedules.op import Op
from bubbleproof.schedules.program import Program, Transfer, TransferKind

__all__ = ["DIALECTS", "NODE_OPS", "NODE_TRANSFERS", "Dialect", "Node", "NodeLists"]

Dialect: TypeAlias = Literal["colossalai", "sail-sg", "primus"]
"""Which runtime the nodes are for."""

DIALECTS: tuple[Dialect, ...] = get_args(Dialect)

NODE_OPS = ("F", "B", "W", "BW")
"""Types of nodes that compute; BW is not ColossalAI's."""

NODE_TRANSFERS: dict[str, TransferKind] = {
    "SEND_FORWARD": "SEND_F",
    "RECV_FORWARD": "RECV_F",
    "SEND_BACKWARD": "SEND_B",
    "RECV_BACKWARD": "RECV_B",
}
"""Types of nodes that send or receive. The chunk is that of the rank that has the node."""


class Node(NamedTuple):
    """One step of a rank; times in the unit of the instance, 0 if they are not known."""

    type: str
    chunk: int
    microbatch: int
    start: int = 0
    end: int = 0

    def __str__(self) -> str:
        return f"{self.type}({self.chunk},{self.microbatch})"


@dataclass(frozen=True)
class NodeLists:
    """The nodes of each rank.

    Parameters
    ----------
    rows
        ``rows[r]`` is the list of rank r.
    rank_of_stage
        The placement. Chunk c of a rank is the c-th of its stages.
    name
        Where they come from, for people.
    """

    dialect: Dialect
    rows: tuple[tuple[Node, ...], ...]
    rank_of_stage: tuple[int, ...]
    microbatches: int
    name: str = field(default="", compare=False)

    @classmethod
    def of(
        cls,
        dialect: Dialect,
        rows: Iterable[Iterable[Node]],
        rank_of_stage: Iterable[int],
        microbatches: int,
        name: str = "",
    ) -> NodeLists:
        """Node lists from any iterables."""
        return cls(dialect, tuple(tuple(row) for row in rows), tuple(rank_of_stage), microbatches, name)

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.rows)

    def stages_of(self, rank: int) -> list[int]:
        """The stages of a rank: entry c is chunk c."""
        return [stage for stage, place in enumerate(self.rank_of_stage) if place == rank]

    def program(self) -> Program:
        """The program that the nodes mean by their labels, without nodes that send nothing to another rank.

        The last stage of the chain sends no activation and the first no gradient, and between two chunks of one rank
        nothing travels: nodes for that are left out, and so are nodes of other types.
        """
        rows = []
        for rank, row in enumerate(self.rows):
            stages, made = self.stages_of(rank), list[Op | Transfer]()
            for node in row:
                if node.type in NODE_OPS:
                    made.append(Op(node.type, stages[node.chunk], node.microbatch))  # type: ignore[arg-type]  # a kind
                elif node.type in NODE_TRANSFERS:
                    one = Transfer(NODE_TRANSFERS[node.type], stages[node.chunk], node.microbatch)
                    peer = one.peer_stage
                    if 0 <= peer < len(self.rank_of_stage) and self.rank_of_stage[peer] != rank:
                        made.append(one)
            rows.append(made)
        return Program.of(rows, self.name)

    def __str__(self) -> str:
        return "\n".join(" ".join(map(str, row)) for row in self.rows)
