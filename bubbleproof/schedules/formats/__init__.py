"""File formats: one module per format, imported when it is used.

To add a format, write a module here that has

* ``write(timeline) -> str`` if schedules can be exported to it. A timeline holds its schedule and its instance. The
  function raises `FormatError` where the target cannot express the schedule, and never approximates.
* ``loads(text, where) -> Schedule`` if schedules can be imported from it. It matches whole tokens, refuses what it does
  not know, and says the place in every error. What the text does not hold (costs, memory) is left to `infer`.

Then add one line to `FORMATS`, a round trip test, and a test for each way in which a file of this format can be wrong.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from bubbleproof.schedules.errors import FormatError

if TYPE_CHECKING:
    from bubbleproof.schedules.schedule import Schedule
    from bubbleproof.schedules.timeline import Timeline

__all__ = ["FORMATS", "Format", "format_named", "guess_format"]


@dataclass(frozen=True)
class Format:
    """A file format.

    Parameters
    ----------
    suffix
        The usual end of a file's name; it decides when the user names no format.
    module
        Where its functions live.
    writes, reads
        Names of the functions in the module; None if the format cannot be written or read.
    """

    name: str
    suffix: str
    summary: str
    module: str
    writes: str | None = "write"
    reads: str | None = None

    def writer(self) -> Callable[[Timeline], str]:
        """The function from a timeline to the text of a file."""
        if self.writes is None:
            raise FormatError(f"nothing can be exported to {self.name}")
        return cast("Callable[[Timeline], str]", getattr(importlib.import_module(self.module), self.writes))

    def reader(self) -> Callable[[str, str], Schedule]:
        """The function from the text of a file, and its name for messages, to a schedule."""
        if self.reads is None:
            raise FormatError(f"nothing can be imported from {self.name}")
        return cast("Callable[[str, str], Schedule]", getattr(importlib.import_module(self.module), self.reads))


_HERE = "bubbleproof.schedules.formats"

FORMATS = {
    entry.name: entry
    for entry in (
        Format("json", ".json", "bubbleproof's own schedule file, with its instance", f"{_HERE}.schedule_json"),
        Format(
            "torch-csv", ".csv", "compute-only CSV of torch.distributed.pipelining", f"{_HERE}.torch_csv", reads="loads"
        ),
        Format(
            "torch-comms",
            ".comms.csv",
            "CSV of torch.distributed.pipelining with communication",
            f"{_HERE}.torch_comms",
        ),
        Format(
            "torchtitan",
            ".csv",
            "compute-only CSV for torchtitan, with its options",
            f"{_HERE}.torchtitan",
        ),
        Format("program", ".program.json", "bubbleproof's own file of a program", f"{_HERE}.program_json"),
        Format(
            "spectrax",
            ".spectrax.json",
            "grid of actions of spectrax (JAX)",
            f"{_HERE}.jax_mpmd",
            writes="write_grid",
            reads="loads_grid",
        ),
        Format(
            "jaxpp",
            ".jaxpp.json",
            "lists of tasks of JaxPP (JAX)",
            f"{_HERE}.jax_mpmd",
            writes="write_tasks",
            reads="loads_tasks",
        ),
        Format(
            "deepspeed",
            ".deepspeed.json",
            "streams of instructions of DeepSpeed's pipeline engine",
            f"{_HERE}.deepspeed",
            reads="loads",
        ),
        Format(
            "megatron",
            ".megatron.args",
            "arguments of Megatron-core's training script, which choose one of its own orders",
            f"{_HERE}.megatron",
            reads="loads",
        ),
        *(
            Format(
                name,
                f".{name.replace('-', '')}.json",
                f"lists of nodes for {runtime}",
                f"{_HERE}.scheduled_node",
                writes=f"write_{name.replace('-', '_')}",
                reads="loads",
            )
            for name, runtime in (
                ("colossalai", "ColossalAI"),
                ("sail-sg", "sail-sg's zero-bubble"),
                ("primus", "Primus"),
            )
        ),
        Format("perfetto", ".trace.json", "trace for ui.perfetto.dev and chrome://tracing", f"{_HERE}.perfetto"),
        Format("svg", ".svg", "picture of the timeline", "bubbleproof.schedules.draw.svg"),
        Format("dot", ".dot", "dependency graph for Graphviz", f"{_HERE}.graphs", writes="write_dot"),
        Format("graphml", ".graphml", "dependency graph as GraphML", f"{_HERE}.graphs", writes="write_graphml"),
    )
}


def format_named(name: str) -> Format:
    """The format of a name.

    Raises
    ------
    FormatError
        There is no such format; the message lists those that exist.
    """
    if name not in FORMATS:
        raise FormatError(f"no format {name[:40]!r}; there are {', '.join(FORMATS)}")
    return FORMATS[name]


def guess_format(path: Path) -> Format | None:
    """The format that the end of a file's name suggests: the longest suffix that fits."""
    fitting = [entry for entry in FORMATS.values() if path.name.lower().endswith(entry.suffix)]
    return max(fitting, key=lambda entry: len(entry.suffix), default=None)
