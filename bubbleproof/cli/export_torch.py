"""The part of ``bubbleproof export`` about versions of PyTorch and the options of torchtitan."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from bubbleproof.cli import options
from bubbleproof.schedules.errors import FormatError

if TYPE_CHECKING:
    from bubbleproof.schedules.formats.torch_versions import Version
    from bubbleproof.schedules.instance import Instance
    from bubbleproof.schedules.schedule import Schedule
    from bubbleproof.schedules.timeline import Timeline

__all__ = ["configure", "say_arguments", "say_how_to_run", "titan_arguments", "version_of"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--target-version",
        metavar="V",
        help="of PyTorch (2.8 or later, for torch-csv and torch-comms; default: 2.13) or of torchtitan (0.2, 0.3 or "
        "main; default: 0.3)",
    )
    parser.add_argument(
        "--no-scale-grads", dest="scale_grads", action="store_false", help="PyTorch will not divide gradients by m"
    )
    group = parser.add_argument_group("for torchtitan", "its options are written next to OUT, to OUT.args")
    group.add_argument(
        "--microbatch-size", type=options.positive, metavar="N", help="samples in one, also for megatron; default: 1"
    )
    group.add_argument(
        "--layers", type=options.positive, metavar="N", help="of the model: for over two stages per rank"
    )


def version_of(arguments: argparse.Namespace, schedule: Schedule) -> Version | None:
    """The version of PyTorch that is asked for, if one is; it can run the schedule.

    Raises
    ------
    FormatError
        It cannot, or does not provide the channel, or the format has no versions.
    """
    from bubbleproof.schedules.formats import torch_versions

    if arguments.target_version is None or arguments.to == "torchtitan":
        return None
    if arguments.to not in ("torch-csv", "torch-comms"):
        raise FormatError(f"--target-version is for torch-csv, torch-comms and torchtitan, not for {arguments.to}")
    version = torch_versions.parse(arguments.target_version)
    torch_versions.check(schedule, version, scale_grads=arguments.scale_grads)
    if arguments.to == "torch-comms":
        torch_versions.check_channel(arguments.channel, version)
    return version


def titan_arguments(arguments: argparse.Namespace, instance: Instance) -> list[str]:
    """The arguments of torchtitan that go with the file; none for another target.

    Raises
    ------
    FormatError
        torchtitan cannot run it, or an option of torchtitan was given for something else.
    """
    from bubbleproof.schedules.formats import torchtitan

    if arguments.to != "torchtitan":
        for name in ("microbatch_size", "layers"):
            if getattr(arguments, name) is not None and (arguments.to, name) != ("megatron", "microbatch_size"):
                raise FormatError(f"--{name.replace('_', '-')} is for torchtitan")
        return []
    return torchtitan.arguments(
        instance,
        arguments.output or "schedule.csv",
        version=arguments.target_version or torchtitan.NEWEST_RELEASE,
        microbatch_size=arguments.microbatch_size or 1,
        layers=arguments.layers,
    )


def say_how_to_run(timeline: Timeline, *, scale_grads: bool = True) -> None:
    """What PyTorch has to be told besides the file."""
    from bubbleproof.cli.output import log
    from bubbleproof.schedules.formats import torch_versions

    route = timeline.instance.placement.routes[0]
    shown = ",".join(map(str, route[:32])) + (",…" if len(route) > 32 else "")
    oldest = torch_versions.oldest_for(timeline.schedule, scale_grads=scale_grads)
    log(
        f"note: for torch.distributed.pipelining {oldest} or later, as compute_only; "
        f"{timeline.instance.microbatches} microbatches; stages 0, 1, … live on ranks {shown}"
    )


def say_arguments(arguments: list[str], output: str | None) -> None:
    """The arguments of torchtitan, for the shell."""
    from bubbleproof.cli.output import log

    where = f", in {output}.args" if output else ""
    log(f"note: torchtitan needs these arguments as well{where}:\n  {shlex.join(arguments)}")
