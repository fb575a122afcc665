"""Cut and flipped bytes anywhere in the files: the log always starts, and every loss is reported.

Every trial damages one file of a killed log, opens it, and reads everything that was acknowledged: each
message is unchanged, or reported as missing. Then the log continues, and new messages are safe.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from msgspec import Struct

from penstock.errors import StorageUnavailable
from penstock.storage.disk.commit.durable_mark import DurableMark
from penstock.storage.disk.recovery.opening import open_store
from penstock.storage.disk.recovery.survey import Survey, survey
from penstock.storage.disk.rocksdb.errors import DamagedData
from penstock.storage.disk.rocksdb.layout import FAMILIES, STATE
from penstock.storage.disk.rocksdb.store import Store
from tests.storage.disk.damage import DAMAGES
from tests.storage.disk.written_log import WrittenLog, payload, read_piece

PARTS = 10
TRIALS = {1: 4, 10: 100}
"""In each part, by scale."""
KINDS = ("*.sst", "*.sst", "*.log", "*.log", "MANIFEST-*", "CURRENT", "mark", "penstock.json", "*")


class Promise(Struct, frozen=True):
    """Where a log is, and what was acknowledged of it."""

    path: Path
    last: int
    state: dict[bytes, bytes]


@pytest.fixture(scope="module")
def promise(tmp_path_factory: pytest.TempPathFactory) -> Promise:
    """Batches and rows in tables, and both in the write-ahead log too."""
    path = tmp_path_factory.mktemp("damaged")
    log = WrittenLog(path / "live")
    for part in range(4):
        for _ in range(3):
            for _ in range(20):
                log.commit(5)
            log.seal()
        for _ in range(30):
            log.commit(5)
        if part < 3:
            log.settle()
    log.leave(path / "killed")
    return Promise(path / "killed", log.next_offset - 1, log.state)


def damage(path: Path, random: Random) -> str:
    """Do something to one file, and say what."""
    files = sorted(file for file in path.rglob(random.choice(KINDS)) if file.is_file())
    file, harm = random.choice(files), random.choice(DAMAGES)
    harm(file, random)
    return f"{harm.__name__} {file.name}"


def read(store: Store, found: Survey) -> tuple[dict[int, bytes], set[int]]:
    """What can be read, and which offsets a reader would be told are damaged."""
    messages: dict[int, bytes] = {}
    told = {offset for gap in found.damage for offset in range(gap.first, gap.last + 1)}
    for piece in found.index.after(0, len(found.index)):
        if payloads := read_piece(store, piece):
            messages |= payloads
        else:
            told.update(range(piece.first, piece.last + 1))
    return messages, told


def changed_state(store: Store, state: dict[bytes, bytes]) -> Iterator[bytes]:
    """Keys that can be read and have another value."""
    for key, value in state.items():
        try:
            if store.get(STATE, [key]) != [value]:
                yield key
        except DamagedData:
            pass


def commit(log: WrittenLog) -> None:
    """Commit, as a server does: if it is refused because of damage, open again."""
    try:
        log.commit(5)
    except StorageUnavailable:
        assert log.store.needs_reopen
        log.store.reopen()
        log.commit(5)


@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_happens_to_a_file_it_starts_and_says_what_is_lost(
    promise: Promise, tmp_path: Path, scale: int, part: int
) -> None:
    for seed in range(part, part + PARTS * TRIALS[scale], PARTS):
        random = Random(seed)
        path = tmp_path / str(seed)
        shutil.copytree(promise.path, path)
        what = f"seed {seed}: {damage(path, random)}"

        store, opening = open_store(path)
        found = survey(store, DurableMark.read(path))
        messages, told = read(store, found)
        assert all(data == payload(offset) for offset, data in messages.items()), what
        assert messages.keys() | told >= set(range(1, promise.last + 1)), what
        assert not messages.keys() & told, what
        if list(changed_state(store, promise.state)):
            assert opening.notes or found.is_state_behind, what
        assert found.epoch == 1, what
        store.close()

        log = WrittenLog(path, first=found.last_offset + 1, commit=found.last_commit, epoch=2)
        assert log.opening.notes == (), what  # what was mended stays mended
        for _ in range(2):
            commit(log)
        log.settle()
        for family in FAMILIES:
            log.store.compact(family, b"\xff")
        for _ in range(2):
            commit(log)
        found = survey(log.store, log.mark.value)
        later, still_told = read(log.store, found)
        new = set(range(log.next_offset - 20, log.next_offset))
        assert later.keys() >= new, what
        assert later.keys() >= messages.keys(), what
        assert all(data == payload(offset) for offset, data in later.items()), what
        assert still_told >= told - new, what
        log.close()
        shutil.rmtree(path)
