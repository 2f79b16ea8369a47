"""V7xx: gradients are reduced once, when all of them are there, and losses meet the right microbatch.

Source: docs/semantics.md, section 10.
"""

from __future__ import annotations

from collections.abc import Iterator

from bubbleproof.schedules.op import members
from bubbleproof.schedules.program import Collective
from bubbleproof.verify.case import Case
from bubbleproof.verify.exchange import ProgramCase
from bubbleproof.verify.report import Violation
from bubbleproof.verify.rules.rule import Rule, other_ranks, rule

__all__ = ["ADVICE", "RULES", "TARGET_RULES"]


def _same_ranks(case: ProgramCase) -> str:
    return (
        ""
        if case.same_ranks
        else "Only the number of ranks was checked; in orders for other ranks nothing means anything."
    )


def _idle_reduction(case: ProgramCase) -> str:
    if not case.same_ranks or any(case.reductions.values()):
        return _same_ranks(case)
    if case.setting.target is None:
        return "The program has no REDUCE_GRAD; reduction and scaling of gradients are left to the runtime."
    if not case.setting.scale_grads:
        return "The program has no REDUCE_GRAD; gradients are scaled outside the schedule."
    if case.instance.microbatches == 1:
        return "The program has no REDUCE_GRAD; with one microbatch it would divide by 1."
    return ""


@rule(
    "V701",
    "not-reduced",
    idle=_idle_reduction,
    example="0F0 0F1 0BW0 0BW1 (two microbatches, --target torch)",
    seen="pytorch PR #144352 and #164777; files of torch up to 2.9 load in later versions and never scale",
)
def not_reduced(case: ProgramCase) -> Iterator[Violation]:
    """Every stage has a REDUCE_GRAD on each rank that runs it.

    In torch this action also divides by the number of microbatches: without it the run finishes and the gradients of
    the stage are too large by that factor.

    Source: semantics, Gradients.
    """
    for (rank, stage), positions in case.reductions.items():
        if not positions:
            message = f"stage {stage} has no REDUCE_GRAD on rank {rank}: its gradients are neither reduced nor scaled"
            yield Violation("V701", rank, None, f"{stage}REDUCE_GRAD", message)


@rule("V702", "reduced-twice", idle=_same_ranks, example="0F0 0BW0 0REDUCE_GRAD 0REDUCE_GRAD")
def reduced_twice(case: ProgramCase) -> Iterator[Violation]:
    """No stage has more than one REDUCE_GRAD.

    In torch the gradients are divided twice; with one microbatch this does nothing, and only by luck.

    Source: semantics, Gradients.
    """
    for (rank, stage), positions in case.reductions.items():
        if len(positions) > 1:
            where = ", ".join(map(str, positions[:4]))
            message = f"stage {stage} is reduced {len(positions)} times, at positions {where} of rank {rank}"
            yield Violation("V702", rank, positions[1], f"{stage}REDUCE_GRAD", message, {"positions": list(positions)})


@rule(
    "V703",
    "reduced-early",
    idle=_same_ranks,
    example="0F0 0F1 0BW0 0REDUCE_GRAD 0BW1",
    seen="pytorch PR #144535 (a race of FSDP with the last backward)",
)
def reduced_early(case: ProgramCase) -> Iterator[Violation]:
    """REDUCE_GRAD stands after the last op that adds to the gradients of its stage: its last W or fused backward.

    What comes later is neither reduced nor scaled; the run finishes without an error. The last B is not enough.

    Source: semantics, Gradients.
    """
    last: dict[tuple[int, int], tuple[int, str]] = {}
    for rank, position, op in case.schedule.ops():
        if op.kind in ("W", "BW"):
            last[rank, op.stage] = (position, str(op))
    for (rank, stage), positions in case.reductions.items():
        if positions and (rank, stage) in last and positions[0] < last[rank, stage][0]:
            position, op_text = last[rank, stage]
            message = (
                f"{stage}REDUCE_GRAD at position {positions[0]} of rank {rank} comes before {op_text} at position "
                f"{position}, which still adds to the gradients of stage {stage}"
            )
            yield Violation("V703", rank, positions[0], f"{stage}REDUCE_GRAD", message, {"last": op_text})


@rule("V704", "collective-elsewhere", idle=_same_ranks, example="0F0 0BW0 1REDUCE_GRAD (one stage)")
def collective_elsewhere(case: ProgramCase) -> Iterator[Violation]:
    """A collective stands on a rank that holds its stage.

    Source: semantics, Gradients.
    """
    for rank, position, collective in case.program.collectives():
        if not case.held(rank, collective):
            message = f"{collective} at position {position}: rank {rank} does not hold stage {collective.stage}"
            yield Violation("V704", rank, position, str(collective), message)


