"""Repair of endless journal headers, at the price of one block."""

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from penstock.storage.disk.recovery.opening import open_store
from penstock.storage.disk.recovery.salvage import defuse_journals, find_endless_journal
from penstock.storage.disk.rocksdb.errors import SalvageMethod
from penstock.storage.disk.rocksdb.layout import DATABASE_FOLDER, ROWS
from tests.storage.disk.written_log import WrittenLog

BLOCK = 32 * 1024
KIND = 6  # where it is in a header
TRAPS = (5, 6, 7, 8, 11)
COMMITS = 150


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A data directory with a write-ahead log of several blocks, as a killed server leaves it."""
    written = WrittenLog(tmp_path / "live")
    for _ in range(COMMITS):
        written.commit(5)
    written.leave(tmp_path / "killed")
    assert journal_of(tmp_path / "killed").stat().st_size > 3 * BLOCK
    return tmp_path / "killed"


def journal_of(path: Path) -> Path:
    (journal,) = (file for file in (path / DATABASE_FOLDER).glob("*.log") if file.stat().st_size)
    return journal


def put(path: Path, place: int, value: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] = value
    path.write_bytes(data)


def second_header(path: Path) -> int:
    """Where the second record of a journal begins."""
    return 7 + int.from_bytes(path.read_bytes()[4:6], "little")


def count_rows(path: Path) -> int:
    """How many frames are there; a process that does not come back fails the test."""
    code = f"""
from pathlib import Path
from penstock.storage.disk.recovery.opening import open_store
store, _ = open_store(Path({str(path)!r}))
print(len(list(store.scan_keys({ROWS!r}))))
store.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=20
    )
    return int(done.stdout)


def test_what_a_killed_server_left_has_no_trap(killed: Path) -> None:
    journal = journal_of(killed)
    data = journal.read_bytes()
    assert find_endless_journal(journal.parent) is None
    for length in range(len(data) - 2_000, len(data), 37):
        journal.write_bytes(data[:length])
        assert find_endless_journal(journal.parent) is None
    journal.write_bytes(data + bytes(10_000))
    assert find_endless_journal(journal.parent) is None


def record(kind: int, payload: bytes) -> bytes:
    return bytes(4) + len(payload).to_bytes(2, "little") + bytes((kind,)) + payload


WHOLE_BLOCK = record(1, bytes(BLOCK - 7))


@pytest.mark.parametrize(
    "before", [b"", record(1, b"one"), WHOLE_BLOCK + record(4, b"one"), WHOLE_BLOCK * 70]
)
def test_a_trap_is_known_by_its_kind_wherever_it_is(tmp_path: Path, before: bytes) -> None:
    found = []
    for kind in range(256):
        (tmp_path / "1.log").write_bytes(before + record(kind, bytes(100)))
        if find_endless_journal(tmp_path):
            found.append(kind)
    assert found == list(TRAPS)


def test_what_looks_like_a_trap_inside_of_a_record_is_none(tmp_path: Path) -> None:
    (tmp_path / "1.log").write_bytes(record(1, bytes((5,)) * 1_000))
    assert find_endless_journal(tmp_path) is None


def test_nothing_is_looked_for_where_nothing_is(tmp_path: Path) -> None:
    assert find_endless_journal(tmp_path / "missing") is None
    defuse_journals(tmp_path)


def test_disarming_changes_nothing_but_the_kinds(killed: Path) -> None:
    journal = journal_of(killed)
    before = journal.read_bytes()
    for block in (0, 2):
        put(journal, block * BLOCK + KIND, 5)
    defuse_journals(journal.parent)
    assert find_endless_journal(journal.parent) is None
    changed = [
        place
        for place, pair in enumerate(zip(before, journal.read_bytes(), strict=True))
        if len(set(pair)) > 1
    ]
    assert set(changed) <= {KIND, 2 * BLOCK + KIND}


@pytest.mark.parametrize("name", ["*.log", "MANIFEST-*"])
def test_a_flipped_bit_does_not_keep_a_log_from_opening_and_costs_next_to_nothing(
    killed: Path, name: str
) -> None:
    (journal,) = (file for file in (killed / DATABASE_FOLDER).glob(name) if file.stat().st_size)
    place = second_header(journal) + KIND
    put(journal, place, journal.read_bytes()[place] ^ 4)
    assert find_endless_journal(journal.parent) == journal
    assert count_rows(killed) == COMMITS


def test_a_flipped_bit_that_is_no_trap_costs_no_more_than_a_block(killed: Path) -> None:
    journal = journal_of(killed)
    put(journal, second_header(journal) + KIND, 65)
    assert find_endless_journal(journal.parent) is None
    lost = COMMITS - count_rows(killed)
    assert 0 < lost < COMMITS // 3


@pytest.mark.parametrize("seed", range(3))
def test_missing_bytes_do_not_keep_a_log_from_opening(killed: Path, seed: int) -> None:
    dice, journal = Random(seed), journal_of(killed)
    data = journal.read_bytes()
    place = dice.randrange(len(data) // 2)
    data = data[:place] + data[place + dice.randrange(1, 100) :]
    journal.write_bytes(data)
    for block in range(place // BLOCK + 1, len(data) // BLOCK):
        put(journal, block * BLOCK + KIND, dice.choice(TRAPS))  # as is sure to happen in a longer one
    assert count_rows(killed) > 0


def test_the_damaged_journal_is_kept_as_it_is(killed: Path) -> None:
    journal = journal_of(killed)
    put(journal, second_header(journal) + KIND, 5)
    damaged = journal.read_bytes()
    store, opening = open_store(killed)
    store.close()
    assert opening.salvage is not None
    assert opening.salvage.method is SalvageMethod.SKIPPED
    assert (opening.salvage.aside / journal.name).read_bytes() == damaged


def test_a_damaged_journal_can_be_read_without_touching_it(killed: Path) -> None:
    journal = journal_of(killed)
    put(journal, second_header(journal) + KIND, 5)
    damaged = journal.read_bytes()
    store, _ = open_store(killed, read_only=True)
    assert len(list(store.scan_keys(ROWS))) == COMMITS
    store.close()
    assert journal.read_bytes() == damaged
