"""Pause and ResumeSubscribe: nothing twice, nothing left out, and what cannot be had is counted."""

import grpc
import pytest

from penstock.app import Server
from penstock.core.settings import RingSettings, SessionSettings
from penstock.doors.sidecar.nexusd import client_progress
from penstock.doors.sidecar.settings import SidecarSettings
from penstock.doors.sidecar.transport.method import EndCause
from penstock.wire.sidecar.messages import nexusd
from tests.doors.serving import Start
from tests.doors.sidecar.calling import Client, Events, sequences
from tests.doors.sidecar.serving import MovableClock
from tests.doors.sidecar.stalling import stream_of
from tests.support.waiting import until

NONE = nexusd.GAP_RECOVERY_NONE
RETAINED_ONLY = nexusd.GAP_RECOVERY_RETAINED_ONLY


async def publish(client: Client, topic: str, *numbers: int) -> None:
    for number in numbers:
        await client.publish(topic, b"%d" % number)


async def paused(client: Client, *topics: str) -> str:
    """The id of a subscription that is paused."""
    events = await client.subscribe(*topics)
    assert (await client.unsubscribe(events.id, pause=True)).success
    return events.id


async def replayed(events: Events) -> tuple[str, int, int]:
    """The next event, which says that the past of a topic is over."""
    ((kind, event),) = await events.take(1)
    assert kind == "replay_complete"
    told = event.replay_complete
    return told.topic, told.replayed_count, told.latest_sequence


async def not_found(client: Client, id: str) -> tuple[grpc.StatusCode, str]:
    return await client.ask(nexusd.ResumeSubscribeRequest(subscription_id=id)).end()


NOT_FOUND = (grpc.StatusCode.NOT_FOUND, "No paused subscription found")


async def test_a_pause_ends_the_stream_and_tells_how_long_it_lasts(start: Start) -> None:
    server = await start(sidecar=SidecarSettings(port=0, paused_ttl_ms=12_345))
    async with Client(server) as client:
        events = await client.subscribe("a")
        answer = await client.unsubscribe(events.id, pause=True)
        assert (answer.success, answer.pause_ttl_ms) == (True, 12_345)
        assert await events.end() == (grpc.StatusCode.OK, "")
        await until(lambda: not server.broker.sessions, "a session is still there")
        assert (await client.publish("a")).subscriber_count == 0


async def test_what_was_missed_is_replayed_before_what_is_live(client: Client) -> None:
    events = await client.subscribe("a")
    await publish(client, "a", 1, 2)
    await events.payloads(2)
    await client.unsubscribe(events.id, pause=True)
    await publish(client, "a", 3, 4)
    again, info = await client.resume(events.id)
    assert again.id == events.id
    assert (info.replay_started, info.gap_detected, info.missed_message_count) == (True, False, 0)
    assert list(info.topics) == ["a"]
    messages = await again.messages(2, "replay_message")
    assert (sequences(messages), [message.payload for message in messages]) == ([3, 4], [b"3", b"4"])
    assert await replayed(again) == ("a", 2, 4)
    await publish(client, "a", 5)
    assert sequences(await again.messages(1)) == [5]


async def test_replayed_messages_are_what_they_were(client: Client) -> None:
    witness = await client.subscribe("a")
    id = await paused(client, "a")
    await client.publish("a", b"x", content_type="text/plain", correlation_id="7")
    again, _ = await client.resume(id)
    assert await again.messages(1, "replay_message") == await witness.messages(1)


async def test_the_last_sequence_of_the_client_counts_more_than_the_pause(client: Client) -> None:
    events = await client.subscribe("a")
    await publish(client, "a", 1, 2, 3)
    await events.payloads(3)
    await client.unsubscribe(events.id, pause=True)
    again, info = await client.resume(events.id, last_sequence_per_topic={"a": 1})
    assert not info.gap_detected
    assert sequences(await again.messages(2, "replay_message")) == [2, 3]


@pytest.mark.parametrize("last", [1, 2, 2**62])
async def test_a_last_sequence_at_the_end_of_the_topic_or_behind_replays_nothing(
    server: Server, client: Client, last: int
) -> None:
    events = await client.subscribe("a")
    await publish(client, "a", 1)
    await events.payloads(1)
    events.call.cancel()
    await until(lambda: len(server.broker.paused), "no session was paused")
    again, info = await client.resume(events.id, last_sequence_per_topic={"a": last})
    assert not info.gap_detected
    assert await replayed(again) == ("a", 0, 1)


