"""The part of ``bubbleproof verify`` that judges programs: schedules with sends and receives."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bubbleproof.cli import options
from bubbleproof.cli.large import large_program
from bubbleproof.schedules.errors import FormatError

if TYPE_CHECKING:
    from bubbleproof.schedules.formats.torch_versions import Version
    from bubbleproof.schedules.instance import Instance
    from bubbleproof.schedules.instructions import Streams
    from bubbleproof.schedules.nodes import NodeLists
    from bubbleproof.schedules.program import Channel, Program
    from bubbleproof.schedules.schedule import Schedule
    from bubbleproof.verify import Report
    from bubbleproof.verify.runtimes.prediction import Prediction

__all__ = ["check_version", "configure", "judge_program", "refuse_communication"]

# written out, since what is imported to build the command line is imported by every verb
_CHANNELS = ("eager", "rendezvous-pair", "rendezvous-rank", "per-direction", "per-edge", "batched", "even-odd")


@dataclass(frozen=True)
class _Loaded:
    """A program, its instance, and a sentence for each thing that was inferred or assumed."""

    program: Program
    instance: Instance
    notes: tuple[str, ...]
    report: Report | None = None
    """That of a large program, which was judged where it was read."""
    streams: Streams | None = None
    """What was read, if the program is only what it means."""
    nodes: NodeLists | None = None
    """The same for nodes."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options about communication."""
    group = parser.add_argument_group("what is known about communication", "for files with sends and receives")
    group.add_argument("--channel", choices=_CHANNELS, help="how messages travel; default: rendezvous-pair")
    group.add_argument(
        "--no-scale-grads", dest="scale_grads", action="store_false", help="REDUCE_GRAD does not divide by m"
    )
    group.add_argument("--no-transfers", dest="transfers", action="store_false", help="the runtime adds the transfers")
    group.add_argument(
        "--target-version", metavar="V", help="of PyTorch, with --target torch: 2.8 or later; default: 2.13"
    )
    group.add_argument(
        "--fused-stages", type=options.rank_list, metavar="S,S,…", help="stages that cannot split their backward"
    )
    group.add_argument(
        "--message-memory",
        type=options.rank_list,
        metavar="N[,N…]",
        help="memory of what a stage hands to the next, one for all stages or one for each",
    )
    group.add_argument(
        "--engine",
        choices=("stock", "bubbleproof"),
        help="for DeepSpeed's streams and ColossalAI's nodes: the runtime's own engine, or that of "
        "bubbleproof.runtimes; default: its own, if that knows all it has to",
    )


def refuse_communication(arguments: argparse.Namespace) -> None:
    """Refuse options about communication for a file that has none.

    Raises
    ------
    FormatError
        One was given.
    """
    given = {
        "--channel": arguments.channel is not None,
        "--no-scale-grads": not arguments.scale_grads,
        "--no-transfers": not arguments.transfers,
        "--fused-stages": arguments.fused_stages is not None,
        "--message-memory": arguments.message_memory is not None,
        "--engine": arguments.engine is not None,
    }
    for name, there in given.items():
        if there:
            raise FormatError(f"{arguments.file}: {name} is about communication, and the file has none")


def judge_program(arguments: argparse.Namespace) -> int | None:
    """Judge the file if it holds a program, print the report and return the exit code; None if it holds none."""
    loaded = _load(arguments.file, arguments)
    if loaded is None:
        return None
    from bubbleproof.cli.output import emit, emit_json, wrapped
    from bubbleproof.verify import Verdict

    loaded = _as_version_runs(loaded, arguments)
    said = _streams_predicted(loaded, arguments)
    report = loaded.report or _judged(loaded, arguments, said)
    said = said or _predicted(loaded, report, arguments)
    if arguments.json:
        import msgspec

        built: dict[str, Any] = msgspec.to_builtins(report)
        runtime = {} if said is None else {"runtime": msgspec.to_builtins(said)}
        emit_json({**built, "file": arguments.file, "inferred": list(loaded.notes), **runtime})
    else:
        lines = [*_findings(loaded, report), *loaded.notes]
        if said is not None:
            who = "ColossalAI" if loaded.nodes else "DeepSpeed's engine" if loaded.streams else "PyTorch's runtime"
            own = loaded.nodes or loaded.streams
            how = "trains right" if own and said.outcome == "ok" else _OUTCOMES[said.outcome]
            lines.insert(0, f"{who} on this file: {how}{said.reason and ': '}{said.reason}")
        lines += [f"assumed: {sentence}" for sentence in report.assumptions]
        emit(
            f"{arguments.file}: {report.verdict.value}\n"
            + "".join(f"  {line}\n" if line.startswith(" ") else wrapped(line, "  ") for line in lines)
        )
    return 0 if report.verdict == Verdict.PROVED else 1


