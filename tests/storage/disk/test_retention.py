"""What is too old or too much leaves the log, oldest first; what is held, owed or the newest stays."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from random import Random
from threading import Lock, Thread

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from penstock.core.settings import LogSettings
from penstock.errors import StorageUnavailable
from penstock.storage.disk.frames import (
    Extent,
    Summary,
    encode_extents,
    encode_summary,
)
from penstock.storage.disk.index import Piece
from penstock.storage.disk.layout import (
    INDEX,
    LOG,
    ROWS,
    SEQUENCES,
    TOPICS,
    offset_key,
    pack_place,
    sequence_key,
    unpack_place,
)
from penstock.storage.disk.opening import open_store
from penstock.storage.disk.retention import Retention, Trimmed, Why, choose
from penstock.storage.disk.sealing import Sealer
from penstock.storage.disk.store import Changes, DamagedData, Store
from penstock.storage.disk.survey import survey
from tests.storage.disk.shelf import HOUR_US, NOW_US, SIZE, Shelf, bytes_for


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store, _ = open_store(tmp_path_factory.mktemp("retention") / "data")
    with closing(store):
        yield store


@pytest.fixture
def shelf(store: Store) -> Shelf:
    shelf = Shelf(store)
    shelf.empty()
    return shelf


# What leaves


def test_without_limits_nothing_leaves(shelf: Shelf) -> None:
    for _ in range(3):
        shelf.batch("aa", began_at=0)
    assert shelf.trim() is None
    assert shelf.kept() == [1, 3, 5]


def test_within_its_limits_nothing_leaves(shelf: Shelf) -> None:
    for hours in (3, 2, 1):
        shelf.batch("aa", began_at=NOW_US - hours * HOUR_US)
    shelf.retain(LogSettings(retention_s=3 * 3600, retention_bytes=3 * SIZE))
    assert shelf.trim() is None
    assert shelf.kept() == [1, 3, 5]


def test_what_is_too_old_leaves_in_whole_pieces(shelf: Shelf) -> None:
    for hours in (5, 4, 3, 2, 1):
        shelf.batch("aaa", began_at=NOW_US - hours * HOUR_US)
    shelf.retain(LogSettings(retention_s=2.5 * 3600, retention_bytes=0))
    trimmed = shelf.trim()
    assert trimmed == Trimmed(
        1, 6, 6, 2 * SIZE, {Why.AGE: 6}
    )  # what the third has may be half an hour too young
    assert shelf.kept() == [7, 10, 13]
    assert shelf.index.first_offset == 7
    assert shelf.trim() is None


def test_what_is_too_much_leaves(shelf: Shelf) -> None:
    for _ in range(5):
        shelf.batch("aa")
    shelf.retain(bytes_for(3))
    assert shelf.trim() == Trimmed(1, 4, 4, 2 * SIZE, {Why.BYTES: 4})
    assert shelf.kept() == [5, 7, 9]
    assert shelf.index.bytes == 3 * SIZE


def test_the_log_tells_why_each_message_left(shelf: Shelf) -> None:
    shelf.batch("a", began_at=NOW_US - 9 * HOUR_US)
    shelf.batch("aa", began_at=NOW_US - 8 * HOUR_US)
    shelf.batch("aaa")
    shelf.batch("aaaa")
    shelf.batch("aaaaa")
    shelf.retain(LogSettings(retention_s=7 * 3600, retention_bytes=SIZE, owed_bytes=0))
    trimmed = shelf.trim(owed_from=8)
    assert trimmed is not None
    assert trimmed.why == {Why.AGE: 1, Why.BYTES: 5, Why.OWED_LIMIT: 4}
    assert trimmed.messages == trimmed.offsets == 10


def test_offsets_without_messages_leave_too(shelf: Shelf) -> None:
    shelf.index.add(Piece(1, 50, 3, SIZE, NOW_US, is_sealed=False))
    shelf.frame("a")
    shelf.retain(bytes_for(1))
    trimmed = shelf.trim()
    assert trimmed is not None
    assert (trimmed.offsets, trimmed.messages) == (50, 3)


@pytest.mark.parametrize("limits", [LogSettings(retention_s=1), LogSettings(retention_bytes=1)])
def test_the_newest_piece_stays_whatever_the_limits_say(shelf: Shelf, limits: LogSettings) -> None:
    shelf.batch("aa", began_at=0)
    shelf.frame("aa", began_at=0)
    shelf.retain(limits)
    assert shelf.trim() is not None
    assert shelf.trim() is None
    assert shelf.kept() == shelf.offsets(ROWS) == [3]
    assert shelf.index.last_offset == 4


def test_any_number_of_pieces_leaves_at_once(shelf: Shelf) -> None:
    for offset in range(1, 3_001):
        shelf.index.add(Piece(offset, offset, 1, SIZE, 0, is_sealed=False))
    shelf.retain(bytes_for(1))
    assert shelf.trim() == Trimmed(1, 2_999, 2_999, 2_999 * SIZE, {Why.BYTES: 2_999})
    assert shelf.kept() == [3_000]


def test_what_left_can_be_told_in_one_line() -> None:
    trimmed = Trimmed(3, 9, 6, 2_000, {Why.AGE: 4, Why.OWED_LIMIT: 2})
    assert trimmed.facts() == {
        "first": 3,
        "last": 9,
        "messages": 6,
        "bytes": 2_000,
        "why": "4 by age, 2 by owed-limit",
    }


def test_an_empty_log_has_nothing_to_lose(shelf: Shelf) -> None:
    shelf.retain(LogSettings(retention_s=1, retention_bytes=1))
    assert shelf.trim() is None


def test_a_clock_that_went_back_takes_nothing_away_early(shelf: Shelf) -> None:
    shelf.batch("a", began_at=NOW_US - HOUR_US)
    shelf.batch("b", began_at=0)  # the machine did not know the time yet
    shelf.batch("c")
    shelf.retain(LogSettings(retention_s=2 * 3600))
    assert shelf.trim() is None


# What stays


def test_what_is_held_stays(shelf: Shelf) -> None:
    for _ in range(5):
        shelf.batch("aaa", began_at=0)
    shelf.retain(LogSettings(retention_s=60, retention_bytes=SIZE))
    shelf.holds.create("lake", "ann", 6, lapse_s=60)
    shelf.holds.create("other", "ann", 9, lapse_s=600)
    assert shelf.trim() is not None
    assert shelf.kept() == [7, 10, 13]
    shelf.holds.move("lake", "ann", 7)  # one message of the piece was read, but a piece leaves as a whole
    assert shelf.trim() is None
    shelf.clock.advance(60)
    assert shelf.trim() is not None
    assert shelf.kept() == [10, 13]


def test_a_hold_at_the_beginning_keeps_everything(shelf: Shelf) -> None:
    for _ in range(3):
        shelf.batch("a", began_at=0)
    shelf.retain(LogSettings(retention_s=60, retention_bytes=1))
    shelf.holds.create("lake", "ann", 0, lapse_s=60)
    assert shelf.trim(owed_from=99) is None


def test_what_sessions_are_owed_stays_as_long_as_there_is_room_for_it(shelf: Shelf) -> None:
    for _ in range(6):
        shelf.batch("aa", began_at=0)
    limits = LogSettings(retention_s=60, owed_bytes=3 * SIZE)
    shelf.retain(limits)
    assert shelf.trim(owed_from=6) == Trimmed(1, 4, 4, 2 * SIZE, {Why.AGE: 4})
    assert shelf.kept() == [5, 7, 9, 11]
    assert shelf.trim(owed_from=6) is None
    shelf.batch("aa", began_at=0)
    assert shelf.trim(owed_from=6) == Trimmed(5, 6, 2, SIZE, {Why.OWED_LIMIT: 2})
    assert shelf.trim(owed_from=12) == Trimmed(7, 10, 4, 2 * SIZE, {Why.AGE: 4})
    assert shelf.kept() == [11, 13]


def test_what_is_held_does_not_use_up_the_room_for_what_is_owed(shelf: Shelf) -> None:
    for _ in range(5):
        shelf.batch("a", began_at=0)
    shelf.retain(LogSettings(retention_s=60, owed_bytes=SIZE))
    shelf.holds.create("lake", "ann", 2, lapse_s=60)
    assert shelf.trim(owed_from=2) is not None
    assert shelf.kept() == [2, 3, 4, 5]


def test_nobody_owed_means_no_room_for_it_either(shelf: Shelf) -> None:
    for _ in range(3):
        shelf.batch("a", began_at=0)
    shelf.retain(LogSettings(retention_s=60))
    shelf.trim(owed_from=None)
    assert shelf.kept() == [3]


# What is stored


def test_nothing_is_stored_of_what_left_and_everything_of_the_rest(shelf: Shelf) -> None:
    for _ in range(4):
        shelf.batch("ab")
    for _ in range(4):
        shelf.frame("ab")
    shelf.retain(bytes_for(6))
    shelf.trim()
    for family in (LOG, INDEX, TOPICS):
        assert shelf.offsets(family) == [5, 7]
    assert shelf.offsets(ROWS) == [9, 11, 13, 15]
    shelf.retain(bytes_for(2))
    shelf.trim()
    for family in (LOG, INDEX, TOPICS):
        assert shelf.offsets(family) == []
    assert shelf.offsets(ROWS) == [13, 15]


def test_keys_of_gone_batches_leave_but_the_last_of_each_topic_stays(shelf: Shelf) -> None:
    for topics in ("aab", "ac", "ab", "a", "aa", "a"):
        shelf.batch(topics)
    shelf.retain(bytes_for(2))
    shelf.trim()
    assert shelf.places() == {"a": [6, 8], "b": [2], "c": [1]}
    assert shelf.last_sequences() == shelf.sequences


def test_a_last_key_leaves_when_there_is_a_later_one_that_has_left_as_well(shelf: Shelf) -> None:
    shelf.retain(bytes_for(1))
    for _ in range(3):
        for topics in ("a", "x", "y", "z"):
            shelf.batch(topics)
            shelf.trim()
    assert shelf.places() == {"a": [3], "x": [3], "y": [3], "z": [2, 3]}  # what has the last z is still there


@pytest.mark.parametrize("between", [0, 1, 3, 4, 10])
def test_a_key_leaves_however_much_later_the_next_one_is(shelf: Shelf, between: int) -> None:
    for topics in ("a", *("x" * between), "a"):
        shelf.batch(topics)
    shelf.retain(bytes_for(between + 1))
    shelf.trim()
    assert shelf.places()["a"] == [2]


def test_a_topic_that_comes_back_much_later_has_no_keys_too_many(shelf: Shelf) -> None:
    shelf.retain(bytes_for(6))
    for topics in ("a", *("x" * 8), "a", *("x" * 8)):
        shelf.batch(topics)
        shelf.trim()
    assert shelf.places() == {"a": [2], "x": [11, 12, 13, 14, 15, 16]}


def test_topics_that_begin_alike_are_not_confused(shelf: Shelf) -> None:
    for _ in range(3):
        shelf.batch(["a", "a/b", "a/", "ab", "b"])
    shelf.batch(["a/b"])
    shelf.retain(bytes_for(1))
    shelf.trim()
    assert shelf.places() == {"a": [3], "a/b": [4], "a/": [3], "ab": [3], "b": [3]}


def test_last_sequences_outlive_frames_that_were_never_sealed(shelf: Shelf) -> None:
    shelf.batch("abc")
    shelf.frame("aab")
    shelf.frame("ada")
    shelf.frame("x")
    shelf.retain(bytes_for(1))
    shelf.trim()
    assert shelf.last_sequences() == {"a": 5, "b": 2, "c": 1, "d": 1}
    assert all(len(sequences) == 1 for sequences in shelf.places().values())


def test_more_topics_than_one_write_takes_are_all_seen_to(shelf: Shelf) -> None:
    topics = [f"device/{number}" for number in range(2_500)]
    shelf.batch(topics)
    shelf.batch(topics[:1_500])
    shelf.batch("x")
    shelf.retain(bytes_for(1))
    shelf.trim()
    places = shelf.places()
    assert [places[topic] for topic in topics] == [[2]] * 1_500 + [[1]] * 1_000


def test_more_frames_than_one_write_takes_all_leave(shelf: Shelf) -> None:
    for number in range(60):
        shelf.frame([f"topic/{number % 7}"] * 200)
    shelf.retain(bytes_for(1))
    trimmed = shelf.trim()
    assert trimmed is not None
    assert trimmed.messages == 59 * 200
    assert shelf.offsets(ROWS) == [59 * 200 + 1]
    assert shelf.last_sequences()["topic/2"] == shelf.sequences["topic/2"]


@pytest.mark.parametrize("is_sealed", [False, True])
def test_the_space_is_given_back(tmp_path: Path, is_sealed: bool) -> None:
    store, _ = open_store(tmp_path / "data")
    with closing(store):
        shelf, random = Shelf(store), Random(1)
        for _ in range(40):
            data = random.randbytes(100_000)
            _ = shelf.batch("a", stream=data) if is_sealed else shelf.frame("a", data=data)
        store.flush(LOG if is_sealed else ROWS)
        shelf.retain(bytes_for(4))
        shelf.trim()
        tables = sum(file.stat().st_size for file in store.path.rglob("*.sst"))
        assert 400_000 < tables < 800_000


def test_what_stays_is_not_written_again_when_something_leaves(tmp_path: Path) -> None:
    def tables() -> set[str]:
        return {file.name for file in tmp_path.rglob("*.sst")}

    store, _ = open_store(tmp_path / "data")
    with closing(store):
        shelf = Shelf(store)
        for _ in range(10):
            shelf.batch("a")
        store.flush(LOG)
        others = tables()
        for _ in range(10):
            shelf.batch("a")
        store.flush(LOG)
        middle = tables() - others
        for _ in range(10):
            shelf.batch("a")
        shelf.retain(bytes_for(25))
        shelf.trim()
        assert middle <= tables()


# What goes wrong


def test_a_damaged_range_at_the_beginning_does_not_stop_it(shelf: Shelf) -> None:
    changes = Changes()
    for family in (LOG, INDEX, TOPICS, ROWS):  # stored, but the start could not make a piece of it
        changes.put(family, offset_key(1), b"\xc1")
    shelf.store.write(changes, sync=False)
    shelf.index.add(Piece(100, 199, 100, SIZE, 0, is_sealed=True))
    shelf.batch("a")
    shelf.batch("a")
    shelf.retain(bytes_for(1))
    trimmed = shelf.trim()
    assert trimmed is not None
    assert (trimmed.first, trimmed.last) == (100, 200)
    assert shelf.kept() == shelf.offsets(LOG) == shelf.offsets(INDEX) == shelf.offsets(TOPICS) == [201]
    assert shelf.offsets(ROWS) == []


def test_a_damaged_range_stays_visible_until_what_follows_it_leaves(shelf: Shelf) -> None:
    shelf.batch("aaa")
    shelf.index.add(Piece(10, 12, 3, SIZE, NOW_US, is_sealed=True))
    shelf.batch("a")
    shelf.retain(bytes_for(2))
    shelf.trim()
    assert shelf.index.gaps(0, 12) == [(4, 9)]


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x93\x01\x02"])
def test_values_that_make_no_sense_leave_like_others(shelf: Shelf, data: bytes) -> None:
    shelf.batch("ab", extents_data=data)
    shelf.batch("ab")
    shelf.frame("ab", data=data)
    shelf.frame("ab")
    shelf.frame("ab")
    shelf.retain(bytes_for(1))
    assert shelf.trim() is not None
    assert shelf.offsets(ROWS) == shelf.kept() == [9]
    assert shelf.last_sequences() == {"a": 4, "b": 4}


@pytest.mark.parametrize(
    ("family", "needle"),
    [
        (LOG, bytes(1_000)),
        (TOPICS, encode_extents({"a": Extent(1, 1, 1, 0)})[1:]),
        (SEQUENCES, sequence_key("a", 1)),
    ],
)
def test_a_damaged_table_does_not_stop_it(tmp_path: Path, family: str, needle: bytes) -> None:
    store, _ = open_store(tmp_path / "data")
    with closing(store):
        shelf = Shelf(store)
        for _ in range(3):
            shelf.batch("ab", stream=bytes(10_000))
        store.compact(family, b"\xfe")  # all of it becomes a table
        shelf.batch("ab")
    flip_a_bit(tmp_path / "data" / "rocksdb", needle)
    store, opening = open_store(tmp_path / "data")
    with closing(store):
        assert opening.notes == ()  # nobody knows yet
        with pytest.raises(DamagedData):
            list(store.scan(family))
        again = Shelf(store)
        again.open(shelf.index)
        again.retain(bytes_for(1))
        assert again.trim() is not None
        assert again.kept() == [7]
        if family != SEQUENCES:
            assert again.last_sequences() == shelf.sequences
        with suppress(StorageUnavailable):
            again.frame("a")
        if store.needs_reopen:  # it was met in giving the space back; a server opens its database again then
            store.reopen()
            again.frame("a")
        assert again.trim() is not None
        assert again.offsets(LOG) == []


def flip_a_bit(folder: Path, needle: bytes) -> None:
    """Damage the one table that has these bytes."""
    (table,) = (table for table in folder.glob("*.sst") if needle in table.read_bytes())
    data = bytearray(table.read_bytes())
    data[data.find(needle)] ^= 1
    table.write_bytes(data)


def test_what_the_store_did_not_take_is_removed_and_told_the_next_time(shelf: Shelf) -> None:
    for topics in ("ab", "ac", "a", "a"):
        shelf.batch(topics)
    shelf.retain(bytes_for(2))
    shelf.store.needs_reopen = True  # as after an error of the disk
    with pytest.raises(StorageUnavailable):
        shelf.trim()
    assert shelf.index.first_offset == 5  # it is not read any more
    assert shelf.offsets(LOG) == [1, 3, 5, 6]
    with pytest.raises(StorageUnavailable):
        shelf.trim()
    shelf.store.reopen()
    shelf.batch("a")
    assert shelf.trim() == Trimmed(1, 5, 5, 3 * SIZE, {Why.BYTES: 5})
    assert shelf.offsets(LOG) == [6, 7]
    assert shelf.places() == {"a": [4, 5], "b": [1], "c": [1]}
    assert shelf.trim() is None


def test_a_batch_that_nobody_knows_of_keeps_what_it_has_of_frames_that_stay(shelf: Shelf) -> None:
    frames = [shelf.frame("a") for _ in range(3)]
    changes = Changes()  # sealed by a write that was done although it seemed to fail
    changes.put(LOG, offset_key(1), b"arrow")
    changes.put(INDEX, offset_key(1), encode_summary(Summary(1, 3, 3, SIZE, NOW_US, NOW_US, 1, 1)))
    changes.put(SEQUENCES, sequence_key("a", 1), pack_place(1, 3))
    changes.delete_range(ROWS, offset_key(1), offset_key(4))
    shelf.store.write(changes, sync=False)
    shelf.retain(bytes_for(1))
    assert shelf.trim() is not None
    assert shelf.kept() == [frames[-1].first]
    assert shelf.offsets(LOG) == shelf.offsets(INDEX) == [1]
    assert shelf.last_sequences() == {"a": 3}


class Killed(Exception):
    """Stands for the end of the process."""


def fill(shelf: Shelf) -> None:
    for topics in ("aab", "cab", "a", "ad"):
        shelf.batch(topics)
    for topics in ("ae", "ef"):
        shelf.frame(topics)
    shelf.frame("g" * 5_000)
    shelf.frame("a")


@pytest.mark.parametrize("writes", range(13))
def test_a_kill_between_any_two_writes_loses_nothing_that_stays(tmp_path: Path, writes: int) -> None:
    store, _ = open_store(tmp_path / "data")
    with closing(store):
        shelf = Shelf(store)
        fill(shelf)
        shelf.retain(bytes_for(1))
        with ends_after(store, writes):
            shelf.trim()
    store, _ = open_store(tmp_path / "data")
    with closing(store):
        found = survey(store, None)
        assert found.damage == ()
        assert found.last_offset == shelf.index.last_offset
        assert found.index.after(0)[0].first == found.index.first_offset
        again = Shelf(store)
        again.open(found.index)
        assert {**again.last_sequences(), **found.sequences} == shelf.sequences
        again.retain(bytes_for(1))
        again.trim()
        assert again.offsets(LOG) == again.offsets(INDEX) == again.offsets(TOPICS) == []
        assert again.offsets(ROWS) == [shelf.index.last_offset]
        sealed = again.last_sequences()
        assert {**sealed, **again.unsealed_sequences()} == shelf.sequences
        assert set(sealed) == set(shelf.sequences)
        assert survey(store, None).index.first_offset == shelf.index.last_offset


@contextmanager
def ends_after(store: Store, writes: int) -> Iterator[None]:
    """Let so many writes pass, and none after them."""
    passes = store.write

    def write(changes: Changes, *, sync: bool) -> None:
        nonlocal writes
        writes -= 1
        if writes < 0:
            raise Killed
        passes(changes, sync=sync)

    store.write = write  # type: ignore[method-assign]
    with suppress(Killed):
        yield
    del store.write  # type: ignore[method-assign]


def test_after_a_start_the_log_begins_where_retention_left_it(shelf: Shelf) -> None:
    for _ in range(3):
        shelf.batch("aa")
    shelf.frame("aa")
    shelf.retain(bytes_for(2))
    shelf.trim()
    found = survey(shelf.store, None)
    assert found.index.first_offset == shelf.index.first_offset == 5
    assert [piece.first for piece in found.index.after(0)] == shelf.kept()
    assert found.damage == ()


def test_nothing_is_sealed_while_something_leaves(shelf: Shelf) -> None:
    for _ in range(3):
        shelf.frame("a")
    sealing = Lock()
    retention = Retention(shelf.store, shelf.index, bytes_for(1), shelf.holds, quiet=lambda: sealing)
    with sealing:
        trimmer = Thread(target=retention.trim, args=(NOW_US, None))
        trimmer.start()
        trimmer.join(0.05)
        assert trimmer.is_alive()
        assert shelf.index.first_offset == 1
    trimmer.join()
    assert shelf.index.first_offset == 3


def test_what_the_sealer_made_leaves_like_everything_else(shelf: Shelf) -> None:
    sealer = Sealer(shelf.store, shelf.index, "node", messages=4, on_error=pytest.fail)
    limits = LogSettings(retention_s=3600)
    retention = Retention(shelf.store, shelf.index, limits, shelf.holds, quiet=sealer.quiet)
    with closing_by(sealer.stop):
        for topics in ("ab", "ca", "ab", "da", "ae", "af"):
            shelf.frame(topics, began_at=0)
        assert sealer.seal_now() == 12
        shelf.frame("g")
        assert retention.trim(NOW_US, None) is not None
        check(shelf, None)
        assert shelf.kept() == [9, 13]
        assert shelf.places() == {"a": [5], "b": [2], "c": [1], "d": [1], "e": [1], "f": [1]}


@contextmanager
def closing_by(close: Callable[[], None]) -> Iterator[None]:
    try:
        yield
    finally:
        close()


# The rules, over everything


class Case(Struct, frozen=True):
    """Some pieces, and what is asked of them."""

    pieces: tuple[Piece, ...]
    limits: LogSettings
    held: int | None
    owed_from: int | None


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A few pieces of a few offsets, with damage between some of them, and limits that matter."""
    pieces: list[Piece] = []
    offset, hour = draw(st.integers(1, 5)), 0
    for _ in range(draw(st.integers(0, 10))):
        offset += draw(st.sampled_from((0, 0, 0, 4)))
        hour += draw(st.sampled_from((-3, 0, 1, 1, 2)))
        last = offset + draw(st.integers(0, 4))
        count = draw(st.integers(0, last - offset + 1))
        size, is_sealed = draw(st.integers(0, 9)), draw(st.booleans())
        pieces.append(Piece(offset, last, count, size, NOW_US + hour * HOUR_US, is_sealed))
        offset = last + 1
    limits = LogSettings(
        retention_s=draw(st.just(0.0) | st.integers(1, 9).map(lambda hours: hours * 3600.0)),
        retention_bytes=draw(st.just(0) | st.integers(1, 50)),
        owed_bytes=draw(st.integers(0, 30)),
    )
    somewhere = st.none() | st.integers(0, offset + 3)
    return Case(tuple(pieces), limits, draw(somewhere), draw(somewhere))


