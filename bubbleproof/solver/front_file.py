"""The file of a Pareto front: everything found and proved so far, so that a later run goes on from it.

It is replaced as a whole after each cap that was solved. When it is read again, nothing in it is believed that can be
checked: every schedule is judged and timed anew, and every certificate is checked. The word of a solver without a
certificate cannot be, and is kept at the level that the file gives it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.formats.document import InstanceDocument, instance_document, instance_of
from bubbleproof.schedules.formats.envelope import parse_rows, read_document
from bubbleproof.schedules.formats.files import read_text, write_atomic
from bubbleproof.schedules.formats.schedule_json import MAX_BYTES
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import parse_slot
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.solver.front import CapRule, Evidence, Found, Front
from bubbleproof.solver.result import Level, gap
from bubbleproof.verify.certificate import Certificate

__all__ = ["PARETO_FORMAT", "FamilyPoint", "ParetoDocument", "SolvedCap", "document", "load", "measured", "save"]

PARETO_FORMAT = "bubbleproof-pareto/1"


class SolvedCap(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One cap that was solved: what it brought, and under which limits.

    Parameters
    ----------
    cap
        x; None for no cap.
    value, bound
        The best value known under this cap right after the solve, and the bound that the solve proved.
    level, proof
        How the bound is known, and the rule or the solver that gave it.
    certificate
        The best certificate of the solve, also when a solver has proved more.
    limit
        Milliseconds allowed; `milliseconds` were used.
    """

    cap: int | None
    value: int
    bound: int
    level: Level
    proof: str
    certificate: Certificate | None
    limit: int
    milliseconds: int
    stopped: str
    seed: int
    workers: int
    versions: dict[str, str]


class FamilyPoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published family: the least x under which it fits and its objective; both None if it cannot be built."""

    name: str
    cap: int | None
    value: int | None
    reason: str = ""


class ScheduleEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule of the front with its figures."""

    cap: int
    value: int
    peak: tuple[int, ...]
    source: str
    orders: list[list[str]]


class PointEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A corner of the front; `schedule` is the position of its schedule in the file."""

    cap: int
    value: int
    bound: int
    gap: str
    level: Level
    proof: str
    least_cap_proved: bool
    peak: tuple[int, ...]
    source: str
    schedule: int


class ParetoDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The front of an instance.

    Parameters
    ----------
    instance
        Without a cap.
    offsets
        Rank r may hold x + offsets[r] under the cap x.
    least
        The least x under which a schedule exists.
    complete
        Whether the value under every cap is proved best.
    points
        The corners of the front, for readers; they are worked out again from the rest when the file is read.
    """

    format: str
    name: str
    instance: InstanceDocument
    offsets: tuple[int, ...]
    least: int
    complete: bool
    points: list[PointEntry]
    solved: list[SolvedCap]
    families: list[FamilyPoint]
    schedules: list[ScheduleEntry]


def document(front: Front, solved: list[SolvedCap], families: list[FamilyPoint]) -> ParetoDocument:
    """What is written about a front."""
    index = {one.reach: number for number, one in enumerate(front.found)}
    return ParetoDocument(
        format=PARETO_FORMAT,
        name=front.instance.name,
        instance=instance_document(front.instance),
        offsets=front.rule.offsets,
        least=front.least,
        complete=front.closed,
        points=[
            PointEntry(
                cap=point.cap,
                value=point.found.value,
                bound=min(point.evidence.bound, point.found.value),
                gap=str(gap(point.found.value, min(point.evidence.bound, point.found.value))),
                level=point.level,
                proof=point.evidence.proof,
                least_cap_proved=point.least,
                peak=point.found.peak,
                source=point.found.source,
                schedule=index[point.found.reach],
            )
            for point in front.points()
        ],
        solved=solved,
        families=families,
        schedules=[
            ScheduleEntry(
                cap=one.reach,
                value=one.value,
                peak=one.peak,
                source=one.source,
                orders=[[str(slot) for slot in order] for order in one.schedule.orders],
            )
            for one in front.found
        ],
    )


def save(path: Path, content: ParetoDocument) -> None:
    """Write the file so that at every moment the old or the whole new one is there."""
    write_atomic(path, msgspec.json.encode(content, order="sorted").decode() + "\n")


def load(path: Path, instance: Instance, rule: CapRule) -> tuple[Front, list[SolvedCap], list[FamilyPoint]]:
    """Read the front of an instance, and check all that can be checked.

    Raises
    ------
    FormatError
        The file is no front, is that of another instance, or holds a schedule that the judge refuses, a figure that
        is not its schedule's, or a certificate that proves less than the file says.
    """
    where = str(path)
    content = read_document(read_text(path, MAX_BYTES), where, PARETO_FORMAT, ParetoDocument)
    bare = instance.with_cap(None)
    if instance_of(content.instance, f"{where}: instance") != bare or content.offsets != rule.offsets:
        raise FormatError(f"{where}: this is the front of another instance ({content.name or 'without a name'})")
    front = Front(bare, rule)
    for number, entry in enumerate(content.schedules):
        place = f"{where}: schedules[{number}]"
        schedule = Schedule.of(parse_rows(entry.orders, parse_slot, f"{place}: orders"), entry.source)
        found = measured(schedule, entry.source, front, place)
        if (found.reach, found.value, found.peak) != (entry.cap, entry.value, entry.peak):
            raise FormatError(
                f"{place}: says value {entry.value} under cap {entry.cap}, "
                f"but has value {found.value} and needs {found.reach}"
            )
        front.add(found)
    for number, solved in enumerate(content.solved):
        front.evidence += evidence(front, solved, f"{where}: solved[{number}]")
    return front, content.solved, content.families


def measured(schedule: Schedule, source: str, front: Front, place: str) -> Found:
    """A schedule with its figures, after the judge has agreed.

    Raises
    ------
    FormatError
        The judge refuses it; the message begins with `place`.
    """
    from bubbleproof.solver.measure import timeline_of
    from bubbleproof.verify import Verdict, verify

    report = verify(schedule, front.instance)
    if report.verdict is not Verdict.PROVED:
        first = report.violations[0].message if report.violations else report.verdict
        raise FormatError(f"{place}: no schedule of this instance: {first}")
    timeline = timeline_of(schedule, front.instance)
    peak = tuple(one.memory for one in timeline.peaks)
    return Found(front.rule.reach(peak), timeline.value(front.instance.objective), peak, source, schedule)


def evidence(front: Front, solved: SolvedCap, place: str) -> list[Evidence]:
    """The bounds that a solve has brought: its certificate, and what a solver has proved beyond it.

    Raises
    ------
    FormatError
        The certificate is refused, or is said to prove more than it does; the message begins with `place`.
    """
    from bubbleproof.verify.certificate import check

    found = []
    certificate = solved.certificate
    if certificate is not None:
        verdict = check(front.at(solved.cap), certificate)
        if not verdict.accepted:
            raise FormatError(f"{place}: certificate: {verdict.reason}")
        found.append(Evidence(solved.cap, certificate.value, "certified", certificate.rule, certificate))
    if certificate is None or certificate.value < solved.bound:
        if solved.level == "certified":
            raise FormatError(f"{place}: bound {solved.bound} is said to be certified, but no certificate proves it")
        found.append(Evidence(solved.cap, solved.bound, solved.level, solved.proof, None))
    return found
