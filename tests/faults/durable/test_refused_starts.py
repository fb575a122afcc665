"""Data directories that a server must not touch: taken by another, written by a newer one, or none at all."""

import json
from pathlib import Path

from penstock.storage.disk.rocksdb.layout import FORMAT, HEADER_FILE, LOCK_FILE
from tests.doors.mqtt.peers import FOR_EVER, Peers
from tests.faults.durable.homes import MakeHome, refusal


def contents(folder: Path) -> dict[Path, bytes]:
    """Every file below a folder, but for the lock, which says who took it last."""
    return {
        file: file.read_bytes() for file in folder.rglob("*") if file.is_file() and file.name != LOCK_FILE
    }


async def test_second_server_is_refused_and_the_first_does_not_notice(
    make_home: MakeHome, peers: Peers
) -> None:
    home = make_home()
    await home.open()
    client = await peers.connect("first", clean=False, expiry=FOR_EVER, port=home.port)
    await client.subscribe("a", qos=1)
    for _ in range(2):
        line = refusal("--data-dir", str(home.data))
        assert "data_dir" in line
        assert "in use" in line
    publisher = await peers.connect(port=home.port)
    assert await publisher.publish("a", b"still here") == 0
    await home.killed_and_back()
    client = await peers.connect("first", clean=False, expiry=FOR_EVER, port=home.port)
    assert client.connack.session_present
    home.was_well()


async def test_directory_is_free_again_when_its_server_was_killed(make_home: MakeHome) -> None:
    home = make_home()
    for _ in range(3):
        await home.open()
        home.kill()
    home.was_well()


async def test_data_of_a_newer_format_is_refused_and_left_as_it_is(make_home: MakeHome) -> None:
    home = make_home()
    await home.open()
    await home.close()
    header = home.data / HEADER_FILE
    written = json.loads(header.read_text(encoding="utf-8"))
    assert written["format"] == FORMAT
    newer = {"format": FORMAT + 1, "log_id": written["log_id"], "has": "whatever will be needed"}
    header.write_text(json.dumps(newer), encoding="utf-8")
    before = contents(home.data)
    line = refusal("--data-dir", str(home.data))
    assert "data_dir" in line
    assert str(FORMAT + 1) in line
    assert contents(home.data) == before
    header.write_text(json.dumps(written), encoding="utf-8")
    await home.open()
    await home.close()
    home.was_well()


def test_folder_of_something_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear").write_text("not a log")
    before = contents(tmp_path)
    line = refusal("--data-dir", str(tmp_path))
    assert "data_dir" in line
    assert contents(tmp_path) == before


def test_file_in_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    assert "data_dir" in refusal("--data-dir", str(tmp_path / "file"))