_OUTCOMES = {
    "ok": "trains right if sends are buffered",
    "refused": "refuses to load it",
    "crash": "raises",
    "hang": "hangs",
    "wrong": "finishes with wrong gradients or losses",
}


def _predicted(loaded: _Loaded, report: Report, arguments: argparse.Namespace) -> Prediction | None:
    """What the runtime named by ``--target`` does with a file that violates rules; one that does not trains right."""
    if arguments.target != "torch" or not report.counts:
        return None
    from bubbleproof.verify.runtimes.torch import predict

    return predict(loaded.program, loaded.instance, scale_grads=arguments.scale_grads, transfers=arguments.transfers)


def _streams_predicted(loaded: _Loaded, arguments: argparse.Namespace) -> Prediction | None:
    """What DeepSpeed does with a file of its instructions, and ColossalAI with one of its nodes."""
    if loaded.nodes is not None:
        from bubbleproof.cli.nodes import predicted

        return predicted(loaded.nodes, arguments)
    if loaded.streams is None:
        if arguments.engine is not None:
            raise FormatError(f"{arguments.file}: --engine is about DeepSpeed's streams, and the file has none")
        return None
    from bubbleproof.cli.streams import engine_of
    from bubbleproof.verify.runtimes.deepspeed import predict

    return predict(loaded.streams, engine=engine_of(loaded.streams, arguments))


def check_version(given: Schedule | Program, arguments: argparse.Namespace) -> Version | None:
    """The version of PyTorch that is named, if one is.

    Raises
    ------
    FormatError
        It does not read the file, or always runs it with wrong gradients.
    """
    if arguments.target_version is None:
        return None
    from bubbleproof.schedules.formats import torch_versions

    if arguments.target != "torch":
        raise FormatError("--target-version goes with --target torch")
    version = torch_versions.parse(arguments.target_version)
    torch_versions.check(given, version, scale_grads=arguments.scale_grads)
    return version


def _as_version_runs(loaded: _Loaded, arguments: argparse.Namespace) -> _Loaded:
    """What the version of PyTorch that is named does with the file."""
    version = check_version(loaded.program, arguments)
    if version is None:
        return loaded
    from bubbleproof.schedules.formats import torch_versions

    if arguments.channel is not None:
        torch_versions.check_channel(arguments.channel, version)
    if torch_versions.reduces(version):
        return loaded
    note = f"given: PyTorch {version}, which scales gradients at the end of the step"
    return _Loaded(torch_versions.with_final_reductions(loaded.program), loaded.instance, (*loaded.notes, note))


def _usual_channel(loaded: _Loaded) -> Channel:
    """How messages travel where nothing is said: for files of DeepSpeed and of nodes as the strictest engine does."""
    if loaded.nodes is not None:
        return "rendezvous-rank"
    if loaded.streams is None:
        return "rendezvous-pair"
    return "batched" if loaded.streams.vee else "rendezvous-rank"


def _judged(loaded: _Loaded, arguments: argparse.Namespace, said: Prediction | None) -> Report:
    from bubbleproof.verify import verify_program

    stages, sizes = loaded.instance.stages, arguments.message_memory
    if sizes is not None and len(sizes) not in (1, stages):
        raise FormatError(f"--message-memory has {len(sizes)} entries; one, or one for each of {stages} stages")
    return verify_program(
        loaded.program,
        loaded.instance,
        channel=arguments.channel or _usual_channel(loaded),
        prediction=said,
        target=arguments.target,
        transfers=arguments.transfers,
        scale_grads=arguments.scale_grads,
        fused_stages=arguments.fused_stages or (),
        message_memory=sizes if sizes is None or len(sizes) == stages else sizes * stages,
    )


