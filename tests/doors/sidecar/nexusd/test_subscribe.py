"""Subscribe and Unsubscribe: how streams begin, go on and end."""

import asyncio
import gc

import grpc

from penstock.app import Server
from penstock.core.sessions.session import Session
from penstock.doors.sidecar.settings import SidecarSettings
from penstock.wire.sidecar.messages import nexusd
from tests.doors.serving import Start
from tests.doors.sidecar.calling import Client
from tests.doors.sidecar.stalling import stream_of
from tests.support.waiting import until

OK = grpc.StatusCode.OK


async def test_the_first_event_says_what_was_subscribed_to(server: Server, client: Client) -> None:
    events = client.ask(nexusd.SubscribeRequest(topics=["b", "a", "b"], client_id="host-1"))
    info = await events.begin()
    log = server.broker.log
    assert info.subscription_id.startswith(f"sub-{log.log_id[:8]}-{log.epoch}-host-1-")
    assert list(info.topics) == ["b", "a"]
    assert abs(info.timestamp_ms - server._clock.wall_us() // 1_000) < 60_000
    assert not (info.gap_detected or info.missed_message_count or info.replay_started)


async def test_two_subscriptions_of_one_client_have_ids_of_their_own(client: Client) -> None:
    first, second = await client.subscribe("a", client_id="x"), await client.subscribe("a", client_id="x")
    assert first.id != second.id
    await client.publish("a", b"1")
    assert await first.payloads(1) == await second.payloads(1) == [b"1"]


async def test_who_gives_no_name_is_called_anonymous(client: Client) -> None:
    assert "-anonymous-" in (await client.subscribe("a")).id


async def test_a_name_is_cut_and_made_printable_in_the_id(client: Client) -> None:
    events = await client.subscribe("a", client_id="\n" + "n" * 100)
    assert f"-_{'n' * 63}-" in events.id


async def test_wildcards_bring_what_they_match(client: Client) -> None:
    events = await client.subscribe("a/+/c", "b/#")
    for topic in ("a/x/c", "a/x/d", "b", "b/1/2", "c"):
        await client.publish(topic, topic.encode())
    assert await events.payloads(3) == [b"a/x/c", b"b", b"b/1/2"]
    assert await events.is_silent()


async def test_a_retained_value_that_several_filters_match_comes_once(client: Client) -> None:
    await client.publish("a/b", b"1", retain=True)
    await client.publish("c", b"2", retain=True)
    events = await client.subscribe("a/b", "a/+", "+/b", "#", receive_retained=True)
    assert await events.payloads(2, "retained_message") == [b"1", b"2"]
    assert await events.is_silent()


async def test_a_shared_group_gets_each_message_once(client: Client) -> None:
    one, other = await client.subscribe("$share/g/a"), await client.subscribe("$share/g/a")
    for number in range(4):
        await client.publish("a", b"%d" % number)
    assert sorted(await one.payloads(2) + await other.payloads(2)) == [b"0", b"1", b"2", b"3"]


async def test_a_subscription_shows_among_the_clients_of_the_server(server: Server, client: Client) -> None:
    events = await client.subscribe("a")
    session = server.broker.sessions[events.id]
    assert (session.door, list(session.subscriptions)) == ("sidecar", ["a"])
    assert server.broker.counters.connections == 1


async def test_a_heartbeat_comes_when_nothing_else_does(start: Start) -> None:
    server = await start(sidecar=SidecarSettings(port=0, heartbeat_s=0.1))
    async with Client(server) as client:
        events = await client.subscribe("a")
        for kind, event in await events.take(2):
            assert kind == "heartbeat"
            assert abs(event.heartbeat.timestamp_ms - server._clock.wall_us() // 1_000) < 60_000


async def test_no_heartbeat_comes_while_messages_do(start: Start) -> None:
    server = await start(sidecar=SidecarSettings(port=0, heartbeat_s=2.0))
    async with Client(server) as client:
        events = await client.subscribe("a")
        for number in range(25):
            await client.publish("a", b"%d" % number)
            await asyncio.sleep(0.1)
        assert await events.payloads(25) == [b"%d" % number for number in range(25)]


async def test_unsubscribing_ends_the_stream_behind_all_that_was_sent(server: Server, client: Client) -> None:
    events = await client.subscribe("a")
    await client.publish("a", b"last")
    answer = await client.unsubscribe(events.id)
    assert (answer.success, answer.error_message, answer.pause_ttl_ms) == (True, "", 0)
    assert await events.payloads(1) == [b"last"]
    assert await events.end() == (OK, "")
    await until(lambda: not server.broker.sessions, "a session is still there")
    assert len(server.broker.paused) == 0
    assert (await client.publish("a")).subscriber_count == 0


async def test_an_unknown_subscription_is_not_found_and_that_is_no_error(client: Client) -> None:
    for pause in (True, False):
        answer = await client.unsubscribe("sub-0-never", pause=pause)
        assert (answer.success, answer.error_message) == (False, "Subscription not found")


async def test_a_client_that_cancels_leaves_no_session_behind(server: Server, client: Client) -> None:
    events = await client.subscribe("a")
    events.call.cancel()
    await until(lambda: not server.broker.sessions, "a session is still there")
    assert (await client.publish("a")).subscriber_count == 0


async def test_a_client_whose_connection_is_gone_leaves_no_session_behind(server: Server) -> None:
    async with Client(server) as client:
        await client.subscribe("a")
        assert len(server.broker.sessions) == 1
    await until(lambda: not server.broker.sessions, "a session is still there")
    assert len(server.broker.paused) == 1


async def test_a_stream_ends_at_its_deadline(server: Server, client: Client) -> None:
    events = client.ask(nexusd.SubscribeRequest(topics=["a"]), timeout=1.0)
    await events.begin()
    code, _ = await events.end()
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    await until(lambda: not server.broker.sessions, "a session is still there")


async def test_a_server_that_stops_says_so(start: Start) -> None:
    server = await start()
    async with Client(server) as client:
        events = await client.subscribe("a")
        await client.publish("a", b"1")
        stopping = asyncio.ensure_future(start.stop(server))
        assert await events.payloads(1) == [b"1"]
        code, text = await events.end()
        assert (code, text.partition(":")[0]) == (grpc.StatusCode.UNAVAILABLE, "shutting-down")
        await stopping


async def test_streams_come_and_go_while_others_publish(server: Server, client: Client, scale: int) -> None:
    steady = await client.subscribe("a")
    count = 50 * scale

    async def publish() -> None:
        for _ in range(count):
            await client.publish("a")

    async def churn() -> None:
        for _ in range(count):
            events = await client.subscribe("a")
            events.call.cancel()

    await asyncio.gather(publish(), publish(), publish(), churn())
    messages = await steady.messages(3 * count)
    assert [message.sequence_number for message in messages] == list(range(1, 3 * count + 1))
    await until(lambda: len(server.broker.sessions) == 1, "there is not exactly one session")
    assert len(server.broker.paused) == count


async def test_what_waits_for_who_unsubscribes_for_good_is_recorded_as_lost(
    server: Server, client: Client
) -> None:
    events = await client.subscribe("a")
    stream_of(server, events.id).pause_writing()
    await client.publish("a")
    await client.unsubscribe(events.id)
    await until(lambda: not server.broker.sessions, "a session is still there")
    (row,) = server.broker.ledger.rows(client_id=events.id)
    assert (row.topic, row.first, row.last) == ("a", 1, 1)


async def test_a_stream_that_is_over_leaves_nothing_in_memory(server: Server, client: Client) -> None:
    streams = [await client.subscribe("a") for _ in range(3)]
    ids = {events.id for events in streams}
    await client.unsubscribe(streams[0].id, pause=True)
    await client.unsubscribe(streams[1].id)
    streams[2].call.cancel()
    await until(lambda: not server.broker.sessions, "a session is still there")

    def is_left() -> bool:
        gc.collect()
        kept = [each for each in gc.get_objects() if isinstance(each, Session)]
        return any(session.client_id in ids for session in kept)

    await until(lambda: not is_left(), "the session is still there")
