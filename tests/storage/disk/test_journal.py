"""The chain of records in a write-ahead log, followed before RocksDB is."""

from pathlib import Path
from random import Random

import pytest

from penstock.storage.disk.journal import cut_broken, find_break, find_broken
from penstock.storage.disk.layout import DATABASE_FOLDER
from tests.storage.disk.written import WrittenLog


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A write-ahead log of several blocks, as a killed server leaves it."""
    written = WrittenLog(tmp_path / "data")
    for _ in range(150):
        written.commit(5)
    (file,) = (path for path in (tmp_path / "data" / DATABASE_FOLDER).glob("*.log") if path.stat().st_size)
    copy = tmp_path / "journal" / file.name
    copy.parent.mkdir()
    copy.write_bytes(file.read_bytes())
    written.store.close()
    written.mark.close()
    assert copy.stat().st_size > 3 * 32 * 1024
    return copy


def test_a_sound_one_hangs_together_and_so_does_one_with_an_unfinished_end(journal: Path) -> None:
    data = journal.read_bytes()
    assert find_break(data) is None
    assert find_break(data + bytes(10_000)) is None
    for length in range(len(data) - 2_000, len(data), 37):
        assert find_break(data[:length]) is None


@pytest.mark.parametrize("seed", range(10))
def test_missing_and_added_bytes_are_found_and_cut_off(journal: Path, seed: int) -> None:
    dice, data = Random(seed), journal.read_bytes()
    place = dice.randrange(len(data) // 2)
    count = dice.randrange(1, 100)
    if seed % 2:
        journal.write_bytes(data[:place] + dice.randbytes(count) + data[place:])
    else:
        journal.write_bytes(data[:place] + data[place + count :])
    found = find_broken(journal.parent)
    assert found.keys() == {journal}
    cut_broken(journal.parent)
    assert find_broken(journal.parent) == {}
    assert data.startswith(journal.read_bytes()[: place // 2])
    assert journal.stat().st_size == found[journal]
