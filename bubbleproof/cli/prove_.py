"""``bubbleproof prove``."""

from __future__ import annotations

import argparse
import importlib
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bubbleproof.cli import options
from bubbleproof.schedules.errors import BubbleproofError, FamilyError

if TYPE_CHECKING:
    from bubbleproof.schedules.instance import Instance
    from bubbleproof.schedules.pattern import PeriodicSchedule
    from bubbleproof.schedules.schedule import Schedule
    from bubbleproof.verify.forall import Class, ForAll, Generator
    from bubbleproof.verify.growth import Growth
    from bubbleproof.verify.induction import Induction

__all__ = ["EPILOG", "configure", "judge_pattern", "run"]

EPILOG = """\
examples:
  bubbleproof prove 1f1b --ranks 4
  bubbleproof prove zb-v --ranks 4 --peak 8 -o zb-v-pattern.json
  bubbleproof prove interleaved-1f1b --ranks 4 --chunks 2 --multiple-of 4
  bubbleproof prove zb-v-pattern.json
  bubbleproof prove zb-v-pattern.json --make 1000 -o zb-v-1000.json

exit code 0 if the periodic schedule is proved for every number of microbatches, 1 if some schedule is wrong, 3 if no
period was found and only the schedules up to the m given were judged.
"""

_EXIT = {"PROVED": 0, "VIOLATED": 1, "BOUNDED": 3, "UNKNOWN": 3}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this verb."""
    parser.add_argument(
        "name", metavar="FAMILY", help="a family, a generator of yours as package.module:function, or a pattern file"
    )
    parser.add_argument("--instance", metavar="INSTANCE", help="costs, memory and placement; its m has no meaning")
    parser.add_argument("--ranks", type=options.positive, metavar="P", help="default 4")
    parser.add_argument("--chunks", type=options.positive, metavar="V", help="stages per rank")
    options.add_costs(parser)
    parser.add_argument(
        "--cap", "--peak", type=options.cap, metavar="N[,N…]", help="the most memory a rank may hold, for every m"
    )
    parser.add_argument("--min-microbatches", type=options.positive, default=1, metavar="M", help="only m ≥ M")
    parser.add_argument("--multiple-of", type=options.positive, default=1, metavar="K", help="only multiples of K")
    parser.add_argument("--up-to", type=options.positive, metavar="M", help="compare the generator at least up to M")
    parser.add_argument(
        "--make", type=options.positive, metavar="M", help="write a pattern's schedule for M microbatches"
    )
    parser.add_argument("-o", "--output", metavar="OUT", help="write the proved pattern (or what --make makes) as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Prove a family, a generator or a pattern for every number of microbatches."""
    if arguments.name.endswith(".json"):
        return _pattern(arguments)
    if arguments.make is not None:
        raise FamilyError("--make goes with a pattern file")
    from bubbleproof.cli.metrics import describe_instance
    from bubbleproof.cli.output import emit, emit_json
    from bubbleproof.verify.forall import prove

    generator, instance = _asked(arguments)
    answer = prove(
        generator,
        instance,
        first=arguments.min_microbatches,
        multiple_of=arguments.multiple_of,
        up_to=arguments.up_to,
    )
    if arguments.output:
        _write(arguments.output, answer, instance, arguments.name)
    if arguments.json:
        emit_json(_as_json(answer))
    else:
        about = describe_instance(instance).split(", ", 1)
        emit(f"{arguments.name} on {about[0]}\n" + _text(answer, arguments))
    return _EXIT[answer.verdict.value]


def _asked(arguments: argparse.Namespace) -> tuple[Generator, Instance]:
    """The generator that is meant, and an instance for it."""
    from bubbleproof.cli.families_ import instance_for, unknown
    from bubbleproof.schedules.families import FAMILIES
    from bubbleproof.schedules.families.family import Family, linear_only
    from bubbleproof.schedules.placement import loop

    if arguments.name in FAMILIES:
        family = FAMILIES[arguments.name]
        return family.build, instance_for(family, arguments)[0]
    if ":" not in arguments.name:
        raise unknown(arguments.name)
    module, _, function = arguments.name.partition(":")
    try:
        generator = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise FamilyError(f"{arguments.name}: {error}") from error
    placement = loop if arguments.chunks else linear_only
    guarded = _guarded(generator, arguments.name)
    own = Family(arguments.name, "", "", guarded, lambda _: None, placement)
    return guarded, instance_for(own, arguments)[0]


def _guarded(generator: Generator, name: str) -> Generator:
    """A generator of the user's whose faults are told in one line, with the place."""
    from bubbleproof.schedules.schedule import Schedule

    def build(instance: Instance) -> Schedule:
        try:
            made = generator(instance)
        except BubbleproofError:
            raise
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{frame.filename}, line {frame.lineno}"
            kind = type(error).__name__
            raise BubbleproofError(
                f"{name} failed at m = {instance.microbatches}: {kind}: {error} ({where})"
            ) from error
        if not isinstance(made, Schedule):
            raise BubbleproofError(f"{name} made a {type(made).__name__}, not a bubbleproof.Schedule")
        return made

    return build


