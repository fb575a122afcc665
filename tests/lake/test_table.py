import errno
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock.errors import Conflict
from penstock.lake import table as tables
from penstock.lake.errors import InvalidLake
from penstock.lake.manifest import Change, DataFile, Manifest
from penstock.lake.table import WHOLE_EVERY, Table, lake_insights, lake_messages

SCHEMA = "{}"


def write(table: Table, name: str, text: str = "x") -> DataFile:
    """A data file of a kind that no table looks into."""
    path = table.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return DataFile(path=name, rows=1, bytes=len(text))


def add(table: Table, name: str) -> Manifest:
    return table.commit(lambda manifest: Change(added=[write(table, name)], schema=SCHEMA))


def versions(table: Table) -> list[str]:
    return sorted(path.name for path in (table.path / "_manifest").iterdir())


def test_the_tables_of_a_lake_have_their_places(tmp_path: Path) -> None:
    assert lake_messages(tmp_path).path == tmp_path / "messages"
    assert lake_insights(f"file://{tmp_path}", "topics").path == tmp_path / "insights" / "topics"


def test_a_table_that_is_not_there_is_empty(tmp_path: Path) -> None:
    table = Table(tmp_path / "none")
    assert not table.exists()
    assert table.manifest() == Manifest()
    assert not table.path.exists()


def test_a_commit_is_seen_by_everybody(tmp_path: Path) -> None:
    table, other = Table(tmp_path), Table(tmp_path)
    assert other.manifest().version == 0
    made = add(table, "a.parquet")
    assert other.manifest() == made == table.manifest()
    assert other.exists()
    assert list(made.files) == ["a.parquet"]
    assert table.absolute(made.files["a.parquet"]) == tmp_path / "a.parquet"


def test_a_change_of_nothing_makes_no_version(tmp_path: Path) -> None:
    table = Table(tmp_path)
    add(table, "a.parquet")
    assert table.commit(lambda manifest: None).version == 1
    assert versions(table) == ["00000000000000000001.json"]


def test_who_was_second_decides_again_with_what_is_so_by_then(tmp_path: Path) -> None:
    table, other = Table(tmp_path), Table(tmp_path)
    seen: list[int] = []

    def change(manifest: Manifest) -> Change:
        seen.append(manifest.batch)
        if len(seen) == 1:
            other.commit(lambda manifest: Change(batch=7))
        return Change(batch=manifest.batch + 1)

    assert table.commit(change).batch == 8
    assert seen == [0, 7]


def test_a_whole_manifest_is_written_now_and_then_and_read_by_newcomers(tmp_path: Path) -> None:
    table = Table(tmp_path)
    for number in range(2 * WHOLE_EVERY + 3):
        made = add(table, f"{number}.parquet")
    assert Table(tmp_path).manifest() == made
    assert len(made.files) == 2 * WHOLE_EVERY + 3
    assert table.prune(older_than_s=-1) == 2 * WHOLE_EVERY - 2
    assert versions(table)[0] == f"{2 * WHOLE_EVERY - 1:020d}.json"
    assert Table(tmp_path).manifest() == made


def test_versions_that_are_pruned_while_they_are_read_are_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, reader = Table(tmp_path), Table(tmp_path)
    for number in range(WHOLE_EVERY - 1):
        add(table, f"{number}.parquet")
    read = Table._version
    interrupted = threading.Event()

    def slow_read(self: Table, number: int) -> tables.Version:
        if not interrupted.is_set():
            interrupted.set()
            add(table, "last.parquet")
            assert table.prune(older_than_s=-1) == WHOLE_EVERY - 2
        return read(self, number)

    monkeypatch.setattr(Table, "_version", slow_read)
    assert reader.manifest().version == WHOLE_EVERY


def test_versions_that_are_young_are_kept_for_readers(tmp_path: Path) -> None:
    table = Table(tmp_path)
    for number in range(WHOLE_EVERY):
        add(table, f"{number}.parquet")
    assert table.prune(older_than_s=3600) == 0


@pytest.mark.parametrize("known", [0, 10, WHOLE_EVERY - 2])
def test_who_slept_until_its_number_was_free_again_decides_anew(tmp_path: Path, known: int) -> None:
    table, other = Table(tmp_path), Table(tmp_path)
    for number in range(known):
        add(other, f"{number}.parquet")
    seen: list[int] = []

    def sleep(manifest: Manifest) -> Change:
        seen.append(manifest.version)
        if len(seen) == 1:
            for number in range(known, WHOLE_EVERY + 5):
                add(other, f"{number}.parquet")
            other.prune(older_than_s=-1)
        return Change(batch=7)

    assert table.commit(sleep).version == WHOLE_EVERY + 6
    assert seen == [known, WHOLE_EVERY + 5]
    assert Table(tmp_path).manifest().batch == 7
    assert versions(table)[0] == f"{WHOLE_EVERY - 1:020d}.json"  # what it made first is not in the way


def test_who_makes_a_whole_knows_it_though_others_prune_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(tmp_path)
    for number in range(WHOLE_EVERY - 1):
        add(table, f"{number}.parquet")
    look, asked = Table._is_in_line, []

    def prune_first(self: Table, number: int) -> bool:
        Table(tmp_path).prune(older_than_s=-1)
        return look(self, number)

    def change(manifest: Manifest) -> Change:
        asked.append(manifest.version)
        return Change(batch=7)

    monkeypatch.setattr(Table, "_is_in_line", prune_first)
    assert table.commit(change).version == WHOLE_EVERY
    assert asked == [WHOLE_EVERY - 1]


