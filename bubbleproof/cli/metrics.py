"""The figures of a timeline, for people and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bubbleproof.cli.output import figure, lay_out, table

if TYPE_CHECKING:
    from bubbleproof.schedules.instance import Instance, Objective
    from bubbleproof.schedules.schedule import Schedule
    from bubbleproof.schedules.timeline import Timeline

__all__ = ["as_json", "bubbles", "describe_instance", "summary", "timed"]


def timed(schedule: Schedule, instance: Instance) -> Timeline:
    """The timeline to show: for the objective span the one of least span, else every op as soon as possible.

    Raises
    ------
    ScheduleError
        The schedule does not belong to the instance, or it deadlocks.
    """
    if instance.objective == "span":
        from bubbleproof.schedules.align import align

        return align(schedule, instance)
    from bubbleproof.schedules.timeline import replay

    return replay(schedule, instance)


def describe_instance(instance: Instance) -> str:
    """Sizes and placement in a few words."""

    def count(number: int, what: str) -> str:
        return f"{number} {what}{'' if number == 1 else 's'}"

    return (
        f"{count(instance.ranks, 'rank')}, {count(instance.stages, 'stage')} ({instance.placement.kind} placement), "
        f"{count(instance.microbatches, 'microbatch')[:-1] + 'es' if instance.microbatches > 1 else '1 microbatch'}, "
        f"backward {'split' if instance.costs.split else 'fused'}"
    )


def bubbles(timeline: Timeline, of: Objective) -> str:
    """Both bubbles of the makespan or the span, each with its denominator."""
    from bubbleproof.schedules.draw.scale import percent

    step, compute = timeline.bubble("step", of), timeline.bubble("compute", of)
    return f"{percent(step)} of the step (bubble/step), {percent(compute)} of the compute (bubble/compute)"


def summary(timeline: Timeline) -> str:
    """Makespan, span, bubbles and peak of a timeline."""
    instance = timeline.instance
    unit, memory = instance.units.time, instance.units.memory
    how = "ranks start so that the span is least" if instance.objective == "span" else "every op as soon as possible"
    worst = max(range(instance.ranks), key=lambda rank: timeline.peaks[rank].memory)
    peak = timeline.peaks[worst]
    held = f"{figure(peak.memory, memory)} on rank {worst} at {figure(peak.time, unit)}"
    if instance.memory.cap is not None:
        held += f", cap {figure(instance.memory.cap[worst], memory)}"
    return lay_out(
        [
            ("makespan", figure(timeline.makespan, unit)),
            ("span", f"{figure(timeline.span, unit)} ({how})"),
            ("bubble of " + instance.objective, bubbles(timeline, instance.objective)),
            ("highest peak", held),
        ]
    )


def per_rank(timeline: Timeline) -> str:
    """A table of what each rank does and holds."""
    sizes = timeline.instance.memory.message is not None
    head = ["rank", "stages", "busy", "fill", "steady", "drain", "peak", "at", "by", "sends", "receives"]
    if sizes:
        head += ["sent", "received"]
    rows = []
    for rank, stages in enumerate(timeline.instance.placement.stages_of_rank):
        idle, peak, traffic = timeline.idle[rank], timeline.peaks[rank], timeline.traffic[rank]
        row = [
            str(rank),
            ",".join(map(str, stages)),
            *map(figure, (timeline.busy[rank], *idle, peak.memory, peak.time)),
            str(peak.slot or "-"),
            figure(traffic.sent),
            figure(traffic.received),
        ]
        rows.append(row + ([figure(traffic.bytes_sent), figure(traffic.bytes_received)] if sizes else []))
    return table(head, rows, left=(0, 1))


def as_json(timeline: Timeline) -> dict[str, Any]:
    """All figures of a timeline; fractions as exact text."""
    instance = timeline.instance
    return {
        "schedule": timeline.schedule.name,
        "instance": instance.name,
        "objective": instance.objective,
        "units": {"time": instance.units.time, "memory": instance.units.memory},
        "makespan": timeline.makespan,
        "span": timeline.span,
        "bubble": {
            of: {"step": str(timeline.bubble("step", of)), "compute": str(timeline.bubble("compute", of))}
            for of in ("makespan", "span")
        },
        "cap": instance.memory.cap,
        "ranks": [
            {
                "busy": timeline.busy[rank],
                "idle": timeline.idle[rank]._asdict(),
                "peak": {
                    "memory": timeline.peaks[rank].memory,
                    "time": timeline.peaks[rank].time,
                    "slot": None if timeline.peaks[rank].slot is None else str(timeline.peaks[rank].slot),
                },
                "span": timeline.spans[rank],
                "stages": instance.placement.stages_of_rank[rank],
                "traffic": timeline.traffic[rank]._asdict(),
            }
            for rank in range(instance.ranks)
        ],
        "critical_path": [str(slot) for slot in timeline.critical_path],
    }
