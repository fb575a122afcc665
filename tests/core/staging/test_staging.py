"""Stages: parts that come, come again, lapse and are dropped; whose they are, and how much there may be."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.core.access.file_access import FileAccess
from penstock.core.access.identity import Identity
from penstock.core.durability.records import CHUNKS, STAGED
from penstock.core.settings import CoreSettings, LogSettings, StageSettings
from penstock.core.staging import staging, uploads
from penstock.core.staging.stages import Part
from penstock.errors import (
    Conflict,
    InvalidRequest,
    NotAuthorized,
    PenstockError,
    QuotaExceeded,
    ShuttingDown,
    StorageUnavailable,
    UnknownStage,
)
from penstock.runs import Run
from tests.core.staging.stagers import ANYONE, commit, logged, rows_of, stage_rows
from tests.support.broker import Stage
from tests.support.clock import ManualClock
from tests.support.disk import Disk

ANN, BOB = Identity("ann", ""), Identity("bob", "")


def server(
    disk: Disk | None = None,
    *,
    clock: ManualClock | None = None,
    access: FileAccess | None = None,
    **stage: float,
) -> Stage:
    settings = CoreSettings(log=LogSettings(capture=("#",)), stage=StageSettings(**stage))  # type: ignore[arg-type]
    return Stage(settings, disk=disk, clock=clock, access=access)


def records(disk: Disk) -> dict[str, int]:
    return {table: len(disk.content.tables.get(table, {})) for table in (STAGED, CHUNKS)}


class Rules:
    """An access list that tests may change."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "acl"
        self.write("user ann", "publish #", "user bob", "publish b/#")

    def write(self, *lines: str) -> None:
        self.file.write_text("\n".join(lines), encoding="utf-8")


# Parts


@pytest.mark.parametrize("is_durable", [True, False])
def test_a_part_is_told_of_when_it_is_safe(is_durable: bool) -> None:
    disk = Disk() if is_durable else None
    stage = server(disk)
    answers = stage_rows(stage, "x", rows_of("x", 10))
    assert answers == []
    stage.settle()
    (part,) = answers
    assert isinstance(part, Part)
    assert part.rows == 10
    found = stage.broker.staging.look(ANYONE, "x")
    assert [(part.number, part.rows) for part in found.in_order()] == [(0, 10)]


def test_a_part_that_comes_again_replaces_the_first() -> None:
    disk = Disk()
    stage = server(disk)
    stage_rows(stage, "x", rows_of("old", 5))
    stage_rows(stage, "x", rows_of("other", 2), part=1)
    stage.settle()
    weight = stage.broker.staging.bytes
    stage_rows(stage, "x", rows_of("new", 5))
    stage.settle()
    assert stage.broker.staging.bytes == weight
    assert records(disk) == {STAGED: 2, CHUNKS: 2}
    commit(stage, "k", "x")
    stage.settle()
    assert logged(disk) == [run.slab for run in rows_of("new", 5) + rows_of("other", 2)]


def test_a_large_part_is_stored_over_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "STORED_A_TURN", 20_000)
    monkeypatch.setattr("penstock.core.staging.packing.CHUNK_ROWS", 1_000)
    disk = Disk()
    stage = server(disk)
    answers = stage_rows(stage, "x", rows_of("x", 10_000))
    stored = [0]
    while stage.scheduler.pending:
        stage.scheduler.turn()
        stored.append(records(disk)[CHUNKS])
        assert not (records(disk)[STAGED] and stored[-1] < 10), "it is a part when all of it is there"
    assert stored[-1] == 10
    assert max(after - before for before, after in pairwise(stored)) <= 3
    assert isinstance(answers[0], Part)