async def test_the_last_message_id_tells_as_much(client: Client) -> None:
    events = await client.subscribe("a", "b")
    await publish(client, "a", 1)
    await publish(client, "b", 2)
    await publish(client, "a", 3)
    first, *_ = await events.messages(3)
    await client.unsubscribe(events.id, pause=True)
    again, _ = await client.resume(events.id, last_message_id=first.message_id)
    assert await again.payloads(2, "replay_message") == [b"2", b"3"]


async def test_what_the_ring_has_lost_is_counted(start: Start) -> None:
    server = await start(ring=RingSettings(messages=3))
    async with Client(server) as client:
        id = await paused(client, "a")
        await publish(client, "a", *range(1, 11))
        again, info = await client.resume(id, last_sequence_per_topic={"a": 5})
        assert (info.gap_detected, info.missed_message_count) == (True, 2)
        assert sequences(await again.messages(3, "replay_message")) == [8, 9, 10]
        assert await replayed(again) == ("a", 3, 10)


@pytest.mark.parametrize("is_paused", [True, False])
async def test_what_is_missing_is_counted_for_a_client_that_names_nothing(
    start: Start, is_paused: bool
) -> None:
    server = await start(ring=RingSettings(messages=5))
    async with Client(server) as client:
        events = await client.subscribe("a", "b")
        await publish(client, "a", 1, 2, 3)
        await events.payloads(3)
        if is_paused:
            await client.unsubscribe(events.id, pause=True)
        else:
            events.call.cancel()
        await until(lambda: not server.broker.sessions, "a session is still there")
        await publish(client, "a", *range(4, 14))
        await publish(client, "b", *range(1, 8))
        again, info = await client.resume(events.id)
        assert (info.gap_detected, info.missed_message_count) == (True, 5 + 2)
        assert sequences(await again.messages(10, "replay_message")) == [*range(9, 14), *range(3, 8)]


async def test_what_is_missing_of_a_wildcard_is_not_known(start: Start) -> None:
    server = await start(ring=RingSettings(messages=5))
    async with Client(server) as client:
        id = await paused(client, "a", "b/#")
        await publish(client, "b/1", *range(7))
        _, info = await client.resume(id)
        assert (info.gap_detected, info.missed_message_count) == (True, -1)


async def test_topics_that_were_not_asked_for_say_nothing_of_others(server: Server, client: Client) -> None:
    events = await client.subscribe("a", "b/#")
    await publish(client, "a", 1)
    await events.payloads(1)
    events.call.cancel()
    await until(lambda: not server.broker.sessions, "a session is still there")
    await publish(client, "a", 2)
    again, _ = await client.resume(events.id, last_sequence_per_topic={"c": 7})
    assert await again.payloads(1, "replay_message") == [b"2"]


async def test_what_is_missing_of_several_topics_is_summed(start: Start) -> None:
    server = await start(ring=RingSettings(messages=3))
    async with Client(server) as client:
        id = await paused(client, "a", "b", "c")
        await publish(client, "a", *range(1, 11))
        await publish(client, "b", *range(1, 6))
        again, info = await client.resume(id, last_sequence_per_topic={"a": 5, "b": 1})
        assert (info.gap_detected, info.missed_message_count) == (True, 3)
        messages = await again.messages(6, "replay_message")
        assert [message.topic for message in messages] == ["a"] * 3 + ["b"] * 3
        told = [await replayed(again) for _ in range(3)]
        assert told == [("a", 3, 10), ("b", 3, 5), ("c", 0, 0)]


async def test_each_topic_goes_on_from_its_own_place_in_one_order(client: Client) -> None:
    events = await client.subscribe("a", "b")
    for number in range(1, 5):
        await publish(client, "a", number)
        await publish(client, "b", number)
    await events.payloads(8)
    await client.unsubscribe(events.id, pause=True)
    again, _ = await client.resume(events.id, last_sequence_per_topic={"a": 3, "b": 1})
    messages = await again.messages(4, "replay_message")
    assert [(message.topic, message.sequence_number) for message in messages] == [
        ("b", 2),
        ("b", 3),
        ("a", 4),
        ("b", 4),
    ]


async def test_a_wildcard_is_told_topic_by_topic(client: Client) -> None:
    id = await paused(client, "a/#", "b/#")
    await publish(client, "a/1", 1)
    await publish(client, "a/2", 1, 2)
    again, _ = await client.resume(id)
    await again.payloads(3, "replay_message")
    assert {await replayed(again) for _ in range(3)} == {("a/1", 1, 1), ("a/2", 2, 2), ("b/#", 0, 0)}


async def test_without_recovery_only_live_messages_come(client: Client) -> None:
    id = await paused(client, "a")
    await client.publish("a", b"missed", retain=True)
    again, info = await client.resume(id, NONE)
    assert not info.replay_started
    await client.publish("a", b"live")
    assert await again.payloads(1) == [b"live"]


