"""With a data directory: what is acknowledged is stored, and answers keep their order all the same."""

import pytest

from penstock.app import Server
from penstock.core.ports.log import Settled, Ticket
from penstock.doors.web.socket import inbound
from tests.doors.web.socket.talking import Talker
from tests.support.waiting import until


@pytest.fixture
def topic(stored_server: Server, name: str) -> str:
    stored_server.broker.declare_topic(name)
    return name


async def test_an_answer_waits_for_the_commit(
    stored_server: Server, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[tuple[Ticket, Settled]] = []
    log = stored_server.broker.log
    settle = log.when_committed
    async with Talker(stored_server) as talker:
        monkeypatch.setattr(log, "when_committed", lambda *asked: waiting.append(asked))
        await talker.send_at_once(
            {"type": "publish", "topic": topic, "data": 1},
            {"type": "ping"},
            {"type": "subscribe", "topic": topic, "last_n": 5},
            None,
            {"type": "ping"},
        )
        await until(lambda: waiting, "no request is waiting")
        assert not stored_server.broker.sessions[talker.client_id].subscriptions
        monkeypatch.undo()
        for ticket, callback in waiting:
            if log.is_committed(ticket):
                callback(None)
            else:
                settle(ticket, callback)
        said = [await talker.read() for _ in range(6)]
        assert [each.get("request_type", each["type"]) for each in said] == [
            *("publish", "pong", "subscribe", "event", "info", "pong")
        ]


async def test_nobody_is_answered_who_has_left_before_the_commit(
    stored_server: Server, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[tuple[Ticket, Settled]] = []
    counters = stored_server.broker.counters
    monkeypatch.setattr(stored_server.broker.log, "when_committed", lambda *asked: waiting.append(asked))
    async with Talker(stored_server) as talker:
        await talker.send({"type": "publish", "topic": topic, "data": 1})
        await until(lambda: waiting, "no request is waiting")
    await until(lambda: not stored_server.socket.connections, "a connection is still open")
    before = (counters.bytes_sent, counters.control_packets_sent)
    for _, callback in waiting:
        callback(None)
    assert (counters.bytes_sent, counters.control_packets_sent) == before


async def test_what_could_not_be_stored_is_not_acknowledged(
    stored_server: Server, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = stored_server.broker.log
    async with Talker(stored_server) as talker:
        with monkeypatch.context() as patch:
            patch.setattr(log, "when_committed", lambda _, callback: callback(OSError("no space left")))
            answer = await talker.ask("publish", topic=topic, data=1, request_id="a")
        assert (answer["code"], answer["request_id"]) == ("STORAGE_UNAVAILABLE", "a")
        assert "no space left" in answer["message"]
        await talker.publish(topic, 2)


async def test_many_publishes_are_answered_in_order(stored_server: Server, topic: str) -> None:
    async with Talker(stored_server) as talker:
        await talker.send(
            *({"type": "publish", "topic": topic, "data": n, "request_id": n} for n in range(3_000))
        )
        assert [(await talker.answer())["request_id"] for _ in range(3_000)] == list(range(3_000))


async def test_the_last_messages_of_a_topic_that_was_made_again_are_those_since(
    stored_server: Server, topic: str
) -> None:
    async with Talker(stored_server) as talker:
        await talker.publish(topic, 1, 2)
        stored_server.broker.delete_topic(topic)
        stored_server.broker.declare_topic(topic)
        await talker.publish(topic, 3)
        await talker.subscribe(topic, last_n=10)
        assert await talker.data(1) == [3]
        assert (await talker.read())["message"] == "replay_complete"


async def test_own_event_waits_for_the_response_and_so_for_the_commit(
    stored_server: Server, topic: str
) -> None:
    async with Talker(stored_server) as talker:
        await talker.subscribe(topic)
        for number in range(5):
            await talker.send({"type": "publish", "topic": topic, "data": number})
            said = [await talker.read() for _ in range(2)]
            assert [each["type"] for each in said] == ["ack", "event"]


@pytest.mark.parametrize("limit", [inbound.WITHHELD_LIMIT_BYTES, 0])
async def test_events_behind_a_slow_commit_wait_in_order_and_up_to_a_limit(
    stored_server: Server, topic: str, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """Events of other publishers keep their place; beyond the limit they come without the response."""
    monkeypatch.setattr(inbound, "WITHHELD_LIMIT_BYTES", limit)
    waiting: list[tuple[Ticket, Settled]] = []
    log = stored_server.broker.log
    settle = log.when_committed
    async with Talker(stored_server) as talker:
        await talker.subscribe(topic)
        monkeypatch.setattr(log, "when_committed", lambda *asked: waiting.append(asked))
        await talker.send({"type": "publish", "topic": topic, "data": 0})
        await until(lambda: waiting, "no request is waiting")
        for number in range(1, 4):
            stored_server.broker.publish_server(topic, b"%d" % number)
        if not limit:
            assert await talker.data(4) == [0, 1, 2, 3]
        monkeypatch.setattr(log, "when_committed", settle)
        for ticket, callback in waiting:
            if log.is_committed(ticket):
                callback(None)
            else:
                settle(ticket, callback)
        assert (await talker.read())["type"] == "ack"
        if limit:
            assert await talker.data(4) == [0, 1, 2, 3]


async def test_pipelined_events_come_behind_their_own_responses(stored_server: Server, topic: str) -> None:
    async with Talker(stored_server) as talker:
        await talker.subscribe(topic)
        for number in range(50):
            await talker.send({"type": "publish", "topic": topic, "data": number})
        acks, events = 0, list[int]()
        while len(events) < 50:
            said = await talker.read()
            if said["type"] == "ack":
                acks += 1
            else:
                events.append(said["data"])
                assert len(events) <= acks
        assert events == list(range(50))