def may_leave(case: Case, wall_us: int, count: int) -> bool:
    """Whether the rules allow that the first `count` pieces leave, each rule asked for each piece."""
    pieces, limits = case.pieces, case.limits

    def is_due(at: int) -> bool:
        is_last = at == len(pieces) - 1
        is_over = bool(limits.retention_bytes) and sum(p.bytes for p in pieces[at:]) > limits.retention_bytes
        oldest_us = wall_us - int(limits.retention_s * 1_000_000)
        is_old = bool(limits.retention_s) and all(p.began_at <= oldest_us for p in pieces[at : at + 2])
        is_held = case.held is not None and pieces[at].last > case.held
        return not is_last and not is_held and (is_over or is_old)

    due = list(takewhile(is_due, range(len(pieces))))

    def is_spared(at: int) -> bool:
        is_owed = case.owed_from is not None and pieces[at].last >= case.owed_from
        return is_owed and sum(pieces[later].bytes for later in due if later >= at) <= limits.owed_bytes

    return all(at in due and not is_spared(at) for at in range(count))


@settings(max_examples=300)
@given(cases(), st.integers(0, 12))
def test_as_much_leaves_as_all_rules_allow_and_no_more(case: Case, hours: int) -> None:
    wall_us = NOW_US + hours * HOUR_US
    total = sum(piece.bytes for piece in case.pieces)
    leaving = choose(case.pieces, total, case.limits, wall_us, case.held, case.owed_from)
    assert tuple(piece for piece, _ in leaving) == case.pieces[: len(leaving)]
    allowed = [count for count in range(len(case.pieces) + 1) if may_leave(case, wall_us, count)]
    assert len(leaving) == max(allowed)


