"""Getting a schedule with its instance from whatever the user names."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bubbleproof.schedules.errors import FormatError

if TYPE_CHECKING:
    from bubbleproof.schedules.formats.schedule_json import Document
    from bubbleproof.schedules.instance import Instance
    from bubbleproof.schedules.schedule import Schedule

__all__ = ["Loaded", "capped", "format_of", "from_document", "load_instance", "load_schedule", "with_instance"]

_READABLE = ("json", "torch-csv", "spectrax", "jaxpp", "deepspeed", "megatron", "colossalai", "sail-sg", "primus")


@dataclass(frozen=True)
class Loaded:
    """A schedule, its instance, what its file claims, and a sentence for each thing that was inferred or assumed."""

    schedule: Schedule
    instance: Instance
    starts: tuple[tuple[int, ...], ...] | None
    record: dict[str, Any] | None
    notes: tuple[str, ...]


def load_instance(path: str) -> Instance:
    """Read an instance file; of a schedule file, the instance inside it."""
    from bubbleproof.schedules.formats import guess_format, instance_toml, schedule_json

    known = guess_format(Path(path))
    if known is not None and known.name == "json":
        return schedule_json.load(Path(path)).instance
    return instance_toml.load(Path(path))


def load_schedule(path: str, arguments: argparse.Namespace) -> Loaded:
    """Read a schedule file of any readable format.

    The options ``format``, ``instance``, ``ranks``, ``stages``, ``microbatches``, ``placement``, ``cost`` and ``cap``
    are used where the verb has them.
    """
    name = format_of(path, getattr(arguments, "format", None))
    loaded = _from_json(path, arguments) if name == "json" else _from_text(path, name, arguments)
    return capped(loaded, arguments)


def capped(loaded: Loaded, arguments: argparse.Namespace) -> Loaded:
    """Under the cap of the options, if they have one."""
    cap = getattr(arguments, "cap", None)
    if cap is None:
        return loaded
    return Loaded(loaded.schedule, loaded.instance.with_cap(cap), loaded.starts, loaded.record, loaded.notes)


def format_of(path: str, given: str | None) -> str:
    """The name of the format of a file: the one given, else the one that its name suggests."""
    from bubbleproof.schedules.formats import guess_format
    from bubbleproof.schedules.formats.files import need_file

    if given is not None:
        return given
    if path.endswith(".toml"):
        raise FormatError(f"{path}: a .toml file is an instance, which has no schedule yet; `solve` finds one")
    known = guess_format(Path(path))
    if known is None or known.name not in _READABLE:
        need_file(Path(path))
        raise FormatError(f"{path}: the name does not tell the format; give it with --format {' or '.join(_READABLE)}")
    return known.name


def _from_json(path: str, arguments: argparse.Namespace) -> Loaded:
    from bubbleproof.schedules.formats.schedule_json import load

    return from_document(load(Path(path)), path, arguments)


def from_document(document: Document, path: str, arguments: argparse.Namespace) -> Loaded:
    """A schedule file's content, under the instance that the options name or its own."""
    instance = document.instance
    given = getattr(arguments, "instance", None)
    if given is not None:
        other = load_instance(given)
        _check(path, other, arguments)
        if other != instance:
            return Loaded(
                document.schedule,
                other,
                None,
                None,
                (f"given: the instance {given} instead of the one in the file; its claims are not checked",),
            )
    if getattr(arguments, "cost", None) is not None:
        raise FormatError(f"{path}: the file has its own costs; use --instance to judge it under others")
    _check(path, instance, arguments)
    return Loaded(document.schedule, instance, document.starts, document.record, ())


def _check(path: str, instance: Instance, arguments: argparse.Namespace) -> None:
    """Refuse what the user says about the file and is not so."""
    for name, found in (
        ("ranks", instance.ranks),
        ("stages", instance.stages),
        ("microbatches", instance.microbatches),
        ("placement", instance.placement.routes[0]),
    ):
        given = getattr(arguments, name, None)
        if given is not None and given != found:
            raise FormatError(f"{path}: --{name} {_shown(given)}, but its instance has {_shown(found)}")


def _shown(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _from_text(path: str, name: str, arguments: argparse.Namespace) -> Loaded:
    from bubbleproof.schedules.formats import format_named
    from bubbleproof.schedules.formats.files import read_text
    from bubbleproof.schedules.formats.torch_csv import MAX_BYTES

    return with_instance(format_named(name).reader()(read_text(Path(path), MAX_BYTES), path), path, arguments)


def with_instance(schedule: Schedule, path: str, arguments: argparse.Namespace) -> Loaded:
    """A schedule that came without an instance, under the one that the options name or an inferred one."""
    from bubbleproof.schedules.formats.infer import infer_instance

    given = getattr(arguments, "instance", None)
    if given is not None:
        if getattr(arguments, "cost", None) is not None:
            raise FormatError(f"{path}: --cost and --instance both give costs; give one of them")
        instance = load_instance(given)
        _check(path, instance, arguments)
        return Loaded(schedule, instance, None, None, (f"given: the instance {given}",))
    inferred = infer_instance(
        schedule,
        path,
        ranks=getattr(arguments, "ranks", None),
        stages=getattr(arguments, "stages", None),
        microbatches=getattr(arguments, "microbatches", None),
        rank_of_stage=getattr(arguments, "placement", None),
        costs=getattr(arguments, "cost", None),
    )
    return Loaded(schedule, inferred.instance, None, None, inferred.notes)
