"""Data of the lake page: manifest, lag and holds of a real server, insights and audit reports."""

import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from penstock.client import Hold
from penstock.dashboard.pages import lake_data
from penstock.dashboard.pages.lake import (
    audit_command,
    behind_tile,
    cell_text,
    findings_text,
    hold_cells,
    setup_commands,
)
from penstock.dashboard.pages.lake_data import (
    REPORT,
    SHOWN_COMMITS,
    SHOWN_INSIGHT_ROWS,
    LogState,
    hold_rows,
    insight_grains,
    insight_tables,
    last_audit,
    messages_table,
    newest_files,
    newest_window,
    read_lake,
    read_log_state,
    recent_commits,
)
from penstock.dashboard.poller import Source
from penstock.lake import Change, DataFile, InvalidLake, Manifest, lake_messages
from penstock.spark.jobs.insights.rows import TABLES
from penstock.spark.jobs.insights.windows import GRAINS
from penstock.spark.jobs.run import Report
from penstock.testing import server
from tests.dashboard.lakes import add_insights, make_lake

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


def store_report(lake: Path, **given: object) -> None:
    facts = {"version": 48, "rows": 80_112, "missing": 0, "double": 0, "damaged_files": 0, "known": {}}
    report = Report(job="audit", facts=facts)
    (lake / REPORT).write_bytes(msgspec.json.encode(msgspec.structs.replace(report, **given)) + b"\n")


def test_a_clean_audit_is_read(tmp_path: Path) -> None:
    store_report(tmp_path)
    audit = last_audit(tmp_path)
    assert audit is not None and (audit.is_clean, audit.version, audit.rows) == (True, 48, 80_112)


def test_findings_of_an_audit_are_read(tmp_path: Path) -> None:
    store_report(
        tmp_path, facts={"version": 2, "rows": 10, "missing": 1_200, "damaged_files": 1}, is_clean=False
    )
    audit = last_audit(tmp_path)
    assert audit is not None and not audit.is_clean
    assert findings_text(audit.findings) == "1,200 missing, 1 damaged files"


def test_a_lake_without_a_report_has_none(tmp_path: Path) -> None:
    assert last_audit(tmp_path) is None


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"job": "archive", "facts": {}}', b'{"job":"audit","facts":{"rows":"x"}}']
)
def test_another_file_is_not_accepted_as_a_report(tmp_path: Path, content: bytes) -> None:
    (tmp_path / REPORT).write_bytes(content)
    with pytest.raises(InvalidLake, match="not an audit report"):
        last_audit(tmp_path)


def test_the_command_stores_the_report_where_the_page_reads_it(tmp_path: Path) -> None:
    lake = tmp_path / "my lake"
    words = shlex.split(audit_command(lake, "http://h:8080"))
    assert words[-1] == str(lake / REPORT) and words[words.index("--lake") + 1] == str(lake)


def test_commands_name_the_server_and_never_a_password() -> None:
    commands = setup_commands(Source("https://plant:8443", "ann", "secret", lake=Path("/srv/a b")))
    assert "--address https://plant:8443 --user ann --password-file FILE" in commands
    assert "'/srv/a b'" in commands and "secret" not in commands


def test_numbers_are_those_of_the_manifest(tmp_path: Path) -> None:
    make_lake(tmp_path)
    view, manifest = read_lake(tmp_path), lake_messages(tmp_path).manifest()
    assert (
        (view.manifest.rows, view.manifest.bytes) == (manifest.rows, manifest.bytes) == (120, manifest.bytes)
    )
    for parts in (view.days, view.buckets):
        assert sum(part.rows for part in parts) == manifest.rows
        assert sum(part.bytes for part in parts) == manifest.bytes
        assert sum(part.files for part in parts) == len(manifest.files)


def test_the_newest_day_comes_first_and_buckets_in_their_order(tmp_path: Path) -> None:
    make_lake(tmp_path)
    view = read_lake(tmp_path)
    assert [day.name for day in view.days] == ["2026-11-18", "2026-11-17", "2026-11-16"]
    assert [day.rows for day in view.days] == [40, 40, 40]
    assert [bucket.name for bucket in view.buckets] == sorted(bucket.name for bucket in view.buckets)
    assert view.span is not None and [f"{end:%F}" for end in view.span] == ["2026-11-16", "2026-11-18"]


def test_the_last_commits_come_first_and_are_bounded(tmp_path: Path) -> None:
    make_lake(tmp_path, batches=2)
    table = messages_table(tmp_path)
    path = next(iter(table.manifest().files))
    table.commit(lambda manifest: Change(by="compact", removed=[path]))
    commits = read_lake(tmp_path).commits
    assert [(each.version, each.by) for each in commits] == [(3, "compact"), (2, "archive"), (1, "archive")]
    assert [(each.rows, each.files_removed) for each in commits] == [(0, 1), (40, 0), (40, 0)]
    for _ in range(SHOWN_COMMITS):
        table.commit(lambda manifest: Change(by="archive"))
    assert len(recent_commits(table)) == SHOWN_COMMITS


def test_a_lake_that_grows_is_seen_to_grow(tmp_path: Path) -> None:
    make_lake(tmp_path, batches=1)
    assert read_lake(tmp_path).manifest.rows == 40
    make_lake(tmp_path, batches=1)
    assert read_lake(tmp_path).manifest.rows == 80


def test_a_folder_without_messages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidLake, match="no messages yet"):
        read_lake(tmp_path / "nowhere")


def test_a_delta_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "messages" / "_delta_log").mkdir(parents=True)
    with pytest.raises(InvalidLake, match="Delta"):
        read_lake(tmp_path)


