"""Sealing: all committed rows become batches, once, and unsealed rows stay."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from penstock.errors import StorageUnavailable
from penstock.runs import Run
from penstock.storage.disk.pieces import sealing
from penstock.storage.disk.pieces.arrow_columns import decode_batch, to_runs
from penstock.storage.disk.pieces.frames import (
    Extent,
    Frame,
    Range,
    decode_extents,
    decode_summary,
    encode_frame,
)
from penstock.storage.disk.pieces.index import Index
from penstock.storage.disk.pieces.piece import Piece
from penstock.storage.disk.pieces.sealing import Sealer
from penstock.storage.disk.pieces.sealing_process import SealingFailed
from penstock.storage.disk.recovery.opening import open_store
from penstock.storage.disk.rocksdb.errors import DamagedData, StorageFull
from penstock.storage.disk.rocksdb.layout import (
    INDEX,
    LOG,
    ROWS,
    SEQUENCES,
    TOPICS,
    offset_key,
    offset_of,
    pack_place,
    sequence_key,
)
from penstock.storage.disk.rocksdb.store import Changes, Store
from tests.support.samples import make_run, payloads_of
from tests.support.waiting import until_sync


class Ground:
    """A store with frames, and a sealer for it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.index = Index()
        self.errors: list[Exception] = []
        self.sealers: list[Sealer] = []

    def sealer(self, messages: int = 10, index: Index | None = None) -> Sealer:
        sealer = Sealer(
            self.store, index or self.index, "node", messages=messages, on_error=self.errors.append
        )
        self.sealers.append(sealer)
        return sealer

    def commit(self, *runs: Run, last: int | None = None, holes: tuple[Range, ...] = ()) -> Piece:
        """A frame of these runs, from the next offset on."""
        first = offset = self.index.last_offset + 1
        for run in runs:
            run.offset = offset
            offset += run.count
        frame = Frame(1, first, last or max(offset - 1, first), 1_000 + first, runs, holes)
        data = encode_frame(frame)
        changes = Changes()
        changes.put(ROWS, offset_key(first), data)
        self.store.write(changes, sync=False)
        piece = Piece(first, frame.last, offset - first, len(data), 1_000, is_sealed=False, holes=holes)
        self.index.add(piece)
        return piece

    def commit_singles(self, count: int, topic: str = "a") -> None:
        """Frames of one message each; the sequence is the offset."""
        for _ in range(count):
            offset = self.index.last_offset + 1
            self.commit(make_run(topic, b"%d" % offset, sequence=offset))

    def spoil(self, piece: Piece) -> None:
        changes = Changes()
        changes.put(ROWS, offset_key(piece.first), b"\xc1 no frame")
        self.store.write(changes, sync=False)

    def rows(self) -> list[int]:
        return [offset_of(key) for key in self.store.scan_keys(ROWS)]

    def batches(self) -> list[list[int]]:
        """The offsets of the messages in each batch."""
        return [[run.offset for run in to_runs(decode_batch(data))] for _, data in self.store.scan(LOG)]

    def pieces(self) -> list[tuple[int, int, bool]]:
        return [(piece.first, piece.last, piece.is_sealed) for piece in self.index.after(0)]


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    monkeypatch.setattr(sealing, "START_DELAY_S", 0.0)
    store, _ = open_store(tmp_path / "data")
    ground = Ground(store)
    yield ground
    for sealer in ground.sealers:
        sealer.stop()
    store.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "_FIRST_DELAY_S", 0.01)