def test_a_part_that_was_cut_short_by_a_crash_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "STORED_A_TURN", 1)
    monkeypatch.setattr("penstock.core.staging.packing.CHUNK_ROWS", 2)
    disk = Disk()
    stage = server(disk)
    stage_rows(stage, "x", rows_of("x", 6))
    while not records(disk)[CHUNKS]:
        stage.scheduler.turn()
    disk.crash()
    stage = server(disk)
    stage.settle()
    assert records(disk) == {STAGED: 0, CHUNKS: 0}
    with pytest.raises(UnknownStage):
        stage.broker.staging.look(ANYONE, "x")


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_part_that_was_sent_first_never_replaces_one_that_was_sent_later(
    is_committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "STORED_A_TURN", 1)
    monkeypatch.setattr("penstock.core.staging.packing.CHUNK_ROWS", 2)
    disk = Disk()
    stage = server(disk)
    old = stage_rows(stage, "x", rows_of("old", 20))
    other = stage_rows(stage, "x", rows_of("other", 20), part=1)
    new = stage_rows(stage, "x", rows_of("new", 2))
    while not new:
        stage.scheduler.turn()
    assert other == []
    if is_committed:
        commit(stage, "k", "x")
    stage.settle()
    assert isinstance(new[0], Part)
    assert isinstance(old[0], Conflict)
    assert isinstance(other[0], Part)
    if not is_committed:
        commit(stage, "k", "x")
        stage.settle()
        assert logged(disk) == [run.slab for run in rows_of("new", 2) + rows_of("other", 20)]
        assert stage.broker.staging.bytes == 0
        assert records(disk) == {STAGED: 0, CHUNKS: 0}
    else:
        found = stage.broker.staging.look(ANYONE, "x")
        assert [(part.number, part.rows) for part in found.in_order()] == [(1, 20)]


def test_a_part_that_was_sent_first_and_is_whole_is_replaced_as_ever() -> None:
    disk = Disk()
    stage = server(disk)
    old, new = stage_rows(stage, "x", rows_of("old", 3)), stage_rows(stage, "x", rows_of("new", 2))
    stage.settle()
    assert [type(answer) for answer in (*old, *new)] == [Part, Part]
    commit(stage, "k", "x")
    stage.settle()
    assert logged(disk) == [run.slab for run in rows_of("new", 2)]


def test_a_part_that_could_not_be_stored_is_said_so_and_may_come_again() -> None:
    disk = Disk()
    stage = server(disk)
    disk.is_full = True
    answers = stage_rows(stage, "x", rows_of("x", 6))
    stage.settle()
    assert isinstance(answers[0], StorageUnavailable)
    assert stage.broker.staging.bytes == 0
    with pytest.raises(StorageUnavailable):
        stage_rows(stage, "x", rows_of("x", 6))
    disk.is_full = False
    stage.advance(1.0)
    assert isinstance(_staged(stage, "x"), Part)
    assert records(disk) == {STAGED: 1, CHUNKS: 1}


def _staged(stage: Stage, id: str, count: int = 6, who: Identity = ANYONE) -> Part | PenstockError:
    answers = stage_rows(stage, id, rows_of(id, count), who=who)
    stage.settle()
    return answers[0]


def test_what_is_staged_outlives_a_crash() -> None:
    disk = Disk()
    stage = server(disk)
    _staged(stage, "x")
    weight = stage.broker.staging.bytes
    disk.crash()
    stage = server(disk)
    assert stage.broker.staging.bytes == weight
    commit(stage, "k", "x")
    stage.settle()
    assert logged(disk) == [run.slab for run in rows_of("x", 6)]


def test_a_stage_that_a_damaged_disk_has_lost_a_part_of_is_unknown() -> None:
    disk = Disk()
    stage = server(disk)
    _staged(stage, "x")
    disk.crash()
    disk.content.tables[CHUNKS].clear()
    stage = server(disk)
    with pytest.raises(UnknownStage):
        commit(stage, "k", "x")
    stage.settle()
    assert records(disk) == {STAGED: 0, CHUNKS: 0}


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_what_a_damaged_disk_has_left_of_a_stage_is_not_taken_for_all_of_it(lost: int) -> None:
    disk = Disk()
    stage = server(disk)
    for part in range(3):
        stage_rows(stage, "x", rows_of(f"x{part}", 6), part=part)
        stage.settle()
    stage_rows(stage, "y", rows_of("y", 6))
    stage.settle()
    disk.crash()
    chunks = disk.content.tables[CHUNKS]
    del chunks[sorted(chunks, key=int)[lost]]
    stage = server(disk)
    with pytest.raises(UnknownStage):
        commit(stage, "k", "x")
    commit(stage, "k", "y")
    stage.settle()
    assert logged(disk) == [run.slab for run in rows_of("y", 6)]
    assert records(disk) == {STAGED: 0, CHUNKS: 0}
    assert stage.broker.staging.bytes == 0


@pytest.mark.parametrize("id", ["", "a/b", "a b", "ä", "x" * 201, "a\n", "*"])
def test_names_are_short_and_of_plain_characters(id: str) -> None:
    with pytest.raises(InvalidRequest):
        stage_rows(server(), id, [])


