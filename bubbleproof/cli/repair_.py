"""``bubbleproof repair``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from bubbleproof.cli import options
from bubbleproof.schedules.errors import FormatError

if TYPE_CHECKING:
    from bubbleproof.cli.load import Loaded
    from bubbleproof.schedules.program import Program
    from bubbleproof.solver.repair import Repair

__all__ = ["EPILOG", "configure", "run"]

EPILOG = """\
examples:
  bubbleproof families 1f1b --ranks 4 --microbatches 8 -o 1f1b.json
  bubbleproof repair 1f1b.json
  bubbleproof export 1f1b.json --to torch-comms -o 1f1b.comms.csv
  bubbleproof repair 1f1b.comms.csv --format torch-comms --channel rendezvous-rank -o safe.csv

Fewest moves first, then least time. What is written has been proved by the judge. docs/repair.md says more.
exit code 0 if nothing was wrong or it was repaired, 1 if there is no repair.
"""

# written out, since what is imported to build the command line is imported by every verb
_CHANNELS = ("eager", "rendezvous-pair", "rendezvous-rank", "per-direction", "per-edge", "batched", "even-odd")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this verb."""
    parser.add_argument("file", metavar="FILE", help="a schedule or program: bubbleproof's .json, or PyTorch's .csv")
    parser.add_argument(
        "--format", choices=("json", "torch-csv", "torch-comms", "program"), help="where the file does not tell"
    )
    parser.add_argument("--instance", metavar="INSTANCE", help="repair it under this instance")
    options.add_sizes(parser)
    options.add_cap(parser)
    parser.add_argument(
        "--channel", choices=_CHANNELS, default="rendezvous-pair", help="how messages travel; default: rendezvous-pair"
    )
    parser.add_argument("--target", choices=("torch",), help="a runtime whose own rules hold as well")
    parser.add_argument(
        "--no-scale-grads", dest="scale_grads", action="store_false", help="REDUCE_GRAD does not divide by m"
    )
    parser.add_argument(
        "--time-limit", type=options.positive, default=10, metavar="SECONDS", help="of each search; default 10"
    )
    parser.add_argument(
        "-o", "--output", type=options.file_name, metavar="OUT", help="write the result; .json, or .csv for PyTorch"
    )


def run(arguments: argparse.Namespace) -> int:
    """Repair one file."""
    from bubbleproof.cli.output import emit, emit_json
    from bubbleproof.schedules.formats.files import check_writable
    from bubbleproof.solver.repair import NoRepair, repair

    program, loaded = _load(arguments.file, arguments)
    if arguments.output:  # now, and not after the search
        if Path(arguments.output).suffix.lower() not in (".json", ".csv"):
            raise FormatError(f"{arguments.output}: what to write is told by the name: .json, or .csv for PyTorch")
        check_writable(Path(arguments.output))
    try:
        found = repair(
            program or loaded.schedule,
            loaded.instance,
            channel=arguments.channel,
            target=arguments.target,
            scale_grads=arguments.scale_grads,
            seconds=arguments.time_limit,
        )
    except NoRepair as reason:
        if arguments.json:
            emit_json({"file": arguments.file, "repaired": False, "reason": str(reason)})
        else:
            emit(f"{arguments.file}: {reason}\n")
        return 1
    if arguments.output:
        _write(Path(arguments.output), found, communicates=program is not None)
    if arguments.json:
        emit_json(_document(arguments, found, loaded, program is not None))
    else:
        emit(_text(arguments, found, loaded, program is not None))
    return 0