def test_frames_become_a_batch_with_everything_that_belongs_to_it(ground: Ground) -> None:
    first = ground.commit(make_run("a", b"1", b"2", qos=1, sequence=4), make_run("b", b"3", sequence=1))
    last = ground.commit(make_run("a", b"4", sequence=6), last=9, holes=((7, 8),))
    assert ground.sealer().seal_now() == 4
    ((key, stream),) = ground.store.scan(LOG)
    assert key == offset_key(first.first)
    runs = to_runs(decode_batch(stream))
    assert [(run.topic, run.sequence, run.offset, payloads_of(run)) for run in runs] == [
        ("a", 4, 1, [b"1"]),
        ("a", 5, 2, [b"2"]),
        ("b", 1, 3, [b"3"]),
        ("a", 6, 4, [b"4"]),
    ]
    ((key, value),) = ground.store.scan(INDEX)
    summary = decode_summary(value)
    assert key == offset_key(first.first)
    assert (summary.first, summary.last, summary.count) == (first.first, last.last, 4)
    assert (summary.bytes, summary.holes) == (len(stream), ((7, 8),))
    ((key, value),) = ground.store.scan(TOPICS)
    assert key == offset_key(first.first)
    assert decode_extents(value) == {"a": Extent(4, 6, 3, 1), "b": Extent(1, 1, 1, 0)}
    assert dict(ground.store.scan(SEQUENCES)) == {
        sequence_key("a", 4): pack_place(1, 6),
        sequence_key("b", 1): pack_place(1, 1),
    }
    assert ground.rows() == []
    assert ground.index.after(0) == [
        Piece(1, 9, 4, len(stream), summary.began_at, is_sealed=True, holes=((7, 8),), reserved=0)
    ]


def test_batches_are_made_of_whole_frames_until_there_are_enough_messages(ground: Ground) -> None:
    for _ in range(7):
        ground.commit(make_run("a", b"1", b"2", b"3"))
    assert ground.sealer(messages=8).seal_now() == 21
    assert [len(batch) for batch in ground.batches()] == [9, 9, 3]
    assert ground.pieces() == [(1, 9, True), (10, 18, True), (19, 21, True)]


def test_large_frames_make_smaller_batches(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "BATCH_BYTES", 5_000)
    for _ in range(4):
        ground.commit(make_run("a", bytes(3_000)))
    ground.sealer().seal_now()
    assert ground.batches() == [[1, 2], [3, 4]]


def test_frames_without_messages_are_sealed_to_an_entry_of_the_index_alone(ground: Ground) -> None:
    ground.commit(last=50)
    ground.commit(last=80, holes=((60, 61),))
    assert ground.sealer().seal_now() == 0
    (value,) = [value for _, value in ground.store.scan(INDEX)]
    summary = decode_summary(value)
    assert (summary.first, summary.last, summary.count, summary.bytes) == (1, 80, 0, 0)
    assert summary.holes == ((60, 61),)
    assert (ground.rows(), ground.batches()) == ([], [])
    assert ground.pieces() == [(1, 80, True)]


