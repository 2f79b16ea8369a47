"""``bubbleproof import``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from bubbleproof.cli import options
from bubbleproof.schedules.errors import FormatError

if TYPE_CHECKING:
    from bubbleproof.schedules.schedule import Schedule

__all__ = ["EPILOG", "configure", "run"]

EPILOG = """\
examples:
  bubbleproof families 1f1b --ranks 4 --microbatches 8 -o 1f1b.json
  bubbleproof export 1f1b.json --to torch-csv -o mine.csv
  bubbleproof import mine.csv --from torch-csv --cost F=10,B=9,W=8 -o mine.json

The schedule is verified first; one that violates a rule is not written, and the exit code is 1.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this verb."""
    parser.add_argument("file", metavar="FILE", help="the file to read")
    parser.add_argument(
        "--from",
        dest="format",
        required=True,
        choices=("torch-csv", "spectrax", "jaxpp", "deepspeed", "megatron", "colossalai", "sail-sg", "primus", "json"),
        help="its format",
    )
    parser.add_argument("--instance", metavar="INSTANCE", help="the instance that the schedule belongs to")
    parser.add_argument("--target-version", metavar="V", help="of PyTorch, 2.8 or later: refuse what it cannot run")
    options.add_sizes(parser)
    options.add_cap(parser)
    parser.add_argument("-o", "--output", type=options.file_name, metavar="OUT", help="default: standard output")


def _check_version(arguments: argparse.Namespace, schedule: Schedule) -> None:
    from bubbleproof.schedules.formats import torch_versions

    if arguments.format != "torch-csv":
        raise FormatError("--target-version is for torch-csv")
    torch_versions.check(schedule, torch_versions.parse(arguments.target_version))


def run(arguments: argparse.Namespace) -> int:
    """Read, verify, write as bubbleproof's own JSON."""
    from bubbleproof.cli.export_ import refused
    from bubbleproof.cli.load import load_schedule
    from bubbleproof.cli.output import emit, emit_json, log
    from bubbleproof.schedules.formats.schedule_json import Document, dumps, save

    loaded = load_schedule(arguments.file, arguments)
    if arguments.target_version is not None:
        _check_version(arguments, loaded.schedule)
    if refused(arguments.file, loaded.schedule, loaded.instance):
        return 1
    document = Document(loaded.schedule, loaded.instance)
    for note in loaded.notes:
        log(note)
    if arguments.output:
        save(Path(arguments.output), document)
        if arguments.json:
            emit_json({"output": arguments.output, "inferred": list(loaded.notes)})
    else:
        emit(dumps(document))
    return 0
