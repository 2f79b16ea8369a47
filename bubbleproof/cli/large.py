"""Large files: read into arrays and judged there, so that no op becomes an object."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from bubbleproof.schedules.errors import BubbleproofError

if TYPE_CHECKING:
    from bubbleproof.cli.load import Loaded
    from bubbleproof.schedules.program import Program
    from bubbleproof.schedules.table import Table
    from bubbleproof.verify import Report

__all__ = ["LARGE", "judge_large", "large_program"]

LARGE = 200_000
"""Bytes from which a file is large, some 30,000 ops: below, loading the array library takes longer than it saves."""

_MARK = "999999999F999999999"


def judge_large(path: str, arguments: argparse.Namespace) -> tuple[Loaded, Report] | None:
    """Judge a large schedule file; None for a small one, and for one that has to be read cell by cell.

    The schedule of what is returned is a sample, with every rank and every stage but few of the ops.
    """
    try:
        if os.stat(path).st_size < LARGE:
            return None
    except (OSError, ValueError):
        return None  # the ordinary reader says what is wrong
    from bubbleproof.cli.load import capped, format_of

    readers = {"json": _json, "torch-csv": _csv}
    try:
        reader = readers.get(format_of(path, getattr(arguments, "format", None)))
        found = None if reader is None else reader(path, arguments)
        if found is None:
            return None
        table, loaded = found
        loaded = capped(loaded, arguments)
    except BubbleproofError:
        return None  # nor is what is wrong said here
    from bubbleproof.verify.bulk import verify_table

    return loaded, verify_table(table, loaded.instance, target=arguments.target)


def large_program(text: str, path: str, arguments: argparse.Namespace) -> tuple[Program, Loaded, Report] | None:
    """Judge a large program in PyTorch's CSV; None for a small one, and for one that breaks a rule.

    The program of what is returned is empty, and its schedule a sample.
    """
    if len(text) < LARGE or arguments.message_memory is not None:
        return None
    from bubbleproof.cli.load import capped, with_instance
    from bubbleproof.schedules.formats.table_text import TORCH_COMMS, torch_rows
    from bubbleproof.schedules.program import Program
    from bubbleproof.verify.bulk_program import proof_of_program
    from bubbleproof.verify.exchange import Setting

    table = torch_rows(text, TORCH_COMMS, idle=False)
    if table is None:
        return None
    try:
        loaded = capped(with_instance(table.sample(), path, arguments), arguments)
    except BubbleproofError:
        return None
    setting = Setting(
        channel=arguments.channel or "rendezvous-pair",
        target=arguments.target,
        transfers=arguments.transfers,
        scale_grads=arguments.scale_grads,
        fused_stages=arguments.fused_stages or (),
    )
    report = proof_of_program(table, loaded.instance, setting)
    return None if report is None else (Program.of([()] * table.ranks), loaded, report)


def _csv(path: str, arguments: argparse.Namespace) -> tuple[Table, Loaded] | None:
    from bubbleproof.cli.load import with_instance
    from bubbleproof.schedules.formats.files import read_text
    from bubbleproof.schedules.formats.table_text import TORCH_COMPUTE, torch_rows
    from bubbleproof.schedules.formats.torch_csv import MAX_BYTES

    table = torch_rows(read_text(Path(path), MAX_BYTES), TORCH_COMPUTE)
    return None if table is None else (table, with_instance(table.sample(), path, arguments))


def _json(path: str, arguments: argparse.Namespace) -> tuple[Table, Loaded] | None:
    from bubbleproof.cli.load import from_document
    from bubbleproof.schedules.formats import schedule_json
    from bubbleproof.schedules.formats.files import read_text
    from bubbleproof.schedules.formats.table_text import json_rows

    text = read_text(Path(path), schedule_json.MAX_BYTES)
    begin = text.find('"orders":[["') + len('"orders":')
    end = text.find("]]", begin) + 2
    if begin < len('"orders":') or end < 2 or _MARK in text:
        return None
    # the rest is read as ever, with one op in place of all: if it comes back, the rows were those of the schedule
    document = schedule_json.loads(f'{text[:begin]}[["{_MARK}"]]{text[end:]}', path)
    if str(document.schedule) != _MARK or document.starts is not None or document.record is not None:
        return None
    table = json_rows(text[begin:end])
    return None if table is None or not table.only_ops else (table, from_document(document, path, arguments))
