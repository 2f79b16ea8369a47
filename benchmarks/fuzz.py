"""Feed broken files to every reader and to the judge: ``python -m benchmarks.fuzz --inputs 100000 --seed 1``.

Every input is written to a file and read like a user's. It must be refused with one line that begins with the name of
the file, or be judged. Anything else is printed with the seed and the input that caused it, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bubbleproof.schedules.costs import Costs, Memory
from bubbleproof.schedules.errors import BubbleproofError
from bubbleproof.schedules.formats import (
    instance_toml,
    pattern_json,
    program_json,
    schedule_json,
    torch_comms,
    torch_csv,
)
from bubbleproof.schedules.formats.infer import infer_instance
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.lower import lower
from bubbleproof.schedules.op import Op
from bubbleproof.schedules.pattern import IndexedOp, PeriodicSchedule, Segment
from bubbleproof.schedules.placement import Placement, bidirectional, custom, linear, loop, vee
from bubbleproof.schedules.program import CHANNELS, Program
from bubbleproof.schedules.schedule import Schedule
from bubbleproof.schedules.timeline import replay
from bubbleproof.verify import verify, verify_program

BYTES_PER_BYTE = 400
"""Peak memory of reading and judging is at most this many bytes for each byte of the file …"""
BYTES_PER_CELL = 4000
"""… and this many for each stage of each microbatch, and each rank, of the instance that the file describes, …"""
BYTES_ALWAYS = 1 << 20
"""… and this many for an empty one."""

LARGE = 5000
"""Accepted instances with more stages × microbatches than that are not judged: it would take seconds each."""

NUMBERS = (0, 1, 2, 3, 7, 255, 10**6, 10**6 + 1, 10**9, 2**31, 2**63, 2**64, 10**12 + 1, 10**30, -1, -(2**63))
_TEXT = """\
F B W BW I 0F0 1B1 2W0 0BW1 (0F1;1B0) (0F1;1BW0) 1F0 0SEND_F0 1RECV_F0 1SEND_B0 0RECV_B0 0REDUCE_GRAD 1UNSHARD 1RESHARD
(0F1;1B0)OVERLAP_F_B loop vee wave linear custom bidirectional alternate halves null true false NaN nan inf Infinity
-0 1e9 1.5 0x10 1_0 2026-01-01 { } [ ] " ' , ; : = # \\ \\u0000 \\ud800 ٣ é 0-1 1-0 2F[b] 2F[2n-1] up down once"""
WORDS = (*_TEXT.split(), "\n", "\r\n", "\t", "\0", "\ufeff")
PIECES = re.compile(rb"-?[0-9]+|[A-Za-z_]+|\s+|.", re.DOTALL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="one reader, by name")
    arguments = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        outcome = fuzz(arguments.inputs, arguments.seed, Path(folder), only=arguments.only, log=sys.stderr.write)
    print(f"{arguments.inputs} inputs, seed {arguments.seed}, {time.perf_counter() - began:.0f} s")
    for (name, what), count in sorted(outcome.counts.items()):
        print(f"  {name:14} {what:10} {count}")
    print(f"  slowest input {outcome.slowest[0]:.2f} s ({outcome.slowest[1]})")
    print(f"  memory measured on {outcome.measured} inputs; at worst {outcome.worst:.2f} of what is allowed")
    for failure in outcome.failures:
        print(f"FAILED {failure}")
    return 1 if outcome.failures else 0


