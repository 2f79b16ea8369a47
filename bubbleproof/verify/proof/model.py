"""The model that a proof refutes: "there is a schedule of length at most T", as docs/proofs.md derives it.

The checker builds it from the instance. The solver that is asked for a proof is given this very model, so nothing that
a solver or a file says about the instance is ever believed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bubbleproof.schedules.instance import Instance
from bubbleproof.verify.proof.ops import Ops, Unmodelled, earliest

__all__ = ["Constraint", "Disjunctive", "Linear", "Model", "Variable", "build"]


@dataclass(frozen=True)
class Variable:
    """An integer in low … high; the start of an op, the first start of a rank, or whether an op precedes another."""

    name: str
    low: int
    high: int
    boolean: bool = False


@dataclass(frozen=True)
class Linear:
    """Σ coefficient · variable ≤ bound; if `when` is given, only if that 0–1 variable has the value given with it."""

    terms: tuple[tuple[int, int], ...]
    bound: int
    when: tuple[int, int] | None = None


@dataclass(frozen=True)
class Disjunctive:
    """(start variable, duration) of tasks of which at most one runs at any time."""

    tasks: tuple[tuple[int, int], ...]


Constraint = Linear | Disjunctive


@dataclass
class Model:
    """Variables, numbered from 0, and constraints, numbered from 1."""

    variables: list[Variable] = field(default_factory=list)
    constraints: list[Constraint] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether a variable has no value or a sum without terms is above its bound: that refutes the model."""
        return any(v.low > v.high for v in self.variables) or any(
            isinstance(c, Linear) and not c.terms and c.bound < 0 for c in self.constraints
        )

    def add(self, name: str, low: int, high: int, *, boolean: bool = False) -> int:
        """Add a variable; returns its number."""
        self.variables.append(Variable(name, low, high, boolean))
        return len(self.variables) - 1

    def at_most(self, *terms: tuple[int, int], bound: int, when: tuple[int, int] | None = None) -> None:
        """Add Σ coefficient · variable ≤ bound, unless it has no terms and holds anyway."""
        if terms or bound < 0:
            self.constraints.append(Linear(terms, bound, when))

    def precede(self, first: int, second: int, lag: int, when: tuple[int, int] | None = None) -> None:
        """Add second ≥ first + lag."""
        self.at_most((1, first), (-1, second), bound=-lag, when=when)


def build(instance: Instance, length: int) -> Model:
    """The model of the schedules of an instance whose objective is at most `length`.

    Raises
    ------
    Unmodelled
        The instance has something that the model does not cover.
    """
    return _Builder(instance, length).model


