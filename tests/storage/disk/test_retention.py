"""Retention: the oldest are removed by age and size; held, queued and newest pieces stay."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from random import Random
from threading import Lock, Thread

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from msgspec import Struct

from penstock.core.settings import LogSettings
from penstock.errors import StorageUnavailable
from penstock.storage.disk.pieces.frames import Extent, Summary, encode_extents, encode_summary
from penstock.storage.disk.pieces.piece import Piece
from penstock.storage.disk.pieces.sealing import Sealer
from penstock.storage.disk.recovery.opening import open_store
from penstock.storage.disk.recovery.survey import survey
from penstock.storage.disk.retention import Retention, Trimmed, TrimReason, choose
from penstock.storage.disk.rocksdb.errors import DamagedData
from penstock.storage.disk.rocksdb.layout import (
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
from penstock.storage.disk.rocksdb.store import Changes, Store
from tests.storage.disk.retention_log import HOUR_US, NOW_US, SIZE, RetentionLog, bytes_for
from tests.support.examples import examples


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store, _ = open_store(tmp_path_factory.mktemp("retention") / "data")
    with closing(store):
        yield store


@pytest.fixture
def log(store: Store) -> RetentionLog:
    log = RetentionLog(store)
    log.empty()
    return log


# What leaves


def test_without_limits_nothing_leaves(log: RetentionLog) -> None:
    for _ in range(3):
        log.batch("aa", began_at=0)
    assert log.trim() is None
    assert log.kept() == [1, 3, 5]


def test_within_its_limits_nothing_leaves(log: RetentionLog) -> None:
    for hours in (3, 2, 1):
        log.batch("aa", began_at=NOW_US - hours * HOUR_US)
    log.retain(LogSettings(retention_s=3 * 3600, retention_bytes=3 * SIZE))
    assert log.trim() is None
    assert log.kept() == [1, 3, 5]


def test_old_messages_are_removed_in_whole_pieces(log: RetentionLog) -> None:
    for hours in (5, 4, 3, 2, 1):
        log.batch("aaa", began_at=NOW_US - hours * HOUR_US)
    log.retain(LogSettings(retention_s=2.5 * 3600, retention_bytes=0))
    trimmed = log.trim()
    assert trimmed == Trimmed(
        1, 6, 6, 2 * SIZE, {TrimReason.AGE: 6}
    )  # what the third has may be half an hour too young
    assert log.kept() == [7, 10, 13]
    assert log.index.first_offset == 7
    assert log.trim() is None


def test_what_is_too_much_leaves(log: RetentionLog) -> None:
    for _ in range(5):
        log.batch("aa")
    log.retain(bytes_for(3))
    assert log.trim() == Trimmed(1, 4, 4, 2 * SIZE, {TrimReason.BYTES: 4})
    assert log.kept() == [5, 7, 9]
    assert log.index.bytes == 3 * SIZE


def test_the_log_tells_why_each_message_left(log: RetentionLog) -> None:
    log.batch("a", began_at=NOW_US - 9 * HOUR_US)
    log.batch("aa", began_at=NOW_US - 8 * HOUR_US)
    log.batch("aaa")
    log.batch("aaaa")
    log.batch("aaaaa")
    log.retain(LogSettings(retention_s=7 * 3600, retention_bytes=SIZE, owed_bytes=0))
    trimmed = log.trim(owed_from=8)
    assert trimmed is not None
    assert trimmed.why == {TrimReason.AGE: 1, TrimReason.BYTES: 5, TrimReason.OWED_LIMIT: 4}
    assert trimmed.messages == trimmed.offsets == 10


def test_offsets_without_messages_leave_too(log: RetentionLog) -> None:
    log.index.add(Piece(1, 50, 3, SIZE, NOW_US, is_sealed=False))
    log.frame("a")
    log.retain(bytes_for(1))
    trimmed = log.trim()
    assert trimmed is not None
    assert (trimmed.offsets, trimmed.messages) == (50, 3)


@pytest.mark.parametrize("limits", [LogSettings(retention_s=1), LogSettings(retention_bytes=1)])
def test_the_newest_piece_stays_whatever_the_limits_say(log: RetentionLog, limits: LogSettings) -> None:
    log.batch("aa", began_at=0)
    log.frame("aa", began_at=0)
    log.retain(limits)
    assert log.trim() is not None
    assert log.trim() is None
    assert log.kept() == log.offsets(ROWS) == [3]
    assert log.index.last_offset == 4


def test_any_number_of_pieces_leaves_at_once(log: RetentionLog) -> None:
    for offset in range(1, 3_001):
        log.index.add(Piece(offset, offset, 1, SIZE, 0, is_sealed=False))
    log.retain(bytes_for(1))
    assert log.trim() == Trimmed(1, 2_999, 2_999, 2_999 * SIZE, {TrimReason.BYTES: 2_999})
    assert log.kept() == [3_000]


def test_a_report_fits_in_one_line() -> None:
    trimmed = Trimmed(3, 9, 6, 2_000, {TrimReason.AGE: 4, TrimReason.OWED_LIMIT: 2})
    assert trimmed.facts() == {
        "first": 3,
        "last": 9,
        "messages": 6,
        "bytes": 2_000,
        "why": "4 by age, 2 by owed-limit",
    }


def test_an_empty_log_has_nothing_to_lose(log: RetentionLog) -> None:
    log.retain(LogSettings(retention_s=1, retention_bytes=1))
    assert log.trim() is None


def test_a_clock_that_was_set_back_removes_nothing_early(log: RetentionLog) -> None:
    log.batch("a", began_at=NOW_US - HOUR_US)
    log.batch("b", began_at=0)  # the machine did not know the time yet
    log.batch("c")
    log.retain(LogSettings(retention_s=2 * 3600))
    assert log.trim() is None


# What stays


def test_what_is_held_stays(log: RetentionLog) -> None:
    for _ in range(5):
        log.batch("aaa", began_at=0)
    log.retain(LogSettings(retention_s=60, retention_bytes=SIZE))
    log.holds.create("lake", "ann", 6, lapse_s=60)
    log.holds.create("other", "ann", 9, lapse_s=600)
    assert log.trim() is not None
    assert log.kept() == [7, 10, 13]
    log.holds.move("lake", "ann", 7)  # one message of the piece was read, but a piece leaves as a whole
    assert log.trim() is None
    log.clock.advance(60)
    assert log.trim() is not None
    assert log.kept() == [10, 13]


def test_a_hold_at_the_beginning_keeps_everything(log: RetentionLog) -> None:
    for _ in range(3):
        log.batch("a", began_at=0)
    log.retain(LogSettings(retention_s=60, retention_bytes=1))
    log.holds.create("lake", "ann", 0, lapse_s=60)
    assert log.trim(owed_from=99) is None


def test_offline_queues_are_kept_up_to_their_limit(log: RetentionLog) -> None:
    for _ in range(6):
        log.batch("aa", began_at=0)
    limits = LogSettings(retention_s=60, owed_bytes=3 * SIZE)
    log.retain(limits)
    assert log.trim(owed_from=6) == Trimmed(1, 4, 4, 2 * SIZE, {TrimReason.AGE: 4})
    assert log.kept() == [5, 7, 9, 11]
    assert log.trim(owed_from=6) is None
    log.batch("aa", began_at=0)
    assert log.trim(owed_from=6) == Trimmed(5, 6, 2, SIZE, {TrimReason.OWED_LIMIT: 2})
    assert log.trim(owed_from=12) == Trimmed(7, 10, 4, 2 * SIZE, {TrimReason.AGE: 4})
    assert log.kept() == [11, 13]


def test_held_pieces_do_not_count_for_the_limit_of_offline_queues(log: RetentionLog) -> None:
    for _ in range(5):
        log.batch("a", began_at=0)
    log.retain(LogSettings(retention_s=60, owed_bytes=SIZE))
    log.holds.create("lake", "ann", 2, lapse_s=60)
    assert log.trim(owed_from=2) is not None
    assert log.kept() == [2, 3, 4, 5]


def test_without_offline_queues_their_limit_keeps_nothing(log: RetentionLog) -> None:
    for _ in range(3):
        log.batch("a", began_at=0)
    log.retain(LogSettings(retention_s=60))
    log.trim(owed_from=None)
    assert log.kept() == [3]


# What is stored


def test_nothing_is_stored_of_what_left_and_everything_of_the_rest(log: RetentionLog) -> None:
    for _ in range(4):
        log.batch("ab")
    for _ in range(4):
        log.frame("ab")
    log.retain(bytes_for(6))
    log.trim()
    for family in (LOG, INDEX, TOPICS):
        assert log.offsets(family) == [5, 7]
    assert log.offsets(ROWS) == [9, 11, 13, 15]
    log.retain(bytes_for(2))
    log.trim()
    for family in (LOG, INDEX, TOPICS):
        assert log.offsets(family) == []
    assert log.offsets(ROWS) == [13, 15]


def test_keys_of_gone_batches_leave_but_the_last_of_each_topic_stays(log: RetentionLog) -> None:
    for topics in ("aab", "ac", "ab", "a", "aa", "a"):
        log.batch(topics)
    log.retain(bytes_for(2))
    log.trim()
    assert log.places() == {"a": [6, 8], "b": [2], "c": [1]}
    assert log.last_sequences() == log.sequences


def test_a_last_key_leaves_when_there_is_a_later_one_that_has_left_as_well(log: RetentionLog) -> None:
    log.retain(bytes_for(1))
    for _ in range(3):
        for topics in ("a", "x", "y", "z"):
            log.batch(topics)
            log.trim()
    assert log.places() == {"a": [3], "x": [3], "y": [3], "z": [2, 3]}  # what has the last z is still there


@pytest.mark.parametrize("between", [0, 1, 3, 4, 10])
def test_a_key_leaves_however_much_later_the_next_one_is(log: RetentionLog, between: int) -> None:
    for topics in ("a", *("x" * between), "a"):
        log.batch(topics)
    log.retain(bytes_for(between + 1))
    log.trim()
    assert log.places()["a"] == [2]


def test_a_topic_that_returns_much_later_has_no_excess_keys(log: RetentionLog) -> None:
    log.retain(bytes_for(6))
    for topics in ("a", *("x" * 8), "a", *("x" * 8)):
        log.batch(topics)
        log.trim()
    assert log.places() == {"a": [2], "x": [11, 12, 13, 14, 15, 16]}


def test_topics_that_begin_alike_are_not_confused(log: RetentionLog) -> None:
    for _ in range(3):
        log.batch(["a", "a/b", "a/", "ab", "b"])
    log.batch(["a/b"])
    log.retain(bytes_for(1))
    log.trim()
    assert log.places() == {"a": [3], "a/b": [4], "a/": [3], "ab": [3], "b": [3]}


def test_last_sequences_outlive_frames_that_were_never_sealed(log: RetentionLog) -> None:
    log.batch("abc")
    log.frame("aab")
    log.frame("ada")
    log.frame("x")
    log.retain(bytes_for(1))
    log.trim()
    assert log.last_sequences() == {"a": 5, "b": 2, "c": 1, "d": 1}
    assert all(len(sequences) == 1 for sequences in log.places().values())


def test_more_topics_than_one_write_takes_are_all_seen_to(log: RetentionLog) -> None:
    topics = [f"device/{number}" for number in range(2_500)]
    log.batch(topics)
    log.batch(topics[:1_500])
    log.batch("x")
    log.retain(bytes_for(1))
    log.trim()
    places = log.places()
    assert [places[topic] for topic in topics] == [[2]] * 1_500 + [[1]] * 1_000


def test_more_frames_than_one_write_takes_all_leave(log: RetentionLog) -> None:
    for number in range(60):
        log.frame([f"topic/{number % 7}"] * 200)
    log.retain(bytes_for(1))
    trimmed = log.trim()
    assert trimmed is not None
    assert trimmed.messages == 59 * 200
    assert log.offsets(ROWS) == [59 * 200 + 1]
    assert log.last_sequences()["topic/2"] == log.sequences["topic/2"]


@pytest.mark.parametrize("is_sealed", [False, True])
def test_the_space_is_given_back(tmp_path: Path, is_sealed: bool) -> None:
    store, _ = open_store(tmp_path / "data")
    with closing(store):
        log, random = RetentionLog(store), Random(1)
        for _ in range(40):
            data = random.randbytes(100_000)
            _ = log.batch("a", stream=data) if is_sealed else log.frame("a", data=data)
        store.flush(LOG if is_sealed else ROWS)
        log.retain(bytes_for(4))
        log.trim()
        tables = sum(file.stat().st_size for file in store.path.rglob("*.sst"))
        assert 400_000 < tables < 800_000


def test_what_stays_is_not_written_again_when_something_leaves(tmp_path: Path) -> None:
    def tables() -> set[str]:
        return {file.name for file in tmp_path.rglob("*.sst")}

    store, _ = open_store(tmp_path / "data")
    with closing(store):
        log = RetentionLog(store)
        for _ in range(10):
            log.batch("a")
        store.flush(LOG)
        others = tables()
        for _ in range(10):
            log.batch("a")
        store.flush(LOG)
        middle = tables() - others
        for _ in range(10):
            log.batch("a")
        log.retain(bytes_for(25))
        log.trim()
        assert middle <= tables()


# What goes wrong


def test_a_damaged_range_at_the_beginning_does_not_stop_it(log: RetentionLog) -> None:
    changes = Changes()
    for family in (LOG, INDEX, TOPICS, ROWS):  # stored, but the start could not make a piece of it
        changes.put(family, offset_key(1), b"\xc1")
    log.store.write(changes, sync=False)
    log.index.add(Piece(100, 199, 100, SIZE, 0, is_sealed=True))
    log.batch("a")
    log.batch("a")
    log.retain(bytes_for(1))
    trimmed = log.trim()
    assert trimmed is not None
    assert (trimmed.first, trimmed.last) == (100, 200)
    assert log.kept() == log.offsets(LOG) == log.offsets(INDEX) == log.offsets(TOPICS) == [201]
    assert log.offsets(ROWS) == []


def test_a_damaged_range_stays_visible_until_what_follows_it_leaves(log: RetentionLog) -> None:
    log.batch("aaa")
    log.index.add(Piece(10, 12, 3, SIZE, NOW_US, is_sealed=True))
    log.batch("a")
    log.retain(bytes_for(2))
    log.trim()
    assert log.index.gaps(0, 12) == [(4, 9)]


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x93\x01\x02"])
def test_values_that_make_no_sense_leave_like_others(log: RetentionLog, data: bytes) -> None:
    log.batch("ab", extents_data=data)
    log.batch("ab")
    log.frame("ab", data=data)
    log.frame("ab")
    log.frame("ab")
    log.retain(bytes_for(1))
    assert log.trim() is not None
    assert log.offsets(ROWS) == log.kept() == [9]
    assert log.last_sequences() == {"a": 4, "b": 4}


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
        log = RetentionLog(store)
        for _ in range(3):
            log.batch("ab", stream=bytes(10_000))
        store.compact(family, b"\xfe")  # all of it becomes a table
        log.batch("ab")
    flip_a_bit(tmp_path / "data" / "rocksdb", needle)
    store, opening = open_store(tmp_path / "data")
    with closing(store):
        assert opening.notes == ()  # nobody knows yet
        with pytest.raises(DamagedData):
            list(store.scan(family))
        again = RetentionLog(store)
        again.open(log.index)
        again.retain(bytes_for(1))
        assert again.trim() is not None
        assert again.kept() == [7]
        if family != SEQUENCES:
            assert again.last_sequences() == log.sequences
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


def test_after_a_failed_write_the_next_trim_removes_and_reports_it(log: RetentionLog) -> None:
    for topics in ("ab", "ac", "a", "a"):
        log.batch(topics)
    log.retain(bytes_for(2))
    log.store.needs_reopen = True  # as after an error of the disk
    with pytest.raises(StorageUnavailable):
        log.trim()
    assert log.index.first_offset == 5  # it is not read any more
    assert log.offsets(LOG) == [1, 3, 5, 6]
    with pytest.raises(StorageUnavailable):
        log.trim()
    log.store.reopen()
    log.batch("a")
    assert log.trim() == Trimmed(1, 5, 5, 3 * SIZE, {TrimReason.BYTES: 5})
    assert log.offsets(LOG) == [6, 7]
    assert log.places() == {"a": [4, 5], "b": [1], "c": [1]}
    assert log.trim() is None


def test_an_unindexed_batch_keeps_its_part_of_frames_that_stay(log: RetentionLog) -> None:
    frames = [log.frame("a") for _ in range(3)]
    changes = Changes()  # sealed by a write that was done although it seemed to fail
    changes.put(LOG, offset_key(1), b"arrow")
    changes.put(INDEX, offset_key(1), encode_summary(Summary(1, 3, 3, SIZE, NOW_US, NOW_US, 1, 1)))
    changes.put(SEQUENCES, sequence_key("a", 1), pack_place(1, 3))
    changes.delete_range(ROWS, offset_key(1), offset_key(4))
    log.store.write(changes, sync=False)
    log.retain(bytes_for(1))
    assert log.trim() is not None
    assert log.kept() == [frames[-1].first]
    assert log.offsets(LOG) == log.offsets(INDEX) == [1]
    assert log.last_sequences() == {"a": 3}


class Killed(Exception):
    """Stands for the end of the process."""


def fill(log: RetentionLog) -> None:
    for topics in ("aab", "cab", "a", "ad"):
        log.batch(topics)
    for topics in ("ae", "ef"):
        log.frame(topics)
    log.frame("g" * 5_000)
    log.frame("a")


@pytest.mark.parametrize("writes", range(13))
def test_a_kill_between_any_two_writes_loses_nothing_that_stays(tmp_path: Path, writes: int) -> None:
    store, _ = open_store(tmp_path / "data")
    with closing(store):
        log = RetentionLog(store)
        fill(log)
        log.retain(bytes_for(1))
        with ends_after(store, writes):
            log.trim()
    store, _ = open_store(tmp_path / "data")
    with closing(store):
        found = survey(store, None)
        assert found.damage == ()
        assert found.last_offset == log.index.last_offset
        assert found.index.after(0)[0].first == found.index.first_offset
        again = RetentionLog(store)
        again.open(found.index)
        assert {**again.last_sequences(), **found.sequences} == log.sequences
        again.retain(bytes_for(1))
        again.trim()
        assert again.offsets(LOG) == again.offsets(INDEX) == again.offsets(TOPICS) == []
        assert again.offsets(ROWS) == [log.index.last_offset]
        sealed = again.last_sequences()
        assert {**sealed, **again.unsealed_sequences()} == log.sequences
        assert set(sealed) == set(log.sequences)
        assert survey(store, None).index.first_offset == log.index.last_offset


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
    del store.write


def test_after_a_start_the_log_begins_where_retention_left_it(log: RetentionLog) -> None:
    for _ in range(3):
        log.batch("aa")
    log.frame("aa")
    log.retain(bytes_for(2))
    log.trim()
    found = survey(log.store, None)
    assert found.index.first_offset == log.index.first_offset == 5
    assert [piece.first for piece in found.index.after(0)] == log.kept()
    assert found.damage == ()


def test_nothing_is_sealed_while_something_leaves(log: RetentionLog) -> None:
    for _ in range(3):
        log.frame("a")
    sealing = Lock()
    retention = Retention(log.store, log.index, bytes_for(1), log.holds, quiet=lambda: sealing)
    with sealing:
        trimmer = Thread(target=retention.trim, args=(NOW_US, None))
        trimmer.start()
        trimmer.join(0.05)
        assert trimmer.is_alive()
        assert log.index.first_offset == 1
    trimmer.join()
    assert log.index.first_offset == 3


def test_what_the_sealer_made_leaves_like_everything_else(log: RetentionLog) -> None:
    errors: list[Exception] = []
    sealer = Sealer(log.store, log.index, "node", messages=4, on_error=errors.append)
    limits = LogSettings(retention_s=3600)
    retention = Retention(log.store, log.index, limits, log.holds, quiet=sealer.quiet)
    with closing_by(sealer.stop):
        for topics in ("ab", "ca", "ab", "da", "ae", "af"):
            log.frame(topics, began_at=0)
        assert sealer.seal_now() == 12
        log.frame("g")
        assert retention.trim(NOW_US, None) is not None
        check(log, None)
        assert log.kept() == [9, 13]
        assert log.places() == {"a": [5], "b": [2], "c": [1], "d": [1], "e": [1], "f": [1]}
    assert errors == []


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


@examples(75)
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


@examples(20, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps, st.integers(1, 4), st.none() | st.integers(0, 30))
def test_store_and_index_agree_whatever_happens(
    log: RetentionLog, todo: list[tuple[str, str]], room: int, held: int | None
) -> None:
    log.empty()
    log.retain(bytes_for(room))
    if held is not None:
        log.holds.create("lake", "ann", held, lapse_s=60)
    for what, topics in [*todo, ("trim", "")]:
        if what == "frame" or (what == "batch" and log.index.unsealed(1)):
            log.frame(topics)
        elif what == "batch":
            log.batch(topics)
        elif what == "seal":
            log.seal()
        else:
            log.trim()
            check(log, held)


def check(log: RetentionLog, held: int | None) -> None:
    pieces = log.index.after(0)
    sealed = [piece.first for piece in pieces if piece.is_sealed]
    assert log.offsets(LOG) == log.offsets(INDEX) == log.offsets(TOPICS) == sealed
    assert log.offsets(ROWS) == [piece.first for piece in pieces if not piece.is_sealed]
    assert held is None or log.index.first_offset <= held + 1
    gone = [key[:-9] for key, value in log.store.scan(SEQUENCES) if unpack_place(value)[0] not in sealed]
    assert len(gone) == len(set(gone))  # of what has left, at most the last one of each topic
    assert {**log.last_sequences(), **log.unsealed_sequences()} == log.sequences
