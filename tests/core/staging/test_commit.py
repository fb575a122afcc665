"""Commits of stages: decided once, published in slices, remembered by their keys."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from penstock.common.topics import TopicLimits
from penstock.core.durability.records import CHUNKS, DECIDED, PROGRESS, RELEASED
from penstock.core.settings import CoreSettings, LogSettings, OutboxSettings, StageSettings
from penstock.core.staging import commit as commits
from penstock.core.staging import packing, uploads
from penstock.errors import Conflict, QuotaExceeded, ShuttingDown, StorageUnavailable, UnknownStage
from penstock.model import Door, Policy, Properties
from penstock.runs import bare_shape
from tests.core.staging.stagers import ANYONE, commit, logged, rows_of, stage_rows
from tests.support.broker import Stage
from tests.support.clock import ManualClock
from tests.support.disk import Disk

KEEP_ALL = LogSettings(capture=("#",))


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rows need as many turns as many would."""
    monkeypatch.setattr(packing, "CHUNK_ROWS", 3)
    monkeypatch.setattr(commits, "SLICE_ROWS", 4)
    monkeypatch.setattr(uploads, "STORED_A_TURN", 40)


def server(disk: Disk | None = None, **settings: object) -> Stage:
    return Stage(CoreSettings(**{"log": KEEP_ALL, **settings}), disk=disk)  # type: ignore[arg-type]


def staged(stage: Stage, id: str, count: int = 10) -> list[bytes]:
    """Stage rows and wait until they are safe; answer their payloads."""
    rows = rows_of(id, count)
    stage_rows(stage, id, rows)
    stage.settle()
    return [run.slab for run in rows]


# In good order


@pytest.mark.parametrize("make_disk", [Disk, lambda: None])
def test_rows_are_published_in_the_order_of_the_ids_and_parts(make_disk: Callable[[], Disk | None]) -> None:
    stage = server(make_disk())
    reader = stage.client("reader")
    reader.subscribe("#", 1)
    stage_rows(stage, "x", rows_of("second", 7), part=1)
    stage_rows(stage, "x", rows_of("first", 5), part=0)
    stage_rows(stage, "y", rows_of("y", 4))
    stage.settle()
    answers = commit(stage, "k", "y", "x")
    stage.settle()
    expected = [run.slab for run in rows_of("y", 4) + rows_of("first", 5) + rows_of("second", 7)]
    assert reader.take_payloads() == expected
    assert answers.record.rows == 16
    assert answers[0][1] is False


def test_what_is_staged_is_seen_by_nobody_and_is_not_in_the_log() -> None:
    disk = Disk()
    stage = server(disk)
    reader = stage.client("reader")
    reader.subscribe("#", 1)
    staged(stage, "x")
    assert reader.take_payloads() == []
    assert logged(disk) == []


def test_the_answer_says_between_which_positions_the_rows_lie() -> None:
    disk = Disk()
    stage = server(disk)
    other = stage.client("other")
    other.publish("noise", b"before", qos=1)
    staged(stage, "x", 9)
    answers = commit(stage, "k", "x")
    stage.settle()
    other.publish("noise", b"after", qos=1)
    stage.settle()
    first, last = answers.record.first.offset, answers.record.last.offset
    between = [run.slab for run in disk.content.runs if first < run.offset <= last]
    assert between == [run.slab for run in rows_of("x", 9)]
    assert logged(disk)[0] == b"before"
    assert logged(disk)[-1] == b"after"


def test_no_turn_publishes_more_than_a_slice() -> None:
    stage = server(Disk())
    staged(stage, "x", 50)
    commit(stage, "k", "x")
    heads = [stage.broker.history.head]
    while stage.scheduler.pending:
        stage.scheduler.turn()
        heads.append(stage.broker.history.head)
    assert heads[-1] == 50
    assert max(after - before for before, after in pairwise(heads)) <= 4


def test_commits_take_turns() -> None:
    disk = Disk()
    stage = server(disk)
    staged(stage, "large", 40)
    staged(stage, "small", 2)
    commit(stage, "k1", "large")
    answers = commit(stage, "k2", "small")
    stage.settle()
    assert answers.record.rows == 2
    assert logged(disk).index(b"small:1") < 10


def test_a_commit_of_nothing_is_made_and_remembered() -> None:
    stage = server(Disk())
    answers = commit(stage, "k")
    stage.settle()
    assert answers.record.rows == 0
    assert answers.record.first == answers.record.last


def test_rows_keep_their_qos_lifetime_and_properties() -> None:
    disk = Disk()
    stage = server(disk)
    (row,) = rows_of("x", 1, qos=2)
    row.ttl = 30.0
    row.properties = Properties("text/plain", b"c", "reply/to", None, "id-1", (("k", "v"), ("k", "w")))
    stage_rows(stage, "x", [row])
    stage.settle()
    commit(stage, "k", "x")
    stage.settle()
    (stored,) = disk.content.runs
    assert (stored.shape.qos, stored.ttl, stored.properties) == (2, 30.0, row.properties)
    assert stored.client_id == ANYONE.client_id


