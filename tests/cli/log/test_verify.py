"""`penstock log verify`: whatever is damaged is found, and told with offsets."""

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from penstock.core.durability.records import SESSIONS
from penstock.storage.disk import verify
from penstock.storage.disk.pieces.arrow_columns import decode_batch, encode_batch
from penstock.storage.disk.pieces.frames import (
    Extent,
    Frame,
    decode_summary,
    encode_extents,
    encode_frame,
    encode_summary,
)
from penstock.storage.disk.recovery.opening import open_store
from penstock.storage.disk.recovery.survey import EPOCHS
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
    pack_place,
    read_header,
    sequence_key,
    state_key,
)
from penstock.storage.disk.verify import Finding
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
    write_entries,
)
from tests.support.samples import make_run

BATCH, FRAME = offset_key(1), offset_key(7)
WELL = "read 9 messages, 1 sealed batch, 2 frames, 3 records: all is well\n"


def stored(path: Path, family: str, key: bytes) -> bytes:
    store, _ = open_store(path)
    (value,) = store.get(family, [key])
    store.close()
    assert value is not None
    return value


def findings(run: Run, path: Path) -> list[str]:
    """What is damaged, each as one line; the rest of what is written has to fit it."""
    ended = run("verify", path)
    lines = ended.out.splitlines()
    found = [line.removeprefix("damaged: ") for line in lines if line.startswith("damaged: ")]
    assert ended.code == (1 if found else 0)
    assert ended.err == ""
    return found


def test_a_sound_log_is_well(run: Run, data: Path) -> None:
    assert run("verify", data) == (0, WELL, "")


def test_a_batch_from_before_there_was_a_column_is_well(run: Run, data: Path) -> None:
    older = encode_batch(decode_batch(stored(data, LOG, BATCH)).drop_columns(["logged_at"]))
    summary = msgspec.structs.replace(decode_summary(stored(data, INDEX, BATCH)), bytes=len(older))
    change(data, put={(LOG, BATCH): older, (INDEX, BATCH): encode_summary(summary)})
    assert run("verify", data) == (0, WELL, "")
    rows = run("read", data, "-o", "json").rows
    assert [row["logged_at"] is None for row in rows] == [row["offset"] < 7 for row in rows]


def test_an_empty_log_is_well(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "data")
    assert run("verify", tmp_path / "data").code == 0


async def test_beside_a_server_that_works_it_is_well(run: Run, data: Path) -> None:
    opened = OpenLog(data)
    for _ in range(30):
        await opened.commit(messages("abc" * 150))
        ended = run("verify", data)
        assert ended.code == 0, ended.out
    opened.log.close()


