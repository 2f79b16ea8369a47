"""Files are read whole or refused in one line, and written whole or not at all."""

import os
import stat
import tracemalloc
from pathlib import Path

import pytest

from bubbleproof.schedules.errors import FormatError
from bubbleproof.schedules.formats import files
from bubbleproof.schedules.formats.files import read_text, write_atomic


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.mkdir(), "is a directory, not a file"),
        (lambda path: path.write_bytes(b""), "the file is empty"),
        (lambda path: path.write_bytes(b" \n\t\n"), "the file is empty"),
        (lambda path: path.write_bytes(b"a\nb\xff\n"), "line 2: not UTF-8 text (byte 0xff at offset 3)"),
        (lambda path: path.write_bytes(b"x" * 2_000_000), "larger than the limit of 1 MiB"),
    ],
    ids=["missing", "directory", "empty", "blank", "not-utf-8", "too-large"],
)
def test_an_unreadable_file_is_refused_with_its_name_and_the_reason(tmp_path, make, message):
    path = tmp_path / "file"
    make(path)
    with pytest.raises(FormatError) as caught:
        read_text(path, files.MIB)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


def test_a_file_exactly_at_the_limit_is_read(tmp_path):
    path = tmp_path / "file"
    path.write_text("x" * 100)
    assert read_text(path, 100) == "x" * 100


def test_reading_a_small_file_takes_little_memory_whatever_the_limit(tmp_path):
    path = tmp_path / "file"
    path.write_text("x" * 100)
    tracemalloc.start()
    try:
        read_text(path, 1 << 40)
        assert tracemalloc.get_traced_memory()[1] < files.MIB
    finally:
        tracemalloc.stop()


def test_a_file_of_many_portions_is_read_whole(tmp_path):
    path = tmp_path / "file"
    text = "".join(map(str, range(200_000)))
    path.write_text(text)
    assert read_text(path, 2 * files.MIB) == text
    with pytest.raises(FormatError, match="larger than the limit of 1 MiB"):
        read_text(path, len(text) - 1)


def test_a_name_with_a_zero_byte_is_an_error_of_the_user_when_read_and_when_written():
    with pytest.raises(FormatError, match="null"):
        read_text(Path("a\0b"), 10)
    with pytest.raises(FormatError, match="null"):
        write_atomic(Path("a\0b"), "x")


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "out.json"
    path.write_text("old")

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(FormatError, match="cannot write: No space left on device"):
        write_atomic(path, "new" * 1000)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.json"]


def test_a_write_that_is_interrupted_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "out.json"
    path.write_text("old")

    def interrupted(source, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.json"]


def test_the_new_content_never_passes_through_the_name_in_parts(tmp_path, monkeypatch):
    """At the moment of the replacement the temporary file is complete and the old content still has the name."""
    path = tmp_path / "out.json"
    path.write_text("old")
    seen = []
    real = os.replace

    def spy(source, target):
        seen.append((Path(source).read_text(), path.read_text(), Path(source).parent))
        real(source, target)

    monkeypatch.setattr(files.os, "replace", spy)
    write_atomic(path, "new")
    assert seen == [("new", "old", tmp_path)]
    assert path.read_text() == "new"


def test_permissions_are_kept_and_a_symbolic_link_stays_a_link(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    write_atomic(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_a_new_file_has_the_permissions_that_the_mask_allows(tmp_path):
    old = os.umask(0o027)
    try:
        write_atomic(tmp_path / "new", "x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_a_device_is_written_to_and_not_replaced():
    write_atomic(Path("/dev/null"), "x")
    assert Path("/dev/null").is_char_device()


def test_a_missing_directory_is_refused(tmp_path):
    with pytest.raises(FormatError, match="cannot write: no such file"):
        write_atomic(tmp_path / "no" / "out.json", "x")
