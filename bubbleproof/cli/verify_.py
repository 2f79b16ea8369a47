"""``bubbleproof verify``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bubbleproof.cli import evidence, options, verify_program

if TYPE_CHECKING:
    from bubbleproof.cli.load import Loaded
    from bubbleproof.verify import Report

__all__ = ["EPILOG", "configure", "run", "violations"]

EPILOG = """\
examples:
  bubbleproof families 1f1b --ranks 4 --microbatches 8 -o 1f1b.json
  bubbleproof verify 1f1b.json
  bubbleproof export 1f1b.json --to torch-csv -o 1f1b.csv
  bubbleproof verify 1f1b.csv --ranks 4 --microbatches 8 --target torch
  bubbleproof export 1f1b.json --to torch-comms -o 1f1b.comms.csv
  bubbleproof verify 1f1b.comms.csv --channel rendezvous-rank

A pattern (solve --microbatches any -o …) is judged for every number of microbatches.
A file with sends and receives is judged under a channel model, rendezvous-pair unless another is given.
exit code 0 if every rule holds, 1 if one is violated.
"""

_HEAD = 4096
"""Bytes of a file in which a pattern says that it is one."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this verb."""
    parser.add_argument("file", metavar="FILE", help="a schedule: bubbleproof's .json, or PyTorch's .csv")
    parser.add_argument(
        "--format",
        choices=(
            "json",
            "torch-csv",
            "torch-comms",
            "spectrax",
            "jaxpp",
            "deepspeed",
            "megatron",
            "colossalai",
            "sail-sg",
            "primus",
            "program",
        ),
        help="where the file does not tell",
    )
    parser.add_argument("--instance", metavar="INSTANCE", help="judge the schedule under this instance")
    options.add_sizes(parser)
    options.add_cap(parser)
    parser.add_argument("--target", choices=("torch",), help="a runtime whose own rules hold as well")
    parser.add_argument(
        "--proof", metavar="PROOF", help="also check this proof, written by `solve --proof`, that nothing is better"
    )
    verify_program.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    """Judge one schedule."""
    from bubbleproof.cli.large import judge_large
    from bubbleproof.cli.load import load_schedule
    from bubbleproof.cli.output import emit, emit_json
    from bubbleproof.verify import Verdict, verify

    if _is_pattern(arguments.file):
        return _judge_pattern(arguments)
    judged = verify_program.judge_program(arguments)
    if judged is not None:
        return judged
    verify_program.refuse_communication(arguments)
    large = judge_large(arguments.file, arguments)
    if large is not None:
        loaded, report = large
    else:
        loaded = load_schedule(arguments.file, arguments)
        verify_program.check_version(loaded.schedule, arguments)
        report = verify(
            loaded.schedule, loaded.instance, timeline=loaded.starts, claims=_claims(loaded), target=arguments.target
        )
    certificate = evidence.certificate_verdict(loaded)
    proof = None if arguments.proof is None else evidence.proof_verdict(arguments.proof, loaded)
    faults = evidence.faults_of(loaded, report, certificate, proof)
    if arguments.json:
        import msgspec

        built: dict[str, Any] = msgspec.to_builtins(report)
        emit_json(
            {
                **built,
                "file": arguments.file,
                "inferred": list(loaded.notes),
                "certificate": certificate,
                "proof": proof,
                "record": faults,
            }
        )
    else:
        emit(_text(arguments.file, loaded, report, certificate, proof, faults))
    wrong = faults or (proof is not None and not proof["accepted"])
    return 0 if report.verdict == Verdict.PROVED and not wrong else 1


def _is_pattern(file: str) -> bool:
    """Whether a file begins like a pattern of ours; what cannot be read is for others to complain of."""
    try:
        with open(file, "rb") as opened:
            return b'"bubbleproof-pattern/1"' in opened.read(_HEAD)
    except OSError:
        return False


