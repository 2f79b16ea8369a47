"""``bubbleproof compare``."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bubbleproof.cli import options
from bubbleproof.schedules.errors import BubbleproofError

if TYPE_CHECKING:
    from bubbleproof.schedules.instance import Instance
    from bubbleproof.schedules.schedule import Schedule
    from bubbleproof.schedules.timeline import Timeline

__all__ = ["EPILOG", "configure", "run"]

EPILOG = """\
examples:
  bubbleproof compare examples/llama-405B-p16-m64.toml
  bubbleproof compare examples/zb-1.5B-p8-m24.toml --families 1f1b,zb-h1,zb-h2

Every schedule is timed anew under the instance. Exit code 1 if a file's schedule cannot run on it.
"""


@dataclass(frozen=True)
class _Row:
    name: str
    timeline: Timeline | None
    makespan: int | None
    reason: str
    """Why it cannot be built or run."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this verb."""
    parser.add_argument(
        "instance_file", metavar="INSTANCE", help="an instance (.toml), or a schedule file with one inside"
    )
    parser.add_argument("files", metavar="FILE", nargs="*", help="schedules of the same pipeline")
    parser.add_argument("--families", metavar="NAME,…", help="only these; 'none' for none; default: all that apply")
    options.add_cap(parser)
    parser.add_argument("--microbatches", type=options.positive, metavar="M", help="instead of the file's")
    parser.add_argument(
        "--objective", choices=("makespan", "span"), help="instead of the file's; the table is sorted by it"
    )


def run(arguments: argparse.Namespace) -> int:
    """Time everything under one instance and print a table."""
    from bubbleproof.cli.load import load_instance
    from bubbleproof.cli.output import emit, emit_json

    instance = options.with_overrides(load_instance(arguments.instance_file), arguments)
    from_files = [_file_row(path, instance) for path in arguments.files]
    from_families = [_family_row(name, instance) for name in _names(arguments.families)]
    if arguments.json:
        emit_json([_json(row) for row in from_files + from_families])
    else:
        emit(_text(instance, from_files, from_families, explicit=arguments.families is not None))
    return 1 if any(row.timeline is None for row in from_files) else 0


def _names(given: str | None) -> list[str]:
    from bubbleproof.cli.families_ import unknown
    from bubbleproof.schedules.families import FAMILIES

    if given is None:
        return list(FAMILIES)
    names = [] if given == "none" else given.split(",")
    for name in names:
        if name not in FAMILIES:
            raise unknown(name)
    return names


def _file_row(path: str, instance: Instance) -> _Row:
    from bubbleproof.cli.load import load_schedule

    return _row(path, load_schedule(path, argparse.Namespace()).schedule, instance)


def _family_row(name: str, instance: Instance) -> _Row:
    from bubbleproof.schedules.families import FAMILIES

    reason = FAMILIES[name].applicable(instance)
    if reason is not None:
        return _Row(name, None, None, reason)
    return _row(name, FAMILIES[name].build(instance), instance)


def _row(name: str, schedule: Schedule, instance: Instance) -> _Row:
    from bubbleproof.cli.metrics import timed
    from bubbleproof.schedules.timeline import replay
    from bubbleproof.verify import Verdict, verify

    report = verify(schedule, instance.with_cap(None))
    if report.verdict != Verdict.PROVED:
        return _Row(name, None, None, str(report.violations[0]))
    try:
        timeline = timed(schedule, instance)
        return _Row(name, timeline, replay(schedule, instance).makespan, "")
    except BubbleproofError as error:
        return _Row(name, None, None, str(error))


def _excess(timeline: Timeline) -> str:
    """By how much the worst rank is above its cap, in words; empty if every rank stays below."""
    from bubbleproof.cli.output import figure

    cap, unit = timeline.instance.memory.cap, timeline.instance.units.memory
    if cap is None:
        return ""
    worst = max(range(len(cap)), key=lambda rank: timeline.peaks[rank].memory - cap[rank])
    peak = timeline.peaks[worst].memory
    if peak <= cap[worst]:
        return ""
    return f"needs {figure(peak, unit)} on rank {worst}, cap {figure(cap[worst], unit)}"


def _rank(row: _Row, timeline: Timeline) -> tuple[bool, int, str]:
    """What fits comes first, then what is faster."""
    value = row.makespan if timeline.instance.objective == "makespan" else timeline.span
    return bool(_excess(timeline)), value or 0, row.name


def _cap(instance: Instance) -> str:
    from bubbleproof.cli.output import figure

    caps = set(instance.memory.cap or ())
    if not caps:
        return "no cap"
    low, high = figure(min(caps)), figure(max(caps), instance.units.memory)
    return f"cap {high}" if len(caps) == 1 else f"caps {low} to {high}"


def _text(instance: Instance, files: list[_Row], families: list[_Row], *, explicit: bool) -> str:
    from bubbleproof.cli.metrics import describe_instance
    from bubbleproof.cli.output import figure, table
    from bubbleproof.schedules.draw.scale import percent

    shown = [(row, timeline) for row in files + families if (timeline := row.timeline) is not None]
    shown.sort(key=lambda pair: _rank(*pair))
    time, memory = instance.units.time, instance.units.memory
    rows = []
    for row, timeline in shown:
        rows.append(
            [
                row.name,
                figure(row.makespan),
                figure(timeline.span),
                percent(timeline.bubble("step", instance.objective)),
                percent(timeline.bubble("compute", instance.objective)),
                figure(max(peak.memory for peak in timeline.peaks)),
                "yes" if not _excess(timeline) else "no",
            ]
        )
    head = [
        "schedule\n",
        f"makespan\n{time if time != '1' else ''}",
        f"span\n{time if time != '1' else ''}",
        "bubble\n/step",
        "bubble\n/compute",
        f"peak\n{memory if memory != '1' else ''}",
        "fits\n",
    ]
    text = f"{instance.name or 'instance'}: {describe_instance(instance)}\n"
    text += f"{_cap(instance)}; bubbles are those of the {instance.objective}\n\n"
    text += table(head, rows, left=(0, 6), indent="") if rows else "nothing to compare\n"
    text += "".join(f"\n{row.name} {_excess(timeline)}" for row, timeline in shown if _excess(timeline))
    refused = [row for row in files if row.timeline is None]
    missing = [row for row in families if row.timeline is None]
    text += "".join(f"\n{row.name} cannot run on this instance: {row.reason}" for row in refused)
    if missing and explicit:
        text += "".join(f"\n{row.name} {row.reason}" for row in missing)
    elif missing:
        text += f"\nnot built here: {', '.join(row.name for row in missing)}\n(name one with --families to see why)"
    return text.rstrip() + "\n"


def _json(row: _Row) -> dict[str, Any]:
    from bubbleproof.cli.metrics import as_json

    if row.timeline is None:
        return {"name": row.name, "error": row.reason}
    figures = as_json(row.timeline)
    del figures["critical_path"]
    return {"name": row.name, **figures, "makespan": row.makespan, "excess": _excess(row.timeline)}