def test_retained_rows_leave_values() -> None:
    stage = server()
    rows = rows_of("x", 2, ("a",))
    for row in rows:
        row.shape = bare_shape(Door.WEB, 1, True)
    stage_rows(stage, "x", rows)
    commit(stage, "k", "x")
    stage.settle()
    value = stage.broker.topics["a"].retained
    assert value is not None
    assert value.run("a").payload() == b"x:1"


def test_nothing_is_left_of_a_stage_that_was_committed() -> None:
    disk = Disk()
    stage = server(disk)
    staged(stage, "x", 20)
    commit(stage, "k", "x")
    stage.settle()
    assert stage.broker.staging.bytes == 0
    left = {table: len(records) for table, records in disk.content.tables.items() if records}
    assert left == {RELEASED: 1}


# The same key again


def test_the_same_key_again_gets_the_same_answer_and_publishes_nothing() -> None:
    disk = Disk()
    stage = server(disk)
    expected = staged(stage, "x")
    first = commit(stage, "k", "x")
    stage.settle()
    second = commit(stage, "k", "x")
    assert second == [(first.record, True)]
    stage.settle()
    assert logged(disk) == expected


def test_whoever_asks_meanwhile_waits_for_the_same_commit() -> None:
    stage = server(Disk())
    staged(stage, "x", 20)
    first = commit(stage, "k", "x")
    stage.scheduler.turn()
    second = commit(stage, "k", "x")
    assert first == second == []
    stage.settle()
    assert second == [(first.record, True)]


@pytest.mark.parametrize("ids", [(), ("y",), ("x", "y"), ("xy",)])
def test_a_key_stands_for_the_same_stages_always(ids: tuple[str, ...]) -> None:
    stage = server(Disk())
    staged(stage, "x", 20)
    commit(stage, "k", "x")
    with pytest.raises(Conflict):
        commit(stage, "k", *ids)  # while it goes on
    stage.settle()
    with pytest.raises(Conflict):
        commit(stage, "k", *ids)


def test_a_key_that_says_it_all_is_found_again_whichever_stages_come_with_it() -> None:
    disk = Disk()
    stage = server(disk)
    expected = staged(stage, "x", 20)
    staged(stage, "y")
    first = commit(stage, "k", "x", any_ids=True)
    meanwhile = commit(stage, "k", "y", any_ids=True)
    assert first == meanwhile == []
    stage.settle()
    later = commit(stage, "k", "never", any_ids=True)
    assert meanwhile == later == [(first.record, True)]
    stage.settle()
    assert logged(disk) == expected
    assert stage.broker.staging.look(ANYONE, "y").rows  # what came in vain is its owner's to drop


def test_a_key_is_remembered_by_the_next_server_and_forgotten_in_the_end() -> None:
    disk, clock = Disk(), ManualClock()
    stage = Stage(CoreSettings(log=KEEP_ALL), disk=disk, clock=clock)
    staged(stage, "x")
    answers = commit(stage, "k", "x")
    stage.settle()
    disk.crash()
    clock.advance(6 * 24 * 3600)
    stage = Stage(CoreSettings(log=KEEP_ALL), disk=disk, clock=clock)
    assert commit(stage, "k", "x") == [(answers.record, True)]
    stage.advance(24 * 3600)
    with pytest.raises(UnknownStage):
        commit(stage, "k", "x")
    stage.settle()
    assert not disk.content.tables[RELEASED]


def test_no_more_keys_are_remembered_than_the_setting_allows() -> None:
    disk = Disk()
    stage = server(disk, stage=StageSettings(max_keys=2))
    for key in ("k1", "k2", "k3"):
        commit(stage, key)
        stage.settle()
    stage.settle()
    assert len(disk.content.tables[RELEASED]) == 2
    assert commit(stage, "k3")[0][1] is True
    assert commit(stage, "k1") == []  # it is made anew


# Trouble


def test_nothing_is_decided_while_the_disk_is_full() -> None:
    disk = Disk()
    stage = server(disk)
    expected = staged(stage, "x")
    disk.is_full = True
    stage.client("other").publish("noise", b"n", qos=1)
    stage.settle()
    with pytest.raises(StorageUnavailable):
        commit(stage, "k", "x")
    disk.is_full = False
    stage.advance(1.0)
    commit(stage, "k", "x")
    stage.settle()
    assert logged(disk) == expected


def test_a_decided_commit_goes_on_when_the_disk_is_well_again() -> None:
    disk = Disk()
    stage = server(disk)
    expected = staged(stage, "x", 20)
    answers = commit(stage, "k", "x")
    disk.is_full = True
    stage.settle()
    ((error, _),) = answers
    assert isinstance(error, StorageUnavailable)
    assert "same key" in str(error)
    disk.is_full = False
    stage.advance(1.0)
    assert logged(disk) == expected
    assert commit(stage, "k", "x").record.rows == 20


