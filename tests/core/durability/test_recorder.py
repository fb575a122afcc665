"""What outlives the server is written once a turn, and as little of it as will do."""

import pytest

from penstock.core.durability import recorder
from penstock.core.durability.records import (
    BEHIND,
    GROUPS,
    MOVES,
    SESSIONS,
    WINDOWS,
    BehindRecord,
    GroupRecord,
    MovesRecord,
    SessionRecord,
    WindowRecord,
)
from penstock.core.ports.turn import Turn
from penstock.core.settings import CoreSettings, OutboxSettings, SessionSettings
from penstock.model import Policy, Will
from tests.support.broker import Client, Stage
from tests.support.disk import Disk

LASTING = 3_600.0
TABLES = (SESSIONS, WINDOWS, BEHIND, GROUPS)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def stage(disk: Disk) -> Stage:
    return Stage(disk=disk)


def connect(stage: Stage, name: str = "r", filter: str = "a", qos: int = 1, **others: object) -> Client:
    client = stage.client(name, clean=False, **{"expiry": LASTING, **others})  # type: ignore[arg-type]
    client.subscribe(filter, qos)
    stage.settle()
    return client


def publish(stage: Stage, *payloads: bytes, qos: int = 1) -> None:
    sender = stage.client("s")
    for payload in payloads:
        sender.publish("a", payload, qos=qos)
    stage.settle()


def journal(disk: Disk) -> list[MovesRecord]:
    records = disk.content.tables.get(MOVES, {}).values()
    return [record for record in records if isinstance(record, MovesRecord)]


def records(disk: Disk, table: str) -> dict[str, object]:
    return {str(key): record for key, record in disk.content.tables.get(table, {}).items()}