async def test_retained_only_brings_the_true_retained_value(client: Client) -> None:
    id = await paused(client, "a", "b")
    await client.publish("a", b"kept", retain=True)
    await client.publish("a", b"newer")
    await client.publish("b", b"never kept")
    again, info = await client.resume(id, RETAINED_ONLY)
    assert not info.replay_started
    assert await again.payloads(1, "retained_message") == [b"kept"]
    await client.publish("a", b"live")
    assert await again.payloads(1) == [b"live"]


async def test_retained_values_come_behind_the_replay_if_they_are_asked_for(client: Client) -> None:
    id = await paused(client, "a")
    await client.publish("a", b"kept", retain=True)
    again, _ = await client.resume(id, receive_retained=True)
    assert await again.payloads(1, "replay_message") == [b"kept"]
    assert await replayed(again) == ("a", 1, 1)
    assert await again.payloads(1, "retained_message") == [b"kept"]
    await client.publish("a", b"live")
    assert await again.payloads(1) == [b"live"]


async def test_a_stream_that_was_cancelled_can_be_resumed(server: Server, client: Client) -> None:
    events = await client.subscribe("a")
    await publish(client, "a", 1)
    await events.payloads(1)
    events.call.cancel()
    await until(lambda: len(server.broker.paused), "no session was paused")
    await publish(client, "a", 2)
    again, _ = await client.resume(events.id)
    assert await again.payloads(1, "replay_message") == [b"2"]


async def test_what_waited_for_a_client_that_went_away_is_not_lost(server: Server, client: Client) -> None:
    events = await client.subscribe("a")
    stream_of(server, events.id).pause_writing()
    await publish(client, "a", 1, 2)
    events.call.cancel()
    await until(lambda: len(server.broker.paused), "no session was paused")
    again, info = await client.resume(events.id)
    assert not info.gap_detected
    assert await again.payloads(2, "replay_message") == [b"1", b"2"]
    assert list(server.broker.ledger.rows(client_id=events.id)) == []


async def test_of_topics_that_a_cut_client_does_not_name_it_has_seen_nothing(
    server: Server, client: Client
) -> None:
    events = await client.subscribe("a", "b")
    await publish(client, "a", 1)
    await publish(client, "b", 2)
    assert await events.payloads(1) == [b"1"]  # and the other is on its way when the client gives up
    events.call.cancel()
    await until(lambda: len(server.broker.paused), "no session was paused")
    again, _ = await client.resume(events.id, last_sequence_per_topic={"a": 1})
    assert await again.payloads(1, "replay_message") == [b"2"]


async def test_of_topics_that_are_not_named_after_a_pause_the_pause_counts(client: Client) -> None:
    events = await client.subscribe("a", "b")
    await publish(client, "a", 1)
    await publish(client, "b", 2)
    await events.payloads(2)
    await client.unsubscribe(events.id, pause=True)
    await publish(client, "b", 3)
    again, _ = await client.resume(events.id, last_sequence_per_topic={"a": 1})
    assert await again.payloads(1, "replay_message") == [b"3"]


async def test_a_live_stream_can_be_taken_over(server: Server, client: Client) -> None:
    events = await client.subscribe("a")
    await publish(client, "a", 1)
    await events.payloads(1)
    again, _ = await client.resume(events.id, last_sequence_per_topic={"a": 1})
    code, text = await events.end()
    assert (code, text) == (grpc.StatusCode.ABORTED, "conflict: resumed elsewhere")
    await replayed(again)
    answer = await client.publish("a", b"2")
    assert answer.subscriber_count == 1
    assert await again.payloads(1) == [b"2"]
    assert list(server.broker.sessions) == [events.id]


async def test_a_subscription_is_resumed_again_and_again(client: Client) -> None:
    id = await paused(client, "a")
    for number in range(1, 6):
        await publish(client, "a", number)
        again, _ = await client.resume(id)
        assert await again.payloads(1, "replay_message") == [b"%d" % number]
        await replayed(again)
        assert (await client.unsubscribe(id, pause=True)).success


async def test_a_subscription_that_was_given_up_cannot_be_resumed(client: Client) -> None:
    id = await paused(client, "a")
    assert (await client.unsubscribe(id)).success
    assert await not_found(client, id) == NOT_FOUND
    assert not (await client.unsubscribe(id)).success


async def test_a_pause_does_not_last_for_ever(start: Start) -> None:
    clock = MovableClock()
    server = await start(clock=clock, sidecar=SidecarSettings(port=0, paused_ttl_ms=60_000))
    async with Client(server) as client:
        early, late = await paused(client, "a"), await paused(client, "a")
        clock.advance(50)
        assert (await client.resume(early))[1].subscription_id == early
        clock.advance(11)
        assert await not_found(client, late) == NOT_FOUND
        server.broker.reap()
        assert len(server.broker.paused) == 0


