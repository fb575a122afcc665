"""The same messages at every door: one sequence, and a cursor that is good everywhere."""

from asyncio import to_thread
from pathlib import Path
from typing import Any

import grpc

from penstock.core.settings import LogSettings
from penstock.doors.sidecar.v1.service import NAME
from penstock.wire.sidecar.messages import penstock as wire
from tests.doors.serving import client_of, mqtt_of
from tests.doors.sidecar.serving import address_of
from tests.doors.sidecar.v1.conftest import Build
from tests.doors.sidecar.v1.people import Caller, House, Listener, entry
from tests.doors.web.following import follow
from tests.support.samples import readable

EVERYTHING = LogSettings(capture=("#", "$penstock/#"))


async def resume(caller: Caller, filter: str, cursor: str) -> Listener:
    listener = caller.subscribe()
    await listener.add(filter, after=cursor)
    await listener.hear("opened")
    await listener.hear("added")
    return listener


async def test_published_by_mqtt_and_resumed_over_http_from_here(house: House, caller: Caller) -> None:
    listener = await caller.listen("plant/#")
    async with mqtt_of(house.server, "pump") as pump:
        await pump.publish("plant/1", b"1", qos=1)
        await pump.publish("plant/1", b"2", qos=0)
        assert await listener.messages(2) == [("plant/1", b"1", 1), ("plant/1", b"2", 2)]
        assert [run.qos for run in listener.runs] == [1, 0]
        await pump.publish("plant/1", b"3", qos=1)
    async with follow(house.server, "plant/#", last_id=listener.cursor) as follower:
        event = await follower.next()
        assert (event.data["data"], event.data["sequence"]) == (3, 3)


async def test_followed_over_http_and_resumed_here(house: House, caller: Caller) -> None:
    async with follow(house.server, "plant/#") as follower:
        await caller.publish_once("plant/1", b"1", b"2")
        events = await follower.take(2)
    assert [event.data["sequence"] for event in events] == [1, 2]
    listener = await resume(caller, "plant/#", events[0].id)
    assert await listener.messages(1) == [("plant/1", b"2", 2)]
    assert (await listener.hear("statement")).served == 1


async def test_receipt_over_http_is_a_cursor_here(house: House, caller: Caller) -> None:
    async with client_of(house.server) as http:
        receipt = (await http.post("/api/v1/publish", json={"topic": "a", "data": 1})).json()
    await caller.publish_once("a", b"2")
    assert await (await resume(caller, "a", receipt["cursor"])).messages(1) == [("a", b"2", 2)]


async def test_batch_reaches_mqtt_with_all_that_travels_with_it(house: House, caller: Caller) -> None:
    async with mqtt_of(house.server, "reader") as reader:
        await reader.subscribe("#", qos=1)
        publisher = caller.publish()
        plain = [b"%03d" % number * 50 for number in range(30)]
        await publisher.send(
            entry("plain", *plain), entry("dressed", b"x", content_type="text/plain", correlation_id=b"7")
        )
        got = [await anext(reader.messages) for _ in range(31)]
    assert [(str(message.topic), message.payload) for message in got[:30]] == [
        ("plain", each) for each in plain
    ]
    properties: Any = got[30].properties
    assert properties is not None
    assert (properties.ContentType, properties.CorrelationData) == ("text/plain", b"7")


async def test_stored_batches_outlive_the_server(build: Build, tmp_path: Path) -> None:
    stored = {"data_dir": str(tmp_path / "data"), "log": EVERYTHING}
    house = await build(**stored)
    listener = await house.caller().listen("a")
    first = await house.caller().publish_once("a", *[b"x" * 100] * 50)
    await listener.messages(50)
    await house.caller().publish_once("a", b"kept", b"too", message_ids=["1", "2"])
    assert [run.sequence for run in readable(house.broker.log.scan(0, lambda topic: topic == "a"))] == [
        1,
        51,
        52,
    ]
    await house.close()
    again = await build(**stored)
    caller = again.caller()
    assert (await caller.publish_once("a", b"kept", message_ids=["1"])).placed[0].duplicates == 1
    for cursor in (listener.cursor, first.cursor):
        resumed = await resume(caller, "a", cursor)
        assert await resumed.messages(2) == [("a", b"kept", 51), ("a", b"too", 52)]
        assert (await resumed.hear("statement")).served == 2
    assert [run.epoch for run in resumed.runs] == [1, 1]
    everything = caller.subscribe()
    await everything.add("a", last=60)
    await everything.hear("opened")
    await everything.hear("added")
    assert [payload for _, payload, _ in await everything.messages(52)] == [b"x" * 100] * 50 + [
        b"kept",
        b"too",
    ]


def talk(address: str) -> list[wire.SubscribeEvent]:
    """What a client that blocks hears when it listens and then publishes."""
    with grpc.insecure_channel(address) as channel:
        subscribe: grpc.StreamStreamMultiCallable[bytes, wire.SubscribeEvent] = channel.stream_stream(
            f"/{NAME}/Subscribe", None, wire.SubscribeEvent.FromString
        )
        publish: grpc.StreamStreamMultiCallable[bytes, wire.PublishAck] = channel.stream_stream(
            f"/{NAME}/Publish", None, wire.PublishAck.FromString
        )
        request = wire.SubscribeRequest(request_id=1, add=wire.Add(filters=["a"]))
        events = subscribe(iter([request.SerializeToString()]), timeout=30)
        heard = [next(events), next(events)]
        batch = wire.PublishBatch(batch_id=1, messages=[entry("a", b"1", b"2")])
        (ack,) = publish(iter([batch.SerializeToString()]), timeout=30)
        assert ack.accepted == 2
        heard.append(next(events))
        events.cancel()
        return heard


async def test_clients_that_block_can_publish_and_subscribe(house: House) -> None:
    heard = await to_thread(talk, address_of(house.server))
    assert [event.WhichOneof("event") for event in heard] == ["opened", "added", "delivery"]
    assert list(heard[2].delivery.runs[0].payloads) == [b"1", b"2"]
