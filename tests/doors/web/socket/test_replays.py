"""Subscriptions that begin in the past: first the replay, then what is live, nothing twice or left out."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.app import Server
from penstock.core.settings import RingSettings
from tests.doors.serving import EVERYTHING, Start
from tests.doors.web.socket.talking import Said, Talker


@pytest.fixture(params=["memory", "disk"])
async def kept(request: pytest.FixtureRequest, start: Start, tmp_path: Path) -> Server:
    """A server that keeps the last messages in memory, or all of them on disk."""
    if request.param == "memory":
        return await start()
    return await start(data_dir=str(tmp_path / "data"), log=EVERYTHING)


@pytest.fixture
def topic(kept: Server, name: str) -> str:
    kept.broker.declare_topic(name)
    return name


async def heard_until_complete(talker: Talker) -> tuple[list[Said], Said]:
    """What comes before the end of a replay, and that end."""
    events = []
    while (said := await talker.read())["type"] == "event":
        events.append(said)
    return events, said


async def test_the_last_ones_come_between_the_ack_and_what_is_live(kept: Server, topic: str) -> None:
    """Stress scenario 3: 100 publishes, the last 20 of them, then 10 live ones."""
    async with Talker(kept) as publisher, Talker(kept) as reader:
        await publisher.publish(topic, *range(100))
        await reader.send({"type": "subscribe", "topic": topic, "last_n": 20, "request_id": "1"})
        assert (await reader.read())["message"] == f"Subscribed to topic '{topic}'"
        events, end = await heard_until_complete(reader)
        assert [event["data"] for event in events] == list(range(80, 100))
        assert (end["type"], end["message"], end["details"]["topic"]) == ("info", "replay_complete", topic)
        assert end["details"]["statement"]["served"] == 20
        await publisher.publish(topic, *range(100, 110))
        assert await reader.data(10) == list(range(100, 110))


async def test_nothing_is_doubled_or_left_out_while_others_publish(kept: Server, topic: str) -> None:
    async with Talker(kept) as publisher, Talker(kept) as reader:
        sending = asyncio.create_task(publisher.publish(topic, *range(400)))
        for _ in range(20):
            answer = await reader.ask("subscribe", topic=topic, last_n=1000)
            assert answer["type"] == "ack"
            assert (await reader.answer())["message"] == "replay_complete"
            await reader.ask("unsubscribe", topic=topic)
            reader.forget_events()
        await reader.send({"type": "subscribe", "topic": topic, "last_n": 1})
        first = await reader.event()
        assert await reader.data(399 - first["data"]) == list(range(first["data"] + 1, 400))
        await sending


@pytest.mark.parametrize("last_n", [0, None])
async def test_without_a_past_there_is_no_statement(kept: Server, topic: str, last_n: int | None) -> None:
    async with Talker(kept) as talker:
        await talker.publish(topic, 1)
        await talker.subscribe(topic, last_n=last_n)
        assert await talker.ask("ping") == {"type": "pong"}
        await talker.publish(topic, 2)
        assert await talker.data(1) == [2]


async def test_a_replay_of_nothing_ends_with_a_statement_too(kept: Server, topic: str) -> None:
    async with Talker(kept) as talker:
        await talker.subscribe(topic, last_n=5)
        assert (await talker.answer())["details"]["statement"]["served"] == 0


async def test_who_was_away_goes_on_after_its_last_event(kept: Server, topic: str) -> None:
    async with Talker(kept) as publisher:
        async with Talker(kept) as reader:
            await reader.subscribe(topic)
            await publisher.publish(topic, 1, 2)
            seen = [await reader.event() for _ in range(2)]
        await publisher.publish(topic, 3, 4)
        async with Talker(kept) as reader:
            await reader.subscribe(topic, after=seen[0]["cursor"])
            events = [await reader.event() for _ in range(3)]
            assert [event["data"] for event in events] == [2, 3, 4]
            assert events[0] == seen[1]  # with the same id, sequence and cursor
            end = await reader.answer()
            assert end["details"]["statement"]["is_complete"]
            assert end["details"]["statement"]["next"] == events[-1]["cursor"]


async def test_who_had_no_event_yet_goes_on_after_its_ack(kept: Server, topic: str) -> None:
    async with Talker(kept) as publisher:
        await publisher.publish(topic, 1)
        async with Talker(kept) as reader:
            began = (await reader.ask("subscribe", topic=topic))["cursor"]
        await publisher.publish(topic, 2)
        async with Talker(kept) as reader:
            await reader.send({"type": "subscribe", "topic": topic, "after": began})
            assert (await reader.read())["cursor"] == began
            assert await reader.data(1) == [2]


async def test_a_filter_has_a_past_too(kept: Server, name: str) -> None:
    for number in range(6):
        kept.broker.publish_server(f"{name}/{number % 2}", str(number).encode())
    async with Talker(kept) as talker:
        await talker.ask("subscribe", filter=f"{name}/+", last_n=4)
        assert await talker.data(4) == [2, 3, 4, 5]
        assert (await talker.answer())["details"]["filter"] == f"{name}/+"


async def test_what_is_gone_is_in_the_statement(start: Start, name: str) -> None:
    server = await start(ring=RingSettings(messages=2))
    began = server.broker.history.cursor().encode()
    for number in range(5):
        server.broker.publish_server(name, str(number).encode())
    async with Talker(server) as talker:
        await talker.subscribe(name, after=began)
        assert await talker.data(2) == [3, 4]
        statement = (await talker.answer())["details"]["statement"]
        (missing,) = statement["missing"]
        assert (missing["topic"], missing["last"], missing["reason"]) == (name, 3, "evicted")


@pytest.mark.parametrize("after", ["", "nonsense", "AQ"])
async def test_a_cursor_that_is_none_is_refused(kept: Server, topic: str, after: str) -> None:
    async with Talker(kept) as talker:
        answer = await talker.ask("subscribe", topic=topic, after=after)
        assert (answer["code"], answer["details"]["code"]) == ("SUBSCRIBE_FAILED", "invalid-cursor")
        assert (await talker.ask("unsubscribe", topic=topic))["code"] == "NOT_SUBSCRIBED"


async def test_a_shared_filter_has_no_past(kept: Server) -> None:
    async with Talker(kept) as talker:
        answer = await talker.ask("subscribe", filter="$share/g/a", last_n=1)
        assert (answer["code"], answer["details"]["code"]) == ("SUBSCRIBE_FAILED", "invalid-request")


async def test_the_events_of_a_cursor_outlive_the_server(start: Start, tmp_path: Path, name: str) -> None:
    settings: dict[str, Any] = {"data_dir": str(tmp_path / "data"), "log": EVERYTHING}
    server = await start(**settings)
    server.broker.declare_topic(name)
    async with Talker(server) as talker:
        await talker.subscribe(name)
        await talker.publish(name, "before", "then")
        seen = [await talker.event() for _ in range(2)]
    await start.stop(server)
    server = await start(**settings)
    async with Talker(server) as talker:
        await talker.publish(name, "after")
        await talker.subscribe(name, after=seen[0]["cursor"])
        events = [await talker.event() for _ in range(2)]
        assert [event["data"] for event in events] == ["then", "after"]
        assert events[0] == seen[1]
        assert events[1]["message_id"] != seen[1]["message_id"]