def _pattern(arguments: argparse.Namespace) -> int:
    """Prove a pattern file, or write one of its schedules."""
    from bubbleproof.cli.output import emit
    from bubbleproof.schedules.formats import pattern_json

    for option in ("instance", "ranks", "chunks", "cost", "up_to"):
        if getattr(arguments, option) is not None:
            raise BubbleproofError(
                f"--{option.replace('_', '-')} does not go with a pattern file, which says it already"
            )
    pattern, instance, bound = pattern_json.load_file(Path(arguments.name))
    instance = options.with_overrides(instance, arguments)
    if arguments.make is not None:
        from bubbleproof.schedules.formats.schedule_json import Document, save

        if not arguments.output:
            raise BubbleproofError("--make needs -o, the file to write")
        n = pattern.blocks(arguments.make)
        save(Path(arguments.output), Document(pattern.schedule(n), pattern.instance(instance, n)))
        emit("" if not arguments.json else "{}\n")
        return 0
    if arguments.output:
        raise BubbleproofError("-o goes with a family, or with --make")
    return judge_pattern(pattern, instance, bound, as_json=arguments.json)


def judge_pattern(pattern: PeriodicSchedule, instance: Instance, bound: dict[str, Any] | None, *, as_json: bool) -> int:
    """Print whether a pattern holds for every m, and how long it is against a bound; gives the exit code."""
    from bubbleproof.cli.output import emit, emit_json
    from bubbleproof.verify.induction import induct

    found = induct(pattern, instance)
    compared = None if bound is None else _compared(found, instance, bound)
    if as_json:
        emit_json(_induction_json(found) | ({} if compared is None else {"bound": compared[1]}))
        return _EXIT[found.verdict.value]
    least, period = pattern.microbatches(pattern.least), pattern.period
    every = f"every m ≥ {least}" if period == 1 else f"every m = {least}, {least + period}, {least + 2 * period}, …"
    if found.verdict.value == "PROVED":
        emit(f"PROVED   for {every}: complete, free of deadlock, within every cap\n" + "".join(_details(found)))
        if compared is not None:
            emit(compared[0])
    elif found.report is not None:
        emit(f"VIOLATED for m = {pattern.microbatches(found.n or 0)}\n{found.report}\n")
    else:
        emit(f"{found.verdict.value} {found.reason or f'for m = {pattern.microbatches(found.n or 0)}'}\n")
    return _EXIT[found.verdict.value]


