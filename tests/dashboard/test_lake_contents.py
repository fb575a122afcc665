"""What is told of a lake: the numbers of its manifest."""

from pathlib import Path

import pytest

from penstock.dashboard.lakes.contents import SHOWN_COMMITS, commits_of, look_at, table_of
from penstock.pipeline.lake import Change, InvalidLake, lake_messages
from tests.dashboard.lakes import make_lake


def test_numbers_are_those_of_the_manifest(tmp_path: Path) -> None:
    make_lake(tmp_path)
    view, manifest = look_at(tmp_path), lake_messages(tmp_path).manifest()
    assert (
        (view.manifest.rows, view.manifest.bytes) == (manifest.rows, manifest.bytes) == (120, manifest.bytes)
    )
    for parts in (view.days, view.buckets):
        assert sum(part.rows for part in parts) == manifest.rows
        assert sum(part.bytes for part in parts) == manifest.bytes
        assert sum(part.files for part in parts) == len(manifest.files)


def test_the_newest_day_comes_first_and_buckets_in_their_order(tmp_path: Path) -> None:
    make_lake(tmp_path)
    view = look_at(tmp_path)
    assert [day.name for day in view.days] == ["2026-11-18", "2026-11-17", "2026-11-16"]
    assert [day.rows for day in view.days] == [40, 40, 40]
    assert [bucket.name for bucket in view.buckets] == sorted(bucket.name for bucket in view.buckets)
    assert view.span is not None and [f"{end:%F}" for end in view.span] == ["2026-11-16", "2026-11-18"]


def test_the_last_commits_come_first_and_are_bounded(tmp_path: Path) -> None:
    make_lake(tmp_path, batches=2)
    table = table_of(tmp_path)
    path = next(iter(table.manifest().files))
    table.commit(lambda manifest: Change(by="compact", removed=[path]))
    commits = look_at(tmp_path).commits
    assert [(each.version, each.by) for each in commits] == [(3, "compact"), (2, "archive"), (1, "archive")]
    assert [(each.rows, each.files_removed) for each in commits] == [(0, 1), (40, 0), (40, 0)]
    for _ in range(SHOWN_COMMITS):
        table.commit(lambda manifest: Change(by="archive"))
    assert len(commits_of(table)) == SHOWN_COMMITS


def test_a_lake_that_grows_is_seen_to_grow(tmp_path: Path) -> None:
    make_lake(tmp_path, batches=1)
    assert look_at(tmp_path).manifest.rows == 40
    make_lake(tmp_path, batches=1)
    assert look_at(tmp_path).manifest.rows == 80


def test_a_folder_without_messages_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidLake, match="no messages here yet"):
        look_at(tmp_path / "nowhere")


def test_a_delta_table_is_left_to_delta(tmp_path: Path) -> None:
    (tmp_path / "messages" / "_delta_log").mkdir(parents=True)
    with pytest.raises(InvalidLake, match="Delta"):
        look_at(tmp_path)


def test_a_damaged_manifest_is_told(tmp_path: Path) -> None:
    make_lake(tmp_path, batches=1)
    version = next((tmp_path / "messages" / "_manifest").glob("*.json"))
    version.write_bytes(b"{}")
    with pytest.raises(InvalidLake, match="damaged"):
        look_at(tmp_path)
