"""Topics that were made on purpose, and deleted ones: nothing of them comes back but their sequences."""

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.topics import TopicLimits
from penstock.core.access.file_access import FileAccess
from penstock.core.access.identity import Identity
from penstock.core.broker import Arrival
from penstock.core.durability.records import DECLARED
from penstock.core.replay.catch_up import Last
from penstock.core.sessions.session import Session
from penstock.core.settings import CoreSettings, LogSettings, TopicRule
from penstock.core.subscriptions.subscription import Options
from penstock.core.topics import admin
from penstock.errors import InvalidTopic, NotAuthorized, QuotaExceeded, ShuttingDown, StorageUnavailable
from penstock.model import Door, Policy, Reason
from tests.core.replay.followers import Joiner
from tests.support.broker import Stage
from tests.support.connection import MemoryConnection
from tests.support.disk import Disk
from tests.support.encodings import PlainEncoding, as_plain
from tests.support.examples import examples
from tests.support.samples import make_run

KEEPING = LogSettings(capture=("#",))
STORED = "$argon2id$v=19$m=64,t=1,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def disk() -> Disk:
    return Disk()


def stored(disk: Disk, log: LogSettings = KEEPING) -> Stage:
    return Stage(CoreSettings(log=log), disk=disk)


def restart(stage: Stage, disk: Disk, log: LogSettings = KEEPING) -> Stage:
    """A server that comes after one that was killed when everything had settled."""
    stage.settle()
    disk.crash()
    return Stage(CoreSettings(log=log), disk=disk, clock=stage.clock)


class WebClient:
    """A client of the web door."""

    def __init__(self, stage: Stage, name: str = "w") -> None:
        self._broker = stage.broker
        self.connection = MemoryConnection()
        arrival = Arrival(Identity(None, name), Door.WEB)
        self.session, _ = stage.broker.connect(arrival, self.connection, as_plain)
        stage.broker.resume(self.session)

    def subscribe(self, filter: str) -> None:
        self._broker.subscribe(self.session, filter, Options(), PlainEncoding(), policy=Policy.DISCONNECT)


# Which there are


def test_a_topic_is_there_once_somebody_made_it_or_used_it(stage: Stage) -> None:
    assert not stage.broker.has_topic("made")
    assert stage.broker.declare_topic("made")
    assert not stage.broker.declare_topic("made"), "it was there already"
    stage.client("s").publish("used", b"x")
    assert stage.broker.has_topic("made") and stage.broker.has_topic("used")
    assert not stage.broker.has_topic("other")


@pytest.mark.parametrize("name", ["", "a/#", "\ud800", "a\0", "x" * 70_000])
def test_what_can_be_no_topic_is_none(disk: Disk, name: str) -> None:
    stage = stored(disk)
    assert not stage.broker.has_topic(name)
    for use in (stage.broker.declare_topic, stage.broker.delete_topic):
        with pytest.raises(InvalidTopic):
            use(name)


def test_a_topic_that_only_the_log_knows_is_there_until_it_is_deleted(disk: Disk) -> None:
    stage = stored(disk)
    stage.client("s").publish("a", b"x", qos=1)
    stage = restart(stage, disk)
    assert "a" not in stage.broker.topics
    assert stage.broker.has_topic("a")
    assert stage.broker.delete_topic("a")
    assert not stage.broker.has_topic("a")
    stage = restart(stage, disk)
    assert not stage.broker.has_topic("a")
    assert not stage.broker.delete_topic("a")


def test_a_topic_that_somebody_made_stays_when_room_is_needed() -> None:
    stage = Stage(CoreSettings(topic=TopicLimits(max_topics=2)))
    stage.broker.declare_topic("made")
    stage.client("s").publish("used", b"")
    stage.broker.topics["used"].ring.clear()  # type: ignore[union-attr]
    stage.advance(1.0)
    assert list(stage.broker.topics) == ["made"]


def test_one_topic_too_many_is_not_made() -> None:
    stage = Stage(CoreSettings(topic=TopicLimits(max_topics=1)))
    stage.broker.declare_topic("a")
    with pytest.raises(QuotaExceeded):
        stage.broker.declare_topic("b")
    assert stage.broker.delete_topic("a")
    assert stage.broker.declare_topic("b")


# Who may


def test_who_may_publish_to_a_topic_may_make_and_delete_it(tmp_path: Path) -> None:
    users, rules = tmp_path / "users", tmp_path / "acl"
    users.write_text(f"ann:{STORED}\n")
    rules.write_text("user ann\npublish mine/#\nsubscribe #\n")
    stage = Stage(access=FileAccess.load(users, rules, False))
    ann = Identity("ann", "a")
    stage.broker.declare_topic("theirs")
    assert stage.broker.declare_topic("mine/a", by=ann)
    for use in (stage.broker.declare_topic, stage.broker.delete_topic):
        for name in ("theirs", "none", "$SYS/x", "$penstock/drops"):
            with pytest.raises(NotAuthorized):
                use(name, by=ann)
    assert stage.broker.has_topic("theirs")
    assert stage.broker.delete_topic("mine/a", by=ann)


