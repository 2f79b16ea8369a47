"""What a schedule file claims beyond its schedule: a bound, a level of evidence; and whether that is so."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bubbleproof.cli.load import Loaded
    from bubbleproof.verify import Report

__all__ = ["certificate_verdict", "faults_of", "proof_verdict", "read_proof"]


def certificate_verdict(loaded: Loaded) -> dict[str, Any] | None:
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


def read_proof(path: Path) -> list[str]:
    """The lines of the file of a proof.

    Raises
    ------
    FormatError
        It cannot be read.
    """
    from bubbleproof.schedules.formats.files import MIB, read_text

    lines = read_text(path, 512 * MIB).split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def proof_verdict(file: str, loaded: Loaded) -> dict[str, Any]:
    """The judgement of a proof in a file of its own: no schedule has an objective of the length that it names."""
    from bubbleproof.verify.proof import check_proof, claimed_length

    lines = read_proof(Path(file))
    length = claimed_length(lines[0])
    if length is None:
        return {"accepted": False, "bound": None, "reason": f"{file} is no proof file"}
    verdict = check_proof(loaded.instance, length, lines)
    return {"accepted": verdict.accepted, "bound": length + 1, "reason": verdict.reason}


def faults_of(
    loaded: Loaded, report: Report, certificate: dict[str, Any] | None, proof: dict[str, Any] | None
) -> list[str]:
    """What the record says and is not so: its bound and its level need a certificate or a proof that holds."""
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
    faults += _proof_faults(record, proof, proved)
    return faults


def _proof_faults(record: dict[str, Any], proof: dict[str, Any] | None, proved: int) -> list[str]:
    """Whether what the record says to be proved is, by a certificate that proves `proved` or by the proof."""
    faults = []
    logged = proof["bound"] if proof is not None and proof["accepted"] else 0
    lacking = "no proof is given that could be checked (--proof)" if proof is None else f"the proof proves {logged}"
    level, value, bound, source = (record.get(key) for key in ("level", "value", "bound", "proof"))
    if level not in ("certified", "proof-checked", "solver-claimed", "open"):
        faults.append(f"the level {str(level)[:40]!r}, which is none")
    if level != "open" and level is not None and value != bound:
        faults.append(f"the level {level!r}, but the bound is {bound!r} and the value {value!r}")
    if level == "proof-checked" and logged != value:
        faults.append(f"the level 'proof-checked' for the value {value!r}, but {lacking}")
    if source == "proof-log" and logged != bound and level != "proof-checked":
        faults.append(f"the bound {bound!r} by a proof, but {lacking}")
    certificate = record.get("certificate")
    rule = certificate.get("rule") if isinstance(certificate, dict) else "none"
    if source not in ("cp-sat", "proof-log", None, rule):
        faults.append(f"a bound by {str(source)[:40]!r}, but its certificate is of the rule {str(rule)[:40]!r}")
    if source not in ("cp-sat", "proof-log") and bound != proved:
        faults.append(f"the bound {bound!r}, but its certificate proves {proved}")
    if level == "solver-claimed" and source != "cp-sat":
        faults.append(f"the level 'solver-claimed', but the bound is by {str(source)[:40]!r}")
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