async def test_only_so_many_are_kept(start: Start) -> None:
    server = await start(sidecar=SidecarSettings(port=0, max_paused=2))
    async with Client(server) as client:
        oldest, *others = [await paused(client, "a") for _ in range(3)]
        assert await not_found(client, oldest) == NOT_FOUND
        for id in others:
            await client.resume(id)


async def test_topics_that_are_given_have_to_be_those_of_the_subscription(client: Client) -> None:
    id = await paused(client, "a", "b")
    request = nexusd.ResumeSubscribeRequest(subscription_id=id, topics=["a", "c"])
    code, _ = await client.ask(request).end()
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    again, info = await client.resume(id, topics=["b", "a"])
    assert list(info.topics) == ["a", "b"]
    assert again.id == id


async def test_a_shared_group_has_no_past(client: Client) -> None:
    id = await paused(client, "$share/g/a")
    request = nexusd.ResumeSubscribeRequest(
        subscription_id=id, gap_recovery_mode=nexusd.GAP_RECOVERY_REPLAY_BUFFER
    )
    code, _ = await client.ask(request).end()
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    again, _ = await client.resume(id, NONE)
    await client.publish("a", b"1")
    assert await again.payloads(1) == [b"1"]


@pytest.mark.parametrize("id", ["", "sub-0-never", "x" * 10_000])
async def test_an_id_that_nobody_has_is_not_found(client: Client, id: str) -> None:
    assert await not_found(client, id) == NOT_FOUND


async def lose(server: Server, client: Client, id: str) -> None:
    """Let the connection of a stream break, as its transport tells it."""
    stream_of(server, id).ended(EndCause.LOST)
    await until(lambda: id not in server.broker.sessions, "the session is still there")


async def test_what_was_on_its_way_when_a_connection_broke_comes_again(
    server: Server, client: Client
) -> None:
    events = await client.subscribe("a")
    await publish(client, "a", 1)
    await lose(server, client, events.id)  # the client may have seen the message, and may not
    await publish(client, "a", 2)
    again, _ = await client.resume(events.id)
    assert await again.payloads(2, "replay_message") == [b"1", b"2"]


async def test_what_was_sent_long_before_a_connection_broke_does_not_come_again(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_progress, "NOTICED_S", 0.05)
    events = await client.subscribe("a")
    await publish(client, "a", 1)
    head = server.broker.history.head
    await until(
        lambda: stream_of(server, events.id)._received.position == head, "the position did not reach the head"
    )
    await lose(server, client, events.id)
    await publish(client, "a", 2)
    again, _ = await client.resume(events.id)
    assert await again.payloads(1, "replay_message") == [b"2"]


async def test_a_client_that_has_seen_nothing_yet_loses_nothing_however_often_it_is_cut(
    server: Server, client: Client
) -> None:
    events = await client.subscribe("a", "b")
    await publish(client, "a", 1)
    for _ in range(3):
        await lose(server, client, events.id)
        events, _ = await client.resume(events.id)
    await publish(client, "b", 2)
    await lose(server, client, events.id)
    again, _ = await client.resume(events.id, last_sequence_per_topic={"b": 1})
    assert await again.payloads(1, "replay_message") == [b"1"]


async def test_a_subscription_for_which_there_is_no_room_now_can_be_resumed_later(start: Start) -> None:
    server = await start(sessions=SessionSettings(max_sessions=1))
    async with Client(server) as client:
        id = await paused(client, "a")
        await until(lambda: not server.broker.sessions, "a session is still there")
        other = await client.subscribe("a")
        request = nexusd.ResumeSubscribeRequest(subscription_id=id)
        assert (await client.ask(request).end())[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        await client.unsubscribe(other.id)
        await until(lambda: not server.broker.sessions, "a session is still there")
        assert (await client.resume(id))[0].id == id


async def test_without_time_to_come_back_only_a_live_stream_can_be_taken_over(start: Start) -> None:
    server = await start(sidecar=SidecarSettings(port=0, paused_ttl_ms=0))
    async with Client(server) as client:
        events = await client.subscribe("a")
        again, _ = await client.resume(events.id)
        await client.unsubscribe(again.id, pause=True)
        assert await not_found(client, again.id) == NOT_FOUND


async def test_retained_values_come_without_a_replay_if_they_are_asked_for(client: Client) -> None:
    id = await paused(client, "a")
    await client.publish("a", b"kept", retain=True)
    again, _ = await client.resume(id, NONE, receive_retained=True)
    assert await again.payloads(1, "retained_message") == [b"kept"]
