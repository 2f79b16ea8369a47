"""``solve --microbatches any``, and how its answers are told."""

from __future__ import annotations

import argparse
import contextlib
import signal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bubbleproof.schedules.instance import Instance
    from bubbleproof.schedules.pattern import PeriodicSchedule
    from bubbleproof.solver import EveryClass, EverySolution
    from bubbleproof.solver.result import OnProgress
    from bubbleproof.verify.every import Comparison, EveryCertificate, Rise
    from bubbleproof.verify.growth import Growth

__all__ = ["compared_json", "comparison_text", "formula", "run_every"]


def run_every(instance: Instance, arguments: argparse.Namespace, on_progress: OnProgress | None) -> int:
    """Solve for every number of microbatches, report, write."""
    from bubbleproof.cli.output import emit, emit_json
    from bubbleproof.solver import solve_every

    with contextlib.suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    solution = solve_every(
        instance,
        time_limit=arguments.time_limit,
        workers=arguments.workers,
        seed=arguments.seed,
        on_progress=on_progress,
    )
    written = _write(solution, Path(arguments.output)) if arguments.output else []
    if arguments.json:
        emit_json(_json(solution))
    else:
        emit(_report(solution, arguments.file, written))
    return 0 if solution.certified else 3


def _write(solution: EverySolution, path: Path) -> list[Path]:
    """Write one pattern file for each class of m; several carry their class in their names."""
    import msgspec

    from bubbleproof.schedules.formats import pattern_json

    paths = []
    for found in solution.classes:
        record = found.record
        name = path if record.modulus == 1 else path.with_stem(f"{path.stem}-{record.residue}-mod-{record.modulus}")
        at_least = found.pattern.instance(solution.instance, found.pattern.least)
        pattern_json.save(name, found.pattern, at_least, msgspec.to_builtins(record.certificate))
        paths.append(name)
    return paths


def _json(solution: EverySolution) -> dict[str, Any]:
    import msgspec

    return {
        "format": "bubbleproof-every-record/1",
        "classes": [msgspec.to_builtins(found.record) for found in solution.classes],
    }


def _report(solution: EverySolution, file: str, written: list[Path]) -> str:
    from bubbleproof.cli.metrics import describe_instance

    instance = solution.instance
    about = describe_instance(instance).split(", ", 1)[0]
    text = f"{instance.name or file}: {about}, every number of microbatches\n\n"
    text += f"{instance.objective} T(m) and lower bound L(m), in {_unit(instance)}\n"
    for found in solution.classes:
        text += "\n" + "".join(_class(found))
    text += "".join(f"written: {path}\n" for path in written)
    if not written:
        text += "-o writes the pattern; `bubbleproof prove` checks it again and makes the schedule for any m\n"
    return text


def _unit(instance: Instance) -> str:
    return "units of time" if instance.units.time == "1" else instance.units.time


def _class(found: EveryClass) -> list[str]:
    from bubbleproof.cli.output import wrapped
    from bubbleproof.verify.every import compare

    record, pattern = found.record, found.pattern
    induction = found.induction
    length = induction.makespan if record.objective == "makespan" else induction.span
    assert length is not None
    which = f"every m ≥ {record.least}"
    if record.modulus > 1:
        which = f"every m = {record.least}, {record.least + record.modulus}, {record.least + 2 * record.modulus}, …"
    lines = [
        wrapped(
            f"T(m) = {formula(length, pattern)} for {which}, from {record.source}: a pattern that the judge has proved "
            "complete, free of deadlock, within every cap and not longer, for every such m"
        )
    ]
    lines.append(comparison_text(record.certificate, found.bound, compare(pattern, length, found.bound), pattern))
    lines += [f"  rank {rank}  {row}\n" for rank, row in enumerate(str(pattern).splitlines())]
    return lines


def formula(figure: Growth, pattern: PeriodicSchedule) -> str:
    """A figure as a function of m, such as ``217 + 45·m``."""
    terms = []
    for level, slope in figure.lines:
        if slope < figure.slope and level + slope * pattern.least < figure.at(pattern.least):
            continue  # below another line for every n
        constant = Fraction(level) - Fraction(slope * sum(pattern.bases), pattern.period)
        terms.append(f"{constant} + {Fraction(slope, pattern.period)}·m")
    return terms[0] if len(terms) == 1 else f"the largest of {', '.join(terms)}"


def _line(bound: Rise) -> str:
    """A lower bound as a function of m."""
    slope = Fraction(bound.growth, bound.period)
    if bound.period == 1:
        return f"{bound.values[0] - slope * bound.first} + {slope}·m"
    rest = [value - slope * (bound.first + more) for more, value in enumerate(bound.values)]
    return f"{min(rest)} + {slope}·m or more, with m modulo {bound.period},"


def comparison_text(
    certificate: EveryCertificate, bound: Rise, compared: Comparison | None, pattern: PeriodicSchedule
) -> str:
    """What is known of a pattern's length by a bound for every m."""
    from bubbleproof.cli.output import wrapped
    from bubbleproof.schedules.draw.scale import percent

    where = f" on rank {certificate.rank}" if certificate.rank >= 0 else ""
    text = f"L(m) = {_line(bound)} for every m ≥ {bound.first}, by the rule {certificate.rule}{where}"
    if compared is None:
        return wrapped(f"{text}; not compared, they fall into step too late")
    each = "" if pattern.period == 1 else " of these"
    if compared.optimal:
        return wrapped(text) + wrapped(f"optimal for every m ≥ {compared.first}{each}: certified")
    if compared.worst is not None:
        return wrapped(text) + wrapped(f"open: above the bound by at most {compared.worst}, for every m{each}")
    mine, theirs = compared.per_microbatch
    gap = percent(mine / theirs - 1, digits=2) if theirs else "infinite"
    return wrapped(text) + wrapped(f"open: per microbatch {mine} against {theirs}, a gap of {gap} for large m")


def compared_json(certificate: EveryCertificate, bound: Rise, compared: Comparison | None) -> dict[str, Any]:
    """The same as data."""
    return {
        "rule": certificate.rule,
        "rank": certificate.rank,
        "via": certificate.via,
        "from": bound.first,
        "period": bound.period,
        "values": list(bound.values),
        "growth": bound.growth,
        "optimal_from": compared.first if compared is not None and compared.optimal else None,
        "excess": None if compared is None else compared.worst,
    }
