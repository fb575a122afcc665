"""Topics as tables, in Spark itself."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from tests.spark.servers import LogServer
from tests.spark.source.lakes import add_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Row = dict[str, Any]


def options(server: LogServer, name: str, **more: str) -> dict[str, str]:
    return {"address": server.address, "filter": f"{name}/#", "parallelism": "2", **more}


def table(spark: "SparkSession", given: dict[str, str]) -> "DataFrame":
    return spark.read.format("penstock").options(**given).load()


def numbers(rows: list[Any]) -> list[int]:
    return sorted(row["value"]["number"] for row in rows)


def run_to_the_end(
    frame: "DataFrame", folder: Path, take: Callable[["DataFrame", int], None]
) -> "StreamingQuery":
    writer = frame.writeStream.option("checkpointLocation", str(folder)).trigger(availableNow=True)
    query = writer.foreachBatch(take).start()
    query.awaitTermination()
    return query


def test_a_topic_is_a_table(spark: "SparkSession", log_server: LogServer, name: str) -> None:
    odd = f"{name}/ä b/+".replace("+", "😀")
    begin = log_server.cursor
    log_server.publish(
        [
            {"topic": f"{name}/a", "data": {"number": 1}, "properties": {"unit": "C"}, "message_id": name},
            {"topic": odd, "payload": "no JSON", "qos": 0, "retain": True, "ttl_ms": 60_000},
            {"topic": f"{name}/a", "payload": "", "correlation_id": "c"},
            {"topic": f"{name}/large", "payload": "x" * 1_000_000},
        ]
    )
    given = options(log_server, name, startingOffsets=begin, jsonSchema="number BIGINT")
    frame = table(spark, given).orderBy("offset")
    rows = frame.collect()
    with log_server.client() as client:
        plain = client.read_log(after=begin, filters=[f"{name}/#"]).table()
    for column in set(plain.column_names) - {
        "payload",
        "properties",
        "published_at",
        "expires_at",
        "logged_at",
    }:
        assert [row[column] for row in rows] == plain.column(column).to_pylist(), column
    assert [bytes(row["payload"]) for row in rows] == plain.column("payload").to_pylist()
    assert [row["topic"] for row in rows] == [f"{name}/a", odd, f"{name}/a", f"{name}/large"]
    assert rows[0]["properties"] == {"unit": "C"}
    assert (rows[0]["value"]["number"], rows[0]["dead_letter"]) == (1, None)
    assert [row["dead_letter"].split(":")[0] for row in rows[1:]] == ["not JSON"] * 3
    times = frame.selectExpr(
        "unix_micros(published_at) as at",
        "unix_micros(expires_at) as until",
        "unix_micros(logged_at) as logged",
    ).collect()
    assert [row["at"] for row in times] == plain.column("published_at").cast(pa.int64()).to_pylist()
    assert times[1]["until"] - times[1]["at"] == 60_000_000
    assert all(0 <= row["logged"] - row["at"] < 60_000_000 for row in times)
    later = datetime.fromisoformat("2100-01-01T00:00:00+00:00").isoformat()
    assert table(spark, options(log_server, name, startingOffsets=later)).count() == 0


def test_a_stream_goes_on_where_it_stopped(
    spark: "SparkSession", log_server: LogServer, name: str, tmp_path: Path
) -> None:
    given = options(
        log_server, name, maxRowsPerTrigger="400", hold=name, jsonSchema="number INT", columns="topic"
    )
    stream = spark.readStream.format("penstock").options(**given).option("startingOffsets", log_server.cursor)
    seen: list[list[int]] = []

    def take(frame: "DataFrame", batch: int) -> None:
        assert frame.columns == ["topic", "value", "dead_letter"]
        seen.append(numbers(frame.collect()))

    log_server.publish_numbers([f"{name}/a", f"{name}/b"], 1_000)
    query = run_to_the_end(stream.load(), tmp_path / "checkpoint", take)
    assert [len(rows) for rows in seen] == [400, 400, 200]
    assert sorted(number for rows in seen for number in rows) == list(range(1_000))
    first, *_, last = query.recentProgress
    assert first.sources[0].numInputRows == 400
    assert '"lagRows":600' in first.sources[0].latestOffset.replace(" ", "")
    assert '"lagRows":0' in last.sources[0].latestOffset.replace(" ", "")
    with log_server.client() as client:
        assert name in [hold.name for hold in client.holds()]

    seen.clear()
    run_to_the_end(stream.load(), tmp_path / "checkpoint", take)
    assert not any(seen)
    log_server.publish_numbers([f"{name}/a"], 3)
    run_to_the_end(stream.load(), tmp_path / "checkpoint", take)
    assert [rows for rows in seen if rows] == [[0, 1, 2]]


def test_a_topic_can_be_queried_a_moment_after_it_is_published(
    spark: "SparkSession", log_server: LogServer, name: str, tmp_path: Path
) -> None:
    given = options(log_server, name, startingOffsets="latest", columns="topic,payload")
    stream = spark.readStream.format("penstock").options(**given).load()
    writer = stream.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.format("memory").queryName(f"live_{name}").start()
    try:
        query.processAllAvailable()
        for count in (1, 2):
            log_server.publish_numbers([f"{name}/a"], 1)
            query.processAllAvailable()
            assert spark.sql(f"select * from live_{name}").count() == count
    finally:
        query.stop()


def test_the_lake_and_the_log_are_one_table_in_spark(
    spark: "SparkSession", log_server: LogServer, name: str, tmp_path: Path
) -> None:
    begin = log_server.cursor
    receipts = log_server.publish_numbers([f"{name}/a", f"{name}/b"], 300)
    with log_server.client() as client:
        rows = client.read_log(after=begin, until=receipts[199].cursor, filters=[f"{name}/#"]).table()
    filters = (f"{name}/#",)
    batches = rows.combine_chunks().to_batches()
    add_files(tmp_path / "lake", batches, receipts[199].cursor, start=begin, filters=filters)
    given = options(
        log_server, name, startingOffsets=begin, jsonSchema="number INT", lake=str(tmp_path / "lake")
    )
    both = table(spark, given).drop("properties")  # Spark does not compare maps
    log_alone = table(spark, {key: text for key, text in given.items() if key != "lake"}).drop("properties")
    assert numbers(both.collect()) == list(range(300))
    assert both.exceptAll(log_alone).count() == log_alone.exceptAll(both).count() == 0
    assert table(spark, {**given, "address": ""}).count() == 200

    seen: list[int] = []
    stream = spark.readStream.format("penstock").options(**given).option("maxRowsPerTrigger", "150").load()
    run_to_the_end(stream, tmp_path / "checkpoint", lambda frame, _: seen.extend(numbers(frame.collect())))
    assert seen == list(range(300))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"filter": "a/#/b"}, "filter: # stands only in the last level"),
        ({"jsonSchema": "a INTERVAL DAY TO SECOND"}, "payloads cannot have the type INTERVAL"),
        ({"address": "http://127.0.0.1:1", "retryFor": "0"}, "no connection to http://127.0.0.1:1"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(
    spark: "SparkSession", log_server: LogServer, name: str, given: Row, words: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        table(spark, {**options(log_server, name), **given}).collect()
    assert words in str(caught.value)
