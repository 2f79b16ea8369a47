"""Narrowing the interval between bound and best schedule by questions to CP-SAT, several at a time."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from bubbleproof.solver.cpsat.objective import Answer, Question
from bubbleproof.solver.cpsat.windows import Windows
from bubbleproof.solver.flat import least_span, replay_flat

if TYPE_CHECKING:
    from bubbleproof.solver.search import Search

__all__ = ["Asked", "Interval", "improve"]

_FIRST_PIECE = 2.0
"""Effort of the first questions."""

_LEAST_EFFORT = 0.1
"""What any question counts for: building a model takes time too, and a budget must end."""

_PLACES = (0, 2, 4, 1, 3)
"""Where between bound and best to ask, in quarters, the most useful first."""

_AFTER_REFUTATION = (2, 4, 3, 1, 0)
"""The same if the last question was refuted: a bound rises faster by halves than one by one."""


class Asked(Protocol):
    """A question about a length."""

    def ask(self) -> Answer:
        """Ask; `stop` may be called from another thread meanwhile."""

    def stop(self) -> None:
        """Make `ask` return soon."""


@dataclass(frozen=True)
class _Running:
    question: Asked
    thread: threading.Thread


def improve(search: Search) -> None:
    """Ask about lengths between bound and best until they meet.

    A length that is refuted raises the bound; a schedule found lowers the best. When no question brings anything they
    are asked again with twice the effort and the other linearization. Each question runs in one thread: one CP-SAT
    worker refutes faster than two that share a question, so several workers ask about several lengths.

    Windows of the best schedule are rearranged beside the questions (first, if there is one worker), as long as that
    brings better schedules or has used less than half of their effort.
    """
    Interval(search).narrow()


class Interval:
    """The lengths that are neither refuted nor reached, and the questions under way.

    Parameters
    ----------
    whole
        Whether to ask about the whole instance; if not, windows only, until they have brought nothing for a while.
    """

    def __init__(self, search: Search, *, whole: bool = True) -> None:
        self.search, self.whole = search, whole
        self.low = search.bound
        self.piece = _FIRST_PIECE
        self.round = 0
        self.tried: dict[int, int] = {}
        """For each length the last round in which it was asked."""
        self.rising = False
        """Whether the last question was refuted."""
        self.windows = Windows(search)
        self.questions = 0.0
        """Effort that questions have used."""
        self.running: dict[int, _Running] = {}
        """What is under way: questions under their length, windows under numbers below zero."""
        self.answers: queue.SimpleQueue[tuple[int, Answer | BaseException]] = queue.SimpleQueue()

    @property
    def high(self) -> int:
        """The least length reached."""
        return self.low if self.search.value is None else self.search.value

    def narrow(self) -> None:
        """Ask until the interval is empty, or nothing is worth asking."""
        try:
            while self.low < self.high:
                self.search.budget.spend()
                while len(self.running) < self.search.workers and self.launch():
                    pass
                if not self.running:
                    return
                try:
                    key, answer = self.answers.get(timeout=0.1)
                except queue.Empty:
                    continue
                self.take(key, answer)
        finally:
            for running in self.running.values():
                running.question.stop()
            for running in self.running.values():
                running.thread.join()

    def launch(self) -> bool:
        """Start one more window or question; False if all that is worth asking is being asked."""
        search = self.search
        windows = sum(key < 0 for key in self.running)
        most = max(1, search.workers - 1) if self.whole else search.workers
        if windows < most and self.windows.worthwhile(self.questions):
            window = self.windows.next()
            if window is not None:
                self.start(-1 - self.windows.asked, window)
                return True
        if not self.whole:
            return False
        width = self.high - 1 - self.low
        places = _AFTER_REFUTATION if self.rising else _PLACES
        lengths = [self.low + width * quarter // 4 for quarter in places]
        free = [length for length in lengths if length not in self.running]
        if not free:
            return False
        length = min(free, key=lambda t: self.tried.get(t, -1))
        if self.tried.get(length, -1) >= self.round:
            self.round += 1
            self.piece *= 2
        self.tried[length] = self.round
        self.start(length, self.question(length))
        return True

    def question(self, length: int) -> Asked:
        """The question about a length."""
        search = self.search
        hint = None
        if search.orders is not None:
            timed = least_span if search.instance.objective == "span" else replay_flat
            hint = timed(search.flat, search.orders)
        return Question(
            search.flat,
            length,
            effort=min(self.piece * (1 if self.low + 1 < self.high else 2), search.budget.effort_left),
            seconds=search.budget.left,
            seed=search.seed,
            linearization=self.round % 2,
            hint=hint,
        )

    def found(self, answer: Answer) -> None:
        """Take the schedule of an answer."""
        self.search.offer(answer.orders, "cp-sat")

    def refuted(self, length: int) -> None:
        """Take it that no schedule has this length."""
        self.search.refuted(length)

    def start(self, key: int, question: Asked) -> None:
        """Ask in a thread."""
        thread = threading.Thread(target=self.answer, args=(key, question), daemon=True)
        self.running[key] = _Running(question, thread)
        thread.start()

    def answer(self, key: int, question: Asked) -> None:
        """In a thread: ask, and hand over what came back."""
        try:
            self.answers.put((key, question.ask()))
        except BaseException as error:  # it is raised again in the main thread
            self.answers.put((key, error))

    def take(self, key: int, answer: Answer | BaseException) -> None:
        """Use an answer, and stop questions that it settles."""
        self.running.pop(key).thread.join()
        if isinstance(answer, BaseException):
            raise answer
        before = self.high
        if answer.verdict == "found":
            if key < 0:
                self.search.offer(answer.orders, "cp-sat on a window")
            else:
                self.found(answer)
        if key < 0:
            self.windows.learn(answer, self.high < before)
        else:
            self.questions += max(answer.effort, _LEAST_EFFORT)
            self.rising = answer.verdict == "impossible"
            if answer.verdict == "impossible" and key >= self.low:
                self.low = key + 1
                self.refuted(key)
        for other, running in self.running.items():
            if other >= 0 and not self.low <= other < self.high:
                running.question.stop()
        self.search.budget.spend(answer.effort if key < 0 else max(answer.effort, _LEAST_EFFORT))
