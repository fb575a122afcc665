"""`penstock log repair`: what can be read stays, all that is stored agrees again, and losses are told."""

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from penstock.core.durability.records import RETAINED, RetainedRecord
from penstock.model import Door
from penstock.storage.disk.commit.durable_mark import DurableMark
from penstock.storage.disk.pieces.frames import Frame, Summary, encode_extents, encode_frame, encode_summary
from penstock.storage.disk.rocksdb.layout import (
    DATABASE_FOLDER,
    HEADER_FILE,
    INDEX,
    LOG,
    MARK_FILE,
    ROWS,
    SEQUENCES,
    STATE,
    TOPICS,
    offset_key,
    read_header,
    sequence_key,
    state_key,
)
from tests.cli.log.conftest import Run
from tests.support.data_directories import (
    NOON,
    OpenLog,
    change,
    digest,
    flip_write_ahead_log,
    largest_table,
    messages,
    scribble,
    write,
)
from tests.support.samples import make_run

BATCH, FRAME = offset_key(1), offset_key(7)
ALL = list(range(1, 10))
WRONG_SUMMARY = encode_summary(Summary(1, 6, 5, 1, NOON, NOON, 1, 1))
OLD_FRAME = encode_frame(Frame(1, 4, 6, NOON, [make_run("a", b"x", sequence=1, offset=4)]))


def lengthen(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"more")


Harm = Callable[[Path], object]
HARMLESS: dict[str, Harm] = {
    "the index is lost": lambda path: change(path, delete=[(INDEX, BATCH)]),
    "the index makes no sense": lambda path: change(path, put={(INDEX, BATCH): b"\xc1"}),
    "the index is wrong": lambda path: change(path, put={(INDEX, BATCH): WRONG_SUMMARY}),
    "the topics are lost": lambda path: change(path, delete=[(TOPICS, BATCH)]),
    "the topics are wrong": lambda path: change(path, put={(TOPICS, BATCH): encode_extents({})}),
    "there are topics of nothing": lambda path: change(path, put={(TOPICS, FRAME): encode_extents({})}),
    "places are lost": lambda path: change(path, delete=[(SEQUENCES, sequence_key("a", 1))]),
    "a place makes no sense": lambda path: change(path, put={(SEQUENCES, sequence_key("z", 1)): b"?"}),
    "a frame was sealed": lambda path: change(path, put={(ROWS, offset_key(4)): OLD_FRAME}),
    "a record makes no sense": lambda path: change(path, put={(STATE, state_key(RETAINED, "a")): b"\xc1"}),
    "the mark is lost": lambda path: (path / MARK_FILE).unlink(),
    "the header is damaged": lambda path: lengthen(path / HEADER_FILE),
    "a table is too long": lambda path: lengthen(largest_table(path)),
}
"""What costs no message."""


def copies(path: Path) -> list[Path]:
    return [entry for entry in path.iterdir() if entry.name.startswith(f"{DATABASE_FOLDER}-")]


def test_a_sound_directory_is_left_as_it_is(run: Run, data: Path) -> None:
    contents = run("read", data).out
    assert run("repair", data) == (0, "all is well: nothing to repair\n", "")
    assert copies(data) == []
    assert run("info", data).out.splitlines()[6:8] == [
        "sealed batches: 1",
        "not sealed: 3 messages in 2 frames",
    ]
    assert run("read", data).out == contents


@pytest.mark.parametrize("harm", HARMLESS.values(), ids=HARMLESS)
def test_what_is_stored_about_messages_is_made_anew(run: Run, data: Path, harm: Harm) -> None:
    contents = run("read", data).out
    harm(data)
    assert run("verify", data).code == 1
    ended = run("repair", data)
    assert ended.code == 0
    assert ended.out.startswith("damaged: ")
    assert ended.out.endswith("\nthe directory is in order\n")
    assert run("verify", data).out.endswith(": all is well\n")
    assert run("read", data).out == contents
    assert run("read", data, "--topic", "a", "--first", 2).offsets == [4, 5, 8]