@pytest.mark.parametrize("id", ["x" * 200, "query-1:batch=7~part.0@host_2"])
def test_names_that_a_query_makes_are_taken(id: str) -> None:
    assert isinstance(_staged(server(), id), Part)


@pytest.mark.parametrize("part", [-1, staging.MOST_PARTS])
def test_parts_have_numbers_within_bounds(part: int) -> None:
    with pytest.raises(InvalidRequest):
        stage_rows(server(), "x", [], part=part)


@pytest.mark.parametrize("key", ["", " a", "a ", "a\nb", "ä", "x" * 201])
def test_keys_are_short_and_of_printable_characters(key: str) -> None:
    with pytest.raises(InvalidRequest):
        commit(server(), key)


@pytest.mark.parametrize("id", ["", "x\ny", "a/b", "\ud800"])
def test_a_commit_takes_names_of_stages_only(id: str) -> None:
    stage = server()
    _staged(stage, "x")
    _staged(stage, "y")
    commit(stage, "k", "x", "y")
    stage.settle()
    with pytest.raises(InvalidRequest):
        commit(stage, "k", id)


def test_a_commit_takes_each_stage_once() -> None:
    stage = server()
    _staged(stage, "x")
    with pytest.raises(InvalidRequest):
        commit(stage, "k", "x", "x")


def test_a_stage_that_has_lost_a_part_is_not_committed_by_whoever_knows_its_rows() -> None:
    disk = Disk()
    stage = server(disk)
    _staged(stage, "x")
    _staged(stage, "y")
    stage.broker.staging.drop(ANYONE, "y", lambda _: None)
    stage_rows(stage, "y", rows_of("y", 5), part=1)  # by somebody who thinks that the first part is there
    stage.settle()
    with pytest.raises(Conflict, match="the stage y has 5 rows in place of 11"):
        commit(stage, "k", "x", "y", rows=[6, 11])
    assert [stage.broker.staging.look(ANYONE, id).rows for id in ("x", "y")] == [6, 5]
    answers = commit(stage, "k", "x", "y", rows=[6, 5])
    stage.settle()
    assert answers.record.rows == len(logged(disk)) == 11


def test_a_commit_that_was_made_is_found_again_whatever_rows_come_with_it() -> None:
    stage = server()
    _staged(stage, "x")
    commit(stage, "k", "x", rows=[6])
    stage.settle()
    _staged(stage, "y")
    assert commit(stage, "k", "y", rows=[7], any_ids=True).record.rows == 6


@pytest.mark.parametrize("rows", [[], [6, 6]])
def test_rows_are_told_of_each_stage_or_of_none(rows: list[int]) -> None:
    stage = server()
    _staged(stage, "x")
    with pytest.raises(InvalidRequest, match="there are 1 stages, and numbers of rows for"):
        commit(stage, "k", "x", rows=rows)


def test_an_unknown_stage_leaves_the_others_of_a_commit_as_they_were() -> None:
    stage = server()
    _staged(stage, "x")
    with pytest.raises(UnknownStage):
        commit(stage, "k", "x", "y")
    assert stage.broker.staging.look(ANYONE, "x").rows == 6


def test_a_server_that_stops_takes_no_part() -> None:
    stage = server()
    stage.broker.stop()
    with pytest.raises(ShuttingDown):
        stage_rows(stage, "x", [])


# Going


def test_a_stage_lapses_some_time_after_its_last_part() -> None:
    disk = Disk()
    stage = server(disk, lapse_s=100.0)
    _staged(stage, "x")
    stage.advance(60.0)
    stage_rows(stage, "x", rows_of("more", 1), part=1)
    stage.settle()
    stage.advance(60.0)
    assert stage.broker.staging.look(ANYONE, "x").rows == 7
    stage.advance(40.0)
    with pytest.raises(UnknownStage):
        stage.broker.staging.look(ANYONE, "x")
    stage.advance(1.0)
    assert records(disk) == {STAGED: 0, CHUNKS: 0}
    assert stage.broker.staging.bytes == 0


def test_the_wall_clock_decides_nothing_while_the_server_runs() -> None:
    stage = server(lapse_s=100.0)
    _staged(stage, "x")
    stage.clock.jump(1_000_000.0)
    stage.advance(1.0)
    assert stage.broker.staging.look(ANYONE, "x").rows == 6


