"""Writer of data files: rows split by partition, and files that count only when complete."""

import os
from datetime import date
from pathlib import Path
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.lake import Change, Table, drop_files
from penstock.lake import writer as module
from penstock.lake.layout import NO_VALUE, bucket_of
from penstock.lake.manifest import DataFile
from penstock.lake.writer import TableWriter, by_columns, by_date_and_bucket, decode_dictionaries
from tests.lake.damaging import damage
from tests.lake.messages import DAY_US, NOON, SCHEMA, messages

TOPICS = ["a", "b", "c", "d", "e"]


def write(path: Path, *batches: pa.RecordBatch, buckets: int = 4, **limits: int) -> list[DataFile]:
    with TableWriter(path, by_date_and_bucket(buckets), **limits) as writer:
        for batch in batches:
            writer.write(batch)
        return writer.finish()


def rows_in(path: Path, made: list[DataFile]) -> list[dict[str, object]]:
    tables = [pq.ParquetFile(path / file.path).read() for file in made]
    return sorted((row for table in tables for row in table.to_pylist()), key=lambda row: int(row["offset"]))


def names_below(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.rglob("*") if each.is_file())


def test_every_row_is_in_the_file_of_its_partition(tmp_path: Path) -> None:
    batches = [messages(0, 50, TOPICS), messages(50, 50, TOPICS)]
    made = write(tmp_path, *batches)
    assert rows_in(tmp_path, made) == [row for batch in batches for row in batch.to_pylist()]
    assert len(made) == len({bucket_of(topic, 4) for topic in TOPICS})
    for file in made:
        topics = set(pq.ParquetFile(tmp_path / file.path).read(["topic"]).column("topic").to_pylist())
        assert {f"{bucket_of(topic, 4):02d}" for topic in topics} == {file.partition["bucket"]}
        assert file.path.startswith(f"date=2026-11-16/bucket={file.partition['bucket']}/")


def test_files_say_what_is_in_them(tmp_path: Path) -> None:
    [made] = write(tmp_path, messages(10, 5, ["a"]), messages(15, 5, ["a"], NOON + 7), buckets=1)
    assert (made.rows, made.first_offset, made.last_offset) == (10, 10, 19)
    assert (made.first_time, made.last_time) == (NOON, NOON + 7)
    assert made.bytes == (tmp_path / made.path).stat().st_size


def test_only_whole_files_have_names_that_count(tmp_path: Path) -> None:
    with TableWriter(tmp_path, by_date_and_bucket(1)) as writer:
        writer.write(messages(0, 5))
        assert [Path(name).suffix for name in names_below(tmp_path)] == [".draft"]
        [made] = writer.finish()
    assert names_below(tmp_path) == [made.path]


def test_a_failure_leaves_no_file(tmp_path: Path) -> None:
    def fail() -> None:
        with TableWriter(tmp_path, by_date_and_bucket(2), file_bytes=1) as writer:
            writer.write(messages(0, module.GROUP_ROWS))
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        fail()
    assert names_below(tmp_path) == []


def test_files_are_synced_before_they_have_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    [made] = write(tmp_path, messages(0, 5), buckets=1)
    path = tmp_path / made.path
    assert synced[-2:] == [str(path.with_name(f".{path.name}.draft")), str(path.parent)]
    assert str(tmp_path) in synced  # the folders are new


def test_a_large_file_is_followed_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUP_ROWS", 10)
    made = write(tmp_path, *(messages(n * 10, 10, ["a"]) for n in range(4)), buckets=1, file_bytes=1)
    assert [(file.first_offset, file.last_offset) for file in made] == [(0, 9), (10, 19), (20, 29), (30, 39)]


def test_row_groups_are_cut_by_bytes_of_all_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAITING_BYTES", 1)
    made = write(tmp_path, *(messages(n * 10, 10, TOPICS) for n in range(3)))
    assert {pq.ParquetFile(tmp_path / file.path).num_row_groups for file in made} == {3}
    assert len(rows_in(tmp_path, made)) == 30


def test_dictionaries_may_change_from_batch_to_batch(tmp_path: Path) -> None:
    [made] = write(tmp_path, messages(0, 3, ["x", "y"]), messages(3, 3, ["y", "z"]), buckets=1)
    assert [row["topic"] for row in rows_in(tmp_path, [made])] == ["x", "y", "x", "z", "y", "z"]


def test_files_have_plain_types_and_page_checksums(tmp_path: Path) -> None:
    [made] = write(tmp_path, messages(0, 100, at=NOON + DAY_US), buckets=1)
    file = pq.ParquetFile(tmp_path / made.path)
    assert file.schema_arrow.field("topic").type == pa.string()
    assert file.schema_arrow.field("published_at").type == pa.timestamp("us", "UTC")
    assert "RLE_DICTIONARY" in file.metadata.row_group(0).column(1).encodings
    damage(tmp_path / made.path, 0, "payload")
    with pytest.raises(OSError, match="CRC"):
        pq.ParquetFile(tmp_path / made.path, page_checksum_verification=True).read()


def test_other_tables_are_written_by_their_own_columns(tmp_path: Path) -> None:
    batch = pa.record_batch({"count": [1, 2, 3], "sizes": [[1], [2, 3], None], "grain": ["10s", "1h", "10s"]})
    with TableWriter(tmp_path, by_columns(["grain"])) as writer:
        writer.write(batch)
        made = writer.finish()
    assert {file.partition["grain"]: file.rows for file in made} == {"10s": 2, "1h": 1}
    assert {(file.first_offset, file.last_offset) for file in made} == {(None, None)}


def test_a_file_comes_with_the_checksum_of_all_its_bytes(tmp_path: Path) -> None:
    made = write(tmp_path, messages(0, 50, TOPICS))
    for file in made:
        assert file.crc == crc32((tmp_path / file.path).read_bytes())


def test_what_is_live_is_not_dropped_whatever_its_maker_believes(tmp_path: Path) -> None:
    table = Table(tmp_path)
    live, other = write(tmp_path, messages(0, 5, ["a"])), write(tmp_path, messages(5, 5, ["a"]))
    table.commit(lambda manifest: Change(added=live, schema="{}"))
    drop_files(table, [*live, *other])
    assert names_below(tmp_path)[0] == "_manifest/00000000000000000001.json"
    assert names_below(tmp_path)[1:] == [file.path for file in live]


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
    coded, values = messages(0, 20), decode_dictionaries(messages(0, 20))
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
