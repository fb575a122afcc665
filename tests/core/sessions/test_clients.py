"""Client directory: streams and publishing calls are found by the id of their client."""

import pytest

from penstock.core.access.identity import Identity
from penstock.core.broker import Arrival
from penstock.core.sessions import clients
from penstock.core.sessions.session import Session
from penstock.model import Door
from tests.support.broker import Stage
from tests.support.connection import MemoryConnection


class Call:
    """Call that publishes."""

    door = Door.SIDECAR
    connected_at = 1

    def __init__(self, client_id: str) -> None:
        self.identity = Identity(None, client_id)

    def close(self, reason: str) -> None:
        raise AssertionError(reason)


def open_stream(stage: Stage, stream: str, client_id: str) -> tuple[Session, MemoryConnection]:
    connection = MemoryConnection()
    arrival = Arrival(Identity(None, stream), Door.SIDECAR, rights=Identity(None, client_id))
    session, _ = stage.broker.connect(arrival, connection, reencode=lambda form: form)
    return session, connection


def test_streams_are_found_by_their_client_and_by_their_own_id() -> None:
    stage = Stage()
    pump = stage.client("pump").session
    first, _ = open_stream(stage, "s-1", "worker")
    second, _ = open_stream(stage, "s-2", "worker")
    known = stage.broker.clients
    assert sorted(known.ids()) == ["pump", "worker"]
    assert known.find("worker") == [first, second]
    assert known.find("s-2") == [second]
    assert known.find("pump") == [pump]
    assert [known.client_of(each) for each in ("s-1", "pump", "nobody")] == ["worker", "pump", "nobody"]


def test_a_client_may_have_a_session_of_its_id_beside_streams() -> None:
    stage = Stage()
    own = stage.client("worker").session
    stream, _ = open_stream(stage, "s-1", "worker")
    assert stage.broker.clients.find("worker") == [own, stream]
    assert stage.broker.clients.ids() == ["worker"]


def test_ended_streams_are_remembered_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "PAST_STREAMS", 2)
    stage = Stage()
    for number in range(3):
        session, connection = open_stream(stage, f"s-{number}", "worker")
        stage.broker.disconnect(session, connection, is_graceful=True)
    known = stage.broker.clients
    assert (known.ids(), known.find("worker")) == ([], [])
    assert [known.client_of(f"s-{number}") for number in range(3)] == ["s-0", "worker", "worker"]


def test_a_stream_without_a_client_id_is_listed_by_its_own() -> None:
    stage = Stage()
    session, _ = open_stream(stage, "s-1", "")
    assert stage.broker.clients.ids() == ["s-1"]
    assert (session.name, stage.broker.clients.find("s-1")) == ("s-1", [session])


def test_calls_that_publish_are_listed_while_they_are_open() -> None:
    known = Stage().broker.clients
    call, nameless = Call("sender"), Call("")
    known.enter_call(call)
    known.enter_call(nameless)
    assert (known.ids(), list(known.calls_of("sender")), len(known)) == (["sender"], [call], 1)
    for _ in range(2):
        known.leave_call(call)
        known.leave_call(nameless)
    assert (known.ids(), list(known.calls_of("sender"))) == ([], [])
