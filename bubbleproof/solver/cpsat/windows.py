"""Windows of time freed one after the other: finds better schedules where the rest of the order is good already."""

from __future__ import annotations

import random
from time import monotonic
from typing import TYPE_CHECKING

from ortools.sat.python import cp_model

from bubbleproof.solver.cpsat.objective import Answer
from bubbleproof.solver.cpsat.window import Window
from bubbleproof.solver.flat import Orders, Times, least_span, replay_flat

if TYPE_CHECKING:
    from bubbleproof.solver.search import Search

__all__ = ["Rearranging", "Windows"]

_EFFORT = 0.3
"""Limit of one window in CP-SAT's deterministic time."""

_OPS_PER_EFFORT = 3000
"""Free ops whose model takes as long to build as a unit of effort."""

_WIDTH, _FREE = 200, 600
"""Width of the first window in thousandths of the length of the schedule, or less, so that no more ops are free."""

_WIDTHS = (40, 600)
"""Least and greatest width of a window, in thousandths; the least is smaller where a window holds many ops."""

_PATIENCE = 2.0
"""Most effort without a better schedule after which windows get no more than half as much as questions."""

_FEW_OPS = 100
"""Up to so many ops whole questions come first: they decide small instances at once."""


class Rearranging:
    """One window, asked in a thread of its own."""

    def __init__(self, window: Window, seed: int, effort: float, seconds: float) -> None:
        self.window, self.deadline, self.stopped = window, monotonic() + seconds, False
        self.solver = cp_model.CpSolver()
        parameters = self.solver.parameters
        parameters.max_deterministic_time = effort
        parameters.num_workers = 1
        parameters.random_seed = seed
        parameters.linearization_level = 0
        parameters.cp_model_probing_level = 0
        parameters.catch_sigint_signal = False

    def ask(self) -> Answer:
        """Build the model and solve it; `impossible` is meant of this window only."""
        cost = self.window.size / _OPS_PER_EFFORT
        if self.stopped or not self.window.build():
            return Answer("impossible", None, cost)
        self.solver.parameters.max_time_in_seconds = max(0.0, self.deadline - monotonic())
        status = self.solver.solve(self.window.model)
        effort = cost + float(self.solver.response_proto.deterministic_time)
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return Answer("found", self.window.arranged(self.solver), effort)
        return Answer("impossible" if status == cp_model.INFEASIBLE else "unknown", None, effort)

    def stop(self) -> None:
        """Make `ask` return soon."""
        self.stopped = True
        self.solver.stop_search()


class Windows:
    """Which window to free next, and what came of it.

    Windows lie at random places. They become wider while they hold nothing and narrower while CP-SAT does not decide
    them. After a success the next one aims at twice the gain; without one for a while, every second one aims at no gain
    but another schedule as good, and they get more effort.
    """

    def __init__(self, search: Search) -> None:
        self.search, self.rng = search, random.Random(search.seed)
        self.width, self.gain, self.asked = min(_WIDTH, 1000 * _FREE // search.flat.ops), 1, 0
        self.idle = 0.0
        """Effort since the last success."""
        self.current: tuple[int, Orders] | None = None
        """A schedule as good as the best one, from which to go on, and its objective."""
        self.patience = 0.0
        if search.flat.ops > _FEW_OPS:
            self.patience = min(_PATIENCE, search.budget.effort_left / 5)

    def worthwhile(self, questions: float) -> bool:
        """Whether to free another window, given the effort that questions have used."""
        return self.search.flat.wires is None and self.idle < self.patience + questions / 2

    def next(self) -> Rearranging | None:
        """A window of the best schedule; None if that is not one of plain orders."""
        search = self.search
        if self.current is None or self.current[0] != search.value:
            orders = search.orders
            if orders is None and search.family is not None:
                orders = search.flat.orders(search.family)
            if orders is None or search.value is None or search.measure(orders) != search.value:
                return None
            if not search.fits(orders):
                return None
            self.current = search.value, orders
        value, orders = self.current
        self.asked += 1
        sideways = self.idle > _PATIENCE / 2 and self.asked % 2 == 1
        length = value if sideways else max(search.bound, value - self.gain)
        found = self._times(orders, value, length)
        if found is None:
            return None
        makespan, times, release = found
        total = max(times.last) - min(times.first)
        width = max(1, total * self.width // 1000)
        low = min(times.first) + self.rng.randrange(total + 1) - width // 2
        window = Window(search.flat, orders, times, release, low, low + width, length, makespan, hint=not sideways)
        effort = _EFFORT * (1 + int(self.idle))
        return Rearranging(window, search.seed + self.asked, effort, search.budget.left)

    def _times(self, orders: Orders, value: int, length: int) -> tuple[bool, Times, list[int]] | None:
        """Whether the makespan is to be shortened, times to start from, and the earliest first start of each rank.

        For the span it is shortened if that is what the span comes from. Otherwise a rank keeps its first start and has
        to end earlier, or keeps its last end and has to start later: which helps depends on where the window lies.
        """
        flat, turn = self.search.flat, self.asked // 2 % 3
        if flat.instance.objective == "makespan" or turn == 0:
            times = replay_flat(flat, orders)
            if times is not None and times.makespan == value:
                return True, times, [min(times.first)] * flat.ranks
        times = least_span(flat, orders)
        if times is None:
            return None
        release = list(times.first)
        if turn == 1:
            release = [max(first, last - length) for first, last in zip(times.first, times.last, strict=True)]
            times = replay_flat(flat, orders, release) or times
        return False, times, release

    def learn(self, answer: Answer, better: bool) -> None:
        """Take what came of a window."""
        if better:
            self.idle, self.gain = 0.0, 2 * self.gain
            return
        self.idle += answer.effort
        if answer.verdict == "found":  # sideways
            value, orders = self.search.value, answer.orders
            if value is not None and orders and self.search.measure(orders) == value and self.search.fits(orders):
                self.current = value, orders
            return
        self.gain = 1
        change = 95 if answer.verdict == "unknown" else 102
        least = min(_WIDTHS[0], 1000 * _FREE // (4 * self.search.flat.ops))
        self.width = min(_WIDTHS[1], max(least, 1, -(-self.width * change // 100)))
