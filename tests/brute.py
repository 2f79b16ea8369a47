"""The least makespan of a tiny instance by trying everything; from docs/semantics.md, shared with nothing.

Ops run one by one in every order in which they can; a state that is no better than another one in any respect is left
out. No pairs.
"""

from __future__ import annotations

from bubbleproof.schedules.instance import Instance

Job = tuple[str, int, int]
"""Kind, stage, microbatch."""


class Tiny:
    """An instance as plain tables."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        placement = instance.placement
        edges = getattr(placement, "edges", ()) or [(s, s + 1) for s in range(instance.stages - 1)]
        self.before = {s: [a for a, b in edges if b == s] for s in range(instance.stages)}
        self.after = {s: [b for a, b in edges if a == s] for s in range(instance.stages)}
        self.cells = [(s, j) for j in range(instance.microbatches) for s in range(instance.stages)]

    def ranks(self, stage: int, j: int) -> tuple[int, ...]:
        placement = self.instance.placement
        groups = getattr(placement, "groups", ())
        return groups[stage] if groups else (placement.routes[self.instance.route_of_microbatch[j]][stage],)

    def lasts(self, job: Job) -> int:
        kind, stage, j = job
        costs = self.instance.costs
        stated = dict(costs.varying).get(kind)
        return (getattr(costs, kind)[stage] if stated is None else stated[stage][j]) + costs.overhead

    def changes(self, job: Job) -> int:
        kind, stage, j = job
        memory = self.instance.memory
        stated = dict(memory.varying).get(kind)
        return getattr(memory, kind)[stage] if stated is None else stated[stage][j]

    def travels(self, source: int, target: int, j: int) -> int:
        costs = self.instance.costs
        return (
            0
            if source == target
            else max(costs.message(a, b) for a in self.ranks(source, j) for b in self.ranks(target, j))
        )

    def inputs(self, job: Job, ends: dict[Job, int]) -> list[int] | None:
        """When each input arrives; None if one has not run."""
        kind, stage, j = job
        wanted: list[tuple[tuple[str, ...], int]] = []
        if kind == "F":
            wanted = [(("F",), s) for s in self.before[stage]]
        elif kind == "W":
            wanted = [(("B",), stage)]
        else:
            wanted = [(("F",), stage), *((("B", "BW"), s) for s in self.after[stage])]
        arrivals = []
        for kinds, s in wanted:
            made = [ends[k, s, j] for k in kinds if (k, s, j) in ends]
            if not made:
                return None
            arrivals.append(made[0] + self.travels(s, stage, j))
        return arrivals

    def next_jobs(self, ends: dict[Job, int]) -> list[Job]:
        found: list[Job] = []
        for s, j in self.cells:
            if ("F", s, j) not in ends:
                found.append(("F", s, j))
            elif ("B", s, j) in ends:
                if ("W", s, j) not in ends:
                    found.append(("W", s, j))
            elif ("BW", s, j) not in ends:
                found.append(("BW", s, j))
                if self.instance.costs.split:
                    found.append(("B", s, j))
        return found

    def awaited(self, job: Job, ends: dict[Job, int]) -> bool:
        """Whether something that needs this job has not run."""
        kind, stage, j = job
        if kind == "F":
            users = [("F", s) for s in self.after[stage]] + [("B", stage)]
        else:
            users = [("B", s) for s in self.before[stage]] + ([("W", stage)] if kind == "B" else [])
        return any((k, s, j) not in ends and (k != "B" or ("BW", s, j) not in ends) for k, s in users)

    def work_left(self, ends: dict[Job, int]) -> list[int]:
        """For each rank the least time of what it still has to run."""
        found = [0] * self.instance.ranks
        for s, j in self.cells:
            rest = 0 if ("F", s, j) in ends else self.lasts(("F", s, j))
            whole, half = self.lasts(("BW", s, j)), self.lasts(("W", s, j))
            if ("B", s, j) in ends:
                rest += 0 if ("W", s, j) in ends else half
            elif ("BW", s, j) not in ends:
                rest += min(whole, self.lasts(("B", s, j)) + half) if self.instance.costs.split else whole
            for rank in self.ranks(s, j):
                found[rank] += rest
        return found


def least_makespan(instance: Instance) -> int:
    """The least makespan of all schedules without pairs."""
    tiny = Tiny(instance)
    start = (0,) * instance.ranks
    static = instance.memory.static
    cap = instance.memory.cap
    seen: dict[frozenset[Job], list[tuple[int, ...]]] = {}
    best = 1 << 60
    stack: list[tuple[int, tuple[int, ...], tuple[int, ...], dict[Job, int]]] = [(0, start, static, {})]
    while stack:
        last, free, level, ends = stack.pop()  # jobs are begun in the order of their starts
        jobs = tiny.next_jobs(ends)
        if not jobs:
            best = min(best, max(free))
            continue
        if any(at + rest >= best for at, rest in zip(free, tiny.work_left(ends), strict=True)):
            continue
        state = (last, *free, *(ends[job] for job in sorted(ends) if tiny.awaited(job, ends)))
        others = seen.setdefault(frozenset(ends), [])
        if any(all(x <= y for x, y in zip(other, state, strict=True)) for other in others):
            continue
        others[:] = [other for other in others if not all(x <= y for x, y in zip(state, other, strict=True))]
        others.append(state)
        for job in jobs:
            arrivals = tiny.inputs(job, ends)
            if arrivals is None:
                continue
            ranks = tiny.ranks(job[1], job[2])
            begin = max([*arrivals, *(free[r] for r in ranks)])
            if begin < last:
                continue
            end = begin + tiny.lasts(job)
            held = tuple(x + tiny.changes(job) * (r in ranks) for r, x in enumerate(level))
            if cap is not None and any(x > most for x, most in zip(held, cap, strict=True)):
                continue
            stack.append((begin, tuple(end if r in ranks else x for r, x in enumerate(free)), held, {**ends, job: end}))
    return best
