"""Scans: data files compared with the manifest, and the log read for comparison."""

from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from penstock.errors import InvalidRequest
from penstock.lake import DataFile
from penstock.spark.connection import Connection
from penstock.spark.jobs.audit.runs import (
    BEHIND,
    DAMAGED,
    EVIDENCE,
    GAP,
    READ,
    RUN,
    Evidence,
    OffsetRange,
    Run,
    read_runs,
    to_batches,
)
from penstock.spark.jobs.audit.scan import FileScan, LogScan, LogSlice, plan_parts
from penstock.spark.source.positions import position_of
from tests.spark.jobs.audit.lakes import ALL, RangeEnd, damage, run, write_file
from tests.spark.servers import LogServer

ROWS: Sequence[RangeEnd] = [("a", 1, number, number * 2) for number in range(1, 101)]


def look(folder: Path, file: DataFile, audited: OffsetRange = ALL) -> list[Evidence]:
    return list(FileScan(folder=str(folder), audited=audited, buckets=2).scan(file))


def wrong_with(folder: Path, file: DataFile, audited: OffsetRange = ALL) -> list[str | None]:
    return [each.text for each in look(folder, file, audited) if each.kind == DAMAGED]


def test_a_sound_file_is_its_runs_and_how_much_was_read(tmp_path: Path) -> None:
    file = write_file(tmp_path, "x.parquet", ROWS)
    assert look(tmp_path, file) == [
        Evidence("read", file.path, first=100, last=file.bytes),
        Evidence(RUN, file.path, "a", 1, 1, 100, 2, 200, True),
    ]


def test_a_changed_byte_is_found_wherever_it_is(tmp_path: Path) -> None:
    file = write_file(tmp_path, "x.parquet", ROWS)
    damage(tmp_path / file.path)
    (text,) = wrong_with(tmp_path, file)
    assert text is not None
    assert str(tmp_path) not in text


def test_payloads_outside_of_what_is_audited_are_not_read(tmp_path: Path) -> None:
    file = write_file(tmp_path, "x.parquet", ROWS)
    damage(tmp_path / file.path)
    assert wrong_with(tmp_path, file, OffsetRange(200, 300)) == []
    assert len(wrong_with(tmp_path, file, OffsetRange(199, 300))) == 1


def test_a_file_that_was_cut_or_is_gone_is_damaged(tmp_path: Path) -> None:
    file = write_file(tmp_path, "x.parquet", ROWS)
    path = tmp_path / file.path
    path.write_bytes(path.read_bytes()[:-20])
    assert len(wrong_with(tmp_path, file)) == 1
    path.unlink()
    assert wrong_with(tmp_path, file) == ["it does not exist"]


def test_a_file_that_is_not_what_was_written_is_damaged_even_if_it_can_be_read(tmp_path: Path) -> None:
    file = write_file(tmp_path, "x.parquet", ROWS)
    path = tmp_path / file.path
    right = structs.replace(file, crc=crc32(path.read_bytes()))
    assert wrong_with(tmp_path, right) == []
    assert wrong_with(tmp_path, structs.replace(file, crc=1)) == [
        "its content changed since it was written: the checksum is wrong"
    ]
    other = write_file(tmp_path, "y.parquet", ROWS[:99])
    assert wrong_with(tmp_path, structs.replace(other, bytes=7)) == [
        f"it has {other.bytes} bytes, and the manifest says 7"
    ]


def test_no_byte_of_a_small_file_changes_unnoticed(tmp_path: Path) -> None:
    file = write_file(tmp_path, "x.parquet", ROWS[:3])
    path = tmp_path / file.path
    sound = path.read_bytes()
    file = structs.replace(file, crc=crc32(sound))
    for position in range(len(sound)):
        changed = bytearray(sound)
        changed[position] ^= 1
        path.write_bytes(changed)
        assert wrong_with(tmp_path, file), position


