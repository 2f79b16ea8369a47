"""The rule `crossing` of docs/bounds.md: least times over all patterns in which microbatches in flight meet.

Forwards climb the pipeline while backwards come down, and each pair of microbatches in flight meets once. Where it does
is one integer per pair. For given integers the times follow by additions and maxima alone; `Crossings.least` goes
through all integers, microbatch after microbatch, and keeps only states that no other state beats everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TypeAlias

import msgspec

from bubbleproof.verify.normal_form import Refused, Step

__all__ = ["FIRST", "Crossings", "State", "TooManyStates", "crossing", "crossings"]

_NEVER = -(1 << 60)

_MOST = 40_000_000
"""Comparisons of states after which the checker gives up: well below a minute."""

State: TypeAlias = tuple[int, ...]
"""The load of earlier backwards, then the values of the backwards under way, the oldest first."""

FIRST: State = (_NEVER, 0)
"""The state when microbatch 0 has started."""


class TooManyStates(Exception):  # a signal that the enumeration was given up
    """The enumeration is larger than allowed."""


class Crossings(msgspec.Struct, frozen=True):
    """What the rule needs of an instance; times in its unit, names in brackets those of docs/bounds.md.

    Parameters
    ----------
    ranks
        Number of ranks [p] from the one whose cap counts to the last of the route, at least 2.
    cap
        Number of microbatches [n] that may be in flight on the first of them, at least 2.
    turn
        Forward, backward and the two messages between neighbours together [G].
    slack
        The two messages together [2c].
    forward
        Least duration of a forward [f].
    lap
        Least increase of the value from a backward's end to the start of the forward n later [pG + w − 2c].
    load
        Least time per microbatch on the first rank [D].
    """

    ranks: int
    cap: int
    turn: int
    slack: int
    forward: int
    lap: int
    load: int

    @property
    def trip(self) -> int:
        """From the start of a forward on the first rank to the end of its backward there, without waiting."""
        return self.ranks * self.turn - self.slack

    def later(self, kept: Sequence[int]) -> list[int]:
        """Least increase of the value from each of the microbatches kept to the last of them."""
        least, back, following = [0] * len(kept), self.turn - self.slack, self._following(kept)
        for i in range(len(kept) - 2, -1, -1):
            least[i] = least[i + 1] + (kept[i + 1] - kept[i]) * back
            after = following[i]
            if after is not None:
                least[i] = max(least[i], self.back(kept[i], kept[after]) + least[after])
        return least

    def _following(self, kept: Sequence[int]) -> list[int | None]:
        """For each of those kept the place of the first one that is at least n later; None if there is none."""
        found: list[int | None] = []
        after = 0
        for i in kept:
            while after < len(kept) and kept[after] - i < self.cap:
                after += 1
            found.append(after if after < len(kept) else None)
        return found

    def back(self, i: int, j: int) -> int:
        """Least increase from the end of backward i to the start of forward j, at least n later."""
        return self.lap + (j - i - self.cap) * self.load

    def least(self, kept: Sequence[int], target: int, most: int = _MOST) -> tuple[int | None, int]:
        """The least value of the last microbatch over all patterns in which those kept can meet.

        Parameters
        ----------
        kept
            Microbatches, ascending, 0 the first of them.
        target
            Values above this are not looked for.
        most
            Number of comparisons of states after which to give up.

        Returns
        -------
        tuple
            The value, None if it is above `target`; and the number of comparisons that were made.

        Raises
        ------
        TooManyStates
            The enumeration was given up.
        """
        later, following, compared, oldest = self.later(kept), self._following(kept), 0, 0
        states: list[State] = [FIRST]
        for at in range(1, len(kept)):
            j, gone = kept[at], oldest
            while j - kept[oldest] >= self.cap:
                oldest += 1
            begun = (self.start(state, kept[gone:oldest], j - kept[at - 1], j) for state in states)
            states = [state for state in begun if state[-1] + later[at] <= target]
            for place in range(1, at - oldest + 1):
                i = kept[oldest + place - 1]
                back = following[oldest + place - 1]
                room = target - (0 if back is None else self.back(i, kept[back]) + later[back])
                found: set[State] = set()
                for state in states:
                    for _, new in self.meet(state, place, (j - i if place == at - oldest else 0)):
                        if new[-1] + later[at] <= target and new[place] <= room:
                            found.add(new)
                states, work = _undominated(found)
                compared += work
                if compared > most:
                    raise TooManyStates
            if at + 1 < len(kept):
                latest = target - later[at + 1] - self.turn + self.slack
                states = [state for state in states if max(state[1:]) <= latest]
        return min((state[-1] for state in states), default=None), compared

    def start(self, state: State, gone: Sequence[int], ahead: int, j: int) -> State:
        """The state in which forward j, `ahead` after the last one kept, has just started on the first rank."""
        load = state[0] + ahead * self.load
        for i, value in zip(gone, state[1:], strict=False):
            load = max(load, value + (j - i - self.cap) * self.load)
        start = load + self.lap if load >= 0 else j * self.forward
        if len(gone) + 1 == len(state):  # it meets none: the last rank has run all in between
            start = max(start, state[-1] + ahead * (self.turn - self.slack))
        return (load, *state[1 + len(gone) :], start)

    def meet(self, state: State, place: int, after: int) -> Iterable[tuple[int, State]]:
        """On which rank from the end the newest forward meets a backward, and the state after one waited for the other.

        If it is the last one it meets, it is `after` microbatches after it, and the last rank has run all in between.
        Other meetings are no better than these.
        """
        backward, forward = state[place], state[-1]
        ahead = forward - backward
        low = min(max((ahead + self.slack) // self.turn, 1), self.ranks)
        high = min(max(-(-ahead // self.turn), 1), self.ranks)
        for steps in (low, high) if high > low else (low,):
            waits = backward if steps == self.ranks else max(backward, forward - steps * self.turn)
            goes = max(forward, backward + steps * self.turn - self.slack, backward + after * (self.turn - self.slack))
            yield steps, (*state[:place], waits, *state[place + 1 : -1], goes)


def _undominated(states: Iterable[State]) -> tuple[list[State], int]:
    """The states than which no other one is everywhere at least as early; and how many comparisons that took."""
    kept: list[State] = []
    compared = 0
    for state in sorted(states, key=sum):
        compared += 1 + len(kept)
        for other in kept:
            for a, b in zip(other, state, strict=True):
                if a > b:
                    break
            else:
                break
        else:
            kept.append(state)
    return kept, compared


def crossings(step: Step, rank: int) -> Crossings:
    """What the rule needs, with the cap of one rank and the least times of that rank and all later ones.

    Raises
    ------
    Refused
        The rule does not apply there.
    """
    if not step.one_chunk:
        raise Refused("the rule needs one chunk per rank on one route")
    route = step.routes[0][1]
    stage, room = route.index(rank), step.room(rank)
    shares = [step.shares(r)[s] for s, r in enumerate(route) if s >= stage]
    own = shares[0]
    if room is None or not own.a:
        raise Refused(f"the memory of rank {rank} cannot be counted")
    cap = room // own.a
    if len(shares) < 2 or not 2 <= cap < step.m:
        raise Refused("the rule needs two ranks, and a cap of at least two microbatches and less than all")
    hops = [step.costs.message(*pair) for a, b in pairwise(route[stage:]) for pair in ((a, b), (b, a))]
    f, b, c = min(x.f for x in shares), min(x.b for x in shares), min(hops)
    counted = own.q > 0 and all(
        i * (own.b + own.w) >= own.w * ((room - (cap - i) * own.a) // own.q) for i in range(cap)
    )
    w = own.w if counted else 0
    turn = f + b + 2 * c
    return Crossings(len(shares), cap, turn, 2 * c, f, len(shares) * turn + w - 2 * c, own.f + own.b + w)


def crossing(step: Step, rank: int, via: int, value: int, kept: Sequence[int] = ()) -> dict[str, int]:
    """The summands of the bound `value`, or of the greatest one below it that the rule gives.

    Parameters
    ----------
    kept
        The microbatches whose meetings count, ascending, from the first to the last one; none of them stands for all.

    Raises
    ------
    Refused
        The rule does not apply, or its enumeration is too large.
    """
    x = crossings(step, rank)
    (own,) = step.shares(rank).values()
    tail = step.tail(rank, via)
    parts = {
        "head": step.head(rank, via),
        "the first microbatch": x.trip,
        "tail": max(tail, own.w) if via in (-1, rank) else tail,
    }
    kept = kept or range(step.m)
    if kept[0] != 0 or kept[-1] != step.m - 1 or any(i >= j for i, j in pairwise(kept)):
        raise Refused(f"what meets must be microbatches in their order, 0 the first and {step.m - 1} the last of them")
    rest = value - sum(parts.values())
    try:
        found, _ = x.least(kept, rest - 1)
    except TooManyStates as error:
        raise Refused("the enumeration of patterns is too large") from error
    return parts | {"the others, in every pattern of crossings": rest if found is None else found}
