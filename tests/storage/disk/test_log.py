"""Log on disk through its port: restarts, kills, damage and clock changes."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from penstock.common.statement import Gap
from penstock.core.durability.records import BEHIND, BehindRecord
from penstock.core.settings import LogSettings
from penstock.errors import InvalidConfig, StorageUnavailable
from penstock.model import Reason
from penstock.runs import Run
from penstock.storage.disk import log as log_module
from penstock.storage.disk.log import DiskLog
from penstock.storage.disk.pieces.sealing_process import SealingProcess, SealRequest, SealResult, seal
from penstock.storage.disk.rocksdb.errors import StorageFull
from penstock.storage.disk.rocksdb.store import Store
from penstock.wire.arrow import LOG_COLUMNS
from tests.storage.disk.damage import flip_byte, table_of
from tests.support.clock import ManualClock
from tests.support.samples import make_run, payloads_of, readable
from tests.support.turns import end_turn
from tests.support.waiting import until

HOUR = 3_600.0


class Home:
    """A data directory and the log that is open on it, driven as a broker drives it."""

    def __init__(self, path: Path, clock: ManualClock, settings: LogSettings) -> None:
        self.path = path
        self.clock = clock
        self.settings = settings
        self.open()

    def open(self) -> None:
        self.log = DiskLog(self.path, asyncio.get_running_loop(), self.clock, settings=self.settings)
        self.head = self.log.last_offset

    def restart(self, settings: LogSettings | None = None) -> None:
        """Stop and start again."""
        self.log.close()
        self.settings = settings or self.settings
        self.open()

    def crash(self) -> None:
        """Start again on the files as they are when the process is killed. Nothing may be on its way."""
        killed = self.path.with_name(self.path.name + "-killed")
        shutil.copytree(self.path, killed)
        self.log.close()
        shutil.rmtree(self.path)
        killed.rename(self.path)

    def append(self, topic: str, *payloads: bytes, ttl: float = 0.0) -> Run:
        """Publish a run, in a turn that goes on."""
        offset = self.head + 1
        run = make_run(topic, *payloads, qos=1, sequence=offset, offset=offset, ttl=ttl)
        run.published_at = self.clock.wall_us()
        run.expires_at = self.clock.monotonic() + ttl if ttl else 0.0
        self.log.sequencer.turn.runs.append(run)
        self.head += len(payloads)
        self.log.sequencer.head = self.head
        return run

    async def commit(self) -> Exception | None:
        """End the turn, and tell how its commit ended."""
        settled: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        ticket = self.log.ticket
        end_turn(self.log, self.head)  # first: a commit that holds nothing begins when asked for
        self.log.when_committed(ticket, settled.set_result)
        return await settled

    async def publish(self, topic: str, *payloads: bytes, ttl: float = 0.0) -> None:
        """Publish each payload in a commit of its own."""
        for payload in payloads:
            self.append(topic, payload, ttl=ttl)
            assert await self.commit() is None

    async def payloads(self, after: int = 0) -> list[bytes]:
        span = await self.log.read(after, 1_000_000)
        assert span.until == self.log.last_offset
        return [payload for run in span.runs for payload in payloads_of(run)]

    async def fetch(self, *offsets: int) -> dict[int, Run]:
        found: asyncio.Future[dict[int, Run]] = asyncio.get_running_loop().create_future()
        self.log.fetch(offsets, found.set_result)
        return await found

    def seal(self) -> None:
        """Seal everything; the log itself waits for ten thousand messages."""
        assert self.log._sealer.seal_now() > 0

    async def trim(self, owed_from: int | None = None) -> int:
        """Let retention have a look; answer where the log begins then."""
        self.log.trim(owed_from)
        assert self.log._trimming is not None
        await asyncio.wrap_future(self.log._trimming)
        return self.log.first_offset


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def home(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Home]:
    home = Home(tmp_path / "data", clock, LogSettings(retention_s=0, retention_bytes=0))
    yield home
    home.log.close()


@pytest.fixture
def sealing_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make batches in this process: the one that makes them otherwise takes long to start."""

    def seal_here(_: SealingProcess, order: SealRequest) -> SealResult:
        return seal(order)

    monkeypatch.setattr(SealingProcess, "seal", seal_here)


