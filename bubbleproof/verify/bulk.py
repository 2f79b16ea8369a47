"""Large schedules: the same judgement on arrays, without a Python object for any op.

Every rule is checked as one question about whole arrays. If the answer is that all hold, that is the verdict. If
any fails, the judge of single ops looks at the schedule again, since it can say what is wrong and where.

Source: docs/large.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.table import CODES, Table
from bubbleproof.verify.bulk_run import Runs, earliest_starts
from bubbleproof.verify.case import Case
from bubbleproof.verify.judge import ALWAYS_ASSUMED, rules_for, verify
from bubbleproof.verify.report import Facts, Report, Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bubbleproof.verify.exchange import Target

__all__ = ["Places", "durations", "earliest", "figures", "prove", "prove_starts", "verify_table"]

_F, _B, _W, _BW = (CODES[kind] for kind in ("F", "B", "W", "BW"))
_LETTER = np.array([0, 1, 2, 1], np.int64)
"""Of each kind of op the unit that it provides: F, the backward in either form, W."""
_SAFE = 1 << 62
"""Sums of times and of memory stay below this, or they are not left to 64-bit integers."""


def verify_table(
    table: Table, instance: Instance, *, target: Target | None = None, listed_per_rule: int = 10
) -> Report:
    """Judge a schedule that is given as arrays; the report equals that of `verify`.

    Parameters
    ----------
    table
        Ops only.
    target
        A runtime whose own rules hold as well.

    Returns
    -------
    Report
        Of a schedule that holds in every rule, found in time and memory linear in the number of ops. Otherwise made by
        `verify`, which takes about a gigabyte for three million ops.
    """
    facts = prove(table, instance, target=target)
    if facts is None:
        return verify(table.schedule(), instance, target=target, listed_per_rule=listed_per_rule)
    nothing_claimed = Case(Schedule.of([()] * instance.ranks), instance, target=target)
    idle = {rule.id: rule.idle(nothing_claimed) for rule in rules_for(target)}
    return Report(
        verdict=Verdict.PROVED,
        violations=(),
        counts={},
        rules=tuple(identity for identity, reason in idle.items() if not reason),
        assumptions=tuple(dict.fromkeys([*ALWAYS_ASSUMED, *filter(None, idle.values())])),
        facts=facts,
        listed_per_rule=listed_per_rule,
    )


def prove(
    table: Table,
    instance: Instance,
    *,
    target: Target | None = None,
    timeline: Sequence[Sequence[int]] | None = None,
) -> Facts | None:
    """The figures of a schedule that breaks no rule; None if it breaks one or is judged one by one.

    Parameters
    ----------
    timeline
        Claimed starts, integers, for each rank one per slot; they must obey the rules too.
    """
    places = Places.of(table, instance)
    found = None if places is None else figures(table, instance, places, target)
    if found is None or places is None or timeline is None:
        return found
    claimed = _claimed(table, instance, places, timeline)
    return None if claimed is None else replace(found, claimed_makespan=claimed[0], claimed_span=claimed[1])


class Proved(NamedTuple):
    """Makespan and span of claimed starts that hold, and the peak of every rank."""

    makespan: int
    span: int
    peak: tuple[int, ...]


def prove_starts(table: Table, instance: Instance, starts: NDArray[np.int64]) -> Proved | None:
    """The figures of a schedule with claimed starts; None if a rule is broken or this check is not enough.

    Every op must last. Then starts that obey the rules rise along every edge, so there is no deadlock, and the schedule
    need not be run: theorem L3 of docs/large.md.

    Parameters
    ----------
    starts
        One per slot, row after row.
    """
    costs = instance.costs
    if costs.channel != "latency" or costs.varying or instance.memory.varying or not instance.placement.plain:
        return None
    places = Places.of(table, instance)
    if places is None or len(starts) != places.slots or not _sums_are_safe(table, instance):
        return None
    peak = peaks(table, instance)
    if peak is None or not (durations(table, instance, places) > 0).all():
        return None
    claimed = _of_starts(table, instance, places, starts)
    return None if claimed is None else Proved(*claimed, peak)


def _claimed(
    table: Table, instance: Instance, places: Places, timeline: Sequence[Sequence[int]]
) -> tuple[int, int] | None:
    """Makespan and span of claimed starts; None if they are no timeline of the schedule (V401 to V404)."""
    if [len(row) for row in timeline] != np.diff(places.offsets).tolist():
        return None
    starts: NDArray[np.int64] = np.fromiter((start for row in timeline for start in row), np.int64, places.slots)
    return _of_starts(table, instance, places, starts)


def _of_starts(table: Table, instance: Instance, places: Places, starts: NDArray[np.int64]) -> tuple[int, int] | None:
    """As `_claimed`, of as many starts as there are slots."""
    needs = _needs(instance, places)
    if needs is None:
        return None
    if (starts < 0).any() or (starts >= _SAFE >> 1).any():
        return None
    ends = starts + durations(table, instance, places)
    in_order = starts[1:] >= ends[:-1]
    in_order[places.offsets[1:-1][(places.offsets[1:-1] > 0) & (places.offsets[1:-1] < places.slots)] - 1] = True
    if not in_order.all():
        return None
    for needed, delay in zip(*needs, strict=True):
        waiting = np.flatnonzero(needed >= 0)
        if (starts[waiting] < ends[needed[waiting]] + delay[waiting]).any():
            return None
    return _whole(places, starts, ends)


def figures(table: Table, instance: Instance, places: Places, target: Target | None) -> Facts | None:
    """As `prove`; not for channels, figures per microbatch, graphs and gangs of stages, and sums beyond 62 bits."""
    costs = instance.costs
    if costs.channel != "latency" or costs.varying or instance.memory.varying or not instance.placement.plain:
        return None
    if not _sums_are_safe(table, instance):
        return None
    peak = peaks(table, instance)
    if peak is None or (target == "torch" and not _last_stage_in_order(table, instance)):
        return None
    times = _extent(table, instance, places)
    return None if times is None else Facts(places.slots, *times, peak)


def _last_stage_in_order(table: Table, instance: Instance) -> bool:
    """Whether the last stage runs its forwards in microbatch order on each rank that holds it (V705)."""
    forwards = np.flatnonzero((table.kind == _F) & (table.stage == instance.stages - 1))
    microbatch, rank = table.microbatch[forwards], table.rank[forwards]
    return not ((microbatch[1:] < microbatch[:-1]) & (rank[1:] == rank[:-1])).any()


def _sums_are_safe(table: Table, instance: Instance) -> bool:
    costs, memory = instance.costs, instance.memory
    longest = max(map(max, (costs.F, costs.B, costs.W, costs.BW, costs.overlap_B or (0,), costs.overlap_BW or (0,))))
    message = max([costs.default_comm, *(time for _, time in costs.comm)])
    change = max(abs(value) for row in (memory.F, memory.B, memory.W, memory.BW, memory.static) for value in row)
    return (2 * (longest + costs.overhead) + message + change) * (len(table) + 1) < _SAFE


class Places:
    """Where everything is, of a complete schedule whose ops all stand on their ranks.

    Parameters
    ----------
    units
        int64, shape (3, m·S): the entry of F, of the backward and of W for each cell (stage·m + microbatch); −1 where
        there is no W because the backward is fused. The attribute `units` has the slots instead.
    """

    def __init__(self, table: Table, units: NDArray[np.int64]) -> None:
        self.slot = np.cumsum(~table.joined) - 1
        self.slots = int(self.slot[-1]) + 1
        self.first = np.flatnonzero(~table.joined)
        self.rank = table.rank[self.first]
        counts = np.bincount(self.rank, minlength=table.ranks)
        self.offsets = np.concatenate(([0], np.cumsum(counts)))
        self.entries = units
        self.units = np.where(units < 0, -1, self.slot[units])

    @classmethod
    def of(cls, table: Table, instance: Instance) -> Places | None:
        """The places, or None if V101 to V107 do not all hold."""
        m, stages, split = instance.microbatches, instance.stages, instance.costs.split
        kind, stage, microbatch, joined = table.kind, table.stage, table.microbatch, table.joined
        cells, count = m * stages, len(table)
        if table.ranks != instance.ranks or not table.only_ops or not 2 * cells <= count <= 3 * cells:
            return None
        if (
            int(stage.min()) < 0
            or int(stage.max()) >= stages
            or int(microbatch.min()) < 0
            or int(microbatch.max()) >= m
        ):
            return None
        if int(kind.min()) < 0 or int(kind.max()) > max(_F, _B, _W, _BW):
            return None
        routes = np.array(instance.placement.routes, np.int32)
        route = np.array(instance.route_of_microbatch, np.int8)
        if not np.array_equal(routes[route[microbatch], stage], table.rank):
            return None
        kinds = np.bincount(kind, minlength=4)
        if kinds[_F] != cells or kinds[_B] + kinds[_BW] != cells or kinds[_B] != kinds[_W]:
            return None
        if kinds[_B] and not split:
            return None
        cell = stage.astype(np.int64) * m + microbatch
        units: NDArray[np.int64] = np.full(3 * cells, -1, np.int64)
        units[_LETTER[kind] * cells + cell] = np.arange(count)
        # as many of each as there are cells, and no cell without one: each occurs exactly once
        units = units.reshape((3, cells))
        if (units[:2] < 0).any() or not np.array_equal(units[2] >= 0, kind[units[1]] == _B):
            return None
        if joined.any():
            second = np.flatnonzero(joined)
            if second[0] == 0 or joined[second - 1].any() or np.isin(second, table.offsets).any():
                return None
            pair = (kind[second - 1] == _F) & ((kind[second] == _B) | (kind[second] == _BW))
            if not (pair & (microbatch[second - 1] != microbatch[second])).all():
                return None
        return cls(table, units)


def peaks(table: Table, instance: Instance) -> tuple[int, ...] | None:
    """The peak of every rank; None if one is over its cap."""
    memory = instance.memory
    change = np.array([memory.F, memory.B, memory.W, memory.BW], np.int64)[table.kind, table.stage]
    level = np.cumsum(change)
    found = list(memory.static)
    for rank, (begin, end) in enumerate(zip(table.offsets[:-1].tolist(), table.offsets[1:].tolist(), strict=True)):
        if end > begin:
            before = int(level[begin - 1]) if begin else 0
            found[rank] += max(0, int(level[begin:end].max()) - before)
    if memory.cap is not None and any(peak > cap for peak, cap in zip(found, memory.cap, strict=True)):
        return None
    return tuple(found)


def durations(table: Table, instance: Instance, places: Places) -> NDArray[np.int64]:
    """The duration of every slot."""
    costs = instance.costs
    each = np.array([costs.F, costs.B, costs.W, costs.BW], np.int64)[table.kind, table.stage] + costs.overhead
    found = each[places.first]
    second = np.flatnonzero(table.joined)
    found[places.slot[second]] += each[second]
    for kind, together in ((_B, costs.overlap_B), (_BW, costs.overlap_BW)):
        if together is not None:
            these = second[table.kind[second] == kind]
            found[places.slot[these]] = np.array(together, np.int64)[table.stage[these - 1]] + costs.overhead
    return found


def _needs(instance: Instance, places: Places) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """For each slot the slots on other ranks that it needs, forward and backward, and the times of their messages.

    Returns
    -------
    tuple of two int64 arrays of shape (2, slots), −1 where nothing is needed, or None if an op stands before its input
    on its own rank (V201).
    """
    m, last = instance.microbatches, instance.stages - 1
    route_of = np.array(instance.route_of_microbatch, np.int8)
    messages = _messages(instance)
    found = np.full((2, places.slots), -1, np.int64)
    delay = np.zeros((2, places.slots), np.int64)
    forward, backward, weight = places.units
    cells = np.arange(m * (last + 1))
    split = weight >= 0
    if (backward < forward).any() or (weight[split] < backward[split]).any():
        return None
    upper = cells[m:]  # all but those of the first stage
    for row, needing, needed in (
        (0, forward[upper], forward[upper - m]),
        (1, backward[upper - m], backward[upper]),
    ):
        crossing = places.rank[needing] != places.rank[needed]
        if (needing[~crossing] < needed[~crossing]).any():
            return None
        edge = upper[crossing]
        found[row, needing[crossing]] = needed[crossing]
        delay[row, needing[crossing]] = messages[row][route_of[edge % m], edge // m - 1]
    return found, delay


def _messages(instance: Instance) -> NDArray[np.int64]:
    """Shape (2, routes, S − 1): the time of a message from stage s to s + 1, and from s + 1 to s, on each route."""
    message = instance.costs.message
    return np.array(
        [
            [[message(a, b) for a, b in pairwise(route)] for route in instance.placement.routes],
            [[message(b, a) for a, b in pairwise(route)] for route in instance.placement.routes],
        ],
        np.int64,
    )


def _starts(table: Table, instance: Instance, places: Places) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """The earliest start of every slot and its duration; None if the schedule cannot be run.

    Slots that wait for no other rank join the slot before them to one run.
    """
    needs = _needs(instance, places)
    if needs is None:
        return None
    needed, delay = needs
    duration = durations(table, instance, places)
    head: NDArray[np.bool_] = np.any(needed >= 0, axis=0)
    head[places.offsets[:-1][np.diff(places.offsets) > 0]] = True
    heads, run = np.flatnonzero(head), np.cumsum(head) - 1
    until = np.cumsum(duration)
    since = (until - duration)[heads]
    sources, delays = np.full((len(heads), 2), len(heads)), np.zeros((len(heads), 2), np.int64)
    for row in range(2):
        mine = np.flatnonzero(needed[row, heads] >= 0)
        slot = needed[row, heads[mine]]
        sources[mine, row] = run[slot]
        delays[mine, row] = until[slot] - since[run[slot]] + delay[row, heads[mine]]
    lengths = np.append(since[1:], until[-1:]) - since
    starts = earliest_starts(Runs(sources, delays, lengths, np.searchsorted(heads, places.offsets)))
    if starts is None:
        return None
    return (until - duration) + (starts - since)[run], duration


def _extent(table: Table, instance: Instance, places: Places) -> tuple[int, int] | None:
    """Makespan and span of the earliest starts; None if the schedule cannot be run."""
    found = _starts(table, instance, places)
    if found is None:
        return None
    starts, lasts = found
    return _whole(places, starts, starts + lasts)


def _whole(places: Places, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> tuple[int, int]:
    """Makespan and span of starts and ends."""
    busy = np.diff(places.offsets) > 0
    begin, end = starts[places.offsets[:-1][busy]], ends[places.offsets[1:][busy] - 1]
    return int(end.max() - begin.min()), int((end - begin).max())


def earliest(table: Table, instance: Instance) -> NDArray[np.int64] | None:
    """The earliest start of every slot, in the order of the table, of a schedule that breaks no rule of order."""
    places = Places.of(table, instance)
    found = None if places is None else _starts(table, instance, places)
    return None if found is None else found[0]
