"""Micro-batches, as Spark asks for them: planned here without it, on a real log."""

import asyncio
import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from penstock.client import HttpClient
from penstock.pipeline.source import DataLoss, InvalidOption, PenstockSource
from penstock.pipeline.source.options import read_options
from penstock.pipeline.source.schema import log_schema
from penstock.pipeline.source.stream import IDLE_S, StreamReader
from tests.doors.web.logs import log_site
from tests.pipeline.servers import LogServer
from tests.pipeline.source.conftest import Clock
from tests.pipeline.source.test_hold import held
from tests.pipeline.source.test_missing import ranges_in

ALL = ReadAllAvailable()
Offset = dict[str, Any]


class Query:
    """What Spark does with a reader, one step after another."""

    def __init__(self, address: str, name: str, clock: Clock | None = None, **given: str) -> None:
        mine = {"address": address, "filter": f"{name}/#", "startingOffsets": "latest", "retryFor": "5"}
        options = read_options({**mine, **given}, is_stream=True)
        self.reader = StreamReader(options, log_schema(), clock or Clock())
        self.limit: ReadLimit = self.reader.getDefaultReadLimit()

    def begin(self) -> Offset:
        return self.reader.initialOffset()

    def next(self, start: Offset) -> Offset:
        return self.reader.latestOffset(start, self.limit)

    def rows(self, start: Offset, end: Offset) -> list[int]:
        parts = self.reader.partitions(start, end)
        worker = pickle.loads(pickle.dumps(StreamReader(self.reader._options, log_schema())))
        batches = [batch for part in parts for batch in worker.read(part)]
        return [
            int(payload.removeprefix(b'{"number":').removesuffix(b"}"))
            for batch in batches
            for payload in batch.column("payload").to_pylist()
        ]


