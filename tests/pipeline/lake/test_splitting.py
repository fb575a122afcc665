from datetime import date

import pyarrow as pa

from penstock.pipeline.lake.layout import NO_VALUE, bucket_of
from penstock.pipeline.lake.splitting import by_columns, by_date_and_bucket, plain
from tests.pipeline.lake.messages import DAY_US, NOON, SCHEMA, messages


def offsets_of(rows: pa.RecordBatch) -> list[int]:
    return list(rows.column("offset").to_pylist())


def test_messages_go_to_their_bucket_in_their_order() -> None:
    topics = ["a", "b", "c", "d"]
    pieces = dict(by_date_and_bucket(8)(messages(0, 40, topics)))
    assert {partition: offsets_of(rows) for partition, rows in pieces.items()} == {
        (("date", "2026-11-16"), ("bucket", f"{bucket:02d}")): [
            offset for offset in range(40) if bucket_of(topics[offset % 4], 8) == bucket
        ]
        for bucket in {bucket_of(topic, 8) for topic in topics}
    }


def test_messages_around_midnight_go_to_both_days() -> None:
    midnight = NOON - NOON % DAY_US
    rows = pa.Table.from_batches(
        [messages(0, 1, ["a"], midnight - 1), messages(1, 1, ["a"], midnight), messages(2, 1, ["a"], 0)]
    ).combine_chunks()
    pieces = by_date_and_bucket(4)(rows.to_batches()[0])
    assert [(dict(partition)["date"], offsets_of(piece)) for partition, piece in pieces] == [
        ("1970-01-01", [2]),
        ("2026-11-15", [0]),
        ("2026-11-16", [1]),
    ]


def test_one_bucket_is_the_batch_itself() -> None:
    batch = messages(0, 10)
    [(partition, rows)] = by_date_and_bucket(1)(batch)
    assert dict(partition) == {"date": "2026-11-16", "bucket": "00"}
    assert rows.to_pylist() == batch.to_pylist()


def test_rows_that_are_not_coded_are_split_alike() -> None:
    coded, values = messages(0, 20), plain(messages(0, 20))
    assert values.schema.field("topic").type == pa.string()
    split = by_date_and_bucket(8)
    assert [(key, rows.to_pylist()) for key, rows in split(coded)] == [
        (key, rows.to_pylist()) for key, rows in split(values)
    ]


def test_no_rows_are_no_pieces() -> None:
    empty = SCHEMA.empty_table().to_batches() or [pa.RecordBatch.from_pylist([], SCHEMA)]
    assert list(by_date_and_bucket(8)(empty[0])) == []
    assert list(by_columns(["topic"])(empty[0])) == []


def test_rows_are_split_by_the_values_of_columns_which_they_lose() -> None:
    batch = pa.record_batch(
        {
            "value": [1, 2, 3, 4, 5],
            "day": pa.array([date(2026, 1, 1), date(2026, 1, 2), date(2026, 1, 1), None, date(2026, 1, 2)]),
            "grain": ["10s", "10s", "1h", "10s", "10s"],
        }
    )
    pieces = {
        tuple(value for _, value in partition): rows.to_pydict()
        for partition, rows in by_columns(["day", "grain"])(batch)
    }
    assert pieces == {
        ("2026-01-01", "10s"): {"value": [1]},
        ("2026-01-01", "1h"): {"value": [3]},
        ("2026-01-02", "10s"): {"value": [2, 5]},
        (NO_VALUE, "10s"): {"value": [4]},
    }


def test_without_columns_there_is_one_partition() -> None:
    batch = pa.record_batch({"value": [1, 2]})
    assert [(key, rows.to_pydict()) for key, rows in by_columns([])(batch)] == [((), {"value": [1, 2]})]