def _raise_full(store: Store) -> None:
    raise StorageFull("no room")


def _raise_unavailable(*_: object, **__: object) -> None:
    raise StorageUnavailable("the disk says no")


def gaps_of(*gaps: tuple[int, int]) -> tuple[Gap, ...]:
    return tuple(Gap(first, last, Reason.DAMAGED) for first, last in gaps)


# Starting again


@pytest.mark.parametrize("ending", [Home.restart, Home.crash])
async def test_it_continues_after_the_last_committed_offset_in_a_new_epoch(
    home: Home, ending: Callable[[Home], None]
) -> None:
    await home.publish("a", b"1", b"2")
    home.head += 5  # messages of topics that are not kept
    assert await home.commit() is None
    log_id = home.log.log_id
    ending(home)
    if ending is Home.crash:
        home.open()
    assert (home.log.log_id, home.log.epoch, home.log.last_offset) == (log_id, 2, 7)
    assert home.log.damage == ()
    await home.publish("a", b"8")
    assert await home.payloads() == [b"1", b"2", b"8"]
    assert list(await home.fetch(8)) == [8]


async def test_what_was_not_committed_is_gone_with_the_process_and_its_offset_is_free(home: Home) -> None:
    await home.publish("a", b"1")
    home.append("a", b"2")
    home.crash()
    home.open()
    assert (home.log.last_offset, home.log.last_sequence("a"), home.log.damage) == (1, 1, ())
    assert await home.payloads() == [b"1"]


async def test_where_every_epoch_ended_is_known(home: Home) -> None:
    await home.publish("a", b"1", b"2")
    home.restart()  # nothing is published in the second
    home.restart()
    await home.publish("a", b"3")
    home.crash()
    home.open()
    await home.publish("a", b"4")
    assert [home.log.end_of(epoch) for epoch in range(6)] == [None, 2, 2, 3, 4, None]


async def test_no_epoch_comes_twice_though_nothing_could_be_written_in_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    await home.publish("a", b"1")
    with monkeypatch.context() as full_disk:
        full_disk.setattr(Store, "check_space", _raise_full)
        home.restart()
        failure = home.log.failure
        assert isinstance(failure, StorageFull)
        assert home.log.epoch == 2
        home.restart()
        assert home.log.epoch == 3
    home.restart()
    assert (home.log.epoch, home.log.failure, home.log.damage) == (4, None, ())


