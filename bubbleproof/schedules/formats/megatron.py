"""Megatron-core: its own orders, named by the arguments of a run, and the rules under which it runs them.

Megatron reads no order. Its arguments choose one of three functions: without pipelining, 1F1B, and interleaved 1F1B in
groups of N microbatches. A file of this format is a text of such arguments, of one replica: its order is read from it,
and a schedule is written to it if it is one of these orders. Any other order runs there with
`bubbleproof.runtimes.megatron`. Source: ``schedules.py`` of Megatron-core 0.16.1, read, run and traced.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.formats import megatron_layout
from bubbleproof.schedules.op import Op, Slot
from bubbleproof.schedules.placement import MAX_STAGES, linear, loop
from bubbleproof.schedules.schedule import Schedule

if TYPE_CHECKING:
    from bubbleproof.schedules.instance import Instance
    from bubbleproof.schedules.timeline import Timeline

__all__ = ["Stock", "arguments", "loads", "order", "read", "recognise", "write"]


@dataclass(frozen=True)
class Stock:
    """One of Megatron's own orders.

    Parameters
    ----------
    ranks, chunks, microbatches
        Its size: stage s is chunk ⌊s/p⌋ of rank s mod p.
    group
        N, the microbatches that a chunk runs before the next chunk; of interleaved orders only.
    overlap
        Whether messages overlap with ops. Without it, an interleaved order needs three ranks.
    words
        The pipeline layout, if the arguments have one.
    """

    ranks: int
    chunks: int
    microbatches: int
    group: int = 0
    overlap: bool = True
    words: tuple[str, ...] = ()

    def refuse(self) -> None:
        """Refuse what Megatron refuses, with its rule and the nearest size that it takes.

        Raises
        ------
        FormatError
            It does.
        """
        p, v, m, n = self.ranks, self.chunks, self.microbatches, self.group
        if v == 1:
            return
        if p < (2 if self.overlap else 3):
            raise FormatError(
                f"Megatron interleaves chunks on more than {1 if self.overlap else 2} ranks"
                f"{'' if self.overlap else ' unless messages overlap with ops'}; this is {p}. Nearest: one chunk per "
                "rank" + ("" if self.overlap or p == 1 else ", or --overlap-p2p-communication")
            )
        if m < p:
            raise FormatError(
                f"Megatron interleaves groups of N microbatches with p ≤ N ≤ m, and m = {m} is below p = {p}. Nearest: "
                f"m = {p}, or one chunk per rank, or bubbleproof.runtimes.megatron, which runs m = {m}"
            )
        if not _legal(n, p, m):
            near = min((size for size in range(p, m + 1) if _legal(size, p, m)), key=lambda size: abs(size - n))
            raise FormatError(
                f"Megatron interleaves groups of N microbatches with p ≤ N ≤ m and m mod N = 0 or ≥ p; N = {n}, p = "
                f"{p}, m = {m} leaves {m % n if n else m}. Nearest: --microbatch-group-size-per-virtual-pipeline-stage "
                f"{near}"
            )


def _legal(group: int, ranks: int, microbatches: int) -> bool:
    rest = microbatches % group if group else 1
    return ranks <= group <= microbatches and (rest == 0 or rest >= ranks)


def order(stock: Stock) -> Schedule:
    """The order in which Megatron runs the forwards and backwards of each rank.

    Raises
    ------
    FormatError
        Megatron refuses the size.
    """
    stock.refuse()
    p, v, m = stock.ranks, stock.chunks, stock.microbatches
    if p == 1:
        return Schedule.of([[Op(kind, 0, j) for j in range(m) for kind in ("F", "BW")]], "megatron, no pipelining")
    if v == 1:
        table = [(0, j) for j in range(m)]
        name, warmups = "megatron, 1f1b", [p - 1 - r for r in range(p)]
    else:
        n = stock.group
        table = [(chunk, j) for first in range(0, m, n) for chunk in range(v) for j in range(first, min(first + n, m))]
        name = f"megatron, interleaved, N={n}"
        warmups = [2 * (p - 1 - r) + (v - 1) * n for r in range(p)]
    return Schedule.of((_row(table, rank, warmups[rank], p, v) for rank in range(p)), name)


def _row(table: Sequence[tuple[int, int]], rank: int, warmup: int, ranks: int, chunks: int) -> Iterator[Slot]:
    """One rank: `warmup` forwards of the table, then forward and backward in turn, then the backwards left over."""
    warmup = min(warmup, len(table))
    for k in range(len(table) + warmup):
        if k < len(table):
            chunk, j = table[k]
            yield Op("F", chunk * ranks + rank, j)
        if k >= warmup:
            chunk, j = table[k - warmup]
            yield Op("BW", (chunks - 1 - chunk) * ranks + rank, j)


def recognise(schedule: Schedule, instance: Instance) -> Stock:
    """Which of Megatron's own orders a schedule is.

    Raises
    ------
    FormatError
        None: with the nearest of them, where the schedule first differs from it, and how to run it all the same.
    """
    instance.placement.need_plain("Megatron")
    p, m = instance.ranks, instance.microbatches
    where = instance.placement.routes
    chunks = instance.stages // p
    if where not in (linear(p).routes, loop(p, chunks).routes):
        raise FormatError(
            f"Megatron places stage s on rank s mod p; the placement is {instance.placement.kind}. Nearest: a loop on "
            f"{p} ranks, or bubbleproof.runtimes.megatron with a model built for this placement"
        )
    if chunks == 1:
        stock = Stock(p, 1, m)
    else:
        Stock(p, chunks, m, group=m).refuse()
        leading = takewhile(lambda slot: isinstance(slot, Op) and slot[:2] == ("F", 0), schedule.orders[0])
        n = sum(1 for _ in leading)  # a chunk runs N forwards before the next has its turn
        stock = Stock(p, chunks, m, min((k for k in range(p, m + 1) if _legal(k, p, m)), key=lambda k: abs(k - n)))
    nearest = order(stock)
    if nearest.orders == schedule.orders:
        return stock
    raise FormatError(
        f"Megatron's arguments choose between orders of its own, and this is none of them. Nearest: {nearest.name}; "
        f"{_difference(schedule, nearest)}. bubbleproof.runtimes.megatron runs any order from its .json file"
    )


def _difference(schedule: Schedule, other: Schedule) -> str:
    for rank, (ours, theirs) in enumerate(zip(schedule.orders, other.orders, strict=True)):
        for position, (have, want) in enumerate(zip(ours, theirs, strict=False)):
            if have != want:
                return f"rank {rank}, position {position} is {have}, there {want}"
        if len(ours) != len(theirs):
            return f"rank {rank} has {len(ours)} ops, there {len(theirs)}"
    return "no difference"


def arguments(stock: Stock, *, layers: Sequence[int] = (), microbatch_size: int = 1) -> list[str]:
    """The arguments of Megatron's training script for an order.

    Parameters
    ----------
    layers
        Decoder layers of each stage; left out, the split is left to the other arguments of the run.
    microbatch_size
        Samples in a microbatch.

    Raises
    ------
    FormatError
        Megatron cannot split a model so.
    """
    found = ["--pipeline-model-parallel-size", str(stock.ranks)]
    if layers:
        if len(layers) != stock.ranks * stock.chunks:
            raise FormatError(f"{len(layers)} numbers of layers for {stock.ranks * stock.chunks} stages")
        found += megatron_layout.split_flags(layers, stock.ranks)
    elif stock.chunks > 1:
        found += ["--num-virtual-stages-per-pipeline-rank", str(stock.chunks)]
    if stock.chunks > 1:
        found += ["--microbatch-group-size-per-virtual-pipeline-stage", str(stock.group)]
    found += ["--micro-batch-size", str(microbatch_size)]
    return [*found, "--global-batch-size", str(microbatch_size * stock.microbatches)]


def write(timeline: Timeline) -> str:
    """The arguments, an option and its value on each line.

    Raises
    ------
    FormatError
        The schedule is no order of Megatron's own.
    """
    return text_of(arguments(recognise(timeline.schedule, timeline.instance)))


def text_of(words: Sequence[str]) -> str:
    """Arguments as lines that a shell reads."""
    lines: list[list[str]] = []
    for word in words:
        if word.startswith("--"):
            lines.append([])
        lines[-1].append(shlex.quote(word))
    return "".join(" ".join(line) + "\n" for line in lines)


_NUMBERS = (
    "pipeline-model-parallel-size",
    "num-virtual-stages-per-pipeline-rank",
    "num-layers-per-virtual-pipeline-stage",
    "microbatch-group-size-per-virtual-pipeline-stage",
    "micro-batch-size",
    "global-batch-size",
    "num-layers",
    "mtp-num-layers",
    "decoder-first-pipeline-num-layers",
    "decoder-last-pipeline-num-layers",
)
_TEXTS = ("pipeline-model-parallel-layout",)
_SWITCHES = (
    "account-for-embedding-in-pipeline-split",
    "account-for-loss-in-pipeline-split",
    "no-overlap-p2p-communication",
    "overlap-p2p-communication",
    "overlap-p2p-communication-warmup-flush",
)
_OTHER_ORDERS = ("overlap-moe-expert-parallel-comm", "hybrid-layer-pattern", "rampup-batch-size", "step-batch-size")
"""Options under which Megatron runs other orders, or places layers otherwise, than told here."""


def read(text: str, where: str) -> Stock:
    """The order that a text of arguments chooses.

    Options that say nothing about the pipeline are passed over. The arguments are those of one replica: the number of
    microbatches is the global batch over the micro batch.

    Raises
    ------
    FormatError
        An option about the pipeline that is not known here or has no number, options that contradict each other, or a
        size or layout that Megatron refuses.
    """
    given = _given(text, where)
    p = given.get("pipeline-model-parallel-size", 1)
    missing = [f"--{name}" for name in ("micro-batch-size", "global-batch-size") if name not in given]
    if missing:
        raise FormatError(f"{where}: no {' and no '.join(missing)}, which give the number of microbatches")
    micro, whole = given["micro-batch-size"], given["global-batch-size"]
    if whole % micro:
        raise FormatError(f"{where}: --global-batch-size {whole} is no multiple of --micro-batch-size {micro}")
    words = megatron_layout.loads(_text_of(text, where), where) if "pipeline-model-parallel-layout" in given else ()
    chunks = _chunks(given, words, p, where)
    if p * chunks * (whole // micro) > MAX_STAGES * 100 or p * chunks > MAX_STAGES:
        raise FormatError(f"{where}: {p} ranks × {chunks} chunks × {whole // micro} microbatches is beyond the limit")
    group = given.get("microbatch-group-size-per-virtual-pipeline-stage", p) if chunks > 1 else 0
    stock = Stock(p, chunks, whole // micro, group, "no-overlap-p2p-communication" not in given, words)
    try:
        if words:
            layers, extra = given.get("num-layers"), given.get("mtp-num-layers")
            megatron_layout.refuse(words, p, layers=layers, extra=extra)
        stock.refuse()
    except FormatError as error:
        raise FormatError(f"{where}: {error}") from error
    return stock


def loads(text: str, where: str) -> Schedule:
    """The order that a text of arguments chooses, under the rules of `read`."""
    stock = read(text, where)
    if stock.words and (found := megatron_layout.gaps(stock.words)):
        raise FormatError(f"{where}: Megatron accepts the layout, but {'; '.join(found)}")
    return order(stock)


def _words(text: str, where: str) -> list[str]:
    try:
        return shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise FormatError(f"{where}: no list of arguments, as a shell would read it: {error}") from error


def _options(text: str, where: str) -> Iterator[tuple[str, list[str]]]:
    """(option without dashes, what stands after it) of each option."""
    name = ""
    values: list[str] = []
    for word in _words(text, where):
        if word.startswith("--"):
            if name:
                yield name, values
            name, _, joined = word[2:].partition("=")
            values = [joined] if joined else []
        else:
            values.append(word)
    if name:
        yield name, values


def _text_of(text: str, where: str) -> str:
    return next(values[0] for name, values in _options(text, where) if name in _TEXTS)


def _given(text: str, where: str) -> dict[str, int]:
    """The options about the pipeline with their numbers; 1 for switches and texts."""
    found: dict[str, int] = {}
    for name, values in _options(text, where):
        if name in _OTHER_ORDERS:
            raise FormatError(f"{where}: --{name}: Megatron then runs another order than those known here")
        if name in found:
            raise FormatError(f"{where}: --{name} stands twice")
        if name in _NUMBERS:
            if len(values) != 1 or not values[0].isascii() or not values[0].isdecimal() or len(values[0]) > 9:
                raise FormatError(f"{where}: --{name} wants one whole number, not {' '.join(values)[:40]!r}")
            found[name] = int(values[0])
            if not found[name] and name != "mtp-num-layers":
                raise FormatError(f"{where}: --{name} is 0")
        elif name in _TEXTS:
            if len(values) != 1:
                raise FormatError(f"{where}: --{name} wants one text; quote it")
            found[name] = 1
        elif name in _SWITCHES:
            found[name] = 1
        elif "pipeline" in name or "virtual" in name:
            raise FormatError(f"{where}: --{name} is not known here; {', '.join((*_NUMBERS, *_TEXTS, *_SWITCHES))} are")
    return found


def _chunks(given: Mapping[str, int], words: Sequence[str], ranks: int, where: str) -> int:
    """Chunks on each rank, by whichever option says so."""
    by = ("num-virtual-stages-per-pipeline-rank", "num-layers-per-virtual-pipeline-stage")
    named = [name for name in (*by, *_TEXTS) if name in given]
    if len(named) > 1:
        raise FormatError(f"{where}: Megatron takes one of --{' and --'.join(named)}")
    if words:
        return max(1, len(words) // ranks)
    if by[0] in given:
        return given[by[0]]
    if by[1] in given:
        each, layers = given[by[1]], given.get("num-layers", 0)
        if not layers or layers % (each * ranks):
            raise FormatError(f"{where}: --{by[1]} {each} wants --num-layers, a multiple of {each} × {ranks} ranks")
        return layers // (each * ranks)
    return 1
