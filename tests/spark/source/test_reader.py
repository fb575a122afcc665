"""Micro-batches as Spark requests them, on a real log; and batches shaped for Spark."""

import asyncio
import pickle
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import StructType

from penstock.client import HttpClient
from penstock.spark.datasource import PenstockDataSource
from penstock.spark.errors import DataLoss, InvalidOption
from penstock.spark.options import read_options
from penstock.spark.source import reader
from penstock.spark.source.reader import IDLE_S, Projection, StreamReader, resize
from penstock.spark.source.schema import log_schema
from tests.doors.web.logs import log_site
from tests.spark.conftest import Clock
from tests.spark.servers import LogServer
from tests.spark.source.test_data_loss import ranges_in
from tests.spark.test_hold import held

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def log_batch(count: int = 3) -> pa.RecordBatch:
    names = pa.array([f"a/{row % 2}" for row in range(count)]).dictionary_encode()
    return pa.record_batch(
        {
            "offset": pa.array(range(1, count + 1), pa.int64()),
            "topic": names,
            "published_at": pa.array([NOON] * count, pa.timestamp("us", tz="UTC")),
            "payload": pa.array([b"%d" % row for row in range(count)]),
            "properties": pa.array([[("k", "1"), ("k", "2")]] * count, pa.map_(pa.string(), pa.string())),
        }
    )


def test_names_become_plain_text_and_columns_those_that_were_declared() -> None:
    schema = log_schema(("payload", "topic", "published_at", "properties"))
    rows = Projection(schema).apply(log_batch())
    assert rows.schema.names == ["payload", "topic", "published_at", "properties"]
    assert rows.schema.field("topic").type == pa.string()
    assert rows.slice(1, 1).to_pylist() == [
        {"payload": b"1", "topic": "a/1", "published_at": NOON, "properties": [("k", "1"), ("k", "2")]}
    ]


def test_the_offset_is_always_needed_and_the_payload_for_its_value() -> None:
    assert Projection(log_schema(("topic",))).needed.names == ["offset", "topic"]
    schema = log_schema(("topic",)).add("value", "integer").add("dead_letter", "string")
    assert Projection(schema).needed.names == ["offset", "topic", "payload"]


def test_values_come_beside_the_columns_of_the_log() -> None:
    schema = StructType().add("topic", "string").add("value", "integer").add("dead_letter", "string")
    rows = Projection(schema).apply(log_batch(2))
    assert rows.to_pylist() == [
        {"topic": "a/0", "value": 0, "dead_letter": None},
        {"topic": "a/1", "value": 1, "dead_letter": None},
    ]


def test_small_batches_are_joined_and_large_ones_cut() -> None:
    sizes = [1, 2, 5_000, 50_000, 3, 4_095, 1, 7]
    batches = list(resize(log_batch(size) for size in sizes))
    assert sum(batch.num_rows for batch in batches) == sum(sizes)
    assert all(reader.MIN_ROWS <= batch.num_rows <= reader.MAX_ROWS for batch in batches[:-1])


def test_rows_keep_their_order_when_batches_change() -> None:
    whole = log_batch(40_000)
    pieces = [whole.slice(start, stop - start) for start, stop in pairwise([0, 10, 20_000, 20_001, 40_000])]
    assert pa.Table.from_batches(resize(pieces)).column("offset").to_pylist() == list(range(1, 40_001))


def test_batches_with_large_payloads_stay_bounded() -> None:
    large = pa.record_batch({"payload": pa.array([b"x" * (1 << 20)] * 50)})
    batches = list(resize([large]))
    assert sum(batch.num_rows for batch in batches) == 50
    assert max(batch.nbytes for batch in batches) <= reader.MAX_BYTES + (1 << 20)
    small = list(resize([large.slice(row, 1) for row in range(50)]))
    assert sum(batch.num_rows for batch in small) == 50
    assert max(batch.nbytes for batch in small) <= reader.MAX_BYTES + (1 << 20)


def test_nothing_stays_nothing() -> None:
    assert list(resize([])) == []


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
    query = Query(log_server.address, name, None, **given)
    query.reader.prepareForTriggerAvailableNow()
    start = query.begin()
    end = query.next(start)
    assert query.rows(start, end) == [0, 1, 2, 3]
    assert query.next(end) == end
    with pytest.raises(InvalidOption, match="availableNow"):
        Query(log_server.address, name, None, **given).next(start)


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
    source = PenstockDataSource({"columns": "topic", "maxRowsPerTrigger": "5"})
    schema = log_schema(("topic",))
    assert source.schema() == schema
    assert source.streamReader(schema).getDefaultReadLimit() == ReadMaxRows(5)
    with pytest.raises(InvalidOption, match="ends by itself"):
        source.reader(schema)
    with pytest.raises(InvalidOption, match="the columns of this read are topic:"):
        source.streamReader(log_schema())
