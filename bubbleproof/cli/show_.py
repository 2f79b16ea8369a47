"""``bubbleproof show``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from bubbleproof.cli import options

if TYPE_CHECKING:
    from bubbleproof.cli.load import Loaded

__all__ = ["EPILOG", "configure", "run"]

EPILOG = """\
examples:
  bubbleproof show 1f1b --ranks 4 --microbatches 8
  bubbleproof show zb-h1 --instance examples/zb-1.5B-p8-m24.toml --ranks-table
  bubbleproof show zb-v --ranks 4 --microbatches 8 --svg zb-v.svg
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this verb."""
    parser.add_argument("what", metavar="FILE|FAMILY", help="a schedule file, or the name of a family")
    parser.add_argument("--format", choices=("json", "torch-csv"), help="where the file's name does not tell")
    parser.add_argument("--instance", metavar="INSTANCE", help="time it under this instance")
    options.add_sizes(parser)
    parser.add_argument("--chunks", type=options.positive, metavar="V", help="stages per rank, for a family")
    options.add_cap(parser)
    options.add_colour(parser)
    parser.add_argument("--window", type=options.window, metavar="FROM:TO", help="draw only these times")
    parser.add_argument(
        "--ranks-table", action="store_true", help="a table of idle times, peak and messages of each rank"
    )
    parser.add_argument(
        "--svg", type=options.file_name, metavar="OUT", help="write a picture instead of drawing in the terminal"
    )


def run(arguments: argparse.Namespace) -> int:
    """Draw one schedule."""
    from bubbleproof.cli.metrics import as_json, describe_instance, per_rank, summary, timed
    from bubbleproof.cli.output import emit, emit_json, terminal_width, unicode_ok, use_colour
    from bubbleproof.schedules.draw.terminal import render

    loaded = _find(arguments)
    timeline = timed(loaded.schedule, loaded.instance)
    if arguments.svg:
        from bubbleproof.schedules.draw.svg import write
        from bubbleproof.schedules.formats.files import write_atomic

        write_atomic(Path(arguments.svg), write(timeline))
    if arguments.json:
        emit_json({**as_json(timeline), "inferred": list(loaded.notes)})
        return 0
    name = loaded.schedule.name or Path(arguments.what).name
    text = f"{name}: {describe_instance(loaded.instance)}\n"
    text += "".join(f"{note}\n" for note in loaded.notes) + "\n"
    if arguments.svg:
        text += f"picture written to {arguments.svg}\n\n"
    else:
        width = arguments.width or terminal_width()
        colour = use_colour(arguments.color)
        text += render(timeline, width, colour=colour, unicode=unicode_ok(), window=arguments.window) + "\n"
    emit(text + summary(timeline) + ("\n" + per_rank(timeline) if arguments.ranks_table else ""))
    return 0


def _find(arguments: argparse.Namespace) -> Loaded:
    from bubbleproof.cli.load import load_schedule
    from bubbleproof.schedules.families import FAMILIES

    if arguments.what in FAMILIES and not Path(arguments.what).is_file():
        from bubbleproof.cli.families_ import built

        return built(arguments.what, arguments)
    if not Path(arguments.what).exists() and "." not in arguments.what and "/" not in arguments.what:
        from bubbleproof.cli.families_ import unknown

        raise unknown(arguments.what)
    return load_schedule(arguments.what, arguments)
