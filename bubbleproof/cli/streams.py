"""What the verbs do with DeepSpeed's streams of instructions."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, cast

from bubbleproof.schedules.errors import FormatError

if TYPE_CHECKING:
    from bubbleproof.schedules.instance import Instance
    from bubbleproof.schedules.instructions import Streams
    from bubbleproof.schedules.program import Program
    from bubbleproof.schedules.timeline import Timeline
    from bubbleproof.verify.runtimes.deepspeed import Engine
    from bubbleproof.verify.runtimes.prediction import Prediction

__all__ = ["best_text", "engine_of", "read"]


def read(text: str, path: str, arguments: argparse.Namespace) -> tuple[Program, Streams]:
    """The program and the streams of a file."""
    from bubbleproof.schedules.formats import deepspeed

    streams = deepspeed.loads_streams(text, path)
    if getattr(arguments, "microbatches", None) is None:
        arguments.microbatches = streams.microbatches
    return deepspeed.program_of(streams), streams


def engine_of(streams: Streams, arguments: argparse.Namespace) -> Engine:
    """The engine that the streams are for: the one given, else DeepSpeed's own if it knows all instructions."""
    given = getattr(arguments, "engine", None)
    return cast("Engine", given) if given is not None else "bubbleproof" if streams.split else "stock"


def best_text(timeline: Timeline) -> str:
    """The streams with the shortest step where transfers block, of the ways to place messages; each is judged.

    Raises
    ------
    FormatError
        DeepSpeed cannot express the schedule.
    """
    from bubbleproof.cli.output import figure, log
    from bubbleproof.schedules.formats import deepspeed
    from bubbleproof.schedules.lower import lower
    from bubbleproof.verify import verify_program
    from bubbleproof.verify.runtimes.deepspeed import predict

    schedule, instance = timeline.schedule, timeline.instance
    deepspeed.refuse(schedule, instance)
    found: list[tuple[int, bool, Streams]] = []
    said: Prediction | None = None
    for blocking in (False, True):
        program = lower(schedule, instance, reduce=False, blocking=blocking)
        streams = deepspeed.streams_of(program, instance)
        said = predict(streams, engine="bubbleproof")
        report = verify_program(program, instance, channel="rendezvous-rank", prediction=said)
        takes = report.channel.makespan if report.channel else None
        if not report.counts:
            found.append((takes or 0, predict(streams).outcome != "ok", streams))
    if not found:
        raise FormatError(f"not for DeepSpeed: {said.reason if said else 'no order of messages is safe'}")
    takes, needs, streams = min(found, key=lambda one: one[:2])
    _say(instance, figure(timeline.makespan, instance.units.time), figure(takes, instance.units.time), needs)
    log(f"note: pipeline buffers {', '.join(map(str, streams.buffers))}")
    return deepspeed.dumps(streams)


def _say(instance: Instance, free: str, blocking: str, needs: bool) -> None:
    from bubbleproof.cli.output import log

    log(
        f"note: makespan {free} without waiting for messages in order, {blocking} where each transfer blocks both ranks"
    )
    engine = "needs the engine of bubbleproof.runtimes.deepspeed" if needs else "runs on DeepSpeed's own engine too"
    log(f"note: gradient_accumulation_steps = {instance.microbatches}; {engine}")
