"""Options that several verbs share, and the types of their values."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from bubbleproof.schedules.instance import Instance

__all__ = [
    "add_cap",
    "add_colour",
    "add_costs",
    "add_sizes",
    "cost_table",
    "file_name",
    "positive",
    "rank_list",
    "with_overrides",
]


def _digits(text: str) -> int:
    # [0-9], not int(): that reads digits of every script, signs, blanks and underscores
    if not re.fullmatch(r"[0-9]{1,15}", text):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no integer ≥ 0")
    return int(text)


def positive(text: str) -> int:
    """An integer ≥ 1."""
    value = _digits(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is below 1")
    return value


def columns(text: str) -> int:
    """The width of a picture, up to 100,000: time and memory grow with it."""
    value = positive(text)
    if value > 100_000:
        raise argparse.ArgumentTypeError(f"{text!r} is above 100000")
    return value


def microbatches(text: str) -> int | str:
    """An integer ≥ 1, or ``any``."""
    return text if text == "any" else positive(text)


def natural(text: str) -> int:
    """An integer ≥ 0."""
    return _digits(text)


def file_name(text: str) -> str:
    """The name of a file to write; an empty one would silently mean none."""
    if not text:
        raise argparse.ArgumentTypeError("'' is no file name")
    return text


def rank_list(text: str) -> tuple[int, ...]:
    """Integers ≥ 0 separated by commas."""
    return tuple(_digits(part) for part in text.split(","))


def cap(text: str) -> int | tuple[int, ...]:
    """One cap for all ranks, or one for each, separated by commas."""
    values = rank_list(text)
    return values[0] if len(values) == 1 else values


def cost_table(text: str) -> dict[str, int]:
    """Costs such as ``F=1,B=1,W=1,comm=0``."""
    found: dict[str, int] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name not in ("F", "B", "W", "BW", "comm"):
            raise argparse.ArgumentTypeError(f"{part[:40]!r}: costs are F, B, W, BW and comm, like F=1,B=1,W=1")
        if name in found:
            raise argparse.ArgumentTypeError(f"{name} is given twice")
        found[name] = _digits(value)
    if "F" not in found or not ("B" in found or "BW" in found):
        raise argparse.ArgumentTypeError(f"{text[:40]!r}: at least F and B (or BW) are needed")
    return found


def window(text: str) -> tuple[int, int]:
    """Two times, the first below the second: ``100:400``."""
    low, colon, high = text.partition(":")
    if not colon or _digits(low) >= _digits(high):
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r}: a window is two times, the first below the second, like 100:400"
        )
    return _digits(low), _digits(high)


def add_cap(parser: argparse.ArgumentParser) -> None:
    """``--cap``."""
    parser.add_argument(
        "--cap", type=cap, metavar="N[,N…]", help="memory cap, one for all ranks or one for each, instead of the file's"
    )


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """What the user may know about a schedule that comes without an instance."""
    group = parser.add_argument_group("what is known about the file", "left out, it is inferred; given, it is checked")
    group.add_argument("--ranks", type=positive, metavar="P")
    group.add_argument("--stages", type=positive, metavar="S")
    group.add_argument("--microbatches", type=positive, metavar="M")
    group.add_argument("--placement", type=rank_list, metavar="R,R,…", help="the rank of each stage, like 0,1,1,0")
    add_costs(group)


def add_costs(parser: argparse._ActionsContainer) -> None:
    """``--cost``."""
    parser.add_argument(
        "--cost",
        type=cost_table,
        metavar="F=1,B=1,W=1",
        help="durations of every stage; without it each of F, B, W takes 1",
    )


def add_colour(parser: argparse.ArgumentParser) -> None:
    """How to draw in the terminal."""
    parser.add_argument("--width", type=columns, metavar="N", help="columns to draw in; default: the window")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="default: on a terminal")


def with_overrides(instance: Instance, arguments: argparse.Namespace) -> Instance:
    """The instance with what the options change: ``--microbatches``, ``--cap``, ``--objective``."""
    count = getattr(arguments, "microbatches", None)
    if isinstance(count, int) and count != instance.microbatches:
        instance = instance.with_(microbatches=count)
    if getattr(arguments, "cap", None) is not None:
        instance = instance.with_cap(cast("int | tuple[int, ...]", arguments.cap))
    if getattr(arguments, "objective", None) is not None:
        instance = instance.with_(objective=arguments.objective)
    return instance
