"""``bubbleproof pareto``."""

from __future__ import annotations

import argparse
import contextlib
import signal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from bubbleproof.cli import options
from bubbleproof.cli.solve_ import _gap, _seconds

if TYPE_CHECKING:
    from bubbleproof.schedules.draw.front import Picture
    from bubbleproof.schedules.instance import Instance
    from bubbleproof.solver.front import Point
    from bubbleproof.solver.front_file import SolvedCap
    from bubbleproof.solver.pareto import Pareto

__all__ = ["EPILOG", "configure", "run"]

EPILOG = """\
examples:
  bubbleproof pareto examples/zb-1.5B-p8-m24.toml --points 4 --time-limit 3 -o front.json --svg front.svg
  bubbleproof pareto examples/zb-1.5B-p8-m24.toml --points 6 --time-limit 3 -o front.json --schedules front

The second goes on from where the first ended, and writes each schedule of the front into a folder. If the ranks of
the instance have different caps, they are shifted together, and the cap named is the largest; else it is that of all.

exit code 0 if the value under every cap is proved best, else 3. Ctrl-C or SIGTERM ends the search early; a run that is
killed loses one point: the file always holds everything found and proved before.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this verb."""
    parser.add_argument("file", metavar="INSTANCE", help="an instance (.toml), or a schedule file with one inside")
    parser.add_argument("--points", type=options.positive, default=12, metavar="N", help="caps to solve; default 12")
    parser.add_argument("--time-limit", type=_seconds, default=300.0, metavar="S", help="seconds in all; default 300")
    parser.add_argument(
        "--point-limit",
        type=_seconds,
        metavar="S",
        help="seconds for a cap at first; default: a share of all, up to 60",
    )
    parser.add_argument("--caps", type=options.rank_list, default=(), metavar="N,N…", help="solve these caps only")
    parser.add_argument("--objective", choices=("makespan", "span"), help="instead of the file's")
    parser.add_argument("--microbatches", type=options.positive, metavar="M", help="instead of the file's")
    parser.add_argument("--workers", type=options.natural, default=0, metavar="N", help="threads; 0: one per processor")
    parser.add_argument("--seed", type=options.natural, default=0, metavar="N", help="default 0")
    parser.add_argument(
        "-o", "--output", type=options.file_name, metavar="OUT", help="JSON file; if it exists, go on from it"
    )
    parser.add_argument("--svg", type=options.file_name, metavar="OUT", help="draw the front as SVG")
    parser.add_argument(
        "--schedules", type=options.file_name, metavar="DIR", help="write each schedule of the front to DIR/cap-N.json"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress on standard error")
    parser.add_argument("--width", type=options.columns, metavar="N", help="columns to draw in; default: the window")


def run(arguments: argparse.Namespace) -> int:
    """Solve cap after cap, report, write."""
    from bubbleproof.cli.load import load_instance
    from bubbleproof.cli.output import emit, emit_json
    from bubbleproof.schedules.formats.files import check_writable, write_atomic

    instance = options.with_overrides(load_instance(arguments.file), arguments)
    output = Path(arguments.output) if arguments.output else None
    for name in (arguments.output, arguments.svg):
        if name:
            check_writable(Path(name))  # now, and not after the search
    from bubbleproof.solver.pareto import pareto

    with contextlib.suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    state = pareto(
        instance,
        points=arguments.points,
        time_limit=arguments.time_limit,
        point_limit=arguments.point_limit or min(60.0, arguments.time_limit / (arguments.points + 1)),
        caps=arguments.caps,
        workers=arguments.workers,
        seed=arguments.seed,
        path=output,
        on_solved=None if arguments.quiet else _log,
    )
    picture = _picture(instance, state) if state.front.found else None
    if arguments.svg and picture is not None:
        from bubbleproof.schedules.draw.front import write

        write_atomic(Path(arguments.svg), write(picture))
    if arguments.schedules:
        _save_schedules(Path(arguments.schedules), state)
    if arguments.json:
        import msgspec

        emit_json(msgspec.to_builtins(state.document))
    else:
        emit(_report(instance, state, picture, arguments))
    return 0 if state.front.closed else 3


def _log(state: Pareto, solved: SolvedCap) -> None:
    """Progress, a line for each cap."""
    from bubbleproof.cli.output import figure, log

    instance = state.front.instance
    cap = "no cap" if solved.cap is None else f"cap {figure(solved.cap, instance.units.memory)}"
    bound = min(solved.value, state.front.bound(solved.cap).bound)
    log(
        f"{len(state.solved):>4}  {cap}: best {figure(solved.value, instance.units.time)}"
        f"  bound {figure(bound)}  gap {_gap(solved.value, bound)}"
        f"  in {solved.milliseconds // 1000}.{solved.milliseconds % 1000 // 100} s"
    )


def _save_schedules(folder: Path, state: Pareto) -> None:
    """Each corner of the front as a schedule file under its own cap, for `verify`."""
    import msgspec

    from bubbleproof.schedules.errors import FormatError
    from bubbleproof.schedules.formats.schedule_json import Document, save
    from bubbleproof.solver.measure import timeline_of
    from bubbleproof.solver.result import gap

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FormatError(f"{folder}: cannot make the folder: {error.strerror or error}") from error
    for point in state.front.points():
        found, instance = point.found, state.front.at(point.cap)
        timeline = timeline_of(found.schedule, instance)
        bound = min(point.evidence.bound, found.value)
        record = {
            "objective": instance.objective,
            "value": found.value,
            "bound": bound,
            "gap": str(gap(found.value, bound)),
            "level": point.level,
            "proof": point.evidence.proof,
            "certificate": msgspec.to_builtins(
                point.evidence.certificate or state.front.formula(point.cap).certificate
            ),
            "source": found.source,
            "makespan": timeline.makespan,
            "span": timeline.span,
            "peak": list(found.peak),
        }
        save(folder / f"cap-{point.cap}.json", Document(found.schedule, instance, timeline.starts, record))


def _report(instance: Instance, state: Pareto, picture: Picture | None, arguments: argparse.Namespace) -> str:
    from bubbleproof.cli.metrics import describe_instance
    from bubbleproof.cli.output import terminal_width, unicode_ok
    from bubbleproof.schedules.draw.front import render

    front = state.front
    text = f"{instance.name or arguments.file}: {describe_instance(instance)}\n"
    text += f"objective: {front.instance.objective}; {_meaning(instance, state)}\n\n"
    if picture is None:
        return text + "interrupted before the first schedule\n"
    points = front.points()
    if arguments.caps:
        points = [point for cap in sorted(set(arguments.caps)) if (point := front.point(cap)) is not None]
    text += _table(instance, state, points)
    text += "\n" + render(picture, arguments.width or terminal_width(), unicode=unicode_ok())
    text += "\n" + _families(instance, state)
    if state.interrupted:
        text += "interrupted\n"
    if front.closed:
        return text + "the value under every cap is proved best\n"
    still = sum(interval.open for interval in front.intervals())
    return text + f"{still} ranges of caps are open: a better schedule may exist there, but none below the bound\n"


def _meaning(instance: Instance, state: Pareto) -> str:
    from bubbleproof.cli.output import figure

    least = figure(state.front.least, instance.units.memory)
    if any(state.front.rule.offsets):
        return f"the caps of the ranks are shifted together, the largest is shown; the least feasible is {least}"
    return f"the same cap for every rank; the least feasible is {least}"


def _table(instance: Instance, state: Pareto, points: list[Point]) -> str:
    from bubbleproof.cli.output import figure, ratio, table

    time, memory = instance.units.time, instance.units.memory
    least = min(found.value for found in state.front.found)
    rows = [
        [
            figure(point.cap),
            figure(point.found.value),
            ratio(Fraction(point.found.value, least) if least else 1),
            figure(min(point.evidence.bound, point.found.value)),
            _gap(point.found.value, min(point.evidence.bound, point.found.value)),
            point.level,
            "yes" if point.least else "",
            figure(max(point.found.peak)),
            point.found.source,
        ]
        for point in points
    ]
    head = [
        f"cap\n{memory if memory != '1' else ''}",
        f"{state.front.instance.objective}\n{time if time != '1' else ''}",
        "ratio to\nthe least",
        f"lower bound\n{time if time != '1' else ''}",
        "gap\n",
        "evidence\n",
        "needs this\nmuch",
        f"peak\n{memory if memory != '1' else ''}",
        "found by\n",
    ]
    return table(head, rows, left=(5, 6, 8), indent="")


def _families(instance: Instance, state: Pareto) -> str:
    from bubbleproof.cli.output import figure, ratio, table

    rows = []
    for family in sorted(state.families, key=lambda one: (one.cap or 0, one.value or 0, one.name)):
        best = None if family.cap is None else state.front.best(family.cap)
        if best is not None and family.value is not None:
            times = ratio(Fraction(family.value, best.value) if best.value else 1)
            rows.append([family.name, figure(family.cap), figure(family.value), figure(best.value), times])
    if not rows:
        return ""
    head = ["published\nfamilies", "needs\ncap", f"{state.front.instance.objective}\n", "best at\nthat cap", "ratio\n"]
    return table(head, rows, indent="") + "\n"


def _picture(instance: Instance, state: Pareto) -> Picture:
    from bubbleproof.schedules.draw.front import Label, Picture, Step

    front = state.front
    time, memory = instance.units.time, instance.units.memory
    which = "largest cap of a rank, all shifted together" if any(front.rule.offsets) else "memory cap of every rank"
    return Picture(
        title=f"{instance.name or 'instance'}: {front.instance.objective} against memory cap",
        subtitle=f"{instance.ranks} ranks, {instance.stages} stages, {instance.microbatches} microbatches",
        steps=tuple(Step(i.low, i.high, i.value, i.bound) for i in front.intervals()),
        corners=tuple((point.cap, point.found.value, point.level != "open") for point in front.points()),
        labels=tuple(
            Label(one.name, one.cap, one.value)
            for one in state.families
            if one.cap is not None and one.value is not None
        ),
        cap_title=which + (f", {memory}" if memory != "1" else ""),
        value_title=front.instance.objective + (f", {time}" if time != "1" else ""),
    )
