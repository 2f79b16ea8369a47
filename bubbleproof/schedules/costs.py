"""Costs in time and in memory. All figures are integers in a unit that the instance names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from bubbleproof.schedules.errors import InstanceError
from bubbleproof.schedules.op import Kind

__all__ = ["MAX_MAGNITUDE", "Channel", "Costs", "Memory"]

MAX_MAGNITUDE = 10**12
"""No single time or memory figure may be larger, so that sums over a whole schedule stay far inside 64 bits."""

PerStage = int | Sequence[int]

Channel: TypeAlias = Literal["latency", "pair", "rank"]
"""What a message occupies: nothing, its ordered pair of ranks, or the one outgoing queue of its sender."""


def _per(name: str, value: PerStage, count: int, of: str, low: int | None = 0) -> tuple[int, ...]:
    """One integer for each stage (or rank), from one number or a list; `low` is the least value allowed."""
    scalar = not isinstance(value, Sequence) or isinstance(value, str)
    values: tuple[object, ...] = (value,) * count if scalar else tuple(value)  # type: ignore[arg-type]
    if len(values) != count:
        raise InstanceError(f"{name} has {len(values)} entries for {count} {of}s; give one number or one per {of}")
    found = []
    for index, entry in enumerate(values):
        where = name if scalar else f"{name}[{index}]"
        if isinstance(entry, bool) or not isinstance(entry, int):
            raise InstanceError(f"{where} = {entry!r} is no integer; choose a finer unit instead of fractions")
        if low is not None and entry < low:
            raise InstanceError(f"{where} = {entry} is below {low}")
        if abs(entry) > MAX_MAGNITUDE:
            raise InstanceError(f"{where} = {entry} is beyond the limit of {MAX_MAGNITUDE}")
        found.append(entry)
    return tuple(found)


@dataclass(frozen=True)
class Costs:
    """Durations of the ops of each stage and of the messages between ranks.

    Parameters
    ----------
    F, B, W, BW
        For each stage the duration of the forward, the input gradient, the weight gradient and the fused backward.
    split
        Whether a backward may run as B and W apart. If not, only BW occurs.
    overlap_B, overlap_BW
        For each stage s, the duration of a pair whose forward is of stage s, with a B or a BW as the other member.
        None: the pair lasts as long as its members one after the other.
    comm
        Time of a message, for each ordered pair of ranks (a, b), a ≠ b. It delays the receiver and occupies no rank.
    channel
        ``latency``: any number of messages travel at once. ``pair``: those from one rank to another go one after the
        other. ``rank``: so do all that leave one rank. Their order is that of the ops that make them.
    """

    F: tuple[int, ...]
    B: tuple[int, ...]
    W: tuple[int, ...]
    BW: tuple[int, ...]
    split: bool
    overlap_B: tuple[int, ...] | None = None
    overlap_BW: tuple[int, ...] | None = None
    default_comm: int = 0
    comm: tuple[tuple[tuple[int, int], int], ...] = ()
    channel: Channel = "latency"
    _comm: dict[tuple[int, int], int] = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        if self.channel not in get_args(Channel):
            raise InstanceError(f"cost.channel = {self.channel!r} is none of {', '.join(get_args(Channel))}")
        object.__setattr__(self, "_comm", dict(self.comm))

    @classmethod
    def make(
        cls,
        stages: int,
        *,
        F: PerStage,  # the papers' names
        B: PerStage,
        W: PerStage | None = None,
        BW: PerStage | None = None,
        split: bool | None = None,
        overlap_B: PerStage | None = None,
        overlap_BW: PerStage | None = None,
        comm: int | Mapping[tuple[int, int], int] = 0,
        channel: Channel = "latency",
    ) -> Costs:
        """Build costs from numbers or lists, one entry per stage.

        Parameters
        ----------
        W
            Left out: the backward cannot be split and B is the duration of the whole backward.
        BW
            Duration of a fused backward; left out, B + W.
        split
            Whether B and W may run apart; left out, True if W is given.
        comm
            One number for every pair of ranks, or one per ordered pair. A pair given in one direction only holds for
            both; pairs not given cost 0.

        Raises
        ------
        InstanceError
            A figure is negative, not an integer or too large, or a list has the wrong length.
        """
        if split and W is None:
            raise InstanceError("cost.split = true needs cost.W, the time of the weight gradient")
        forward = _per("cost.F", F, stages, "stage")
        backward = _per("cost.B", B, stages, "stage")
        weight = _per("cost.W", 0 if W is None else W, stages, "stage")
        fused = (
            tuple(b + w for b, w in zip(backward, weight, strict=True))
            if BW is None
            else _per("cost.BW", BW, stages, "stage")
        )
        pairs = {} if isinstance(comm, int) else dict(comm)
        for (a, b), value in list(pairs.items()):
            _per(f'cost.comm."{a}-{b}"', value, 1, "edge")
            pairs.setdefault((b, a), value)
        return cls(
            forward,
            backward,
            weight,
            fused,
            W is not None if split is None else split,
            None if overlap_B is None else _per("cost.overlap_B", overlap_B, stages, "stage"),
            None if overlap_BW is None else _per("cost.overlap_BW", overlap_BW, stages, "stage"),
            _per("cost.comm", comm, 1, "edge")[0] if isinstance(comm, int) else 0,
            tuple(sorted(pairs.items())),
            channel,
        )

    def of(self, kind: Kind, stage: int) -> int:
        """Duration of one op."""
        return int(getattr(self, kind)[stage])

    def message(self, source: int, target: int) -> int:
        """Time of a message from rank `source` to rank `target`; 0 inside a rank."""
        return 0 if source == target else self._comm.get((source, target), self.default_comm)

    @property
    def backward_kinds(self) -> tuple[Kind, ...]:
        """The kinds that make up one backward: B and W if it may be split, else BW."""
        return ("B", "W") if self.split else ("BW",)


@dataclass(frozen=True)
class Memory:
    """What each op adds to the memory of its rank, the static amount, and the cap.

    Parameters
    ----------
    F, B, W, BW
        For each stage the change that an op makes: F at its start, the others at their end. They are accepted as
        measured: B may be positive. Over one microbatch they sum to 0.
    static
        For each rank what it holds all the time (weights, optimizer state).
    cap
        For each rank the most it may hold at any instant; None for no cap.
    message
        For each stage the size of the tensor that leaves it forward (and whose gradient comes back); None if not known.
    """

    F: tuple[int, ...]
    B: tuple[int, ...]
    W: tuple[int, ...]
    BW: tuple[int, ...]
    static: tuple[int, ...]
    cap: tuple[int, ...] | None = None
    message: tuple[int, ...] | None = None

    @classmethod
    def make(
        cls,
        stages: int,
        ranks: int,
        *,
        F: PerStage = 1,
        B: PerStage | None = None,
        W: PerStage | None = None,
        BW: PerStage | None = None,
        static: PerStage = 0,
        cap: PerStage | None = None,
        message: PerStage | None = None,
    ) -> Memory:
        """Build memory figures from numbers or lists, one entry per stage (static and cap: per rank).

        Parameters
        ----------
        B, W
            Left out: what is not given is chosen so that a microbatch leaves nothing behind; with neither given
            everything is freed at W (or BW).
        BW
            Change at the end of a fused backward; left out, B + W.

        Raises
        ------
        InstanceError
            F is negative, a figure is not an integer or too large, a microbatch leaves something behind, or a list
            has the wrong length.
        """
        taken = _per("memory.F", F, stages, "stage")
        given_b = None if B is None else _per("memory.B", B, stages, "stage", None)
        given_w = None if W is None else _per("memory.W", W, stages, "stage", None)
        if given_b is None:
            given_b = tuple(-f - w for f, w in zip(taken, given_w, strict=True)) if given_w else (0,) * stages
        if given_w is None:
            given_w = tuple(-f - b for f, b in zip(taken, given_b, strict=True))
        fused = (
            tuple(b + w for b, w in zip(given_b, given_w, strict=True))
            if BW is None
            else _per("memory.BW", BW, stages, "stage", None)
        )
        for stage, (f, b, w, bw) in enumerate(zip(taken, given_b, given_w, fused, strict=True)):
            if f + b + w != 0:
                raise InstanceError(
                    f"memory of stage {stage}: F {f} + B {b} + W {w} = {f + b + w}, but a microbatch must leave nothing"
                )
            if f + bw != 0:
                raise InstanceError(f"memory of stage {stage}: F {f} + BW {bw} = {f + bw}, but must be 0")
        return cls(
            taken,
            given_b,
            given_w,
            fused,
            _per("memory.static", static, ranks, "rank"),
            None if cap is None else _per("memory.cap", cap, ranks, "rank"),
            None if message is None else _per("memory.message", message, stages, "stage"),
        )

    def of(self, kind: Kind, stage: int) -> int:
        """Change that one op makes to the memory of its rank."""
        return int(getattr(self, kind)[stage])

    def changes(self) -> Iterator[tuple[int, int, int]]:
        """(F, B, W) of each stage."""
        return zip(self.F, self.B, self.W, strict=True)
