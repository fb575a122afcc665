"""Clients that do not keep up: they are told, really cut, and slow nobody down; nothing is lost silently."""

import asyncio
import gc
import json

import pytest
from structlog.testing import capture_logs

from penstock.app import Server
from penstock.core.sessions.session import Ending
from penstock.core.settings import OutboxSettings, RingSettings, TopicRule
from penstock.doors.web.settings import WebSettings
from penstock.doors.web.socket.connection import CLOSING_S
from penstock.doors.web.socket.replies import Info
from penstock.doors.web.socket.slow_client import SlowClientTimer
from penstock.model import Policy, Reason
from penstock.wire.websocket.encoding import CloseCode
from tests.doors.serving import Start
from tests.doors.web.socket.talking import Said, Sloth, Talker
from tests.support.waiting import until

LARGE = "x" * 40_000
MANY = 500


def watched() -> int:
    """How many connections are looked after, or would be."""
    return sum(isinstance(each, SlowClientTimer) for each in gc.get_objects())


async def is_told_and_cut(sloth: Sloth, limit: Said) -> list[Said]:
    """Read what is left, up to the last word, which names the limit; answer the events."""
    *events, last = await sloth.read_all()
    assert (last["type"], last["code"]) == ("error", "SLOW_CONSUMER")
    assert last["message"] == "Too slow: events waited too long to be sent"
    assert last["details"] == {"client_id": sloth.client_id, **limit}
    close = sloth.connection.protocol
    assert (close.close_code, close.close_reason) == (CloseCode.POLICY_VIOLATION, "Slow consumer")
    return events


def missed_by(server: Server, client_id: str) -> list[int]:
    """The sequences that were for a client and did not reach it."""
    rows = server.broker.ledger.rows(client_id=client_id)
    return sorted(sequence for row in rows for sequence in range(row.first, row.last + 1))


def lost_by(server: Server, client_id: str) -> set[tuple[Reason, Policy | None, str]]:
    """Why a client did not get something."""
    rows = server.broker.ledger.rows(client_id=client_id)
    return {(row.reason, row.policy, row.setting) for row in rows}


SLOW = (Reason.OUTBOX_FULL, Policy.DISCONNECT, "outbox")


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        (
            {"web": WebSettings(slow_after_ms=50), "outbox": OutboxSettings(bytes=100_000_000)},
            {"slow_after_ms": 50},
        ),
        (
            {"web": WebSettings(slow_after_ms=0), "outbox": OutboxSettings(messages=100)},
            {"outbox_messages": 100},
        ),
        (
            {"web": WebSettings(slow_after_ms=60_000), "outbox": OutboxSettings(bytes=1_000_000)},
            {"outbox_bytes": 1_000_000},
        ),
    ],
    ids=["too old", "too many", "too large"],
)
async def test_a_slow_client_is_told_and_cut_and_what_it_missed_is_in_the_ledger(
    start: Start, name: str, settings: Said, limit: Said
) -> None:
    """Stress scenario 2: 500 publishes to a client that reads nothing."""
    server = await start(**settings)
    server.broker.declare_topic(name)
    async with Sloth(server) as sloth, Talker(server) as publisher, Talker(server) as reader:
        await sloth.subscribe(name)
        await reader.subscribe(name)
        with capture_logs() as lines:
            await publisher.publish(name, *([LARGE] * MANY))  # all are answered, whoever reads or not
            assert len(await reader.data(MANY)) == MANY
            await until(lambda: sloth.client_id not in server.broker.sessions, "the session is still there")
        events = await is_told_and_cut(sloth, limit)
        got = [event["sequence"] for event in events]
        assert got == list(range(1, len(got) + 1))
        missed = missed_by(server, sloth.client_id)  # up to where it was cut
        assert missed == list(range(len(got) + 1, len(got) + len(missed) + 1))
        assert missed
        assert lost_by(server, sloth.client_id) == {SLOW}
        assert server.broker.ledger.counts == {Reason.OUTBOX_FULL: len(missed)}
        assert server.broker.topic_stats.lost == {SLOW[:2]: len(missed)}
        assert server.broker.counters.delivered == MANY + len(got)
        (slow,) = [row for row in server.broker.slow_consumers.clients() if row.client_id == sloth.client_id]
        assert (slow.policy, slow.dropped) == (Policy.DISCONNECT, len(missed))
        (line,) = [line for line in lines if line["event"] == "slow client cut"]
        assert line["client"] == sloth.client_id
        assert 0 < line["dropped"] <= len(missed)  # some may have been published since
        assert limit.items() <= line.items()


async def test_who_catches_up_in_time_stays(start: Start, name: str) -> None:
    server = await start(web=WebSettings(slow_after_ms=60_000))
    server.broker.declare_topic(name)
    async with Sloth(server) as sloth, Talker(server) as publisher:
        await sloth.subscribe(name)
        await publisher.publish(name, *([LARGE] * 150))
        assert len(await sloth.data(150)) == 150
        await publisher.publish(name, "the last")
        assert await sloth.data(1) == ["the last"]
        assert missed_by(server, sloth.client_id) == []