def test_beside_a_server_only_what_is_still_wrong_at_a_second_look_is_damaged(
    run: Run, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, sound = (TOPICS, BATCH), stored(data, TOPICS, BATCH)
    store, _ = open_store(data)
    write_entries(store, {key: b"\xc1"})
    assert run("verify", data).code == 1
    check_files = verify.check_files

    def and_then_it_is_well(path: Path) -> Iterator[Finding]:
        yield from check_files(path)
        write_entries(store, {key: sound})

    monkeypatch.setattr(verify, "check_files", and_then_it_is_well)
    assert run("verify", data).code == 0
    store.close()


def test_programs_get_json(run: Run, data: Path) -> None:
    change(data, delete=[(ROWS, FRAME)])
    told = msgspec.json.decode(run("verify", data, "-o", "json").out)
    assert told == {
        "messages": 7,
        "batches": 1,
        "frames": 1,
        "records": 3,
        "findings": [{"what": "nothing is stored", "first": 7, "last": 8, "remedy": "none"}],
        "known": [],
    }


def test_a_missing_frame_is_found(run: Run, data: Path) -> None:
    change(data, delete=[(ROWS, FRAME)])
    assert findings(run, data) == ["offsets 7 to 8 (2): nothing is stored"]


def test_what_was_given_up_at_an_earlier_start_is_known(run: Run, data: Path) -> None:
    change(data, delete=[(ROWS, FRAME)])
    write(data, messages("a"))  # a server has started since
    well = "read 8 messages, 1 sealed batch, 2 frames, 4 records: all is well\n"
    assert run("verify", data) == (0, f"known: offsets 7 to 8 (2) were lost earlier\n{well}", "")
    told = msgspec.json.decode(run("verify", data, "-o", "json").out)
    assert (told["findings"], told["known"]) == ([], [{"first": 7, "last": 8}])
    change(data, delete=[(ROWS, offset_key(10))])
    ended = run("verify", data)
    assert ended.code == 1
    assert ended.out.splitlines()[:2] == [
        "known: offsets 7 to 8 (2) were lost earlier",
        "damaged: offset 10: nothing is stored",
    ]


def test_beside_other_damage_no_loss_is_taken_for_an_old_one(run: Run, data: Path) -> None:
    change(data, delete=[(ROWS, FRAME), (TOPICS, BATCH)])
    write(data, messages("a"))
    assert findings(run, data)[0] == "offsets 7 to 8 (2): nothing is stored"


def test_without_the_record_of_the_last_start_no_loss_is_taken_for_an_old_one(run: Run, data: Path) -> None:
    change(data, delete=[(ROWS, FRAME)])
    write(data, messages("a"))
    change(data, delete=[(STATE, state_key(EPOCHS, "3"))])
    assert findings(run, data) == ["offsets 7 to 8 (2): nothing is stored"]


def test_a_lost_end_is_found(run: Run, data: Path) -> None:
    change(data, delete=[(ROWS, offset_key(9))])
    assert findings(run, data) == ["offset 9: nothing is stored"]


def test_a_batch_that_is_none_is_found(run: Run, data: Path) -> None:
    change(data, put={(LOG, BATCH): b"scrambled"})
    [found] = findings(run, data)
    assert found.startswith("offsets 1 to 6 (6): a sealed batch makes no sense: not a batch: ")


def test_a_missing_batch_is_found(run: Run, data: Path) -> None:
    change(data, delete=[(LOG, BATCH)])
    assert findings(run, data) == ["offsets 1 to 6 (6): a sealed batch is missing or cannot be read"]


def test_a_batch_in_the_wrong_order_is_found(run: Run, data: Path) -> None:
    batch = decode_batch(stored(data, LOG, BATCH)).take([1, 0, 2, 3, 4, 5])
    change(data, put={(LOG, BATCH): encode_batch(batch)})
    [found] = findings(run, data)
    assert found == "offsets 1 to 6 (6): a sealed batch makes no sense: its offsets do not rise"


def test_a_batch_that_is_not_in_the_index_is_found(run: Run, data: Path) -> None:
    change(data, delete=[(INDEX, BATCH)])
    assert findings(run, data) == [
        "offsets 1 to 6 (6): a sealed batch is sound, but the index does not know it"
    ]


@pytest.mark.parametrize("field", ["count", "reserved"])
def test_an_index_that_says_something_else_is_found(run: Run, data: Path, field: str) -> None:
    summary = decode_summary(stored(data, INDEX, BATCH))
    wrong = msgspec.structs.replace(summary, **{field: 5})
    change(data, put={(INDEX, BATCH): encode_summary(wrong)})
    assert findings(run, data) == [
        "offsets 1 to 6 (6): a sealed batch is sound, but the index says something else of it"
    ]


def test_an_entry_of_the_index_that_makes_no_sense_is_found(run: Run, data: Path) -> None:
    change(data, put={(INDEX, BATCH): b"\xc1"})
    assert findings(run, data) == [
        "offset 1: an entry of the index makes no sense",
        "offsets 1 to 6 (6): a sealed batch is sound, but the index does not know it",
    ]


@pytest.mark.parametrize(
    "value",
    [None, b"\xc1", encode_extents({"a": Extent(1, 3, 3, 1)}), encode_extents({"a": Extent(1, 9, 3, 1)})],
)
def test_a_wrong_list_of_topics_is_found(run: Run, data: Path, value: bytes | None) -> None:
    if value is None:
        change(data, delete=[(TOPICS, BATCH)])
    else:
        change(data, put={(TOPICS, BATCH): value})
    assert findings(run, data) == [
        "offsets 1 to 6 (6): a sealed batch is sound, but the list of its topics is damaged"
    ]


@pytest.mark.parametrize("value", [None, pack_place(1, 9)])
def test_wrong_places_of_sequences_are_found(run: Run, data: Path, value: bytes | None) -> None:
    key = sequence_key("a", 1)
    if value is None:
        change(data, delete=[(SEQUENCES, key)])
    else:
        change(data, put={(SEQUENCES, key): value})
    assert findings(run, data) == [
        "offsets 1 to 6 (6): a sealed batch is sound, but the places of its sequences are damaged"
    ]


def test_a_place_that_makes_no_sense_is_found(run: Run, data: Path) -> None:
    change(data, put={(SEQUENCES, sequence_key("gone", 1)): b"?"})
    assert findings(run, data) == ["the place of a sequence makes no sense"]


def test_topics_of_nothing_are_found(run: Run, data: Path) -> None:
    change(data, put={(TOPICS, offset_key(3)): encode_extents({})})
    assert findings(run, data) == ["topics of a batch that is not there"]


def test_a_frame_that_is_none_is_found(run: Run, data: Path) -> None:
    change(data, put={(ROWS, FRAME): b"\xc1"})
    found = findings(run, data)
    assert found[0] == "offsets 7 to 8 (2): nothing is stored"
    assert found[1].startswith("offset 7: a frame makes no sense: ")


@pytest.mark.parametrize("offsets", [(7, 7), (6, 7), (8, 9)])
def test_a_frame_with_messages_of_another_place_is_found(
    run: Run, data: Path, offsets: Sequence[int]
) -> None:
    runs = [make_run("a", b"x", sequence=at, offset=offset) for at, offset in enumerate(offsets)]
    change(data, put={(ROWS, FRAME): encode_frame(Frame(2, 7, 8, NOON, runs))})
    assert findings(run, data) == ["offsets 7 to 8 (2): the messages of a frame are not those of its place"]


def test_a_frame_that_was_sealed_is_found(run: Run, data: Path) -> None:
    frame = Frame(1, 4, 6, NOON, [make_run("a", b"x", sequence=1, offset=4)])
    change(data, put={(ROWS, offset_key(4)): encode_frame(frame)})
    assert findings(run, data) == ["offsets 4 to 6 (3): a frame that was sealed is still there"]


def test_a_record_that_makes_no_sense_is_found(run: Run, data: Path) -> None:
    change(data, put={(STATE, state_key(SESSIONS, "anna")): b"\xc1"})
    assert findings(run, data) == ["a record of sessions makes no sense"]


def test_a_lost_mark_is_found(run: Run, data: Path) -> None:
    (data / MARK_FILE).write_bytes(bytes(1024))
    assert findings(run, data) == ["the mark is missing or damaged: a lost end would not show"]


def test_a_damaged_header_is_found(run: Run, data: Path) -> None:
    (data / HEADER_FILE).write_bytes(b"{")
    assert read_header(data) is None
    assert findings(run, data) == [f"{HEADER_FILE} is missing or damaged"]


def test_a_damaged_table_is_found(run: Run, settled: Path) -> None:
    table = scribble(settled)
    found = findings(run, settled)
    assert found[0] == "offsets 1 to 6 (6): a sealed batch is missing or cannot be read"
    assert found[1].startswith("a part of the database cannot be read: log is damaged at ")
    assert f" in {table} " in found[1]


@pytest.mark.parametrize("number", range(6))
def test_a_missing_table_is_found(run: Run, settled: Path, number: int) -> None:
    sorted((settled / DATABASE_FOLDER).glob("*.sst"))[-1 - number].unlink()
    found = findings(run, settled)
    assert re.match(
        r"the database is damaged \(Corruption: .* /\S+/data/rocksdb/\d+\.sst: No such file", found[0]
    )


def test_a_table_of_another_length_is_found(run: Run, settled: Path) -> None:
    table = largest_table(settled)
    table.write_bytes(table.read_bytes() + b"more")
    [found] = findings(run, settled)
    assert found.startswith(f"the database is damaged (Corruption: Sst file size mismatch: {table}.")


async def test_a_damaged_write_ahead_log_is_found_and_the_rest_is_read(
    run: Run, data: Path, tmp_path: Path
) -> None:
    opened = OpenLog(data)
    for letter in "abcabc":
        await opened.commit(messages(letter))
    killed = tmp_path / "killed"
    shutil.copytree(data, killed)
    opened.log.close()
    flip_write_ahead_log(killed)
    before = digest(killed)
    ended = run("verify", killed)
    assert ended.code == 1
    assert ended.out.startswith("damaged: the database is damaged (Corruption: ")
    assert "Run `penstock log repair` to put in order what can be saved" in ended.out
    assert digest(killed) == before
    assert run("read", killed).offsets[:9] == list(range(1, 10))


def test_what_is_lost_cannot_be_repaired(run: Run, data: Path) -> None:
    change(data, delete=[(ROWS, FRAME)])
    assert "repair" not in run("verify", data).out


def test_on_a_terminal_a_bar_shows_how_far_it_is(
    run: Run, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    ended = run("verify", data)
    assert (ended.code, ended.out) == (0, WELL)
    assert "reading" in ended.err and "100%" in ended.err