steps = st.lists(
    st.tuples(
        st.sampled_from(("frame", "frame", "batch", "seal", "trim")), st.text("abcd", min_size=1, max_size=6)
    ),
    min_size=3,
    max_size=25,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps, st.integers(1, 4), st.none() | st.integers(0, 30))
def test_store_and_index_agree_whatever_happens(
    shelf: Shelf, todo: list[tuple[str, str]], room: int, held: int | None
) -> None:
    shelf.empty()
    shelf.retain(bytes_for(room))
    if held is not None:
        shelf.holds.create("lake", "ann", held, lapse_s=60)
    for what, topics in [*todo, ("trim", "")]:
        if what == "frame" or (what == "batch" and shelf.index.unsealed(1)):
            shelf.frame(topics)
        elif what == "batch":
            shelf.batch(topics)
        elif what == "seal":
            shelf.seal()
        else:
            shelf.trim()
            check(shelf, held)


def check(shelf: Shelf, held: int | None) -> None:
    pieces = shelf.index.after(0)
    sealed = [piece.first for piece in pieces if piece.is_sealed]
    assert shelf.offsets(LOG) == shelf.offsets(INDEX) == shelf.offsets(TOPICS) == sealed
    assert shelf.offsets(ROWS) == [piece.first for piece in pieces if not piece.is_sealed]
    assert held is None or shelf.index.first_offset <= held + 1
    gone = [key[:-9] for key, value in shelf.store.scan(SEQUENCES) if unpack_place(value)[0] not in sealed]
    assert len(gone) == len(set(gone))  # of what has left, at most the last one of each topic
    assert {**shelf.last_sequences(), **shelf.unsealed_sequences()} == shelf.sequences
