"""GetTopics and GetPeers: what there is."""

import pytest

from penstock.app import Server
from penstock.doors.sidecar.nexusd import topics
from penstock.wire.sidecar.messages import nexusd
from tests.doors.serving import mqtt_of
from tests.doors.sidecar.calling import TIMEOUT_S, Client


async def test_topics_are_listed_with_their_subscribers(server: Server, client: Client) -> None:
    await client.subscribe("quiet", "a/#")
    async with mqtt_of(server) as mqtt:
        await mqtt.subscribe("a/1")
        await client.publish("a/1")
        await client.publish("nobody")
        assert await client.topics() == {"quiet": 1, "a/1": 2, "nobody": 0}


async def test_counts_are_left_out_unless_they_are_asked_for(client: Client) -> None:
    await client.subscribe("a")
    assert await client.topics(include_counts=False) == {"a": 0}


async def test_topics_of_the_server_itself_are_not_listed(server: Server, client: Client) -> None:
    assert any(name.startswith("$SYS/") for name in server.broker.topics)
    assert await client.topics() == {}


async def test_an_answer_has_as_many_topics_as_fit(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "RESPONSE_BYTES", 100)
    monkeypatch.setattr(topics, "NAMES_A_SLICE", 3)
    for number in range(20):
        await client.publish(f"topic/{number:04}")
    await client.subscribe("z")
    listed = await client.topics()
    assert 2 <= len(listed) <= 6
    assert listed["z"] == 1


async def test_one_server_has_no_peers(client: Client) -> None:
    answer = await client.stub.get_peers(nexusd.GetPeersRequest(include_state=True), timeout=TIMEOUT_S)
    assert list(answer.peers) == []
