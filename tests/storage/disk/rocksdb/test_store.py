"""Store: thread-safe, distinguishes damage from absence, recovers from errors."""

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from penstock.errors import StorageUnavailable
from penstock.storage.disk.recovery.opening import open_store
from penstock.storage.disk.rocksdb.errors import DamagedData, SalvageMethod, StorageFull
from penstock.storage.disk.rocksdb.layout import LOG, ROWS, SEQUENCES, STATE, offset_key
from penstock.storage.disk.rocksdb.store import Changes, Store
from tests.storage.disk.damage import flip_byte, table_of


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store, _ = open_store(tmp_path / "data")
    yield store
    store.close()


def put(store: Store, family: str, *entries: tuple[bytes, bytes], sync: bool = True) -> None:
    changes = Changes()
    for key, value in entries:
        changes.put(family, key, value)
    store.write(changes, sync=sync)


def fill(store: Store, count: int, size: int = 100) -> list[tuple[bytes, bytes]]:
    """Entries with rising keys, in tables."""
    entries = [(offset_key(number), b"%d " % number * (size // 4)) for number in range(1, count + 1)]
    for start in range(0, count, 100):
        put(store, ROWS, *entries[start : start + 100], sync=False)
    store.reopen()
    return entries


def damage(store: Store, value: bytes, family: str = ROWS) -> None:
    """Flip a byte of a value in its table."""
    table = table_of(store.path, family)
    flip_byte(table, table.read_bytes().index(value) + 1)
    store.reopen()  # nothing of it is in memory any more


# Reading and writing


def test_changes_are_made_in_their_order(store: Store) -> None:
    changes = Changes()
    changes.put(ROWS, b"a", b"1")
    changes.put(ROWS, b"b", b"1")
    changes.put(STATE, b"s", b"1")
    changes.delete_range(ROWS, b"a", b"c")
    changes.put(ROWS, b"b", b"2")
    changes.delete(STATE, b"s")
    store.write(changes, sync=True)
    assert list(store.scan(ROWS)) == [(b"b", b"2")]
    assert list(store.scan(STATE)) == []


def test_values_come_in_the_order_of_their_keys(store: Store) -> None:
    put(store, ROWS, (b"a", b"1"), (b"b", b"2"))
    assert store.get(ROWS, [b"b", b"x", b"a", b"b"]) == [b"2", None, b"1", b"2"]
    assert store.get(ROWS, []) == []
    assert store.get(LOG, [b"a"]) == [None]


def test_a_scan_has_the_first_key_and_not_the_last(store: Store) -> None:
    put(store, ROWS, *((key, key) for key in (b"a", b"b", b"c", b"d")))
    assert [key for key, _ in store.scan(ROWS, b"b", b"d")] == [b"b", b"c"]
    assert list(store.scan_keys(ROWS, b"b", b"d")) == [b"b", b"c"]
    assert list(store.scan_keys(ROWS, b"bb")) == [b"c", b"d"]
    assert list(store.scan_keys(ROWS)) == [b"a", b"b", b"c", b"d"]


def test_a_scan_is_complete_however_long_it_is(store: Store) -> None:
    entries = fill(store, 2_500)
    assert list(store.scan(ROWS)) == entries
    assert list(store.scan_keys(ROWS)) == [key for key, _ in entries]


def test_a_scan_is_complete_however_large_its_values_are(store: Store) -> None:
    entries = [(offset_key(number), bytes([number]) * 700_000) for number in range(1, 8)]
    put(store, LOG, *entries)
    assert list(store.scan(LOG)) == entries


def test_a_suspended_scan_does_not_block_reopening(store: Store) -> None:
    entries = fill(store, 2_500)
    scan = store.scan(ROWS)
    begun = [next(scan)]
    store.reopen()
    assert begun + list(scan) == entries


def test_the_last_key_up_to_another_is_found(store: Store) -> None:
    put(store, ROWS, (b"b", b"1"), (b"d", b"2"))
    assert store.last_before(ROWS, b"c") == (b"b", b"1")
    assert store.last_before(ROWS, b"d") == (b"d", b"2")
    assert store.last_before(ROWS, b"z") == (b"d", b"2")
    assert store.last_before(ROWS, b"a") is None
    assert store.last_before(LOG, b"z") is None


def test_what_was_deleted_gives_its_space_back(store: Store) -> None:
    fill(store, 5_000, 1_000)

    def stored_bytes() -> int:
        return sum(path.stat().st_size for path in store.path.rglob("*.sst"))

    before = stored_bytes()
    changes = Changes()
    changes.delete_range(ROWS, offset_key(0), offset_key(4_500))
    store.write(changes, sync=True)
    store.compact(ROWS, offset_key(4_500))
    assert stored_bytes() < before / 2
    assert len(list(store.scan_keys(ROWS))) == 501


def test_a_mistake_of_the_caller_does_no_harm(store: Store) -> None:
    changes = Changes()
    changes.put(ROWS, b"a", b"1")
    changes.put(ROWS, bytearray(b"b"), b"2")  # type: ignore[arg-type]
    with pytest.raises(KeyError):
        store.write(changes, sync=True)
    assert not store.needs_reopen
    put(store, ROWS, (b"c", b"3"))
    assert list(store.scan(ROWS)) == [(b"c", b"3")]


def test_a_closed_store_says_so(store: Store) -> None:
    store.close()
    store.close()
    with pytest.raises(StorageUnavailable):
        store.get(ROWS, [b"a"])
    with pytest.raises(StorageUnavailable):
        put(store, ROWS, (b"a", b"1"))
    store.reopen()
    with pytest.raises(StorageUnavailable):
        list(store.scan(ROWS))


# Threads


def in_threads(*works: Callable[[], None]) -> list[BaseException]:
    """Run each in a thread of its own until all have ended; what they raised."""
    errors: list[BaseException] = []

    def guard(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [Thread(target=guard, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_readers_and_writers_wait_while_it_is_opened_again(store: Store) -> None:
    entries = fill(store, 300)
    keys = [key for key, _ in entries]
    done = Event()

    def read() -> None:
        while not done.is_set():
            assert store.get(ROWS, keys) == [value for _, value in entries]
            assert list(store.scan(ROWS, stop=offset_key(301))) == entries
            assert store.last_before(ROWS, offset_key(300)) == entries[-1]

    def write() -> None:
        for number in range(301, 400):
            put(store, ROWS, (offset_key(number), b"new"))

    def reopen() -> None:
        try:
            for _ in range(10):
                store.reopen()
        finally:
            done.set()

    assert in_threads(read, read, write, reopen) == []
    assert len(list(store.scan_keys(ROWS))) == 399


def test_it_can_be_closed_while_others_read(store: Store) -> None:
    entries = fill(store, 300)
    begun = Event()

    def read() -> None:
        while True:
            try:
                assert store.get(ROWS, [key for key, _ in entries])
            except StorageUnavailable:
                return
            begun.set()

    def close() -> None:
        begun.wait()
        store.close()

    assert in_threads(read, read, close) == []


# Damage


def test_a_damaged_value_is_reported_and_the_others_are_found(store: Store) -> None:
    entries = fill(store, 500)
    damage(store, entries[250][1])
    keys = [key for key, _ in entries]
    with pytest.raises(DamagedData) as raised:
        store.get(ROWS, keys)
    found = raised.value.found
    assert raised.value.family == ROWS
    assert raised.value.key in keys[200:251]
    assert entries[250][0] not in found
    assert 400 < len(found) < 500
    assert found.items() <= dict(entries).items()
    assert store.get(ROWS, keys[:100]) == [value for _, value in entries[:100]]


def test_a_scan_stops_at_damage_and_can_resume_after_it(store: Store) -> None:
    entries = fill(store, 500)
    damage(store, entries[250][1])
    before: list[tuple[bytes, bytes]] = []
    with pytest.raises(DamagedData) as raised:
        before.extend(store.scan(ROWS))
    assert before == entries[: len(before)]
    assert before[-1][0] < raised.value.key <= entries[250][0]
    place = store.readable_after(ROWS, raised.value.key)
    assert place is not None
    after = list(store.scan(ROWS, place))
    assert after == entries[-len(after) :]
    assert 400 < len(before) + len(after) < 500


def test_a_scan_around_damage_has_the_rest(store: Store) -> None:
    entries = fill(store, 2_000)
    for number in (300, 1_500):
        damage(store, entries[number][1])
    places: list[tuple[bytes, bytes | None]] = []
    found = list(store.scan_readable(ROWS, on_damage=lambda error, place: places.append((error.key, place))))
    assert set(found) <= set(entries)
    assert 1_800 < len(found) < 2_000
    assert found == sorted(found)
    assert [
        start < entries[number][0] < (stop or b"")
        for (start, stop), number in zip(places, (300, 1_500), strict=True)
    ] == [True, True]


def test_after_damage_at_the_end_there_is_nothing_to_resume_with(store: Store) -> None:
    entries = fill(store, 500)
    damage(store, entries[-1][1])
    places: list[bytes | None] = []
    found = list(store.scan_readable(ROWS, on_damage=lambda _, place: places.append(place)))
    assert found == entries[: len(found)]
    assert 400 < len(found) < 500
    assert len(places) == 1


def test_a_database_that_compaction_found_damaged_is_replaced_by_what_can_be_read(store: Store) -> None:
    entries = fill(store, 500)
    put(store, STATE, (b"s", b"1"))
    damage(store, entries[250][1])
    put(store, ROWS, (offset_key(251), b"new"))
    store.compact(ROWS, offset_key(600))
    assert store.needs_reopen
    with pytest.raises(StorageUnavailable, match="must be reopened before the next write"):
        put(store, ROWS, (offset_key(700), b"refused"))
    assert store.get(ROWS, [entries[0][0]]) == [entries[0][1]]
    store.reopen()
    assert not store.needs_reopen
    assert store.salvage is not None
    assert store.salvage.method is SalvageMethod.COPIED
    assert (store.salvage.aside / "CURRENT").exists()
    left = list(store.scan(ROWS))
    assert 400 < len(left) < 500
    assert set(left) <= set(entries)
    assert store.get(STATE, [b"s"]) == [b"1"]
    put(store, ROWS, (offset_key(700), b"accepted"))
    store.compact(ROWS, offset_key(800))
    put(store, ROWS, (offset_key(701), b"accepted"))


def test_without_room_for_a_copy_a_damaged_database_is_used_as_it_is(small_disk: Path) -> None:
    store, _ = open_store(small_disk / "data")
    entries = fill(store, 250, 10_000)
    store.compact(ROWS, offset_key(600))
    store.reopen()  # now there are no tables that are about to go
    damage(store, entries[100][1])
    put(store, ROWS, (offset_key(101), b"new"))
    store.compact(ROWS, offset_key(600))
    assert store.needs_reopen
    (small_disk / "ballast").write_bytes(bytes(store.free_bytes() - 1_500_000))
    store.reopen()
    assert store.salvage is None
    put(store, ROWS, (offset_key(700), b"accepted"))
    assert store.get(ROWS, [offset_key(1), offset_key(700)]) == [entries[0][1], b"accepted"]
    with pytest.raises(DamagedData):
        list(store.scan(ROWS))
    store.close()


# Disks that fail or are full


@contextmanager
def no_file_longer_than(limit_bytes: int) -> Iterator[None]:
    """Let every write fail that would make a file longer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_after_a_failed_write_nothing_is_written_until_it_is_opened_again(store: Store) -> None:
    put(store, ROWS, (b"a", b"1"))
    with no_file_longer_than(100_000):
        with pytest.raises(StorageUnavailable) as failure:
            put(store, ROWS, (b"b", bytes(200_000)))
        assert store.needs_reopen
    with pytest.raises(StorageUnavailable, match="must be reopened"):
        put(store, ROWS, (b"c", b"3"))
    assert store.get(ROWS, [b"a", b"c"]) == [b"1", None]
    store.reopen()
    assert failure.value is not None  # an error that is kept must not keep the database open
    put(store, ROWS, (b"d", b"4"))
    assert store.get(ROWS, [b"a", b"c", b"d"]) == [b"1", None, b"4"]


def test_it_is_not_open_while_opening_again_fails_and_works_when_that_does(store: Store) -> None:
    put(store, ROWS, (b"a", b"1"))
    with no_file_longer_than(10):
        with pytest.raises(StorageUnavailable):
            store.reopen()
        with pytest.raises(StorageUnavailable):
            store.get(ROWS, [b"a"])
    store.reopen()
    assert store.get(ROWS, [b"a"]) == [b"1"]


def test_a_disk_that_gets_full_is_noticed_before_rocksdb_notices(small_disk: Path) -> None:
    store, _ = open_store(small_disk / "data")
    assert store.free_bytes() < 8 << 20
    number = 0
    with pytest.raises(StorageFull):
        while True:
            store.check_space()
            number += 1
            put(store, ROWS, (offset_key(number), bytes(10_000)))
    assert number > 300  # most of the disk was of use
    assert not store.needs_reopen
    assert store.free_bytes() > 200_000
    changes = Changes()
    changes.delete_range(ROWS, offset_key(0), offset_key(number))
    store.write(changes, sync=True)
    store.compact(ROWS, offset_key(number))
    for _ in range(50):
        store.check_space()
        number += 1
        put(store, ROWS, (offset_key(number), bytes(10_000)))
    assert len(list(store.scan_keys(ROWS))) == 51
    store.close()


def test_a_disk_filled_by_others_refuses_until_there_is_room_and_loses_nothing(small_disk: Path) -> None:
    store, _ = open_store(small_disk / "data")
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(store.free_bytes() - 300_000))
    accepted = []
    with pytest.raises(StorageFull):
        store.check_space()
    with pytest.raises(StorageFull):
        for number in range(1, 1_000):
            put(store, ROWS, (offset_key(number), bytes(10_000)))
            accepted.append(offset_key(number))
    assert accepted
    assert store.needs_reopen
    with pytest.raises(StorageFull):
        store.reopen()
    assert list(store.scan_keys(ROWS))[: len(accepted)] == accepted  # it can be read meanwhile
    ballast.unlink()
    store.reopen()
    assert list(store.scan_keys(ROWS))[: len(accepted)] == accepted
    put(store, ROWS, (offset_key(2_000), b"again"))
    store.close()


def test_what_has_to_stay_free_grows_with_the_write_ahead_log(store: Store) -> None:
    before = store.reserve_bytes
    put(store, ROWS, (b"a", bytes(6 << 20)))
    assert store.reserve_bytes >= before + (6 << 20)
    store.reopen()
    assert store.reserve_bytes < before + (1 << 20)


def test_the_last_value_of_each_prefix_is_found_among_few_keys_and_among_many(store: Store) -> None:
    counts = {b"a\0": 1, b"a/b\0": 3, b"b\0": 40, b"d\0": 8, b"e\0": 2, b"f\0": 9}
    entries = [
        (prefix + offset_key(number), b"%d" % number)
        for prefix, count in counts.items()
        for number in range(1, count + 1)
    ]
    entries += [(b"c%03d\0" % number + offset_key(1), b"other") for number in range(50)]
    put(store, SEQUENCES, *entries)
    asked = sorted([*counts, b"\1\0", b"bb\0", b"zz\0"])
    expected = {prefix: b"%d" % count for prefix, count in counts.items()}
    assert store.last_values(SEQUENCES, asked) == expected
    for prefix in asked:
        value = expected.get(prefix)
        assert store.last_values(SEQUENCES, [prefix]) == ({} if value is None else {prefix: value})
    assert store.last_values(SEQUENCES, []) == {}


def test_last_values_in_a_damaged_table_raise(store: Store) -> None:
    entries = [(b"a\0" + offset_key(number), b"value %d " % number * 20) for number in range(1, 50)]
    put(store, SEQUENCES, *entries)
    store.reopen()
    damage(store, entries[-1][1], SEQUENCES)
    with pytest.raises(DamagedData):
        store.last_values(SEQUENCES, [b"a\0"])
