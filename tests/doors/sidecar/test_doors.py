"""One topic space: the same message, sequence and id at every door."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import httpx
from msgspec.structs import replace
from paho.mqtt.packettypes import PacketTypes

from penstock.app import Server
from penstock.doors.web.settings import WebSettings
from penstock.wire.mqtt import PacketProperties, PubAck, Publish, Version, encode_packet
from penstock.wire.sidecar.messages import nexusd
from tests.doors.mqtt.peers import Peers
from tests.doors.serving import Start, client_of, mqtt_of, mqtt_properties, port_of
from tests.doors.sidecar.calling import Client, Events, Stub
from tests.doors.sidecar.serving import address_of
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


@asynccontextmanager
async def stock_events(server: Server, topic: str) -> AsyncIterator[Events]:
    """A subscription of a client without options, which takes messages of 4 MiB."""
    async with grpc.aio.insecure_channel(address_of(server)) as channel:
        request = nexusd.SubscribeRequest(topics=[topic], client_id="stock")
        events = Events(Stub(channel).subscribe(request))
        await events.begin()
        yield events


async def test_the_largest_message_of_mqtt_fits_a_client_as_it_comes(start: Start) -> None:
    """One that did not would end the stream, and every resumption would meet it again."""
    server = await start()
    topic = "t" * 4096
    many = tuple((f"key{number}", "") for number in range(5500))
    peers = Peers(port_of(server, "mqtt"))
    async with stock_events(server, topic) as events:
        publisher = await peers.connect()
        limit = publisher.connack.properties.maximum_packet_size
        assert limit is not None
        message = Publish(topic, b"", 1, packet_id=1, properties=PacketProperties(user=many))
        payload = bytes(limit - len(encode_packet(message, Version.V5)) - 3)
        packet = replace(message, payload=payload)
        assert limit - 3 <= len(encode_packet(packet, Version.V5)) <= limit
        await publisher.send(packet)
        assert (await publisher.receive(PubAck)).reason == 0
        assert await events.payloads(1) == [payload]
    await peers.close()


async def test_the_largest_payload_of_http_fits_a_client_as_it_comes(start: Start) -> None:
    server = await start()
    payload = bytes(server.broker.settings.max_payload_bytes)
    query = {"topic": "t" * 1000}
    async with stock_events(server, query["topic"]) as events, client_of(server) as http:
        answer = await http.post(
            "/api/v1/publish", params=query, content=payload, headers={"Content-Type": "image/png"}
        )
        assert answer.status_code == 200, answer.text
        assert await events.payloads(1) == [payload]
        larger = await http.post("/api/v1/publish", params=query, content=payload + b"x")
        assert larger.status_code == 413


async def test_a_server_that_takes_more_needs_clients_that_take_more(start: Start) -> None:
    """The client refuses it, so that this also shows that the limit above is in effect."""
    server = await start(max_payload_bytes=4 * 1024 * 1024)
    async with stock_events(server, "a") as events, Client(server) as roomy, client_of(server) as http:
        all_events = await roomy.subscribe("a")
        payload = bytes(4 * 1024 * 1024)
        headers = {"Content-Type": "image/png"}
        answer = await http.post("/api/v1/publish", params={"topic": "a"}, content=payload, headers=headers)
        assert answer.status_code == 200, answer.text
        assert (await events.end())[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await all_events.payloads(1) == [payload]
