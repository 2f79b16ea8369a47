"""V1xx: each op that is due occurs once, on its rank, in one form of the backward, and nothing else occurs.

Source: docs/semantics.md, section 1, "Complete" and "Pair".
"""

from __future__ import annotations

from collections.abc import Iterator

from bubbleproof.schedules.op import BACKWARDS, KINDS, Op, Overlap
from bubbleproof.verify.case import Case
from bubbleproof.verify.report import Violation
from bubbleproof.verify.rules.rule import Rule, other_ranks, rule

__all__ = ["RULES"]


@rule(
    "V100",
    "rank-count",
    example="rows for 2 ranks, an instance of 3",
    seen="PyTorch counts a blank last line as one more rank",
)
def rank_count(case: Case) -> Iterator[Violation]:
    """A schedule has one order for each rank of its instance.

    A file for another pipeline, or one cut short, would otherwise show as thousands of missing ops.

    Source: semantics, Complete.
    """
    have, want = case.schedule.ranks, case.instance.ranks
    if have != want:
        message = f"the schedule has orders for {have} ranks, the instance has {want}"
        yield Violation("V100", None, None, None, message, {"orders": have, "ranks": want})


@rule(
    "V101",
    "missing-op",
    idle=other_ranks,
    example="0F0 0B0",
    seen="zb.py of sail-sg/zero-bubble-pipeline-parallelism, with caps per stage: orders that lack ops",
)
def missing_op(case: Case) -> Iterator[Violation]:
    """Every stage has a forward and a whole backward, B and W or BW, of every microbatch.

    A microbatch without its backward gives no gradient, without any error; whoever needs a missing op waits for ever.
    Optimizers of schedules have been seen to drop ops and still report a cost. Whatever depends on a missing op is
    judged as if that op had been run.

    Source: semantics, Complete.
    """
    for stage, microbatch in case.cells():
        homes = case.homes(Op("F", stage, microbatch))
        missing = [(op, rank, why) for op, why in _absent(case, stage, microbatch) for rank in homes]
        if len(homes) > 1:
            for op in (Op(kind, stage, microbatch) for kind in KINDS):
                there = {place.rank for place in case.places.get(op, ())}
                missing += [
                    (op, rank, ", on which its stage runs as well") for rank in homes if there and rank not in there
                ]
        for op, rank, why in missing:
            yield Violation(
                "V101",
                rank,
                None,
                str(op),
                f"{op} is missing on rank {rank}{why}",
                {"stage": stage, "microbatch": microbatch},
            )


def _absent(case: Case, stage: int, microbatch: int) -> Iterator[tuple[Op, str]]:
    """The ops that are missing at a stage for a microbatch, with a remark for people."""
    if Op("F", stage, microbatch) not in case.places:
        yield Op("F", stage, microbatch), ""
    forms = case.forms(stage, microbatch)
    split, fused = Op("B", stage, microbatch), Op("BW", stage, microbatch)
    if not forms:
        if case.instance.costs.split:
            yield (
                split,
                f": stage {stage} has no backward of microbatch {microbatch}, neither {split} and its W nor {fused}",
            )
        else:
            yield fused, f": stage {stage} has no backward of microbatch {microbatch}"
    elif forms == ("W",) and case.instance.costs.split:
        yield split, f", though {Op('W', stage, microbatch)} is there"
    elif forms == ("B",) and case.instance.costs.split:
        yield Op("W", stage, microbatch), f", though {split} is there"


@rule(
    "V102",
    "duplicate-op",
    idle=other_ranks,
    example="0F0 0F0 0BW0",
    seen="torch 2.13 accepts such a file: a second forward is done twice, a second backward crashes",
)
def duplicate_op(case: Case) -> Iterator[Violation]:
    """No op occurs twice, but for those of a stage on several ranks, which occur once on each of them.

    A microbatch that is run twice counts twice in the gradient. Checkers that compare sets instead of counts accept it.
    Where an op stands more than once, whoever needs it is judged against the first copy, and its own needs against its
    last, so that the copy does not show as faults of the order as well.

    Source: semantics, Complete.
    """
    for op, places in case.places.items():
        if len(case.homes(op)) > 1:
            ranks = [place.rank for place in places]
            places = [place for place in places if ranks.count(place.rank) > 1]
        if len(places) > 1:
            where = ", ".join(f"position {place.position} of rank {place.rank}" for place in places[:4])
            more = f" and {len(places) - 4} more" if len(places) > 4 else ""
            yield Violation(
                "V102",
                places[1].rank,
                places[1].position,
                str(op),
                f"{op} occurs {len(places)} times: at {where}{more}",
                {"places": [list(place) for place in places]},
            )


