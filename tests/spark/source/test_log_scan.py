"""Parts of the log, read from a real server over connections that break."""

import asyncio
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.client import ConnectionLost, LogRange
from penstock.spark.connection import Connection
from penstock.spark.errors import DataLoss
from penstock.spark.source.data_loss import LossPolicy
from penstock.spark.source.log_scan import LogPart, asked_columns, log_parts, read_log_part
from tests.doors.web.logs import LogSite, log_site
from tests.spark.servers import LogServer
from tests.spark.source.proxies import proxy
from tests.spark.source.test_data_loss import ranges_in

FATAL = LossPolicy()
COLUMNS = ("offset", "topic", "payload")


def range_of(after: str, until: str, rows: int, size: int = 100) -> LogRange:
    return LogRange(after=after, until=until, rows=rows, bytes=size)


def read(
    part: LogPart, address: str, name: str, retry_for_s: float = 10.0, losses: LossPolicy = FATAL
) -> pa.Table:
    connection = Connection(address=address, retry_for_s=retry_for_s)
    batches = list(read_log_part(part, connection, [f"{name}/#"], COLUMNS, losses))
    return pa.Table.from_batches(batches)


def test_parts_travel_to_workers() -> None:
    part = LogPart("a", "b")
    assert pickle.loads(pickle.dumps(part)) == part


def test_ranges_of_a_good_size_are_parts() -> None:
    ranges = [range_of("a", "b", 20_000), range_of("b", "c", 30, 2 << 20)]
    assert log_parts(ranges) == [LogPart("a", "b"), LogPart("b", "c")]


def test_small_ranges_become_one_part_and_empty_ones_none() -> None:
    ranges = [range_of("a", "b", 0), range_of("b", "c", 10), range_of("c", "d", 20), range_of("d", "e", 0)]
    assert log_parts(ranges) == [LogPart("a", "e")]
    assert log_parts([range_of("a", "b", 0)]) == []
    assert log_parts([range_of("a", "b", 20_000), range_of("b", "c", 0)]) == [LogPart("a", "b")]


def test_whole_batches_are_asked_for_unless_the_payload_is_left_out() -> None:
    assert asked_columns(("offset", "payload")) is None
    assert asked_columns(("offset", "topic")) == ("offset", "topic")


def test_a_part_that_is_cut_off_again_and_again_comes_whole(log_server: LogServer, name: str) -> None:
    begin = log_server.cursor
    log_server.publish({"topic": f"{name}/{n % 3}", "payload": f"{n} " * 50} for n in range(15_000))
    part = LogPart(begin, log_server.cursor)
    with proxy(log_server.address, 0, 60_000, 100) as broken:
        rows = read(part, broken.address, name)
        assert broken.connections == 5  # one that was whole, and one to look for gaps before it
    assert [int(payload.split()[0]) for payload in rows.column("payload").to_pylist()] == list(range(15_000))
    offsets = rows.column("offset").to_pylist()
    assert offsets == sorted(set(offsets))


def test_a_server_that_stays_away_is_an_error(log_server: LogServer, name: str) -> None:
    part = LogPart(log_server.cursor, log_server.cursor)
    with proxy(log_server.address, *[0] * 100) as broken, pytest.raises(ConnectionLost):
        read(part, broken.address, name, retry_for_s=0.2)


async def leave(site: LogSite, name: str) -> tuple[LogPart, int]:
    """Publish three batches of which only the last one stays; the part is planned before, of all of them."""
    begin = site.cursor(site.disk.last_offset)
    first = site.disk.last_offset + 1
    for batch in range(3):
        await site.publish(f"{name}/{batch}", *[b"x" * 1000] * 50)
        site.seal()
    part = LogPart(begin, site.cursor(site.disk.last_offset))
    await site.trim(1)
    assert site.disk.first_offset > first
    return part, first


async def test_what_left_the_log_after_it_was_planned_is_a_loss(tmp_path: Path, name: str) -> None:
    async with log_site(tmp_path / "data") as site:
        part, _ = await leave(site, name)
        address = str(site.client.base_url)
        last = site.disk.first_offset - 1
        with pytest.raises(
            DataLoss, match=rf"to {last} left the log before this query read them \(retention\)"
        ):
            await asyncio.to_thread(read, part, address, name)


async def test_what_left_the_log_is_written_down_if_that_is_accepted(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "missing"
    async with log_site(tmp_path / "data") as site:
        part, first = await leave(site, name)
        losses = LossPolicy(False, str(folder))
        rows = await asyncio.to_thread(read, part, str(site.client.base_url), name, losses=losses)
        assert rows.num_rows == 50
        assert ranges_in(folder) == [(first, site.disk.first_offset - 1, "retention")]


async def test_what_leaves_after_it_was_read_is_no_loss(tmp_path: Path, name: str) -> None:
    async with log_site(tmp_path / "data") as site:
        begin = site.cursor(site.disk.last_offset)
        for batch in range(3):
            await site.publish(f"{name}/{batch}", *[b"%d" % n * 1000 for n in range(400)])
            site.seal()
        part = LogPart(begin, site.cursor(site.disk.last_offset))
        loop = asyncio.get_running_loop()

        def read_with_a_pause() -> int:
            with proxy(str(site.client.base_url), 15_000) as broken:
                connection = Connection(address=broken.address)
                batches = read_log_part(part, connection, [f"{name}/#"], COLUMNS, LossPolicy())
                rows = next(batches).num_rows
                asyncio.run_coroutine_threadsafe(site.trim(20_000), loop).result()
                return int(rows + sum(batch.num_rows for batch in batches))

        assert await asyncio.to_thread(read_with_a_pause) == 1200