def test_the_servers_own_topics_are_nobodys_to_make_or_delete(stage: Stage) -> None:
    stage.broker.publish_server("$SYS/x", b"1", retain=True)
    for use in (stage.broker.declare_topic, stage.broker.delete_topic):
        with pytest.raises(NotAuthorized):
            use("$SYS/x")
    assert stage.broker.topics["$SYS/x"].retained is not None


def test_a_server_that_stops_makes_and_deletes_nothing(stage: Stage) -> None:
    stage.broker.declare_topic("a")
    stage.broker.stop()
    for use in (stage.broker.declare_topic, stage.broker.delete_topic):
        with pytest.raises(ShuttingDown):
            use("a")


def test_while_nothing_can_be_stored_nothing_is_made_or_deleted(disk: Disk) -> None:
    stage = stored(disk)
    stage.broker.declare_topic("a")
    stage.settle()
    disk.is_full = True
    stage.client("s").publish("b", b"x", qos=1)
    stage.settle()
    assert stage.log.failure is not None
    for use in (stage.broker.declare_topic, stage.broker.delete_topic):
        with pytest.raises(StorageUnavailable):
            use("a")
    assert stage.broker.has_topic("a")


# Deleting


def test_what_is_not_there_is_not_deleted(stage: Stage) -> None:
    told: list[str] = []
    stage.broker.notify_topic_deleted(lambda name, sessions: told.append(name))
    assert not stage.broker.delete_topic("a")
    assert told == []


async def test_nothing_of_a_deleted_topic_is_left_but_its_sequences(stage: Stage) -> None:
    sender, late = stage.client("s"), stage.client("l")
    for _ in range(3):
        sender.publish("a", b"x")
    sender.publish("a", b"value", retain=True)
    assert stage.broker.delete_topic("a")
    assert not stage.broker.has_topic("a")
    assert "a" not in stage.broker.topics
    assert len(stage.broker.retained) == 0
    late.subscribe("#")
    stage.settle()
    assert late.take() == []
    assert await stage.broker.history.last("a", 10) == ()
    sender.publish("a", b"new")  # by a publisher who has used it before
    stage.settle()
    assert [(each.payload, each.topic) for each in late.take()] == [(b"new", "a")]
    assert [run.sequence for run in await stage.broker.history.last("a", 10)] == [5]
    assert stage.broker.has_topic("a")
    assert stage.broker.topics["a"].published == 1


def test_other_topics_count_from_one_whatever_was_deleted(stage: Stage) -> None:
    sender = stage.client("s")
    for _ in range(10):
        sender.publish("a", b"x")
    stage.broker.delete_topic("a")
    assert sender.publish("b", b"x").run.sequence == 1


def test_what_was_published_before_the_deletion_is_delivered(stage: Stage) -> None:
    client, sender = WebClient(stage), stage.client("s")
    client.subscribe("a")
    sender.publish("a", b"last")  # and nothing has been flushed yet
    stage.broker.delete_topic("a")
    sender.publish("a", b"later")
    stage.settle()
    assert client.connection.take_payloads() == [b"last"]


def test_order_stays_for_those_who_go_on() -> None:
    """Also where messages are gathered: the few of before leave before the many of after."""
    rule = TopicRule(filter="#", batch_size=3, batch_timeout_ms=60_000)
    stage = Stage(CoreSettings(topics=(rule,)))
    device, sender = stage.client("device"), stage.client("s")
    device.subscribe("a")
    sender.publish("a", b"before")
    stage.broker.delete_topic("a")
    for payload in (b"1", b"2", b"3"):
        sender.publish("a", payload)
    stage.settle()
    assert device.take_payloads() == [b"before", b"1", b"2", b"3"]


def test_web_clients_of_just_this_topic_are_unsubscribed_and_everyone_else_goes_on(stage: Stage) -> None:
    told: list[tuple[str, Sequence[Session]]] = []
    stage.broker.notify_topic_deleted(lambda name, sessions: told.append((name, sessions)))
    exact, wide, other = WebClient(stage, "exact"), WebClient(stage, "wide"), WebClient(stage, "other")
    device = stage.client("device")
    for client, filter in ((exact, "a"), (exact, "b"), (wide, "+"), (other, "$share/g/a")):
        client.subscribe(filter)
    device.subscribe("a")
    stage.broker.declare_topic("a")
    stage.broker.delete_topic("a")
    assert told == [("a", [exact.session])]
    assert list(exact.session.subscriptions) == ["b"]
    stage.client("s").publish("a", b"x")
    stage.settle()
    assert exact.connection.take() == []
    assert [len(each) for each in (wide.connection.take(), other.connection.take(), device.take())] == [
        1,
        1,
        1,
    ]


