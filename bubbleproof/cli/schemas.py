"""JSON Schemas of the documents: ``python -m bubbleproof.cli.schemas docs/schemas`` writes them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from bubbleproof.schedules.formats.document import InstanceDocument
from bubbleproof.schedules.formats.files import write_atomic
from bubbleproof.schedules.formats.pattern_json import PatternDocument
from bubbleproof.schedules.formats.program_json import ProgramDocument
from bubbleproof.schedules.formats.schedule_json import ScheduleDocument
from bubbleproof.solver.front_file import ParetoDocument
from bubbleproof.solver.result import Record
from bubbleproof.verify.certificate import Certificate
from bubbleproof.verify.every import EveryCertificate
from bubbleproof.verify.report import Report

__all__ = ["schemas"]

_DOCUMENTS: dict[str, Any] = {
    "bubbleproof-instance-1": InstanceDocument,
    "bubbleproof-schedule-1": ScheduleDocument,
    "bubbleproof-pattern-1": PatternDocument,
    "bubbleproof-program-1": ProgramDocument,
    "bubbleproof-record-1": Record,
    "bubbleproof-pareto-1": ParetoDocument,
    "bubbleproof-report-1": Report,
    "bubbleproof-certificate-1": Certificate,
    "bubbleproof-every-certificate-1": EveryCertificate,
}

_FORMATS = {
    "InstanceDocument": "bubbleproof-instance/1",
    "ScheduleDocument": "bubbleproof-schedule/1",
    "PatternDocument": "bubbleproof-pattern/1",
    "ProgramDocument": "bubbleproof-program/1",
    "Record": "bubbleproof-record/1",
    "ParetoDocument": "bubbleproof-pareto/1",
    "Report": "bubbleproof-report/1",
}


def schemas() -> dict[str, str]:
    """The text of each schema, under the name of its file without ``.json``."""
    found = {}
    for name, kind in _DOCUMENTS.items():
        schema = msgspec.json.schema(kind)
        stem, _, version = name.rpartition("-")
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"{stem}/{version}", **schema}
        for document, format_name in _FORMATS.items():
            # typed as any text so that a wrong one gets a better message than "no such value"; the command line and the
            # schedule file put the format's name into the record
            if document in schema["$defs"]:
                schema["$defs"][document]["properties"]["format"] = {"const": format_name}
        found[name] = json.dumps(schema, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    return found


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/schemas")
    for name, text in schemas().items():
        write_atomic(folder / f"{name}.json", text)
