"""`penstock log info`: how much there is, for whom it is kept, and what is missing."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.core.durability.records import (
    BEHIND,
    RETAINED,
    SESSIONS,
    BehindRecord,
    RetainedRecord,
    SessionRecord,
)
from penstock.model import Door
from penstock.storage.disk.rocksdb.layout import ROWS, offset_key, read_header
from tests.cli.log.conftest import Ended, Run
from tests.support.data_directories import NOON, OpenLog, change, messages, write


def figures(ended: Ended) -> dict[str, Any]:
    assert ended.code == 0
    return dict(msgspec.json.decode(ended.out))


def session(left_at: int | None) -> SessionRecord:
    return SessionRecord("anna", False, Door.MQTT, 60.0, {}, None, left_at)


def test_everything_is_told_to_programs(run: Run, data: Path) -> None:
    header = read_header(data)
    assert header is not None
    told = figures(run("info", data, "-o", "json"))
    assert told.pop("bytes") > 0
    assert told.pop("disk_bytes") == sum(file.stat().st_size for file in (data / "rocksdb").iterdir())
    assert told == {
        "path": str(data),
        "log_id": header.log_id,
        "format": 1,
        "is_served": False,
        "epochs": [{"number": 1, "first": 1}, {"number": 2, "first": 7}],
        "first_offset": 1,
        "last_offset": 9,
        "messages": 9,
        "sealed_batches": 1,
        "unsealed_frames": 2,
        "unsealed_messages": 3,
        "first_published_at": "2023-11-14T22:13:21Z",
        "last_published_at": "2023-11-14T22:13:29Z",
        "topics": 3,
        "damage": [],
        "notes": [],
        "holds": [],
        "sessions": {"total": 0, "absent": 0, "behind": 0, "owed_from": None},
        "retained": 0,
    }


def test_people_get_a_line_for_each_fact(run: Run, data: Path) -> None:
    lines = run("info", data).out.splitlines()
    assert lines[0] == f"directory: {data} (no server)"
    assert lines[2:5] == [
        "offsets: 1 to 9 (the server's own publishes take offsets too)",
        "published: 2023-11-14T22:13:21.000000Z to 2023-11-14T22:13:29.000000Z",
        "messages: 9",
    ]
    amount = r"\d+(\.\d [KMG]iB| bytes)"
    assert re.fullmatch(
        rf"size: {amount} stored \(counts for log\.retention_bytes\), {amount} on disk", lines[5]
    )
    assert lines[6:10] == [
        "sealed batches: 1",
        "not sealed: 3 messages in 2 frames",
        "topics: 3",
        "last starts: epoch 1 from offset 1, epoch 2 from offset 7 "
        "(each start of the server begins an epoch)",
    ]


def test_on_a_terminal_it_is_a_table(run: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    out = run("info", data).out
    assert "\x1b[1mtopics" in out and "topics:" not in out


async def test_a_server_on_it_is_told_and_so_is_whom_it_keeps_things_for(run: Run, data: Path) -> None:
    opened = OpenLog(data)
    turn = opened.log.sequencer.turn
    turn.put(SESSIONS, "one", session(None))
    turn.put(SESSIONS, "two", session(NOON))
    turn.put(BEHIND, "two", BehindRecord(4))
    turn.put(RETAINED, "a", RetainedRecord(b"x", Door.MQTT, 0, "one"))
    opened.log.holds.create("night", "lake", 5, 60.0)
    await opened.commit(messages("de"))
    told = figures(run("info", data, "-o", "json"))
    lines = run("info", data).out.splitlines()
    opened.log.close()
    assert told["is_served"] is True
    assert told["topics"] == 5
    assert told["sessions"] == {"total": 2, "absent": 1, "behind": 1, "owed_from": 4}
    assert told["retained"] == 1
    assert told["holds"] == [
        {"name": "night", "owner": "lake", "offset": 5, "lapses_at": "2023-11-14T22:14:20Z"}
    ]
    assert lines[0] == f"directory: {data} (a server runs on it)"
    assert "sessions: 2, 1 absent, 1 owed something" in lines
    assert "owed: from offset 5 on" in lines
    assert "hold night: after offset 5, of lake, lapses at 2023-11-14T22:14:20.000000Z" in lines


def test_what_is_missing_is_told(run: Run, data: Path) -> None:
    change(data, delete=[(ROWS, offset_key(7))])
    ended = run("info", data)
    assert ended.code == 0
    assert ended.out.splitlines()[-1] == "missing: offsets 7 to 8 (2): damaged"


def test_an_empty_log_is_told(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "data")
    ended = run("info", tmp_path / "data")
    assert (ended.code, "offsets: none" in ended.out.splitlines()) == (0, True)
