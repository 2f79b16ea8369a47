"""``bubbleproof solve``."""

from __future__ import annotations

import argparse
import contextlib
import signal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bubbleproof.cli import options
from bubbleproof.schedules.errors import BubbleproofError

if TYPE_CHECKING:
    from bubbleproof.schedules.instance import Instance
    from bubbleproof.solver import Progress, Record, Solution
    from bubbleproof.solver.result import Second

__all__ = ["EPILOG", "configure", "run"]

EPILOG = """\
examples:
  bubbleproof solve examples/zb-1.5B-p8-m24.toml --time-limit 5
  bubbleproof solve examples/loop-lm-head.toml --time-limit 5 --cap 24000 -o best.json
  bubbleproof solve examples/loop-lm-head.toml --then peak --then splits

exit code 0 if the schedule is proved optimal, 3 if not (the best one found is printed and written all the same).
Ctrl-C or SIGTERM ends the search early; the best so far is printed and written. OUT is also written while the search
goes on, whole at every moment, if it did not exist before or with --resume: after a crash, the same command with
--resume goes on from there.
"""

_LEVELS = {
    "certified": "optimal; a lower bound that `verify` checks by arithmetic, without a solver, equals the value",
    "proof-checked": "optimal; an independent checker has checked a proof that nothing better exists",
    "solver-claimed": "optimal according to CP-SAT, whose word is not checked",
    "open": "not proved; there may be a better schedule, but none below the bound",
}
_STOPPED = {
    "proved": "",
    "effort": "; the effort allowed with one worker was used up",
    "time": "; stopped by the time limit",
    "interrupted": "; interrupted",
    "running": "; the search goes on",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this verb."""
    parser.add_argument("file", metavar="INSTANCE", help="an instance (.toml), or a schedule file with one inside")
    parser.add_argument("--time-limit", type=_seconds, default=60.0, metavar="S", help="seconds; default 60")
    options.add_cap(parser)
    parser.add_argument("--objective", choices=("makespan", "span"), help="instead of the file's")
    parser.add_argument(
        "--microbatches",
        type=options.microbatches,
        metavar="M",
        help="instead of the file's; any: a pattern for every number of them",
    )
    parser.add_argument("--workers", type=options.natural, default=0, metavar="N", help="threads; 0: one per processor")
    parser.add_argument("--seed", type=options.natural, default=0, metavar="N", help="default 0")
    parser.add_argument(
        "-o",
        "--output",
        type=options.file_name,
        metavar="OUT",
        help="write the schedule, its times and its record as JSON; a new file also while the search goes on",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on from OUT, if it exists: its best schedule and bound (and proof) are taken over and kept up to date",
    )
    parser.add_argument(
        "--proof",
        type=options.file_name,
        metavar="FILE",
        help="also prove that nothing is better, write the proof, have it checked; takes up to the time limit again",
    )
    parser.add_argument(
        "--then",
        action="append",
        default=[],
        choices=("peak", "splits"),
        help="then, at the best value: the least largest peak, the fewest split backwards; in the order given",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress on standard error")
    options.add_colour(parser)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= 10**7:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no number of seconds above 0 and up to 10,000,000")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Solve, report, write."""
    from bubbleproof.cli.load import load_instance
    from bubbleproof.cli.output import emit, emit_json

    instance = options.with_overrides(load_instance(arguments.file), arguments)
    for path in filter(None, (arguments.output, arguments.proof)):
        from bubbleproof.schedules.formats.files import check_writable

        check_writable(Path(path))  # now, and not after the search
    if arguments.microbatches == "any":
        from bubbleproof.cli.every import run_every

        if arguments.proof or arguments.resume or arguments.then:
            raise BubbleproofError("--proof, --resume and --then are about one number of microbatches, not any")
        return run_every(instance, arguments, None if arguments.quiet else _Log(instance))
    from bubbleproof.solver import solve

    # a job that is being ended (timeout, a batch system) keeps its best so far, as with Ctrl-C
    with contextlib.suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    files = _Files(arguments)
    solution = solve(
        instance,
        time_limit=arguments.time_limit,
        workers=arguments.workers,
        seed=arguments.seed,
        on_progress=None if arguments.quiet else _Log(instance),
        proof=bool(arguments.proof),
        keep=files.keep if files.keeping else None,
        resume=files.document,
        resume_proof=files.proof_lines,
        then=arguments.then,
    )
    instance = solution.timeline.instance
    files.write(solution)  # before anything is printed: printing may fail
    if arguments.json:
        emit_json(_record_json(solution.record))
    else:
        emit(_report(instance, solution, arguments))
    return 3 if solution.record.level == "open" else 0


class _Log:
    """Progress, a line for each better schedule or bound."""

    def __init__(self, instance: Instance) -> None:
        self.unit = instance.units.time

    def __call__(self, progress: Progress) -> None:
        from bubbleproof.cli.output import figure, log

        seconds = f"{progress.milliseconds // 1000}.{progress.milliseconds % 1000 // 100}"
        value, bound = progress.value, progress.bound
        gap = "-" if value is None else _gap(value, bound)
        log(
            f"{seconds:>7} s  best {figure(value, self.unit)}  bound {figure(bound, self.unit)}  gap {gap}"
            f"  ({progress.source})"
        )


def _gap(value: int, bound: int) -> str:
    from bubbleproof.schedules.draw.scale import percent

    if value == bound:
        return "0"
    return percent(Fraction(value, bound) - 1, digits=2) if bound else "infinite"


def _record_json(record: Record) -> dict[str, Any]:
    import msgspec

    built: dict[str, Any] = msgspec.to_builtins(record)
    return {"format": "bubbleproof-record/1", **built}


class _Files:
    """What a solve leaves on disk and may find there: the schedule with its record, and the proof."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        from bubbleproof.schedules.formats.schedule_json import Document, load

        self.output = Path(arguments.output) if arguments.output else None
        self.proof = Path(arguments.proof) if arguments.proof else None
        self.document: Document | None = None
        self.proof_lines: list[str] | None = None
        if arguments.resume and self.output is None:
            raise BubbleproofError("--resume goes on from a file: name it with -o")
        there = self.output is not None and self.output.exists()
        self.keeping = self.output is not None and (arguments.resume or not there)
        if arguments.resume and there and self.output is not None:
            self.document = load(self.output)
            if self.proof is not None and self.proof.exists():
                from bubbleproof.cli.evidence import read_proof

                self.proof_lines = read_proof(self.proof)

    def keep(self, solution: Solution) -> None:
        """Write the best so far; a disk that is full now may not be at the end."""
        with contextlib.suppress(BubbleproofError):
            self.write(solution)

    def write(self, solution: Solution) -> None:
        """Write what there is, the proof first: a record is never ahead of its proof."""
        from bubbleproof.schedules.formats.files import write_atomic
        from bubbleproof.schedules.formats.schedule_json import Document, save

        if self.proof is not None and solution.proof is not None:
            write_atomic(self.proof, "".join(f"{line}\n" for line in solution.proof))
        if self.output is not None:
            timeline = solution.timeline
            save(
                self.output,
                Document(solution.schedule, timeline.instance, timeline.starts, _record_json(solution.record)),
            )


def _report(instance: Instance, solution: Solution, arguments: argparse.Namespace) -> str:
    from bubbleproof.cli.metrics import bubbles, describe_instance
    from bubbleproof.cli.output import figure, lay_out, terminal_width, unicode_ok, use_colour
    from bubbleproof.schedules.draw.terminal import render

    record, timeline = solution.record, solution.timeline
    unit = instance.units.time
    seconds = f"{record.milliseconds // 1000}.{record.milliseconds % 1000 // 100} s"
    head = f"{instance.name or arguments.file}: {describe_instance(instance)}\n\n"
    text = head + lay_out(
        [
            ("objective", record.objective + _meaning(record.objective)),
            ("best", f"{figure(record.value, unit)}, from {record.source}, in {seconds}{_STOPPED[record.stopped]}"),
            ("lower bound", f"{figure(record.bound, unit)}, by {record.proof}"),
            ("gap", _gap(record.value, record.bound)),
            ("evidence", f"{record.level}: {_LEVELS[record.level]}"),
            *([("proof", _proved(record, unit))] if arguments.proof else []),
            ("makespan", figure(record.makespan, unit)),
            ("span", figure(record.span, unit)),
            ("bubble of " + record.objective, bubbles(timeline, record.objective)),
            ("peak", _peaks(instance, record)),
            *((f"then {second.name}", _second(second, instance)) for second in record.then),
        ]
    )
    text += "".join(f"note: {note}\n" for note in record.notes)
    text += "\n" + _families(instance, record)
    picture = render(
        timeline,
        arguments.width or terminal_width(),
        colour=use_colour(arguments.color),
        unicode=unicode_ok(),
        max_ranks=16,
    )
    return text + "\n" + picture


def _proved(record: Record, unit: str) -> str:
    from bubbleproof.cli.output import figure

    found = record.refutation
    if found is None:
        return "none was found"
    size = f"{figure(found.inferences)} inferences, {figure(found.nogoods)} nogoods, {figure(found.bytes)} bytes"
    times = f"found in {found.milliseconds} ms, checked in {found.checked_in} ms"
    return f"that nothing is below {figure(found.length + 1, unit)}: {size}; {times}"


def _second(second: Second, instance: Instance) -> str:
    from bubbleproof.cli.output import figure

    unit = instance.units.memory if second.name == "peak" else "1"
    what = "the largest of all ranks" if second.name == "peak" else "backwards are split"
    text = f"{figure(second.value, unit)} ({what}); {second.level}"
    return text if second.level != "open" else f"{text}, bound {figure(second.bound, unit)}"


def _meaning(objective: str) -> str:
    if objective == "span":
        return " (the longest, over ranks, of last end − first start on that rank)"
    return " (last end − first start over all ranks)"


def _peaks(instance: Instance, record: Record) -> str:
    from bubbleproof.cli.output import figure

    unit, cap = instance.units.memory, instance.memory.cap
    slack = record.peak if cap is None else [peak - most for peak, most in zip(record.peak, cap, strict=True)]
    worst = max(range(len(slack)), key=slack.__getitem__)
    text = f"{figure(record.peak[worst], unit)} on rank {worst}"
    return f"{text}; no cap" if cap is None else f"{text}, cap {figure(cap[worst], unit)}"


def _families(instance: Instance, record: Record) -> str:
    from bubbleproof.cli.output import figure, ratio, table

    built = [family for family in record.families if family.value is not None]
    if not record.families:
        return "published families were not compared: the search was over before\n"
    if not built:
        return "no published family can be built on this instance\n"
    built.sort(key=lambda family: (bool(family.reason), family.value or 0, family.name))
    rows = [["this schedule", figure(record.value), "1.000", figure(max(record.peak)), "yes"]]
    rows += [
        [
            family.name,
            figure(family.value),
            ratio(Fraction(family.value or 0, record.value) if record.value else 1),
            figure(family.peak),
            "no" if family.reason else "yes",
        ]
        for family in built
    ]
    time, memory = instance.units.time, instance.units.memory
    head = [
        "published families\nat the same cap",
        f"{record.objective}\n{time if time != '1' else ''}",
        "ratio\n",
        f"peak\n{memory if memory != '1' else ''}",
        "fits\n",
    ]
    return table(head, rows, left=(0, 4), indent="")
