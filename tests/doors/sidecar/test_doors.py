"""One topic space: the same message, sequence and id at every door."""

from typing import Any

import httpx
from paho.mqtt.packettypes import PacketTypes

from penstock.app import Server
from penstock.doors.web.settings import WebSettings
from tests.doors.serving import Start, client_of, mqtt_of, mqtt_properties
from tests.doors.sidecar.calling import Client
from tests.doors.web.socket.talking import Talker

OPEN = WebSettings(explicit_topics=False)


async def test_a_message_of_mqtt_arrives_here_with_the_sequence_and_id_of_every_door(start: Start) -> None:
    server = await start(web=OPEN)
    async with Client(server) as client, Talker(server) as talker, mqtt_of(server) as mqtt:
        events = await client.subscribe("a/b")
        await talker.send({"type": "subscribe", "topic": "a/b"})
        assert (await talker.read())["type"] == "ack"
        await mqtt.publish("a/b", b'"hi"', qos=1)
        (message,), event = await events.messages(1), await talker.read()
        assert message.payload == b'"hi"'
        assert (message.message_id, message.sequence_number) == (event["message_id"], event["sequence"])


async def test_properties_cross_the_doors_both_ways(server: Server, client: Client) -> None:
    properties = mqtt_properties(PacketTypes.PUBLISH, ContentType="text/plain", CorrelationData=b"7")
    events = await client.subscribe("to/grpc")
    async with mqtt_of(server) as mqtt:
        await mqtt.subscribe("to/mqtt")
        await mqtt.publish("to/grpc", b"x", properties=properties)
        (message,) = await events.messages(1)
        assert (message.content_type, message.correlation_id) == ("text/plain", "7")
        await client.publish("to/mqtt", b"y", content_type="text/html", correlation_id="8")
        arrived = await anext(aiter(mqtt.messages))
        assert arrived.payload == b"y"
        came: Any = arrived.properties
        assert came is not None
        assert (came.ContentType, came.CorrelationData) == ("text/html", b"8")


async def test_an_id_that_a_publisher_gave_is_kept(server: Server, client: Client) -> None:
    events = await client.subscribe("a")
    async with client_of(server) as http:
        body = {"topic": "a", "data": 1, "message_id": "mine"}
        assert (await http.post("/api/v1/publish", json=body)).status_code == httpx.codes.OK
    (message,) = await events.messages(1)
    assert (message.message_id, message.content_type) == ("mine", "application/json")


async def test_a_subscription_shows_in_the_views_of_the_server(server: Server, client: Client) -> None:
    events = await client.subscribe("a")
    async with client_of(server) as http:
        clients = (await http.get("/api/v1/clients")).json()["clients"]
        assert [(row["client_id"], row["door"]) for row in clients] == [(events.id, "sidecar")]
        await client.publish("a")
        asked: dict[str, str | int] = {"topic": "a", "sequence": 1, "client": events.id}
        assert (await http.get("/api/v1/why", params=asked)).status_code == httpx.codes.OK


async def test_a_cursor_of_another_door_and_a_sequence_from_here_name_the_same_place(
    server: Server, client: Client
) -> None:
    events = await client.subscribe("a")
    async with client_of(server) as http:
        receipts = [
            (await http.post("/api/v1/publish", json={"topic": "a", "data": number})).json()
            for number in range(3)
        ]
    messages = await events.messages(3)
    assert [message.sequence_number for message in messages] == [receipt["sequence"] for receipt in receipts]
    await client.unsubscribe(events.id, pause=True)
    again, _ = await client.resume(events.id, last_message_id=messages[0].message_id)
    assert await again.payloads(2, "replay_message") == [b"1", b"2"]


async def test_traffic_here_is_in_the_totals_of_the_server(server: Server, client: Client) -> None:
    before = server.broker.counters.snapshot()
    events = await client.subscribe("a")
    await client.publish("a", bytes(1_000))
    await events.payloads(1)
    await client.unsubscribe(events.id)
    await events.end()
    after = server.broker.counters.snapshot()
    gained = {name: after[name] - count for name, count in before.items()}
    assert (gained["connections"], gained["published"], gained["delivered"]) == (1, 1, 1)
    assert (gained["control_packets_received"], gained["control_packets_sent"]) == (2, 1)
    assert 1_000 < gained["bytes_received"] < 3_000
    assert 1_000 < gained["bytes_sent"] < 3_000
