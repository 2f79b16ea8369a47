"""``bubbleproof export``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from bubbleproof.cli import export_megatron, export_torch, options

if TYPE_CHECKING:
    from bubbleproof.schedules.formats.torch_versions import Version
    from bubbleproof.schedules.instance import Instance
    from bubbleproof.schedules.schedule import Schedule
    from bubbleproof.schedules.timeline import Timeline
    from bubbleproof.verify.exchange import Target

__all__ = ["EPILOG", "configure", "run"]

EPILOG = """\
examples:
  bubbleproof families zb-v --ranks 4 --microbatches 8 -o zb-v.json
  bubbleproof export zb-v.json --to torch-csv -o zb-v.csv
  bubbleproof export zb-v.json --to torch-comms --target-version 2.10 -o zb-v.comms.csv
  bubbleproof export zb-v.json --to torchtitan -o titan.csv
  bubbleproof export zb-v.json --to perfetto -o zb-v.trace.json

The schedule is verified first; one that violates a rule is not exported, and the exit code is 1.
"""

_READABLE = ("json", "torch-csv", "spectrax", "jaxpp", "deepspeed", "megatron", "colossalai", "sail-sg", "primus")
_CHANNELS = ("eager", "rendezvous-pair", "rendezvous-rank", "per-direction", "per-edge", "batched", "even-odd")
_TARGETS = (
    *(
        "torch-csv",
        "torch-comms",
        "torchtitan",
        "spectrax",
        "jaxpp",
        "deepspeed",
        "megatron",
        "colossalai",
        "sail-sg",
        "primus",
        "program",
    ),
    *("perfetto", "svg", "json", "dot", "graphml"),
)


_MANY = 50_000
"""Ops per kind beyond which only one way to place messages is tried."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this verb."""
    parser.add_argument("file", metavar="FILE", help="a schedule: bubbleproof's .json, or PyTorch's compute-only .csv")
    parser.add_argument("--to", required=True, choices=_TARGETS, help="the format to write")
    parser.add_argument("--format", choices=_READABLE, help="of the file, where its name does not tell")
    parser.add_argument("--instance", metavar="INSTANCE", help="time the schedule under this instance")
    options.add_sizes(parser)
    options.add_cap(parser)
    parser.add_argument(
        "--channel",
        choices=_CHANNELS,
        default="rendezvous-pair",
        help="for torch-comms and program, how messages will travel: they are placed where they cost least; "
        "default: rendezvous-pair",
    )
    export_torch.configure(parser)
    export_megatron.configure(parser)
    parser.add_argument("-o", "--output", type=options.file_name, metavar="OUT", help="default: standard output")


def run(arguments: argparse.Namespace) -> int:
    """Verify, then write."""
    from bubbleproof.cli.load import load_schedule
    from bubbleproof.cli.metrics import timed
    from bubbleproof.cli.nodes import NAMES
    from bubbleproof.cli.nodes import best_text as best_nodes
    from bubbleproof.cli.output import emit, emit_json, log
    from bubbleproof.schedules.formats import format_named
    from bubbleproof.schedules.formats.files import write_atomic

    loaded = load_schedule(arguments.file, arguments)
    if refused(arguments.file, loaded.schedule, loaded.instance):
        return 1
    for note in loaded.notes:
        log(note)
    timeline = timed(loaded.schedule, loaded.instance)
    version = export_torch.version_of(arguments, loaded.schedule)
    titan = export_torch.titan_arguments(arguments, loaded.instance)
    if arguments.to in ("torch-comms", "program"):
        text = _with_messages(timeline, arguments, version)
    elif arguments.to == "deepspeed":
        from bubbleproof.cli.streams import best_text

        text = best_text(timeline)
    elif arguments.to in NAMES:
        text = best_nodes(timeline, arguments.to)
    else:
        text = export_megatron.text_of(arguments, timeline) or format_named(arguments.to).writer()(timeline)
    if arguments.output:
        write_atomic(Path(arguments.output), text)
        if titan:
            write_atomic(Path(f"{arguments.output}.args"), "".join(f"{each}\n" for each in titan))
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
                **({"arguments": titan} if titan else {}),
            }
        )
    elif not arguments.output:
        emit(text)
    if arguments.to == "torch-csv":
        export_torch.say_how_to_run(timeline, scale_grads=arguments.scale_grads)
    if titan:
        export_torch.say_arguments(titan, arguments.output)
    return 0


def _with_messages(timeline: Timeline, arguments: argparse.Namespace, version: Version | None) -> str:
    """The text of the program that takes least under the channel, of the ways to place messages, judged under it."""
    from bubbleproof.cli.output import figure, log
    from bubbleproof.schedules.errors import FormatError
    from bubbleproof.schedules.formats import program_json, torch_comms, torch_versions
    from bubbleproof.schedules.lower import lower
    from bubbleproof.verify import Verdict, verify_program

    schedule, instance = timeline.schedule, timeline.instance
    target: Target | None = "torch" if arguments.to == "torch-comms" else None
    reduce = version is None or torch_versions.reduces(version)
    best, first = None, None
    for blocking in (False, True)[: 1 if instance.stages * instance.microbatches > _MANY else 2]:
        program = lower(schedule, instance, blocking=blocking, reduce=reduce)
        run = program if reduce else torch_versions.with_final_reductions(program)
        report = verify_program(run, instance, channel=arguments.channel, target=target)
        first = first or report
        takes = report.channel.makespan if report.channel else None
        if report.verdict is Verdict.PROVED and (best is None or (takes or 0) < best[0]):
            best = takes or 0, program
    if best is None:
        assert first is not None
        found = first.violations[0] if first.violations else first.verdict.value
        raise FormatError(f"not under {arguments.channel}: {found}")
    unit = instance.units.time
    log(
        f"note: makespan {figure(timeline.makespan, unit)} without waiting for messages in order, "
        f"{figure(best[0], unit)} under {arguments.channel}"
    )
    if target:
        return torch_comms.dumps(best[1], instance)
    return program_json.dumps(program_json.Document(best[1], instance))


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