def watch_turns(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[Turn]:
    """The turns that are committed from now on."""
    turns: list[Turn] = []
    commit = stage.log.commit
    monkeypatch.setattr(stage.log, "commit", lambda turn: (turns.append(turn), commit(turn)))
    return turns


def test_all_steps_of_a_turn_are_one_record(stage: Stage, disk: Disk) -> None:
    readers = [connect(stage, name) for name in ("one", "two")]
    publish(stage, b"1", b"2", b"3")
    assert len(journal(disk)) == 1
    assert set(journal(disk)[0].steps) == {"one", "two"}
    for reader in readers:
        reader.take_and_acknowledge()
    stage.settle()
    assert len(journal(disk)) == 2


def test_a_turn_that_changes_nothing_writes_nothing(stage: Stage, disk: Disk) -> None:
    connect(stage)
    publish(stage, b"1", qos=0)
    assert journal(disk) == []
    assert records(disk, BEHIND) == {}


def test_clients_that_leave_nothing_behind_cost_no_record(
    stage: Stage, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = watch_turns(stage, monkeypatch)
    guest = connect(stage, "guest", qos=2, expiry=0.0)
    publish(stage, b"1", qos=2)
    guest.take_and_acknowledge()
    guest.unsubscribe("a")
    stage.settle()
    guest.drop()
    stage.settle()
    assert turns != []
    assert [turn for turn in turns if turn.puts or turn.deletes or turn.cuts] == []
    assert journal(disk) == []


def test_a_session_that_is_prolonged_no_more_leaves_no_record(stage: Stage, disk: Disk) -> None:
    reader = connect(stage)
    publish(stage, b"1")
    reader.drop()
    publish(stage, b"2")
    assert (list(records(disk, SESSIONS)), list(records(disk, BEHIND))) == (["r"], ["r"])
    stage.client("r", clean=False, expiry=0.0)
    stage.settle()
    assert all("r" not in records(disk, table) for table in TABLES)


def test_a_guest_with_a_will_is_recorded_until_it_has_said_goodbye(stage: Stage, disk: Disk) -> None:
    guest = stage.client("guest", will=Will("w", b"gone", 1, False))
    stage.settle()
    record = records(disk, SESSIONS)["guest"]
    assert isinstance(record, SessionRecord)
    assert record.will == Will("w", b"gone", 1, False)
    guest.disconnect()
    stage.settle()
    assert records(disk, SESSIONS) == {}


# How far someone has got


def test_who_is_behind_has_a_position_until_it_has_caught_up(stage: Stage, disk: Disk) -> None:
    reader = connect(stage)
    publish(stage, b"1")
    assert records(disk, BEHIND) == {}
    reader.drop()
    publish(stage, b"2", b"3")
    assert records(disk, BEHIND) == {"r": BehindRecord(1)}
    back = stage.client("r", clean=False, expiry=LASTING)
    stage.settle()
    assert len(back.take()) == 3
    assert records(disk, BEHIND) == {}


def test_the_position_of_a_slow_reader_moves_with_what_leaves(disk: Disk) -> None:
    stage = Stage(CoreSettings(outbox=OutboxSettings(messages=2)), disk=disk)
    reader = connect(stage, window=1)
    publish(stage, b"1", b"2", b"3", b"4", b"5")
    positions = []
    for _ in range(5):
        positions.append(records(disk, BEHIND).get("r"))
        reader.take_and_acknowledge()
        stage.settle()
    assert positions == [*map(BehindRecord, (1, 2, 3, 4)), None]


def test_who_wants_nothing_of_what_it_was_owed_any_more_is_behind_no_more(stage: Stage, disk: Disk) -> None:
    connect(stage).drop()
    publish(stage, b"1")
    assert records(disk, BEHIND) == {"r": BehindRecord(0)}
    back = stage.client("r", clean=False, expiry=LASTING)
    back.unsubscribe("a")
    stage.settle()
    assert records(disk, BEHIND) == {}


def test_what_waited_for_its_commit_when_its_reader_went_is_owed(stage: Stage, disk: Disk) -> None:
    reader = connect(stage, qos=2)
    disk.is_stuck = True
    publish(stage, b"1", qos=2)
    disk.sync()
    publish(stage, b"2", qos=2)
    reader.drop()
    stage.settle()
    disk.sync()
    assert records(disk, BEHIND) == {"r": BehindRecord(1)}


def test_the_position_is_written_only_when_it_changes(
    stage: Stage, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = connect(stage)
    reader.drop()
    publish(stage, b"1")
    turns = watch_turns(stage, monkeypatch)
    publish(stage, b"2")
    publish(stage, b"3")
    assert turns != []
    assert [turn.puts for turn in turns if turn.puts] == []


def test_a_shared_group_without_anyone_has_a_position_and_knows_what_it_offers_again(
    stage: Stage, disk: Disk
) -> None:
    member = connect(stage, filter="$share/g/a")
    publish(stage, b"1", b"2")
    assert records(disk, GROUPS) == {}
    member.drop()
    publish(stage, b"3")
    assert records(disk, GROUPS) == {"$share/g/a": GroupRecord(2, (2, 1))}
    stage.client("r", clean=False, expiry=LASTING)
    stage.settle()
    assert records(disk, GROUPS) == {}
    stage.client("r", clean=True)
    stage.settle()
    assert all(records(disk, table) == {} for table in TABLES)


def test_the_oldest_offset_that_someone_is_still_to_get_is_known(stage: Stage) -> None:
    assert stage.oldest_queued_offset is None
    reader, shared = connect(stage), connect(stage, "m", "$share/g/a")
    publish(stage, b"1", b"2", b"3")
    reader.acknowledge(1)
    assert stage.oldest_queued_offset == 1  # it is on its way to the group
    shared.drop()
    assert stage.oldest_queued_offset == 1
    stage.client("m", clean=True)
    stage.settle()
    assert stage.oldest_queued_offset == 2
    reader.take_and_acknowledge()
    assert stage.oldest_queued_offset is None
    reader.drop()
    publish(stage, b"4", b"5")
    assert stage.oldest_queued_offset == 4


# Windows


@pytest.fixture
def _few_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MOVES_KEPT", 3)


@pytest.mark.usefixtures("_few_moves")
def test_windows_are_written_now_and_then_and_the_moves_before_them_cut(stage: Stage, disk: Disk) -> None:
    reader = connect(stage)
    for number in range(20):
        publish(stage, b"x")
        assert len(journal(disk)) <= 2 * recorder.MOVES_KEPT + 1
        assert bool(records(disk, WINDOWS)) == (number >= recorder.MOVES_KEPT)
    window = records(disk, WINDOWS)["r"]
    assert isinstance(window, WindowRecord)
    assert len(window.sent) > recorder.MOVES_KEPT
    assert len(reader.take()) == 20


@pytest.mark.usefixtures("_few_moves")
def test_the_moves_of_a_reader_that_has_none_to_add_do_not_stay_for_ever(stage: Stage, disk: Disk) -> None:
    quiet, busy = connect(stage, "quiet"), connect(stage, "busy", "b")
    publish(stage, b"1")
    for _ in range(10):
        stage.client("s").publish("b", b"x", qos=1)
        stage.settle()
    assert len(journal(disk)) <= 2 * recorder.MOVES_KEPT + 1
    assert (len(quiet.take()), len(busy.take())) == (1, 10)
    disk.crash()
    after = Stage(disk=disk)
    windows = {name: len(after.broker.sessions[name].inflight or ()) for name in ("quiet", "busy")}
    assert windows == {"quiet": 1, "busy": 10}


@pytest.mark.usefixtures("_few_moves")
def test_no_window_is_written_of_a_session_that_is_prolonged_no_more(stage: Stage, disk: Disk) -> None:
    connect(stage).drop()
    connect(stage, "busy")
    publish(stage, b"x")
    stage.client("r", clean=False, expiry=LASTING)
    stage.settle()
    stage.client("r", clean=False, expiry=0.0)
    for _ in range(6):
        publish(stage, b"x")
    assert set(records(disk, WINDOWS)) == {"busy"}


@pytest.mark.usefixtures("_few_moves")
def test_moves_are_numbered_on_even_if_a_window_was_written_for_all_of_them(disk: Disk) -> None:
    for start in range(6):
        stage = Stage(disk=disk)
        reader = stage.client("r", clean=False, expiry=LASTING)
        if not start:
            reader.subscribe("a", 1)
        stage.settle()
        assert len(reader.session.inflight or ()) == 4 * start
        for _ in range(4):  # with the fourth its window is written
            publish(stage, b"x")
        disk.crash()
    numbers = list(disk.content.tables[MOVES])
    assert numbers[-1] == 6 * 4 - 1


def test_no_turn_writes_more_windows_than_it_should(
    stage: Stage, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "MOVES_KEPT", 3)
    monkeypatch.setattr(recorder, "ENTRIES_A_TURN", 4)
    for number in range(6):
        connect(stage, f"r{number}")
    for _ in range(3):
        publish(stage, b"x")
    counts = []
    for _ in range(4):
        publish(stage, b"x")
        counts.append(len(records(disk, WINDOWS)))
    assert counts == [1, 2, 3, 4]  # each has four deliveries by now, or more
    disk.crash()
    after = Stage(disk=disk)
    assert [len(session.inflight or ()) for session in after.broker.sessions.values()] == [7] * 6


def test_records_of_those_who_are_not_known_any_more_are_removed_at_start(disk: Disk) -> None:
    content = disk.content
    content.tables[WINDOWS] = {"gone": WindowRecord(3, {})}
    content.tables[BEHIND] = {"gone": BehindRecord(3)}
    content.tables[GROUPS] = {"$share/g/a": GroupRecord(3)}
    Stage(disk=disk).settle()
    assert all(records(disk, table) == {} for table in TABLES)


# Who waits


def test_whoever_waits_is_called_when_the_steps_of_this_turn_are_committed(stage: Stage, disk: Disk) -> None:
    reader = connect(stage, qos=2)
    publish(stage, b"x", qos=2)
    reader.receive(1)
    seen: list[int] = []
    stage.broker.when_change_stored(reader.session, lambda: seen.append(len(journal(disk))))
    before = len(journal(disk))
    stage.settle()
    assert seen == [before + 1]


@pytest.mark.parametrize("clean", [True, False])
def test_who_comes_back_at_once_after_its_session_ended_is_let_in_when_that_can_not_be_undone(
    stage: Stage, disk: Disk, clean: bool
) -> None:
    reader = connect(stage)
    disk.is_stuck = True
    reader.disconnect(expiry=0.0)
    let_in: list[dict[str, object]] = []
    for _ in range(2):  # it may have to come more than once
        stage.settle()
        again = stage.client("r", clean=clean)
        assert not again.is_known
        stage.broker.when_session_stored(
            again.session, lambda failure: let_in.append(records(disk, SESSIONS))
        )
        stage.settle()
    assert let_in == []
    disk.is_stuck = False
    disk.sync()
    stage.settle()
    assert let_in == [{}, {}]


def test_who_comes_back_after_the_end_of_its_session_was_stored_need_not_wait(
    stage: Stage, disk: Disk
) -> None:
    reader = connect(stage)
    reader.disconnect(expiry=0.0)
    stage.settle()
    disk.is_stuck = True
    let_in: list[Exception | None] = []
    again = stage.client("r")
    stage.broker.when_session_stored(again.session, let_in.append)
    assert let_in == [None]


def test_a_log_is_not_asked_to_commit_before_it_has_got_what_is_to_be_committed(
    stage: Stage, disk: Disk
) -> None:
    reader = connect(stage, qos=2)
    publish(stage, b"x", qos=2)
    reader.receive(1)
    called: list[str] = []
    stage.broker.when_change_stored(reader.session, lambda: called.append("stored"))
    disk.sync()  # a commit that ends in the middle of the turn
    assert called == []
    stage.settle()
    assert called == ["stored"]


def test_what_a_group_offers_again_is_forgotten_when_it_expires_or_is_dropped(disk: Disk) -> None:
    stage = Stage(CoreSettings(sessions=SessionSettings(owed_messages=3)), disk=disk)
    member = stage.client("r", clean=False, expiry=LASTING)
    member.subscribe("$share/g/a", 1, policy=Policy.DROP_OLDEST)
    assert member.session.groups
    (group,) = member.session.groups
    for payload in (b"1", b"2"):
        stage.client("s").publish("a", payload, qos=1, ttl=10.0)
    stage.settle()
    member.drop()
    assert list(group.again) == [2, 1]
    stage.advance(11.0)
    assert (len(group.again), records(disk, GROUPS)) == (0, {})
    member = stage.client("r", clean=False, expiry=LASTING)
    publish(stage, b"3", b"4")
    member.drop()
    publish(stage, b"5", b"6")
    assert list(group.again) == [4]
    assert records(disk, GROUPS) == {"$share/g/a": GroupRecord(4, (4,))}


def test_nobody_waits_for_company_to_end_a_session(
    stage: Stage, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = connect(stage)
    turns = watch_turns(stage, monkeypatch)
    reader.disconnect(expiry=0.0)
    stage.settle()
    assert turns[0].is_urgent
    assert records(disk, SESSIONS) == {}


def test_the_oldest_offset_that_a_group_is_owed_is_known_whatever_is_offered_again(
    stage: Stage, disk: Disk
) -> None:
    first, second = (connect(stage, name, "$share/g/a", window=1) for name in ("one", "two"))
    publish(stage, b"1", b"2")
    first.drop()
    second.drop()  # what it had is offered before what the other had
    stage.settle()
    assert stage.oldest_queued_offset == 1
    for name in ("one", "two"):
        stage.client(name, clean=False, expiry=LASTING).take_and_acknowledge()
    stage.settle()
    for name in ("one", "two"):
        stage.client(name, clean=False, expiry=LASTING).drop()
    assert stage.oldest_queued_offset is None
    publish(stage, b"3", b"4")
    assert stage.oldest_queued_offset == 3