def _load(path: str, arguments: argparse.Namespace) -> tuple[Program | None, Loaded]:
    """The program of the file, None if it is a schedule without communication; and what belongs to it."""
    from bubbleproof.cli.load import capped, format_of, from_document, load_schedule, with_instance
    from bubbleproof.schedules.formats import program_json, schedule_json, torch_comms
    from bubbleproof.schedules.formats.files import read_text

    name = arguments.format
    if name in (None, "program", "torch-comms"):
        suffix = Path(path).suffix.lower()
        if name is None and suffix not in (".json", ".csv"):
            format_of(path, None)  # says why
        text = read_text(Path(path), torch_comms.MAX_BYTES)
        if name is None and suffix == ".csv" and ("SEND_" in text or "RECV_" in text):
            name = "torch-comms"
        if name is None and suffix == ".json" and f'"{program_json.PROGRAM_FORMAT}"' in text:
            name = "program"
        if name == "torch-comms":
            program = torch_comms.loads(text, path)
            return program, capped(with_instance(program.schedule, path, arguments), arguments)
        if name == "program":
            document = program_json.loads(text, path)
            schedule = schedule_json.Document(document.program.schedule, document.instance)
            return document.program, capped(from_document(schedule, path, arguments), arguments)
    return None, load_schedule(path, arguments)


def _write(path: Path, found: Repair, *, communicates: bool) -> None:
    from bubbleproof.schedules.formats import program_json, schedule_json, torch_comms, torch_csv
    from bubbleproof.schedules.formats.files import write_atomic
    from bubbleproof.schedules.timeline import replay

    program, instance = found.program, found.instance
    if path.suffix.lower() == ".csv":
        if communicates:
            write_atomic(path, torch_comms.dumps(program, instance))
        else:
            write_atomic(path, torch_csv.write(replay(program.schedule, instance)))
    elif communicates:
        program_json.save(path, program_json.Document(program, instance))
    else:
        schedule_json.save(path, schedule_json.Document(program.schedule, instance))


def _document(arguments: argparse.Namespace, found: Repair, loaded: Loaded, communicates: bool) -> dict[str, object]:
    return {
        "file": arguments.file,
        "repaired": True,
        "output": arguments.output,
        "inferred": list(loaded.notes),
        "channel": arguments.channel if communicates else None,
        "changes": [
            {"what": c.what, "action": c.action, "from": c.source and list(c.source), "to": c.target and list(c.target)}
            for c in found.changes
        ],
        "moved_ops": found.moved_ops,
        "moved_transfers": found.moved_transfers,
        "level": found.level,
        "bound_ops": found.bound_ops,
        "bound_transfers": found.bound_transfers,
        "makespan_before": found.makespan_before,
        "makespan_after": found.makespan_after,
        "makespan_ops_alone": found.report.facts.makespan,
        "broken_before": dict(found.before.counts),
        "verdict": found.report.verdict.value,
        "rows": [[str(action) for action in row] for row in found.program.rows],
    }


def _text(arguments: argparse.Namespace, found: Repair, loaded: Loaded, communicates: bool) -> str:
    from bubbleproof.cli.output import figure, wrapped

    under = f" under {arguments.channel}" if communicates else ""
    if not found.changed:
        lines = [f"nothing to repair: {found.report.verdict.value}{under}"]
    else:
        lines = [f"was wrong: {violation}" for violation in found.before.violations[:3]]
        hidden = sum(found.before.counts.values()) - len(lines)
        lines += [f"was wrong: {hidden} more, which `verify` lists"] if hidden > 0 else []
        lines += [str(change) for change in found.changes]
        lines.append(_size(found))
        unit, after = loaded.instance.units.time, found.makespan_after
        before = found.makespan_before
        was = "never ends" if before is None else f"takes {figure(before, unit)}"
        alone = found.report.facts.makespan
        lines.append(
            f"time{under}: as given it {was}; repaired it takes {figure(after, unit)}"
            + (f", its ops alone {figure(alone, unit)}" if communicates else "")
        )
        lines.append(f"the result is {found.report.verdict.value}{under}")
    if arguments.output:
        lines.append(f"written to {arguments.output}")
    return f"{arguments.file}:\n" + "".join(wrapped(line, "  ") for line in (*lines, *loaded.notes))


def _size(found: Repair) -> str:
    said = f"moved: {found.moved_ops} ops or pairs, {found.moved_transfers} transfers"
    if found.level == "fewest":
        return f"{said}; proved fewest"
    return f"{said}; that fewer than {found.bound_ops} and {found.bound_transfers} will not do is proved, no more"
