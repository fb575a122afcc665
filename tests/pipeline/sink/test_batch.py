"""Frames that are written to topics: all of it or nothing, in order, and once for a key."""

from typing import TYPE_CHECKING

import pytest

from penstock.pipeline.sink.staging import name_of
from tests.pipeline.servers import LogServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
        assert not list(client.stages(name_of(f"night {name}")))


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
    spark: "SparkSession", lake_server: LogServer, name: str
) -> None:
    frame = numbers(spark, name, 90, 3).selectExpr("if(payload = '77', 'no/#', topic) as topic", "payload")
    with pytest.raises(Exception, match="a row of the topic no/# is refused: a topic holds no"):
        frame.write.format("penstock").mode("append").option("address", lake_server.address).save()
    assert not published(lake_server, f"{name}/#")
    with lake_server.client() as client:
        assert not list(client.stages())


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
