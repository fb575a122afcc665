"""Reader: every stored message in order, and every missing offset with its reason."""

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pytest
from msgspec.structs import replace

from penstock.common.statement import Gap
from penstock.core.ports.archive import ArrowSpan
from penstock.core.ports.log import Lost, Span, Wanted
from penstock.model import Properties, Reason, is_public
from penstock.storage.disk.pieces.arrow_batches import encode_end
from penstock.storage.disk.pieces.arrow_columns import SCHEMA, decode_batch, encode_batch, to_runs
from penstock.storage.disk.pieces.index import Index
from penstock.storage.disk.pieces.piece import Piece
from penstock.storage.disk.read.ranges import Bounds
from penstock.storage.disk.read.reader import Reader
from penstock.storage.disk.recovery.opening import open_store
from penstock.storage.disk.recovery.survey import survey
from penstock.storage.disk.rocksdb.layout import DATABASE_FOLDER, LOG, ROWS, TOPICS, offset_key
from penstock.storage.disk.rocksdb.store import Store
from penstock.wire.arrow import LOG_COLUMNS, cut
from tests.storage.disk.stored_log import NOON, Message, StoredLog, empty, messages_in
from tests.support.samples import make_run, readable

ALL = 1 << 30


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store, _ = open_store(tmp_path_factory.mktemp("log"))
    yield store
    store.close()


@pytest.fixture
def log(store: Store) -> StoredLog:
    empty(store)
    return StoredLog(store)


def is_a(topic: str) -> bool:
    return topic.startswith("a")


def write_mixed(log: StoredLog, seed: int = 1) -> None:
    """Batches and frames of many forms: runs, single messages, offsets of others, empty payloads."""
    chance = random.Random(seed)
    for number in range(60):
        runs = []
        for _ in range(chance.randint(0, 4)):
            size = chance.choice((0, 1, 30, 200))
            payloads = [chance.randbytes(size) for _ in range(chance.choice((1, 1, 3)))]
            runs.append(make_run(chance.choice(("a", "a/b", "c")), *payloads, qos=chance.randint(0, 2)))
        log.commit(*runs, skipped=chance.choice((0, 0, 2)))
        if number in (20, 21, 40):
            log.seal()


def read_all(
    log: StoredLog, after: int, limit_bytes: int, wanted: Wanted | None = None
) -> tuple[list[Message], list[Gap]]:
    """Everything after an offset, chunk by chunk."""
    found: list[Message] = []
    gaps: list[Gap] = []
    until = log.head
    while after < until:
        span = log.reader.runs(after, until, limit_bytes, wanted)
        assert span.until > after, "a reader gets on with every chunk"
        found += [message for message in messages_in(span.runs) if message[0] > after]
        gaps += span.gaps
        after = span.until
    return found, gaps


# Runs


@pytest.mark.parametrize("limit_bytes", [1, 300, 5_000, ALL])
def test_frames_and_batches_are_read_alike_from_any_offset_and_in_chunks_of_any_size(
    log: StoredLog, limit_bytes: int
) -> None:
    write_mixed(log)
    for after in range(0, log.head, 11):
        expected = [message for message in log.messages if message[0] > after]
        assert read_all(log, after, limit_bytes) == (expected, [])


@pytest.mark.parametrize("limit_bytes", [1, 300, ALL])
def test_only_what_is_wanted_is_read(log: StoredLog, limit_bytes: int) -> None:
    write_mixed(log)
    expected = [message for message in log.messages if is_a(message[1])]
    assert read_all(log, 0, limit_bytes, wanted=is_a) == (expected, [])


def test_each_topic_is_asked_for_once_in_a_read(log: StoredLog) -> None:
    write_mixed(log)
    asked: Counter[str] = Counter()

    def wanted(topic: str) -> bool:
        asked[topic] += 1
        return is_a(topic)

    log.reader.runs(0, log.head, ALL, wanted)
    assert asked == {"a": 1, "a/b": 1, "c": 1}


@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_wrong_argument_is_not_reported_as_damage(log: StoredLog, is_sealed: bool) -> None:
    log.commit_each("a")
    if is_sealed:
        log.seal()

    def wanted(topic: str) -> bool:
        raise ValueError(topic)

    with pytest.raises(ValueError, match="a"):
        log.reader.runs(0, 1, ALL, wanted)


@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_chunk_is_about_as_large_as_was_asked_for(log: StoredLog, is_sealed: bool) -> None:
    for _ in range(50):
        log.commit(make_run("a", bytes(100)))
    if is_sealed:
        log.seal()
    span = log.reader.runs(0, log.head, 1_000, None)
    assert (len(span.runs), span.until) == (10, 10)
    assert len(log.reader.runs(0, log.head, 1, None).runs) == 1


@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_chunk_of_messages_without_payload_has_an_end_too(log: StoredLog, is_sealed: bool) -> None:
    log.commit(*[make_run("a", b"") for _ in range(500)])
    if is_sealed:
        log.seal()
    assert 0 < len(log.reader.runs(0, log.head, 1_000, None).runs) < 100


def test_nothing_is_read_beyond_where_the_reader_may_look(log: StoredLog) -> None:
    log.commit_each("a", "a", "a", "a")
    span = log.reader.runs(1, 2, ALL, None)
    assert ([run.offset for run in span.runs], span.until, span.gaps) == ([2], 2, ())
    log.seal()
    span = log.reader.runs(1, 2, ALL, None)
    assert ([run.offset for run in span.runs], span.until, span.gaps) == ([2], 2, ())