def test_a_subscriber_under_block_makes_the_next_slice_wait() -> None:
    stage = server(outbox=OutboxSettings(messages=2))
    slow = stage.client("slow")
    slow.subscribe("a", 0, policy=Policy.BLOCK)
    slow.pause()
    rows = rows_of("x", 20, ("a",))
    stage_rows(stage, "x", rows)
    answers = commit(stage, "k", "x")
    stage.settle()
    assert answers == []
    assert stage.broker.history.head == 3
    slow.unpause()
    stage.settle()
    while answers == []:
        slow.unpause()
        stage.settle()
    assert slow.take_payloads() == [row.slab for row in rows]


def test_a_commit_that_is_held_back_holds_back_no_other() -> None:
    stage = server(outbox=OutboxSettings(messages=2))
    slow = stage.client("slow")
    slow.subscribe("a", 0, policy=Policy.BLOCK)
    slow.pause()
    stage_rows(stage, "x", rows_of("x", 20, ("a",)))
    stage_rows(stage, "y", rows_of("y", 20, ("b",)))
    held, free = commit(stage, "k1", "x"), commit(stage, "k2", "y")
    stage.settle()
    assert held == []
    assert free.record.rows == 20


def test_a_commit_waits_for_room_among_the_topics() -> None:
    stage = server(topic=TopicLimits(max_topics=2))
    other = stage.client("other")
    for topic in ("t1", "t2"):
        other.publish(topic, b"x")
    stage.settle()
    stage_rows(stage, "x", rows_of("x", 2, ("a",)))
    first = commit(stage, "k", "x")
    stage.settle()
    ((error, _),) = first
    assert isinstance(error, QuotaExceeded)
    assert "same key" in str(error)
    answers = commit(stage, "k", "x")
    assert answers == []
    for each in list(stage.broker.topics.values()):
        assert each.ring is not None
        each.ring.close()
        each.ring = None
    stage.clock.advance(1.0)  # now nothing is left of the others
    stage.broker.reap()
    stage.advance(1.0)
    assert answers.record.rows == 2


def test_a_commit_that_has_no_room_for_its_topics_holds_back_no_other() -> None:
    stage = server(topic=TopicLimits(max_topics=5))
    stage_rows(stage, "x", rows_of("x", 30, [f"t{number}" for number in range(30)]))
    stage_rows(stage, "y", rows_of("y", 60, ("t0",)))
    large, small = commit(stage, "k1", "x"), commit(stage, "k2", "y")
    stage.settle()  # which takes no time
    assert small.record.rows == 60
    again = commit(stage, "k1", "x")
    stage.settle()
    assert again == []
    stage.advance(1.0)
    assert [type(error) for error, _ in (*large, *again)] == [QuotaExceeded] * 2


def test_what_could_not_be_stored_comes_again_at_qos_0_but_is_in_the_log_once() -> None:
    disk = Disk()
    stage = server(disk)
    reader = stage.client("reader")
    reader.subscribe("a", 2)
    rows = rows_of("x", 3, ("a",), qos=0)
    stage_rows(stage, "x", rows)
    stage.settle()
    disk.is_full = True
    commit(stage, "k", "x")
    stage.settle()
    disk.is_full = False
    stage.advance(1.0)
    assert reader.take_payloads() == [row.slab for row in rows] * 2
    assert logged(disk) == [row.slab for row in rows]


def test_what_could_not_be_stored_comes_once_at_qos_2() -> None:
    disk = Disk()
    stage = server(disk)
    reader = stage.client("reader", clean=False, expiry=1000.0)
    reader.subscribe("a", 2)
    rows = rows_of("x", 3, ("a",), qos=2)
    stage_rows(stage, "x", rows)
    stage.settle()
    disk.is_full = True
    commit(stage, "k", "x")
    stage.settle()
    assert reader.take_payloads() == []
    disk.is_full = False
    stage.advance(1.0)
    reader = stage.client("reader", clean=False, expiry=1000.0)
    stage.settle()
    assert reader.take_payloads() == [row.slab for row in rows]


def test_whoever_waits_is_told_that_the_server_stops_and_the_next_one_goes_on() -> None:
    disk = Disk()
    stage = server(disk)
    expected = staged(stage, "x", 20)
    answers = commit(stage, "k", "x")
    stage.scheduler.turn()
    stage.broker.stop()
    ((error, _),) = answers
    assert isinstance(error, ShuttingDown)
    stage.settle()
    assert 0 < len(logged(disk)) < 20
    with pytest.raises(ShuttingDown):
        commit(stage, "k2")
    disk.crash()
    server(disk).settle()
    assert logged(disk) == expected


def test_chunks_that_a_damaged_disk_has_lost_are_skipped() -> None:
    disk = Disk()
    stage = server(disk)
    staged(stage, "x", 20)
    commit(stage, "k", "x")
    for _ in range(4):
        stage.scheduler.turn()
    disk.crash()
    lost = min(disk.content.tables[CHUNKS], key=int)
    before = len(logged(disk))
    assert 0 < before < 17
    del disk.content.tables[CHUNKS][lost]
    stage = server(disk)
    stage.settle()
    disk.crash()
    server(disk).settle()
    assert 17 <= len(logged(disk)) <= 20
    assert len(set(logged(disk))) == len(logged(disk))
    assert not disk.content.tables[DECIDED]
    assert not disk.content.tables[PROGRESS]
