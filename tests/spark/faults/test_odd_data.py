"""Whatever can be published comes out of the lake as it went in."""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock.client import HttpClient
from penstock.lake import Change, lake_messages, read_file
from penstock.lake.writer import by_date_and_bucket, write_batches
from penstock.spark.connection import Connection
from penstock.spark.jobs.archive import ArchiveOptions, archive
from penstock.spark.jobs.audit import AuditOptions, audit
from penstock.spark.jobs.compact import CompactOptions, compact
from penstock.spark.jobs.run import run
from tests.spark.jobs.audit.lakes import LOG_ID, batch, cursor, damage
from tests.spark.servers import LogServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEGABYTE = 1 << 20
ODD_TOPICS = [
    "/",
    "//",
    "a//b/",
    " a space ",
    "date=2020-01-01/bucket=07",
    "../../escape",
    "%2F%00",
    "quote'\"back\\slash",
    "tab\tnewline\n",
    "{curly}*?[glob]",
    "Übergröße/日本/🚰",
    "long/" + "x" * 1_000,
    "__HIVE_DEFAULT_PARTITION__",
    "null",
]
ODD_MESSAGES: list[dict[str, Any]] = [
    {"topic": "odd/empty", "payload": ""},
    {"topic": "odd/text", "payload": "not JSON {"},
    {"topic": "odd/json", "data": {"nested": [1, None, "ü"]}},
    {"topic": "odd/large", "payload": "m" * (MEGABYTE - 4096)},
    {"topic": "odd/expiring", "payload": "soon", "ttl_ms": 1},
    {"topic": "odd/retained", "payload": "kept", "retain": True, "qos": 0},
    {
        "topic": "odd/properties",
        "payload": "x",
        "content_type": "text/plain; charset=utf-8",
        "correlation_id": "abc",
        "response_topic": "odd/answers",
        "message_id": "one-of-a-kind",
        "properties": {"again": ["1", "2"], "ü": "", "$own": "dollar"},
    },
]


@pytest.fixture
def far_east(spark: "SparkSession") -> Iterator[None]:
    """A session whose day begins thirteen hours before that of UTC."""
    before = spark.conf.get("spark.sql.session.timeZone")
    assert before is not None
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


def test_odd_topics_and_payloads_come_through_the_whole_chain(
    spark: "SparkSession", far_east: None, lake_server: LogServer, tmp_path: Path
) -> None:
    messages = [{"topic": topic, "payload": f"{number}"} for number, topic in enumerate(ODD_TOPICS)]
    lake_server.publish([*messages, *ODD_MESSAGES])
    publish_bytes(lake_server, "odd/bytes", bytes(range(256)))
    lake = tmp_path / "lake"
    server = {"address": lake_server.address}
    run(partial(archive, ArchiveOptions(lake=str(lake), server=server)), spark)
    lake_server.publish(messages)
    run(partial(archive, ArchiveOptions(lake=str(lake), server=server)), spark)
    with lake_server.client() as client:
        wanted = plain(client.read_log().table())
    assert plain(rows_in(lake)) == wanted
    run(partial(compact, CompactOptions(lake=str(lake), grace_s=0)), spark)
    assert plain(rows_in(lake)) == wanted

    connection = Connection(address=lake_server.address)
    report = run(partial(audit, AuditOptions(lake=str(lake), connection=connection)), spark)
    assert report.is_clean, report.tables
    assert report.facts["rows"] == len(wanted)

    frame = spark.read.format("penstock").options(address="", lake=str(lake)).load()
    read = frame.where("topic not like '$%'").orderBy("offset").select("topic", "payload").collect()
    assert [(row.topic, bytes(row.payload)) for row in read] == [
        (row["topic"], row["payload"]) for row in wanted if not row["topic"].startswith("$")
    ]

    table = lake_messages(lake)
    hurt = next(file for file in table.manifest().files.values() if file.rows > 1)
    damage(table.absolute(hurt), "payload")
    report = run(partial(audit, AuditOptions(lake=str(lake))), spark)
    assert [row["file"] for row in report.tables["damaged"]] == [hurt.path]
    assert report.facts["rows"] == len(wanted) - hurt.rows  # all others were read


def test_rows_around_midnight_lie_in_the_day_they_were_published_in(
    spark: "SparkSession", far_east: None, tmp_path: Path
) -> None:
    """The day is that of UTC, whatever the session says; late rows lie in their own day too."""
    midnight = round(datetime(2026, 3, 1, tzinfo=UTC).timestamp()) * 1_000_000
    times = [midnight - 1, midnight, midnight + 86_400_000_000 - 1, midnight - 86_400_000_000, -1, 0]
    rows = batch([("a", 1, number + 1, number + 1) for number in range(len(times))], times)
    table = lake_messages(tmp_path)
    files = write_batches(table.path, by_date_and_bucket(4), [rows])
    change = Change(
        added=files, schema="{}", start=cursor(0), cursor=cursor(9), log_id=LOG_ID, buckets=4, batch=1
    )
    table.commit(lambda _: change)
    assert {file.partition["date"]: file.rows for file in files} == {
        "1969-12-31": 1,
        "1970-01-01": 1,
        "2026-02-28": 2,
        "2026-03-01": 2,
    }
    report = run(partial(audit, AuditOptions(lake=str(tmp_path))), spark)
    assert report.is_clean, report.tables
    assert report.facts["rows"] == len(times)


def publish_bytes(server: LogServer, topic: str, payload: bytes) -> None:
    """Publish bytes that are no text."""
    with HttpClient(server.address) as client:
        client.publish(topic, payload=payload)


def rows_in(lake: Path) -> pa.Table:
    table = lake_messages(lake)
    files = table.manifest().files.values()
    return pa.Table.from_batches([rows for file in files for rows in read_file(table.absolute(file))])


def plain(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as Python values, by offset."""
    return sorted(table.to_pylist(), key=lambda row: row["offset"])