def test_nothing_is_read_beyond_the_middle_of_a_frame(log: StoredLog) -> None:
    log.commit(*[make_run("a", b"%d" % number, qos=1) for number in range(4)])
    assert messages_in(log.reader.runs(1, 3, ALL, None).runs) == log.messages[1:3]
    assert messages_in(readable(log.reader.scan(1, 3, is_a))) == log.messages[1:3]


def test_an_empty_log_has_nothing_to_read(log: StoredLog) -> None:
    assert log.reader.runs(0, 0, ALL, None) == Span((), 0)


def test_a_read_that_finds_little_ends_all_the_same_and_is_gone_on_with(log: StoredLog) -> None:
    for _ in range(20):
        log.commit(*[make_run("c", bytes(100)) for _ in range(10)])
        log.seal()
    log.commit_each("a")
    log.reader = Reader(log.store, log.index, work_bytes=2_000)
    span = log.reader.runs(0, log.head, ALL, is_a)
    assert span.runs == ()
    assert 0 < span.until < 200
    assert read_all(log, 0, ALL, wanted=is_a) == (log.messages[-1:], [])


# What is missing


def test_messages_that_could_not_be_stored_are_a_gap(log: StoredLog) -> None:
    log.commit_each("a")
    log.commit(make_run("a", b"1"), skipped=4, holes=[(3, 4)])
    log.commit(holes=[(7, 9)])
    expected = (Gap(3, 4, Reason.NEVER_STORED), Gap(7, 9, Reason.NEVER_STORED))
    assert log.reader.runs(0, 9, ALL, None).gaps == expected
    log.seal()
    assert log.reader.runs(0, 9, ALL, None).gaps == expected
    assert log.reader.runs(3, 8, ALL, None).gaps == (
        Gap(4, 4, Reason.NEVER_STORED),
        Gap(7, 8, Reason.NEVER_STORED),
    )


def test_what_retention_took_is_a_gap(log: StoredLog) -> None:
    log.commit_each(*"aaaaaa")
    log.trim(4)
    span = log.reader.runs(1, 6, ALL, None)
    assert span.gaps == (Gap(2, 3, Reason.RETENTION),)
    assert messages_in(span.runs) == log.messages[3:]
    assert log.reader.runs(0, 2, ALL, None) == Span((), 2, (Gap(1, 2, Reason.RETENTION),))
    assert log.reader.runs(3, 6, ALL, None).gaps == ()


def test_offsets_that_no_piece_has_are_damaged(log: StoredLog) -> None:
    log.commit_each("a")
    log.index.add(Piece(4, 4, 0, 10, 0, is_sealed=False))  # 2 and 3 are lost, and so is the end
    span = log.reader.runs(0, 6, ALL, None)
    assert span.gaps == (Gap(2, 3, Reason.DAMAGED), Gap(5, 6, Reason.DAMAGED))
    assert (len(span.runs), span.until) == (1, 6)


@pytest.mark.parametrize("value", [b"", b"nonsense", b"\x93\x01\x02\x03"])
def test_a_frame_that_cannot_be_read_is_a_gap_and_the_rest_is_served(log: StoredLog, value: bytes) -> None:
    log.commit_each(*"aaaa")
    log.put(ROWS, 2, value)
    log.put(ROWS, 3, value)
    span = log.reader.runs(0, 4, ALL, None)
    assert ([run.offset for run in span.runs], span.gaps) == ([1, 4], (Gap(2, 3, Reason.DAMAGED),))
    assert list(log.reader.fetch([1, 2, 4])) == [1, 4]


def write_three_batches(log: StoredLog) -> None:
    """Offsets 1 and 2, 3 and 4, 5 and 6; the middle one has no topic that begins with `a`."""
    for topics in ("ac", "cc", "ac"):
        log.commit_each(*topics)
        log.seal()


@pytest.mark.parametrize("value", [b"", b"nonsense"])
def test_a_batch_that_cannot_be_read_is_a_gap_and_the_rest_is_served(log: StoredLog, value: bytes) -> None:
    write_three_batches(log)
    log.put(LOG, 3, value)
    span = log.reader.runs(0, 6, ALL, None)
    assert ([run.offset for run in span.runs], span.gaps) == ([1, 2, 5, 6], (Gap(3, 4, Reason.DAMAGED),))
    assert list(log.reader.fetch([1, 3, 6])) == [1, 6]
    arrow = log.reader.arrow(0, 6, ALL, lambda topic: True)
    assert (arrow.rows, arrow.gaps) == (4, (Gap(3, 4, Reason.DAMAGED),))


def test_an_unreadable_batch_without_wanted_topics_is_not_a_gap(log: StoredLog) -> None:
    write_three_batches(log)
    log.put(LOG, 3, b"nonsense")
    span = log.reader.runs(0, 6, ALL, is_a)
    assert ([run.offset for run in span.runs], span.gaps) == ([1, 5], ())
    log.put(TOPICS, 3, b"nonsense")  # now nobody knows what was in it
    assert log.reader.runs(0, 6, ALL, is_a).gaps == (Gap(3, 4, Reason.DAMAGED),)


