"""`verify_program`: every rule on one schedule with communication, gathered into a report."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from bubbleproof.schedules.errors import InstanceError
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.program import Channel, Program
from bubbleproof.verify.channels import certificate_of, stops
from bubbleproof.verify.exchange import ProgramCase, Setting, Shape, Target
from bubbleproof.verify.judge import gather
from bubbleproof.verify.queues import channel_makespan, posted_receives
from bubbleproof.verify.report import ChannelFacts, Report, Verdict
from bubbleproof.verify.rules import gradients, runtime
from bubbleproof.verify.rules.catalogue import ADVICE, PROGRAM_RULES
from bubbleproof.verify.runtimes.prediction import Prediction

__all__ = ["ALWAYS_ASSUMED", "assumed", "verify_program"]

ALWAYS_ASSUMED: tuple[str, ...] = (
    "Replicas of a stage run the same rows; collectives wait for nothing that stands in another row.",
    "Ops last, and change memory, as the instance states it for their stage and microbatch.",
)
"""What every verdict on a program rests on; docs/semantics.md, section 11."""

_CHANNELS: dict[Channel, str] = {
    "eager": "sends never block; what a library buffers is unlimited",
    "rendezvous-pair": "one queue in order for each pair of ranks, both directions; a send ends with its receive",
    "rendezvous-rank": "each rank makes one call after the other, and a transfer ends on both sides together",
    "per-direction": "on each rank one queue for F messages and one for B messages",
    "per-edge": "one queue for each ordered pair of ranks",
    "batched": "consecutive transfers are one group; groups in order, inside a group only each lane",
    "even-odd": "consecutive transfers in Megatron's order of even and odd ranks, one call after the other",
}


def verify_program(
    program: Program,
    instance: Instance,
    *,
    channel: Channel = "rendezvous-pair",
    target: Target | None = None,
    transfers: bool = True,
    scale_grads: bool = True,
    fused_stages: Collection[int] = (),
    inputs: Sequence[Shape | None] | None = None,
    outputs: Sequence[Shape | None] | None = None,
    message_memory: Sequence[int] | None = None,
    prediction: Prediction | None = None,
    listed_per_rule: int = 10,
) -> Report:
    """Judge a schedule with explicit communication.

    Parameters
    ----------
    channel
        How messages travel (docs/semantics.md, section 9). A program whose messages do not cross and that is free of
        deadlock under ``rendezvous-rank`` is so under every model but ``even-odd`` (theorem 8).
    target
        The runtime whose own rules hold as well.
    transfers
        False if a runtime adds the transfers: then only ops and collectives are judged.
    scale_grads
        Whether REDUCE_GRAD divides by the number of microbatches; it matters if the program has none.
    fused_stages
        Stages that cannot split their backward.
    inputs, outputs
        The shape of what each stage takes and makes, None where it is not known.
    message_memory
        For each stage the memory of the tensor that it hands to the next one, and of its gradient; with a cap, buffers
        are then judged (V801). Left out: what the instance says.
    prediction
        What the consumer model of a runtime says about the program (`bubbleproof.verify.runtimes`): if it does not
        train right there, that is a violation (V901).
    listed_per_rule
        How many violations of one rule the report lists; it counts all.

    Returns
    -------
    Report
        PROVED or VIOLATED. Nothing that a program contains raises an error.

    Raises
    ------
    InstanceError
        The stages are no chain, or `inputs`, `outputs` or `message_memory` does not have one entry for each stage.
    """
    instance.placement.need_plain("a program, whose transfers name one stage,")
    for name, given in (("inputs", inputs), ("outputs", outputs), ("message_memory", message_memory)):
        if given is not None and len(given) != instance.stages:
            raise InstanceError(f"{name} has {len(given)} entries for {instance.stages} stages")
    if message_memory is None:
        message_memory = instance.memory.message
    fused = frozenset(fused_stages)
    setting = Setting(channel, target, transfers, scale_grads, fused, inputs, outputs, message_memory, prediction)
    case = ProgramCase(program, instance, setting)
    rules = (*PROGRAM_RULES, *gradients.TARGET_RULES) if target else PROGRAM_RULES
    rules = (*rules, *runtime.RULES) if prediction else rules
    found = gather(case, rules, assumed(setting), listed_per_rule)
    advice = gather(case, ADVICE, (), listed_per_rule)
    runs = case.same_ranks and transfers and not case.run.deadlock and not case.progress.stuck
    whole = runs and not any(rule in found.counts for rule in _LEAVE_OUT)
    return Report(
        verdict=Verdict.VIOLATED if found.counts else Verdict.PROVED,
        violations=tuple(found.listed),
        counts=found.counts,
        rules=tuple(found.checked),
        assumptions=tuple(found.assumptions | advice.assumptions),
        facts=case.facts,
        listed_per_rule=listed_per_rule,
        advice=tuple(advice.listed),
        channel=_channel_facts(case, runs) if case.same_ranks and transfers else None,
        order=tuple(certificate_of(case.graph, case.progress.order)) if whole else None,
    )


def assumed(setting: Setting) -> tuple[str, ...]:
    """What a verdict under a setting rests on, whatever the program."""
    if not setting.transfers:
        return ALWAYS_ASSUMED
    return (*ALWAYS_ASSUMED, f"Channel {setting.channel}: {_CHANNELS[setting.channel]}.")


_LEAVE_OUT = ("V501", "V502", "V503", "V504", "V505", "V506", "V507", "V510")
"""The rules whose faults keep a transfer from having a step in the certificate, or make a step of two messages."""


def _channel_facts(case: ProgramCase, runs: bool) -> ChannelFacts:
    return ChannelFacts(
        channel=case.setting.channel,
        transfers=sum(1 for _ in case.program.transfers()),
        makespan=channel_makespan(case) if runs and all(case.exact) and not case.inverted else None,
        stops=stops(case),
        posted_receives=posted_receives(case),
    )
