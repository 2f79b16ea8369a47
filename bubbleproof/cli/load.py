"""Getting a schedule with its instance from whatever the user names."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bubbleproof.schedules.errors import FormatError

if TYPE_CHECKING:
    from bubbleproof.schedules.instance import Instance
    from bubbleproof.schedules.schedule import Schedule

__all__ = ["Loaded", "load_instance", "load_schedule"]

_READABLE = ("json", "torch-csv")


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
    name = _format_of(path, getattr(arguments, "format", None))
    loaded = _from_json(path, arguments) if name == "json" else _from_csv(path, name, arguments)
    cap = getattr(arguments, "cap", None)
    if cap is None:
        return loaded
    return Loaded(loaded.schedule, loaded.instance.with_cap(cap), loaded.starts, loaded.record, loaded.notes)


def _format_of(path: str, given: str | None) -> str:
    from bubbleproof.schedules.formats import guess_format

    if given is not None:
        return given
    if path.endswith(".toml"):
        raise FormatError(f"{path}: a .toml file is an instance, which has no schedule yet; `solve` finds one")
    known = guess_format(Path(path))
    if known is None or known.name not in _READABLE:
        raise FormatError(f"{path}: the name does not tell the format; give it with --format {' or '.join(_READABLE)}")
    return known.name


def _from_json(path: str, arguments: argparse.Namespace) -> Loaded:
    from bubbleproof.schedules.formats.schedule_json import load

    document = load(Path(path))
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


def _from_csv(path: str, name: str, arguments: argparse.Namespace) -> Loaded:
    from bubbleproof.schedules.formats import format_named
    from bubbleproof.schedules.formats.files import read_text
    from bubbleproof.schedules.formats.infer import infer_instance
    from bubbleproof.schedules.formats.torch_csv import MAX_BYTES

    schedule = format_named(name).reader()(read_text(Path(path), MAX_BYTES), path)
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