def test_a_piece_that_is_gone_without_a_trace_is_damaged(log: StoredLog) -> None:
    write_three_batches(log)
    log.commit_each(*"aa")
    log.remove(LOG, 3)
    log.remove(ROWS, 7)
    span = log.reader.runs(0, 8, ALL, None)
    assert [run.offset for run in span.runs] == [1, 2, 5, 6, 8]
    assert span.gaps == (Gap(3, 4, Reason.DAMAGED), Gap(7, 7, Reason.DAMAGED))


def test_flipped_bits_in_a_table_are_reported_and_everything_else_is_served(tmp_path: Path) -> None:
    chance = random.Random(7)
    store, _ = open_store(tmp_path / "data")
    log = StoredLog(store)
    for _ in range(30):
        log.commit(*[make_run("a", chance.randbytes(200)) for _ in range(10)])
        log.seal()
    store.reopen()  # moves everything into tables
    store.close()
    largest = max((tmp_path / "data" / DATABASE_FOLDER).glob("*.sst"), key=lambda path: path.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[len(data) // 2] ^= 4
    largest.write_bytes(data)
    store, _ = open_store(tmp_path / "data")
    try:
        index = survey(store, None).index
        span = Reader(store, index).runs(0, log.head, ALL, None)
    finally:
        store.close()
    assert {gap.reason for gap in span.gaps} == {Reason.DAMAGED}
    lost = {offset for gap in span.gaps for offset in range(gap.first, gap.last + 1)}
    assert 0 < len(lost) < 100
    assert messages_in(span.runs) == [message for message in log.messages if message[0] not in lost]


# What changes while it is read


class ChangingIndex(Index):
    """Lets something happen right after it has told where things are, or how far retention has come."""

    def __init__(self) -> None:
        self.on_asked: Callable[[], object] | None = None
        self.on_first_offset: Callable[[], object] | None = None
        self.on_unsealed: Callable[[], object] | None = None
        super().__init__()

    def after(self, offset: int, limit: int = 1_000, until: int | None = None) -> list[Piece]:
        pieces = super().after(offset, limit, until)
        on_asked, self.on_asked = self.on_asked, None
        if on_asked is not None:
            on_asked()
        return pieces

    def unsealed(self, limit: int) -> list[Piece]:
        on_unsealed, self.on_unsealed = self.on_unsealed, None
        if on_unsealed is not None:
            on_unsealed()
        return super().unsealed(limit)

    @property
    def first_offset(self) -> int:
        first_offset = self._first_offset
        on_first_offset, self.on_first_offset = self.on_first_offset, None
        if on_first_offset is not None:
            on_first_offset()
        return first_offset

    @first_offset.setter
    def first_offset(self, offset: int) -> None:
        self._first_offset = offset


@pytest.fixture
def changing(store: Store) -> tuple[StoredLog, ChangingIndex]:
    empty(store)
    index = ChangingIndex()
    return StoredLog(store, index), index


@pytest.mark.parametrize("tell_index", [True, False])
def test_frames_that_are_sealed_before_they_are_read_are_read_from_their_batch(
    changing: tuple[StoredLog, ChangingIndex], tell_index: bool
) -> None:
    log, index = changing
    log.commit_each(*"aaaa")
    index.on_asked = lambda: log.seal(tell_index=tell_index)
    span = log.reader.runs(1, 4, ALL, None)
    assert (messages_in(span.runs), span.gaps) == (log.messages[1:], ())
    assert messages_in(log.reader.fetch([2, 3]).values()) == log.messages[1:3]


@pytest.mark.parametrize("is_late", [True, False])
def test_pieces_removed_before_they_are_read_are_reported_as_retention(
    changing: tuple[StoredLog, ChangingIndex], is_late: bool
) -> None:
    log, index = changing
    log.commit_each(*"aa")
    log.seal()
    log.commit_each(*"aaa")
    if is_late:
        index.on_first_offset = lambda: log.trim(4)
    else:
        index.on_asked = lambda: log.trim(4)
    span = log.reader.runs(0, 5, ALL, None)
    assert (messages_in(span.runs), span.gaps) == (log.messages[3:], (Gap(1, 3, Reason.RETENTION),))


def test_a_reader_beside_commits_and_sealing_misses_nothing(log: StoredLog) -> None:
    log.commit_each("a")
    problems: list[object] = []

    def read() -> None:
        while log.head < 600:
            found, gaps = read_all(log, 0, 2_000)
            if gaps or [offset for offset, *_ in found] != list(range(1, len(found) + 1)):
                problems.append((gaps, found))

    readers = [Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    while log.head < 600:
        log.commit_each(*"abc")
        if log.head % 20 < 3:
            log.seal()
    for reader in readers:
        reader.join()
    assert problems == []


# Single messages


def test_single_messages_are_fetched_from_frames_and_batches(log: StoredLog) -> None:
    write_mixed(log)
    expected = {message[0]: message for message in log.messages}
    offsets = [*range(1, log.head + 5, 3), 7, 7]
    found = log.reader.fetch(offsets)
    assert {offset: messages_in([run])[0] for offset, run in found.items()} == {
        offset: expected[offset] for offset in set(offsets) if offset in expected
    }
    assert all(run.count == 1 for run in found.values())
    assert log.reader.fetch([]) == {}


def test_what_has_left_is_not_fetched(log: StoredLog) -> None:
    log.commit_each(*"aaaa")
    log.trim(3)
    assert list(log.reader.fetch([1, 2, 3, 99])) == [3]


# Everything that is acknowledged


def test_a_scan_gives_what_is_wanted_at_a_quality_of_service(log: StoredLog) -> None:
    write_mixed(log)
    found = [run for run in readable(log.reader.scan(9, log.head, is_a)) if run.offset > 9]
    everything = log.reader.runs(9, log.head, ALL, is_a).runs
    expected = [run for run in everything if run.shape.qos and run.offset > 9]
    assert messages_in(found) == messages_in(expected)
    assert len(expected) > 10


def test_a_scan_tells_which_topics_are_in_a_batch_that_cannot_be_read(log: StoredLog) -> None:
    for topics, qos in (("ac", 1), ("aca", 1), ("a", 0), ("c", 1), ("a", 1), ("a", 2)):
        log.commit_each(*topics, qos=qos)
        spoiled = log.seal()
        if topics != "ac" and qos < 2:
            log.put(LOG, spoiled.first, b"no batch")
    lost_and_found = list(log.reader.scan(0, log.head, is_a))
    assert [each for each in lost_and_found if isinstance(each, Lost)] == [
        Lost("a", 2, 3, 5),
        Lost("a", 5, 5, 8),
    ]
    found = [each for each in lost_and_found if not isinstance(each, Lost)]
    assert [run.offset for run in readable(found)] == [1, 9]
    log.remove(TOPICS, 3)
    assert [each for each in log.reader.scan(0, log.head, is_a) if isinstance(each, Lost)] == [
        Lost("a", 5, 5, 8)
    ]


def test_a_scan_reads_no_batch_that_has_nothing_for_it(
    log: StoredLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic, qos in (("a", 0), ("c", 1), ("a", 1)):
        log.commit_each(topic, qos=qos)
        log.seal()
    looked_at: list[bytes] = []
    get = log.store.get

    def note(family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        looked_at.extend(keys if family == LOG else ())
        return get(family, keys)

    monkeypatch.setattr(log.store, "get", note)
    assert [run.offset for run in readable(log.reader.scan(0, 3, is_a))] == [3]
    assert looked_at == [offset_key(3)]


# Arrow


def batches_of(span: ArrowSpan) -> list[pa.RecordBatch]:
    """What a reader at the other end makes of streams that come one after another."""
    body, found = pa.BufferReader(b"".join(span.streams)), []
    while body.tell() < body.size():
        with pa.ipc.open_stream(body) as stream:
            found += list(stream)
    return found


def rows_of(span: ArrowSpan) -> list[Message]:
    return messages_in(run for batch in batches_of(span) for run in to_runs(batch))


def test_sealed_batches_leave_as_they_are_stored(log: StoredLog) -> None:
    write_three_batches(log)
    span = log.reader.arrow(0, 6, ALL)
    assert span == ArrowSpan(tuple(log.value(LOG, first) or b"" for first in (1, 3, 5)), 6, 6)
    is_all = log.reader.arrow(0, 6, ALL, lambda topic: True)
    assert is_all.streams == span.streams


def test_a_batch_that_is_wanted_whole_is_not_decoded(log: StoredLog) -> None:
    write_three_batches(log)
    stored = bytearray(log.value(LOG, 3) or b"")
    stored[-600:-8] = bytes(592)
    with pytest.raises(ValueError, match="not a batch"):
        decode_batch(bytes(stored), SCHEMA.names)
    log.put(LOG, 3, bytes(stored))
    for wanted in (None, lambda topic: True):
        span = log.reader.arrow(2, 4, ALL, wanted)
        assert span == ArrowSpan((bytes(stored),), 4, 2)
    assert log.reader.arrow(2, 4, ALL, None, ["topic", "payload"]).gaps == (Gap(3, 4, Reason.DAMAGED),)


def test_a_batch_that_has_nothing_for_a_reader_is_not_even_read(
    log: StoredLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topics in ("bc", "cb", "ac"):
        log.commit_each(*topics)
        log.seal()
    get, asked = log.store.get, list[str]()
    read: list[bytes] = []

    def wanted(topic: str) -> bool:
        asked.append(topic)
        return topic == "a"

    def note(family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        read.extend(keys if family == LOG else ())
        return get(family, keys)

    monkeypatch.setattr(log.store, "get", note)
    span = log.reader.arrow(0, 6, ALL, wanted)
    assert (span.until, rows_of(span)) == (6, log.messages[4:5])
    assert read == [offset_key(5)]
    assert len(asked) == len(set(asked))


def test_where_it_is_not_known_which_topics_a_batch_has_it_is_looked_into(log: StoredLog) -> None:
    write_three_batches(log)
    for first in (1, 3, 5):
        log.put(TOPICS, first, b"nonsense")
    assert rows_of(log.reader.arrow(0, 6, ALL, is_a)) == [row for row in log.messages if is_a(row[1])]


def test_a_value_that_is_not_a_stream_is_a_gap_without_being_decoded(log: StoredLog) -> None:
    write_three_batches(log)
    log.put(LOG, 3, b"whatever it is")
    for wanted in (None, lambda topic: True):
        span = log.reader.arrow(0, 6, ALL, wanted)
        assert span.gaps == (Gap(3, 4, Reason.DAMAGED),)
        assert rows_of(span) == [row for row in log.messages if row[0] not in (3, 4)]


def test_a_batch_with_another_schema_is_converted_to_ours(log: StoredLog) -> None:
    write_three_batches(log)
    batch = decode_batch(log.value(LOG, 3) or b"").replace_schema_metadata({"made": "elsewhere"})
    log.put(LOG, 3, encode_batch(batch))
    span = log.reader.arrow(0, 6, ALL, lambda topic: True)
    assert {bytes(cut(stream).schema) for stream in span.streams} == {bytes(cut(encode_end(None, {})).schema)}
    assert rows_of(span) == log.messages


def test_every_stream_has_the_schema_that_the_last_one_has(log: StoredLog) -> None:
    write_mixed(log)
    for columns in (None, ["payload"], ["topic", "offset"], ["door", "client_id", "properties"]):
        for wanted in (is_a, lambda topic: True):
            span = log.reader.arrow(0, log.head, 500, wanted, columns)
            schemas = {bytes(cut(stream).schema) for stream in span.streams}
            assert schemas == {bytes(cut(encode_end(columns, {"key": "value"})).schema)}


def test_the_public_columns_are_those_of_every_batch() -> None:
    assert list(LOG_COLUMNS) == SCHEMA.names


@pytest.mark.parametrize("limit_rows", [1, 2, 3, 7, 40, 10_000])
@pytest.mark.parametrize("wanted", [None, is_a, lambda topic: True], ids=["all", "some", "each"])
def test_a_limit_of_rows_is_exact_and_reading_continues_after_it(
    log: StoredLog, limit_rows: int, wanted: Wanted | None
) -> None:
    write_mixed(log)
    expected = [row for row in log.messages if wanted is None or wanted(row[1])]
    found: list[Message] = []
    after = 0
    while after < log.head:
        span = log.reader.arrow(after, log.head, ALL, wanted, None, limit_rows)
        rows = rows_of(span)
        assert span.rows == len(rows) == min(limit_rows, len(expected) - len(found))
        assert not rows or rows[-1][0] <= span.until
        found += rows
        after = span.until
    assert found == expected


def test_a_limit_of_rows_leaves_what_is_missing_behind_it_to_the_next(log: StoredLog) -> None:
    log.commit(make_run("a", b"1"), make_run("a", b"2"), holes=[(3, 5)])
    log.commit_each("a")
    span = log.reader.arrow(0, 6, ALL, None, None, 2)
    assert (span.until, span.gaps) == (2, ())
    assert log.reader.arrow(2, 6, ALL).gaps == (Gap(3, 5, Reason.NEVER_STORED),)


def test_a_read_that_finds_nothing_of_much_ends_and_gets_on(log: StoredLog) -> None:
    for _ in range(40):
        log.commit(*[make_run("c", bytes(100)) for _ in range(20)])
        log.seal()
    reader = Reader(log.store, log.index, "node", work_bytes=2_000)
    spans: list[ArrowSpan] = []
    while not spans or spans[-1].until < log.head:
        spans.append(reader.arrow(spans[-1].until if spans else 0, log.head, ALL, is_a))
    assert 1 < len(spans) < 40
    assert not any(span.streams or span.gaps for span in spans)


# Times


@pytest.mark.parametrize("is_sealed", [True, False])
def test_the_first_message_of_a_time_is_found(log: StoredLog, is_sealed: bool) -> None:
    for _ in range(4):
        log.commit(make_run("a", b"1"), make_run("a", b"2", b"3"), skipped=2)
    if is_sealed:
        log.seal()
        log.commit_each("b")
    times = {run.offset: run.published_at for run in log.reader.runs(0, log.head, ALL, None).runs}
    for wall_us in range(NOON + 3, NOON + log.head + 2):
        later = [offset for offset, time in times.items() if time >= wall_us]
        expected = min(later) - 1 if later else log.head
        assert log.reader.find_time(wall_us, log.head) == expected


def test_a_time_before_everything_that_is_left_may_be_among_what_has_left(log: StoredLog) -> None:
    log.commit_each(*"abc")
    log.trim(3)
    assert log.reader.find_time(NOON - 1, 3) == 0
    assert log.reader.find_time(NOON + 3, 3) == 2


def test_a_time_is_found_behind_what_is_damaged(log: StoredLog) -> None:
    log.commit_each(*"abc")
    log.put(ROWS, 2, b"nonsense")
    assert log.reader.find_time(NOON + 2, 3) == 2


def test_an_empty_log_has_no_times(log: StoredLog) -> None:
    assert log.reader.find_time(NOON, 0) == 0


# Portions


def test_portions_are_computed_without_reading_data(log: StoredLog) -> None:
    write_three_batches(log)
    for first in (1, 3, 5):
        log.put(LOG, first, b"whatever it is")
    portions = log.reader.portions(Bounds(0, 6), 3, None).parts
    assert [(each.after, each.until, each.rows) for each in portions] == [(0, 2, 2), (2, 4, 2), (4, 6, 2)]


def test_a_portion_counts_the_rows_that_are_asked_for_where_that_is_known(log: StoredLog) -> None:
    log.commit_each(*"abcab")
    log.seal()
    log.commit_each(*"cb")
    (whole,) = log.reader.portions(Bounds(0, 7), 1, is_a).parts
    assert whole.rows == 2 + 2, "of what is not sealed, all may be"
    assert log.reader.portions(Bounds(0, 5), 1, is_a).parts[0].rows == 2
    assert log.reader.portions(Bounds(0, 5), 1, None).parts[0].rows == 5


def write_reserved(log: StoredLog, *batches: str) -> None:
    """Batches with a message for each letter; `$` stands for a topic that begins with it."""
    for topics in batches:
        log.commit(*(make_run(f"{topic}/x", b"1") for topic in topics))
        log.seal()


def test_a_read_of_all_public_topics_does_not_read_their_names(log: StoredLog) -> None:
    write_reserved(log, "abc", "a$b$", "$$")
    for first in (1, 4, 8):
        log.put(TOPICS, first, b"nonsense")
    span = log.reader.arrow(0, 9, ALL, is_public)
    assert span.streams[0] == log.value(LOG, 1), "unconverted"
    assert [row[1] for row in rows_of(span)] == ["a/x", "b/x", "c/x", "a/x", "b/x"]
    assert names_beside(span) == {}
    portions = log.reader.portions(Bounds(0, 9), 9, is_public).parts
    assert [(each.after, each.until, each.rows) for each in portions] == [(0, 3, 3), (3, 9, 2)]


def test_of_an_older_batch_the_names_tell_what_is_public(log: StoredLog) -> None:
    write_reserved(log, "abc", "a$b$", "$$")
    older = [replace(piece, reserved=None) for piece in log.index.after(0)]
    reader = Reader(log.store, Index(older), "node")
    span, now = (each.arrow(0, 9, ALL, is_public) for each in (reader, log.reader))
    assert rows_of(span) == rows_of(now)
    assert span.streams[0] == log.value(LOG, 1)
    bounds = Bounds(0, 9)
    assert reader.portions(bounds, 9, is_public) == log.reader.portions(bounds, 9, is_public)


def test_portions_tell_what_is_known_to_be_missing_of_them(log: StoredLog) -> None:
    log.commit_each(*"abc")
    log.commit(make_run("a", b"4"), holes=[(5, 6)])
    log.trim(3)
    log.index.add(Piece(9, 10, 2, 100, NOON, is_sealed=False))  # the one before it is gone
    known = [Gap(1, 2, Reason.RETENTION), Gap(5, 6, Reason.NEVER_STORED), Gap(7, 8, Reason.DAMAGED)]
    assert log.reader.portions(Bounds(0, 10), 2, None).gaps == tuple(known)
    assert log.reader.portions(Bounds(1, 5), 2, is_a).gaps == (
        Gap(2, 2, Reason.RETENTION),
        Gap(5, 5, Reason.NEVER_STORED),
    )
    assert log.reader.portions(Bounds(0, 10, limit_rows=1), 1, None).gaps == (known[0],)
    assert log.reader.portions(Bounds(8, 10), 1, None).gaps == ()


def test_what_is_not_sealed_is_converted_so_that_the_newest_message_is_there(log: StoredLog) -> None:
    write_mixed(log)
    span = log.reader.arrow(0, log.head, ALL)
    assert rows_of(span) == log.messages
    assert (span.rows, span.until, span.gaps) == (len(log.messages), log.head, ())
    assert all(batch.schema.equals(SCHEMA) for batch in batches_of(span))
    assert batches_of(span)[-1].column("node_id").to_pylist()[-1] == "node"


@pytest.mark.parametrize("wanted", [None, is_a], ids=["all", "each"])
@pytest.mark.parametrize("columns", [None, ["logged_at"], ["logged_at", "payload"]])
def test_batches_from_before_a_column_are_served_with_the_others(
    log: StoredLog, wanted: Wanted | None, columns: list[str] | None
) -> None:
    log.commit(make_run("a", b"1"), make_run("a/b", b"2"))
    log.seal()
    log.put(LOG, 1, encode_batch(decode_batch(log.value(LOG, 1) or b"").drop_columns(["logged_at"])))
    log.commit_each("a", "a/b")
    log.seal()
    log.commit_each("a")
    span = log.reader.arrow(0, log.head, ALL, wanted, columns)
    batches = batches_of(span)
    names = SCHEMA.names if columns is None else columns
    assert all(batch.schema == pa.schema([SCHEMA.field(name) for name in names]) for batch in batches)
    rows = [row for batch in batches for row in batch.to_pylist()]
    when = datetime.fromtimestamp(NOON / 1_000_000, UTC)
    assert [row["logged_at"] for row in rows] == [None, None, when, when, when]
    assert rows_of(log.reader.arrow(0, log.head, ALL, wanted)) == log.messages
    assert messages_in(log.reader.runs(0, log.head, ALL, None).runs) == log.messages


@pytest.mark.parametrize(("after", "until"), [(0, 3), (1, 5), (3, 4), (2, 9), (8, 8)])
def test_a_part_of_the_log_is_cut_exactly(log: StoredLog, after: int, until: int) -> None:
    write_three_batches(log)
    log.commit(make_run("a", b"1", b"2", b"3"))
    span = log.reader.arrow(after, until, ALL)
    expected = [message for message in log.messages if after < message[0] <= until]
    assert (rows_of(span), span.rows, span.until) == (expected, len(expected), until)


def test_wanted_topics_and_columns_are_all_that_leaves(log: StoredLog) -> None:
    write_mixed(log)
    span = log.reader.arrow(0, log.head, ALL, is_a, ["payload", "topic"])
    expected = [(message[3], message[1]) for message in log.messages if is_a(message[1])]
    batches = batches_of(span)
    assert all(batch.schema.names == ["payload", "topic"] for batch in batches)
    rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    assert (rows, span.rows) == (expected, len(expected))


def test_a_few_rows_do_not_carry_the_names_of_all_others(log: StoredLog) -> None:
    chance = random.Random(5)
    others = [make_run(f"c/{chance.randbytes(40).hex()}", b"1") for _ in range(1_000)]
    log.commit(*others, make_run("a", b"1"))
    for _ in range(2):
        span = log.reader.arrow(0, log.head, ALL, is_a)
        assert span.rows == 1
        assert len(span.streams[0]) < 5_000
        assert batches_of(span)[0].schema.equals(SCHEMA)
        log.seal()
        log.commit_each("c")


NAMES = [field.name for field in SCHEMA if pa.types.is_dictionary(field.type)]


def names_beside(span: ArrowSpan) -> dict[str, set[object]]:
    """Names that a reader is told and that no row has, by their column."""
    told: dict[str, set[object]] = {}
    for batch in batches_of(span):
        for name in {*NAMES} & {*batch.schema.names}:
            column = batch.column(name)
            told.setdefault(name, set()).update({*column.dictionary.to_pylist()} - {*column.to_pylist()})
    return {name: names for name, names in told.items() if names}


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize("columns", [None, ["payload", "topic", "client_id"]])
@pytest.mark.parametrize(
    ("after", "until", "wanted", "limit_rows"),
    [(0, 60, is_a, None), (0, 60, None, 31), (29, 60, None, None), (0, 31, None, None), (9, 60, is_a, 20)],
)
def test_dictionaries_have_no_names_of_other_rows(
    log: StoredLog,
    is_sealed: bool,
    columns: list[str] | None,
    after: int,
    until: int,
    wanted: Wanted | None,
    limit_rows: int | None,
) -> None:
    mine = Properties(content_type="text/plain")
    log.commit(*(make_run("a", b"%d" % number, client_id="ann", properties=mine) for number in range(30)))
    theirs = Properties(content_type="secret/kind")
    log.commit(*(make_run("c/secret", b"1", client_id="bob", properties=theirs) for _ in range(30)))
    if is_sealed:
        log.seal()
    span = log.reader.arrow(after, until, ALL, wanted, columns, limit_rows)
    assert span.rows
    assert names_beside(span) == {}


@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_batch_leaves_unconverted_only_if_every_topic_of_it_is_asked_for(
    log: StoredLog, is_sealed: bool
) -> None:
    log.commit(*(make_run("a", b"1") for _ in range(50)), make_run("c/secret", b"1"))
    if is_sealed:
        log.seal()
    span = log.reader.arrow(0, log.head, ALL, is_a)
    assert (span.rows, names_beside(span)) == (50, {})
    assert b"c/secret" not in b"".join(span.streams)


def test_arrow_is_read_in_chunks_too(log: StoredLog) -> None:
    chance = random.Random(3)
    for number in range(30):
        log.commit(*[make_run("a", chance.randbytes(100)) for _ in range(10)])
        if number % 3 == 2 and number < 20:
            log.seal()
    spans: list[ArrowSpan] = []
    while not spans or spans[-1].until < log.head:
        spans.append(log.reader.arrow(spans[-1].until if spans else 0, log.head, 6_000))
    assert [message for span in spans for message in rows_of(span)] == log.messages
    assert all(sum(map(len, span.streams)) < 20_000 for span in spans)
    assert len(spans) > 4
    assert all(one.until < other.until for one, other in pairwise(spans))


def test_what_is_not_sealed_is_read_in_chunks_as_well(log: StoredLog) -> None:
    for _ in range(20):
        log.commit(make_run("a", bytes(1_000)))
    span = log.reader.arrow(0, log.head, 5_000)
    assert (span.rows, span.until) == (5, 5)


def test_frames_that_could_not_be_sealed_keep_their_place_before_batches(log: StoredLog) -> None:
    log.commit_each(*"aa")
    left = log.frames.pop(0)
    log.seal()
    log.commit_each("a")
    assert (left.first, [message[0] for message in rows_of(log.reader.arrow(0, 3, ALL))]) == (1, [1, 2, 3])
    assert messages_in(log.reader.runs(0, 3, ALL, None).runs) == log.messages


def test_a_stream_of_what_is_not_sealed_is_no_larger_than_a_batch(log: StoredLog) -> None:
    for _ in range(5):
        log.commit(make_run("a", *[b"1"] * 5_000))
    span = log.reader.arrow(0, log.head, ALL)
    assert [batch.num_rows for batch in batches_of(span)] == [10_000, 10_000, 5_000]


def test_nothing_to_tell_is_no_stream(log: StoredLog) -> None:
    log.commit_each(*"cc")
    assert log.reader.arrow(0, 2, ALL, is_a) == ArrowSpan((), 2, 0)
    log.seal()
    assert log.reader.arrow(0, 2, ALL, is_a) == ArrowSpan((), 2, 0)


@pytest.mark.parametrize("wanted", [None, is_a])
def test_frames_that_are_sealed_while_others_of_their_batch_were_read_do_not_come_twice(
    changing: tuple[StoredLog, ChangingIndex], wanted: Wanted | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = changing
    log.commit_each(*"aaaaaa")
    get, count = log.store.get, 0

    def get_then_seal(family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        nonlocal count
        count += 1
        if count == 3:
            log.seal()
        return get(family, keys)

    monkeypatch.setattr(log.store, "get", get_then_seal)
    monkeypatch.setattr("penstock.storage.disk.read.reader._BYTES_AT_ONCE", 1)
    span = log.reader.arrow(0, 6, ALL, wanted)
    assert (rows_of(span), span.gaps) == (log.messages, ())


def test_a_column_that_does_not_exist_is_refused(log: StoredLog) -> None:
    with pytest.raises(ValueError, match="colour"):
        log.reader.arrow(0, 0, ALL, None, ["offset", "colour"])


# Topics and sequences


def test_the_topics_of_every_piece_are_known(log: StoredLog) -> None:
    log.commit_each("a", "b", "a")
    log.seal()
    log.commit(make_run("b", b"1", b"2", qos=2))
    log.commit(skipped=1)
    found = [
        (
            piece.first,
            {topic: (each.first, each.last, each.count, each.qos) for topic, each in topics.items()},
        )
        for piece, topics in log.reader.topics_between(0, log.head)
    ]
    assert found == [(1, {"a": (1, 2, 2, 1), "b": (1, 1, 1, 1)}), (4, {"b": (2, 3, 2, 2)})]
    log.put(TOPICS, 1, b"nonsense")  # then the batch itself is asked
    assert [set(topics) for _, topics in log.reader.topics_between(0, log.head)] == [{"a", "b"}, {"b"}]
    log.put(LOG, 1, b"nonsense")
    assert [set(topics) for _, topics in log.reader.topics_between(0, log.head)] == [{"b"}]


def write_sequences(log: StoredLog) -> None:
    """Of `a` the sequences 1 and 2 at offsets 1 and 3, 3 at 6, 4 at 8; others with similar names between."""
    log.commit_each("a", "a/b", "a")
    log.seal()
    log.commit_each("a/b", "aa")
    log.seal()
    log.commit_each("a", "b")
    log.seal()
    log.commit_each("a", "aa", "zz")


@pytest.mark.parametrize(
    ("topic", "sequence", "offset"),
    [("a", 0, 0), ("a", 1, 0), ("a", 2, 0), ("a", 3, 5), ("a", 4, 7), ("aa", 2, 8), ("zz", 1, 9)],
)
def test_a_sequence_is_found_whether_it_is_sealed_or_not(
    log: StoredLog, topic: str, sequence: int, offset: int
) -> None:
    write_sequences(log)
    assert log.reader.find_sequence(topic, sequence) == offset


@pytest.mark.parametrize(("topic", "sequence"), [("a", 5), ("a/b", 3), ("a/", 1), ("", 1), ("zzz", 1)])
def test_a_sequence_that_was_not_given_is_not_found(log: StoredLog, topic: str, sequence: int) -> None:
    write_sequences(log)
    assert log.reader.find_sequence(topic, sequence) is None


def test_a_sequence_that_is_sealed_while_it_is_looked_for_is_found(
    changing: tuple[StoredLog, ChangingIndex],
) -> None:
    log, index = changing
    log.commit_each("b", "a")
    index.on_unsealed = log.seal
    assert log.reader.find_sequence("a", 1) == 0
    log.commit_each("a")
    index.on_asked = log.seal
    assert log.reader.find_sequence("a", 2) == 2


def test_the_last_sequence_of_a_topic_outlives_its_messages(log: StoredLog) -> None:
    write_sequences(log)
    log.trim(8)
    asked = ("a", "a/b", "aa", "b", "zz", "")
    known = {topic: log.reader.last_sequence(topic) for topic in asked}
    together = log.reader.last_sequences(asked)
    assert {topic: together.get(topic, 0) for topic in asked} == known
    assert known == {"a": 3, "a/b": 2, "aa": 1, "b": 1, "zz": 0, "": 0}  # of what was sealed


# What it costs


def test_what_was_read_in_part_is_kept_for_the_rest_but_not_more_than_allowed(log: StoredLog) -> None:
    for _ in range(3):
        log.commit(*[make_run("a", bytes(100)) for _ in range(10)])
        log.seal()
    log.reader.runs(0, 30, 500, None)
    log.put(LOG, 1, b"nonsense")
    assert log.reader.runs(5, 10, ALL, None).gaps == ()  # it was still there
    log.reader = Reader(log.store, log.index, recent_bytes=0)
    log.reader.runs(10, 30, 500, None)
    log.put(LOG, 11, b"nonsense")
    assert log.reader.runs(15, 20, ALL, None).gaps == (Gap(16, 20, Reason.DAMAGED),)


def test_reading_rows_does_not_import_arrow(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path / "data")
    StoredLog(store).commit_each(*"aaa")
    store.close()
    script = (
        "import sys; from pathlib import Path; from penstock.storage.disk.read.reader import Reader; "
        "from penstock.storage.disk.recovery.opening import open_store; "
        "from penstock.storage.disk.recovery.survey import survey; "
        "store, _ = open_store(Path(sys.argv[1])); index = survey(store, None).index; "
        "assert len(Reader(store, index).runs(0, 3, 1000, None).runs) == 3; store.close(); "
        "sys.exit('pyarrow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script, str(tmp_path / "data")], check=False).returncode == 0


@pytest.mark.parametrize("wanted", [None, lambda topic: True], ids=["all", "asked"])
@pytest.mark.parametrize("columns", [None, ["topic"]], ids=["whole", "columns"])
def test_a_limit_that_ends_with_a_sealed_batch_ends_there(
    log: StoredLog, wanted: Wanted | None, columns: list[str] | None
) -> None:
    for _ in range(2):
        for number in range(3):
            log.commit(make_run("a", b"%d" % number))
        log.seal()
    span = log.reader.arrow(0, log.head, ALL, wanted, columns, 3)
    assert (span.rows, span.until) == (3, 3)
