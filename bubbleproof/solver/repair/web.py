"""A graph of what waits for what, in which some waits go away when an action is moved, and the fewest actions to move.

Every edge holds either always, or only while the action that its literal stands for keeps its place. The least set of
literals to give up such that no cycle is left is a hitting set: of every cycle at least one. Cycles are found as they
are needed, so the set is proved least when the graph without it has no cycle left.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

__all__ = ["ALWAYS", "Found", "Rigid", "Web", "fewest", "others"]

ALWAYS = -1
"""In place of a literal: the edge holds whatever is moved."""

_STARTS = 12
"""From how many nodes a short cycle is looked for at a time."""


class Rigid(Exception):
    """A cycle that no move breaks; holds its nodes."""

    def __init__(self, nodes: Collection[int]) -> None:
        super().__init__("a cycle that no move breaks")
        self.nodes = nodes


class Web:
    """Nodes with durations, and edges with literals."""

    def __init__(self) -> None:
        self.lengths: list[int] = []
        self.out: list[list[tuple[int, int]]] = []
        self.literals = 0
        self.only_one: list[list[int]] = []
        """Groups of literals of which at most one may be kept."""

    def node(self, length: int = 0) -> int:
        """A new node."""
        self.lengths.append(length)
        self.out.append([])
        return len(self.out) - 1

    def literal(self) -> int:
        """A new literal."""
        self.literals += 1
        return self.literals - 1

    def edge(self, before: int, after: int, literal: int = ALWAYS) -> None:
        """The second node waits for the first, always or while the literal is kept."""
        self.out[before].append((after, literal))

    def core(self, moved: Collection[int], within: Collection[int] | None = None) -> set[int]:
        """The nodes that are on cycles, or between cycles, when these literals are moved.

        Parameters
        ----------
        within
            The core for fewer moved literals, if it is known.
        """
        left = set(range(len(self.out)) if within is None else within)
        out: dict[int, list[int]] = {}
        into: dict[int, list[int]] = {node: [] for node in left}
        for node in left:
            out[node] = [after for after, literal in self.out[node] if after in left and literal not in moved]
            for after in out[node]:
                into[after].append(node)
        for here, there in ((into, out), (out, into)):
            missing = {node: sum(other in left for other in here[node]) for node in left}
            ready = [node for node, count in missing.items() if not count]
            while ready:
                node = ready.pop()
                left.discard(node)
                for after in there[node]:
                    if after in left:
                        missing[after] -= 1
                        if not missing[after]:
                            ready.append(after)
        return left

    def cycle(self, start: int, core: set[int], moved: Collection[int]) -> tuple[set[int], list[int]] | None:
        """The literals and nodes of a cycle through a node; of fewest literals, each counted where it is met."""
        distance = {start: 0}
        came: dict[int, tuple[int, int]] = {}
        queue = deque([(0, start)])
        best: tuple[int, int, int] | None = None
        while queue:
            cost, node = queue.popleft()
            if cost > distance[node] or (best is not None and cost >= best[0]):
                continue
            for after, literal in self.out[node]:
                if after not in core or literal in moved:
                    continue
                further = cost + (literal != ALWAYS)
                if after == start:
                    if best is None or further < best[0]:
                        best = (further, node, literal)
                elif further < distance.get(after, further + 1):
                    distance[after] = further
                    came[after] = (node, literal)
                    (queue.appendleft if literal == ALWAYS else queue.append)((further, after))
        if best is None:
            return None
        _, node, literal = best
        literals, nodes = {literal}, [start]
        while node != start:
            nodes.append(node)
            node, literal = came[node]
            literals.add(literal)
        return literals - {ALWAYS}, nodes

    def order(self, moved: Collection[int], late: Collection[int] = ()) -> tuple[list[int], list[int]]:
        """(turn, earliest start) of every node without these literals; nodes of one time in the order of their classes.

        Parameters
        ----------
        late
            Nodes that come last among those of one time.
        """
        missing = [0] * len(self.out)
        out = [[after for after, literal in edges if literal not in moved] for edges in self.out]
        for edges in out:
            for after in edges:
                missing[after] += 1
        starts = [0] * len(out)
        turns = [-1] * len(out)
        last = set(late)
        heap = [(0, node in last, node) for node, count in enumerate(missing) if not count]
        heapq.heapify(heap)
        turn = 0
        while heap:
            start, _, node = heapq.heappop(heap)
            turns[node] = turn
            turn += 1
            for after in out[node]:
                starts[after] = max(starts[after], start + self.lengths[node])
                missing[after] -= 1
                if not missing[after]:
                    heapq.heappush(heap, (starts[after], after in last, after))
        return turns, starts


@dataclass(frozen=True)
class Found:
    """Literals to move such that no cycle is left.

    Parameters
    ----------
    moved
        The literals.
    bound
        No set with fewer literals will do.
    clauses
        The cycles that prove it, each as its literals.
    """

    moved: frozenset[int]
    bound: int
    clauses: tuple[frozenset[int], ...]

    @property
    def fewest(self) -> bool:
        """Whether it is proved that there is no smaller set."""
        return len(self.moved) == self.bound


def fewest(web: Web, seconds: float) -> Found:
    """The fewest literals to move; within the time, else a set of which no part can stay.

    Raises
    ------
    Rigid
        Some cycle has no literal.
    """
    deadline = time.monotonic() + seconds
    clauses: dict[frozenset[int], None] = {}
    best: frozenset[int] | None = None
    bound = 0
    while True:
        moved = _hitting(web, list(clauses), [], deadline - time.monotonic())
        if moved is None:
            break
        bound = len(moved)
        found, gone = _cycles(web, moved, deadline)
        if not found:
            return Found(moved, bound, tuple(clauses))
        clauses.update(dict.fromkeys(found))
        if best is None or len(gone) < len(best):
            best = gone
        if time.monotonic() > deadline:
            break
    if best is None:
        best = _cycles(web, _spare_copies(web), deadline)[1]
    return Found(_pruned(web, best, deadline + seconds), bound, tuple(clauses))


def others(web: Web, found: Found, most: int, seconds: float) -> Iterator[frozenset[int]]:
    """Other sets of literals as small as a proved one: at most so many, and not for long."""
    deadline = time.monotonic() + seconds
    clauses, seen = list(found.clauses), [found.moved]
    while len(seen) <= most and time.monotonic() < deadline:
        moved = _hitting(web, clauses, seen, deadline - time.monotonic(), len(found.moved))
        if moved is None:
            return
        cycles, _ = _cycles(web, moved, deadline)
        if cycles:
            clauses += cycles
            continue
        seen.append(moved)
        yield moved


def _spare_copies(web: Web) -> frozenset[int]:
    """All copies but the first of each group."""
    return frozenset(literal for group in web.only_one for literal in group[1:])


def _hitting(
    web: Web,
    clauses: Sequence[frozenset[int]],
    excluded: Sequence[frozenset[int]],
    seconds: float,
    size: int | None = None,
) -> frozenset[int] | None:
    """A least set of literals that meets every cycle; of a given size, and none of those excluded. None if unknown."""
    if not clauses and size is None:
        return _spare_copies(web)
    from ortools.sat.python import cp_model

    from bubbleproof.solver.cpsat.interrupt import solve_interruptibly

    model = cp_model.CpModel()
    moved = [model.new_bool_var("") for _ in range(web.literals)]
    for clause in clauses:
        model.add_bool_or(moved[literal] for literal in sorted(clause))
    for group in web.only_one:
        model.add_at_most_one(moved[literal].Not() for literal in group)
    for other in excluded:
        model.add_bool_or(moved[literal].Not() for literal in sorted(other))
    if size is None:
        model.minimize(sum(moved))
    else:
        model.add(sum(moved) == size)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.linearization_level = 2
    solver.parameters.max_time_in_seconds = max(0.1, seconds)
    status = solve_interruptibly(solver, model)
    if status == cp_model.OPTIMAL or (size is not None and status == cp_model.FEASIBLE):
        return frozenset(literal for literal, variable in enumerate(moved) if solver.boolean_value(variable))
    return None


def _cycles(web: Web, moved: Collection[int], deadline: float) -> tuple[list[frozenset[int]], frozenset[int]]:
    """Short cycles that are left, and a set of literals that leaves none; a coarse one when the time is up."""
    found: list[frozenset[int]] = []
    gone = set(moved)
    core: set[int] | None = None
    while core := web.core(gone, core):
        if found and time.monotonic() > deadline:
            gone.update(literal for node in core for _, literal in web.out[node] if literal != ALWAYS)
            if not web.core(gone, core):
                break
            # what is left are cycles without literals
        shortest: frozenset[int] | None = None
        for start in _starts(web, core):
            cycle = web.cycle(start, core, gone)
            if cycle is None:
                continue
            if not cycle[0]:
                raise Rigid(cycle[1])
            literals = frozenset(cycle[0])
            found.append(literals)
            if shortest is None or len(literals) < len(shortest):
                shortest = literals
        if shortest is None:  # none of the starts was on a cycle, so one of the rest is
            shortest = next(
                frozenset(cycle[0]) for node in sorted(core) if (cycle := web.cycle(node, core, gone)) is not None
            )
            if not shortest:
                raise Rigid(sorted(core))
            found.append(shortest)
        gone |= shortest
    return found, frozenset(gone)


def _starts(web: Web, core: set[int]) -> list[int]:
    """Nodes of the core from which cycles are looked for, spread over it."""
    nodes = sorted(node for node in core if web.lengths[node] or any(lit != ALWAYS for _, lit in web.out[node]))
    nodes = nodes or sorted(core)
    step = max(1, len(nodes) // _STARTS)
    return nodes[::step]


def _pruned(web: Web, moved: frozenset[int], deadline: float) -> frozenset[int]:
    """A part of the set that leaves no cycle either; without what is superfluous, as far as the time goes."""
    kept = set(moved)
    for literal in sorted(moved):
        if time.monotonic() > deadline:
            break
        group = next((group for group in web.only_one if literal in group), [])
        if any(other != literal and other not in kept for other in group):
            continue  # another copy is kept already
        if not web.core(kept - {literal}):
            kept.discard(literal)
    return frozenset(kept)