async def test_a_web_client_that_still_gets_the_past_is_unsubscribed_too(stage: Stage) -> None:
    told: list[Session] = []
    stage.broker.notify_topic_deleted(lambda name, sessions: told.extend(sessions))
    client = WebClient(stage)
    stage.client("s").publish("a", b"x")
    stage.broker.pause(client.session)
    outcomes: list[object] = []
    stage.broker.catch_up(
        client.session,
        "a",
        Options(),
        PlainEncoding(),
        policy=Policy.DISCONNECT,
        start=Last(10),
        on_complete=outcomes.append,
        on_failed=outcomes.append,
    )
    stage.broker.delete_topic("a")
    assert told == [client.session]
    stage.broker.unpause(client.session)
    stage.client("t").publish("a", b"y")
    stage.settle()
    assert (client.connection.take(), outcomes) == ([], [])


async def test_a_reader_from_before_learns_that_messages_are_gone(stage: Stage) -> None:
    sender = stage.client("s")
    place = stage.broker.history.cursor()
    sender.publish("a", b"1")
    sender.publish("a", b"2")
    stage.broker.delete_topic("a")
    later = stage.broker.history.cursor()
    stage.broker.declare_topic("a")
    for after, expected in ((place, [(None, 2)]), (later, [])):
        chunk = await stage.broker.history.replay(("a",), after).read(1 << 20)
        missing = chunk.statement.missing
        assert [(each.first, each.last) for each in missing] == expected
        assert all(each.reason is Reason.EVICTED for each in missing)


def test_very_many_deletions_are_not_remembered_one_by_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "MOST_GONE", 3)
    sender = stage.client("s")
    last: dict[str, int] = {}
    for name in ("a", "b", "c", "d", "e"):
        last[name] = sender.publish(name, b"1", b"2").run.sequence + 1
        stage.broker.delete_topic(name)
    assert list(stage.broker.topics.gone) == ["c", "d", "e"]
    assert sender.publish("b", b"x").run.sequence > last["b"]
    assert sender.publish("e", b"x").run.sequence == last["e"] + 1


# What outlives the server


def test_topics_that_were_made_outlive_the_server(disk: Disk) -> None:
    stage = stored(disk)
    told: list[Exception | None] = []
    stage.broker.declare_topic("a")
    stage.broker.declare_topic("b")
    stage.broker.delete_topic("b")
    stage.broker.when_topics_stored(told.append)
    assert told == []
    stage = restart(stage, disk)
    assert told == [None]
    assert stage.broker.has_topic("a") and not stage.broker.has_topic("b")
    assert not stage.broker.declare_topic("a")
    assert "a" in stage.broker.topics


def test_in_memory_nobody_waits_for_a_commit(stage: Stage) -> None:
    told: list[Exception | None] = []
    stage.broker.when_topics_stored(told.append)
    assert told == [None]


def test_what_was_not_committed_was_not_made(disk: Disk) -> None:
    stage = stored(disk)
    disk.is_stuck = True
    stage.broker.declare_topic("a")
    stage.settle()
    disk.is_stuck = False
    disk.crash()
    assert not stored(disk).broker.has_topic("a")


@pytest.mark.parametrize("log", [KEEPING, LogSettings(capture=())], ids=["kept", "not kept"])
def test_a_deleted_value_does_not_come_back(disk: Disk, log: LogSettings) -> None:
    stage = stored(disk, log)
    stage.client("s").publish("a", b"x", qos=1, retain=True)
    assert stage.broker.delete_topic("a")  # before its commit
    stage = restart(stage, disk, log)
    assert not stage.broker.has_topic("a")
    assert len(stage.broker.retained) == 0


def test_a_failed_commit_does_not_bring_a_deleted_value_back(disk: Disk) -> None:
    stage = stored(disk)
    sender = stage.client("s")
    sender.publish("a", b"old", qos=1, retain=True)
    stage.settle()
    sender.publish("a", b"new", qos=1, retain=True)
    stage.broker.delete_topic("a")
    disk.is_full = True
    stage.settle()
    disk.is_full = False
    stage.advance(1.0)
    assert len(stage.broker.retained) == 0
    assert len(restart(stage, disk).broker.retained) == 0


