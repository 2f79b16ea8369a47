"""``bubbleproof families``."""

from __future__ import annotations

import argparse
import difflib
from pathlib import Path
from typing import TYPE_CHECKING

from bubbleproof.cli import options
from bubbleproof.cli.load import Loaded
from bubbleproof.schedules.errors import FamilyError

if TYPE_CHECKING:
    from bubbleproof.schedules.families import Family
    from bubbleproof.schedules.instance import Instance

__all__ = ["EPILOG", "built", "configure", "instance_for", "run", "unknown"]

EPILOG = """\
examples:
  bubbleproof families
  bubbleproof families zb-h1 --ranks 8 --microbatches 24
  bubbleproof families interleaved-1f1b --ranks 4 --microbatches 8 --chunks 2 -o interleaved.json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this verb."""
    parser.add_argument("name", metavar="FAMILY", nargs="?", help="build this one; without a name all are listed")
    parser.add_argument("--instance", metavar="INSTANCE", help="build it on this instance")
    parser.add_argument("--ranks", type=options.positive, metavar="P", help="default 4")
    parser.add_argument("--microbatches", type=options.positive, metavar="M", help="default 8")
    parser.add_argument("--chunks", type=options.positive, metavar="V", help="stages per rank")
    options.add_costs(parser)
    options.add_cap(parser)
    parser.add_argument("-o", "--output", type=options.file_name, metavar="OUT", help="write the schedule as JSON")
    options.add_colour(parser)


def run(arguments: argparse.Namespace) -> int:
    """List families, or build one."""
    from bubbleproof.cli.output import emit, emit_json
    from bubbleproof.schedules.families import FAMILIES

    if arguments.name is not None:
        return _build(arguments)
    if arguments.json:
        emit_json([{"name": f.name, "summary": f.summary, "reference": f.reference} for f in FAMILIES.values()])
        return 0
    width = max(map(len, FAMILIES))
    lines = [f"{family.name:<{width}}  {family.summary}\n" for family in FAMILIES.values()]
    emit("".join(lines) + "\nbuild one: bubbleproof families NAME --ranks P --microbatches M [--chunks V]\n")
    return 0


def _build(arguments: argparse.Namespace) -> int:
    from bubbleproof.cli.metrics import as_json, describe_instance, summary, timed
    from bubbleproof.cli.output import emit, emit_json, terminal_width, unicode_ok, use_colour
    from bubbleproof.schedules.draw.terminal import render
    from bubbleproof.schedules.families import FAMILIES

    loaded = built(arguments.name, arguments)
    timeline = timed(loaded.schedule, loaded.instance)
    if arguments.output:
        from bubbleproof.schedules.formats.schedule_json import Document, save

        save(Path(arguments.output), Document(loaded.schedule, loaded.instance))
    family = FAMILIES[arguments.name]
    if arguments.json:
        emit_json({**as_json(timeline), "reference": family.reference, "inferred": list(loaded.notes)})
        return 0
    text = f"{family.name}: {family.summary}\nreference: {family.reference}\n"
    text += f"on {describe_instance(loaded.instance)}\n"
    text += "".join(f"{note}\n" for note in loaded.notes) + "\n"
    width = arguments.width or terminal_width()
    text += render(timeline, width, colour=use_colour(arguments.color), unicode=unicode_ok())
    emit(text + "\n" + summary(timeline))
    return 0


def built(name: str, arguments: argparse.Namespace) -> Loaded:
    """A family's schedule on the instance that the options name or describe.

    Raises
    ------
    FamilyError
        There is no such family, or it cannot be built on that instance.
    """
    from bubbleproof.schedules.families import FAMILIES

    if name not in FAMILIES:
        raise unknown(name)
    family = FAMILIES[name]
    instance, notes = instance_for(family, arguments)
    return Loaded(family.build(instance), instance, None, None, notes)


def instance_for(family: Family, arguments: argparse.Namespace) -> tuple[Instance, tuple[str, ...]]:
    """The instance that the options name, or describe for a family; with a sentence for what was assumed.

    Raises
    ------
    FamilyError
        Options contradict each other.
    """
    if arguments.instance is not None:
        from bubbleproof.cli.load import load_instance

        for option in ("ranks", "chunks", "cost", "stages", "placement"):
            if getattr(arguments, option, None) is not None:
                raise FamilyError(f"--{option} does not go with --instance, which says it already")
        return options.with_overrides(load_instance(arguments.instance), arguments), ()
    for option in ("stages", "placement"):
        if getattr(arguments, option, None) is not None:
            raise FamilyError(f"--{option} does not go with the family {family.name}, which has its own placement")
    from bubbleproof.schedules.costs import Costs, Memory
    from bubbleproof.schedules.instance import Instance

    placement = family.placement(arguments.ranks or 4, arguments.chunks or family.chunks)
    usual = family.placement(placement.ranks, family.chunks)
    if arguments.chunks not in (None, family.chunks) and placement == usual:
        raise FamilyError(f"--chunks does not go with the family {family.name}, which has its own placement")
    table = arguments.cost or {"F": 1, "B": 1, "W": 1}
    comm = table.get("comm", 0)
    weight = table.get("W")
    if "B" not in table:  # only the whole backward is known, so it cannot be split
        costs = Costs.make(placement.stages, F=table["F"], B=table["BW"], comm=comm)
    else:
        costs = Costs.make(placement.stages, F=table["F"], B=table["B"], W=weight, BW=table.get("BW"), comm=comm)
    memory = Memory.make(placement.stages, placement.ranks, cap=arguments.cap)
    instance = Instance(placement, getattr(arguments, "microbatches", None) or 8, costs, memory)
    shown = ", ".join(f"{key} = {value}" for key, value in table.items())
    notes = (
        () if arguments.cost else (f"assumed: costs {shown}; an activation counts 1 and the last backward op frees it",)
    )
    return instance, notes


def unknown(name: str) -> FamilyError:
    """The error for a name that is no family, with the nearest that is."""
    from bubbleproof.schedules.families import FAMILIES

    near = difflib.get_close_matches(name, FAMILIES, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(FAMILIES)}"
    return FamilyError(f"no family and no file is named {name[:40]!r}; {hint}")