class Requests:
    """Counts what a client asks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        for name in ("position", "ranges", "hold", "renew", "commit"):
            self._count(monkeypatch, name)

    def _count(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        original = getattr(HttpClient, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.made.append(name)
            return original(*args, **kwargs)

        monkeypatch.setattr(HttpClient, name, counted)

    def take(self) -> list[str]:
        made, self.made = self.made, []
        return made


def test_a_query_begins_where_it_began_however_often_it_is_asked(log_server: LogServer, name: str) -> None:
    query = Query(log_server.address, name)
    start = query.begin()
    log_server.publish_numbers([f"{name}/a"], 3)
    assert query.begin() == start
    assert query.rows(query.begin(), query.next(start)) == [0, 1, 2]


def test_micro_batches_follow_one_another(log_server: LogServer, name: str) -> None:
    query = Query(log_server.address, name)
    start = query.begin()
    assert query.next(start) == start
    assert query.reader.partitions(start, start) == []
    for _ in range(2):
        log_server.publish_numbers([f"{name}/a", f"{name}/b"], 10)
        end = query.next(start)
        assert list(end) == ["cursor"]
        assert query.rows(start, end) == list(range(10))
        assert query.next(end) == end
        start = end


def test_a_restarted_query_plans_the_same_micro_batch_again(log_server: LogServer, name: str) -> None:
    first = Query(log_server.address, name)
    start = first.begin()
    log_server.publish_numbers([f"{name}/a"], 10)
    end = first.next(start)
    log_server.publish_numbers([f"{name}/a"], 10)
    assert Query(log_server.address, name).rows(start, end) == list(range(10))


def test_a_trigger_costs_one_request(
    log_server: LogServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(log_server.address, name, hold=name)
    start = query.begin()
    log_server.publish_numbers([f"{name}/a"], 10)
    requests = Requests(monkeypatch)
    end = query.next(start)
    assert query.reader.reportLatestOffset() == {**end, "lagRows": 0}
    query.reader.partitions(start, end)
    assert requests.take() == ["ranges"]
    query.reader.commit(end)
    assert requests.take() == ["commit"]


def test_limits_are_kept_and_the_lag_is_what_they_leave(log_server: LogServer, name: str) -> None:
    query = Query(log_server.address, name, maxRowsPerTrigger="4")
    assert query.limit == ReadMaxRows(4)
    start = query.begin()
    log_server.publish_numbers([f"{name}/a"], 10)
    seen, lags = [], []
    while (end := query.next(start)) != start:
        rows = query.rows(start, end)
        assert len(rows) <= 4
        seen += rows
        reported = query.reader.reportLatestOffset()
        assert reported is not None
        lags.append(reported["lagRows"])
        start = end
    assert seen == list(range(10))
    assert lags == [6, 2, 0]


def test_two_limits_hold_together(log_server: LogServer, name: str) -> None:
    query = Query(log_server.address, name, maxRowsPerTrigger="9", maxBytesPerTrigger="1")
    start = query.begin()
    for _ in range(3):
        log_server.publish_numbers([f"{name}/a"], 3)
    assert len(query.rows(start, query.next(start))) < 9
    assert Query(log_server.address, name, maxBytesPerTrigger="64k").limit == ReadMaxBytes(1 << 16)


def test_everything_available_means_everything(log_server: LogServer, name: str) -> None:
    query = Query(log_server.address, name, maxRowsPerTrigger="4")
    start = query.begin()
    log_server.publish_numbers([f"{name}/a"], 10)
    assert query.rows(start, query.reader.latestOffset(start, ALL)) == list(range(10))


def test_a_run_that_ends_stays_before_what_comes_later(log_server: LogServer, name: str) -> None:
    query = Query(log_server.address, name, maxRowsPerTrigger="4")
    start = query.begin()
    log_server.publish_numbers([f"{name}/a"], 6)
    query.reader.prepareForTriggerAvailableNow()
    log_server.publish_numbers([f"{name}/a"], 6)
    seen: list[int] = []
    while (end := query.next(start)) != start:
        seen += query.rows(start, end)
        start = end
    assert seen == list(range(6))
    reported = query.reader.reportLatestOffset()
    assert reported is not None
    assert reported["lagRows"] == 6


def test_a_run_may_end_where_it_is_told_to(log_server: LogServer, name: str) -> None:
    begin = log_server.cursor
    receipts = log_server.publish_numbers([f"{name}/a"], 6)
    given = {"startingOffsets": begin, "endingOffsets": receipts[3].cursor}
    query = Query(log_server.address, name, **given)
    query.reader.prepareForTriggerAvailableNow()
    start = query.begin()
    end = query.next(start)
    assert query.rows(start, end) == [0, 1, 2, 3]
    assert query.next(end) == end
    with pytest.raises(InvalidOption, match="availableNow"):
        Query(log_server.address, name, **given).next(start)


async def test_a_stream_for_which_there_is_nothing_gets_on_now_and_then(
    tmp_path: Path, name: str, clock: Clock
) -> None:
    async with log_site(tmp_path) as site:
        query = Query(str(site.client.base_url), name, clock)
        start = await asyncio.to_thread(query.begin)

        async def next_after_others(start: Offset) -> Offset:
            await site.publish("elsewhere", b"1", b"2")
            site.seal()  # by then the log knows which topics these are
            return await asyncio.to_thread(query.next, start)

        assert await next_after_others(start) == start
        clock.now = IDLE_S
        end = await next_after_others(start)
        assert end == {"cursor": site.cursor(site.disk.last_offset)}
        assert query.reader.partitions(start, end) == []
        assert await next_after_others(end) == end


def test_a_stream_holds_what_it_has_not_read(log_server: LogServer, name: str) -> None:
    query = Query(log_server.address, name, hold=name, holdLapse="60")
    start = query.begin()
    made = held(log_server, name)
    assert made is not None
    assert (made.cursor, made.lapse_s) == (start["cursor"], 60.0)
    log_server.publish_numbers([f"{name}/a"], 3)
    end = query.next(start)
    query.reader.commit(end)
    query.reader.stop()
    moved = held(log_server, name)
    assert moved is not None
    assert moved.cursor == end["cursor"]
    with log_server.client() as client:
        client.release(name)
    Query(log_server.address, name, hold=name).rows(start, end)  # as after a restart
    again = held(log_server, name)
    assert again is not None
    assert again.cursor == start["cursor"]


def test_a_stream_without_a_hold_makes_none(log_server: LogServer, name: str) -> None:
    query = Query(log_server.address, name)
    query.reader.commit(query.begin())
    assert held(log_server, name) is None


async def test_what_retention_took_from_a_stopped_stream_is_named(tmp_path: Path, name: str) -> None:
    async with log_site(tmp_path / "data") as site:
        address = str(site.client.base_url)
        start = {"cursor": site.cursor(0)}
        for batch in range(3):
            await site.publish(f"{name}/a", *[b'{"number":%d}' % (batch * 10 + n) for n in range(10)])
            site.seal()
        await site.trim(1)
        last = site.disk.first_offset - 1

        def fail() -> None:
            query = Query(address, name)
            end = query.next(start)
            with pytest.raises(DataLoss, match=rf"offsets 1 to {last} left the log .* \(retention\)"):
                query.reader.partitions(start, end)

        def go_on() -> list[int]:
            query = Query(address, name, failOnDataLoss="false", missing=str(tmp_path / "missing"))
            return query.rows(start, query.next(start))

        await asyncio.to_thread(fail)
        assert await asyncio.to_thread(go_on) == list(range(20, 30))
        assert ranges_in(tmp_path / "missing") == [(1, last, "retention")]


def test_the_source_makes_readers_of_what_it_was_told() -> None:
    source = PenstockSource({"columns": "topic", "maxRowsPerTrigger": "5"})
    schema = log_schema(("topic",))
    assert source.schema() == schema
    assert source.streamReader(schema).getDefaultReadLimit() == ReadMaxRows(5)
    with pytest.raises(InvalidOption, match="ends by itself"):
        source.reader(schema)
    with pytest.raises(InvalidOption, match="the columns of this read are topic:"):
        source.streamReader(log_schema())