def test_a_file_of_something_else_is_damaged(tmp_path: Path) -> None:
    file = write_file(tmp_path, "x.parquet", ROWS)
    path = tmp_path / file.path
    pq.write_table(pa.table({"offset": [1]}), path)
    (text,) = wrong_with(tmp_path, structs.replace(file, bytes=path.stat().st_size))
    assert text is not None
    assert text.startswith("its rows are not messages")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"rows": 101}, "it has 100 rows, and the manifest says 101"),
        ({"last_offset": 300}, "it has the offsets 2 to 200, and the manifest says 2 to 300"),
        ({"last_time": 1}, "its times differ from those in the manifest"),
        ({"partition": {"date": "2024-10-03"}}, "it has rows of other days than 2024-10-03"),
        ({"partition": {"bucket": "00"}}, "a does not belong to bucket 00"),
    ],
)
def test_what_the_manifest_says_has_to_be_so(tmp_path: Path, changes: dict[str, object], text: str) -> None:
    file = write_file(tmp_path, "x.parquet", ROWS)
    assert file.partition == {"date": "2024-10-04", "bucket": "01"}
    assert wrong_with(tmp_path, file) == []
    assert wrong_with(tmp_path, structs.replace(file, **changes)) == [text]


def test_rows_that_stand_behind_later_ones_are_told(tmp_path: Path) -> None:
    rows = [ROWS[0], ROWS[2], ROWS[1], ROWS[3]]
    found = look(tmp_path, write_file(tmp_path, "x.parquet", rows))
    assert [(each.first, each.last) for each in found if each.kind == BEHIND] == [(2, 2)]


def test_runs_come_through_arrow_as_they_were() -> None:
    runs = [run(1, 5), run(7, 9, topic="ä/b", path="", is_inside=False)]
    batches = [each.select(Run._fields) for each in to_batches(map(Evidence.of_run, runs), EVIDENCE)]
    assert list(read_runs(batches)) == runs


@pytest.fixture
def connection(log_server: LogServer) -> Connection:
    return Connection(address=log_server.address)


def parts_of(
    connection: Connection, cursor: str, after: int, filters: tuple[str, ...] = ()
) -> list[LogSlice]:
    position = position_of(cursor)
    return plan_parts(connection, position.log_id, cursor, filters, OffsetRange(after, position.offset), 4)


def test_the_log_is_runs_and_how_far_it_was_read(
    log_server: LogServer, connection: Connection, name: str
) -> None:
    receipts = log_server.publish_numbers([f"{name}/a", f"{name}/b"], 100)
    after, until = position_of(receipts[0].cursor).offset - 1, position_of(receipts[-1].cursor)
    filters = (f"{name}/#",)
    audited = OffsetRange(after, until.offset)
    side = LogScan(connection=connection, filters=filters, audited=audited)
    parts = parts_of(connection, receipts[-1].cursor, after, filters)
    seen = [each for part in parts for each in side.scan(part)]
    assert position_of(parts[0].after).offset == after
    assert position_of(parts[-1].until).offset == until.offset
    runs = [each for each in seen if each.kind == RUN]
    assert {each.topic: (each.first, each.last, each.is_inside) for each in runs} == {
        f"{name}/a": (1, 50, True),
        f"{name}/b": (1, 50, True),
    }
    read = [each for each in seen if each.kind == READ]
    assert [each.first_offset for each in read] == [position_of(part.after).offset + 1 for part in parts]
    assert sum(each.first or 0 for each in read) == 100
    assert not [each for each in seen if each.kind == GAP]


def test_there_is_nothing_to_compare_when_the_log_begins_behind_the_range(
    log_server: LogServer, connection: Connection
) -> None:
    cursor = log_server.cursor
    position = position_of(cursor)
    assert (
        plan_parts(connection, position.log_id, cursor, (), OffsetRange(position.offset, position.offset), 4)
        == []
    )


def test_what_is_behind_the_cursor_of_the_lake_is_not_compared(
    log_server: LogServer, connection: Connection, name: str
) -> None:
    receipts = log_server.publish_numbers([f"{name}/a"], 9)
    position = position_of(receipts[4].cursor)
    audited = OffsetRange(position.offset - 3, position.offset + 3)
    parts = plan_parts(connection, position.log_id, receipts[4].cursor, (), audited, 1)
    assert [position_of(part.until).offset for part in parts] == [position.offset]


def test_the_log_of_somebody_else_is_refused(log_server: LogServer, connection: Connection) -> None:
    other = "aabbccddeeff0011"
    with pytest.raises(InvalidRequest, match=f"this lake belongs to the log {other}, but the server has"):
        plan_parts(connection, other, log_server.cursor, (), OffsetRange(0, 9), 4)