def test_a_damaged_manifest_is_refused(tmp_path: Path) -> None:
    make_lake(tmp_path, batches=1)
    version = next((tmp_path / "messages" / "_manifest").glob("*.json"))
    version.write_bytes(b"{}")
    with pytest.raises(InvalidLake, match="damaged"):
        read_lake(tmp_path)


def test_a_lake_is_behind_by_what_the_log_has_got_since(tmp_path: Path) -> None:
    with server(data_dir=tmp_path) as running, running.http() as client:
        client.publish_many({"topic": "a", "data": n} for n in range(10))
        place = client.position("latest")
        manifest = Manifest(version=1, id="abc", cursor=place.cursor, log_id=place.log_id, filters=("a", "b"))
        client.hold(manifest.hold_name, place.cursor, 7_200)
        client.publish_many({"topic": "a", "data": n} for n in range(25))
        log = read_log_state(client, manifest)
        assert log.is_there and log.lag == 25
        assert [(hold.name, hold.is_of_lake) for hold in log.holds] == [("lake-abc", True)]
        assert log.holds[0].lag >= 25 and 7_000 < log.holds[0].lapses_in_s <= 7_200
        assert behind_tile(log).value == "25"


def test_a_lake_of_another_log_is_not_compared(tmp_path: Path) -> None:
    with server(data_dir=tmp_path) as running, running.http() as client:
        place = client.position("latest")
        manifest = Manifest(version=1, id="abc", cursor=place.cursor, log_id="0123456789abcdef")
        assert read_log_state(client, manifest).lag is None
        assert read_log_state(client, None).lag is None


def test_a_server_without_a_data_directory_has_no_log() -> None:
    with server() as running, running.http() as client:
        assert read_log_state(client, None) == LogState(is_there=False)


def test_the_most_lagging_hold_comes_first_and_one_that_lapses_soon_is_highlighted() -> None:
    def hold(name: str, offset: int, minutes: int) -> Hold:
        at = NOW + timedelta(minutes=minutes)
        return Hold(name=name, owner="", cursor="", offset=offset, lapse_s=60, lapses_at=at)

    rows = hold_rows([hold("new", 900, 600), hold("old", 100, 5)], 1_000, None, NOW)
    assert [(row.name, row.lag, row.lapses_in_s) for row in rows] == [
        ("old", 900, 300.0),
        ("new", 100, 36_000.0),
    ]
    cells = [hold_cells(row)[2] for row in rows]
    assert [getattr(cell, "level", "") for cell in cells] == ["elevated", "good"]


def test_tables_columns_and_grains_are_those_that_the_job_writes() -> None:
    assert set(lake_data.INSIGHT_TABLES) == set(TABLES) == set(lake_data.INSIGHT_COLUMNS)
    assert all(set(lake_data.INSIGHT_COLUMNS[name]) <= set(TABLES[name]) for name in TABLES)
    assert list(lake_data.GRAINS) == [grain.name for grain in GRAINS]


def test_the_newest_window_is_shown_and_the_busiest_first(tmp_path: Path) -> None:
    add_insights(tmp_path, "topics", "10s", NOON, [{"topic": "old", "messages": 99}])
    later = NOON + timedelta(seconds=10)
    add_insights(
        tmp_path, "topics", "10s", later, [{"topic": "a", "messages": 3}, {"topic": "b", "messages": 7}]
    )
    found = newest_window(tmp_path, "topics", "10s")
    assert found is not None and found.window_start == later
    assert [(row["topic"], row["messages"]) for row in found.rows] == [("b", 7), ("a", 3)]


def test_a_window_of_the_next_day_is_newer(tmp_path: Path) -> None:
    add_insights(tmp_path, "drops", "1m", NOON + timedelta(days=1), [{"reason": "expired", "messages": 1}])
    add_insights(tmp_path, "drops", "1m", NOON, [{"reason": "outbox-full", "messages": 2}])
    found = newest_window(tmp_path, "drops", "1m")
    assert found is not None and found.rows[0]["reason"] == "expired"


def test_only_existing_tables_and_grains_are_offered(tmp_path: Path) -> None:
    assert (insight_tables(tmp_path), insight_grains(tmp_path)) == ([], [])
    add_insights(tmp_path, "hot", "1m", NOON, [{"topic": "a", "messages": 3, "rank": 1}])
    assert (insight_tables(tmp_path), insight_grains(tmp_path)) == (["hot"], ["1m"])
    assert newest_window(tmp_path, "hot", "10s") is None


def test_many_rows_are_cut_and_counted(tmp_path: Path) -> None:
    rows = [{"topic": f"t{number}", "messages": number} for number in range(300)]
    add_insights(tmp_path, "topics", "10s", NOON, rows)
    found = newest_window(tmp_path, "topics", "10s")
    assert found is not None and (len(found.rows), found.rows_in_all) == (SHOWN_INSIGHT_ROWS, 300)
    assert found.rows[0]["messages"] == 299


def test_no_more_files_are_read_than_needed() -> None:
    files = [
        DataFile(path=str(number), rows=1, bytes=1, partition={"grain": "1m", "date": f"2026-11-{day}"})
        for number, day in enumerate([17] * 50 + [16] * 50)
    ]
    assert [file.path for file in newest_files(files, "1m")] == [str(number) for number in range(49, 41, -1)]
    assert newest_files(files, "1h") == []


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("topic", "a/b", "a/b"),
        ("messages", 12_345, "12,345"),
        ("messages_per_s", 1.5, "1.50"),
        ("bytes", 2048, "2.0 KiB"),
        ("share", 0.25, "25.0 %"),
        ("latency_p99_ms", None, "-"),
    ],
)
def test_values_are_written_with_their_units(name: str, value: object, text: str) -> None:
    assert cell_text(name, value) == text
