"""``bubbleproof export``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from bubbleproof.cli import options

if TYPE_CHECKING:
    from bubbleproof.schedules.instance import Instance
    from bubbleproof.schedules.schedule import Schedule
    from bubbleproof.schedules.timeline import Timeline

__all__ = ["EPILOG", "configure", "run"]

EPILOG = """\
examples:
  bubbleproof families zb-v --ranks 4 --microbatches 8 -o zb-v.json
  bubbleproof export zb-v.json --to torch-csv -o zb-v.csv
  bubbleproof export zb-v.json --to perfetto -o zb-v.trace.json

The schedule is verified first; one that violates a rule is not exported, and the exit code is 1.
"""

_TARGETS = ("torch-csv", "torch-comms", "program", "perfetto", "svg", "json", "dot", "graphml")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this verb."""
    parser.add_argument("file", metavar="FILE", help="a schedule: bubbleproof's .json, or PyTorch's compute-only .csv")
    parser.add_argument("--to", required=True, choices=_TARGETS, help="the format to write")
    parser.add_argument("--format", choices=("json", "torch-csv"), help="of the file, where its name does not tell")
    parser.add_argument("--instance", metavar="INSTANCE", help="time the schedule under this instance")
    options.add_sizes(parser)
    options.add_cap(parser)
    parser.add_argument("-o", "--output", type=options.file_name, metavar="OUT", help="default: standard output")


def run(arguments: argparse.Namespace) -> int:
    """Verify, then write."""
    from bubbleproof.cli.load import load_schedule
    from bubbleproof.cli.metrics import timed
    from bubbleproof.cli.output import emit, emit_json, log
    from bubbleproof.schedules.formats import format_named
    from bubbleproof.schedules.formats.files import write_atomic

    loaded = load_schedule(arguments.file, arguments)
    if refused(arguments.file, loaded.schedule, loaded.instance):
        return 1
    for note in loaded.notes:
        log(note)
    timeline = timed(loaded.schedule, loaded.instance)
    text = format_named(arguments.to).writer()(timeline)
    if arguments.output:
        write_atomic(Path(arguments.output), text)
    if arguments.json:
        placement = loaded.instance.placement
        emit_json(
            {
                "format": arguments.to,
                "output": arguments.output,
                "text": None if arguments.output else text,
                "ranks": placement.ranks,
                "microbatches": loaded.instance.microbatches,
                "placement": placement.routes[0] if len(placement.routes) == 1 else placement.routes,
            }
        )
    elif not arguments.output:
        emit(text)
    if arguments.to == "torch-csv":
        _say_how_to_run(timeline)
    return 0


def refused(file: str, schedule: Schedule, instance: Instance) -> bool:
    """Whether the judge refuses a schedule; if so, the first violations are printed."""
    from bubbleproof.cli.output import log
    from bubbleproof.verify import Verdict, verify

    report = verify(schedule, instance)
    if report.verdict == Verdict.PROVED:
        return False
    log(f"{file}: {report.verdict.value}; nothing is written")
    for violation in report.violations[:5]:
        log(f"  {violation}")
    log("`bubbleproof verify` shows all of it")
    return True


def _say_how_to_run(timeline: Timeline) -> None:
    from bubbleproof.cli.output import log
    from bubbleproof.schedules.op import Overlap

    route = timeline.instance.placement.routes[0]
    shown = ",".join(map(str, route[:32])) + (",…" if len(route) > 32 else "")
    pairs = any(isinstance(slot, Overlap) for _, _, slot in timeline.schedule.slots())
    log(
        f"note: for torch.distributed.pipelining {'2.9' if pairs else '2.6'} or later, as compute_only; "
        f"{timeline.instance.microbatches} microbatches; stages 0, 1, … live on ranks {shown}"
    )
