from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.lake import writer as module
from penstock.lake.errors import DamagedFile
from penstock.lake.reader import read_file
from penstock.lake.writer import TableWriter, by_date_and_bucket
from tests.lake.damaging import damage
from tests.lake.messages import messages


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the offsets 0 to 99, in row groups of ten."""
    monkeypatch.setattr(module, "GROUP_ROWS", 10)
    with TableWriter(tmp_path, by_date_and_bucket(1)) as writer:
        for first in range(0, 100, 10):
            writer.write(messages(first, 10))
        [made] = writer.finish()
    return tmp_path / made.path


def offsets(batches: list[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_a_file_gives_back_what_was_written(path: Path) -> None:
    read = pa.Table.from_batches(list(read_file(path)))
    assert read.to_pylist() == messages(0, 100).to_pylist()


def test_columns_come_in_the_order_that_was_asked_for(path: Path) -> None:
    [first, *_] = read_file(path, ["topic", "offset"])
    assert first.schema.names == ["topic", "offset"]


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (15, 32, range(15, 33)),
        (None, 9, range(10)),
        (95, None, range(95, 100)),
        (20, 29, range(20, 30)),
        (100, 200, range(0)),
    ],
)
def test_a_range_of_offsets_has_both_ends(
    path: Path, first: int | None, last: int | None, expected: range
) -> None:
    assert offsets(list(read_file(path, None, first, last))) == list(expected)


def test_a_range_may_be_asked_for_without_the_column_of_offsets(path: Path) -> None:
    batches = list(read_file(path, ["payload"], 3, 4))
    assert [batch.to_pydict() for batch in batches] == [{"payload": [b"3", b"4"]}]


def test_row_groups_outside_of_the_range_are_not_read(path: Path) -> None:
    damage(path, 5, "payload")
    assert offsets(list(read_file(path, None, 0, 49))) == list(range(50))
    with pytest.raises(DamagedFile):
        list(read_file(path, None, 0, 50))


def test_columns_that_an_older_file_has_not_are_null(path: Path) -> None:
    schema = pa.schema(
        {"logged_at": pa.timestamp("us", "UTC"), "offset": pa.int64(), "topic": pa.large_string()}
    )
    batches = list(read_file(path, None, 7, 7, schema=schema))
    assert [batch.schema for batch in batches] == [schema]
    assert batches[0].to_pylist() == [{"logged_at": None, "offset": 7, "topic": "b"}]


def test_a_schema_may_be_cut_by_offsets_that_it_has_not(path: Path) -> None:
    schema = pa.schema({"payload": pa.binary()})
    assert [batch.to_pylist() for batch in read_file(path, None, 7, 7, schema=schema)] == [
        [{"payload": b"7"}]
    ]


def test_a_damaged_page_is_told_with_the_file(path: Path) -> None:
    damage(path, 9, "payload")
    with pytest.raises(DamagedFile, match=rf"{path.name}.*CRC"):
        list(read_file(path))


@pytest.mark.parametrize("size", [0, 3, 200])
def test_a_cut_file_is_damaged(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DamagedFile, match=path.name):
        list(read_file(path))


def test_a_file_that_is_gone_is_not_damaged(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(read_file(tmp_path / "gone.parquet"))


def test_a_file_without_rows_is_read(tmp_path: Path) -> None:
    pq.write_table(pa.schema({"offset": pa.int64()}).empty_table(), tmp_path / "empty.parquet")
    assert list(read_file(tmp_path / "empty.parquet", None, 1, 2)) == []