@pytest.mark.parametrize(("pause_s", "is_there"), [(50.0, True), (150.0, False), (-1_000.0, True)])
def test_time_goes_on_for_a_stage_while_no_server_runs(pause_s: float, is_there: bool) -> None:
    disk, clock = Disk(), ManualClock()
    stage = server(disk, clock=clock, lapse_s=100.0)
    _staged(stage, "x")
    disk.crash()
    clock.jump(pause_s)
    stage = server(disk, clock=clock, lapse_s=100.0)
    stage.advance(1.0)
    assert bool(stage.broker.staging.stages) is is_there
    stage.advance(100.0)
    assert not stage.broker.staging.stages


def test_what_has_lapsed_does_not_come_back_with_a_new_part() -> None:
    disk = Disk()
    stage = server(disk, lapse_s=100.0)
    _staged(stage, "x")
    stage.clock.advance(100.0)  # and nobody has reaped yet
    stage_rows(stage, "x", rows_of("new", 2), part=1)
    stage.settle()
    assert stage.broker.staging.look(ANYONE, "x").rows == 2
    assert records(disk) == {STAGED: 1, CHUNKS: 1}


def test_a_dropped_stage_is_gone_for_good() -> None:
    disk = Disk()
    stage = server(disk)
    _staged(stage, "x")
    answers: list[PenstockError | None] = []
    stage.broker.staging.drop(ANYONE, "x", answers.append)
    stage.settle()
    assert answers == [None]
    assert records(disk) == {STAGED: 0, CHUNKS: 0}
    assert stage.broker.staging.bytes == 0
    with pytest.raises(UnknownStage):
        stage.broker.staging.drop(ANYONE, "x", answers.append)


# How much


def test_there_are_not_more_stages_than_the_setting_allows() -> None:
    stage = server(max_stages=2)
    _staged(stage, "x")
    _staged(stage, "y")
    with pytest.raises(QuotaExceeded, match=r"stage\.max_stages"):
        stage_rows(stage, "z", [])
    assert isinstance(_staged(stage, "x"), Part)


def test_stages_that_are_on_their_way_count_among_them() -> None:
    stage = server(Disk(), max_stages=2)
    stage_rows(stage, "x", rows_of("x", 1))
    stage_rows(stage, "y", rows_of("y", 1))
    stage_rows(stage, "y", rows_of("y", 1), part=1)
    with pytest.raises(QuotaExceeded, match="there are 2 stages"):
        stage_rows(stage, "z", rows_of("z", 1))
    stage.settle()
    assert stage.broker.staging.stages == 2
    commit(stage, "k", "x")
    stage_rows(stage, "y", rows_of("y", 1), part=2)  # which is there already
    assert isinstance(_staged(stage, "z"), Part)


def test_all_stages_together_have_not_more_bytes_than_the_setting_allows() -> None:
    stage = server(max_bytes=10_000)
    for number in range(100):
        try:
            assert isinstance(_staged(stage, f"x{number}"), Part)
        except QuotaExceeded:
            break
    assert 1 < number < 99
    assert stage.broker.staging.bytes <= 10_000
    commit(stage, "k", "x0")
    stage.settle()
    assert isinstance(_staged(stage, "y"), Part)


# Whose


@pytest.fixture
def rules(tmp_path: Path) -> Rules:
    return Rules(tmp_path)


@pytest.fixture
def access(rules: Rules) -> FileAccess:
    return FileAccess.load(None, rules.file, allow_anonymous=True, has_certificates=True)


def test_only_whoever_made_a_stage_may_touch_it(access: FileAccess) -> None:
    stage = server(access=access)
    assert isinstance(_staged(stage, "x", who=ANN), Part)
    taboo = (
        lambda: stage_rows(stage, "x", [], who=BOB),
        lambda: commit(stage, "k", "x", who=BOB),
        lambda: stage.broker.staging.look(BOB, "x"),
        lambda: stage.broker.staging.drop(BOB, "x", lambda error: None),
    )
    for attempt in taboo:
        with pytest.raises(NotAuthorized):
            attempt()
    assert commit(stage, "k", "x", who=ANN) == []
    stage.settle()