async def test_who_never_reads_in_time_is_cut_and_what_was_written_counts_as_delivered(
    start: Start, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CLOSING_S, Ending.SLOW, 0.05)
    server = await start(web=WebSettings(slow_after_ms=50))
    server.broker.declare_topic(name)
    async with Sloth(server) as sloth, Talker(server) as publisher:
        await sloth.subscribe(name)
        await publisher.publish(name, *([LARGE] * MANY))
        await until(
            lambda: len(server.socket.connections) == 1, "there is not exactly one connection"
        )  # its socket is closed at last
        written, missed = server.broker.counters.delivered, missed_by(server, sloth.client_id)
        assert missed == list(range(written + 1, written + len(missed) + 1))
        assert missed
        assert server.broker.topics[name].delivered == written
        assert lost_by(server, sloth.client_id) == {SLOW}
        (slow,) = server.broker.slow_consumers.clients()
        assert slow.dropped == len(missed)
        got = [said["sequence"] for said in await sloth.read_all() if said["type"] == "event"]
        assert got == list(range(1, len(got) + 1))
        assert len(got) <= written


async def test_what_waited_for_who_has_gone_is_in_the_ledger(start: Start, name: str) -> None:
    server = await start(web=WebSettings(slow_after_ms=60_000))
    server.broker.declare_topic(name)
    async with Sloth(server) as sloth, Talker(server) as publisher:
        await sloth.subscribe(name)
        await publisher.publish(name, *([LARGE] * 150))
        assert server.broker.sessions[sloth.client_id].outbox
        sloth.connection.transport.abort()
        await until(lambda: len(server.socket.connections) == 1, "there is not exactly one connection")
        written, missed = server.broker.counters.delivered, missed_by(server, sloth.client_id)
        assert missed == list(range(written + 1, 151))
        assert missed
        assert lost_by(server, sloth.client_id) == {(Reason.DISCONNECTED, None, "")}


async def test_nothing_is_delivered_to_who_was_cut_in_the_same_turn(server: Server, name: str) -> None:
    server.broker.declare_topic(name)
    async with Talker(server) as talker:
        await talker.subscribe(name)
        (connection,) = server.socket.connections
        server.broker.sessions[talker.client_id].close(Ending.SLOW)  # as core does within a delivery
        counters = server.broker.counters
        before = (counters.delivered, counters.bytes_sent, counters.control_packets_sent)
        server.broker.publish_server(name, b"1")
        server.broker.deliver_now()
        connection.reply(Info("too late"))
        await until(lambda: not server.broker.sessions, "a session is still there")
        assert (counters.delivered, counters.bytes_sent, counters.control_packets_sent) == before
        assert lost_by(server, talker.client_id) == {(Reason.DISCONNECTED, None, "")}
        assert (await talker.read())["code"] == "SLOW_CONSUMER"


async def test_a_server_that_stops_does_not_wait_for_who_is_slow_to_go(start: Start, name: str) -> None:
    assert CLOSING_S[Ending.SHUTTING_DOWN] == 1.0 < CLOSING_S[Ending.SLOW]
    server = await start(web=WebSettings(slow_after_ms=50), shutdown_timeout_s=600.0)
    server.broker.declare_topic(name)
    async with Sloth(server) as sloth, Talker(server) as publisher:
        await sloth.subscribe(name)
        await publisher.publish(name, *([LARGE] * 150))
        await until(lambda: sloth.client_id not in server.broker.sessions, "the session is still there")
        async with asyncio.timeout(CLOSING_S[Ending.SLOW] / 2):
            await start.stop(server)
        sloth.connection.transport.abort()