def test_json_says_what_was_found_and_done(run: Run, data: Path) -> None:
    ended = run("repair", data, "-o", "json")
    assert ended.code == 0
    assert ended.rows == [
        {
            "findings": [],
            "lost": [],
            "is_state_doubtful": False,
            "sealed": 0,
            "copy": None,
            "has_changed": False,
        }
    ]


def test_what_is_not_sealed_is_sealed(run: Run, data: Path) -> None:
    change(data, delete=[(TOPICS, BATCH)])
    assert "sealed 3 messages" in run("repair", data).out.splitlines()
    assert run("info", data).out.splitlines()[6:8] == [
        "sealed batches: 2",
        "not sealed: 0 messages in 0 frames",
    ]
    assert {row["node_id"] for row in run("read", data, "-o", "json").rows} == {"node"}


def test_the_mark_is_written_again(run: Run, data: Path) -> None:
    before = DurableMark.read(data)
    (data / MARK_FILE).write_bytes(b"?")
    run("repair", data)
    assert DurableMark.read(data) == before


def test_the_header_keeps_its_log_id(run: Run, data: Path) -> None:
    before = read_header(data)
    (data / HEADER_FILE).unlink()
    run("repair", data)
    assert read_header(data) == before


def test_a_damaged_table_costs_what_was_in_it(run: Run, settled: Path) -> None:
    scribble(settled)
    ended = run("repair", settled)
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert lines[0] == "damaged: offsets 1 to 6 (6): a sealed batch is missing or cannot be read"
    assert "lost: offsets 1 to 6 (6) cannot be read any more" in lines
    assert "lost: changes of sessions, perhaps" not in lines
    assert lines[-1] == "the directory is in order, but for what is lost"
    assert run("read", settled).offsets == [7, 8, 9]
    assert run("verify", settled).out.splitlines()[0] == "known: offsets 1 to 6 (6) were lost earlier"


def test_what_is_lost_stays_told_and_is_not_repaired_twice(run: Run, settled: Path) -> None:
    scribble(settled)
    run("repair", settled)
    [copy] = copies(settled)
    ended = run("repair", settled)
    assert ended.code == 0
    assert ended.out.splitlines()[-1] == "nothing can be done about it"
    assert copies(settled) == [copy]


@pytest.mark.parametrize("value", [None, b"scrambled"])
def test_a_batch_that_is_none_is_removed(run: Run, data: Path, value: bytes | None) -> None:
    if value is None:
        change(data, delete=[(LOG, BATCH)])
    else:
        change(data, put={(LOG, BATCH): value})
    assert "lost: offsets 1 to 6 (6) cannot be read any more" in run("repair", data).out.splitlines()
    assert run("read", data).offsets == [7, 8, 9]
    ended = run("read", data, "--topic", "a", "--first", 1)
    assert ended.err.splitlines()[1:] == ["missing: a sequences 1 to 3: damaged"]


def test_a_frame_that_is_none_is_removed(run: Run, data: Path) -> None:
    change(data, put={(ROWS, FRAME): b"\xc1"})
    assert "lost: offsets 7 to 8 (2) cannot be read any more" in run("repair", data).out.splitlines()
    assert run("verify", data).out.splitlines()[0] == "damaged: offsets 7 to 8 (2): nothing is stored"


def test_a_missing_table_costs_what_was_in_it(run: Run, settled: Path) -> None:
    largest_table(settled).unlink()
    ended = run("repair", settled)
    assert ended.code == 0
    assert "lost: offsets 1 to 6 (6) cannot be read any more" in ended.out.splitlines()
    assert "lost: changes of sessions, perhaps" in ended.out.splitlines()
    assert run("read", settled).offsets == [7, 8, 9]


