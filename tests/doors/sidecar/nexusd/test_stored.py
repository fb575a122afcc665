"""With a data directory: what was answered is safe, and subscriptions outlive the server."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from penstock.app import Server
from penstock.core.settings import RingSettings
from penstock.doors.sidecar.settings import SidecarSettings
from penstock.errors import StorageUnavailable
from penstock.wire.sidecar.messages import nexusd
from tests.doors.serving import EVERYTHING, Start
from tests.doors.sidecar.calling import Client, refusal, sequences
from tests.doors.sidecar.serving import MovableClock
from tests.support.waiting import until


class Home:
    """A data directory, and one server after another in it."""

    def __init__(self, start: Start, folder: Path) -> None:
        self._start = start
        self._folder = folder

    async def open(self, **settings: Any) -> Server:
        return await self._start(data_dir=str(self._folder), log=EVERYTHING, **settings)

    async def close(self, server: Server) -> None:
        await self._start.stop(server)


async def test_a_paused_subscription_outlives_the_server(start: Start, tmp_path: Path) -> None:
    home = Home(start, tmp_path)
    server = await home.open()
    async with Client(server) as client:
        events = await client.subscribe("a", "b/#", max_buffer_size=7)
        await client.publish("a", b"1")
        await events.payloads(1)
        await client.unsubscribe(events.id, pause=True)
        await client.publish("a", b"2")
        await client.publish("b/1", b"3", content_type="text/plain")
    await home.close(server)
    server = await home.open()
    async with Client(server) as client:
        again, info = await client.resume(events.id)
        assert (list(info.topics), info.gap_detected) == (["a", "b/#"], False)
        messages = await again.messages(2, "replay_message")
        assert [message.payload for message in messages] == [b"2", b"3"]
        assert messages[1].content_type == "text/plain"
        await again.take(2)
        await client.publish("a", b"4")
        assert sequences(await again.messages(1)) == [3]
        assert server.broker.sessions[events.id].outbox_messages == 7


async def test_a_stream_that_ended_with_the_server_goes_on_with_the_next(
    start: Start, tmp_path: Path
) -> None:
    home = Home(start, tmp_path)
    server = await home.open()
    async with Client(server) as client:
        events = await client.subscribe("a")
        await client.publish("a", b"1")
        (seen,) = await events.messages(1)
        stopping = asyncio.ensure_future(home.close(server))
        assert (await events.end())[0] is grpc.StatusCode.UNAVAILABLE
        await stopping
    server = await home.open()
    async with Client(server) as client:
        await client.publish("a", b"2")
        again, info = await client.resume(
            events.id, last_sequence_per_topic={"a": 1}, last_message_id=seen.message_id
        )
        assert not info.gap_detected
        assert sequences(await again.messages(1, "replay_message")) == [2]


async def test_the_past_is_read_from_the_log_where_the_ring_ends(start: Start, tmp_path: Path) -> None:
    server = await Home(start, tmp_path).open(ring=RingSettings(messages=3))
    async with Client(server) as client:
        events = await client.subscribe("a")
        await client.unsubscribe(events.id, pause=True)
        for number in range(1, 11):
            await client.publish("a", b"%d" % number)
        again, info = await client.resume(events.id, last_sequence_per_topic={"a": 5})
        assert (info.gap_detected, info.missed_message_count) == (False, 0)
        assert sequences(await again.messages(5, "replay_message")) == [6, 7, 8, 9, 10]


async def test_no_message_is_lost_or_doubled_at_the_seam(start: Start, tmp_path: Path, scale: int) -> None:
    server = await Home(start, tmp_path).open(ring=RingSettings(messages=3))
    count = 300 * scale
    async with Client(server) as client:
        events = await client.subscribe("a")
        await client.unsubscribe(events.id, pause=True)

        async def publish() -> None:
            for _ in range(count // 10):
                await asyncio.gather(*(client.publish("a", bytes(100)) for _ in range(10)))

        publishing = asyncio.ensure_future(publish())
        last, first_live = 0, 0
        while last < count:
            again, info = await client.resume(events.id, last_sequence_per_topic={"a": last})
            assert not info.gap_detected
            for _ in range(37):
                if last == count:
                    break
                event = await again.next()
                kind = event.WhichOneof("event") or ""
                if kind == "replay_complete":
                    continue
                message = getattr(event, kind)
                assert message.sequence_number == last + 1
                last += 1
                first_live += kind == "message"
            again.call.cancel()
        await publishing
        assert first_live


async def test_what_is_left_of_a_pause_goes_on_while_the_server_is_down(start: Start, tmp_path: Path) -> None:
    home, clock = Home(start, tmp_path), MovableClock()
    server = await home.open(clock=clock)
    async with Client(server) as client:
        events = await client.subscribe("a")
        await client.unsubscribe(events.id, pause=True)
    await home.close(server)
    clock.advance(301)
    server = await home.open(clock=clock)
    async with Client(server) as client:
        request = nexusd.ResumeSubscribeRequest(subscription_id=events.id)
        assert (await client.ask(request).end())[0] is grpc.StatusCode.NOT_FOUND


async def test_an_unsubscribed_stream_is_forgotten_for_good(start: Start, tmp_path: Path) -> None:
    home = Home(start, tmp_path)
    server = await home.open()
    async with Client(server) as client:
        events = await client.subscribe("a")
        await client.unsubscribe(events.id)
        await events.end()
    await home.close(server)
    server = await home.open()
    assert len(server.broker.paused) == 0


async def test_without_a_data_directory_a_restart_forgets_everything(start: Start) -> None:
    server = await start()
    async with Client(server) as client:
        events = await client.subscribe("a")
        await client.unsubscribe(events.id, pause=True)
    await start.stop(server)
    server = await start()
    async with Client(server) as client:
        request = nexusd.ResumeSubscribeRequest(subscription_id=events.id)
        assert (await client.ask(request).end())[0] is grpc.StatusCode.NOT_FOUND


async def test_an_answer_says_that_the_message_is_stored(start: Start, tmp_path: Path) -> None:
    home = Home(start, tmp_path)
    server = await home.open()
    async with Client(server) as client:
        await client.publish("a", b"1")
        assert server.broker.log.last_offset >= server.broker.history.head
    await home.close(server)


async def test_while_nothing_can_be_stored_nothing_is_taken(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await Home(start, tmp_path).open()
    async with Client(server) as client:
        await client.publish("a")
        with monkeypatch.context() as failing:
            failing.setattr(type(server.broker.log), "failure", StorageUnavailable("the disk is full"))
            code, text = await refusal(client.publish("a"))
            assert (code, text.partition(":")[0]) == (grpc.StatusCode.UNAVAILABLE, "storage-unavailable")
        assert (await client.publish("a")).success


@pytest.mark.parametrize("method", ["subscribe", "resume"])
async def test_a_stream_that_could_not_be_stored_does_not_begin(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    server = await Home(start, tmp_path).open()
    async with Client(server) as client:
        events = await client.subscribe("a")
        await client.unsubscribe(events.id, pause=True)
        request = nexusd.ResumeSubscribeRequest(subscription_id=events.id)
        with monkeypatch.context() as failing:
            failing.setattr(server.broker.paused, "when_stored", lambda settle: settle(OSError("no room")))
            asked = request if method == "resume" else nexusd.SubscribeRequest(topics=["a"])
            assert (await client.ask(asked).end())[0] is grpc.StatusCode.UNAVAILABLE
        await until(lambda: not server.broker.sessions, "a session is still there")
        assert list(server.broker.paused._resting) == [events.id]
        assert (await client.resume(events.id))[0].id == events.id


async def test_a_sequence_that_was_lost_in_a_crash_hides_nothing(start: Start, tmp_path: Path) -> None:
    home = Home(start, tmp_path)
    server = await home.open()
    async with Client(server) as client:
        events = await client.subscribe("a", "b")
        for topic in ("a", "b"):
            await client.publish(topic, b"1")
        await events.payloads(2)
        await client.unsubscribe(events.id, pause=True)
        await client.publish("b", b"unseen")
    await home.close(server)
    server = await home.open()
    # As if the server had sent two messages more of the one topic before it was killed.
    told = {"a": 3, "b": 1}
    async with Client(server) as client:
        again, info = await client.resume(events.id, last_sequence_per_topic=told)
        assert (info.gap_detected, info.missed_message_count) == (True, 2)
        for payload in (b"2", b"3"):
            await client.publish("a", payload)
        for _ in range(2):  # and is cut each time before it has read any of them
            again.call.cancel()
            await until(lambda: len(server.broker.paused), "no session was paused")
            again, _ = await client.resume(events.id, last_sequence_per_topic=told)
        assert await again.payloads(3, "replay_message") == [b"unseen", b"2", b"3"]
        assert [event.replay_complete.replayed_count for _, event in await again.take(2)] == [2, 1]


async def test_a_crash_hides_nothing_after_a_further_one(start: Start, tmp_path: Path) -> None:
    home = Home(start, tmp_path)
    server = await home.open()
    async with Client(server) as client:
        events = await client.subscribe("a")
        await client.publish("a", b"1")
        await client.unsubscribe(events.id, pause=True)
    for payload in (b"2", b"3"):
        await home.close(server)
        server = await home.open()
        async with Client(server) as client:
            again, _ = await client.resume(events.id, last_sequence_per_topic={"a": 3})
            await client.publish("a", payload)
            await client.unsubscribe(events.id, pause=True)
    async with Client(server) as client:
        again, _ = await client.resume(events.id, last_sequence_per_topic={"a": 3})
        assert await again.payloads(2, "replay_message") == [b"2", b"3"]


async def test_two_crashes_and_a_cut_hide_nothing(start: Start, tmp_path: Path) -> None:
    home = Home(start, tmp_path)
    server = await home.open()
    async with Client(server) as client:
        events = await client.subscribe("a")
        await client.publish("a", b"1")
        await client.unsubscribe(events.id, pause=True)
    await home.close(server)
    server = await home.open()
    async with Client(server) as client:
        await client.publish("a", b"2")
    await home.close(server)
    server = await home.open()
    lost = {"a": 2}  # of the first epoch, and never stored: another message has that number now
    for _ in range(2):
        async with Client(server) as client:
            again, _ = await client.resume(events.id, last_sequence_per_topic=lost)
            assert await again.payloads(1, "replay_message") == [b"2"]


async def test_ids_and_sources_of_messages_stay_the_same_after_a_restart(
    start: Start, tmp_path: Path
) -> None:
    home = Home(start, tmp_path)
    server = await home.open()
    source = server.node_id
    async with Client(server) as client:
        events = await client.subscribe("a")
        await client.unsubscribe(events.id, pause=True)
        answer = await client.publish("a")
    await home.close(server)
    server = await home.open()
    async with Client(server) as client:
        again, _ = await client.resume(events.id)
        (message,) = await again.messages(1, "replay_message")
        assert (message.message_id, message.source_node_id) == (answer.message_id, source)
    await until(lambda: not server.broker.sessions, "a session is still there")


async def test_what_was_seen_after_a_restart_does_not_come_again(start: Start, tmp_path: Path) -> None:
    home = Home(start, tmp_path)
    server = await home.open()
    async with Client(server) as client:
        events = await client.subscribe("a")
        await client.publish("a", b"1")
        await client.unsubscribe(events.id, pause=True)
    await home.close(server)
    server = await home.open()
    async with Client(server) as client:
        again, _ = await client.resume(events.id, last_sequence_per_topic={"a": 1})
        await again.take(1)
        await client.publish("a", b"2")
        assert sequences(await again.messages(1)) == [2]
        stopping = asyncio.ensure_future(home.close(server))
        await again.end()
        await stopping
    server = await home.open()
    async with Client(server) as client:
        await client.publish("a", b"3")
        again, info = await client.resume(events.id, last_sequence_per_topic={"a": 2})
        assert not info.gap_detected
        assert sequences(await again.messages(1, "replay_message")) == [3]


async def test_wildcards_that_were_forbidden_meanwhile_are_not_resumed(start: Start, tmp_path: Path) -> None:
    home = Home(start, tmp_path)
    server = await home.open()
    async with Client(server) as client:
        events = await client.subscribe("a/#")
        await client.unsubscribe(events.id, pause=True)
    await home.close(server)
    server = await home.open(sidecar=SidecarSettings(port=0, wildcards=False))
    async with Client(server) as client:
        request = nexusd.ResumeSubscribeRequest(subscription_id=events.id)
        assert (await client.ask(request).end())[0] is grpc.StatusCode.INVALID_ARGUMENT