@dataclass
class Outcome:
    """What a run found: how many inputs of each reader were refused, read or judged, and what went wrong."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "")
    measured: int = 0
    worst: float = 0.0


def fuzz(
    inputs: int,
    seed: int,
    folder: Path,
    *,
    only: str | None = None,
    measure_every: int = 25,
    log: Callable[[str], object] = lambda line: None,
) -> Outcome:
    """Run so many inputs; every `measure_every`-th of them with its memory measured."""
    chance = random.Random(seed)
    readers = [reader for reader in READERS if only in (None, reader.name)]
    pool = [data for reader in readers for data in reader.seeds]
    outcome = Outcome()
    path = folder / "input"
    for number in range(inputs):
        reader = readers[number % len(readers)]
        data = mutated(chance, chance.choice(reader.seeds), pool)
        path.write_bytes(data)
        measure = number // len(readers) % measure_every == 0
        if measure:
            tracemalloc.start()
        before = time.perf_counter()
        what, cells, complaint = tried(reader, path, chance)
        seconds = time.perf_counter() - before
        if measure:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            share = peak / (BYTES_ALWAYS + BYTES_PER_BYTE * len(data) + BYTES_PER_CELL * cells)
            outcome.measured += 1
            outcome.worst = max(outcome.worst, share)
            if share > 1:
                complaint = complaint or f"{peak} bytes of memory for {len(data)} bytes and {cells} cells"
        outcome.counts[reader.name, what] += 1
        outcome.slowest = max(outcome.slowest, (seconds, f"{reader.name} {what}, {len(data)} bytes"))
        if complaint:
            outcome.failures.append(f"{reader.name} input {number}: {complaint}: {data[:2000]!r}")
            log(outcome.failures[-1] + "\n")
            if len(outcome.failures) >= 20:
                break
        if number % 10_000 == 9_999:
            log(f"{number + 1} inputs, {len(outcome.failures)} failures\n")
    return outcome


def tried(reader: Reader, path: Path, chance: random.Random) -> tuple[str, int, str]:
    """What became of an input, the cells of its instance, and what is wrong with that; "" if nothing."""
    cells = 0
    try:
        subject = reader.read(path)
        instance = subject if isinstance(subject, Instance) else subject[1]
        cells = instance.stages * instance.microbatches + instance.ranks
        if cells > LARGE:
            return "large", cells, ""
        return reader.judge(subject, chance), cells, ""
    except BubbleproofError as error:
        text = str(error)
        if not text.startswith(str(path)):
            return "refused", cells, f"no place in the error {text!r}"
        if "\n" in text or len(text) > 1000:
            return "refused", cells, f"not one short line: {text[:1500]!r}"
        return "refused", cells, ""
    except Exception as error:
        import traceback

        frame = traceback.extract_tb(error.__traceback__)[-1]
        return "broken", cells, f"{type(error).__name__}: {error} at {Path(frame.filename).name}:{frame.lineno}"


def mutated(chance: random.Random, data: bytes, pool: list[bytes]) -> bytes:
    """A text with a few changes: single bytes, pieces of text, numbers and words, whole values of a JSON document."""
    if data.startswith(b"{") and chance.random() < 0.4:
        document = json.loads(data)
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            document = replaced(chance, document)
        data = json.dumps(document).encode(errors="replace")
        if chance.random() < 0.8:
            return data
    if chance.random() < 0.4:  # mild: most such files can still be read
        return _piece(chance, data, pool)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        data = CHANGES[chance.randrange(len(CHANGES))](chance, data, pool)
    return data


def _byte(chance: random.Random, data: bytes, pool: list[bytes]) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + bytes([chance.randrange(256)]) + data[at + chance.randrange(2) :]


def _cut(chance: random.Random, data: bytes, pool: list[bytes]) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + data[at + chance.choice((1, 2, 5, 30, 10**9)) :]


def _copy(chance: random.Random, data: bytes, pool: list[bytes]) -> bytes:
    start, at = chance.randrange(len(data) + 1), chance.randrange(len(data) + 1)
    return data[:at] + data[start : start + chance.choice((1, 4, 20, 100))] * chance.choice((1, 1, 2, 50)) + data[at:]


def _splice(chance: random.Random, data: bytes, pool: list[bytes]) -> bytes:
    other = chance.choice(pool)
    start, at = chance.randrange(len(other) + 1), chance.randrange(len(data) + 1)
    return data[:at] + other[start : start + chance.choice((3, 10, 50, 10**9))] + data[at:]


def _piece(chance: random.Random, data: bytes, pool: list[bytes]) -> bytes:
    """Another number for a number, another word for a word; or two pieces change places."""
    pieces = PIECES.findall(data)
    if not pieces:
        return data
    at = chance.randrange(len(pieces))
    if chance.random() < 0.3:
        other = chance.randrange(len(pieces))
        pieces[at], pieces[other] = pieces[other], pieces[at]
    elif pieces[at].lstrip(b"-").isdigit() and chance.random() < 0.8:
        small = chance.random() < 0.8
        pieces[at] = b"%d" % (chance.randrange(5) if small else chance.choice(NUMBERS))
    elif pieces[at].isalpha() and chance.random() < 0.5:
        pieces[at] = chance.choice((b"F", b"B", b"W", b"BW", b"I", b"SEND_F", b"RECV_F", b"SEND_B", b"RECV_B"))
    else:
        pieces[at] = chance.choice(WORDS).encode()
    return b"".join(pieces)


CHANGES = (_byte, _cut, _copy, _splice, _piece, _piece, _piece, _piece)


def replaced(chance: random.Random, value: Any) -> Any:
    """A JSON value with something else at a random place inside it."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(list(value))
        match chance.randrange(12):
            case 0:
                return {k: v for k, v in value.items() if k != key}
            case 1:
                return {**value, chance.choice(WORDS): value[key]}
        return {**value, key: replaced(chance, value[key])}
    if isinstance(value, list) and value and chance.random() < 0.9:
        at = chance.randrange(len(value))
        match chance.randrange(8):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return [*value, value[at]]
            case 2:
                return value[:at] + value[at:][::-1]
        return [*value[:at], replaced(chance, value[at]), *value[at + 1 :]]
    if isinstance(value, int) and chance.random() < 0.6:
        return chance.randrange(6)
    return chance.choice(
        (chance.choice(NUMBERS), chance.choice(WORDS), None, True, 1.5, [], {}, [value], {"F": value}, [[]] * 3)
    )


