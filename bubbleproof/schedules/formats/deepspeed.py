"""DeepSpeed: streams of instructions for its pipeline engine, as JSON, and the text that DeepSpeed prints of its own.

A file is ``{"format": "deepspeed-instructions/1", "microbatches": m, "buffers": […], "rows": [[…], …]}``: for each
stage its number of buffers and its row of texts like ``ForwardPass(buffer_id=0)``. Read are also the printed steps of a
``PipeSchedule`` of DeepSpeed, one stage after the other, each begun by a line such as ``stage 0``.

Rank r holds stage r and talks to its neighbours; vees are in `deepspeed_vee`. An instruction names a buffer, not a
microbatch: which microbatch is meant follows from the k-th load of the first stage and from what each receive takes.
Buffers are coloured intervals: a microbatch holds one from its load or receive to its last use, and the next one takes
it over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import msgspec

from bubbleproof.schedules.errors import FormatError, ScheduleError
from bubbleproof.schedules.instructions import Instruction, InstructionName, Streams, parse_instruction
from bubbleproof.schedules.op import Op, Overlap
from bubbleproof.schedules.placement import linear, vee
from bubbleproof.schedules.program import Action, Program, Transfer

if TYPE_CHECKING:
    from bubbleproof.schedules.instance import Instance
    from bubbleproof.schedules.schedule import Schedule
    from bubbleproof.schedules.timeline import Timeline

__all__ = [
    *("END", "FORMAT", "MAX_BYTES", "OF_OP", "OF_TRANSFER"),
    *("action_of", "dumps", "loads", "loads_streams", "program_of", "refuse", "streams_of", "write"),
]

FORMAT = "deepspeed-instructions/1"
MAX_BYTES = 64 << 20

OF_OP: dict[str, InstructionName] = {
    "F": "ForwardPass",
    "BW": "BackwardPass",
    "B": "BackwardInput",
    "W": "BackwardWeight",
}
OF_TRANSFER: dict[str, InstructionName] = {
    "SEND_F": "SendActivation",
    "RECV_F": "RecvActivation",
    "SEND_B": "SendGrad",
    "RECV_B": "RecvGrad",
}
END: tuple[InstructionName, ...] = ("ReduceTiedGrads", "ReduceGrads", "OptimizerStep")


class _Document(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    format: str
    microbatches: int
    buffers: list[int]
    rows: list[list[str]]
    name: str = ""


def refuse(schedule: Schedule, instance: Instance) -> None:
    """Refuse what DeepSpeed's pipeline engine cannot express.

    Raises
    ------
    FormatError
        Another placement than the linear one, or slots that it has no instruction for; the message says what it can.
    InstanceError
        The stages are no chain.
    """
    placement = instance.placement
    placement.need_plain("DeepSpeed's pipeline engine")
    if placement.ranks > 1 and placement.routes == vee(placement.ranks).routes:
        if instance.microbatches < 2 * placement.ranks:
            raise FormatError(
                f"DeepSpeed's engine for vees (DualPipeV) wants at least 2 · {placement.ranks} microbatches, not "
                f"{instance.microbatches}. The nearest that it runs has {2 * placement.ranks}, or the linear placement"
            )
    elif placement.routes != linear(placement.ranks).routes:
        raise FormatError(
            f"DeepSpeed's pipeline engine holds stage r on rank r, that for vees also stage 2p − 1 − r; this is "
            f"{placement.kind} with {placement.stages} stages on {placement.ranks} ranks. The nearest that it runs has "
            f"the stages of each rank joined into one: solve with the linear placement on {placement.ranks} ranks, or "
            f"`families 1f1b --ranks {placement.ranks} --microbatches {instance.microbatches}`"
        )
    for _, _, slot in schedule.slots():
        if isinstance(slot, Overlap):
            raise FormatError(f"{slot}: DeepSpeed has no pairs; the nearest is {slot.forward} {slot.backward}")
        if slot.kind not in OF_OP:
            raise FormatError(f"{slot}: DeepSpeed recomputes inside a backward (activation checkpoints); leave it out")


def streams_of(program: Program, instance: Instance) -> Streams:
    """The instructions of a program: buffers, loads, and at the end of each row the reductions and the optimizer step.

    Data come from iterators, in order: the k-th load is the k-th item. What the first stage loads for its k-th forward
    therefore is item k, and the last stage loads the labels in this order too, ahead of their use if its own forwards
    are in another one. Collectives of the program are left out; DeepSpeed's stand at the end, where no message is
    pending.

    Raises
    ------
    FormatError
        DeepSpeed cannot express it; see `refuse`.
    """
    refuse(program.schedule, instance)
    if instance.placement.stages > program.ranks:
        from bubbleproof.schedules.formats.deepspeed_vee import streams_of_vee

        return streams_of_vee(program, instance)
    order = [op.microbatch for op in program.rows[0] if isinstance(op, Op) and op.kind == "F"]
    rows, counts = [], []
    for rank, row in enumerate(program.rows):
        steps = list(_steps(row, order if rank in (0, program.ranks - 1) else ()))
        buffers, count = _coloured([microbatch for _, microbatch in steps])
        made = [Instruction(name, buffer) for (name, _), buffer in zip(steps, buffers, strict=True)]
        rows.append([*made, *map(Instruction, END)])
        counts.append(count)
    return Streams.of(rows, instance.microbatches, counts, program.name)


def _steps(row: Sequence[Action], loads: Sequence[int]) -> Iterator[tuple[InstructionName, int]]:
    """Instruction and microbatch of each step of a row, with the loads that its forwards need before them."""
    loaded: set[int] = set()
    coming = iter(loads)
    for action in row:
        if isinstance(action, Transfer):
            yield OF_TRANSFER[action.kind], action.microbatch
        elif isinstance(action, Op):
            while loads and action.kind == "F" and action.microbatch not in loaded:
                item = next(coming, action.microbatch)
                loaded.add(item)
                yield "LoadMicroBatch", item
            yield OF_OP[action.kind], action.microbatch


def _coloured(uses: Sequence[int]) -> tuple[list[int], int]:
    """A buffer for each use, and how many buffers there are: as many as microbatches are in use at once.

    A microbatch keeps one buffer from its first use to its last, and a buffer that has become free is taken first.
    """
    last = {microbatch: at for at, microbatch in enumerate(uses)}
    free: list[int] = []
    held: dict[int, int] = {}
    count, found = 0, []
    for at, microbatch in enumerate(uses):
        if microbatch not in held:
            if free:
                held[microbatch] = heappop(free)
            else:
                held[microbatch] = count
                count += 1
        found.append(held[microbatch])
        if last[microbatch] == at:
            heappush(free, held[microbatch])
    return found, max(count, 1)


def program_of(streams: Streams) -> Program:
    """The program that streams of instructions mean: what is in each buffer follows the data.

    The k-th load of the first stage is microbatch k, and the k-th receive of an activation takes what the k-th send of
    the stage before it sends; gradients are named by the buffer they are for. What is taken from an empty buffer is
    named by its turn. Loads, reductions and the optimizer step have no counterpart in a program.
    """
    if streams.vee:
        from bubbleproof.schedules.formats.deepspeed_vee import program_of_vee

        return program_of_vee(streams)
    arriving: list[int] = []
    rows: list[list[Action]] = []
    for stage, row in enumerate(streams.rows):
        made, arriving = _named(stage, row, arriving)
        rows.append(made)
    return Program.of(rows, streams.name)


def _named(stage: int, row: Sequence[Instruction], arriving: Sequence[int]) -> tuple[list[Action], list[int]]:
    """The actions of a stage, and the microbatches that it sends on in turn."""
    made: list[Action] = []
    leaving: list[int] = []
    held: dict[int, int] = {}
    turn: dict[str, int] = {}
    for name, buffer, _ in row:
        if buffer is None:
            continue
        number = turn[name] = turn.get(name, -1) + 1
        if name == "LoadMicroBatch":
            if stage == 0:
                held[buffer] = number
            continue
        if name == "RecvActivation":
            held[buffer] = arriving[number] if number < len(arriving) else number
        microbatch = held.get(buffer, number)
        if name == "SendActivation":
            leaving.append(microbatch)
        made.append(action_of(name, stage, microbatch))
    return made, leaving


def action_of(name: InstructionName, stage: int, microbatch: int) -> Action:
    """The op or transfer of an instruction."""
    for kind, known in OF_OP.items():
        if known == name:
            return Op(kind, stage, microbatch)  # type: ignore[arg-type]  # the keys are kinds
    kind = next(kind for kind, known in OF_TRANSFER.items() if known == name)
    return Transfer(kind, stage, microbatch)  # type: ignore[arg-type]  # the keys are kinds


def dumps(streams: Streams) -> str:
    """Streams as canonical JSON text; `loads_streams` gives equal ones back."""
    document = _Document(
        format=FORMAT,
        microbatches=streams.microbatches,
        buffers=list(streams.buffers),
        rows=[[str(one) for one in row] for row in streams.rows],
        name=streams.name,
    )
    return msgspec.json.encode(document, order="sorted").decode() + "\n"


def loads_streams(text: str, where: str = "streams") -> Streams:
    """Read streams from JSON, or from the printed steps of DeepSpeed's own schedules.

    Raises
    ------
    FormatError
        One line that names the file, the place, and the text there.
    """
    if not text.lstrip().startswith("{"):
        return _printed(text, where)
    try:
        document = msgspec.json.decode(text, type=_Document)
    except (msgspec.DecodeError, RecursionError) as error:
        raise FormatError(f"{where}: {error}") from error
    if document.format != FORMAT:
        raise FormatError(f"{where}: format = {document.format[:40]!r} is not {FORMAT!r}")
    if document.microbatches < 1:
        raise FormatError(f"{where}: microbatches = {document.microbatches}; at least 1")
    if len(document.buffers) != len(document.rows) or min(document.buffers, default=0) < 1:
        raise FormatError(f"{where}: buffers = {document.buffers[:16]}; one count, at least 1, for each row")
    rows = []
    for rank, row in enumerate(document.rows):
        rows.append([_instruction(one, f"{where}: rows[{rank}][{at}]") for at, one in enumerate(row)])
    return Streams.of(rows, document.microbatches, document.buffers, document.name)


_STAGE = re.compile(r"(?:stage|rank)[ =]*([0-9]{1,6}):?", re.IGNORECASE)
_CALL = re.compile(r"[A-Za-z0-9]+\([^()]*\)")


def _printed(text: str, where: str) -> Streams:
    """The steps of each stage as DeepSpeed prints them: lists of instructions, under a line for each stage."""
    rows: list[list[Instruction]] = []
    for number, line in enumerate(text.splitlines(), 1):
        place = f"{where}: line {number}"
        bare = line.strip()
        if match := _STAGE.fullmatch(bare):
            if int(match[1]) != len(rows):
                raise FormatError(f"{place}: {bare!r}; stages stand in order, this would be stage {len(rows)}")
            rows.append([])
            continue
        calls = _CALL.findall(bare)
        if _CALL.sub("", bare).strip("[] \t,"):
            raise FormatError(f"{place}: {bare[:60]!r} is neither `stage 0` nor a list of instructions")
        if calls and not rows:
            raise FormatError(f"{place}: instructions before the first line like `stage 0`")
        if calls:
            rows[-1] += [_instruction(call, place) for call in calls]
    if not rows:
        raise FormatError(f"{where}: neither JSON of format {FORMAT} nor stages with lists of instructions")
    forwards = max(sum(one.name == "ForwardPass" and one.phase != 1 for one in row) for row in rows)
    made = Streams.of(rows, max(1, forwards))
    return Streams.of(rows, made.microbatches, [2 * made.microbatches] * len(rows)) if made.vee else made


def _instruction(text: str, where: str) -> Instruction:
    try:
        return parse_instruction(text)
    except ScheduleError as error:
        raise FormatError(f"{where}: {error}") from error


def loads(text: str, where: str) -> Schedule:
    """The schedule of a file, without its messages."""
    return program_of(loads_streams(text, where)).schedule


def write(timeline: Timeline) -> str:
    """The order of a timeline as instructions, with messages where they delay blocking ranks least."""
    from bubbleproof.schedules.lower import lower

    refuse(timeline.schedule, timeline.instance)
    program = lower(timeline.schedule, timeline.instance, reduce=False, blocking=True)
    return dumps(streams_of(program, timeline.instance))
