"""Read-only access beside a running server: commits are seen as a whole or not at all."""

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.storage.disk.recovery.opening import open_store
from penstock.storage.disk.recovery.read_only import Follower
from penstock.storage.disk.rocksdb.layout import INDEX, ROWS, STATE
from penstock.storage.disk.rocksdb.store import Changes, Store

FAMILIES_OF_A_COMMIT = (ROWS, STATE)


class Server:
    """Whoever writes: each commit has a key in two families."""

    def __init__(self, path: Path) -> None:
        self._store, _ = open_store(path)
        self._commits = 0

    @property
    def keys(self) -> list[bytes]:
        return [b"\0\0%d" % number for number in range(self._commits)]

    def commit(self) -> None:
        changes = Changes()
        for family in FAMILIES_OF_A_COMMIT:
            changes.put(family, b"\0\0%d" % self._commits, b"")
        self._store.write(changes, sync=True)
        self._commits += 1

    def move_on(self, family: str) -> None:
        """Commit, and change all files: a table is written, and the write-ahead log begins anew."""
        self.commit()
        self._store.flush(INDEX)
        self._store.flush(ROWS)
        self.commit()
        self._store.flush(family)

    def close(self) -> None:
        self._store.close()


def seen_by(reader: Store) -> list[list[bytes]]:
    return [[key for key, _ in reader.scan(family)] for family in FAMILIES_OF_A_COMMIT]


def interfere(monkeypatch: pytest.MonkeyPatch, *events: Callable[[], None]) -> None:
    """Let something happen each time that a reader has noted which files there are, before it reads them."""
    link, left = Follower._link, list(events)

    def note(follower: Follower) -> set[str]:
        noted = link(follower)
        if left:
            left.pop(0)()
        return noted

    monkeypatch.setattr(Follower, "_link", note)


@pytest.mark.parametrize("family", FAMILIES_OF_A_COMMIT)
@pytest.mark.parametrize("times", [1, 2])
def test_a_reader_sees_whole_commits_although_files_change_while_it_opens_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, times: int
) -> None:
    server = Server(tmp_path)
    server.commit()
    interfere(monkeypatch, *[lambda: server.move_on(family)] * times)
    reader, _ = open_store(tmp_path, read_only=True)
    assert seen_by(reader) == [server.keys] * 2
    reader.close()
    server.close()


@pytest.mark.parametrize("family", FAMILIES_OF_A_COMMIT)
def test_a_reader_sees_whole_commits_although_files_change_while_it_catches_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    server = Server(tmp_path)
    server.commit()
    reader, _ = open_store(tmp_path, read_only=True)
    server.move_on(family)
    interfere(monkeypatch, lambda: server.move_on(family))
    reader.catch_up()
    assert seen_by(reader) == [server.keys] * 2
    reader.close()
    server.close()


def test_a_reader_that_found_files_changing_all_the_time_is_right_once_they_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.storage.disk.recovery.read_only._TRIES", 2)
    server = Server(tmp_path)
    server.commit()
    interfere(monkeypatch, *[lambda: server.move_on(ROWS)] * 2)
    reader, _ = open_store(tmp_path, read_only=True)
    reader.catch_up()
    assert seen_by(reader) == [server.keys] * 2
    reader.close()
    server.close()
