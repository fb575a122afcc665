"""`penstock log export`: files for other programs, complete or not there at all."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.cli.log.export import GROUP_ROWS, export_schema
from penstock.model import Properties
from penstock.storage.disk.pieces.arrow_columns import SCHEMA
from penstock.storage.disk.rocksdb.layout import LOG, ROWS, offset_key
from penstock.wire.arrow import STATEMENT_KEY
from tests.cli.log.conftest import Run
from tests.support.data_directories import change, digest, write
from tests.support.samples import make_run

KINDS = ("parquet", "jsonl")


def offsets_in(file: Path) -> list[int]:
    if file.suffix == ".parquet":
        return list(pq.read_table(file).column("offset").to_pylist())
    return [msgspec.json.decode(line)["offset"] for line in file.read_bytes().splitlines()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("words", "offsets"),
    [
        ("", [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ("--filter a --filter c", [1, 3, 4, 5, 7, 8]),
        ("--from-offset 5 --limit 3", [5, 6, 7]),
        ("--topic a --first 2 --last 4", [4, 5, 8]),
        ("--filter nobody", []),
    ],
)
def test_what_is_asked_for_is_in_the_file(
    run: Run, data: Path, tmp_path: Path, kind: str, words: str, offsets: list[int]
) -> None:
    file = tmp_path / f"out.{kind}"
    ended = run("export", data, file, *words.split())
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.startswith(f"served {len(offsets)} messages; the log ")
    assert offsets_in(file) == offsets


def test_the_statement_is_json_if_that_is_asked_for(run: Run, data: Path, tmp_path: Path) -> None:
    ended = run("export", data, tmp_path / "out.jsonl", "--limit", 3, "-o", "json")
    assert (ended.code, ended.out, ended.statement["served"]) == (0, "", 3)


def test_parquet_has_the_columns_of_the_log_as_plain_values(run: Run, tmp_path: Path) -> None:
    properties = Properties("text/plain", b"\xff", "reply", 1, "m-1", (("k", "v"), ("k", "w")))
    write(tmp_path / "data", [make_run("a", b"\xfe", qos=2, ttl=60.0, properties=properties, client_id="c")])
    file = tmp_path / "out.parquet"
    assert run("export", tmp_path / "data", file).code == 0
    table = pq.read_table(file)
    assert table.schema.equals(export_schema())
    assert table.schema.names == SCHEMA.names
    assert not any(pa.types.is_dictionary(field.type) for field in table.schema)
    [row] = table.to_pylist()
    assert (row["topic"], row["payload"], row["content_type"]) == ("a", b"\xfe", "text/plain")
    assert (row["expires_at"] - row["published_at"]).total_seconds() == 60
    assert row["properties"][:2] == [("k", "v"), ("k", "w")]


def test_json_lines_are_those_that_read_writes(run: Run, data: Path, tmp_path: Path) -> None:
    run("export", data, tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_text() == run("read", data, "-o", "json").out


def test_parquet_says_itself_what_is_missing(run: Run, data: Path, tmp_path: Path) -> None:
    change(data, delete=[(ROWS, offset_key(7))])
    file = tmp_path / "out.parquet"
    ended = run("export", data, file)
    assert ended.code == 3
    assert ended.err.splitlines()[1:] == ["missing: offsets 7 to 8 (2): damaged"]
    statement = msgspec.json.decode(pq.read_metadata(file).metadata[STATEMENT_KEY.encode()])
    assert statement["served"] == 7
    assert statement["gaps"] == [{"first": 7, "last": 8, "reason": "damaged"}]


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_cannot_be_read_is_left_out(run: Run, data: Path, tmp_path: Path, kind: str) -> None:
    change(data, put={(LOG, offset_key(1)): b"scrambled"})
    file = tmp_path / f"out.{kind}"
    ended = run("export", data, file)
    assert ended.code == 3
    assert offsets_in(file) == [7, 8, 9]


def test_row_groups_have_a_useful_size(run: Run, tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "out.parquet"
    write(data, *([make_run("a", *[b"x"] * 1_000)] for _ in range(GROUP_ROWS // 1_000 + 50)))
    assert run("export", data, file).code == 0
    sizes = [
        pq.read_metadata(file).row_group(at).num_rows for at in range(pq.read_metadata(file).num_row_groups)
    ]
    assert sum(sizes) == GROUP_ROWS + 50_000
    assert len(sizes) == 2 and sizes[0] >= GROUP_ROWS


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_was_there_is_replaced(run: Run, data: Path, tmp_path: Path, kind: str) -> None:
    file = tmp_path / f"out.{kind}"
    file.write_text("old")
    assert run("export", data, file).code == 0
    assert len(offsets_in(file)) == 9
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", file.name]


@pytest.mark.system  # starts prlimit
@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_written_whole_is_not_there_at_all(data: Path, tmp_path: Path, kind: str) -> None:
    file = tmp_path / f"out.{kind}"
    file.write_text("old")
    before = digest(data)
    command = [sys.executable, "-m", "penstock", "log", "export", str(data), str(file)]
    done = subprocess.run(
        [
            "prlimit",
            "--fsize=1500",
            *command,
        ],  # not in a fork of this process, whose threads it would not have
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert file.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", file.name]
    assert digest(data) == before


def test_a_folder_that_is_not_there_is_told_in_one_line(run: Run, data: Path, tmp_path: Path) -> None:
    ended = run("export", data, tmp_path / "missing" / "out.parquet")
    assert ended == (1, "", f"error: {tmp_path}/missing: no such directory\n")


def test_another_ending_is_wrong_usage(run: Run, data: Path, tmp_path: Path) -> None:
    ended = run("export", data, tmp_path / "out.csv")
    assert ended.code == 2
    assert "one of .parquet, .jsonl" in " ".join(ended.err.replace("│", " ").split())
    assert not (tmp_path / "out.csv").exists()


def test_on_a_terminal_a_bar_shows_how_far_it_is(
    run: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    ended = run("export", data, tmp_path / "out.parquet")
    assert ended.code == 0
    assert "out.parquet" in ended.err and "100%" in ended.err
