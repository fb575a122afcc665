"""One data file, looked at: what it holds, and whether it is what the manifest says."""

from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from penstock.pipeline.jobs.audit.evidence import (
    BEHIND,
    DAMAGED,
    EVIDENCE,
    RUN,
    Evidence,
    batches_of,
    runs_in,
)
from penstock.pipeline.jobs.audit.files import Looking
from penstock.pipeline.jobs.audit.runs import Run, Stretch
from penstock.pipeline.lake import DataFile
from tests.pipeline.jobs.auditing import ALL, Place, damage, run, write_file

ROWS: Sequence[Place] = [("a", 1, number, number * 2) for number in range(1, 101)]


def look(folder: Path, file: DataFile, stretch: Stretch = ALL) -> list[Evidence]:
    return list(Looking(folder=str(folder), stretch=stretch, buckets=2).look(file))


def wrong_with(folder: Path, file: DataFile, stretch: Stretch = ALL) -> list[str | None]:
    return [each.text for each in look(folder, file, stretch) if each.kind == DAMAGED]


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
    assert wrong_with(tmp_path, file, Stretch(200, 300)) == []
    assert len(wrong_with(tmp_path, file, Stretch(199, 300))) == 1


def test_a_file_that_was_cut_or_is_gone_is_damaged(tmp_path: Path) -> None:
    file = write_file(tmp_path, "x.parquet", ROWS)
    path = tmp_path / file.path
    path.write_bytes(path.read_bytes()[:-20])
    assert len(wrong_with(tmp_path, file)) == 1
    path.unlink()
    assert wrong_with(tmp_path, file) == ["it is not there"]


def test_a_file_that_is_not_what_was_written_is_damaged_even_if_it_can_be_read(tmp_path: Path) -> None:
    file = write_file(tmp_path, "x.parquet", ROWS)
    path = tmp_path / file.path
    right = structs.replace(file, crc=crc32(path.read_bytes()))
    assert wrong_with(tmp_path, right) == []
    assert wrong_with(tmp_path, structs.replace(file, crc=1)) == [
        "its bytes are not those that were written: the checksum is wrong"
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
    for place in range(len(sound)):
        changed = bytearray(sound)
        changed[place] ^= 1
        path.write_bytes(changed)
        assert wrong_with(tmp_path, file), place


def test_a_file_of_something_else_is_damaged(tmp_path: Path) -> None:
    file = write_file(tmp_path, "x.parquet", ROWS)
    path = tmp_path / file.path
    pq.write_table(pa.table({"offset": [1]}), path)
    (text,) = wrong_with(tmp_path, structs.replace(file, bytes=path.stat().st_size))
    assert text is not None
    assert text.startswith("these are no messages")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"rows": 101}, "it has 100 rows, and the manifest says 101"),
        ({"last_offset": 300}, "it has the offsets 2 to 200, and the manifest says 2 to 300"),
        ({"last_time": 1}, "its rows are of another time than the manifest says"),
        ({"partition": {"date": "2024-10-03"}}, "it has rows that are not of 2024-10-03"),
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
    batches = [each.select(Run._fields) for each in batches_of(map(Evidence.of_run, runs), EVIDENCE)]
    assert list(runs_in(batches)) == runs