@rule(
    "V103",
    "unknown-op",
    idle=other_ranks,
    example="0F1 0BW1 (one microbatch)",
    seen="torch 2.8 to 2.14: Schedule1F1B.pipeline_order numbers the forwards of the last rank from 1",
)
def unknown_op(case: Case) -> Iterator[Violation]:
    """Every op has a kind, a stage and a microbatch that exist; R only where the instance allows recompute.

    Numbering that starts at 1 shows here. An op that does not exist takes part in nothing else that is judged.

    Source: semantics, Instance and Op.
    """
    stages, microbatches = case.instance.stages, case.instance.microbatches
    for rank, position, op in case.schedule.ops():
        if case.known(op):
            continue
        faults = []
        if op.kind not in KINDS:
            faults.append(f"kind {op.kind!r} is none of {', '.join(KINDS)}")
        elif op.kind == "R" and case.instance.costs.R is None:
            faults.append("the instance gives no cost.R and memory.R, so nothing may be recomputed")
        if not 0 <= op.stage < stages:
            faults.append(f"stage {op.stage} is not in 0 … {stages - 1}")
        if not 0 <= op.microbatch < microbatches:
            faults.append(f"microbatch {op.microbatch} is not in 0 … {microbatches - 1}")
        message = f"{op} at position {position} of rank {rank}: {' and '.join(faults)}"
        yield Violation("V103", rank, position, str(op), message, {"stages": stages, "microbatches": microbatches})


@rule(
    "V104",
    "wrong-rank",
    idle=other_ranks,
    example="0F0 3F0 3BW0 0BW0 | 1F0 2F0 2BW0 1BW0 (loop placement)",
    seen="torchtitan#774",
)
def wrong_rank(case: Case) -> Iterator[Violation]:
    """Every op stands on the rank that holds its stage on the route of its microbatch.

    The order of one placement run on another is the usual cause (a vee order on a loop). An op on the wrong rank is
    not also called missing, and no dependency is judged through it.

    Source: semantics, Complete.
    """
    for op, places in case.places.items():
        homes = case.homes(op)
        home = homes[0]
        for place in places:
            if place.rank not in homes:
                yield Violation(
                    "V104",
                    place.rank,
                    place.position,
                    str(op),
                    f"{op} stands on rank {place.rank} (position {place.position}), but stage {op.stage} of microbatch "
                    f"{op.microbatch} is on rank {home}",
                    {"belongs_on": home},
                )


@rule(
    "V105",
    "two-backwards",
    idle=other_ranks,
    example="0F0 0BW0 0B0 0W0",
    seen="torch 2.13: one microbatch with both and another with none passes its load check",
)
def two_backwards(case: Case) -> Iterator[Violation]:
    """A stage runs the backward of a microbatch either fused or split, never both.

    Both together count the gradient twice. Where another microbatch lacks its backward, totals per kind still agree.

    Source: semantics, Complete.
    """
    for stage, microbatch in case.cells():
        forms = case.forms(stage, microbatch)
        if "BW" in forms and len(forms) > 1:
            fused = Op("BW", stage, microbatch)
            others = [Op("B", stage, microbatch), Op("W", stage, microbatch)]
            present = [str(op) for op in others if op in case.places]
            place = case.places[fused][0]
            occur = "occurs" if len(present) == 1 else "occur"
            where = f"position {place.position} of rank {place.rank}"
            yield Violation(
                "V105",
                place.rank,
                place.position,
                str(fused),
                f"{fused} ({where}) is a whole backward, but {' and '.join(present)} {occur} as well",
                {"places": {str(op): [list(p) for p in case.places.get(op, ())] for op in (fused, *others)}},
            )


@rule("V106", "cannot-split", idle=other_ranks, example="0F0 0B0 0W0 (backwards fused)")
def cannot_split(case: Case) -> Iterator[Violation]:
    """B and W occur apart only if the instance can split its backwards.

    Source: semantics, Complete.
    """
    if case.instance.costs.split:
        return
    for op, places in case.places.items():
        if op.kind in ("B", "W"):
            rank, position = places[0]
            message = f"{op} at position {position} of rank {rank} is half a backward, but the instance has no split"
            yield Violation("V106", rank, position, str(op), message)


@rule(
    "V107",
    "bad-pair",
    idle=other_ranks,
    example="(0F0;0BW0)",
    seen="torch 2.13 runs the members of a pair one after the other and lets it pass",
)
def bad_pair(case: Case) -> Iterator[Violation]:
    """An overlapped pair is a forward and a backward, B or BW, of two different microbatches.

    The backward of a microbatch needs its forward, so the two of one microbatch can never run together.

    Source: semantics, Pair.
    """
    for rank, position, slot in case.schedule.slots():
        if not isinstance(slot, Overlap):
            continue
        forward, backward = slot
        faults = []
        if forward.kind != "F":
            faults.append(f"{forward} is no forward")
        if backward.kind not in BACKWARDS:
            faults.append(f"{backward} is no backward that can be overlapped")
        if forward.microbatch == backward.microbatch:
            faults.append(f"both are of microbatch {forward.microbatch}")
        if faults:
            message = f"the pair {slot} at position {position} of rank {rank}: {' and '.join(faults)}"
            yield Violation("V107", rank, position, str(slot), message)


RULES: tuple[Rule[Case], ...] = (
    rank_count,
    missing_op,
    duplicate_op,
    unknown_op,
    wrong_rank,
    two_backwards,
    cannot_split,
    bad_pair,
)
