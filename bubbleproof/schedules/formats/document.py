"""The documents behind the files: typed structures with unknown keys refused, and errors that name key and value."""

from __future__ import annotations

import difflib
import re
import types
import typing
from dataclasses import replace
from typing import Annotated, Any, TypeVar, get_args

import msgspec

from bubbleproof.schedules.costs import Channel, Costs, Memory
from bubbleproof.schedules.errors import FormatError, InstanceError
from bubbleproof.schedules.instance import Instance, Objective, Units
from bubbleproof.schedules.placement import (
    Placement,
    PlacementKind,
    bidirectional,
    custom,
    groups_of,
    linear,
    loop,
    vee,
    wave,
)

__all__ = ["INSTANCE_FORMAT", "InstanceDocument", "convert", "instance_document", "instance_of"]

INSTANCE_FORMAT = "bubbleproof-instance/1"

Positive = Annotated[int, msgspec.Meta(ge=1)]
Natural = Annotated[int, msgspec.Meta(ge=0)]
Figures = Natural | list[Natural]
"""One number for all stages (or ranks), or a list with one for each."""
Durations = Natural | list[Natural | list[Natural]]
"""One number for all stages, or a list with one for each stage, or in its place a list with one per microbatch."""
Changes = int | list[int | list[int]]
"""The same for memory changes, which may be negative."""


