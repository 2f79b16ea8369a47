"""Reading and writing text files: one clear line for every way in which a file can be unreadable, and no half files."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from stat import S_ISDIR
from typing import BinaryIO

from bubbleproof.schedules.errors import FormatError

__all__ = ["MIB", "check_writable", "need_file", "read_text", "write_atomic"]

MIB = 1 << 20


def read_text(path: Path, limit: int) -> str:
    """Read a text file.

    Parameters
    ----------
    limit
        The largest size accepted, in bytes.

    Raises
    ------
    FormatError
        The file is missing, a directory, not readable, empty, larger than `limit`, or not UTF-8.
    """
    try:
        with path.open("rb") as file:
            data = _read(file, limit)
    except ValueError as error:  # a NUL in the name
        raise FormatError(f"{str(path)!r}: {error}") from error
    except OSError as error:
        raise FormatError(f"{path}: {_reason(error)}") from error
    if len(data) > limit:
        raise FormatError(f"{path}: larger than the limit of {limit // MIB} MiB for this kind of file")
    if not data.strip():
        raise FormatError(f"{path}: the file is empty")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = data[error.start]
        raise FormatError(f"{path}: line {line}: not UTF-8 text (byte 0x{byte:02x} at offset {error.start})") from error


def _read(file: BinaryIO, limit: int) -> bytes:
    """All of a file, and a byte more than `limit` of one that is larger, also of a pipe without a size.

    In portions, because Python sets memory aside for as many bytes as are asked for, however small the file is.
    """
    portions = []
    left = limit + 1
    while left and (portion := file.read(min(left, MIB // 4))):
        portions.append(portion)
        left -= len(portion)
    return b"".join(portions)


def need_file(path: Path) -> None:
    """Refuse a path at which there is nothing, or a directory, before anything else is said about it.

    Raises
    ------
    FormatError
        It is one.
    """
    try:
        directory = S_ISDIR(path.stat().st_mode)
    except (OSError, ValueError) as error:
        reason = _reason(error) if isinstance(error, OSError) else str(error)
        raise FormatError(f"{path}: {reason}") from error
    if directory:
        raise FormatError(f"{path}: {_reason(IsADirectoryError())}")


def _reason(error: OSError) -> str:
    return {
        "FileNotFoundError": "no such file",
        "IsADirectoryError": "is a directory, not a file",
        "PermissionError": "permission denied",
        "NotADirectoryError": "no such file: a part of the path is not a directory",
    }.get(type(error).__name__, error.strerror or str(error))


def write_atomic(path: Path, text: str) -> None:
    """Write a text file so that at every moment either the old or the whole new content is there.

    The text goes to a temporary file in the same directory, is flushed to the disk, and takes the name in one step.
    Anything that already exists and is no regular file (a pipe, /dev/stdout) is written to directly.

    Raises
    ------
    FormatError
        The directory is missing or not writable, or the disk is full. An old file is then untouched.
    """
    try:
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")
            return
        _replace(path, text)
    except OSError as error:
        raise FormatError(f"{path}: cannot write: {_reason(error)}") from error
    except ValueError as error:
        raise FormatError(f"{str(path)!r}: {error}") from error


def check_writable(path: Path) -> None:
    """Find out beforehand whether `write_atomic` could write a file, by creating a temporary one next to it.

    Raises
    ------
    FormatError
        It is a directory, or its directory is missing or not writable.
    """
    try:
        if path.is_dir():
            raise IsADirectoryError
        if path.exists() and not path.is_file():
            return
        parent = Path(os.path.realpath(path)).parent
        if not parent.is_dir():
            raise FormatError(f"{path}: cannot write: there is no directory {parent}")
        import tempfile

        with tempfile.TemporaryFile(dir=parent):
            pass
    except OSError as error:
        raise FormatError(f"{path}: cannot write: {_reason(error)}") from error
    except ValueError as error:
        raise FormatError(f"{str(path)!r}: {error}") from error


def _replace(path: Path, text: str) -> None:
    import tempfile  # with what it loads in turn, too much for those who only read

    target = Path(os.path.realpath(path))  # through a symbolic link: the link stays, its target is replaced
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}.", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, _mode(target))
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _mode(target: Path) -> int:
    """Permissions of the file that is replaced; for a new file what the user's mask allows."""
    try:
        return target.stat().st_mode & 0o777
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