def test_a_topic_that_is_used_again_after_its_deletion_is_there_after_a_restart(disk: Disk) -> None:
    stage = stored(disk)
    sender = stage.client("s")
    sender.publish("a", b"1", qos=1)
    stage.broker.delete_topic("a")
    assert sender.publish("a", b"2", qos=1).run.sequence == 2
    stage = restart(stage, disk)
    assert stage.broker.has_topic("a")
    stage.settle()
    assert "a" in disk.content.tables[DECLARED], "what was before is still in the log"
    assert stage.client("s").publish("a", b"3", qos=1).run.sequence == 3


def test_after_a_restart_the_oldest_deletions_are_forgotten_first(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = stored(disk)
    for name in ("d", "a", "c", "b"):
        stage.client("s").publish(name, b"1", qos=1)
        stage.broker.delete_topic(name)
    stage.settle()
    table = disk.content.tables[DECLARED]
    disk.content.tables[DECLARED] = dict(sorted(table.items()))  # as a store has them
    monkeypatch.setattr(admin, "MOST_GONE", 3)
    stage = restart(stage, disk)
    assert list(stage.broker.topics.gone) == ["a", "c", "b"]
    stage.client("s").publish("e", b"1", qos=1)
    stage.broker.delete_topic("e")
    assert list(stage.broker.topics.gone) == ["c", "b", "e"]


@pytest.mark.parametrize("is_made", [True, False], ids=["made again", "used again"])
async def test_messages_of_before_a_deletion_are_none_of_the_last_ones_but_cursors_reach_them(
    disk: Disk, is_made: bool
) -> None:
    stage = stored(disk)
    place = stage.broker.history.cursor()
    for payload in (b"1", b"2"):
        stage.client("s").publish("a", payload, qos=1)
    stage.broker.delete_topic("a")
    if is_made:
        stage.broker.declare_topic("a")
    stage.client("s").publish("a", b"3", qos=1)
    stage.settle()
    for _ in range(3):
        for filters in (("a",), ("a", "b"), ("#",)):
            joiner = Joiner(stage)
            joiner.join(filters, 10)
            await joiner.settle()
            assert joiner.got == [b"3"]
            assert joiner.statements[0].is_complete
        follower = Joiner(stage, "f")
        follower.join("a", place)
        await follower.settle()
        assert follower.got == [b"1", b"2", b"3"]
        assert [run.payload() for run in await stage.broker.history.last("a", 10)] == [b"3"]
        stage = restart(stage, disk)


def test_a_deletion_is_forgotten_when_the_log_has_nothing_of_before(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = stored(disk)
    stage.client("s").publish("a", b"1", qos=1)
    stage.broker.delete_topic("a")
    stage.client("s").publish("a", b"2", qos=1)
    stage.settle()
    disk.crash()
    monkeypatch.setattr(type(stage.log), "first_offset", 2)
    stage = stored(disk)
    stage.settle()
    assert stage.broker.has_topic("a")
    assert "a" not in disk.content.tables[DECLARED]


def test_a_deletion_does_not_walk_over_all_sessions(stage: Stage) -> None:
    class Unwalked(dict[str, Session]):
        def values(self) -> NoReturn:
            raise AssertionError("they may be very many")

    client, sender = WebClient(stage), stage.client("s")
    client.subscribe("a")
    sender.publish("a", b"x")
    node = stage.broker._node
    node.sessions = Unwalked(node.sessions)
    assert stage.broker.delete_topic("a")
    assert "a" not in client.session.subscriptions
    assert sender.publish("a", b"y").run.sequence == 2
    assert stage.broker.has_topic("a")


def test_a_caller_that_has_used_a_topic_makes_it_again(stage: Stage) -> None:
    sender = stage.broker.request_sender(Identity(None, "c"), Door.WEB)
    for sequence in (1, 2):
        assert stage.broker.publish_once(make_run("a", b"x", door=Door.WEB), sender).sequence == sequence
        assert stage.broker.delete_topic("a")


@examples(15)
@given(st.lists(st.tuples(st.sampled_from(["make", "delete", "use", "restart"]), st.sampled_from("ab"))))
def test_whatever_happens_topics_are_there_as_a_set_would_have_them(steps: list[tuple[str, str]]) -> None:
    disk = Disk()
    stage, there, given_out = stored(disk), set[str](), {"a": 0, "b": 0}
    for step, name in steps:
        match step:
            case "make":
                stage.broker.declare_topic(name)
                there.add(name)
            case "delete":
                assert stage.broker.delete_topic(name) == (name in there)
                there.discard(name)
            case "use":
                sequence = stage.client("s").publish(name, b"x", qos=1).run.sequence
                assert sequence == given_out[name] + 1, "none is given twice"
                given_out[name] = sequence
                there.add(name)
            case _:
                stage = restart(stage, disk)
        assert {each for each in "ab" if stage.broker.has_topic(each)} == there