def test_many_topics_are_noted_in_small_writes_before_the_batch(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [make_run(f"topic/{number}", b"x", sequence=7) for number in range(2_500)]
    ground.commit(*runs)
    writes: list[int] = []
    write = ground.store.write

    def note(changes: Changes, *, sync: bool) -> None:
        writes.append(len(changes))
        assert ground.rows() == [1]
        assert not sync
        write(changes, sync=sync)

    monkeypatch.setattr(ground.store, "write", note)
    ground.sealer().seal_now()
    assert writes == [1_000, 1_000, 500, 4]
    assert len(list(ground.store.scan_keys(SEQUENCES))) == 2_500


def test_nothing_to_seal_is_no_error(ground: Ground) -> None:
    assert ground.sealer().seal_now() == 0
    assert ground.index.after(0) == []


def test_what_was_sealed_before_is_left_alone(ground: Ground) -> None:
    ground.commit_singles(3)
    ground.sealer().seal_now()
    ground.commit_singles(2)
    assert ground.sealer().seal_now() == 2
    assert ground.batches() == [[1, 2, 3], [4, 5]]


def test_enough_messages_are_sealed_in_the_background(ground: Ground) -> None:
    sealer = ground.sealer(messages=10)
    sealer.start()
    for _ in range(25):
        ground.commit_singles(1)
        sealer.poke()
    until_sync(lambda: len(ground.batches()) == 2, "the number of batches was not 2")
    assert ground.batches() == [list(range(1, 11)), list(range(11, 21))]
    assert ground.rows() == [21, 22, 23, 24, 25]
    assert ground.errors == []


def test_what_was_left_unsealed_is_sealed_at_start(ground: Ground) -> None:
    ground.commit_singles(35)
    ground.sealer(messages=10).start()
    until_sync(lambda: len(ground.rows()) == 5, "the number of rows was not 5")
    assert [len(batch) for batch in ground.batches()] == [10, 10, 10]


def test_a_server_that_comes_up_is_left_alone_until_it_commits_something(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "START_DELAY_S", 3_600.0)
    ground.commit_singles(35)
    sealer = ground.sealer(messages=10)
    sealer.start()
    ground.commit_singles(1)
    assert ground.batches() == []
    sealer.poke()
    until_sync(lambda: len(ground.rows()) == 6, "the number of rows was not 6")


def test_frames_without_messages_count_too(ground: Ground) -> None:
    sealer = ground.sealer(messages=10)
    sealer.start()
    for number in range(1, 13):
        ground.commit(last=number * 100)
        sealer.poke()
    until_sync(
        lambda: ground.pieces() == [(1, 1_000, True), (1_001, 1_100, False), (1_101, 1_200, False)],
        "the pieces were not sealed",
    )
    assert len(ground.rows()) == 2


def test_topics_that_are_not_kept_do_not_hurry_the_sealer(ground: Ground) -> None:
    sealer = ground.sealer(messages=10)
    sealer.start()
    for number in range(1, 11):
        ground.commit(make_run("a", b"x"), last=number * 1_000)
        sealer.poke()
    until_sync(lambda: ground.rows() == [], "rows were not sealed")
    assert [len(batch) for batch in ground.batches()] == [10]


def test_few_large_messages_are_sealed_in_the_background_too(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "BATCH_BYTES", 10_000)
    sealer = ground.sealer(messages=1_000)
    sealer.start()
    until_sync(lambda: sealer._next_bytes > 0, "next bytes did not exceed 0")
    for _ in range(3):
        ground.commit(make_run("a", bytes(4_000)))
        sealer.poke()
    until_sync(lambda: ground.rows() == [], "rows were not sealed")


def test_the_size_of_what_waits_is_known_after_others_were_trimmed(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "BATCH_BYTES", 10_000)
    ground.commit(make_run("a", os.urandom(7_000)))
    ground.sealer().seal_now()
    sealer = ground.sealer(messages=1_000)
    sealer.start()
    ground.commit(make_run("a", bytes(6_000)))
    sealer.poke()
    until_sync(lambda: sealer._next_bytes > 13_000, "next bytes did not exceed 13000")
    ground.index.trim(2)
    ground.commit(make_run("a", bytes(6_000)))
    sealer.poke()
    until_sync(lambda: ground.rows() == [], "rows were not sealed")


def test_a_damaged_frame_stays_and_is_reported_once(ground: Ground) -> None:
    ground.commit_singles(3)
    damaged = ground.commit(make_run("a", b"x"))
    ground.spoil(damaged)
    ground.commit_singles(3)
    sealer = ground.sealer()
    assert sealer.seal_now() == 6
    assert ground.batches() == [[1, 2, 3], [5, 6, 7]]
    assert ground.rows() == [4]
    assert ground.pieces() == [(1, 3, True), (4, 4, False), (5, 7, True)]
    assert sealer.seal_now() == 0
    (error,) = ground.errors
    assert isinstance(error, DamagedData)
    assert (error.family, error.key) == (ROWS, offset_key(4))


@pytest.mark.parametrize("place", [0, 5])
def test_a_damaged_frame_at_either_end_does_not_stop_sealing(ground: Ground, place: int) -> None:
    ground.commit_singles(6)
    ground.spoil(ground.index.after(place, 1)[0])
    sealer = ground.sealer()
    assert sealer.seal_now() == 5
    ground.commit_singles(2)
    assert sealer.seal_now() == 2
    assert ground.rows() == [place + 1]
    assert len(ground.errors) == 1


def test_a_missing_frame_is_reported_and_skipped(ground: Ground) -> None:
    ground.commit_singles(5)
    changes = Changes()
    changes.delete(ROWS, offset_key(3))
    ground.store.write(changes, sync=False)
    assert ground.sealer().seal_now() == 4
    assert ground.batches() == [[1, 2], [4, 5]]
    (error,) = ground.errors
    assert isinstance(error, DamagedData)
    assert error.key == offset_key(3)


def test_a_frame_in_a_damaged_block_hinders_only_itself(ground: Ground) -> None:
    payloads = [os.urandom(20_000) for _ in range(5)]
    for payload in payloads:
        ground.commit(make_run("a", payload))
    ground.store.reopen()  # moves them into a table
    (table,) = [
        path for path in ground.store.path.rglob("*.sst") if payloads[2][5_000:5_100] in path.read_bytes()
    ]
    with table.open("r+b") as file:
        file.seek(table.read_bytes().index(payloads[2][5_000:5_100]))
        file.write(b"damage")
    assert ground.sealer().seal_now() == 4
    assert ground.batches() == [[1, 2], [4, 5]]
    (error,) = ground.errors
    assert isinstance(error, DamagedData)
    assert error.key == offset_key(3)


def test_no_batch_reaches_across_lost_offsets(ground: Ground) -> None:
    ground.commit_singles(2)
    ground.index.add(Piece(3, 9, 0, 0, 0, is_sealed=False))
    ground.commit_singles(2)
    pieces = [piece for piece in ground.index.after(0) if piece.first != 3]
    index = Index(pieces)
    ground.sealer(index=index).seal_now()
    assert ground.batches() == [[1, 2], [10, 11]]
    assert index.gaps(0, 11) == [(3, 9)]
    assert ground.errors == []


def test_rows_that_were_sealed_by_a_write_said_to_have_failed_are_found(ground: Ground) -> None:
    ground.commit_singles(4)
    believed = Index(ground.index.after(0))
    ground.sealer().seal_now()
    assert ground.sealer(index=believed).seal_now() == 0
    assert believed.after(0) == ground.index.after(0)
    assert ground.errors == []


def test_such_rows_are_found_though_the_first_of_them_have_left(ground: Ground) -> None:
    ground.commit_singles(4)
    believed = Index(ground.index.after(0))
    ground.sealer().seal_now()
    believed.trim(3)
    assert ground.sealer(index=believed).seal_now() == 0
    assert believed.after(0) == ground.index.after(0)
    assert ground.errors == []


def test_nothing_is_written_to_a_disk_without_room(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    ground.commit_singles(4)
    sealer = ground.sealer()
    with monkeypatch.context() as full:
        full.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=1, f_frsize=4_096))
        with pytest.raises(StorageFull):
            sealer.seal_now()
    assert list(ground.store.scan_keys(SEQUENCES)) == []
    assert sealer.seal_now() == 4


