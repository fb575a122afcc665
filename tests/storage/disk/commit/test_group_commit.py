"""Group commit: whole turns, one at a time, callbacks in order, and failures of the disk."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from penstock.core.durability.records import (
    BEHIND,
    MOVES,
    RETAINED,
    TABLES,
    BehindRecord,
    MovesRecord,
    RetainedRecord,
)
from penstock.core.ports.log import Ticket
from penstock.core.ports.turn import Sequencer
from penstock.core.runtime.clock import SystemClock
from penstock.errors import StorageUnavailable
from penstock.model import Door
from penstock.runs import Run
from penstock.storage.disk.commit import group_commit as commits_module
from penstock.storage.disk.commit import pending_commit as commit_module
from penstock.storage.disk.commit.durable_mark import DurableMark, MarkValue
from penstock.storage.disk.commit.group_commit import GroupCommit
from penstock.storage.disk.pieces.frames import Frame, decode_frame
from penstock.storage.disk.pieces.index import Index
from penstock.storage.disk.recovery.opening import open_store
from penstock.storage.disk.rocksdb.layout import ROWS
from penstock.storage.disk.rocksdb.store import Changes, Store
from penstock.storage.disk.state import DiskStateStore
from penstock.storage.open import Durability
from tests.support.samples import make_run, payloads_of
from tests.support.waiting import until

LIMIT_BYTES = 100_000


class Bench:
    """Commits over a real store, driven turn by turn."""

    def __init__(self, folder: Path, durability: Durability = "fsync") -> None:
        self.store, _ = open_store(folder)
        self.index = Index()
        self.mark = DurableMark.open(folder)
        self.sequencer = Sequencer(0)
        self.commits = GroupCommit(
            self.store,
            self.index,
            self.mark,
            self.sequencer,
            asyncio.get_running_loop(),
            SystemClock(),
            epoch=1,
            number=0,
            durability=durability,
            limit_bytes=LIMIT_BYTES,
        )
        self.state = DiskStateStore(self.store, self.commits, TABLES)
        self.told: list[tuple[Ticket, Exception | None]] = []

    def append(self, *payloads: bytes) -> Ticket:
        """Publish payloads of one length as one run, and ask to be told."""
        first = self.sequencer.head + 1
        self.sequencer.turn.runs.append(make_run("a", *payloads, qos=1, sequence=first, offset=first))
        self.sequencer.head += len(payloads)
        ticket = self.commits.open.number
        self.commits.when_committed(ticket, lambda failure: self.told.append((ticket, failure)))
        return ticket

    def end_turn(self, *, is_urgent: bool = True) -> None:
        self.commits.commit(self.sequencer.end_turn(is_urgent=is_urgent))

    def publish_unacknowledged(self, offset: int) -> None:
        """Publish a message at QoS 0 with this offset: it is accepted whatever the disk does."""
        self.sequencer.turn.runs.append(make_run("a", b"x", sequence=offset, offset=offset))
        self.sequencer.head = offset

    async def settle(self) -> None:
        """Wait until nothing is being written and nobody waits."""
        await until(lambda: self.commits.is_idle, "commits are still running", every_s=0.001)

    def frames(self) -> list[Frame]:
        return [decode_frame(value) for _, value in self.store.scan(ROWS)]

    def payloads(self) -> list[bytes]:
        return [payload for frame in self.frames() for run in frame.runs for payload in payloads_of(run)]

    def close(self) -> None:
        self.commits.close()
        self.mark.close()
        self.store.close()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


class Stubborn:
    """Makes a store's writes fail until it is told otherwise."""

    def __init__(
        self,
        store: Store,
        monkeypatch: pytest.MonkeyPatch,
        *,
        writes_anyway: bool = False,
        failures: int | None = None,
    ) -> None:
        self.is_failing = True
        write = store.write
        left = failures

        def fail(changes: Changes, *, sync: bool) -> None:
            nonlocal left
            if not self.is_failing:
                write(changes, sync=sync)
                return
            if writes_anyway:
                write(changes, sync=sync)
            left = None if left is None else left - 1
            self.is_failing = left != 0
            raise StorageUnavailable("the disk says no")

        monkeypatch.setattr(store, "write", fail)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Try again soon, so that tests are quick."""
    monkeypatch.setattr(commits_module, "RETRY_S", (0.005,))
    yield


async def test_appended_runs_are_stored_when_their_callback_is_called(bench: Bench) -> None:
    ticket = bench.append(b"1", b"2")
    bench.end_turn()
    assert not bench.commits.is_committed(ticket)
    await bench.settle()
    assert bench.commits.is_committed(ticket)
    assert bench.told == [(ticket, None)]
    assert bench.payloads() == [b"1", b"2"]
    assert bench.commits.last_offset == 2
    assert bench.mark.value == MarkValue(2, ticket, 1)


async def test_nothing_of_a_turn_that_is_not_over_is_written(bench: Bench) -> None:
    first = bench.append(b"1")
    bench.end_turn()
    bench.append(b"2")  # of a turn that lasts until the first commit has ended
    await until(
        lambda: bench.commits.is_committed(first), "the first message was not committed", every_s=0.001
    )
    await asyncio.sleep(0.02)
    assert bench.payloads() == [b"1"]
    bench.end_turn()
    await bench.settle()
    assert bench.payloads() == [b"1", b"2"]


async def test_turns_that_end_while_one_is_written_share_the_next_commit(bench: Bench) -> None:
    tickets = []
    for payload in (b"1", b"2", b"3"):
        tickets.append(bench.append(payload))
        bench.end_turn()
    await bench.settle()
    assert tickets == [1, 2, 2]
    assert bench.told == [(1, None), (2, None), (2, None)]
    assert [(frame.first, frame.last) for frame in bench.frames()] == [(1, 1), (2, 3)]


async def test_a_commit_takes_no_further_turn_when_it_is_full(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_module, "COMMIT_RUNS", 2)
    tickets = []
    for number in range(6):
        tickets.append(bench.append(b"%d" % number))
        bench.end_turn()
    await bench.settle()
    assert tickets == [1, 2, 2, 3, 3, 4]
    assert bench.payloads() == [b"%d" % number for number in range(6)]


async def test_a_disk_that_does_not_keep_up_is_a_failure_until_it_does(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_module, "COMMIT_RUNS", 1)
    for number in range(4):
        assert bench.commits.failure is None
        bench.append(b"%d" % number * 30_000)
        bench.end_turn()
    assert isinstance(bench.commits.failure, StorageUnavailable)
    await bench.settle()
    assert bench.commits.failure is None
    assert [payload[:1] for payload in bench.payloads()] == [b"0", b"1", b"2", b"3"]  # all that was taken


async def test_the_log_is_behind_from_half_of_the_limit_to_a_quarter(bench: Bench) -> None:
    caught_up: list[int] = []
    room = [bench.sequencer.room_bytes]
    with capture_logs() as logged:
        for _ in range(3):
            bench.append(b"x" * 20_000)
            bench.end_turn()
            room.append(bench.sequencer.room_bytes)
            if bench.commits.is_behind:
                bench.commits.when_caught_up(lambda: caught_up.append(bench.commits.queued_bytes))
        assert bench.commits.is_behind
        assert bench.commits.failure is None  # nothing is refused
        assert room[1] > room[2] > 0 > room[3]
        await bench.settle()
    assert not bench.commits.is_behind
    assert caught_up == [0]
    assert bench.sequencer.room_bytes == LIMIT_BYTES // 2
    assert [line["event"] for line in logged] == ["the disk does not keep up, publishers wait"]


async def test_what_asks_while_a_turn_is_built_is_called_back_after_its_commit(bench: Bench) -> None:
    """The room may be used up within a turn, and be there again before its end."""
    done: list[bool] = []
    bench.append(b"1")
    bench.commits.when_caught_up(lambda: done.append(True))
    assert bench.commits.is_behind
    bench.end_turn()
    await bench.settle()
    assert done == [True]


async def test_large_records_count_as_what_waits(bench: Bench) -> None:
    record = RetainedRecord(b"x" * 30_000, Door.MQTT, 0, "c")
    for number in range(2):
        bench.sequencer.turn.put(RETAINED, f"topic/{number}", record)
        bench.end_turn()
    assert bench.commits.queued_bytes > 60_000
    assert bench.commits.is_behind
    await until(lambda: not bench.commits.is_behind, "the records are not committed")
    assert bench.commits.queued_bytes == 0


@pytest.mark.parametrize("records", [0, 500], ids=["messages", "many records"])
async def test_a_failed_commit_ends_the_wait(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, records: int
) -> None:
    """Its messages are given up, so publishers have nothing to wait for, however many records are kept."""

    def fail(self: Store, changes: Changes, *, sync: bool) -> None:
        raise StorageUnavailable("the disk fails")

    monkeypatch.setattr(Store, "write", fail)
    done: list[Exception | None] = []
    bench.append(b"x" * 60_000)
    for number in range(records):
        bench.sequencer.turn.put(RETAINED, f"topic/{number}", RetainedRecord(b"", Door.MQTT, 0, "c"))
    bench.commits.when_caught_up(lambda: done.append(bench.commits.failure))
    bench.end_turn()
    await until(lambda: bool(done), "publishers still wait")
    assert str(done[0]) == "the disk fails"
    monkeypatch.undo()
    await bench.settle()


async def test_offsets_that_are_not_kept_are_covered_by_the_frames(bench: Bench) -> None:
    bench.append(b"1")
    bench.sequencer.head = 10
    bench.end_turn()
    bench.append(b"11")
    bench.end_turn()
    await bench.settle()
    assert [(frame.first, frame.last) for frame in bench.frames()] == [(1, 10), (11, 11)]
    assert bench.index.gaps(0, 11) == []


async def test_a_large_turn_is_one_commit_of_several_frames(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_module, "FRAME_BYTES", 1_000)
    tickets = {bench.append(bytes([number]) * 400) for number in range(10)}
    bench.end_turn()
    await bench.settle()
    assert tickets == {1}
    frames = bench.frames()
    assert len(frames) > 3
    assert [frame.first for frame in frames[1:]] == [frame.last + 1 for frame in frames[:-1]]
    assert frames[-1].last == 10


async def test_state_is_written_with_the_messages_of_its_turn(bench: Bench) -> None:
    bench.append(b"1")
    bench.sequencer.turn.put(BEHIND, "c", BehindRecord(7))
    bench.end_turn()
    await bench.settle()
    assert bench.told == [(1, None)]
    assert list(bench.state.scan(BEHIND)) == [("c", BehindRecord(7))]


async def test_changes_without_a_callback_are_delayed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits_module, "LAZY_S", 60.0)
    bench.sequencer.turn.put(BEHIND, "c", BehindRecord(7))
    bench.end_turn(is_urgent=False)
    await asyncio.sleep(0.02)
    assert bench.commits.open.number == 1  # not taken yet
    bench.append(b"1")
    bench.end_turn()
    await bench.settle()
    assert bench.frames()[0].first == 1
    assert bench.commits.is_committed(1)


async def test_changes_without_a_callback_are_written(bench: Bench) -> None:
    bench.sequencer.turn.put(BEHIND, "c", BehindRecord(7))
    bench.end_turn(is_urgent=False)
    await until(lambda: bench.commits.is_committed(1), "the first message was not committed")


async def test_a_callback_for_a_turn_without_changes_is_called(bench: Bench) -> None:
    told: list[Exception | None] = []
    bench.commits.when_committed(bench.commits.open.number, told.append)
    bench.end_turn()
    await bench.settle()
    assert told == [None]


async def test_a_failed_commit_is_reported_and_its_messages_are_discarded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.append(b"1")
    bench.end_turn()
    await bench.settle()
    disk = Stubborn(bench.store, monkeypatch)
    refused = bench.append(b"2")
    bench.sequencer.turn.put(BEHIND, "c", BehindRecord(7))
    bench.end_turn()
    await bench.settle()
    assert [ticket for ticket, failure in bench.told if failure is not None] == [refused]
    assert isinstance(bench.commits.failure, StorageUnavailable)
    assert bench.commits.last_offset == 1
    late: list[Exception | None] = []
    bench.commits.when_committed(refused, late.append)
    assert late == [bench.commits.failure]
    disk.is_failing = False
    await until(lambda: bench.commits.failure is None, "the commits did not recover from their failure")
    bench.append(b"3")
    bench.end_turn()
    await bench.settle()
    assert bench.payloads() == [b"1", b"3"]
    assert [hole for frame in bench.frames() for hole in frame.holes] == [(2, 2)]
    assert bench.index.gaps(0, 3) == []
    assert list(bench.state.scan(BEHIND)) == [("c", BehindRecord(7))]  # the state was kept and written


async def test_a_refused_commit_that_reached_the_disk_all_the_same_is_taken_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_module, "FRAME_BYTES", 300)
    disk = Stubborn(bench.store, monkeypatch, writes_anyway=True)
    for number in range(5):
        bench.append(bytes([number]) * 200)
    bench.end_turn()
    await bench.settle()
    assert len(bench.frames()) > 1  # it is there, but nobody was told so
    disk.is_failing = False
    await until(lambda: bench.commits.failure is None, "the commits did not recover from their failure")
    assert bench.payloads() == []
    assert [(frame.first, frame.last, frame.holes) for frame in bench.frames()] == [(1, 5, ((1, 5),))]


async def test_messages_taken_while_nothing_can_be_written_leave_a_hole(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Stubborn(bench.store, monkeypatch)
    bench.append(b"1")
    bench.end_turn()
    await bench.settle()
    bench.publish_unacknowledged(2)
    bench.end_turn()
    disk.is_failing = False
    await until(lambda: bench.commits.failure is None, "the commits did not recover from their failure")
    assert [hole for frame in bench.frames() for hole in frame.holes] == [(1, 2)]


async def test_with_durability_memory_nothing_waits(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "memory")
    assert bench.commits.is_committed(bench.append(b"1"))
    bench.end_turn()
    await bench.settle()
    assert bench.payloads() == [b"1"]
    bench.close()


@pytest.mark.parametrize(("durability", "syncs"), [("fsync", True), ("os", False), ("memory", False)])
async def test_only_fsync_syncs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: Durability, syncs: bool
) -> None:
    bench = Bench(tmp_path, durability)
    synced: list[bool] = []
    monkeypatch.setattr(bench.store, "write", lambda changes, sync: synced.append(sync))
    bench.append(b"1")
    bench.end_turn()
    await bench.settle()
    assert synced == [syncs]
    bench.close()


async def test_what_is_left_is_written_at_the_close(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for number in range(3):
        bench.append(b"%d" % number)
        bench.end_turn()
    bench.close()
    again = Bench(tmp_path)
    assert again.payloads() == [b"0", b"1", b"2"]
    again.close()


async def test_nothing_that_came_after_a_commit_that_failed_at_the_close_is_there_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    disk = Stubborn(bench.store, monkeypatch, failures=1)
    for number in range(3):
        bench.append(b"%d" % number)
        bench.sequencer.turn.put(BEHIND, f"c{number}", BehindRecord(number))
        bench.end_turn()
    bench.close()
    assert not disk.is_failing
    again = Bench(tmp_path)
    assert [(frame.first, frame.last, frame.holes) for frame in again.frames()] == [(1, 3, ((1, 3),))]
    assert dict(again.state.scan(BEHIND)) == {f"c{number}": BehindRecord(number) for number in range(3)}
    again.close()


async def test_close_returns_the_error_of_the_last_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    Stubborn(bench.store, monkeypatch)
    bench.append(b"1")
    bench.end_turn()
    assert isinstance(bench.commits.close(), StorageUnavailable)
    bench.mark.close()
    bench.store.close()


async def test_it_works_again_though_a_turn_is_open_whenever_anyone_looks(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Stubborn(bench.store, monkeypatch)
    bench.append(b"1")
    bench.end_turn()
    await bench.settle()
    disk.is_failing = False
    while bench.commits.failure is not None:  # QoS 0 is passed on without a pause
        bench.end_turn(is_urgent=False)
        bench.publish_unacknowledged(bench.sequencer.head + 1)
        await asyncio.sleep(0.001)
    bench.end_turn()


async def test_what_was_cut_while_its_commit_failed_does_not_come_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Stubborn(bench.store, monkeypatch)
    for number in range(3):
        bench.sequencer.turn.put(MOVES, number, MovesRecord({"c": [number]}))
    bench.end_turn()  # is being written, and will fail
    bench.sequencer.turn.cut(MOVES, 2)
    bench.end_turn()
    assert [number for number, _ in bench.state.replay(MOVES)] == [2]
    await until(lambda: bench.commits.failure is not None, "no commit failed")
    assert [number for number, _ in bench.state.replay(MOVES)] == [2]
    disk.is_failing = False
    await until(lambda: bench.commits.failure is None, "the commits did not recover from their failure")
    assert [number for number, _ in bench.state.replay(MOVES)] == [2]


async def test_holes_of_a_long_failure_take_little_room(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_module, "MOST_HOLES", 5)
    disk = Stubborn(bench.store, monkeypatch)
    bench.append(b"1")
    bench.end_turn()
    await bench.settle()
    lost = {1}
    for _ in range(30):
        bench.publish_unacknowledged(bench.sequencer.head + 3)  # others are of topics that are not kept
        lost.add(bench.sequencer.head)
        bench.end_turn()
    disk.is_failing = False
    await until(lambda: bench.commits.failure is None, "the commits did not recover from their failure")
    (frame,) = bench.frames()
    assert len(frame.holes) <= 5
    assert lost <= {offset for first, last in frame.holes for offset in range(first, last + 1)}


@pytest.mark.parametrize("is_failing", [False, True])
async def test_an_exception_in_a_callback_does_not_stop_the_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, is_failing: bool
) -> None:
    disk = Stubborn(bench.store, monkeypatch)
    disk.is_failing = is_failing
    bench.commits.when_committed(bench.commits.open.number, lambda failure: 1 / 0)  # type: ignore[arg-type]
    bench.append(b"1")
    bench.end_turn()
    with capture_logs() as said:
        await bench.settle()
    assert [failure is not None for _, failure in bench.told] == [is_failing]
    assert "commit callback failed" in {line["event"] for line in said}
    disk.is_failing = False
    await until(lambda: bench.commits.failure is None, "the commits did not recover from their failure")


async def test_what_is_not_committed_yet_can_be_read_from_memory(bench: Bench) -> None:
    def offsets(runs: list[Run]) -> list[int]:
        return [run.offset for run in runs]

    bench.append(b"1")
    bench.end_turn()
    bench.append(b"2")
    assert offsets(bench.commits.uncommitted()) == [1, 2]
    bench.end_turn()
    await bench.settle()
    assert bench.commits.uncommitted() == []