def test_a_draft_that_somebody_is_about_to_link_stays(tmp_path: Path) -> None:
    table = Table(tmp_path)
    add(table, "a.parquet")
    young, old = tmp_path / "_manifest" / ".young", tmp_path / "_manifest" / ".old"
    young.touch()
    old.touch()
    os.utime(old, (0, 0))
    table.prune(older_than_s=-1)
    assert young.exists()
    assert not old.exists()


def test_a_missing_version_is_told(tmp_path: Path) -> None:
    for number in range(3):
        add(Table(tmp_path), f"{number}.parquet")
    (tmp_path / "_manifest" / "00000000000000000002.json").unlink()
    with pytest.raises(InvalidLake, match=r"0002\.json: this version of the manifest is missing"):
        Table(tmp_path).manifest()


@pytest.mark.parametrize("damage", [b"", b"{}", b"\xff\x00"])
def test_a_damaged_version_is_told(tmp_path: Path, damage: bytes) -> None:
    add(Table(tmp_path), "a.parquet")
    (tmp_path / "_manifest" / "00000000000000000001.json").write_bytes(damage)
    with pytest.raises(InvalidLake, match="damaged"):
        Table(tmp_path).manifest()


def test_one_changed_byte_is_noticed(tmp_path: Path) -> None:
    add(Table(tmp_path), "a.parquet")
    path = tmp_path / "_manifest" / "00000000000000000001.json"
    path.write_bytes(path.read_bytes().replace(b"a.parquet", b"b.parquet"))
    with pytest.raises(InvalidLake, match="damaged"):
        Table(tmp_path).manifest()


def test_a_version_of_a_newer_penstock_is_refused_by_name(tmp_path: Path) -> None:
    table = Table(tmp_path)
    add(table, "a.parquet")
    path = tmp_path / "_manifest" / "00000000000000000001.json"
    body = path.read_bytes().partition(b"\n")[0].replace(b'"format":1', b'"format":2')
    path.write_bytes(body + b"\n" + tables._check(body) + b"\n")
    with pytest.raises(InvalidLake, match="newer Penstock"):
        Table(tmp_path).manifest()


def test_a_file_that_is_not_there_is_not_committed(tmp_path: Path) -> None:
    table = Table(tmp_path)
    gone = DataFile(path="gone.parquet", rows=1, bytes=1)
    with pytest.raises(Conflict, match="vanished"):
        table.commit(lambda manifest: Change(added=[gone], schema=SCHEMA))
    assert not table.exists()


def test_a_file_of_another_size_is_not_committed(tmp_path: Path) -> None:
    table = Table(tmp_path)
    write(table, "a.parquet", "longer")
    with pytest.raises(Conflict, match="6 bytes, but 1 were written"):
        table.commit(
            lambda manifest: Change(added=[DataFile(path="a.parquet", rows=1, bytes=1)], schema=SCHEMA)
        )


def test_a_failing_commit_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(tmp_path)
    add(table, "a.parquet")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        add(table, "b.parquet")
    assert versions(table) == ["00000000000000000001.json"]
    assert Table(tmp_path).manifest().version == 1


def test_everything_is_synced_before_a_version_has_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(tmp_path)
    add(table, "a.parquet")
    steps: list[str] = []
    sync, link = os.fsync, os.link

    def note_sync(descriptor: int) -> None:
        steps.append("sync folder" if Path(f"/proc/self/fd/{descriptor}").is_dir() else "sync file")
        sync(descriptor)

    def note_link(source: Path, target: Path) -> None:
        steps.append("link")
        link(source, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "link", note_link)
    add(table, "b.parquet")
    assert steps == ["sync file", "link", "sync folder"]


def test_a_file_system_without_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, "not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(InvalidLake, match="no hard links"):
        add(Table(tmp_path), "a.parquet")


def test_a_link_whose_answer_was_lost_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def link_twice(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", link_twice)
    assert add(Table(tmp_path), "a.parquet").version == 1


def test_a_table_travels_without_what_it_knows(tmp_path: Path) -> None:
    table = Table(tmp_path)
    add(table, "a.parquet")
    arrived = pickle.loads(pickle.dumps(table))
    assert len(pickle.dumps(table)) < 500
    assert arrived.manifest() == table.manifest()


def test_the_last_commits_are_told_the_newest_first(tmp_path: Path) -> None:
    table = Table(tmp_path)
    for name in ("a", "b", "c"):
        add(table, name)
    commits = table.recent(2)
    assert [commit.version for commit in commits] == [3, 2]
    assert [file.path for commit in commits for file in commit.change.added] == ["c", "b"]
    assert commits[0].at == table.manifest().at
    assert len(table.recent(100)) == 3
    assert Table(tmp_path / "none").recent(5) == []


def test_files_and_manifests_are_read_without_spark(tmp_path: Path) -> None:
    add(Table(tmp_path), "a")
    script = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from penstock.lake import Table, read_file\n"
        f"print(Table({str(tmp_path)!r}).manifest().rows)"
    )
    said = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert said.stdout == "1\n"
