"""One topic space behind all doors: a message has one sequence and one id, and cursors fit anywhere."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.doors import TIMEOUT_S, Doors
from tests.support.servers import RunningServer, StartServer

DOORS = ("socket", "events", "own")
"""Doors that give and take cursors."""


@pytest.fixture(scope="module", params=["memory", "disk"])
def house(
    request: pytest.FixtureRequest, start_server: StartServer, tmp_path_factory: pytest.TempPathFactory
) -> RunningServer:
    """A server with all doors open, on a topic space that lasts or does not."""
    folder: Path = tmp_path_factory.mktemp("house")
    log = {"data_dir": str(folder / "data")} if request.param == "disk" else {}
    return start_server({"http": {"port": 0}, "web": {"explicit_topics": False}, **log})


@pytest.fixture
async def doors(house: RunningServer) -> AsyncIterator[Doors]:
    async with asyncio.timeout(TIMEOUT_S), Doors(house) as doors:
        yield doors


async def test_message_of_any_door_is_the_same_at_every_other(doors: Doors) -> None:
    topic = "every/door"
    await doors.mqtt.subscribe("every/#", qos=1)
    following = [
        await doors.follow_socket("every/#"),
        await doors.follow_events("every/#"),
        await doors.follow_sidecar("every/+"),
        await doors.follow_own(topic),
    ]
    payloads = await doors.publish_everywhere(topic)
    told = [await each.take(len(payloads)) for each in following]
    assert [(each.topic, each.payload, each.sequence) for each in told[0]] == [
        (topic, payload, number) for number, payload in enumerate(payloads, 1)
    ]
    for others in told[1:]:
        assert [each[:3] for each in others] == [each[:3] for each in told[0]]
    ids = [each.message_id for each in told[0]]
    assert ids == [each.message_id for each in told[1]] == [each.message_id for each in told[2]]
    assert len(set(ids)) == len(ids)
    assert [each.message_id for each in told[3] if each.message_id is not None] == [ids[3], "five"]
    assert [each.cursor for each in told[0]] == [each.cursor for each in told[1]]
    heard = [await doors.mqtt.messages.receive(TIMEOUT_S) for _ in payloads]
    assert [(message.topic, message.payload) for message in heard] == [
        (topic, payload) for payload in payloads
    ]


@pytest.mark.parametrize("to", DOORS)
@pytest.mark.parametrize("of", DOORS)
async def test_cursor_of_one_door_is_a_place_at_another(doors: Doors, of: str, to: str) -> None:
    topic = f"cursor/{of}/{to}"
    first = await getattr(doors, f"follow_{of}")(topic)
    payloads = await doors.publish_everywhere(topic)
    told = await first.take(len(payloads))
    second = await getattr(doors, f"follow_{to}")(topic, told[2].cursor)
    again = await second.take(len(payloads) - 3)
    assert [each[:3] for each in again] == [each[:3] for each in told[3:]]
    await doors.mqtt.publish(topic, b"6", qos=1)
    assert [(each.payload, each.sequence) for each in await second.take(1)] == [(b"6", 7)]


async def test_every_message_counts_for_the_door_it_came_in_at_and_for_each_it_went_out_at(
    doors: Doors,
) -> None:
    topic = "count/here"
    before = await doors.figures()
    await doors.mqtt.subscribe("count/#", qos=1)
    following = [
        await doors.follow_socket("count/#"),
        await doors.follow_events("count/#"),
        await doors.follow_sidecar("count/+"),
        await doors.follow_own(topic),
    ]
    payloads = await doors.publish_everywhere(topic)
    for each in following:
        await each.take(len(payloads))
    for _ in payloads:
        await doors.mqtt.messages.receive(TIMEOUT_S)
    answer = await doors.http.get("/api/v1/streams/receive", params={"streamId": topic, "timeoutSeconds": 9})
    assert answer.status_code == 200
    after = await doors.figures()
    gained = {
        door: {name: count - before["doors"][door][name] for name, count in counts.items()}
        for door, counts in after["doors"].items()
    }
    assert gained == {
        "mqtt": {"published": 1, "delivered": 6},
        "sidecar": {"published": 2, "delivered": 12},
        "web": {"published": 2, "delivered": 12},
        "streams": {"published": 1, "delivered": 1},
    }
    for name in ("published", "delivered"):
        told = sum(door[name] for door in after["doors"].values())
        assert told == after["global"][f"total_{name}"]