def test_everyone_is_told_the_names_of_their_own_stages(access: FileAccess) -> None:
    clock = ManualClock()
    stage = server(access=access, clock=clock, lapse_s=60)
    _staged(stage, "x:old", who=ANN)
    clock.advance(40)
    for id in ("x:1", "x:2", "y:1"):
        _staged(stage, id, who=ANN)
    stage_rows(stage, "x:3", rows_of("x", 1, ("b/c",)), who=BOB)
    stage.settle()
    clock.advance(40)
    staging = stage.broker.staging
    assert sorted(staging.names(ANN)) == ["x:1", "x:2", "y:1"]
    assert sorted(staging.names(ANN, "x:")) == ["x:1", "x:2"]
    assert staging.names(BOB, "x") == ["x:3"]


def test_nothing_of_the_stages_of_others_is_looked_at(access: FileAccess) -> None:
    stage = server(access=access)
    _staged(stage, "x", who=ANN)
    stage_rows(stage, "y", rows_of("y", 1, ("b/c",)), who=BOB)
    stage.settle()
    access.reload()
    (part,) = stage.broker.staging.unchecked(BOB, ["x", "y", "y"])
    assert (part.stage, part.owner) == ("y", BOB.user)


def test_everyone_has_keys_of_their_own(access: FileAccess) -> None:
    stage = server(access=access)
    _staged(stage, "x", who=ANN)
    first = commit(stage, "k", "x", who=ANN)
    second = commit(stage, "k", who=BOB)
    stage.settle()
    assert (first.record.rows, second.record.rows) == (6, 0)


def test_rows_to_topics_that_one_may_not_publish_to_are_not_staged(access: FileAccess) -> None:
    stage = server(access=access)
    with pytest.raises(NotAuthorized, match="row 0"):
        stage_rows(stage, "x", rows_of("x", 1, ("a",)), who=BOB)
    stage_rows(stage, "x", rows_of("x", 1, ("b/c",)), who=BOB)
    with pytest.raises(NotAuthorized, match="row 1"):
        stage_rows(stage, "y", rows_of("y", 2, ("a", "$SYS/x")), who=ANN)


def test_rights_are_asked_for_again_by_the_commit(access: FileAccess, rules: Rules) -> None:
    stage = server(access=access)
    _staged(stage, "x", who=ANN)
    rules.write("user ann", "publish b")
    access.reload()
    with pytest.raises(NotAuthorized):
        commit(stage, "k", "x", who=ANN)
    assert stage.broker.staging.look(ANN, "x").rows == 6
    rules.write("user ann", "publish +")
    access.reload()
    commit(stage, "k", "x", who=ANN)
    stage.settle()
    assert stage.broker.history.head == 6


def test_rights_that_are_lost_while_rows_are_packed_are_missed_by_the_commit(
    access: FileAccess, rules: Rules
) -> None:
    stage = server(access=access)
    packing = stage.broker.staging.packing(ANN)

    def rows() -> Iterator[Run]:
        yield from rows_of("x", 6)
        rules.write("user ann", "publish b")
        access.reload()

    answers: list[Part | PenstockError] = []
    stage.broker.staging.stage(ANN, "x", 0, packing.pack(rows()), answers.append)
    stage.settle()
    assert isinstance(answers[0], Part)
    with pytest.raises(NotAuthorized):
        commit(stage, "k", "x", who=ANN)


def test_a_thread_that_asks_for_rights_lets_others_have_their_turn(
    access: FileAccess, rules: Rules, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    stage = server(access=access)
    stage_rows(stage, "x", rows_of("x", 1_000, [f"t{number}" for number in range(1_000)]), who=ANN)
    stage.settle()
    access.reload()
    monkeypatch.setattr("penstock.core.staging.packing.sleep", pauses.append)
    parts = stage.broker.staging.unchecked(ANN, ["x"])
    stage.broker.staging.check_rights(ANN, parts)
    assert len(pauses) == 5
    access.reload()
    commit(stage, "k", "x", who=ANN)  # the loop itself never pauses
    stage.settle()
    assert len(pauses) == 5


def test_rights_that_are_lost_after_the_decision_change_nothing(
    access: FileAccess, rules: Rules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.core.staging.packing.CHUNK_ROWS", 3)
    monkeypatch.setattr("penstock.core.staging.commit.SLICE_ROWS", 3)
    disk = Disk()
    stage = server(disk, access=access)
    _staged(stage, "x", 12, who=ANN)
    answers = commit(stage, "k", "x", who=ANN)
    stage.scheduler.turn()
    rules.write("user ann", "publish b")
    access.reload()
    stage.broker.recheck_rights()
    stage.settle()
    assert answers.record.rows == 12
    assert len(logged(disk)) == 12
