"""Names of sealed topics, page by page."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.storage.disk.read.reader import KEYS_LOOKED_AT, topics_after
from penstock.storage.disk.recovery.opening import open_store
from penstock.storage.disk.rocksdb.errors import DamagedData
from penstock.storage.disk.rocksdb.layout import SEQUENCES, pack_place, sequence_key
from penstock.storage.disk.rocksdb.store import Changes, Store

PAST = {"a": 1, "a/": 2, "a/b": KEYS_LOOKED_AT - 1, "a\x01": KEYS_LOOKED_AT, "b": 50, "ü": 3, "🐟": 1}
"""How many batches have messages of a topic; each has ten of them."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store, _ = open_store(tmp_path)
    changes = Changes()
    for topic, batches in PAST.items():
        for number in range(batches):
            first = 10 * number + 1
            changes.put(SEQUENCES, sequence_key(topic, first), pack_place(first, first + 9))
    store.write(changes, sync=False)
    yield store
    store.close()


def whole(page: tuple[list[tuple[str, int]], bool]) -> list[tuple[str, int]]:
    """The names of a page, of which nothing was left out."""
    names, is_whole = page
    assert is_whole
    return names


def test_each_topic_comes_once_with_its_last_sequence_however_many_batches_it_is_in(store: Store) -> None:
    assert whole(topics_after(store, "", 100)) == sorted(
        (topic, 10 * batches) for topic, batches in PAST.items()
    )


@pytest.mark.parametrize("limit", [1, 2, 3, len(PAST)])
def test_pages_meet(store: Store, limit: int) -> None:
    found: list[tuple[str, int]] = []
    while page := whole(topics_after(store, found[-1][0] if found else "", limit)):
        assert len(page) <= limit
        found += page
    assert found == whole(topics_after(store, "", 100))


def test_a_name_need_not_be_there_to_begin_after_it(store: Store) -> None:
    assert [topic for topic, _ in whole(topics_after(store, "a/a", 2))] == ["a/b", "b"]


def test_what_cannot_be_read_is_left_out(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = store.scan

    def stumble(family: str, start: bytes = b"", stop: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        for key, value in scan(family, start, stop):
            if key.startswith(b"b\0"):
                raise DamagedData(family, key, "checksum")
            yield key, value

    monkeypatch.setattr(store, "scan", stumble)
    monkeypatch.setattr(store, "readable_after", lambda family, key: b"c")
    found, is_whole = topics_after(store, "a/b", 9)
    assert ([topic for topic, _ in found], is_whole) == (["ü", "🐟"], False)