def _load(path: str, arguments: argparse.Namespace) -> _Loaded | None:
    """The program of a file, known by its format or by its transfers."""
    from bubbleproof.cli.nodes import NAMES
    from bubbleproof.schedules.formats import guess_format
    from bubbleproof.schedules.formats.files import MIB, read_text

    known = guess_format(Path(path))
    name = arguments.format or (known.name if known else "")
    if name not in ("json", "program", "torch-csv", "torch-comms", "deepspeed", *NAMES) or arguments.format in (
        "json",
        "torch-csv",
    ):
        return None
    text = read_text(Path(path), 256 * MIB)
    notes: tuple[str, ...] = ()
    if name == "torch-csv":
        if "SEND_" not in text and "RECV_" not in text:
            return None
        notes = ("inferred: format torch-comms, from the transfers in the file",)
    elif name == "json" and '"bubbleproof-program/1"' not in text:
        return None
    if name in ("json", "program"):
        return _from_json(text, path, arguments)
    from bubbleproof.cli.load import capped, with_instance
    from bubbleproof.schedules.formats import torch_comms

    if name in NAMES:
        from bubbleproof.cli.nodes import read as read_nodes

        program, nodes = read_nodes(text, path, arguments)
        found = capped(with_instance(program.schedule, path, arguments), arguments)
        return _Loaded(program, found.instance, (*notes, *found.notes), nodes=nodes)
    if name == "deepspeed":
        from bubbleproof.cli.streams import read

        program, streams = read(text, path, arguments)
        found = capped(with_instance(program.schedule, path, arguments), arguments)
        return _Loaded(program, found.instance, (*notes, *found.notes), streams=streams)
    if (large := large_program(text, path, arguments)) is not None:
        program, found, report = large
        return _Loaded(program, found.instance, (*notes, *found.notes), report)
    program = torch_comms.loads(text, path)
    found = capped(with_instance(program.schedule, path, arguments), arguments)
    return _Loaded(program, found.instance, (*notes, *found.notes))


def _from_json(text: str, path: str, arguments: argparse.Namespace) -> _Loaded:
    from bubbleproof.cli.load import capped, from_document
    from bubbleproof.schedules.formats import program_json, schedule_json

    document = program_json.loads(text, path)
    schedule = schedule_json.Document(document.program.schedule, document.instance)
    found = capped(from_document(schedule, path, arguments), arguments)
    return _Loaded(document.program, found.instance, found.notes)


def _findings(loaded: _Loaded, report: Report) -> Iterator[str]:
    """The violations, or what was checked; the figures under the channel; advice."""
    from bubbleproof.cli.output import figure
    from bubbleproof.cli.verify_ import violations

    facts, channel, unit = report.facts, report.channel, loaded.instance.units.time
    if not report.counts:
        count = f"{facts.slots} slots and {channel.transfers if channel else 0} transfers"
        yield f"checked: {len(report.rules)} rules, {report.rules[0]} to {report.rules[-1]}, on {count}"
    yield from violations(report)
    if facts.makespan is not None:
        yield f"ops as soon as possible: makespan {figure(facts.makespan, unit)}, span {figure(facts.span, unit)}"
    if channel is not None:
        if channel.makespan is not None:
            yield f"under {channel.channel}: makespan {figure(channel.makespan, unit)}"
        stopped = [(rank, stop) for rank, stop in enumerate(channel.stops) if stop is not None]
        if stopped:
            where = (f"rank {rank} at {loaded.program.rows[rank][stop]} (position {stop})" for rank, stop in stopped)
            yield f"under {channel.channel} these never end: {', '.join(where)}"
        yield f"receives posted and not yet used, at most, on each rank: {', '.join(map(str, channel.posted_receives))}"
    for advice in report.advice:
        yield f"advice {advice}"
