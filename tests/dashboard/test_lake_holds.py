"""How far a lake and the holds are behind the log, asked of a real server."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from penstock.client import Hold
from penstock.dashboard.lakes.holds import LogSide, look_at_log, rows_of
from penstock.dashboard.lakes.showing import behind_tile, hold_cells
from penstock.pipeline.lake import Manifest
from penstock.testing import server

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


def test_a_lake_is_behind_by_what_the_log_has_got_since(tmp_path: Path) -> None:
    with server(data_dir=tmp_path) as running, running.http() as client:
        client.publish_many({"topic": "a", "data": n} for n in range(10))
        place = client.position("latest")
        manifest = Manifest(version=1, id="abc", cursor=place.cursor, log_id=place.log_id, filters=("a", "b"))
        client.hold(manifest.hold_name, place.cursor, 7_200)
        client.publish_many({"topic": "a", "data": n} for n in range(25))
        log = look_at_log(client, manifest)
        assert log.is_there and log.lag == 25
        assert [(hold.name, hold.is_of_lake) for hold in log.holds] == [("lake-abc", True)]
        assert log.holds[0].lag >= 25 and 7_000 < log.holds[0].lapses_in_s <= 7_200
        assert behind_tile(log).value == "25"


def test_a_lake_of_another_log_is_not_compared(tmp_path: Path) -> None:
    with server(data_dir=tmp_path) as running, running.http() as client:
        place = client.position("latest")
        manifest = Manifest(version=1, id="abc", cursor=place.cursor, log_id="0123456789abcdef")
        assert look_at_log(client, manifest).lag is None
        assert look_at_log(client, None).lag is None


def test_a_server_without_a_data_directory_has_no_log() -> None:
    with server() as running, running.http() as client:
        assert look_at_log(client, None) == LogSide(is_there=False)


def test_the_hold_with_most_behind_it_comes_first_and_who_lapses_soon_stands_out() -> None:
    def hold(name: str, offset: int, minutes: int) -> Hold:
        at = NOW + timedelta(minutes=minutes)
        return Hold(name=name, owner="", cursor="", offset=offset, lapse_s=60, lapses_at=at)

    rows = rows_of([hold("new", 900, 600), hold("old", 100, 5)], 1_000, None, NOW)
    assert [(row.name, row.lag, row.lapses_in_s) for row in rows] == [
        ("old", 900, 300.0),
        ("new", 100, 36_000.0),
    ]
    cells = [hold_cells(row)[2] for row in rows]
    assert [getattr(cell, "level", "") for cell in cells] == ["elevated", "good"]