def test_a_store_that_refuses_writes_is_reported_once_and_retried(ground: Ground) -> None:
    ground.commit_singles(10)
    ground.store.needs_reopen = True
    sealer = ground.sealer()
    with pytest.raises(StorageUnavailable):
        sealer.seal_now()
    refusals: list[None] = []
    write = ground.store.write

    def count(changes: Changes, *, sync: bool) -> None:
        refusals.append(None)
        write(changes, sync=sync)

    ground.store.write = count  # type: ignore[method-assign]
    sealer.start()
    until_sync(lambda: len(refusals) > 2, "not more than 2 refusals")
    assert len(ground.rows()) == 10
    ground.store.reopen()
    until_sync(lambda: ground.rows() == [], "rows were not sealed")
    assert ground.batches() == [list(range(1, 11))]
    (error,) = ground.errors
    assert isinstance(error, StorageUnavailable)


def stop_worker(ground: Ground, sealer: Sealer) -> int:
    """Let it begin a batch and not end it; tells the process."""
    pid = sealer._process.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    ground.commit_singles(10)
    sealer.poke()
    until_sync(sealer._sealing.locked, "the sealer did not start")
    return pid


@pytest.fixture
def busy(ground: Ground) -> Sealer:
    """A sealer that has sealed offset 1 to 10."""
    ground.commit_singles(10)
    sealer = ground.sealer()
    sealer.start()
    until_sync(
        lambda: ground.pieces() == [(1, 10, True)] and not sealer._sealing.locked(),
        "the sealer did not finish",
    )
    return sealer