class _Builder:
    def __init__(self, instance: Instance, length: int) -> None:
        self.instance, self.length = instance, length
        self.model = Model()
        self.data = Ops(instance)
        self.orders: dict[tuple[int, int], int] = {}
        """For two ops of a rank, the one with the lower number first, the variable that says which comes first."""
        self.duration = [op.duration for op in self.data.ops]
        forwards = range(len(self.duration))
        self.peers_before = [self._peers(i, self.data.ancestors[i]) for i in forwards]
        descendants = [0] * len(self.duration)
        for i in reversed(forwards):
            for target, _ in self.data.after[i]:
                descendants[i] |= descendants[target] | 1 << target
        self.peers_after = [self._peers(i, descendants[i]) for i in forwards]
        # read backwards in time an edge of lag L from u to v is one of lag d(v) + L − d(u) from v to u
        self.reverse = [
            [(v, self.duration[v] + lag - self.duration[u]) for v, lag in found]
            for u, found in enumerate(self.data.after)
        ]
        if instance.objective == "makespan":
            self._makespan_windows()
        else:
            self._span_windows()
        self._precedences()
        self._one_at_a_time()
        if instance.objective == "span":
            self._spans()
        if self.data.room is not None:
            for rank, room in enumerate(self.data.room):
                self._memory(rank, room)
        self._monotony()

    def _peers(self, index: int, found: int) -> list[int]:
        return [i for i in self.data.of_rank[self.data.ops[index].rank] if found >> i & 1]

    def _heads(self, begin: Sequence[int | None]) -> list[int | None]:
        return earliest(range(len(begin)), self.data.before, self.peers_before, self.duration, begin)

    def _tails(self, begin: Sequence[int | None]) -> list[int | None]:
        return earliest(range(len(begin))[::-1], self.reverse, self.peers_after, self.duration, begin)

    def _makespan_windows(self) -> None:
        n = len(self.duration)
        self._windows(self._heads([0] * n), self._tails([0] * n), self.length)

    def _span_windows(self) -> None:
        """The first start of all is that of the first forward, at 0; its rank ends by T, and every rank by 2T."""
        if len(self.data.sorts) > 1:
            raise Unmodelled("no proof: proofs about the span need a single route and equal microbatches")
        n, origin = len(self.duration), self.data.ops[0].rank
        self._windows(
            self._heads([0] * n),
            self._tails([0 if op.rank == origin else None for op in self.data.ops]),
            2 * self.length,
        )
        self.model.variables[0] = Variable(self.data.ops[0].name, 0, 0)

    def _windows(self, heads: list[int | None], tails: list[int | None], horizon: int) -> None:
        for op, head, tail in zip(self.data.ops, heads, tails, strict=True):
            high = horizon if tail is None else self.length - tail
            self.model.add(op.name, head or 0, high - op.duration)

    def _precedences(self) -> None:
        for index, found in enumerate(self.data.before):
            for source, lag in found:
                self.model.precede(source, index, lag)

    def _one_at_a_time(self) -> None:
        for mine in self.data.of_rank:
            tasks = tuple((i, self.duration[i]) for i in mine if self.duration[i])
            if len(tasks) > 1:
                self.model.constraints.append(Disjunctive(tasks))

    def _spans(self) -> None:
        """No rank ends later than T after its first start; its ops keep their distances from both."""
        for rank, mine in enumerate(self.data.of_rank):
            begin = [0 if op.rank == rank else None for op in self.data.ops]
            heads, tails = self._heads(begin), self._tails(begin)
            first = self.model.add(f"first{rank}", 0, self.length if rank != self.data.ops[0].rank else 0)
            for i in mine:
                self.model.precede(first, i, heads[i] or 0)
                self.model.precede(i, first, self.duration[i] + (tails[i] or 0) - self.length)

    def _memory(self, rank: int, room: int) -> None:
        """The level right after each op that takes memory, counted over the order of the rank."""
        ops = self.data.ops
        mine = [i for i in self.data.of_rank[rank] if ops[i].change]
        classes = {(ops[i].sort, ops[i].stage, ops[i].kind) for i in mine}
        if sum(max(0, ops[i].change) for i in mine) <= room or len(classes) == 2:
            return  # everything fits at once; or one class takes and one frees, and the edges of `Ops` say it all
        for i in mine:
            if ops[i].change <= 0:
                continue
            level, terms = ops[i].change, []
            for other in mine:
                known = self._comes_before(other, i)
                if known is True:
                    level += ops[other].change
                elif known is not False:
                    variable, value = known
                    if value:
                        terms.append((ops[other].change, variable))
                    else:
                        level += ops[other].change
                        terms.append((-ops[other].change, variable))
            self.model.at_most(*terms, bound=room - level)

    def _comes_before(self, a: int, b: int) -> bool | tuple[int, int]:
        """Whether op a comes before op b on their rank; if open, the 0–1 variable and the value that says so."""
        if a == b or self.data.ancestors[a] >> b & 1:
            return False
        if self.data.ancestors[b] >> a & 1:
            return True
        first, second = self.model.variables[a], self.model.variables[b]
        if first.low + self.duration[a] > second.high:
            return False
        if second.low + self.duration[b] > first.high:
            return True
        low, high = min(a, b), max(a, b)
        found = self.orders.get((low, high))
        if found is None:
            found = self._new_order(low, high)
        return found, int(a == low)

    def _new_order(self, a: int, b: int) -> int:
        """A 0–1 variable that is 1 if op a comes before op b, else b comes before a."""
        name = f"{self.data.ops[a].name}__{self.data.ops[b].name}"
        found = self.orders[a, b] = self.model.add(name, 0, 1, boolean=True)
        self.model.precede(a, b, self.duration[a], when=(found, 1))
        self.model.precede(b, a, self.duration[b], when=(found, 0))
        return found

    def _monotony(self) -> None:
        """If an op comes before another, so does the one before it in its class; and also before the next of that."""
        for a, b in list(self.orders):
            for x, y in ((a, b), (b, a)):
                later = self._next(x)
                if later is not None:
                    self._implies((later, y), (x, y))
                later = self._next(y)
                if later is not None:
                    self._implies((x, y), (x, later))

    def _next(self, index: int) -> int | None:
        op = self.data.ops[index]
        return self.data.find(op.kind, op.stage, op.sort, op.k + 1)

    def _implies(self, this: tuple[int, int], that: tuple[int, int]) -> None:
        """Add "this order holds only if that one does", if both are open."""
        terms, bound = [], 0
        for (a, b), sign in ((this, 1), (that, -1)):
            variable = self.orders.get((min(a, b), max(a, b)))
            if variable is None:
                return
            if a < b:
                terms.append((sign, variable))
            else:
                terms.append((-sign, variable))
                bound -= sign
        self.model.at_most(*terms, bound=bound)