async def test_a_damaged_write_ahead_log_is_salvaged(run: Run, data: Path, tmp_path: Path) -> None:
    opened = OpenLog(data)
    for letter in "abcabc":
        await opened.commit(messages(letter))
    killed = tmp_path / "killed"
    shutil.copytree(data, killed)
    opened.log.close()
    flip_write_ahead_log(killed)
    readable = run("read", killed).out
    ended = run("repair", killed)
    assert ended.code == 0
    assert ended.out.startswith("damaged: the database was damaged (Corruption: ")
    assert "lost: changes of sessions, perhaps" in ended.out.splitlines()
    assert run("read", killed).out == readable
    assert len(copies(killed)) == 1


def test_the_copy_is_a_directory_as_it_was_before(run: Run, settled: Path) -> None:
    scribble(settled)
    before = {file.name: file.read_bytes() for file in (settled / DATABASE_FOLDER).glob("*.sst")}
    mark = (settled / MARK_FILE).read_bytes()
    ended = run("repair", settled)
    [copy] = copies(settled)
    assert f"as it was before: {copy}" in ended.out.splitlines()
    assert {file.name: file.read_bytes() for file in (copy / DATABASE_FOLDER).glob("*.sst")} == before
    assert (copy / MARK_FILE).read_bytes() == mark
    assert run("verify", copy).out.startswith("damaged: offsets 1 to 6 (6): a sealed batch is missing")


@pytest.mark.parametrize("harm", [scribble, lambda path: largest_table(path).unlink()])
def test_no_copy_leaves_none(run: Run, settled: Path, harm: Harm) -> None:
    harm(settled)
    ended = run("repair", settled, "--no-copy")
    assert ended.code == 0
    assert "as it was before" not in ended.out
    assert copies(settled) == []


def test_a_server_goes_on_with_what_was_repaired(run: Run, settled: Path) -> None:
    scribble(settled)
    run("repair", settled)
    write(settled, messages("ab"))
    rows = run("read", settled, "-o", "json").rows
    assert [(row["offset"], row["topic"], row["sequence"], row["epoch"]) for row in rows[-2:]] == [
        (10, "a", 5, 3),
        (11, "b", 4, 3),
    ]


def test_a_missing_database_is_not_replaced_unasked(run: Run, data: Path) -> None:
    shutil.rmtree(data / DATABASE_FOLDER)
    before = digest(data)
    ended = run("repair", data)
    assert (ended.code, ended.out) == (1, "")
    assert "everything up to offset 9 is lost unless it is put back; --empty gives it up" in ended.err
    assert digest(data) == before


def test_a_missing_database_is_given_up_if_someone_says_so(run: Run, data: Path) -> None:
    shutil.rmtree(data / DATABASE_FOLDER)
    ended = run("repair", data, "--empty")
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert lines[0] == "damaged: the database folder rocksdb/ is missing"
    assert "lost: offsets 1 to 9 (9) cannot be read any more" in lines
    assert lines[-1] == "the directory is in order, but for what is lost"
    write(data, messages("a"))
    assert run("read", data).offsets == [10]


def test_empty_changes_nothing_where_a_database_is(run: Run, data: Path) -> None:
    assert run("repair", data, "--empty") == (0, "all is well: nothing to repair\n", "")


async def test_it_refuses_while_a_server_runs(run: Run, data: Path) -> None:
    opened = OpenLog(data)
    before = digest(data)
    ended = run("repair", data)
    assert digest(data) == before
    opened.log.close()
    assert ended == (1, "", f"error: {data} is in use by another process: stop the server first\n")


def test_records_that_are_sound_stay(run: Run, settled: Path) -> None:
    value = msgspec.msgpack.encode(RetainedRecord(b"value", Door.MQTT, 0, "anna"))
    change(settled, put={(STATE, state_key(RETAINED, "a")): value})
    scribble(settled)
    run("repair", settled)
    assert msgspec.json.decode(run("info", settled, "-o", "json").out)["retained"] == 1
