"""``bubbleproof verify``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bubbleproof.cli import options, verify_program

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

A file with sends and receives is judged under a channel model, rendezvous-pair unless another is given.
exit code 0 if every rule holds, 1 if one is violated.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this verb."""
    parser.add_argument("file", metavar="FILE", help="a schedule: bubbleproof's .json, or PyTorch's .csv")
    parser.add_argument(
        "--format", choices=("json", "torch-csv", "torch-comms", "program"), help="where the file does not tell"
    )
    parser.add_argument("--instance", metavar="INSTANCE", help="judge the schedule under this instance")
    options.add_sizes(parser)
    options.add_cap(parser)
    parser.add_argument("--target", choices=("torch",), help="a runtime whose own rules hold as well")
    verify_program.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    """Judge one schedule."""
    from bubbleproof.cli.large import judge_large
    from bubbleproof.cli.load import load_schedule
    from bubbleproof.cli.output import emit, emit_json
    from bubbleproof.verify import Verdict, verify

    judged = verify_program.judge_program(arguments)
    if judged is not None:
        return judged
    verify_program.refuse_communication(arguments)
    large = judge_large(arguments.file, arguments)
    if large is not None:
        loaded, report = large
    else:
        loaded = load_schedule(arguments.file, arguments)
        report = verify(
            loaded.schedule, loaded.instance, timeline=loaded.starts, claims=_claims(loaded), target=arguments.target
        )
    certificate = _certificate(loaded)
    faults = _faults(loaded, report, certificate)
    if arguments.json:
        import msgspec

        built: dict[str, Any] = msgspec.to_builtins(report)
        emit_json(
            {
                **built,
                "file": arguments.file,
                "inferred": list(loaded.notes),
                "certificate": certificate,
                "record": faults,
            }
        )
    else:
        emit(_text(arguments.file, loaded, report, certificate, faults))
    return 0 if report.verdict == Verdict.PROVED and not faults else 1


def _claims(loaded: Loaded) -> dict[str, object] | None:
    """What the record claims of this schedule: its value under the objective, and its peaks."""
    if loaded.record is None:
        return None
    objective = loaded.record.get("objective")
    claims = {"peak": loaded.record.get("peak")}
    if objective in ("makespan", "span"):
        claims[objective] = loaded.record.get("value")
    return {key: value for key, value in claims.items() if value is not None}


def _certificate(loaded: Loaded) -> dict[str, Any] | None:
    """The judgement of the certificate of a lower bound in the record, if there is one."""
    raw = (loaded.record or {}).get("certificate")
    if raw is None:
        return None
    import msgspec

    from bubbleproof.verify.certificate import Certificate, check

    try:
        certificate = msgspec.convert(raw, Certificate)
    except msgspec.ValidationError as error:
        return {"accepted": False, "bound": None, "reason": f"the certificate in the record cannot be read: {error}"}
    verdict = check(loaded.instance, certificate)
    return {
        "accepted": verdict.accepted,
        "bound": certificate.value,
        "objective": certificate.objective,
        "reason": verdict.reason,
    }


def _faults(loaded: Loaded, report: Report, certificate: dict[str, Any] | None) -> list[str]:
    """What the record says and is not so: its bound and its level of evidence need a certificate that holds."""
    record = loaded.record
    faults: list[str] = []
    if record is None:
        return faults
    if record.get("objective") != loaded.instance.objective:
        faults.append(
            f"objective {record.get('objective')!r}, but that of the instance is {loaded.instance.objective!r}"
        )
    if report.facts.makespan is not None and record.get("makespan") not in (None, report.facts.makespan):
        faults.append(f"makespan {record['makespan']!r}, but it is {report.facts.makespan}")
    span = report.facts.span if loaded.starts is None else report.facts.claimed_span
    if span is not None and record.get("span") not in (None, span):
        faults.append(f"span {record['span']!r}, but it is {span}")
    faults += _gap_faults(record.get("value"), record.get("bound"), record.get("gap"))
    if certificate is not None and not certificate["accepted"]:
        faults.append(
            f"a lower bound of {certificate['bound']} whose certificate does not hold: {certificate['reason']}"
        )
    proved = _proved(record.get("objective"), certificate)
    if record.get("level") == "certified" and proved != record.get("value"):
        faults.append(
            f"the level 'certified' for the value {record.get('value')!r}, but its certificate proves {proved}"
        )
    if record.get("proof") != "cp-sat" and record.get("bound") != proved:
        faults.append(f"the bound {record.get('bound')!r}, but its certificate proves {proved}")
    return faults


def _gap_faults(value: object, bound: object, gap: object) -> list[str]:
    """Whether a record's value, bound and gap = value/bound − 1 go together."""
    if not isinstance(value, int) or not isinstance(bound, int):
        return []
    if bound > value:
        return [f"the bound {bound}, which is above its own value {value}"]
    from fractions import Fraction

    true = str(Fraction(value, bound) - 1 if bound > 0 else 0)
    return [] if gap in (None, true) else [f"the gap {gap!r}, but it is {true}"]


def _proved(objective: object, certificate: dict[str, Any] | None) -> int:
    """The bound on the objective that a certificate proves; 0, which needs no proof, if it proves none."""
    if certificate is None or not certificate["accepted"]:
        return 0
    # a bound on the span is one on the makespan too, not the other way round
    return int(certificate["bound"]) if certificate["objective"] in ("span", objective) else 0


def _text(file: str, loaded: Loaded, report: Report, certificate: dict[str, Any] | None, faults: list[str]) -> str:
    from bubbleproof.cli.output import wrapped

    found = list(_findings(loaded, report, certificate))
    found += [f"the record claims {fault}" for fault in faults]
    if loaded.record is not None and loaded.record.get("proof") == "cp-sat":
        found.append("the record's bound is CP-SAT's word; it was not checked")
    found += loaded.notes
    found += [f"assumed: {sentence}" for sentence in report.assumptions]
    verdict = "VIOLATED" if faults else report.verdict.value
    return f"{file}: {verdict}\n" + "".join(
        wrapped(line, "  ") if not line.startswith(" ") else f"  {line}\n" for line in found
    )


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
