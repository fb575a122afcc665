"""Sequence, time and cursor on messages, for MQTT 5 subscribers that asked for them."""

import time

from penstock.common.cursor import Cursor
from penstock.wire.mqtt import PacketProperties, Publish, Request, Version
from tests.doors.mqtt.peers import Peers, both_versions, every_qos
from tests.support.servers import StartServer

ASKING = PacketProperties(user=(("penstock-meta", ""),))


def marks_of(message: Publish) -> dict[str, str]:
    return dict(message.properties.user[-3:])


@every_qos
async def test_subscriber_that_asked_is_told_where_each_message_stands(
    peers: Peers, name: str, qos: int
) -> None:
    reader, sender = await peers.connect(), await peers.connect()
    await reader.subscribe(Request(name, 2), properties=ASKING)
    before = time.time_ns() // 1_000
    for _ in range(3):
        await sender.publish(name, b"x", qos, properties=PacketProperties(user=(("mine", "1"),)))
    messages = [await reader.receive(Publish) for _ in range(3)]
    assert [marks_of(message)["ps-seq"] for message in messages] == ["1", "2", "3"]
    times = [int(marks_of(message)["ps-ts"]) for message in messages]
    assert before <= times[0] <= times[1] <= times[2] <= time.time_ns() // 1_000
    offsets = [Cursor.decode(marks_of(message)["ps-cursor"]).positions[0].offset for message in messages]
    assert offsets[0] < offsets[1] < offsets[2]
    assert all(message.properties.user[0] == ("mine", "1") for message in messages)


async def test_each_message_of_one_run_has_marks_of_its_own(peers: Peers, name: str) -> None:
    reader, sender = await peers.connect(), await peers.connect()
    await reader.subscribe(name, properties=ASKING)
    await sender.send(*(Publish(name, b"same size") for _ in range(50)))
    await sender.fence()
    messages = [await reader.receive(Publish) for _ in range(50)]
    assert [marks_of(message)["ps-seq"] for message in messages] == [str(n) for n in range(1, 51)]
    assert len({marks_of(message)["ps-cursor"] for message in messages}) == 50


async def test_retained_values_have_the_marks_of_when_they_were_published(peers: Peers, name: str) -> None:
    reader, sender = await peers.connect(), await peers.connect()
    await sender.publish(name, b"first")
    await sender.publish(name, b"kept", retain=True)
    await reader.subscribe(name, properties=ASKING)
    message = await reader.receive(Publish)
    assert (message.retain, marks_of(message)["ps-seq"]) == (True, "2")


async def test_others_on_the_topic_get_their_messages_as_they_are(peers: Peers, name: str) -> None:
    marked, plain, sender = [await peers.connect() for _ in range(3)]
    await marked.subscribe(name, properties=ASKING)
    await plain.subscribe(name)
    await sender.publish(name, b"x")
    assert len((await marked.receive(Publish)).properties.user) == 3
    assert (await plain.receive(Publish)).properties == PacketProperties()


@both_versions
async def test_marks_are_asked_for_once_and_outlive_the_connection(
    peers: Peers, name: str, version: Version
) -> None:
    reader = await peers.connect(name, expiry=100)
    await reader.subscribe(Request(name, 1), properties=ASKING)
    await reader.cut()
    sender = await peers.connect()
    await sender.publish(name, b"x")
    reader = await peers.connect(name, version, clean=False, expiry=100)
    message = await reader.receive(Publish)
    assert len(message.properties.user) == (3 if version is Version.V5 else 0)


async def test_a_topic_that_is_gathered_is_not_overtaken_by_the_cursors_of_others(
    start_server: StartServer, peers: Peers, name: str
) -> None:
    rule = {"filter": f"{name}/slow", "batch_size": 10, "batch_timeout_ms": 60_000}
    port = start_server({"topics": [rule]}).port
    reader, sender = await peers.connect(port=port), await peers.connect(port=port)
    await reader.subscribe(f"{name}/#", properties=ASKING)
    for topic in ("slow", "quick"):
        await sender.publish(f"{name}/{topic}", b"x")
    messages = [await reader.receive(Publish) for _ in range(2)]
    assert [message.topic for message in messages] == [f"{name}/slow", f"{name}/quick"]
