"""What every log owes: order, nothing lost or doubled on a read, honest ends, commits that are shared.

A new implementation is one more line in `LOGS`.
"""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from penstock.core.ports import Log, Ticket
from penstock.model import Run
from penstock.storage.memory import MemoryLog
from penstock.testing import make_run, payloads_of

ROOM_BYTES = 100_000
"""How much each of these logs keeps, about."""

OpenLog = Callable[[Path], AbstractAsyncContextManager[Log]]


@asynccontextmanager
async def open_memory_log(folder: Path) -> AsyncIterator[Log]:
    yield MemoryLog(ROOM_BYTES)


LOGS: dict[str, OpenLog] = {
    "memory": open_memory_log,
}


@pytest.fixture(params=LOGS)
def open_log(request: pytest.FixtureRequest) -> OpenLog:
    return LOGS[request.param]


@pytest.fixture
async def log(open_log: OpenLog, tmp_path: Path) -> AsyncIterator[Log]:
    async with open_log(tmp_path) as log:
        yield log


class Writer:
    """Appends runs as a broker does: offsets rise, with gaps where a message was not kept."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.offset = 1
        self.written: list[tuple[int, bytes]] = []
        self.ticket: Ticket | None = None

    def append(self, *payloads: bytes, gap: int = 0) -> Ticket:
        offset = self.offset + gap
        self.ticket = self.log.append(make_run("a", *payloads, sequence=offset, offset=offset))
        self.written += [(offset + index, payload) for index, payload in enumerate(payloads)]
        self.offset = offset + len(payloads)
        return self.ticket

    async def commit(self) -> None:
        """Wait until everything that was appended is committed."""
        if self.ticket is not None and (commit := self.log.committed(self.ticket)) is not None:
            await commit


def messages_of(runs: tuple[Run, ...], after: int) -> list[tuple[int, bytes]]:
    """Single messages; of a run that began before `after` only what comes behind it."""
    return [
        (run.offset + index, payload)
        for run in runs
        for index, payload in enumerate(payloads_of(run))
        if run.offset + index > after
    ]


def read_all(log: Log, after: int, limit_bytes: int) -> list[tuple[int, bytes]]:
    """Everything after an offset, read chunk by chunk."""
    found: list[tuple[int, bytes]] = []
    while (span := log.read(after, limit_bytes)).runs:
        assert span.until > after, "a reader gets on with every chunk"
        found += messages_of(span.runs, after)
        after = span.until
    assert span.until >= after
    return found


async def test_a_new_log_has_nothing(log: Log) -> None:
    span = log.read(0, 1_000)
    assert (span.runs, span.until) == ((), 0)
    assert log.first_offset == 1


async def test_a_ticket_covers_every_message_of_its_run(log: Log) -> None:
    assert Writer(log).append(b"1", b"2", b"3", gap=4).offset == 7


async def test_what_was_appended_comes_back_with_all_its_stamps(log: Log) -> None:
    run = make_run(
        "a/b", b"1", b"2", qos=1, retain=True, sequence=7, offset=3, client_id="c", expires_at=99.0
    )
    run.published_at = 1_234_567
    ticket = log.append(run)
    if (commit := log.committed(ticket)) is not None:
        await commit
    (found,) = log.read(0, 1_000).runs
    assert found == run


@pytest.mark.parametrize("limit_bytes", [1, 50, 1_000, 1_000_000])
@pytest.mark.parametrize("seed", range(3))
async def test_reading_on_from_any_offset_gives_every_message_once_and_in_order(
    log: Log, limit_bytes: int, seed: int
) -> None:
    chance = random.Random(seed)
    writer = Writer(log)
    for number in range(60):
        size = chance.choice((0, 1, 30))
        payloads = [bytes([number]) * size] * chance.randint(1, 5)
        writer.append(*payloads, gap=chance.choice((0, 0, 3)))
    await writer.commit()
    for after in range(0, writer.offset + 2, 7):
        expected = [message for message in writer.written if message[0] > after]
        assert read_all(log, after, limit_bytes) == expected


async def test_a_chunk_is_about_as_large_as_was_asked_for(log: Log) -> None:
    writer = Writer(log)
    for _ in range(50):
        writer.append(bytes(100))
    await writer.commit()
    span = log.read(0, 1_000)
    assert 1_000 <= sum(len(run.slab) for run in span.runs) <= 2_000
    assert span.until == span.runs[-1].offset


async def test_a_reader_at_the_head_finds_what_comes_next(log: Log) -> None:
    writer = Writer(log)
    writer.append(b"1")
    await writer.commit()
    assert log.read(1, 1_000).runs == ()
    writer.append(b"2", gap=5)
    await writer.commit()
    assert read_all(log, 1, 1_000) == [(7, b"2")]


async def test_the_oldest_leave_first_and_the_log_says_how_far(log: Log) -> None:
    writer = Writer(log)
    for number in range(3 * ROOM_BYTES // 1_000):
        writer.append(bytes([number % 256]) * 1_000, gap=number % 2)
        await writer.commit()
    assert log.first_offset > 1
    kept = read_all(log, 0, 10_000)
    assert kept == [message for message in writer.written if message[0] >= log.first_offset]
    assert 0 < sum(len(payload) for _, payload in kept) <= ROOM_BYTES
    assert read_all(log, log.first_offset - 1, 10_000) == kept


async def test_a_commit_is_one_future_for_all_who_wait_for_it(log: Log) -> None:
    writer = Writer(log)
    tickets = [writer.append(b"1"), writer.append(b"2")]
    first, second = (log.committed(ticket) for ticket in tickets)
    assert first is second
    await writer.commit()
    assert [log.committed(ticket) for ticket in tickets] == [None, None]


async def test_a_log_started_again_is_another_one_or_in_a_later_epoch(
    open_log: OpenLog, tmp_path: Path
) -> None:
    async with open_log(tmp_path) as log:
        before = (log.log_id, log.epoch)
        assert bytes.fromhex(log.log_id).hex() == log.log_id
        assert len(log.log_id) == 16  # what a cursor has room for
    async with open_log(tmp_path) as log:
        assert log.log_id != before[0] or log.epoch == before[1] + 1


async def test_two_logs_are_never_taken_for_one_another(open_log: OpenLog, tmp_path: Path) -> None:
    async with open_log(tmp_path / "one") as one, open_log(tmp_path / "other") as other:
        assert one.log_id != other.log_id
