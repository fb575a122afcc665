"""Batches of the log made into batches of Spark."""

from datetime import UTC, datetime
from itertools import pairwise

import pyarrow as pa
from pyspark.sql.types import StructType

from penstock.pipeline.source import shaping
from penstock.pipeline.source.schema import log_schema
from penstock.pipeline.source.shaping import Shape, resize

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
    rows = Shape(schema).shape(log_batch())
    assert rows.schema.names == ["payload", "topic", "published_at", "properties"]
    assert rows.schema.field("topic").type == pa.string()
    assert rows.slice(1, 1).to_pylist() == [
        {"payload": b"1", "topic": "a/1", "published_at": NOON, "properties": [("k", "1"), ("k", "2")]}
    ]


def test_the_offset_is_always_needed_and_the_payload_for_its_value() -> None:
    assert Shape(log_schema(("topic",))).needed.names == ["offset", "topic"]
    schema = log_schema(("topic",)).add("value", "integer").add("dead_letter", "string")
    assert Shape(schema).needed.names == ["offset", "topic", "payload"]


def test_values_come_beside_the_columns_of_the_log() -> None:
    schema = StructType().add("topic", "string").add("value", "integer").add("dead_letter", "string")
    rows = Shape(schema).shape(log_batch(2))
    assert rows.to_pylist() == [
        {"topic": "a/0", "value": 0, "dead_letter": None},
        {"topic": "a/1", "value": 1, "dead_letter": None},
    ]


def test_small_batches_are_joined_and_large_ones_cut() -> None:
    sizes = [1, 2, 5_000, 50_000, 3, 4_095, 1, 7]
    batches = list(resize(log_batch(size) for size in sizes))
    assert sum(batch.num_rows for batch in batches) == sum(sizes)
    assert all(shaping.LEAST_ROWS <= batch.num_rows <= shaping.MOST_ROWS for batch in batches[:-1])


def test_rows_keep_their_order_when_batches_change() -> None:
    whole = log_batch(40_000)
    pieces = [whole.slice(start, stop - start) for start, stop in pairwise([0, 10, 20_000, 20_001, 40_000])]
    assert pa.Table.from_batches(resize(pieces)).column("offset").to_pylist() == list(range(1, 40_001))


def test_batches_with_large_payloads_stay_bounded() -> None:
    large = pa.record_batch({"payload": pa.array([b"x" * (1 << 20)] * 50)})
    batches = list(resize([large]))
    assert sum(batch.num_rows for batch in batches) == 50
    assert max(batch.nbytes for batch in batches) <= shaping.MOST_BYTES + (1 << 20)
    small = list(resize([large.slice(row, 1) for row in range(50)]))
    assert sum(batch.num_rows for batch in small) == 50
    assert max(batch.nbytes for batch in small) <= shaping.MOST_BYTES + (1 << 20)


def test_nothing_stays_nothing() -> None:
    assert list(resize([])) == []
