"""Broken files of every format: refused in one line that names the file, or judged; in bounded memory."""

import pytest

from benchmarks.fuzz import READERS, fuzz


@pytest.mark.parametrize("reader", [reader.name for reader in READERS])
def test_broken_files_are_refused_or_judged_in_bounded_memory(reader, tmp_path):
    outcome = fuzz(400, seed=len(reader), folder=tmp_path, only=reader, measure_every=10)
    assert outcome.failures == []
    assert outcome.measured == 40
    counts = {what: count for (_, what), count in outcome.counts.items()}
    assert counts["refused"] > 200
    assert sum(counts.values()) - counts["refused"] > 10  # some can still be read


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_the_files_that_fuzzing_starts_from_can_be_read(reader, tmp_path):
    path = tmp_path / "file"
    for data in reader.seeds:
        path.write_bytes(data)
        assert reader.read(path)


@pytest.mark.slow
def test_very_many_broken_files(tmp_path):
    assert fuzz(200_000, seed=1, folder=tmp_path).failures == []