@rule(
    "V705",
    "last-stage-forward-order",
    idle=other_ranks,
    example="0F0 0F1 0BW0 0BW1 | 1F1 1F0 1BW0 1BW1 (--target torch)",
    seen="torch 2.13: wrong gradients without an error for split backwards, a failure inside autograd for fused ones",
)
def last_stage_forward_order(case: Case) -> Iterator[Violation]:
    """For torch, the last stage runs its forwards in microbatch order.

    Torch appends the losses in the order of the forwards and looks them up by microbatch, so a loss meets the backward
    of another microbatch. With a single stage the gradients come out right, but losses and outputs are exchanged.

    Source: semantics, Gradients.
    """
    last: dict[int, int] = {}
    for rank, position, op in case.schedule.ops():
        if op.kind != "F" or op.stage != case.instance.stages - 1:
            continue
        before = last.get(rank)
        if before is not None and op.microbatch < before:
            message = (
                f"{op} at position {position} of rank {rank} comes after {op.stage}F{before}: torch takes losses by "
                "the order of the last stage's forwards"
            )
            yield Violation("V705", rank, position, str(op), message, {"after": f"{op.stage}F{before}"})
        last[rank] = max(op.microbatch, before if before is not None else op.microbatch)


@rule("V707", "recompute-of-ops", idle=other_ranks, example="0F0 0R0 0BW0 (--target torch)")
def recompute_of_ops(case: Case) -> Iterator[Violation]:
    """For torch, no op is recomputed by the schedule.

    Torch's schedules have no such action. A module that recomputes (activation checkpointing) does so inside each of
    its backwards; the costs of B, W and BW and the memory of F then say it.

    Source: semantics, Gradients.
    """
    for rank, position, op in case.schedule.ops():
        if op.kind == "R":
            message = f"{op} at position {position} of rank {rank}: torch's schedules have no recompute of single ops"
            yield Violation("V707", rank, position, str(op), message)


@rule(
    "V706",
    "split-where-fused",
    idle=_same_ranks,
    example="0F0 0B0 0W0 (stage 0 cannot split)",
    seen="pytorch#180952: split backwards count the gradient of shared weights twice",
)
def split_where_fused(case: ProgramCase) -> Iterator[Violation]:
    """A stage that cannot split its backward runs fused backwards only.

    Source: semantics, Gradients.
    """
    for rank, position, op in case.schedule.ops():
        if op.kind in ("B", "W") and op.stage in case.setting.fused_stages:
            message = f"{op} at position {position} of rank {rank} is half a backward; stage {op.stage} cannot split"
            yield Violation("V706", rank, position, str(op), message)


@rule(
    "A903",
    "used-while-sharded",
    idle=_same_ranks,
    example="0UNSHARD 0F0 0RESHARD 0BW0",
    seen="pytorch#164756 and PR #165467: more than three stages on a rank",
)
def used_while_sharded(case: ProgramCase) -> Iterator[Violation]:
    """An op of a stage stands between an UNSHARD and the next RESHARD of that stage; it matters to FSDP only.

    Advice for each first op of a stage after a wrong RESHARD, and for a stage that is sharded or gathered twice.

    Source: semantics, Gradients.
    """
    for rank, row in enumerate(case.program.rows):
        gathered: dict[int, bool] = {}
        named = {action.stage for action in row if isinstance(action, Collective) and action.kind != "REDUCE_GRAD"}
        told: set[int] = set()
        for position, action in enumerate(row):
            if isinstance(action, Collective):
                if action.kind == "REDUCE_GRAD":
                    continue
                now = action.kind == "UNSHARD"
                if gathered.get(action.stage, False) == now:
                    state = "is gathered already" if now else "is not gathered"
                    message = f"{action} at position {position} of rank {rank}: stage {action.stage} {state}"
                    yield Violation("A903", rank, position, str(action), message)
                gathered[action.stage] = now
                told.discard(action.stage)
                continue
            for op in members(action):
                if op.stage in named and not gathered.get(op.stage, False) and op.stage not in told:
                    told.add(op.stage)
                    message = f"{op} at position {position} of rank {rank} runs while stage {op.stage} is sharded"
                    yield Violation("A903", rank, position, str(op), message)


RULES: tuple[Rule[ProgramCase], ...] = (
    not_reduced,
    reduced_twice,
    reduced_early,
    collective_elsewhere,
    split_where_fused,
)
TARGET_RULES: tuple[Rule[Case], ...] = (last_stage_forward_order, recompute_of_ops)
ADVICE: tuple[Rule[ProgramCase], ...] = (used_while_sharded,)
