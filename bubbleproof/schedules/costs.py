"""Costs in time and in memory. All figures are integers in a unit that the instance names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from bubbleproof.schedules.errors import InstanceError
from bubbleproof.schedules.op import Kind

__all__ = ["MAX_MAGNITUDE", "Channel", "Costs", "Memory", "Varying"]

MAX_MAGNITUDE = 10**12
"""No single time or memory figure may be larger, so that sums over a whole schedule stay far inside 64 bits."""

PerRank: TypeAlias = int | Sequence[int]
PerStage: TypeAlias = int | Sequence[int | Sequence[int]]

Varying: TypeAlias = tuple[tuple[str, tuple[tuple[int, ...], ...]], ...]
"""(name, for each stage one figure per microbatch), sorted by name, of every figure that is given per microbatch."""

_Rows: TypeAlias = tuple[tuple[int, ...], ...]
"""For each stage one figure, or one per microbatch."""

Channel: TypeAlias = Literal["latency", "pair", "rank"]
"""What a message occupies: nothing, its ordered pair of ranks, or the one outgoing queue of its sender."""


def _per(name: str, value: PerRank, count: int, of: str, low: int | None = 0) -> tuple[int, ...]:
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


def _rows(name: str, value: PerStage, stages: int, low: int | None = 0) -> _Rows:
    """The figures of each stage, from one number, one per stage, or for some stages one per microbatch."""
    scalar = isinstance(value, str) or not isinstance(value, Sequence)
    if scalar or not any(isinstance(entry, Sequence) for entry in value):  # type: ignore[union-attr]
        return tuple((figure,) for figure in _per(name, value, stages, "stage", low))  # type: ignore[arg-type]
    if len(value) != stages:  # type: ignore[arg-type]
        _per(name, (0,) * len(value), stages, "stage")  # type: ignore[arg-type]  # says so
    found = []
    for stage, entry in enumerate(value):  # type: ignore[arg-type]
        count = len(entry) if isinstance(entry, Sequence) else 1
        row = _per(f"{name}[{stage}]", entry, count, "microbatch", low)
        if not row:
            raise InstanceError(f"{name}[{stage}] is empty; give one number, or one per microbatch")
        found.append(row)
    return tuple(found)


def _added(*terms: tuple[int, _Rows]) -> _Rows:
    """The sum of factor × figures, entry by entry."""
    found = []
    for rows in zip(*(rows for _, rows in terms), strict=True):
        count = max(map(len, rows))
        found.append(
            tuple(
                sum(sign * row[j % len(row)] for (sign, _), row in zip(terms, rows, strict=True)) for j in range(count)
            )
        )
    return tuple(found)


def _varying(table: str, figures: dict[str, _Rows | None]) -> Varying:
    """Those of the figures that are given per microbatch, written out."""
    lengths = {
        len(row): f"{table}.{name}[{stage}]"
        for name, rows in figures.items()
        for stage, row in enumerate(rows or ())
        if len(row) > 1
    }
    if len(lengths) > 1:
        (one, first), (other, second), *_ = sorted(lengths.items())
        raise InstanceError(f"{first} has {one} entries, {second} has {other}; each has one per microbatch")
    m = max(lengths, default=1)
    return tuple(
        (name, tuple(row if len(row) == m else row * m for row in rows))
        for name, rows in sorted(figures.items())
        if rows is not None and any(len(row) > 1 for row in rows)
    )


def _least(rows: _Rows) -> tuple[int, ...]:
    return tuple(map(min, rows))


@dataclass(frozen=True)
class Costs:
    """Durations of the ops of each stage and of the messages between ranks.

    Parameters
    ----------
    F, B, W, BW
        For each stage the duration of the forward, the input gradient, the weight gradient and the fused backward,
        without the overhead; where it differs from microbatch to microbatch, the shortest.
    split
        Whether a backward may run as B and W apart. If not, only BW occurs.
    overlap_B, overlap_BW
        For each stage s, the duration of a pair whose forward is of stage s, with a B or a BW as the other member.
        Without the overhead; where it differs from microbatch to microbatch (of the forward), the shortest.
        None: the pair lasts as long as its members one after the other, each with its overhead.
    comm
        Time of a message, for each ordered pair of ranks (a, b), a ≠ b. It delays the receiver and occupies no rank.
    channel
        ``latency``: any number of messages travel at once. ``pair``: those from one rank to another go one after the
        other. ``rank``: so do all that leave one rank. Their order is that of the ops that make them.
    overhead
        What every op lasts longer than stated; a fused backward, and a pair with a duration of its own, count once.
    varying
        The durations that are given per microbatch. Without them, and without the overhead, the instance is a
        relaxation of this one: nothing takes longer.
    R
        For each stage the duration of a recompute; None if nothing may be recomputed.
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
    overhead: int = 0
    varying: Varying = ()
    R: tuple[int, ...] | None = None
    _comm: dict[tuple[int, int], int] = field(init=False, repr=False, compare=False, hash=False)
    _varying: dict[str, _Rows] = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        if self.channel not in get_args(Channel):
            raise InstanceError(f"cost.channel = {self.channel!r} is none of {', '.join(get_args(Channel))}")
        object.__setattr__(self, "_comm", dict(self.comm))
        object.__setattr__(self, "_varying", dict(self.varying))

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
        overhead: int = 0,
        R: PerRank | None = None,
    ) -> Costs:
        """Build costs from numbers or lists, one entry per stage; an entry may be a list with one per microbatch.

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
        forward, backward = _rows("cost.F", F, stages), _rows("cost.B", B, stages)
        weight = _rows("cost.W", 0 if W is None else W, stages)
        fused = None if BW is None else _rows("cost.BW", BW, stages)
        with_b = None if overlap_B is None else _rows("cost.overlap_B", overlap_B, stages)
        with_bw = None if overlap_BW is None else _rows("cost.overlap_BW", overlap_BW, stages)
        named = {"F": forward, "B": backward, "W": weight, "BW": fused, "overlap_B": with_b, "overlap_BW": with_bw}
        _varying("cost", named)  # refuses lists of unlike lengths before they are added up
        fused = named["BW"] = _added((1, backward), (1, weight)) if fused is None else fused
        pairs = {} if isinstance(comm, int) else dict(comm)
        for (a, b), value in list(pairs.items()):
            _per(f'cost.comm."{a}-{b}"', value, 1, "edge")
            pairs.setdefault((b, a), value)
        return cls(
            _least(forward),
            _least(backward),
            _least(weight),
            _least(fused),
            W is not None if split is None else split,
            None if with_b is None else _least(with_b),
            None if with_bw is None else _least(with_bw),
            _per("cost.comm", comm, 1, "edge")[0] if isinstance(comm, int) else 0,
            tuple(sorted(pairs.items())),
            channel,
            _per("cost.overhead", overhead, 1, "instance")[0],
            _varying("cost", named),
            None if R is None else _per("cost.R", R, stages, "stage"),
        )

    def figure(self, name: str, stage: int, microbatch: int) -> int:
        """A duration as stated: of an op by its kind, or ``overlap_B``, ``overlap_BW``; without the overhead."""
        rows = self._varying.get(name)
        return int(getattr(self, name)[stage] if rows is None else rows[stage][microbatch])

    def of(self, kind: Kind, stage: int, microbatch: int | None = None) -> int:
        """Duration of one op with its overhead; without a microbatch, the shortest of all."""
        stated = getattr(self, kind)[stage] if microbatch is None else self.figure(kind, stage, microbatch)
        return int(stated) + self.overhead

    @property
    def microbatches(self) -> int | None:
        """The number of microbatches for which durations are given; None if they hold for any number."""
        return len(self.varying[0][1][0]) if self.varying else None

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
        measured: B may be positive. Over one microbatch they sum to 0. Where they differ from microbatch to
        microbatch: the least that F takes, the least that W gives back, and what follows from these for B and BW.
    static
        For each rank what it holds all the time (weights, optimizer state).
    cap
        For each rank the most it may hold at any instant; None for no cap.
    message
        For each stage the size of the tensor that leaves it forward (and whose gradient comes back); None if not known.
    varying
        The changes that are given per microbatch. Without them the instance is a relaxation of this one: no microbatch
        ever holds more.
    R
        For each stage the part of what F takes that a forward need not keep if it is recomputed; R takes it at its
        start. None if nothing may be recomputed.
    """

    F: tuple[int, ...]
    B: tuple[int, ...]
    W: tuple[int, ...]
    BW: tuple[int, ...]
    static: tuple[int, ...]
    cap: tuple[int, ...] | None = None
    message: tuple[int, ...] | None = None
    varying: Varying = ()
    R: tuple[int, ...] | None = None
    _varying: dict[str, _Rows] = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_varying", dict(self.varying))

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
        static: PerRank = 0,
        cap: PerRank | None = None,
        message: PerRank | None = None,
        R: PerRank | None = None,
    ) -> Memory:
        """Build memory figures from numbers or lists, one entry per stage (static and cap: per rank).

        An entry of F, B, W or BW may be a list with one number per microbatch.

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
            F is negative, a figure is not an integer or too large, a microbatch leaves something behind, R is above F,
            or a list has the wrong length.
        """
        taken = _rows("memory.F", F, stages)
        given_b = None if B is None else _rows("memory.B", B, stages, None)
        given_w = None if W is None else _rows("memory.W", W, stages, None)
        given_bw = None if BW is None else _rows("memory.BW", BW, stages, None)
        _varying("memory", {"F": taken, "B": given_b, "W": given_w, "BW": given_bw})
        if given_b is None:
            given_b = _added((-1, taken), (-1, given_w)) if given_w else ((0,),) * stages
        if given_w is None:
            given_w = _added((-1, taken), (-1, given_b))
        fused = _added((1, given_b), (1, given_w)) if given_bw is None else given_bw
        for kinds, rest in (("B {} + W {}", (given_b, given_w)), ("BW {}", (fused,))):
            for stage, row in enumerate(_added((1, taken), *((1, rows) for rows in rest))):
                for j, left in enumerate(row):
                    if left:
                        parts = [rows[stage][j % len(rows[stage])] for rows in (taken, *rest)]
                        where = f"stage {stage}" + (f", microbatch {j}" if len(row) > 1 else "")
                        raise InstanceError(
                            f"memory of {where}: F {{}} + {kinds} = {left}, but a microbatch must leave nothing".format(
                                *parts
                            )
                        )
        least, kept = _least(taken), tuple(map(max, given_w))
        again = None if R is None else _per("memory.R", R, stages, "stage")
        for stage, (f, r) in enumerate(zip(least, again or (), strict=False)):
            if r > f:
                raise InstanceError(f"memory of stage {stage}: R {r} is above F {f}, of which it is a part")
        return cls(
            least,
            tuple(-f - w for f, w in zip(least, kept, strict=True)),
            kept,
            tuple(-f for f in least),
            _per("memory.static", static, ranks, "rank"),
            None if cap is None else _per("memory.cap", cap, ranks, "rank"),
            None if message is None else _per("memory.message", message, stages, "stage"),
            _varying("memory", {"F": taken, "B": given_b, "W": given_w, "BW": fused}),
            again,
        )

    def of(self, kind: Kind, stage: int, microbatch: int | None = None, *, again: bool = False) -> int:
        """Change that one op makes to the memory of its rank; without a microbatch, in the relaxation.

        Parameters
        ----------
        again
            Whether its stage and microbatch are recomputed, so that the forward keeps only a stash.
        """
        rows = None if microbatch is None else self._varying.get(kind)
        stated = int(getattr(self, kind)[stage] if rows is None else rows[stage][microbatch])  # type: ignore[index]
        return stated - self.R[stage] if again and kind == "F" and self.R is not None else stated

    @property
    def microbatches(self) -> int | None:
        """The number of microbatches for which changes are given; None if they hold for any number."""
        return len(self.varying[0][1][0]) if self.varying else None

    def changes(self) -> Iterator[tuple[int, int, int]]:
        """(F, B, W) of each stage."""
        return zip(self.F, self.B, self.W, strict=True)
