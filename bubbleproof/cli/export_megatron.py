"""The part of ``bubbleproof export`` about Megatron-core's arguments."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bubbleproof.cli import options
from bubbleproof.schedules.errors import FormatError

if TYPE_CHECKING:
    from bubbleproof.schedules.timeline import Timeline

__all__ = ["configure", "text_of"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--layers-per-stage",
        type=options.rank_list,
        metavar="N,N,…",
        help="for megatron: decoder layers of each stage, which become split flags or a pipeline layout",
    )


def text_of(arguments: argparse.Namespace, timeline: Timeline) -> str | None:
    """The text of the file, if the format is Megatron's.

    Raises
    ------
    FormatError
        Megatron cannot split the model so, or has no such order; or the options are for another format.
    """
    layers, size = arguments.layers_per_stage, arguments.microbatch_size
    if arguments.to != "megatron":
        if layers is not None:
            raise FormatError(f"--layers-per-stage is for megatron, not for {arguments.to}")
        return None
    from bubbleproof.schedules.formats import megatron

    stock = megatron.recognise(timeline.schedule, timeline.instance)
    return megatron.text_of(megatron.arguments(stock, layers=layers or (), microbatch_size=size or 1))