async def test_the_clock_on_the_wall_makes_nobody_slow(
    start: Start, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await start(web=WebSettings(slow_after_ms=1_000))
    server.broker.declare_topic(name)
    async with Sloth(server) as sloth, Talker(server) as publisher:
        await sloth.subscribe(name)
        await publisher.publish(name, *([LARGE] * 150))
        assert server.broker.sessions[sloth.client_id].is_paused
        clock = server.socket.clock
        monkeypatch.setattr(clock, "wall_us", lambda: 0)  # it was set back
        await until(lambda: sloth.client_id not in server.broker.sessions, "the session is still there")
        await is_told_and_cut(sloth, {"slow_after_ms": 1_000})


async def test_what_waits_for_who_unsubscribes_is_not_sent_and_in_the_ledger(start: Start, name: str) -> None:
    server = await start(web=WebSettings(slow_after_ms=60_000, explicit_topics=False))
    async with Sloth(server) as sloth, Talker(server) as publisher:
        await sloth.subscribe(name)
        await sloth.subscribe(f"{name}/other")
        await publisher.publish(name, *([LARGE] * 150))
        await publisher.publish(f"{name}/other", "still wanted")
        assert server.broker.sessions[sloth.client_id].outbox
        await sloth.send({"type": "unsubscribe", "topic": name})
        await until(
            lambda: name not in server.broker.sessions[sloth.client_id].subscriptions,
            "the subscription is still there",
        )
        before = []
        while (said := await sloth.read())["type"] == "event":
            before.append(said["sequence"])
        assert said["message"] == f"Unsubscribed from topic '{name}'"
        assert await sloth.data(1) == ["still wanted"]
        assert await sloth.ask("ping") == {"type": "pong"}
        missed = missed_by(server, sloth.client_id)
        assert missed
        assert before + missed == list(range(1, 151))
        assert lost_by(server, sloth.client_id) == {(Reason.SESSION_ENDED, None, "")}


async def test_what_waits_of_a_deleted_topic_is_in_the_ledger_and_the_notice_comes_last(
    start: Start, name: str
) -> None:
    server = await start(web=WebSettings(slow_after_ms=60_000))
    server.broker.declare_topic(name)
    async with Sloth(server) as sloth, Talker(server) as publisher:
        await sloth.subscribe(name)
        await publisher.publish(name, *([LARGE] * 150))
        server.broker.delete_topic(name)
        before = []
        while (said := await sloth.read())["type"] == "event":
            before.append(said["sequence"])
        assert said["message"] == f"Topic '{name}' was deleted"
        assert await sloth.ask("ping") == {"type": "pong"}
        assert before + missed_by(server, sloth.client_id) == list(range(1, 151))
        assert lost_by(server, sloth.client_id) == {(Reason.SESSION_ENDED, None, "")}


async def test_nobody_looks_after_who_has_left_while_it_lagged_behind(start: Start, name: str) -> None:
    server = await start(web=WebSettings(slow_after_ms=60_000))
    server.broker.declare_topic(name)
    async with Sloth(server) as sloth, Talker(server) as publisher:
        await sloth.subscribe(name)
        await publisher.publish(name, *([LARGE] * 150))
        assert server.broker.sessions[sloth.client_id].is_paused
        gc.collect()
        assert watched() == 2
        sloth.connection.transport.abort()
        await until(lambda: watched() == 1, "there is not exactly one watched session")
        assert server.broker.slow_consumers.count == 0


async def test_a_client_that_is_full_of_its_own_past_is_not_slow(start: Start, name: str) -> None:
    ring = RingSettings(messages=200, topic_bytes=40_000_000, partitions=1)
    server = await start(web=WebSettings(slow_after_ms=1), ring=ring)
    for _ in range(200):
        server.broker.publish_server(name, json.dumps(LARGE).encode())
    async with Sloth(server) as sloth:
        await sloth.subscribe(name, last_n=200)
        await until(lambda: server.broker.sessions[sloth.client_id].is_paused, "the session is not paused")
        await asyncio.sleep(0.05)  # nothing happens, long past the time
        assert len(await sloth.data(200)) == 200
        assert (await sloth.answer())["message"] == "replay_complete"


async def test_a_topic_that_is_deleted_in_the_middle_of_its_past_ends_that(start: Start, name: str) -> None:
    server = await start(ring=RingSettings(messages=200, topic_bytes=40_000_000, partitions=1))
    for _ in range(200):
        server.broker.publish_server(name, json.dumps(LARGE).encode())
    async with Sloth(server) as sloth:
        await sloth.subscribe(name, last_n=200)
        await until(lambda: server.broker.sessions[sloth.client_id].is_paused, "the session is not paused")
        server.broker.delete_topic(name)
        assert (await sloth.answer())["message"] == f"Topic '{name}' was deleted"
        assert (await sloth.ask("unsubscribe", topic=name))["code"] == "NOT_SUBSCRIBED"


async def test_under_block_a_publisher_gets_its_answers_when_the_subscriber_has_room_again(
    start: Start, name: str
) -> None:
    server = await start(
        web=WebSettings(slow_after_ms=0),
        topics=(TopicRule(filter=name, policy=Policy.BLOCK),),
        outbox=OutboxSettings(messages=10, block_timeout_ms=600_000),
    )
    server.broker.declare_topic(name)
    async with Sloth(server) as sloth, Talker(server) as publisher:
        await sloth.subscribe(name)
        session = server.broker.sessions[publisher.client_id]

        async def publish_one_by_one() -> None:
            for _ in range(200):
                await publisher.publish(name, LARGE)
                assert not session.blocked_by  # or there would be no answer

        sending = asyncio.create_task(publish_one_by_one())
        await until(lambda: session.blocked_by, "the session was not blocked")
        assert len(await sloth.data(200)) == 200
        await sending
        assert missed_by(server, sloth.client_id) == []
