"""How far a session has got: the offset from which it can be resumed without a gap."""

import pytest

from penstock.core.access.access import OpenAccess
from penstock.core.access.identity import Identity
from penstock.core.broker import Arrival
from penstock.core.sessions.session import Ending, Session
from penstock.core.settings import CoreSettings, LogSettings, OutboxSettings, RingSettings
from penstock.core.subscriptions.subscription import Options
from penstock.model import Door, Policy
from tests.core.replay.followers import Joiner, numbers, publish
from tests.support.broker import Stage
from tests.support.connection import MemoryConnection
from tests.support.disk import Disk
from tests.support.encodings import PlainEncoding, as_plain


def test_who_keeps_up_stands_at_the_head() -> None:
    stage = Stage()
    reader, sender = stage.client("r"), stage.client("s")
    reader.subscribe("a")
    publish(sender, "a", numbers(1, 3))
    stage.settle()
    assert stage.broker.position_of(reader.session) == 3


def test_what_is_not_flushed_yet_has_not_left() -> None:
    stage = Stage()
    reader, sender = stage.client("r"), stage.client("s")
    reader.subscribe("a")
    publish(sender, "a", numbers(1, 3))
    stage.settle()
    publish(sender, "a", numbers(4, 5))
    assert stage.broker.position_of(reader.session) == 3


def test_what_waits_in_the_outbox_has_not_left() -> None:
    stage = Stage()
    reader, sender = stage.client("r"), stage.client("s")
    reader.subscribe("a")
    publish(sender, "a", numbers(1, 2))
    stage.settle()
    reader.pause()
    publish(sender, "b", numbers(3, 3))
    publish(sender, "a", numbers(4, 5))
    stage.settle()
    assert stage.broker.position_of(reader.session) == 3
    reader.unpause()
    assert stage.broker.position_of(reader.session) == 5


def test_what_was_dropped_is_accounted_for() -> None:
    stage = Stage(CoreSettings(outbox=OutboxSettings(messages=2)))
    reader, sender = stage.client("r"), stage.client("s")
    reader.subscribe("a", policy=Policy.DROP_OLDEST)
    reader.pause()
    publish(sender, "a", numbers(1, 5))
    stage.settle()
    assert stage.broker.position_of(reader.session) == 3


def test_values_and_shared_filters_do_not_count() -> None:
    stage = Stage()
    reader, sender = stage.client("r"), stage.client("s")
    sender.publish("v", b"value", retain=True)
    publish(sender, "a", numbers(2, 3))
    reader.subscribe("$share/g/b")
    reader.subscribe("v")
    publish(sender, "b", numbers(4, 4))
    reader.pause()
    stage.settle()
    publish(sender, "a", numbers(5, 5))
    stage.settle()
    assert stage.broker.position_of(reader.session) == 5


async def test_a_join_stands_where_it_has_got_to() -> None:
    settings = CoreSettings(ring=RingSettings(messages=1), log=LogSettings(capture=("#",)))
    stage = Stage(settings, disk=Disk())
    sender, joiner = stage.client("s"), Joiner(stage)
    publish(sender, "a", numbers(1, 9))
    stage.settle()
    joiner.join("a", stage.broker.history.cursor(4))
    assert stage.broker.position_of(joiner.client.session) == 4
    await joiner.settle()
    assert stage.broker.position_of(joiner.client.session) == 9


@pytest.mark.parametrize("how", ["drop", "take over", "close"])
def test_where_a_session_stood_is_known_after_its_connection_has_ended(how: str) -> None:
    stage = Stage()
    reader, sender = stage.client("r"), stage.client("s")
    reader.subscribe("a")
    publish(sender, "a", numbers(1, 2))
    stage.settle()
    reader.pause()
    publish(sender, "a", numbers(3, 4))
    stage.settle()
    if how == "drop":
        reader.drop()
    elif how == "take over":
        stage.client("r")
    else:
        stage.broker.stop()
        stage.broker.close()
        assert reader.connection.closed == Ending.SHUTTING_DOWN
    assert stage.broker.position_of(reader.session) == 2


@pytest.mark.parametrize("is_resumable", [False, True])
def test_what_can_be_read_back_is_not_recorded_as_lost(is_resumable: bool) -> None:
    stage = Stage()
    reader, sender = stage.client("r"), stage.client("s")
    reader.subscribe("a")
    reader.session.is_resumable = is_resumable
    reader.pause()
    publish(sender, "a", numbers(1, 2))
    stage.settle()
    reader.drop()
    assert stage.losses("r") == ([] if is_resumable else [("a", 1, 2, "disconnected")])


def test_who_is_cut_off_and_can_read_it_back_has_lost_nothing() -> None:
    stage = Stage(CoreSettings(outbox=OutboxSettings(messages=2)))
    reader, sender = stage.client("r"), stage.client("s")
    reader.subscribe("a", policy=Policy.DISCONNECT)
    reader.session.is_resumable = True
    publish(sender, "a", numbers(1, 1))
    stage.settle()
    reader.pause()
    publish(sender, "a", numbers(2, 6))
    stage.settle()
    assert (reader.connection.closed, stage.broker.position_of(reader.session)) == (Ending.SLOW, 1)
    assert stage.losses("r") == []


def test_who_is_not_known_any_more_cannot_read_anything_back() -> None:
    class Guests(OpenAccess):
        is_open = True

        def is_known(self, identity: Identity) -> bool:
            return self.is_open

    access = Guests()
    stage = Stage(access=access)
    reader, sender = stage.client("r"), stage.client("s")
    reader.subscribe("a")
    reader.session.is_resumable = True
    reader.pause()
    publish(sender, "a", numbers(1, 2))
    access.is_open = False
    stage.broker.recheck_rights()
    assert stage.losses("r") == [("a", 1, 2, "disconnected")]


def sidecar(stage: Stage, client_id: str) -> tuple[Session, MemoryConnection]:
    connection = MemoryConnection()
    arrival = Arrival(Identity(None, client_id), Door.SIDECAR)
    session, _ = stage.broker.connect(arrival, connection, as_plain)
    stage.broker.resume(session)
    return session, connection


def test_a_sidecar_goes_on_when_a_topic_is_deleted() -> None:
    stage = Stage()
    session, connection = sidecar(stage, "sub")
    told: list[tuple[str, int]] = []
    stage.broker.notify_topic_deleted(lambda name, sessions: told.append((name, len(sessions))))
    stage.broker.subscribe(session, "a", Options(), PlainEncoding(), policy=Policy.DROP_OLDEST)
    sender = stage.client("s")
    publish(sender, "a", numbers(1, 1))
    stage.broker.delete_topic("a")
    publish(sender, "a", numbers(2, 2))
    stage.settle()
    assert told == [("a", 0)]
    assert connection.take_payloads() == numbers(1, 2)