def _compared(found: Induction, instance: Instance, bound: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """What the file's lower bound says of a proved pattern, as text and as data; None if it has no length."""
    import msgspec

    from bubbleproof.cli.every import compared_json, comparison_text
    from bubbleproof.verify.every import EveryCertificate, compare, rise
    from bubbleproof.verify.normal_form import Refused

    length = found.makespan if instance.objective == "makespan" else found.span
    if found.verdict.value != "PROVED" or length is None:
        return None
    try:
        certificate = msgspec.convert(bound, EveryCertificate)
        grows = rise(instance, certificate)
    except (msgspec.ValidationError, Refused) as error:
        return f"bound of the file: refused, {error}\n", {"refused": str(error)}
    compared = compare(found.pattern, length, grows)
    return comparison_text(certificate, grows, compared, found.pattern), compared_json(certificate, grows, compared)


def _write(path: str, answer: ForAll, instance: Instance, name: str) -> None:
    """Write the one pattern that was proved."""
    from bubbleproof.schedules.formats import pattern_json

    proved = [found.induction for found in answer.proved if found.induction]
    if not proved:
        raise BubbleproofError(f"no pattern was proved, so there is nothing to write to {path}")
    if len(proved) > 1:
        raise BubbleproofError(
            f"patterns of {len(proved)} classes of m were proved, a file holds one; choose it by --multiple-of"
        )
    pattern = proved[0].pattern
    at_least = pattern.instance(instance, pattern.least)
    pattern_json.save(Path(path), replace(pattern, name=pattern.name or name), at_least)


def _text(answer: ForAll, arguments: argparse.Namespace) -> str:
    return "".join(_lines(answer, arguments))


def _lines(answer: ForAll, arguments: argparse.Namespace) -> Iterator[str]:
    from bubbleproof.cli.output import wrapped
    from bubbleproof.verify.judge import ALWAYS_ASSUMED
    from bubbleproof.verify.witness import picture

    if answer.microbatches is not None and answer.report is not None and answer.schedule is not None:
        smallest = f"the smallest m ≥ {answer.first} whose schedule is wrong"
        if answer.microbatches > answer.up_to:
            smallest = f"by the pattern the smallest; every m up to {answer.up_to} was found right"
        yield wrapped(f"VIOLATED for m = {answer.microbatches}, {smallest}")
        for violation in answer.report.violations:
            yield wrapped(str(violation), "  ")
        yield picture(answer.schedule, answer.report.violations) + "\n"
        return
    for found in answer.classes:
        if found.induction is not None:
            yield wrapped(f"{found.induction.verdict.value:<8} {_statement(found, found.induction)}")
            yield from _details(found.induction)
    said = f"{arguments.name} makes just these schedules" if answer.proved else "every schedule was judged"
    smaller = "; smaller m were judged one by one" if answer.proved else ""
    tail = " A program's output for larger m cannot be proved from outside; the pattern, which -o writes, is."
    yield wrapped(f"BOUNDED  up to m = {answer.up_to}: {said}{smaller}.{tail if answer.proved else ''}")
    for found in answer.open:
        if found.induction is None:
            yield wrapped(
                f"BOUNDED  {_which(found)}: no period was found, so nothing is known beyond m = {answer.up_to}"
            )
    if answer.refused:
        yield wrapped(f"no schedule is made for {len(answer.refused)} m, such as m = {answer.refused[0]}")
    for sentence in ALWAYS_ASSUMED:
        yield wrapped(f"assumed: {sentence}")


def _which(found: Class) -> str:
    if found.modulus == 1:
        return "every m"
    return f"m ≡ {found.residue} (mod {found.modulus})"


def _statement(found: Class, induction: Induction) -> str:
    least = induction.pattern.microbatches(induction.pattern.least)
    which = f"for every m ≥ {least}" if found.modulus == 1 else f"for every {_which(found)}, m ≥ {least}"
    if induction.n is not None:
        return f"for m = {induction.pattern.microbatches(induction.n)} of the periodic schedule {which}"
    if induction.reason:
        return f"{which}: {induction.reason}"
    return f"{which}: the periodic schedule is complete, free of deadlock and within every cap"


def _details(induction: Induction) -> Iterator[str]:
    from bubbleproof.cli.every import formula

    pattern = induction.pattern
    judged = pattern.microbatches(induction.checked)
    yield f"  judged up to m = {judged}, from where the induction carries on; period {pattern.period}\n"
    peaks = []
    for peak in induction.peaks:
        at = peak.at(pattern.least)
        grows = f" + {peak.slope} for each {_microbatches(pattern.period)} more" if peak.slope > 0 else ""
        peaks.append(f"{at}{grows}")
    if peaks:
        same = len(set(peaks)) == 1
        yield f"  peak of every rank: {peaks[0]}\n" if same else f"  peaks of the ranks: {', '.join(peaks)}\n"
    for name, figure in (("makespan", induction.makespan), ("span", induction.span)):
        if figure is not None:
            yield f"  {name} of the claimed times: {formula(figure, pattern)}\n"
    for rank, row in enumerate(str(pattern).splitlines()):
        yield f"  rank {rank}  {row}\n"


def _microbatches(count: int) -> str:
    return "microbatch" if count == 1 else f"{count} microbatches"


def _as_json(answer: ForAll) -> dict[str, Any]:
    import msgspec

    return {
        "verdict": answer.verdict.value,
        "generator": answer.generator.value,
        "first": answer.first,
        "up_to": answer.up_to,
        "refused": list(answer.refused),
        "classes": [
            {
                "modulus": found.modulus,
                "residue": found.residue,
                "refused": found.refused,
                "verdict": found.verdict.value,
                "induction": None if found.induction is None else _induction_json(found.induction),
            }
            for found in answer.classes
        ],
        "microbatches": answer.microbatches,
        "orders": None if answer.schedule is None else [[str(slot) for slot in row] for row in answer.schedule.orders],
        "report": None if answer.report is None else msgspec.to_builtins(answer.report),
    }


def _lines_json(figure: Growth) -> list[dict[str, int]]:
    return [{"level": level, "per_block": slope} for level, slope in figure.lines]


def _induction_json(found: Induction) -> dict[str, Any]:
    import msgspec

    pattern = found.pattern
    return {
        "verdict": found.verdict.value,
        "period": pattern.period,
        "from": pattern.microbatches(pattern.least),
        "judged_to": pattern.microbatches(found.checked),
        "peaks": [_lines_json(peak) for peak in found.peaks],
        "makespan": None if found.makespan is None else _lines_json(found.makespan),
        "span": None if found.span is None else _lines_json(found.span),
        "rows": str(pattern).splitlines(),
        "violated_at": None if found.n is None else pattern.microbatches(found.n),
        "report": None if found.report is None else msgspec.to_builtins(found.report),
        "reason": found.reason,
    }
