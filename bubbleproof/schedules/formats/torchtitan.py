"""torchtitan: PyTorch's compute-only CSV, and the options without which torchtitan reads it wrongly.

torchtitan takes the order from the file and everything else from options. Which stages a rank holds follows from the
*name* of a schedule that it does not run: one stage per rank for ``1F1B``, every p-th stage for
``PipelineScheduleMulti``, a V for ``ZBVZeroBubble``. With a name that does not fit, it builds other stages than the
file runs. The number of microbatches is that of the batch (source of torchtitan 0.2.2, 0.3.0, and of its main branch of
August 2026).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.formats import torch_csv
from bubbleproof.schedules.placement import linear, loop, vee

if TYPE_CHECKING:
    from bubbleproof.schedules.instance import Instance
    from bubbleproof.schedules.placement import Placement
    from bubbleproof.schedules.timeline import Timeline

__all__ = ["NEWEST_RELEASE", "VERSIONS", "arguments", "layers_per_stage", "schedule_name", "write"]

VERSIONS = ("0.2", "0.3", "main")
NEWEST_RELEASE = "0.3"

_HEAD_AND_TAIL = 2
"""Layers by which torchtitan makes the first and the last stage shorter unless told otherwise: one each."""


def schedule_name(placement: Placement) -> str:
    """The name of the schedule from which torchtitan derives this placement.

    Raises
    ------
    FormatError
        It derives no such placement from any name.
    """
    ranks, chunks = placement.ranks, placement.stages // placement.ranks
    if placement.routes == linear(ranks).routes:
        return "1F1B"
    if chunks >= 2 and placement.routes == loop(ranks, chunks).routes:
        return "PipelineScheduleMulti"
    if placement.routes == vee(ranks).routes:
        return "ZBVZeroBubble"
    shown = ",".join(map(str, placement.routes[0][:32]))
    raise FormatError(
        f"torchtitan places stage s on rank s mod p, or two stages on each rank as a V; not on ranks {shown}. Nearest: "
        f"a loop or a V on {ranks} ranks, or torch-csv for a program of your own"
    )


def layers_per_stage(stages: int, layers: int) -> int:
    """The option ``pipeline_parallel_layers_per_stage`` with which torchtitan makes so many stages of so many layers.

    Raises
    ------
    FormatError
        None does.
    """
    total = layers + _HEAD_AND_TAIL
    for each in range(1, total + 1):
        if -(-total // each) == stages:
            return each
    raise FormatError(
        f"torchtitan makes ceil(({layers} + {_HEAD_AND_TAIL}) / n) stages for n layers per stage, never {stages}; give "
        "module_fqns_per_model_part in its configuration"
    )


def arguments(
    instance: Instance,
    file: str,
    *,
    version: str = NEWEST_RELEASE,
    microbatch_size: int = 1,
    layers: int | None = None,
) -> list[str]:
    """The command line arguments of torchtitan that go with the file.

    Parameters
    ----------
    file
        The name under which torchtitan will find the CSV.
    microbatch_size
        Samples in one microbatch.
    layers
        Layers of the model. Needed for more than two stages per rank: torchtitan makes two unless told otherwise.

    Raises
    ------
    FormatError
        The version is unknown, or torchtitan cannot place or split the model so.
    """
    if version not in VERSIONS:
        raise FormatError(f"torchtitan {version[:20]!r}: the options of {', '.join(VERSIONS)} are known")
    ranks, m = instance.ranks, instance.microbatches
    if ranks == 1:
        raise FormatError("torchtitan runs no pipeline on one rank")
    found = [
        f"--parallelism.pipeline_parallel_degree={ranks}",
        f"--parallelism.pipeline_parallel_schedule={schedule_name(instance.placement)}",
        f"--parallelism.pipeline_parallel_schedule_csv={file}",
    ]
    if version == "main":
        found.append(f"--parallelism.num_pp_microbatches={m}")
    else:
        found.append(f"--parallelism.pipeline_parallel_microbatch_size={microbatch_size}")
        found.append(f"--training.local_batch_size={m * microbatch_size}")
    if layers is not None:
        each = layers_per_stage(instance.stages, layers)
        found.append(f"--parallelism.pipeline_parallel_layers_per_stage={each}")
    elif instance.stages > 2 * ranks:
        raise FormatError(
            f"torchtitan makes two stages per rank unless told how many layers a stage has; this schedule has "
            f"{instance.stages // ranks}: give the number of layers of the model with --layers"
        )
    return found


def write(timeline: Timeline) -> str:
    """The CSV.

    Raises
    ------
    FormatError
        PyTorch or torchtitan cannot run the schedule.
    """
    schedule_name(timeline.instance.placement)
    return torch_csv.write(timeline)
