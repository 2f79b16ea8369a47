"""Instances as TOML files, written by hand."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.formats.document import InstanceDocument, convert, instance_document, instance_of
from bubbleproof.schedules.formats.files import MIB, read_text
from bubbleproof.schedules.instance import Instance

__all__ = ["MAX_BYTES", "dumps", "load", "loads"]

MAX_BYTES = 16 * MIB
"""Largest instance file that is read; a list of a million costs fits."""


# Python's reader takes memory by the square of the parts of a key. The lookbehind and the possessive repetition let a
# search start once for each word only.
_PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
_LONG_KEY = re.compile(rf"(?<![\w-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{50}}")


def load(path: Path) -> Instance:
    """Read an instance file.

    Raises
    ------
    FormatError, InstanceError
        One line that names the file, the key, the value and the limit.
    """
    return loads(read_text(path, MAX_BYTES), str(path))


def loads(text: str, where: str = "instance") -> Instance:
    """Read an instance from TOML text; `where` begins every error message."""
    if text.startswith("\ufeff"):
        raise FormatError(f"{where}: line 1: the file begins with a byte order mark; save it as UTF-8 without one")
    if long := _LONG_KEY.search(text):
        line = text.count("\n", 0, long.start()) + 1
        raise FormatError(f"{where}: line {line}: a key of more than 50 parts; the keys of an instance have two")
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FormatError(f"{where}: not TOML: {error}") from error
    except RecursionError:
        raise FormatError(f"{where}: not TOML that can be read: nested too deeply") from None
    except ValueError as error:  # an integer with thousands of digits
        raise FormatError(f"{where}: not TOML that can be read: {error}") from error
    if "format" not in raw:
        raise FormatError(
            f'{where}: the key format is missing; an instance begins with format = "bubbleproof-instance/1"'
        )
    return instance_of(convert(raw, InstanceDocument, where), where)


def dumps(instance: Instance) -> str:
    """An instance as TOML text; `loads` gives an equal instance back."""
    import msgspec

    raw: dict[str, Any] = msgspec.to_builtins(instance_document(instance))
    top = ("format", "name", "microbatches", "objective", "units")
    lines = [f"{key} = {_value(raw[key])}" for key in top if key in raw]
    for table in ("placement", "cost", "memory"):
        entries = raw.get(table, {})
        if entries:
            lines += ["", f"[{table}]", *(f"{key} = {_value(value)}" for key, value in entries.items())]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        inner = ", ".join(f"{json.dumps(key) if '-' in key else key} = {_value(entry)}" for key, entry in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    # a JSON string of printable characters is a TOML basic string
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