class UnitsTable(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Names of the units. All figures are integers in these units."""

    time: str = "1"
    memory: str = "1"


class PlacementTable(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Which rank holds which stage."""

    kind: PlacementKind
    ranks: Positive | None = None
    chunks: Positive | None = None
    rank_of_stage: list[Natural | list[Natural]] | None = None
    edges: list[list[Natural]] | None = None
    gangs: dict[str, list[Natural]] | None = None
    route_of_microbatch: str | list[Natural] | None = None


class CostTable(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Durations of the ops of each stage, and of messages between ranks."""

    F: Durations
    B: Durations
    W: Durations | None = None
    BW: Durations | None = None
    split: bool | None = None
    comm: Natural | dict[str, Natural] = 0
    channel: Channel = "latency"
    overhead: Natural = 0
    overlap_B: Durations | None = None
    overlap_BW: Durations | None = None
    R: Figures | None = None


class MemoryTable(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What each op adds to the memory of its rank, what the rank always holds, and the most it may hold."""

    F: Durations = 1
    B: Changes | None = None
    W: Changes | None = None
    BW: Changes | None = None
    static: Figures = 0
    cap: Figures | None = None
    message: Figures | None = None
    R: Figures | None = None


class InstanceDocument(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A pipeline, its microbatches, its costs and memory, and what to minimise."""

    format: str
    microbatches: Positive
    placement: PlacementTable
    cost: CostTable
    name: str = ""
    objective: Objective = "makespan"
    units: UnitsTable | None = None
    memory: MemoryTable = msgspec.field(default_factory=MemoryTable)


T = TypeVar("T")


def convert(raw: Any, kind: type[T], where: str) -> T:
    """Turn parsed TOML or JSON into a document of a kind.

    Raises
    ------
    FormatError
        An unknown key (the message names the nearest known one), a missing key, or a value of the wrong type.
    """
    _check_keys(raw, kind, "", where)
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise FormatError(f"{where}: {_one_line(_sentence(str(error), raw))}") from error
    except UnicodeEncodeError as error:  # JSON can spell half a character, which the type checker cannot compare
        raise FormatError(f"{where}: {error.object[:40]!r} holds half a character (a lone surrogate)") from error


def _check_keys(raw: Any, kind: Any, path: str, where: str) -> None:
    """Refuse unknown keys, before any other complaint: a misspelt key usually causes those."""
    if not isinstance(raw, dict):
        return
    known = {field.name: field for field in msgspec.structs.fields(kind)}
    for key, value in raw.items():
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.5) or [
                name for name in known if name.lower() == str(key).lower()
            ]
            hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}"
            raise FormatError(f"{where}: unknown key {_short(path + str(key), 60)}; {hint}")
        inner = _struct_in(known[key].type)
        if inner is not None:
            _check_keys(value, inner, f"{path}{key}.", where)


def _struct_in(kind: Any) -> Any:
    """The structure in a field's type, also behind ``… | None``."""
    options = get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
    return next((o for o in options if isinstance(o, type) and issubclass(o, msgspec.Struct)), None)


def _one_line(text: str, width: int = 400) -> str:
    """A text that may quote a file, without control characters and not too long."""
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text[:width])
    return shown if len(text) <= width else f"{shown}…"


_MISSING = re.compile(r"Object missing required field `(.+?)`")
_TYPES = {
    "int": "an integer",
    "str": "a text",
    "array": "a list",
    "object": "a table",
    "bool": "true or false",
    "float": "a number with a fraction",
    "null": "nothing",
    "date": "a date",
    "datetime": "a date",
    "time": "a time of day",
}


def _sentence(message: str, raw: Any) -> str:
    """A message of the type checker in words, with key and value."""
    message, _, place = message.partition(" - at `")
    path = place.rstrip("`").removeprefix("$").lstrip(".")
    missing = _MISSING.fullmatch(message)
    if missing:
        return f"the key {f'{path}.' if path else ''}{missing[1]} is missing"
    if message.startswith("Invalid enum value"):
        kinds = {"placement.kind": PlacementKind, "cost.channel": Channel}
        allowed = get_args(next((kind for end, kind in kinds.items() if path.endswith(end)), Objective))
        return f"{path} = {_short(_value_at(raw, path))}: none of {', '.join(allowed)}"
    if "[...]" in path:  # the type checker does not say which key of the table
        path = path.replace("[...]", f'."{_wrong_key(raw, path.partition("[")[0])}"')
    words = message.replace("Expected ", "expected ").replace(">=", "≥")
    words = re.sub(r"`([a-z |]+)`", lambda match: " or ".join(_TYPES.get(t, t) for t in match[1].split(" | ")), words)
    words = words.replace(", got ", ", not ")
    if "not a number with a fraction" in words:
        words += "; choose a finer unit instead of fractions"
    return f"{path} = {_short(_value_at(raw, path))}: {words}" if path else words


def _value_at(raw: Any, path: str) -> Any:
    """The value at a path such as ``cost.F[3]``; what the type checker writes as ``[...]`` stands for a table's key."""
    for key, quoted, index in re.findall(r'([A-Za-z_]\w*)|"(.*?)"|\[(\d+)\]', path):
        if isinstance(raw, dict):
            raw = raw.get(key or quoted)
        elif index and isinstance(raw, list):
            raw = raw[int(index)]
    return raw


def _wrong_key(raw: Any, path: str) -> str:
    """The first key of the table at a path whose value is no integer ≥ 0."""
    table = _value_at(raw, path)
    return next((key for key, value in table.items() if type(value) is not int or value < 0), "?")


def _short(value: Any, width: int = 40) -> str:
    try:
        text = {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
    except RecursionError:
        text = "deeply nested"
    if isinstance(value, str) and not value.isprintable():
        text = repr(value)
    return text if len(text) <= width else text[: width - 1] + "…"


def instance_of(document: InstanceDocument, where: str) -> Instance:
    """The instance that a document describes.

    Raises
    ------
    FormatError, InstanceError
        The document describes no possible instance; the message begins with `where`.
    """
    if document.format != INSTANCE_FORMAT:
        raise FormatError(f"{where}: format = {_short(document.format)!r}; this version reads {INSTANCE_FORMAT!r}")
    units = document.units or UnitsTable()
    for key, text in (
        ("name", document.name),
        ("units.time", units.time),
        ("units.memory", units.memory),
    ):
        if not text.isprintable():
            raise FormatError(f"{where}: {key} = {text[:40]!r}: control characters are not allowed")
    try:
        return _build(document, Units(units.time, units.memory))
    except InstanceError as error:
        raise InstanceError(f"{where}: {error}") from error


def _build(document: InstanceDocument, units: Units) -> Instance:
    cost, memory = document.cost, document.memory
    placement = _with_edges(_placement(document.placement), document.placement.edges)
    placement = _with_gangs(placement, document.placement.gangs)
    comm = cost.comm if isinstance(cost.comm, int) else {_edge(key): value for key, value in cost.comm.items()}
    costs = Costs.make(
        placement.stages,
        F=cost.F,
        B=cost.B,
        W=cost.W,
        BW=cost.BW,
        split=cost.split,
        overlap_B=cost.overlap_B,
        overlap_BW=cost.overlap_BW,
        comm=comm,
        channel=cost.channel,
        overhead=cost.overhead,
        R=cost.R,
    )
    figures = Memory.make(
        placement.stages,
        placement.ranks,
        F=memory.F,
        B=memory.B,
        W=memory.W,
        BW=memory.BW,
        static=memory.static,
        cap=memory.cap,
        message=memory.message,
        R=memory.R,
    )
    return Instance(
        placement,
        document.microbatches,
        costs,
        figures,
        document.objective,
        document.name,
        units,
        _routes(document.placement.route_of_microbatch, document.microbatches, len(placement.routes)),
    )


def _placement(table: PlacementTable) -> Placement:
    kind, ranks, chunks = table.kind, table.ranks, table.chunks
    if kind == "custom":
        if table.rank_of_stage is None:
            raise InstanceError("placement.rank_of_stage is missing; placement.kind = custom needs it")
        if chunks is not None:
            raise InstanceError("placement.chunks does not go with placement.kind = custom")
        return custom(table.rank_of_stage, ranks, gangs=_gangs(table.gangs))
    if table.rank_of_stage is not None:
        raise InstanceError(f'placement.rank_of_stage goes with placement.kind = "custom", not with "{kind}"')
    if ranks is None:
        raise InstanceError(f'placement.ranks is missing; placement.kind = "{kind}" needs it')
    if kind in ("loop", "wave"):
        if chunks is None:
            raise InstanceError(f'placement.chunks is missing; placement.kind = "{kind}" needs it')
        return (loop if kind == "loop" else wave)(ranks, chunks)
    fixed = 2 if kind == "vee" else 1
    if chunks not in (None, fixed):
        raise InstanceError(
            f'placement.chunks = {chunks}, but placement.kind = "{kind}" has {fixed} per rank and route'
        )
    return {"linear": linear, "vee": vee, "bidirectional": bidirectional}[kind](ranks)


def _with_edges(placement: Placement, edges: list[list[int]] | None) -> Placement:
    """The placement with its stage graph."""
    if edges is None:
        return placement
    for edge in edges:
        if len(edge) != 2:
            raise InstanceError(f"placement.edges: {_short(edge)} is no edge; an edge is two stages, like [0, 2]")
    if not edges and placement.stages > 1:
        raise InstanceError("placement.edges is empty; leave it out for a chain of stages")
    return replace(placement, edges=tuple((a, b) for a, b in edges))


def _with_gangs(placement: Placement, gangs: dict[str, list[int]] | None) -> Placement:
    """The placement with its stages on several ranks."""
    return placement if gangs is None else replace(placement, groups=groups_of(placement.routes[0], _gangs(gangs)))


def _gangs(given: dict[str, list[int]] | None) -> dict[int, list[int]]:
    for stage in given or ():
        if not re.fullmatch(r"0|[1-9][0-9]{0,8}", stage):
            raise InstanceError(f'placement.gangs."{stage[:40]}": a stage is a number, like "0"')
    return {int(stage): ranks for stage, ranks in (given or {}).items()}


def _routes(given: str | list[int] | None, microbatches: int, routes: int) -> tuple[int, ...]:
    if given is None or given == "halves":
        return ()
    if given == "alternate":
        # an m beyond the limit is refused by the instance; it must not be unrolled before
        return tuple(j % routes for j in range(min(microbatches, 1_000_001)))
    if isinstance(given, str):
        raise InstanceError(
            f"placement.route_of_microbatch = {_short(given)!r} is neither halves nor alternate nor a list"
        )
    return tuple(given)


def _edge(key: str) -> tuple[int, int]:
    # no leading zeros: "0-1" and "00-1" would be one edge with two times
    match = re.fullmatch(r"(0|[1-9][0-9]{0,6})-(0|[1-9][0-9]{0,6})", key)
    if match is None:
        raise InstanceError(f'cost.comm: {_short(key)!r} is no edge; an edge is two ranks, like "0-1"')
    return int(match[1]), int(match[2])


def instance_document(instance: Instance) -> InstanceDocument:
    """The document of an instance, in the shortest form: one number where all stages (or ranks) have the same."""
    costs, memory = instance.costs, instance.memory
    weight_known = costs.split or any(costs.W) or "W" in dict(costs.varying)
    derived = all(
        costs.figure("BW", s, j) == costs.figure("B", s, j) + costs.figure("W", s, j)
        for s in range(instance.stages)
        for j in range(costs.microbatches or 1)
    )
    return InstanceDocument(
        format=INSTANCE_FORMAT,
        microbatches=instance.microbatches,
        placement=_placement_table(instance),
        cost=CostTable(
            F=_stated(costs, "F"),
            B=_stated(costs, "B"),
            W=_stated(costs, "W") if weight_known else None,
            BW=None if derived else _stated(costs, "BW"),
            split=None if costs.split == weight_known else costs.split,
            comm=_comm(costs, instance.ranks),
            channel=costs.channel,
            overhead=costs.overhead,
            overlap_B=None if costs.overlap_B is None else _stated(costs, "overlap_B"),
            overlap_BW=None if costs.overlap_BW is None else _stated(costs, "overlap_BW"),
            R=None if costs.R is None else _shortest(costs.R),
        ),
        name=instance.name,
        objective=instance.objective,
        units=None if instance.units == Units() else UnitsTable(instance.units.time, instance.units.memory),
        memory=MemoryTable(
            F=_stated(memory, "F"),
            B=_stated(memory, "B"),
            W=_stated(memory, "W"),
            static=_shortest(memory.static),
            cap=None if memory.cap is None else _shortest(memory.cap),
            message=None if memory.message is None else _shortest(memory.message),
            R=None if memory.R is None else _shortest(memory.R),
        ),
    )


def _stated(table: Costs | Memory, name: str) -> Any:
    """A figure in its shortest form: a number, one per stage, or for some stages one per microbatch."""
    rows = dict(table.varying).get(name)
    if rows is None:
        return _shortest(getattr(table, name))
    differ = any(len(set(row)) > 1 for row in rows)
    return [row[0] if differ and len(set(row)) == 1 else list(row) for row in rows]


def _shortest(values: tuple[int, ...]) -> int | list[int]:
    return values[0] if len(set(values)) == 1 else list(values)


def _placement_table(instance: Instance) -> PlacementTable:
    placement, m = instance.placement, instance.microbatches
    table = PlacementTable(kind=placement.kind, ranks=placement.ranks)
    if placement.kind in ("loop", "wave"):
        table.chunks = placement.stages // placement.ranks
    if placement.kind == "custom":
        routes = placement.routes
        table.rank_of_stage = list(routes[0]) if len(routes) == 1 else [list(route) for route in routes]
    table.edges = [[a, b] for a, b in placement.edges] or None
    table.gangs = {str(s): list(group) for s, group in enumerate(placement.groups) if len(group) > 1} or None
    if len(placement.routes) == 2 and instance.route_of_microbatch != tuple(int(j >= (m + 1) // 2) for j in range(m)):
        alternate = instance.route_of_microbatch == tuple(j % 2 for j in range(m))
        table.route_of_microbatch = "alternate" if alternate else list(instance.route_of_microbatch)
    return table


def _comm(costs: Costs, ranks: int) -> int | dict[str, int]:
    if not costs.comm:
        return costs.default_comm
    edges = dict(costs.comm)
    if costs.default_comm:  # only the pairs that are named in a table may differ from 0, so the rest is named too
        edges = {(a, b): costs.message(a, b) for a in range(ranks) for b in range(ranks) if a != b}
    # an edge that is equal both ways is written once; reading completes it
    return {f"{a}-{b}": value for (a, b), value in sorted(edges.items()) if not (a > b and edges.get((b, a)) == value)}
