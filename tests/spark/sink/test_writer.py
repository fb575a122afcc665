"""Writers: DataFrames and streams published completely, in order, and once per key; and their columns."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampType,
)

from penstock.spark.datasource import stream_writer
from penstock.spark.errors import InvalidColumns
from penstock.spark.sink.staging import halves, stage_prefix, stage_prefix_under
from penstock.spark.sink.writer import BATCH, QUERY, check_columns, with_topic
from tests.spark.jvms import QUICK_DRIVER
from tests.spark.servers import LogServer
from tests.support.servers import StartServer
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def published(server: LogServer, *filters: str) -> list[dict[str, object]]:
    with server.client() as client, client.read_log(filters=filters) as log:
        return [dict(row) for row in log.table().to_pylist()]


def numbers(spark: "SparkSession", topic: str, count: int, partitions: int) -> "DataFrame":
    return spark.range(0, count, 1, partitions).selectExpr(
        f"concat('{topic}/', id % 3) as topic", "cast(id as string) as payload"
    )


def test_a_frame_is_published_as_a_whole_in_order_and_once_for_its_key(
    spark: "SparkSession", log_server: LogServer, name: str
) -> None:
    def write(partitions: int) -> None:
        frame = numbers(spark, name, 1_000, partitions)
        frame.write.format("penstock").mode("append").option("address", log_server.address).option(
            "key", f"night {name}"
        ).save()

    write(3)
    rows = published(log_server, f"{name}/#")
    assert [row["payload"] for row in rows] == [str(number).encode() for number in range(1_000)]
    write(3)
    write(2)  # cut into other parts, it is the same work
    assert published(log_server, f"{name}/#") == rows
    with log_server.client() as client:
        assert not list(client.stages(stage_prefix(f"night {name}")))


def test_every_column_of_a_message_arrives(spark: "SparkSession", log_server: LogServer, name: str) -> None:
    frame = spark.sql(
        """
        select string(null) as topic, binary('x') as payload, tinyint(2) as qos, true as retain,
            bigint(60000) as ttl_ms, 'text/plain' as content_type, 'c1' as correlation_id, 'm1' as message_id,
            'answers/here' as response_topic, map('b', '2', 'a', '1') as properties
        """
    )
    frame.write.format("penstock").mode("append").options(address=log_server.address, topic=name).save()
    (row,) = published(log_server, name)
    assert (row["topic"], row["payload"], row["qos"], row["retain"]) == (name, b"x", 2, True)
    assert (row["content_type"], row["correlation_id"], row["message_id"]) == ("text/plain", b"c1", "m1")
    assert row["properties"] == [("b", "2"), ("a", "1"), ("$response_topic", "answers/here")]
    assert (row["expires_at"] - row["published_at"]).total_seconds() == 60  # type: ignore[operator]


def test_a_task_that_fails_leaves_nothing_of_the_whole_frame(
    spark: "SparkSession", start_server: StartServer, tmp_path: Path, name: str
) -> None:
    # Tasks that Spark kills may send a part after the others were dropped: these stages lapse.
    settings = {"http": {"port": 0}, "data_dir": str(tmp_path / "data"), "stage": {"lapse_s": 2}}
    server = LogServer(start_server(settings))
    frame = numbers(spark, name, 90, 3).selectExpr("if(payload = '77', 'no/#', topic) as topic", "payload")
    with pytest.raises(Exception, match="a row of the topic no/# was refused: a topic holds no"):
        frame.write.format("penstock").mode("append").option("address", server.address).save()
    with server.client() as client:
        until_sync(lambda: not list(client.stages()), "a stage of the failed frame is still there")
    assert not published(server, f"{name}/#")


def test_what_cannot_be_written_is_refused_before_anything_is_computed(
    spark: "SparkSession", log_server: LogServer, name: str
) -> None:
    bad = spark.range(1).selectExpr(
        "string(raise_error('computed')) as topic", "'x' as payload", "id as number"
    )
    with pytest.raises(Exception, match="no column 'number'"):
        bad.write.format("penstock").mode("append").option("address", log_server.address).save()
    with pytest.raises(Exception, match="cannot be overwritten"):
        bad.drop("number").write.format("penstock").mode("overwrite").save()
    with pytest.raises(Exception, match="no option tpoic for writing: did you mean topic"):
        bad.drop("number").write.format("penstock").mode("append").option("tpoic", name).save()


def published_numbers(server: LogServer, topic: str) -> list[int]:
    with server.client() as client, client.read_log(filters=[topic], columns=["payload"]) as log:
        return [int(payload) for payload in log.table().column("payload").to_pylist()]


class Story:
    """A folder of files with numbers, and a query that publishes them, a file in each batch."""

    def __init__(self, spark: "SparkSession", folder: Path, server: LogServer, topic: str) -> None:
        self._spark, self.folder, self._server, self.topic = spark, folder, server, topic
        (folder / "in").mkdir()
        self._files = 0

    def add(self, *numbers: int) -> None:
        """One more file."""
        draft = self.folder / "draft"
        draft.write_text("".join(f"{number}\n" for number in numbers), encoding="utf-8")
        self._files += 1
        draft.rename(self.folder / "in" / f"{self._files:03}.txt")

    def run(self, partitions: int = 2) -> None:
        """Publish what is there, and end."""
        frame = self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(self.folder / "in"))
        query: StreamingQuery = (
            frame.selectExpr("value as payload")
            .repartition(partitions)
            .writeStream.format("penstock")
            .options(address=self._server.address, topic=self.topic)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def forget_commit(self, batch: int) -> None:
        """Make Spark believe that it was killed before it noted that a batch was done."""
        for file in (self.folder / "checkpoint" / "commits").glob(f"*{batch}*"):
            file.unlink()

    @property
    def stages(self) -> dict[str, int]:
        """How many rows each stage of the query has; other tests use the same server."""
        query = json.loads((self.folder / "checkpoint" / "metadata").read_text(encoding="utf-8"))["id"]
        with self._server.client() as client:
            return {id: client.staged(id)["rows"] for id in client.stages(stage_prefix_under(query))}

    @property
    def published(self) -> list[int]:
        """What is in the log, by number."""
        return sorted(published_numbers(self._server, self.topic))


@pytest.fixture
def story(spark: "SparkSession", log_server: LogServer, tmp_path: Path, name: str) -> Story:
    return Story(spark, tmp_path, log_server, name)


def test_a_batch_that_spark_does_again_is_published_once(story: Story) -> None:
    story.add(1, 2, 3, 4)
    story.add(5, 6, 7)
    story.run()
    assert story.published == [1, 2, 3, 4, 5, 6, 7]
    story.forget_commit(1)
    story.add(8)
    story.run(partitions=3)
    assert story.published == [1, 2, 3, 4, 5, 6, 7, 8]
    assert not story.stages


@pytest.mark.parametrize("known", [{}, {QUERY: "q"}, {BATCH: "7"}, {QUERY: "", BATCH: "7"}])
def test_rows_of_a_batch_that_nobody_can_name_are_not_written(
    known: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Task:
        @staticmethod
        def get() -> object:
            return Task()

        def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 - Spark's
            return known.get(name)

    monkeypatch.setattr("penstock.spark.sink.writer.TaskContext", Task)
    writer = stream_writer({"topic": "a"}, StructType().add("payload", "string"))
    with pytest.raises(RuntimeError, match="does not report the query and the batch"):
        writer.write(iter([]))


KILLED = dedent(
    """
    import json, sys, time
    from pathlib import Path
    from penstock.spark.session import start_session
    from penstock.spark.datasource import StreamWriter, stream_writer
    from pyspark.sql.datasource import DataSource

    folder, address, topic, is_held, confs = sys.argv[1:]


    class Watched(StreamWriter):
        def commit(self, messages, batchId):
            (Path(folder) / "staged").touch()
            if is_held == "True":
                time.sleep(600)
            super().commit(messages, batchId)


    class Source(DataSource):
        @classmethod
        def name(cls):
            return "watched"

        def streamWriter(self, schema, overwrite):
            return Watched(stream_writer(self.options, schema)._options)


    spark = start_session("killed", "local[2]", json.loads(confs))
    spark.dataSource.register(Source)
    spark.readStream.option("maxFilesPerTrigger", 1).text(folder + "/in").selectExpr(
        "value as payload"
    ).repartition(2).writeStream.format("watched").options(address=address, topic=topic).option(
        "checkpointLocation", folder + "/checkpoint"
    ).start().awaitTermination()
    """
)
"""A query that says when it is about to commit its first batch, and then does so or waits for ever."""


def kill_query(story: Story, server: LogServer, *, is_held: bool) -> None:
    """Start the query in a process of its own, and kill it when its first batch is staged, or soon after."""
    script, marker = story.folder / "killed.py", story.folder / "staged"
    script.write_text(KILLED, encoding="utf-8")
    marker.unlink(missing_ok=True)
    confs = json.dumps({**QUICK_DRIVER, "spark.sql.shuffle.partitions": "2"})
    arguments = [str(story.folder), server.address, story.topic, str(is_held), confs]
    with (story.folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(script), *arguments], start_new_session=True, stdout=output, stderr=output
        )
        try:
            while not marker.exists():
                assert _is_alive(process, 0.1), (story.folder / "output").read_text(errors="replace")
            if not is_held:
                assert _is_alive(process, random.uniform(0, 2))
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # Spark's JVM and its workers too
            process.wait()


def _is_alive(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


@pytest.mark.timeout(1_200)
def test_a_query_that_is_killed_between_stage_and_commit_loses_and_repeats_nothing(
    story: Story, log_server: LogServer, scale: int
) -> None:
    """One kill at that very point; in a soak nine more, shortly behind it."""
    story.add(1, 2, 3, 4)
    story.add(5, 6, 7, 8)
    kill_query(story, log_server, is_held=True)
    assert sum(story.stages.values()) == 4
    assert story.published == []
    for number in range(scale - 1):
        story.add(100 + number, 200 + number)
        story.add(300 + number)
        kill_query(story, log_server, is_held=False)
    story.run()
    later = [base + number for base in (100, 200, 300) for number in range(scale - 1)]
    assert story.published == [1, 2, 3, 4, 5, 6, 7, 8, *later]
    assert not story.stages, "what the killed one has left was cleared away"


TEXT, BYTES = StringType(), BinaryType()
PAIRS = StructType().add("key", TEXT).add("value", TEXT)


def schema(**columns: DataType) -> StructType:
    fields = StructType()
    for name, kind in columns.items():
        fields.add(name, kind)
    return fields


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"qos": ByteType(), "retain": BooleanType(), "ttl_ms": LongType()},
        {"qos": IntegerType(), "content_type": TEXT, "message_id": TEXT, "response_topic": TEXT},
        {"correlation_id": BYTES, "properties": MapType(TEXT, TEXT)},
        {"correlation_id": TEXT, "properties": ArrayType(PAIRS)},
        {"properties": NullType(), "content_type": NullType()},
    ],
)
def test_columns_of_messages_are_taken(columns: dict[str, DataType]) -> None:
    for payload in (TEXT, BYTES):
        check_columns(schema(topic=TEXT, payload=payload, **columns), has_topic=False)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"topic": TEXT, "payload": TEXT, "number": LongType()}, "no column 'number'; it has topic, payload"),
        ({"topic": TEXT}, "payload is missing"),
        ({"payload": TEXT}, "topic is missing"),
        ({"topic": BYTES, "payload": TEXT}, "topic is binary, and must be string"),
        ({"topic": TEXT, "payload": LongType()}, "payload is bigint, and must be binary or string"),
        ({"topic": TEXT, "payload": NullType()}, "payload is void"),
        ({"topic": NullType(), "payload": TEXT}, "topic is void"),
        ({"topic": TEXT, "payload": TEXT, "qos": DoubleType()}, "qos is double"),
        ({"topic": TEXT, "payload": TEXT, "ttl_ms": TimestampType()}, "ttl_ms is timestamp"),
        ({"topic": TEXT, "payload": TEXT, "retain": LongType()}, "retain is bigint, and must be boolean"),
        (
            {"topic": TEXT, "payload": TEXT, "properties": MapType(TEXT, LongType())},
            "properties is map<string,bigint>, and must be map<string,string>",
        ),
        (
            {"topic": TEXT, "payload": TEXT, "properties": ArrayType(TEXT)},
            "properties is array<string>",
        ),
        (
            {
                "topic": TEXT,
                "payload": TEXT,
                "properties": ArrayType(StructType().add("k", TEXT).add("v", TEXT)),
            },
            "properties is array<struct",
        ),
    ],
)
def test_other_columns_are_refused_by_name(columns: dict[str, DataType], text: str) -> None:
    with pytest.raises(InvalidColumns, match=text):
        check_columns(schema(**columns), has_topic=False)


def test_a_column_that_is_there_twice_is_refused() -> None:
    with pytest.raises(InvalidColumns, match="payload exists twice"):
        check_columns(schema(topic=TEXT, payload=TEXT).add("payload", BYTES), has_topic=False)


def test_a_frame_needs_no_topic_if_there_is_one_for_all() -> None:
    check_columns(schema(payload=TEXT), has_topic=True)
    check_columns(schema(topic=NullType(), payload=TEXT), has_topic=True)
    batch = with_topic(pa.record_batch({"payload": ["1", "2"]}), "a/b")
    assert batch.to_pydict() == {"topic": ["a/b", "a/b"], "payload": ["1", "2"]}


@pytest.mark.parametrize("topics", [pa.array(["x", None, "y"]), pa.nulls(3)])
def test_only_rows_without_a_topic_get_that_of_the_option(topics: pa.Array) -> None:
    batch = with_topic(pa.record_batch({"payload": ["1", "2", "3"], "topic": topics}), "a/b")
    assert batch.column("topic").to_pylist() == [topic or "a/b" for topic in topics.to_pylist()]
    assert batch.schema.names == ["payload", "topic"]


def test_rows_stay_as_they_are_if_nothing_is_said_of_a_topic() -> None:
    batch = pa.record_batch({"topic": pa.array(["x", None]), "payload": ["1", "2"]})
    assert with_topic(batch, None) is batch


def test_halves_have_all_rows_in_order() -> None:
    first, last = halves(pa.record_batch({"payload": [1, 2, 3]}))
    assert first.column(0).to_pylist() + last.column(0).to_pylist() == [1, 2, 3]
    assert first.num_rows and last.num_rows