def test_a_worker_killed_in_the_middle_loses_nothing(
    ground: Ground, busy: Sealer, capfd: pytest.CaptureFixture[str]
) -> None:
    with capture_logs() as lines:
        os.kill(stop_worker(ground, busy), signal.SIGKILL)
        until_sync(lambda: ground.rows() == [], "rows were not sealed")
    assert ground.batches() == [list(range(1, 11)), list(range(11, 21))]
    assert [line["log_level"] for line in lines] == ["warning"]
    assert "ended with -9" in lines[0]["error"]
    assert ground.errors == []
    assert capfd.readouterr() == ("", "")


def test_a_process_that_dies_during_seal_now_raises(ground: Ground) -> None:
    sealer = ground.sealer()
    ground.commit_singles(1)
    sealer.seal_now()
    assert sealer._process.pid is not None
    os.kill(sealer._process.pid, signal.SIGKILL)
    ground.commit_singles(1)
    with pytest.raises(SealingFailed):
        sealer.seal_now()
    assert ground.rows() == [2]
    assert sealer.seal_now() == 1


def test_stopping_waits_for_the_seal_at_hand(
    ground: Ground, busy: Sealer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "_STOP_PATIENCE_S", 50)
    ground.commit_singles(10)
    pid = stop_worker(ground, busy)
    os.kill(pid, signal.SIGCONT)
    busy.stop()
    assert ground.rows()[0] == 21
    assert ground.batches()[1] == list(range(11, 21))


def test_stopping_does_not_wait_for_a_worker_that_hangs(
    ground: Ground, busy: Sealer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "_STOP_PATIENCE_S", 0.5)
    pid = stop_worker(ground, busy)
    with capture_logs() as lines:
        busy.stop()
    assert not Path(f"/proc/{pid}").exists()
    assert "penstock-sealer" not in [thread.name for thread in threading.enumerate()]
    assert ground.rows() == list(range(11, 21))
    assert (lines, ground.errors) == ([], [])


def test_a_paused_sealer_begins_nothing_and_stores_nothing(ground: Ground, busy: Sealer) -> None:
    pid = stop_worker(ground, busy)
    busy.pause()
    os.kill(pid, signal.SIGCONT)
    with busy.quiet():
        assert ground.rows() == list(range(11, 21))
    assert busy.seal_now() == 0
    busy.poke()
    assert ground.rows() == list(range(11, 21))
    busy.resume()
    until_sync(lambda: ground.rows() == [], "rows were not sealed")


def test_nothing_is_sealed_in_a_quiet_context(ground: Ground, busy: Sealer) -> None:
    with busy.quiet():
        ground.commit_singles(10)
        busy.poke()
        ground.index.trim(16)
        changes = Changes()
        changes.delete_range(ROWS, offset_key(0), offset_key(16))
        ground.store.write(changes, sync=False)
        ground.commit_singles(5)
        busy.poke()
    until_sync(lambda: ground.rows() == [], "rows were not sealed")
    assert ground.batches()[-1] == list(range(16, 26))
    assert ground.errors == []


def test_a_sealer_can_be_stopped_without_ever_being_started(ground: Ground) -> None:
    ground.sealer().stop()
