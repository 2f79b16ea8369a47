"""The search for the smallest case in which a generator is wrong; `testing` is its public face."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import BubbleproofError, InstanceError
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import Placement, bidirectional, linear, loop, vee, wave
from bubbleproof.schedules.program import Channel, Program
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.verify.judge import verify
from bubbleproof.verify.report import Report, Verdict
from bubbleproof.verify.witness import picture

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = [
    "Counterexample",
    "Generator",
    "MakePlacement",
    "Peak",
    "Search",
    "Size",
    "import_hypothesis",
    "judge",
    "promised",
]

Generator: TypeAlias = Callable[[Instance], Any]
MakePlacement: TypeAlias = Callable[[int, int], Placement]
Peak: TypeAlias = Callable[[Instance], "int | Sequence[int]"]

_PLACEMENTS: dict[str, MakePlacement] = {
    "linear": lambda ranks, chunks: linear(ranks),
    "loop": loop,
    "vee": lambda ranks, chunks: vee(ranks),
    "wave": wave,
    "bidirectional": lambda ranks, chunks: bidirectional(ranks),
}


class Size(NamedTuple):
    """A size to try; sizes compare in this order."""

    ranks: int
    microbatches: int
    chunks: int


@dataclass(frozen=True)
class Counterexample:
    """A case in which a generator is wrong.

    Parameters
    ----------
    instance, judged
        What the generator was given, and under what its schedule was judged: the same with the promised peak as cap.
    schedule
        What it made, a schedule or a program; None if it made neither.
    report
        The judge's report; None if there is nothing that could be judged.
    error
        Why not: the generator raised, or returned something else.
    """

    size: Size
    instance: Instance
    judged: Instance
    schedule: Schedule | Program | None
    report: Report | None
    error: str = ""

    @property
    def picture(self) -> str:
        """The grid of the schedule with the cells of the violations in brackets; "" without a schedule."""
        if self.schedule is None or self.report is None:
            return ""
        return picture(self.schedule, self.report.violations)

    def __str__(self) -> str:
        p, m, v = self.size
        lines = [f"wrong for p = {p} ranks, m = {m} microbatches, v = {v} chunks per rank ({self._described()})"]
        if self.error:
            lines.append(self.error)
        if self.report is not None:
            lines += [f"  {violation}" for violation in self.report.violations]
        if self.picture:
            lines += ["", self.picture]
        return "\n".join(lines)

    def _described(self) -> str:
        instance = self.instance
        shown = []
        for kind in ("F", "B", "W", "BW"):
            times = getattr(instance.costs, kind)
            shown.append(f"{kind} = {times[0] if len(set(times)) == 1 else list(times)}")
        if instance.costs.comm:
            shown.append("messages " + ", ".join(f"{a}-{b}: {time}" for (a, b), time in instance.costs.comm))
        if instance.memory.cap is not None:
            shown.append(f"cap {list(instance.memory.cap)}")
        if self.judged.memory.cap not in (None, instance.memory.cap):
            shown.append(f"promised peak {list(self.judged.memory.cap or ())}")
        return f"{instance.placement.kind} placement, {', '.join(shown)}"


def judge(made: Schedule | Program, instance: Instance, channel: Channel | None) -> Report:
    """The report on a schedule, or on a program under a channel, left out: ``rendezvous-pair``.

    Raises
    ------
    BubbleproofError
        A channel is given for a schedule, which says nothing of messages.
    """
    if isinstance(made, Program):
        from bubbleproof.verify.program_judge import verify_program

        return verify_program(made, instance, channel=channel or "rendezvous-pair")
    if channel is not None:
        raise BubbleproofError(f"the channel {channel} was asked for, but a Schedule has no messages; make a Program")
    return verify(made, instance)


def promised(instance: Instance, peak: int | Sequence[int]) -> Instance:
    """The instance under which a promise is judged: its caps, and the promised peak as another.

    Raises
    ------
    InstanceError
        No schedule could keep that promise.
    """
    most = (peak,) * instance.ranks if isinstance(peak, int) else tuple(peak)
    if instance.memory.cap is not None:
        most = tuple(map(min, most, instance.memory.cap))
    return instance.with_cap(most)


@dataclass
class Search:
    """One call of `check_generator`."""

    generator: Generator
    all_sizes: tuple[Size, ...]
    placement: str | MakePlacement | None
    costs: Literal["unit", "any"] | Callable[[Placement], Costs]
    split: bool
    memory: Literal["unit", "any"] | Callable[[Placement], Memory]
    cap: Literal["any"] | Peak | None
    peak: Peak | None
    channel: Channel | None
    refuses: type[Exception] | tuple[type[Exception], ...]

    def __post_init__(self) -> None:
        self.refused: list[Size] = []
        self.examples = 0
        if isinstance(self.placement, str) and self.placement not in _PLACEMENTS:
            raise BubbleproofError(f"placement {self.placement[:40]!r} is none of {', '.join(_PLACEMENTS)}")

    def sizes(self) -> Counterexample | None:
        """The first counterexample among all sizes, with what is not drawn."""
        for size in self.all_sizes:
            placement = self._placement(size)
            instance = self._instance(size, placement, self._costs(placement), self._memory(placement))
            found = self.wrong(size, instance)
            if found is not None:
                return found
        return None

    def drawn(self, examples: int) -> Counterexample | None:
        """A counterexample with drawn costs, memory or caps, of the smallest size for which one is found."""
        if "any" not in (self.costs, self.memory, self.cap) or examples < 1:
            return None
        sizes = [size for size in self.all_sizes if size not in self.refused]
        best: Counterexample | None = None
        while sizes:
            found = self._find(sizes, examples)
            if found is None:
                break
            best = found
            sizes = sizes[: sizes.index(found.size)]
        return best

    def wrong(self, size: Size, instance: Instance, *, drawn: bool = False) -> Counterexample | None:
        """Whether the generator is wrong on one instance."""
        try:
            schedule = self.generator(instance)
        except self.refuses:
            if not drawn:
                self.refused.append(size)
            return None
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{last.filename}:{last.lineno}, in {last.name}"
            words = f"the generator raised {type(error).__name__}: {error} ({where})"
            return Counterexample(size, instance, instance, None, None, words)
        if not isinstance(schedule, Schedule | Program):
            words = f"the generator returned a {type(schedule).__name__}, which is neither a Schedule nor a Program"
            return Counterexample(size, instance, instance, None, None, words)
        judged, words = instance, ""
        if self.peak is not None:
            promise = self.peak(instance)
            try:
                judged = promised(instance, promise)
            except InstanceError as error:
                words = f"no schedule keeps the promised peak of {promise}: {error}"
        report = judge(schedule, judged, self.channel)
        if report.verdict == Verdict.PROVED and not words:
            return None
        return Counterexample(size, instance, judged, schedule, report, words)

    def _find(self, sizes: list[Size], examples: int) -> Counterexample | None:
        import_hypothesis()
        from hypothesis import HealthCheck, Phase, find, settings
        from hypothesis.errors import NoSuchExample

        def fails(case: tuple[Size, Instance]) -> bool:
            self.examples += 1
            return self.wrong(*case, drawn=True) is not None

        try:
            case = find(
                self._cases(sizes),
                fails,
                settings=settings(
                    max_examples=examples,
                    database=None,
                    deadline=None,
                    phases=(Phase.generate, Phase.shrink),
                    suppress_health_check=list(HealthCheck),
                ),
                random=Random(0),  # the same search every time: a test must not fail on some days only
            )
        except NoSuchExample:
            return None
        return self.wrong(*case, drawn=True)

    def _cases(self, sizes: list[Size]) -> SearchStrategy[tuple[Size, Instance]]:
        """Sizes, the smallest simplest, with instances for them."""
        from hypothesis import strategies as st

        from bubbleproof.verify import strategies

        @st.composite
        def cases(draw: st.DrawFn) -> tuple[Size, Instance]:
            size = draw(st.sampled_from(sizes))
            placement = self._placement(size)
            costs = (
                draw(strategies.costs(placement, split=self.split)) if self.costs == "any" else self._costs(placement)
            )
            memory = draw(strategies.memories(placement)) if self.memory == "any" else self._memory(placement)
            instance = self._instance(size, placement, costs, memory)
            if self.cap == "any":
                instance = instance.with_cap(tuple(draw(st.integers(*ends)) for ends in _caps(instance)))
            return size, instance

        return cases()

    def _placement(self, size: Size) -> Placement:
        if callable(self.placement):
            return self.placement(size.ranks, size.chunks)
        name = self.placement or ("linear" if size.chunks == 1 else "loop")
        return _PLACEMENTS[name](size.ranks, size.chunks)

    def _costs(self, placement: Placement) -> Costs:
        if callable(self.costs):
            return self.costs(placement)
        return Costs.make(placement.stages, F=1, B=1, W=1) if self.split else Costs.make(placement.stages, F=1, B=1)

    def _memory(self, placement: Placement) -> Memory:
        return self.memory(placement) if callable(self.memory) else Memory.make(placement.stages, placement.ranks)

    def _instance(self, size: Size, placement: Placement, costs: Costs, memory: Memory) -> Instance:
        instance = Instance(placement, size.microbatches, costs, memory)
        if not callable(self.cap):
            return instance
        cap = self.cap(instance)
        return instance.with_cap(cap if isinstance(cap, int) else tuple(cap))


def _caps(instance: Instance) -> Iterator[tuple[int, int]]:
    """For each rank the least cap under which one microbatch can run, and what all of them take together."""
    memory = instance.memory
    for rank in range(instance.ranks):
        least = max(
            instance.least_memory(rank, route, split=split)
            for route in set(instance.route_of_microbatch)
            for split in (False, instance.costs.split)
        )
        stages = instance.placement.stages_of_rank[rank]
        taken = sum(max(0, memory.F[s]) + max(0, memory.B[s]) + max(0, memory.W[s]) for s in stages)
        yield least, max(least, memory.static[rank] + instance.microbatches * taken)


def import_hypothesis() -> None:
    """Import Hypothesis.

    Raises
    ------
    BubbleproofError
        It is not installed; the message says how to get it.
    """
    try:
        import hypothesis  # noqa: F401  # only whether it is there
    except ImportError as error:
        raise BubbleproofError(
            "drawing costs, memory and caps needs Hypothesis, which is not installed: pip install "
            "'bubbleproof[testing]', or give costs='unit', which tries every size with unit costs only"
        ) from error
