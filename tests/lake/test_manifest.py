import pytest

from penstock.client.messages import Gap
from penstock.errors import Conflict
from penstock.lake.manifest import Change, DataFile, Expired, Intent, Manifest, apply, by_partition, join_gaps


def file(path: str, rows: int = 1, **partition: str) -> DataFile:
    return DataFile(path=path, rows=rows, bytes=rows * 10, partition=partition)


def after(*changes: Change) -> Manifest:
    manifest = Manifest()
    for number, change in enumerate(changes, 1):
        manifest = apply(manifest, change, id=f"id-{number}", at=number * 100)
    return manifest


def expired(rows: int, first: int, last: int, **partition: str) -> Expired:
    return Expired(partition=partition, rows=rows, bytes=rows, first_offset=first, last_offset=last, at=first)


FIRST = Change(added=[file("a", 3), file("b", 4)], schema="columns")


def test_a_change_adds_files_and_moves_on() -> None:
    manifest = after(FIRST, Change(cursor="c", batch=1))
    assert (manifest.version, manifest.at, manifest.cursor, manifest.batch) == (2, 200, "c", 1)
    assert list(manifest.files) == ["a", "b"]
    assert (manifest.rows, manifest.bytes) == (7, 70)


def test_the_id_is_given_once() -> None:
    assert after(FIRST, Change(batch=1)).id == "id-1"


def test_what_a_change_does_not_name_stays() -> None:
    settings = Change(filters=("a/#",), buckets=8, cursor="c", start="s", log_id="l", schema="columns")
    manifest = after(settings, Change(by="compact"))
    assert manifest.filters == ("a/#",)
    assert (manifest.buckets, manifest.cursor, manifest.start, manifest.log_id) == (8, "c", "s", "l")


def test_files_that_are_taken_out_are_retired_until_they_are_forgotten() -> None:
    manifest = after(FIRST, Change(removed=["a"], added=[file("c")]))
    assert list(manifest.files) == ["b", "c"]
    assert manifest.retired == {"a": 200}
    assert apply(manifest, Change(forgotten=["a"]), id="", at=300).retired == {}


@pytest.mark.parametrize(
    "change",
    [
        Change(removed=["x"]),
        Change(removed=["a", "a"]),
        Change(added=[file("a")]),
        Change(retired=["a"]),
    ],
)
def test_a_change_that_does_not_fit_is_a_conflict(change: Change) -> None:
    with pytest.raises(Conflict):
        after(FIRST, change)


def test_a_retired_file_cannot_be_added() -> None:
    with pytest.raises(Conflict):
        after(FIRST, Change(retired=["late"]), Change(added=[file("late")]))


def test_rows_need_columns() -> None:
    with pytest.raises(ValueError, match="schema"):
        after(Change(added=[file("a")]))


def test_progress_is_kept_for_each_query() -> None:
    manifest = after(Change(progress={"one": 4}), Change(progress={"two": 1}), Change(progress={"one": 5}))
    assert manifest.progress == {"one": 5, "two": 1}


def test_gaps_that_touch_become_one_if_they_have_one_reason() -> None:
    gaps = [Gap(5, 9, "retention"), Gap(1, 4, "retention"), Gap(10, 12, "damaged"), Gap(20, 20, "damaged")]
    assert join_gaps(gaps) == (Gap(1, 9, "retention"), Gap(10, 12, "damaged"), Gap(20, 20, "damaged"))
    assert after(Change(gaps=gaps[:1]), Change(gaps=gaps[1:2])).gaps == (Gap(1, 9, "retention"),)


def test_what_expired_is_added_up_for_each_partition() -> None:
    manifest = after(
        Change(expired=[expired(2, 5, 9, date="2026-01-02", bucket="00")]),
        Change(expired=[expired(1, 1, 1, date="2026-01-01", bucket="00")]),
        Change(expired=[expired(3, 7, 20, date="2026-01-02", bucket="00")]),
    )
    assert [(each.partition["date"], each.rows) for each in manifest.expired] == [
        ("2026-01-01", 1),
        ("2026-01-02", 5),
    ]
    assert (manifest.expired[1].first_offset, manifest.expired[1].last_offset) == (5, 20)


def test_an_intent_is_set_and_taken_back() -> None:
    intent = Intent(batch=1, after=None, until="c")
    manifest = after(Change(intent=intent), Change(batch=1))
    assert manifest.intent == intent
    assert apply(manifest, Change(intent=None), id="", at=0).intent is None


def test_files_are_grouped_by_partition_in_order() -> None:
    files = [file("b", date="2"), file("a", date="1"), file("c", date="2")]
    groups = by_partition(files)
    assert {key: [each.path for each in group] for key, group in groups.items()} == {
        (("date", "1"),): ["a"],
        (("date", "2"),): ["b", "c"],
    }
    assert list(groups) == [(("date", "1"),), (("date", "2"),)]
