"""Placing messages for runtimes whose sends and receives block: the order that delays the critical path least.

Where a transfer occupies both of its ranks until it has ended, a send that stands too early makes its rank wait for a
receiver that still computes (head-of-line blocking), and one that stands too late makes the receiver wait. Here the
step is built forward in time: of all ops and messages that could come next, the one that can start first is taken,
messages being preferred by a margin; every message is one step of both ranks, so the result is safe whatever the margin
(docs/semantics.md, theorem 8). Several margins are tried, and the order with the shortest step is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.schedule import Schedule

__all__ = ["Message", "place_messages"]

Place = tuple[int, int]
"""Rank and position of a slot."""


@dataclass(frozen=True)
class Message:
    """A message from one slot to another, on two different ranks, and the time that it takes."""

    source: Place
    target: Place
    time: int


def place_messages(
    schedule: Schedule, instance: Instance, messages: Sequence[Message], given: list[Place | int]
) -> list[Place | int]:
    """The best order found of all slots and messages: slots by place, messages by number.

    Parameters
    ----------
    given
        An order to start from; the result takes no longer.
    """
    lengths = [[instance.duration(slot) for slot in order] for order in schedule.orders]
    tails = _tails(schedule, lengths, messages)
    longest = max((length for row in lengths for length in row), default=0)
    best, shortest = given, _makespan(given, lengths, messages)
    for margin in sorted({0, longest // 4, longest // 2, longest, 2 * longest}):
        steps = _build(lengths, messages, tails, margin)
        makespan = _makespan(steps, lengths, messages)
        if makespan < shortest:
            best, shortest = steps, makespan
    return best


def _makespan(steps: Sequence[Place | int], lengths: Sequence[Sequence[int]], messages: Sequence[Message]) -> int:
    """Where each rank makes one call after the other and a transfer ends on both of its ranks together."""
    clock = [0] * len(lengths)
    for step in steps:
        if isinstance(step, int):
            message = messages[step]
            ends = message.source[0], message.target[0]
            clock[ends[0]] = clock[ends[1]] = max(clock[rank] for rank in ends) + message.time
        else:
            clock[step[0]] += lengths[step[0]][step[1]]
    return max(clock, default=0)


def _tails(schedule: Schedule, lengths: Sequence[Sequence[int]], messages: Sequence[Message]) -> Mapping[Place, int]:
    """For each slot the longest way from its start to the end of the step, along orders and messages."""
    after: dict[Place, list[tuple[Place, int]]] = {}
    missing: dict[Place, int] = {}
    for rank, order in enumerate(schedule.orders):
        for position in range(len(order)):
            missing[rank, position] = int(position + 1 < len(order))
    for message in messages:
        after.setdefault(message.target, []).append((message.source, message.time))
        missing[message.source] += 1
    tails = {place: lengths[place[0]][place[1]] for place in missing}
    ready = [place for place, count in missing.items() if not count]
    while ready:
        place = ready.pop()
        rank, position = place
        before = [*after.get(place, ()), *([((rank, position - 1), 0)] if position else [])]
        for earlier, time in before:
            tails[earlier] = max(tails[earlier], lengths[earlier[0]][earlier[1]] + time + tails[place])
            missing[earlier] -= 1
            if not missing[earlier]:
                ready.append(earlier)
    return tails


def _build(
    lengths: Sequence[Sequence[int]], messages: Sequence[Message], tails: Mapping[Place, int], margin: int
) -> list[Place | int]:
    """Forward in time with one margin."""
    leaving: dict[Place, list[int]] = {}
    arriving: dict[Place, int] = {}
    for number, message in enumerate(messages):
        leaving.setdefault(message.source, []).append(number)
        arriving[message.target] = arriving.get(message.target, 0) + 1
    at, clock = [0] * len(lengths), [0] * len(lengths)
    pending: list[int] = []
    steps: list[Place | int] = []
    left = sum(map(len, lengths)) + len(messages)
    while left:
        left -= 1
        choice: tuple[int, int, int, Place | int] | None = None
        for number in pending:
            source, target = messages[number].source, messages[number].target
            start = max(clock[source[0]], clock[target[0]])
            choice = _earlier(choice, (start - margin, 0, -tails[target], number))
        for rank, row in enumerate(lengths):
            place = rank, at[rank]
            if place[1] < len(row) and not arriving.get(place):
                choice = _earlier(choice, (clock[rank], 1, -tails[place], place))
        assert choice is not None  # a schedule with a timeline cannot deadlock
        step = choice[3]
        steps.append(step)
        if isinstance(step, int):
            message = messages[step]
            ends = message.source[0], message.target[0]
            clock[ends[0]] = clock[ends[1]] = max(clock[rank] for rank in ends) + message.time
            pending.remove(step)
            arriving[message.target] -= 1
        else:
            rank, position = step
            clock[rank] += lengths[rank][position]
            at[rank] += 1
            pending.extend(leaving.get(step, ()))
    return steps


def _earlier(
    best: tuple[int, int, int, Place | int] | None, other: tuple[int, int, int, Place | int]
) -> tuple[int, int, int, Place | int]:
    return other if best is None or other[:3] < best[:3] else best