def _judge_pattern(arguments: argparse.Namespace) -> int:
    """Judge a schedule for every number of microbatches, as ``prove`` does."""
    from bubbleproof.cli.prove_ import judge_pattern
    from bubbleproof.schedules.errors import FormatError
    from bubbleproof.schedules.formats import pattern_json

    verify_program.refuse_communication(arguments)
    for option in ("format", "instance", "ranks", "stages", "microbatches", "placement", "cost", "target", "proof"):
        if getattr(arguments, option) is not None:
            raise FormatError(f"{arguments.file}: --{option} does not go with a pattern, which holds for every m")
    pattern, instance, bound = pattern_json.load_file(Path(arguments.file))
    return judge_pattern(pattern, options.with_overrides(instance, arguments), bound, as_json=arguments.json)


def _claims(loaded: Loaded) -> dict[str, object] | None:
    """What the record claims of this schedule: its value under the objective, and its peaks."""
    if loaded.record is None:
        return None
    objective = loaded.record.get("objective")
    claims = {"peak": loaded.record.get("peak")}
    if objective in ("makespan", "span"):
        claims[objective] = loaded.record.get("value")
    return {key: value for key, value in claims.items() if value is not None}


def _text(
    file: str,
    loaded: Loaded,
    report: Report,
    certificate: dict[str, Any] | None,
    proof: dict[str, Any] | None,
    faults: list[str],
) -> str:
    from bubbleproof.cli.output import wrapped

    found = list(_findings(loaded, report, certificate))
    if proof is not None and proof["accepted"]:
        found.append(f"the proof holds: {proof['reason']}")
        if proof["bound"] == _value(loaded, report):
            found.append("so this schedule is optimal")
    elif proof is not None:
        found.append(f"the proof does not hold: {proof['reason']}")
    found += [f"the record claims {fault}" for fault in faults]
    if loaded.record is not None and loaded.record.get("proof") == "cp-sat":
        found.append("the record's bound is CP-SAT's word; it was not checked")
    found += loaded.notes
    found += [f"assumed: {sentence}" for sentence in report.assumptions]
    wrong = faults or (proof is not None and not proof["accepted"])
    verdict = "VIOLATED" if wrong else report.verdict.value
    return f"{file}: {verdict}\n" + "".join(
        wrapped(line, "  ") if not line.startswith(" ") else f"  {line}\n" for line in found
    )


def _value(loaded: Loaded, report: Report) -> int | None:
    """The objective of the schedule: by the file's times if it gives any."""
    facts, span = report.facts, loaded.instance.objective == "span"
    if loaded.starts is not None:
        return facts.claimed_span if span else facts.claimed_makespan
    return facts.span if span else facts.makespan


def violations(report: Report) -> Iterator[str]:
    """The violations, their pictures (lines that begin with blanks), and how many are not listed."""
    for violation in report.violations:
        yield str(violation)
        for line in str((violation.witness or {}).get("picture") or "").splitlines():
            yield f"    {line}"
    for rule, count in report.counts.items():
        listed = sum(violation.rule == rule for violation in report.violations)
        if count > listed:
            yield f"{rule}: {count - listed} more"


def _findings(loaded: Loaded, report: Report, certificate: dict[str, Any] | None) -> Iterator[str]:
    """The violations, or what was checked; then the figures. Lines of pictures begin with blanks."""
    from bubbleproof.cli.output import figure

    facts, unit = report.facts, loaded.instance.units.time
    if not report.counts:
        rules = f"{len(report.rules)} rules, {report.rules[0]} to {report.rules[-1]}"
        yield f"checked: {rules}, on {facts.slots} slots of {loaded.instance.ranks} ranks"
    yield from violations(report)
    if facts.makespan is not None:
        yield f"ops as soon as possible: makespan {figure(facts.makespan, unit)}, span {figure(facts.span, unit)}"
    if facts.claimed_makespan is not None:
        claimed = f"makespan {figure(facts.claimed_makespan, unit)}, span {figure(facts.claimed_span, unit)}"
        yield f"by the file's times: {claimed}"
    if certificate is not None and certificate["accepted"]:
        yield f"lower bound {figure(certificate['bound'], unit)}, its certificate holds: {certificate['reason']}"