def small_cases() -> Iterator[tuple[Schedule, Instance]]:
    """Valid schedules to start from: every kind of placement, one microbatch after the other."""
    placements = (linear(2), linear(3), loop(2, 2), vee(2), bidirectional(2), custom([0, 0, 1]))
    for number, placement in enumerate(placements):
        instance = _instance(placement, number)
        yield _one_by_one(instance), instance


def _instance(placement: Placement, number: int) -> Instance:
    stages, ranks = placement.stages, placement.ranks
    split = number % 2 == 0
    costs = Costs.make(
        stages,
        F=list(range(1, stages + 1)) if number % 3 else 2,
        B=2,
        W=1 if split else None,
        comm=1 if number % 2 else {(0, 1): 2},
        overlap_BW=3 if number % 3 == 1 else None,
    )
    memory = Memory.make(stages, ranks, F=2, B=-1, W=-1, static=number % 3, cap=100 if number % 2 else None)
    return Instance(placement, 2, costs, memory, "span" if split else "makespan", f"seed {number}")


def _one_by_one(instance: Instance) -> Schedule:
    orders: list[list[Op]] = [[] for _ in range(instance.ranks)]
    for j in range(instance.microbatches):
        for stage in range(instance.stages):
            orders[instance.rank_of(stage, j)].append(Op("F", stage, j))
        for stage in reversed(range(instance.stages)):
            for kind in instance.costs.backward_kinds:
                orders[instance.rank_of(stage, j)].append(Op(kind, stage, j))
    return Schedule.of(orders)


@dataclass(frozen=True)
class Reader:
    """A reader of files: valid texts to start from, how to read one, how to judge what was read."""

    name: str
    seeds: list[bytes]
    read: Callable[[Path], Any]
    judge: Callable[[Any, random.Random], str]


def _judge_schedule(subject: Any, chance: random.Random) -> str:
    schedule, instance, starts, record = subject
    report = verify(schedule, instance, timeline=starts, claims=record)
    str(report)
    return report.verdict.value


def _read_schedule(path: Path) -> tuple[Any, ...]:
    document = schedule_json.load(path)
    return document.schedule, document.instance, document.starts, document.record


def _read_csv(path: Path) -> tuple[Any, ...]:
    schedule = torch_csv.load(path)
    return schedule, infer_instance(schedule, str(path)).instance, None, None


def _read_program(path: Path) -> tuple[Program, Instance]:
    document = program_json.load(path)
    return document.program, document.instance


def _read_comms(path: Path) -> tuple[Program, Instance]:
    program = torch_comms.load(path)
    return program, infer_instance(program.schedule, str(path)).instance


def _judge_program(subject: Any, chance: random.Random) -> str:
    program, instance = subject
    target = chance.choice((None, "torch"))
    report = verify_program(program, instance, channel=chance.choice(CHANNELS), target=target)
    str(report)
    return report.verdict.value


def _judge_pattern(subject: Any, chance: random.Random) -> str:
    pattern, base = subject
    # the schedule asked for below would be large, not the file
    if base.stages * pattern.microbatches(pattern.least) > LARGE:
        return "large"
    try:
        instance, schedule = pattern.instance(base, pattern.least), pattern.schedule(pattern.least)
    except BubbleproofError:
        return "impossible"  # what is asked of a pattern is no fault of its file
    report = verify(schedule, instance)
    str(report)
    return report.verdict.value


def _patterns() -> list[bytes]:
    """One microbatch after the other on two ranks, for every number of microbatches; once with two to a block."""
    found = []
    for step in (1, 2):
        rows = []
        for rank in range(2):
            body = [IndexedOp(kind, rank, 0, "b", offset) for offset in range(step) for kind in ("F", "BW")]
            rows.append((Segment(tuple(body), "up"), Segment((IndexedOp("F", rank, 0, "n", 0),))))
        pattern = PeriodicSchedule(tuple(rows), (step,), (1,), 1)
        found.append(pattern_json.dumps(pattern, _instance(linear(2), 1)).encode())
    return found


def _readers() -> list[Reader]:
    cases = list(small_cases())
    single = [(schedule, instance) for schedule, instance in cases if len(instance.placement.routes) == 1]
    programs = [(lower(*case), case[1]) for case in cases]
    comms = [(lower(*case), case[1]) for case in single]
    return [
        Reader(
            "instance",
            [instance_toml.dumps(instance).encode() for _, instance in cases],
            instance_toml.load,
            lambda subject, chance: "read",
        ),
        Reader(
            "schedule",
            [schedule_json.write(replay(*case)).encode() for case in cases],
            _read_schedule,
            _judge_schedule,
        ),
        Reader("torch-csv", [torch_csv.dumps(*case).encode() for case in single], _read_csv, _judge_schedule),
        Reader(
            "program",
            [program_json.dumps(program_json.Document(*case)).encode() for case in programs],
            _read_program,
            _judge_program,
        ),
        Reader("torch-comms", [torch_comms.dumps(*case).encode() for case in comms], _read_comms, _judge_program),
        Reader("pattern", _patterns(), pattern_json.load, _judge_pattern),
    ]


READERS = _readers()

if __name__ == "__main__":
    sys.exit(main())
