"""Placements: which rank holds which stage.

A placement has one or two *routes*. With one route each stage lives on one rank. A bidirectional placement has two
routes through replicated stages: every microbatch follows one of them, so the same stage of two microbatches may run
on two ranks. A *gang* stage occupies several ranks at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias, get_args

from bubbleproof.schedules.errors import InstanceError

__all__ = [
    "MAX_STAGES",
    "Placement",
    "PlacementKind",
    "bidirectional",
    "custom",
    "groups_of",
    "linear",
    "loop",
    "vee",
    "wave",
]

PlacementKind: TypeAlias = Literal["linear", "loop", "vee", "wave", "bidirectional", "custom"]

MAX_STAGES = 100_000
"""Largest number of stages that is accepted; with one microbatch it is the limit of an instance."""


@dataclass(frozen=True)
class Placement:
    """The map from stages to ranks.

    Parameters
    ----------
    kind
        The name under which the map was built; ``custom`` for one given stage by stage.
    ranks
        Number of ranks p ≥ 1.
    routes
        One or two routes; ``routes[k][s]`` is the rank of stage s on route k. All routes have the same stages.
    edges
        The stage graph: (s, t) says that stage t takes the output of stage s. Left empty: a chain, stage s feeds s + 1.
        Stages are numbered so that every edge leads to a higher one. The edges of a chain are stored as none.
    groups
        For each stage all ranks that it occupies, ascending; the first is the one in `routes`. Left empty: each stage
        occupies one rank, as it is stored if that is so.

    Raises
    ------
    InstanceError
        No rank or no stage, a stage on a rank that does not exist, or a rank that holds no stage; edges with a cycle,
        to a lower stage, to a stage that does not exist, twice, or a stage that is on none of them; groups with two
        routes, or that do not fit the route.
    """

    kind: PlacementKind
    ranks: int
    routes: tuple[tuple[int, ...], ...]
    edges: tuple[tuple[int, int], ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in get_args(PlacementKind):
            raise InstanceError(f"placement.kind = {self.kind!r} is none of {', '.join(get_args(PlacementKind))}")
        if self.ranks < 1:
            raise InstanceError(f"placement.ranks = {self.ranks}: a pipeline has at least one rank")
        if len(self.routes) not in (1, 2):
            raise InstanceError(f"placement has {len(self.routes)} routes; one or two are possible")
        if not self.routes[0]:
            raise InstanceError("placement has no stage")
        if len({len(route) for route in self.routes}) != 1:
            raise InstanceError("placement: both routes pass through the same stages, so they have equal lengths")
        if self.groups:
            self._check_groups()
        elif self.ranks > len(self.routes) * self.stages:  # before anything is built for each rank
            raise InstanceError(f"{self.ranks} ranks for {self.stages} stages: some rank holds no stage")
        for route in self.routes:
            for stage, rank in enumerate(route):
                if not 0 <= rank < self.ranks:
                    raise InstanceError(f"stage {stage} is on rank {rank}, but ranks are 0 … {self.ranks - 1}")
        for rank, held in enumerate(self.stages_of_rank):
            if not held:
                raise InstanceError(f"rank {rank} holds no stage")
        if self.edges:
            _check_edges(self.edges, self.stages)
            chain = tuple((stage, stage + 1) for stage in range(self.stages - 1))
            object.__setattr__(self, "edges", () if tuple(sorted(self.edges)) == chain else tuple(sorted(self.edges)))

    def _check_groups(self) -> None:
        if len(self.routes) > 1:
            raise InstanceError("placement: stages on several ranks are possible on one route only")
        if len(self.groups) != self.stages:
            raise InstanceError(f"placement: groups for {len(self.groups)} of {self.stages} stages")
        for stage, (first, group) in enumerate(zip(self.routes[0], self.groups, strict=True)):
            if list(group) != sorted(set(group)) or not group or group[0] != first:
                raise InstanceError(f"stage {stage} on ranks {group}: different ranks, ascending from rank {first}")
            if group[-1] >= self.ranks:
                raise InstanceError(f"stage {stage} is on rank {group[-1]}, but ranks are 0 … {self.ranks - 1}")
        if all(len(group) == 1 for group in self.groups):
            object.__setattr__(self, "groups", ())

    @property
    def stages(self) -> int:
        """Number of stages S."""
        return len(self.routes[0])

    @cached_property
    def stages_of_rank(self) -> tuple[tuple[int, ...], ...]:
        """For each rank the stages that it holds on any route, ascending, each once."""
        held: list[set[int]] = [set() for _ in range(self.ranks)]
        for route in self.routes:
            for stage, rank in enumerate(route):
                held[rank].add(stage)
        for stage, group in enumerate(self.groups):
            for rank in group:
                held[rank].add(stage)
        return tuple(tuple(sorted(stages)) for stages in held)

    @property
    def plain(self) -> bool:
        """Whether every stage but the last feeds the next one and no other, and occupies one rank."""
        return not self.edges and not self.groups

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """For each stage those whose output it takes, ascending."""
        if not self.edges:
            return tuple((stage - 1,) if stage else () for stage in range(self.stages))
        found: list[list[int]] = [[] for _ in range(self.stages)]
        for a, b in self.edges:
            found[b].append(a)
        return tuple(map(tuple, found))

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """For each stage those that take its output, ascending; none for a stage whose backward needs only its F."""
        if not self.edges:
            return tuple((stage + 1,) if stage < self.stages - 1 else () for stage in range(self.stages))
        found: list[list[int]] = [[] for _ in range(self.stages)]
        for a, b in self.edges:
            found[a].append(b)
        return tuple(map(tuple, found))

    def need_plain(self, what: str) -> None:
        """Refuse a stage graph that is not a chain, and stages that occupy several ranks.

        Raises
        ------
        InstanceError
            It is none, or one does; the message begins with `what`.
        """
        if self.groups:
            stage, group = next((s, group) for s, group in enumerate(self.groups) if len(group) > 1)
            ranks = ", ".join(map(str, group))
            raise InstanceError(
                f"{what} needs every stage on one rank; here stage {stage} occupies ranks {ranks}. "
                "Nearest: each such stage on one of its ranks (without placement.gangs)"
            )
        if self.edges:
            a, b = next((a, b) for a, b in self.edges if b != a + 1 or self.successors[a] != (b,))
            raise InstanceError(
                f"{what} needs stages in a chain, each feeding the next; here stage {a} feeds {b}. "
                "Nearest: the same stages as a chain, each handing on what later ones need (without placement.edges)"
            )

    @property
    def one_chunk(self) -> bool:
        """Whether every rank holds exactly one stage on one route."""
        return len(self.routes) == 1 and not self.groups and all(len(stages) == 1 for stages in self.stages_of_rank)


def _check_edges(edges: Sequence[tuple[int, int]], stages: int) -> None:
    for a, b in edges:
        if not (0 <= a < stages and 0 <= b < stages):
            raise InstanceError(f"placement.edges: {a} → {b}, but stages are 0 … {stages - 1}")
    if len(set(edges)) < len(edges):
        a, b = next(edge for index, edge in enumerate(edges) if edge in edges[:index])
        raise InstanceError(f"placement.edges: {a} → {b} occurs twice")
    back = next(((a, b) for a, b in edges if a >= b), None)
    if back is not None:
        cycle = _cycle(edges, back)
        if cycle:
            raise InstanceError(f"placement.edges has a cycle: {' → '.join(map(str, cycle))}")
        raise InstanceError(f"placement.edges: {back[0]} → {back[1]}; number the stages so that edges lead upwards")
    alone = set(range(stages)).difference(*edges)
    if alone:
        raise InstanceError(f"placement.edges: stage {min(alone)} is on no edge")


def _cycle(edges: Sequence[tuple[int, int]], back: tuple[int, int]) -> tuple[int, ...]:
    """A cycle among the edges, one through `back` if there is one; () if there is none."""
    for first, start in (back, *(edge for edge in edges if edge[0] >= edge[1])):
        came: dict[int, int] = {start: first}
        front = [start]
        for stage in front:  # grows while it is read
            for a, b in edges:
                if a == stage and b not in came:
                    came[b] = a
                    front.append(b)
        if first in came:
            path = [first]
            while path[-1] != start:
                path.append(came[path[-1]])
            return (first, *reversed(path))
    return ()


def _checked(ranks: int, chunks: int = 1) -> None:
    if ranks < 1:
        raise InstanceError(f"placement.ranks = {ranks}: a pipeline has at least one rank")
    if chunks < 1:
        raise InstanceError(f"placement.chunks = {chunks}: a rank holds at least one chunk")
    if ranks * chunks > MAX_STAGES:  # before a list of that length is built
        raise InstanceError(f"{ranks} ranks × {chunks} chunks is beyond the limit of {MAX_STAGES} stages")


def linear(ranks: int) -> Placement:
    """Stage r on rank r: one chunk per rank."""
    _checked(ranks)
    return Placement("linear", ranks, (tuple(range(ranks)),))


def loop(ranks: int, chunks: int) -> Placement:
    """Stage s on rank s mod p: interleaved placement with `chunks` stages per rank."""
    _checked(ranks, chunks)
    return Placement("loop", ranks, (tuple(s % ranks for s in range(ranks * chunks)),))


def wave(ranks: int, chunks: int) -> Placement:
    """Down, up, down, …: block b of p stages runs through the ranks in ascending order if b is even."""
    _checked(ranks, chunks)
    route = tuple(s % ranks if s // ranks % 2 == 0 else ranks - 1 - s % ranks for s in range(ranks * chunks))
    return Placement("wave", ranks, (route,))


def vee(ranks: int) -> Placement:
    """Down, then up: rank r holds stages r and 2p − 1 − r."""
    return Placement("vee", ranks, wave(ranks, 2).routes)


def bidirectional(ranks: int) -> Placement:
    """Two linear routes in opposite directions through replicated stages: stage s on rank s and on rank p − 1 − s."""
    _checked(ranks)
    return Placement("bidirectional", ranks, (tuple(range(ranks)), tuple(reversed(range(ranks)))))


def custom(
    rank_of_stage: Sequence[int | Sequence[int]],
    ranks: int | None = None,
    edges: Sequence[tuple[int, int]] = (),
    gangs: Mapping[int, Sequence[int]] | None = None,
) -> Placement:
    """A placement given stage by stage: one list of ranks, or two for two routes.

    Parameters
    ----------
    rank_of_stage
        The rank of each stage; two such lists for two routes.
    ranks
        Number of ranks; left out, one more than the highest rank named.
    edges
        The stage graph; left out, a chain.
    gangs
        For stages that occupy several ranks, all of them, the one in `rank_of_stage` included.
    """
    routes: list[tuple[int, ...]] = []
    flat: list[int] = []
    for entry in rank_of_stage:
        if isinstance(entry, int):
            flat.append(entry)
        else:
            routes.append(tuple(entry))
    if flat and routes:
        raise InstanceError("placement.rank_of_stage mixes numbers and lists: one list of ranks, or two lists")
    found = tuple(routes) or (tuple(flat),)
    if ranks is None:
        named = (*found, *(gangs or {}).values())
        ranks = 1 + max((rank for some in named for rank in some), default=-1)
    return Placement("custom", ranks, found, tuple(edges), groups_of(found[0], gangs or {}))


def groups_of(route: Sequence[int], gangs: Mapping[int, Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """The ranks of every stage, from those of the stages that occupy several; none if no stage does.

    Raises
    ------
    InstanceError
        A stage that does not exist.
    """
    for stage in gangs:
        if not 0 <= stage < len(route):
            raise InstanceError(f"placement.gangs: stage {stage}, but stages are 0 … {len(route) - 1}")
    if not gangs:
        return ()
    return tuple(tuple(sorted(gangs.get(stage, (rank,)))) for stage, rank in enumerate(route))