async def test_a_disk_that_was_full_at_the_start_is_used_as_soon_as_there_is_room(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    await home.publish("a", b"1")
    with monkeypatch.context() as full_disk:
        full_disk.setattr(Store, "check_space", _raise_full)
        home.restart()
        assert await home.payloads() == [b"1"]
    await until(lambda: home.log.failure is None, "the log did not recover from its failure")
    await home.publish("a", b"2")
    home.crash()
    home.open()
    assert home.log.end_of(2) == 2  # the note of that epoch was written in the end


async def test_a_directory_has_one_log_at_a_time(home: Home) -> None:
    with pytest.raises(InvalidConfig, match="in use"):
        DiskLog(home.path, asyncio.get_running_loop(), home.clock)
    await home.publish("a", b"1")  # the first one is not disturbed
    assert await home.payloads() == [b"1"]


async def test_the_end_writes_what_is_left_even_of_a_turn_that_is_not_over(home: Home) -> None:
    for number in range(3):
        home.append("a", b"%d" % number)
        home.log.sequencer.turn.put(BEHIND, f"c{number}", BehindRecord(number))
        end_turn(home.log, home.head, is_urgent=number == 0)
    home.append("a", b"3", b"4")
    home.log.sequencer.turn.put(BEHIND, "c3", BehindRecord(3))
    home.restart()
    assert home.log.last_offset == 5
    assert await home.payloads() == [b"0", b"1", b"2", b"3", b"4"]
    assert dict(home.log.state.scan(BEHIND)) == {f"c{number}": BehindRecord(number) for number in range(4)}


async def test_times_are_found_after_a_restart(home: Home) -> None:
    times = []
    for _ in range(5):
        times.append(home.clock.wall_us())
        await home.publish("a", b"1")
        home.clock.advance(10.0)
    home.restart()
    assert [home.log.offset_at(at) for at in times] == [0, 0, 1, 2, 3]


# Fetching


async def test_nothing_is_read_before_it_is_committed(home: Home) -> None:
    await home.publish("a", b"1")
    home.append("a", b"2")
    assert await home.payloads() == [b"1"]
    assert [run.offset for run in home.log.uncommitted(0)] == [2]
    assert await home.commit() is None
    assert await home.payloads() == [b"1", b"2"]
    assert home.log.uncommitted(0) == []


async def test_a_run_that_reaches_beyond_an_offset_is_not_committed_after_it(home: Home) -> None:
    home.append("a", b"1", b"2", b"3")
    assert [len(home.log.uncommitted(after)) for after in range(4)] == [1, 1, 1, 0]


async def test_committed_and_uncommitted_messages_are_fetched_together(home: Home) -> None:
    await home.publish("a", b"1", b"2")
    home.append("b", b"3", b"4", b"5")
    home.head += 1
    home.append("b", b"7")
    end_turn(home.log, home.head)  # is being written
    home.append("c", b"8", b"9")
    found = await home.fetch(2, 4, 5, 6, 7, 9, 10)
    assert {offset: run.payload() for offset, run in found.items()} == {
        2: b"2",
        4: b"4",
        5: b"5",
        7: b"7",
        9: b"9",
    }
    assert all((run.offset, run.sequence, run.count) == (at, at, 1) for at, run in found.items())


async def test_a_clock_that_is_set_does_not_touch_what_is_not_committed(home: Home) -> None:
    run = home.append("a", b"1", ttl=10.0)
    home.clock.jump(HOUR)
    found = await home.fetch(1)
    assert found[1].expires_at == run.expires_at == home.clock.monotonic() + 10.0


async def test_what_cannot_be_read_now_is_fetched_later_and_logged_once(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "FETCH_AGAIN_S", 0.002)
    await home.publish("a", b"1", b"2")
    failures = iter(range(6))
    get = Store.get

    def fail(store: Store, family: str, keys: list[bytes]) -> list[bytes | None]:
        if next(failures, None) is not None:
            raise StorageUnavailable("the database is not open")
        return get(store, family, keys)

    monkeypatch.setattr(Store, "get", fail)
    with capture_logs() as said:
        found = await asyncio.gather(home.fetch(1), home.fetch(2))
    assert [{offset: run.payload() for offset, run in each.items()} for each in found] == [
        {1: b"1"},
        {2: b"2"},
    ]
    assert [line["event"] for line in said] == ["messages cannot be read now"]


async def test_nothing_is_fetched_from_a_log_that_is_closed(home: Home) -> None:
    await home.publish("a", b"1")
    home.log.close()
    home.log.fetch([1], lambda found: pytest.fail("it was"))
    await asyncio.sleep(0.01)
    home.open()


# Expiry


@pytest.mark.usefixtures("sealing_here")
@pytest.mark.parametrize("is_sealed", [False, True])
async def test_lifetimes_continue_while_the_server_is_down(home: Home, is_sealed: bool) -> None:
    await home.publish("a", b"1", ttl=100.0)
    if is_sealed:
        home.seal()
    home.log.close()
    home.clock.advance(40.0)
    home.open()
    expected = pytest.approx(home.clock.monotonic() + 60.0)
    (read,) = (await home.log.read(0, 1_000)).runs
    assert read.ttl == 100.0
    assert read.expires_at == expected
    assert (await home.fetch(1))[1].expires_at == expected
    assert home.log.load([1])[1].expires_at == expected
    assert [run.expires_at for run in readable(home.log.scan(0, lambda topic: True))] == [expected]


async def test_a_clock_set_back_while_the_server_is_down_prolongs_no_lifetime(home: Home) -> None:
    await home.publish("a", b"1", ttl=100.0)
    home.log.close()
    home.clock.jump(-24 * HOUR)
    home.open()
    (run,) = (await home.log.read(0, 1_000)).runs
    assert run.expires_at == pytest.approx(home.clock.monotonic() + 100.0)


async def test_expired_messages_are_reported_as_expired_and_not_as_lost(home: Home) -> None:
    await home.publish("a", b"1", ttl=10.0)
    home.clock.advance(11.0)
    home.restart()
    (run,) = (await home.log.read(0, 1_000)).runs
    assert 0.0 < run.expires_at < home.clock.monotonic()


# Sequences


@pytest.mark.usefixtures("sealing_here")
@pytest.mark.parametrize("is_sealed", [False, True])
async def test_sequences_continue_after_a_restart(home: Home, is_sealed: bool) -> None:
    home.append("a", b"1", b"2")
    await home.publish("b", b"3")
    await home.publish("a/b", b"4")
    if is_sealed:
        home.seal()
        await home.publish("b", b"5")
    home.restart()
    last = {topic: home.log.last_sequence(topic) for topic in ("a", "b", "a/b", "a/", "c")}
    assert last == {"a": 2, "b": 5 if is_sealed else 3, "a/b": 4, "a/": 0, "c": 0}


@pytest.mark.usefixtures("sealing_here")
@pytest.mark.parametrize("is_sealed", [False, True])
async def test_sequences_continue_although_retention_removed_all_messages(
    home: Home, is_sealed: bool
) -> None:
    await home.publish("a", b"1", b"2")
    if is_sealed:
        home.seal()
    await home.publish("b", b"3")
    home.restart(LogSettings(retention_s=0, retention_bytes=1))
    assert await home.trim() == 3
    home.restart()
    assert [home.log.last_sequence(topic) for topic in "ab"] == [2, 3]


async def test_no_sequence_comes_twice_because_a_log_cannot_be_asked_now(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    await home.publish("a", b"1", b"2")
    await home.publish("b", b"3")
    home.restart()
    with home.log._store._lock.exclusive():  # it is being opened again, and the loop does not wait for that
        assert home.log.last_sequence("a") >= 2
    with monkeypatch.context() as closed:
        closed.setattr(Store, "last_before", _raise_unavailable)
        assert home.log.last_sequence("a") >= 2
    assert [home.log.last_sequence(topic) for topic in "abc"] == [2, 3, 0]


# Retention and holds


async def test_retention_takes_what_is_too_old_and_says_so(home: Home) -> None:
    await home.publish("a", b"1", b"2")
    home.clock.advance(HOUR)
    await home.publish("a", b"3", b"4")
    home.restart(LogSettings(retention_s=HOUR, retention_bytes=0))
    assert await home.trim() == 2  # the second may have been published at any time before the third
    home.clock.advance(1.0)
    home.clock.jump(-2 * HOUR)
    assert await home.trim() == 2
    home.clock.jump(4 * HOUR)
    assert await home.trim() == 4  # the newest piece stays
    assert home.log.reason_of(3) is Reason.RETENTION
    assert (await home.log.read(0, 1_000)).gaps == (Gap(1, 3, Reason.RETENTION),)
    assert await home.fetch(3) == {}
    home.restart()
    assert home.log.first_offset == 4


async def test_retention_keeps_offline_queues_up_to_their_limit(home: Home) -> None:
    await home.publish("a", *(b"%d" % number for number in range(6)))
    size = home.log._index.bytes // 6
    home.restart(LogSettings(retention_s=0, retention_bytes=1, owed_bytes=3 * size))
    assert await home.trim(owed_from=5) == 5
    home.restart(LogSettings(retention_s=0, retention_bytes=1, owed_bytes=0))
    assert await home.trim(owed_from=5) == 6


async def test_a_look_that_fails_is_not_the_last(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    await home.publish("a", b"1", b"2")
    home.restart(LogSettings(retention_s=0, retention_bytes=1))
    with monkeypatch.context() as failing, capture_logs() as said:
        failing.setattr(Store, "write", _raise_unavailable)
        await home.trim()
    assert [line["event"] for line in said] == ["retention failed, will retry"]
    with capture_logs() as said:
        assert await home.trim() == 2
    assert [(line["event"], line["messages"]) for line in said] == [("retention removed messages", "1")]


async def test_holds_outlive_the_process_and_keep_what_they_hold(home: Home) -> None:
    await home.publish("a", b"1", b"2", b"3", b"4")
    home.log.holds.create("job", "ann", offset=2, lapse_s=HOUR)
    assert await home.commit() is None
    home.crash()
    home.clock.advance(HOUR / 2)
    home.settings = LogSettings(retention_s=0, retention_bytes=1)
    home.open()
    (hold,) = home.log.holds.listing()
    assert (hold.name, hold.owner, hold.offset) == ("job", "ann", 2)
    assert await home.trim() == 3
    home.clock.advance(HOUR / 2 + 1)
    with capture_logs() as said:
        home.log.reap()
    assert [(line["event"], line["hold"]) for line in said] == [("a hold has lapsed", "job")]
    assert await home.trim() == 4
    home.restart()
    assert home.log.holds.listing() == []


# What is not there


async def test_the_reason_why_a_message_is_not_there_is_known(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    await home.publish("a", b"1", b"2")
    with monkeypatch.context() as failing:
        failing.setattr(Store, "write", _raise_unavailable)
        home.append("a", b"3")
        assert isinstance(await home.commit(), StorageUnavailable)
        assert home.log.reason_of(3) is Reason.NEVER_STORED
    await until(lambda: home.log.failure is None, "the log did not recover from its failure")
    await home.publish("a", b"4")
    home.restart(LogSettings(retention_s=0, retention_bytes=home.log._index.bytes - 1))
    assert await home.trim() == 2
    assert home.log.reason_of(1) is Reason.RETENTION
    assert home.log.reason_of(2) is Reason.DAMAGED  # it should be there
    assert home.log.reason_of(3) is Reason.NEVER_STORED
    assert home.log.reason_of(5) is Reason.NEVER_STORED  # not yet, at least


def lose_the_end(path: Path) -> None:
    """Remove what was written since the log was opened last, as a broken disk might."""
    for file in (path / "rocksdb").glob("*.log"):
        file.unlink()


async def test_a_lost_end_is_logged_and_its_offsets_are_not_reused(home: Home) -> None:
    await home.publish("a", b"1", b"2")
    home.restart()
    await home.publish("a", b"3", b"4")
    home.crash()
    lose_the_end(home.path)
    with capture_logs() as said:
        home.open()
    assert home.log.damage == gaps_of((3, 4))
    assert {"a part of the log is lost", "changes of sessions are lost"} <= {line["event"] for line in said}
    assert (home.log.last_offset, home.log.epoch) == (4, 3)  # of the second only the mark knows
    assert home.log.reason_of(3) is home.log.reason_of(4) is Reason.DAMAGED
    assert (await home.log.read(0, 1_000)).gaps == gaps_of((3, 4))
    await home.publish("a", b"5")
    home.restart()
    assert home.log.damage == (await home.log.read(0, 1_000)).gaps == gaps_of((3, 4))
    assert await home.payloads() == [b"1", b"2", b"5"]
    assert home.log.reason_of(4) is Reason.DAMAGED


async def test_a_log_that_lost_everything_starts_and_says_so(home: Home) -> None:
    await home.publish("a", b"1", b"2", b"3")
    log_id = home.log.log_id
    home.crash()
    shutil.rmtree(home.path / "rocksdb")
    home.open()
    assert (home.log.log_id, home.log.last_offset, home.log.damage) == (log_id, 3, gaps_of((1, 3)))
    await home.publish("a", b"4")
    span = await home.log.read(0, 1_000)
    assert ([run.offset for run in span.runs], span.gaps) == ([4], gaps_of((1, 3)))


async def test_records_that_come_after_damage_to_others_are_kept(home: Home) -> None:
    names = [f"c{number:03}" for number in range(0, 1_000, 2)]
    for name in names:
        home.log.sequencer.turn.put(BEHIND, name, BehindRecord(1))
    assert await home.commit() is None
    home.log.close()
    flip_byte(table_of(home.path, "state"), 100)
    with capture_logs() as said:
        home.open()
    assert {"records of sessions are damaged", "the log was damaged"} <= {line["event"] for line in said}
    kept = dict(home.log.state.scan(BEHIND))
    assert 0 < len(kept) < len(names)
    home.log.sequencer.turn.put(BEHIND, "c001", BehindRecord(2))  # its place is where the damage is
    assert await home.commit() is None
    home.crash()
    with capture_logs() as said:
        home.open()
    assert dict(home.log.state.scan(BEHIND)) == {**kept, "c001": BehindRecord(2)}
    assert said == []  # what was mended stays mended


async def test_a_damaged_batch_is_logged_once_and_the_rest_is_served(home: Home, sealing_here: None) -> None:
    await home.publish("a", b"1", b"2")
    home.seal()
    await home.publish("a", b"3")
    home.log.close()
    flip_byte(table_of(home.path, "log"), 100)
    home.open()
    with capture_logs() as said:
        for _ in range(2):
            span = await home.log.read(0, 1_000)
            assert ([run.offset for run in span.runs], span.gaps) == ([3], gaps_of((1, 2)))
        assert list(await home.fetch(1, 2, 3)) == [3]
    assert [(line["event"], line["first"], line["last"]) for line in said] == [
        ("a part of the log is lost", 1, 2)
    ]
    assert home.log.reason_of(1) is Reason.DAMAGED


async def test_a_healthy_log_says_nothing_at_its_start(home: Home) -> None:
    await home.publish("a", b"1")
    home.crash()
    with capture_logs() as said:
        home.open()
    assert (home.log.damage, said) == ((), [])


# In bulk


def everything(topic: str) -> bool:
    return True


async def test_nothing_is_read_in_bulk_before_it_is_committed(home: Home) -> None:
    await home.publish("a", b"1", b"2")
    home.append("a", b"3")
    span = await home.log.arrow(0, 3, 1_000_000, everything)
    assert (span.until, span.rows) == (2, 2)
    assert await home.commit() is None
    assert (await home.log.arrow(2, 3, 1_000_000, everything)).rows == 1


async def test_the_last_stream_has_no_rows_and_carries_what_it_is_given(home: Home) -> None:
    for columns in (None, ["payload", "topic"]):
        with pa.ipc.open_stream(await home.log.arrow_end(columns, {"key": "value"})) as reader:
            assert reader.schema.names == (columns or list(LOG_COLUMNS))
            batch, metadata = reader.read_next_batch_with_custom_metadata()
            assert (batch.num_rows, dict(metadata)) == (0, {b"key": b"value"})


async def test_times_and_portions_are_found_up_to_what_is_committed(home: Home, clock: ManualClock) -> None:
    for number in range(4):
        await home.publish("a", b"%d" % number)
        clock.advance(1.0)
    home.append("a", b"later")
    assert await home.log.find_time(clock.wall_us() - 2_000_000) == 2
    assert await home.log.find_time(clock.wall_us()) == 4
    portions = await home.log.portions(0, 4, 2, everything)
    assert [(each.after, each.until, each.rows) for each in portions.parts] == [(0, 2, 2), (2, 4, 2)]
    beyond = await home.log.portions(0, 5, 1, everything)
    assert (beyond.parts[0].until, beyond.gaps) == (4, ())
    assert (await home.log.portions(5, 5, 1, everything)).parts[0].until == 5


async def test_every_row_says_when_it_was_given_to_the_disk(home: Home, clock: ManualClock) -> None:
    times = []
    for number in range(3):
        clock.advance(1.5)
        home.append("a", b"%d" % number)
        clock.advance(0.25)
        assert await home.commit() is None
        times.append(clock.wall_us())
        if number == 1:
            home.seal()
    span = await home.log.arrow(0, 3, 1_000_000, everything, ["logged_at"])
    found = [batch for stream in span.streams for batch in pa.ipc.open_stream(stream)]
    assert [time for batch in found for time in batch.column(0).cast(pa.int64()).to_pylist()] == times
    home.restart()
    span = await home.log.arrow(2, 3, 1_000_000, everything, ["logged_at"])
    assert pa.ipc.open_stream(span.streams[0]).read_all().column(0).cast(pa.int64()).to_pylist() == times[2:]


async def test_a_log_that_is_closed_is_not_read_in_bulk(home: Home) -> None:
    home.log.close()
    with pytest.raises(StorageUnavailable):
        await home.log.arrow(0, 0, 1, everything)
    home.open()
