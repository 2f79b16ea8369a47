"""The rule `crossing` of docs/bounds.md: least times over all patterns in which microbatches in flight meet.

Forwards climb the pipeline while backwards come down, and each pair of microbatches in flight meets once. Where it does
is one integer per pair. For given integers the times follow by additions and maxima alone; `Crossings.least` goes
through all integers, microbatch after microbatch, and keeps only states that no other state beats everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import msgspec

from bubbleproof.verify.normal_form import Refused, Step

__all__ = ["Crossings", "TooManyStates", "crossing", "crossings"]

_NEVER = -(1 << 60)

_MOST = 40_000_000
"""Comparisons of states after which the checker gives up: well below a minute."""

_State = tuple[int, ...]
"""The load of earlier backwards, then the values of the n backwards under way, the oldest first."""


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

    def later(self, count: int) -> list[int]:
        """Least increase of the value from one microbatch to the k-th after it, k = 0 … count."""
        least = [0]
        for k in range(1, count + 1):
            step = least[k - 1] + self.turn - self.slack
            least.append(max(step, least[k - self.cap] + self.lap) if k >= self.cap else step)
        return least

    def least(self, count: int, target: int, most: int = _MOST) -> tuple[int | None, int]:
        """The least value of microbatch `count`, counted from 0, over all patterns.

        Parameters
        ----------
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
        n, later, compared = self.cap, self.later(count), 0
        states: list[_State] = [(_NEVER,) * n + (0,)]
        for j in range(1, count + 1):
            states = [self._start(state, j) for state in states]
            for i in range(max(0, j - n + 1), j):
                place = i - j + n
                room = target - (self.lap + later[count - i - n] if i + n <= count else 0)
                found: set[_State] = set()
                for state in states:
                    for new in self._meet(state, place):
                        if new[-1] + later[count - j] <= target and new[place] <= room:
                            found.add(new)
                states, work = _undominated(found)
                compared += work
                if compared > most:
                    raise TooManyStates
            if j < count:
                latest = target - later[count - j - 1] - self.turn + self.slack
                states = [state for state in states if max(state[1:]) <= latest]
        return min((state[-1] for state in states), default=None), compared

    def _start(self, state: _State, j: int) -> _State:
        """The state in which forward j has just started on the first rank."""
        if j < self.cap:
            return (*state[:1], *state[2:], j * self.forward)
        load = max(state[1], state[0] + self.load)
        return (load, *state[2:], load + self.lap)

    def _meet(self, state: _State, place: int) -> Iterable[_State]:
        """The states after the newest forward has met a backward: one of the two waits for the other."""
        backward, forward = state[place], state[-1]
        ahead = forward - backward
        low = min(max((ahead + self.slack) // self.turn, 1), self.ranks)
        high = min(max(-(-ahead // self.turn), 1), self.ranks)
        for steps in (low, high) if high > low else (low,):
            waits = backward if steps == self.ranks else max(backward, forward - steps * self.turn)
            goes = max(forward, backward + steps * self.turn - self.slack)
            yield (*state[:place], waits, *state[place + 1 : -1], goes)


def _undominated(states: Iterable[_State]) -> tuple[list[_State], int]:
    """The states than which no other one is everywhere at least as early; and how many comparisons that took."""
    kept: list[_State] = []
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


def crossing(step: Step, rank: int, via: int, value: int) -> dict[str, int]:
    """The summands of the bound `value`, or of the greatest one below it that the rule gives.

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
    rest = value - sum(parts.values())
    try:
        found, _ = x.least(step.m - 1, rest - 1)
    except TooManyStates as error:
        raise Refused("the enumeration of patterns is too large") from error
    return parts | {"the others, in every pattern of crossings": rest if found is None else found}
