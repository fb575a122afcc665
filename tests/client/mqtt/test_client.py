"""MQTT client against a running server and a scripted one."""

import asyncio
import contextlib
from typing import Protocol
from uuid import uuid4

import pytest

import penstock.client
from penstock.client import (
    ConnectionLost,
    ConnectionRefused,
    MqttClient,
    PacketProperties,
    PacketStream,
    ReasonCode,
    Request,
    RequestRefused,
    Version,
    Will,
)
from penstock.errors import InvalidTopic, PenstockError, TooLarge
from penstock.wire.mqtt.encode import encode_packet
from penstock.wire.mqtt.packets import (
    ConnAck,
    Connect,
    Disconnect,
    PingReq,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
)
from tests.client.mqtt.scripts import PATIENCE_S, farewell, scripted, welcome
from tests.support.waiting import until

both_versions = pytest.mark.parametrize("version", list(Version))


class Server(Protocol):
    port: int


@pytest.fixture
def topic() -> str:
    return f"test/{uuid4().hex}"


# Publishing and subscribing


@both_versions
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_what_is_published_arrives_once_and_unchanged(
    server: Server, topic: str, version: Version, qos: int
) -> None:
    async with MqttClient.connect("127.0.0.1", server.port, version=version) as client:
        assert await client.subscribe(topic, qos=qos) == (qos,)
        await client.publish(topic, b"\x00\xff", qos=qos)
        await client.publish(topic, "last", qos=qos)
        first = await client.messages.receive(PATIENCE_S)
        assert (first.topic, first.payload, first.qos, first.retain) == (topic, b"\x00\xff", qos, False)
        assert (await client.messages.receive(PATIENCE_S)).payload == b"last"
        assert len(client.messages) == 0


@both_versions
@pytest.mark.parametrize("qos", [1, 2])
async def test_many_publishes_at_once_arrive_in_the_order_they_were_made(
    server: Server, topic: str, version: Version, qos: int
) -> None:
    async with MqttClient.connect("127.0.0.1", server.port, version=version) as client:
        await client.subscribe(topic, qos=qos)
        sent = [f"{number}" for number in range(50)]
        async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
            for payload in sent:
                tasks.create_task(client.publish(topic, payload, qos=qos))
            got = [(await anext(client.messages)).payload.decode() for _ in sent]
        assert got == sent


@both_versions
async def test_after_unsubscribe_nothing_arrives(server: Server, topic: str, version: Version) -> None:
    async with MqttClient.connect("127.0.0.1", server.port, version=version) as client:
        await client.subscribe(f"{topic}/a", f"{topic}/b")
        reasons = await client.unsubscribe(f"{topic}/a")
        assert reasons == ((0,) if version is Version.V5 else ())
        await client.publish(f"{topic}/a", "unwanted")
        await client.publish(f"{topic}/b", "wanted")
        assert (await client.messages.receive(PATIENCE_S)).payload == b"wanted"


async def test_properties_travel_with_the_message(server: Server, topic: str) -> None:
    properties = PacketProperties(
        content_type="text/plain", correlation_data=b"\x01", response_topic="r", user=(("k", "v"), ("k", "w"))
    )
    async with MqttClient.connect("127.0.0.1", server.port) as client:
        await client.subscribe(topic, properties=PacketProperties(subscription_ids=(7,)))
        await client.publish(topic, "x", properties=properties)
        got = (await client.messages.receive(PATIENCE_S)).properties
    assert (got.content_type, got.correlation_data, got.response_topic) == ("text/plain", b"\x01", "r")
    assert got.user == (("k", "v"), ("k", "w"))
    assert got.subscription_ids == (7,)


async def test_subscription_options_reach_the_server(server: Server, topic: str) -> None:
    async with MqttClient.connect("127.0.0.1", server.port) as client:
        await client.publish(topic, "kept", retain=True, qos=1)
        await client.subscribe(topic, retain_handling=2)
        await client.subscribe(Request(f"{topic}/own", no_local=True))
        await client.publish(f"{topic}/own", "not for me", qos=1)
        await client.publish(topic, "live", qos=1)
        assert (await client.messages.receive(PATIENCE_S)).payload == b"live"
        await client.publish(topic, "", retain=True)


async def test_topic_aliases_of_the_server_are_resolved(topic: str) -> None:
    async def script(stream: PacketStream) -> None:
        connect = await welcome(stream)
        assert connect.properties.topic_alias_maximum == 2
        alias = PacketProperties(topic_alias=2)
        await stream.send(Publish(topic, b"1", properties=alias), Publish("", b"2", properties=alias))
        await farewell(stream)

    asked = PacketProperties(topic_alias_maximum=2)
    async with scripted(script) as port, MqttClient.connect(port=port, properties=asked) as client:
        got = [await client.messages.receive(PATIENCE_S) for _ in range(2)]
    assert [(message.topic, message.payload) for message in got] == [(topic, b"1"), (topic, b"2")]


@pytest.mark.parametrize("bad", ["", "a/+", "#", "a\0b"])
async def test_impossible_topics_are_refused_before_anything_is_sent(server: Server, bad: str) -> None:
    async with MqttClient.connect("127.0.0.1", server.port) as client:
        with pytest.raises(InvalidTopic):
            await client.publish(bad, "x")
        assert await client.publish("still/connected", qos=1) < 0x80


async def test_what_only_mqtt_5_can_say_is_refused_in_3_1_1(server: Server, topic: str) -> None:
    properties = PacketProperties(content_type="text/plain")
    with pytest.raises(ValueError, match="MQTT 5"):
        MqttClient.connect(version=Version.V311, properties=PacketProperties(session_expiry=1))
    async with MqttClient.connect("127.0.0.1", server.port, version=Version.V311) as client:
        with pytest.raises(ValueError, match="MQTT 5"):
            await client.publish(topic, "x", properties=properties)
        with pytest.raises(ValueError, match="MQTT 5"):
            await client.subscribe(topic, no_local=True)
        with pytest.raises(ValueError, match="MQTT 5"):
            await client.disconnect(ReasonCode.DISCONNECT_WITH_WILL)
        with pytest.raises(ValueError, match="QoS"):
            await client.publish(topic, "x", qos=3)
        assert client.is_connected


# Acknowledgements and flow


async def test_messages_are_acknowledged_in_order_and_only_when_taken(topic: str) -> None:
    taken = asyncio.Event()

    async def script(stream: PacketStream) -> None:
        await welcome(stream)
        await stream.send(Publish(topic, b"a", 1, packet_id=5), Publish(topic, b"b", 2, packet_id=3))
        with pytest.raises(TimeoutError):
            await stream.receive(0.05)
        taken.set()
        assert [await stream.receive(PATIENCE_S) for _ in range(2)] == [PubAck(5), PubRec(3)]
        await stream.send(PubRel(3))
        assert await stream.receive(PATIENCE_S) == PubComp(3)

    async with scripted(script) as port, MqttClient.connect(port=port) as client:
        await taken.wait()
        assert [(await client.messages.receive(PATIENCE_S)).payload for _ in range(2)] == [b"a", b"b"]
        with pytest.raises(ConnectionLost):
            await client.messages.receive(PATIENCE_S)


async def test_a_repeated_qos_2_message_is_delivered_once(topic: str) -> None:
    async def script(stream: PacketStream) -> None:
        await welcome(stream)
        message = Publish(topic, b"once", 2, packet_id=9)
        again = Publish(topic, b"once", 2, dup=True, packet_id=9)
        await stream.send(message, again)  # before the client can have taken it
        assert await stream.receive(PATIENCE_S) == PubRec(9)
        await stream.send(again)  # as if that acknowledgement had been lost
        assert await stream.receive(PATIENCE_S) == PubRec(9)
        await stream.send(PubRel(9), PubRel(9))
        assert await stream.receive(PATIENCE_S) == PubComp(9)
        assert await stream.receive(PATIENCE_S) == PubComp(9, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
        await stream.send(Publish(topic, b"anew", 2, packet_id=9))
        assert await stream.receive(PATIENCE_S) == PubRec(9)
        await farewell(stream)

    async with scripted(script) as port, MqttClient.connect(port=port) as client:
        assert [(await client.messages.receive(PATIENCE_S)).payload for _ in range(2)] == [b"once", b"anew"]
        assert len(client.messages) == 0


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_refused_publish_raises_with_the_servers_reason(topic: str, qos: int) -> None:
    async def script(stream: PacketStream) -> None:
        # A window of one: the second publish is let in only if the refusal gave the place back.
        await welcome(stream, ConnAck(properties=PacketProperties(receive_maximum=1)))
        for _ in range(2):
            publish = await stream.receive(PATIENCE_S)
            assert isinstance(publish, Publish)
            said = PacketProperties(reason_string="keep out")
            reply = PubAck if qos == 1 else PubRec
            await stream.send(reply(publish.packet_id, ReasonCode.NOT_AUTHORIZED, said))
        await farewell(stream)

    async with scripted(script) as port, MqttClient.connect(port=port) as client:
        for _ in range(2):
            with pytest.raises(RequestRefused, match=r"not authorized \(0x87\): keep out") as caught:
                await client.publish(topic, "x", qos=qos)
            assert caught.value.reason == ReasonCode.NOT_AUTHORIZED


async def test_at_qos_2_the_first_answer_tells_what_became_of_the_message(topic: str) -> None:
    async def script(stream: PacketStream) -> None:
        await welcome(stream)
        for ending in (ReasonCode.SUCCESS, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND):
            publish = await stream.receive(PATIENCE_S)
            assert isinstance(publish, Publish)
            await stream.send(PubRec(publish.packet_id, ReasonCode.NO_MATCHING_SUBSCRIBERS))
            assert await stream.receive(PATIENCE_S) == PubRel(publish.packet_id)
            await stream.send(PubComp(publish.packet_id, ending))
        await farewell(stream)

    async with scripted(script) as port, MqttClient.connect(port=port) as client:
        assert await client.publish(topic, "x", qos=2) == ReasonCode.NO_MATCHING_SUBSCRIBERS
        with pytest.raises(RequestRefused, match="packet identifier not found"):
            await client.publish(topic, "x", qos=2)


async def test_no_more_publishes_are_on_their_way_than_the_server_takes(topic: str) -> None:
    async def script(stream: PacketStream) -> None:
        await welcome(stream, ConnAck(properties=PacketProperties(receive_maximum=2)))
        first, second = await stream.receive(PATIENCE_S), await stream.receive(PATIENCE_S)
        assert isinstance(first, Publish)
        assert isinstance(second, Publish)
        with pytest.raises(TimeoutError):
            await stream.receive(0.05)
        await stream.send(PubAck(second.packet_id))
        third = await stream.receive(PATIENCE_S)
        assert isinstance(third, Publish)
        await stream.send(PubAck(first.packet_id), PubAck(third.packet_id, 0x10))
        await farewell(stream)

    async with scripted(script) as port, MqttClient.connect(port=port) as client:
        reasons = await asyncio.gather(*(client.publish(topic, f"{n}", qos=1) for n in range(3)))
        assert reasons == [0, 0, ReasonCode.NO_MATCHING_SUBSCRIBERS]


async def test_a_publish_nobody_waits_for_any_more_keeps_its_identifier_until_it_is_answered(
    topic: str,
) -> None:
    abandoned = asyncio.Event()

    async def script(stream: PacketStream) -> None:
        await welcome(stream, ConnAck(properties=PacketProperties(receive_maximum=1)))
        first = await stream.receive(PATIENCE_S)
        assert isinstance(first, Publish)
        await abandoned.wait()
        with pytest.raises(TimeoutError):
            await stream.receive(0.05)
        await stream.send(PubRec(first.packet_id))
        assert await stream.receive(PATIENCE_S) == PubRel(first.packet_id)
        await stream.send(PubComp(first.packet_id))
        second = await stream.receive(PATIENCE_S)
        assert isinstance(second, Publish)
        await stream.send(PubAck(second.packet_id))
        await farewell(stream)

    async with scripted(script) as port, MqttClient.connect(port=port) as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await client.publish(topic, "given up", qos=2)
        abandoned.set()
        assert await client.publish(topic, "next", qos=1) == 0


async def test_a_packet_larger_than_the_server_takes_is_not_sent(topic: str) -> None:
    async def script(stream: PacketStream) -> None:
        await welcome(stream, ConnAck(properties=PacketProperties(maximum_packet_size=100)))
        small = await stream.receive(PATIENCE_S)
        assert isinstance(small, Publish)
        assert small.payload == b"small"
        await stream.send(PubAck(small.packet_id))
        await farewell(stream)

    async with scripted(script) as port, MqttClient.connect(port=port) as client:
        for qos in (0, 1):
            with pytest.raises(TooLarge):
                await client.publish(topic, b"x" * 100, qos=qos)
        assert await client.publish(topic, "small", qos=1) == 0


async def test_reading_pauses_while_the_limit_of_messages_waits(topic: str) -> None:
    async def script(stream: PacketStream) -> None:
        await welcome(stream)
        await stream.send(*(Publish(topic, f"{number}".encode()) for number in range(10)))
        await farewell(stream)

    async with scripted(script) as port, MqttClient.connect(port=port, messages_limit=3) as client:
        await until(lambda: len(client.messages) >= 3, "fewer than 3 messages arrived")
        await asyncio.sleep(0.05)
        assert len(client.messages) == 3
        got = [(await client.messages.receive(PATIENCE_S)).payload for _ in range(10)]
        assert got == [f"{number}".encode() for number in range(10)]


async def test_answers_are_read_past_messages_nobody_takes(server: Server, topic: str) -> None:
    async with MqttClient.connect("127.0.0.1", server.port, messages_limit=2) as client:
        await client.subscribe(topic, qos=1)
        async with asyncio.timeout(10):
            for number in range(10):
                await client.publish(topic, f"{number}", qos=1)
            got = [(await anext(client.messages)).payload for _ in range(10)]
        assert got == [f"{number}".encode() for number in range(10)]


async def test_a_taker_that_is_cancelled_loses_no_message(server: Server, topic: str) -> None:
    async with MqttClient.connect("127.0.0.1", server.port) as client:
        await client.subscribe(topic)
        with pytest.raises(TimeoutError):
            await client.messages.receive(0.02)
        await client.publish(topic, "here")
        assert (await client.messages.receive(PATIENCE_S)).payload == b"here"


# Sessions and the end of connections


@both_versions
async def test_a_session_waits_for_its_client(server: Server, topic: str, version: Version) -> None:
    client_id = uuid4().hex
    expiry = PacketProperties(session_expiry=60) if version is Version.V5 else PacketProperties()

    def connect(clean_start: bool) -> "contextlib.AbstractAsyncContextManager[MqttClient]":
        return MqttClient.connect(
            "127.0.0.1",
            server.port,
            client_id=client_id,
            version=version,
            clean_start=clean_start,
            properties=PacketProperties() if clean_start else expiry,
        )

    async with connect(clean_start=False) as client:
        assert not client.session_present
        await client.subscribe(topic, qos=1)
    async with MqttClient.connect("127.0.0.1", server.port) as other:
        await other.publish(topic, "meanwhile", qos=1)
    async with connect(clean_start=False) as client:
        assert client.session_present
        assert client.client_id == client_id
        assert (await client.messages.receive(PATIENCE_S)).payload == b"meanwhile"
    async with connect(clean_start=True) as client:
        assert not client.session_present


async def test_a_client_without_a_name_learns_the_one_it_was_given(server: Server) -> None:
    async with MqttClient.connect("127.0.0.1", server.port) as client:
        assert client.client_id
        assert client.client_id == client.connack.properties.assigned_client_id


@both_versions
async def test_the_will_is_published_after_an_abort_and_not_after_a_goodbye(
    server: Server, topic: str, version: Version
) -> None:
    async with MqttClient.connect("127.0.0.1", server.port) as watcher:
        await watcher.subscribe(f"{topic}/#")
        polite = await MqttClient.connect(
            "127.0.0.1", server.port, version=version, will=Will(f"{topic}/polite", b"gone")
        )
        await polite.disconnect()
        rude = await MqttClient.connect(
            "127.0.0.1", server.port, version=version, will=Will(f"{topic}/rude", b"gone")
        )
        await rude.abort()
        assert (await watcher.messages.receive(PATIENCE_S)).topic == f"{topic}/rude"


async def test_after_its_own_goodbye_a_client_runs_out_of_messages_and_takes_no_requests(
    server: Server, topic: str
) -> None:
    client = await MqttClient.connect("127.0.0.1", server.port)
    await client.subscribe(topic)
    await client.publish(topic, "before", qos=1)
    await client.subscribe(f"{topic}/fence")  # the message comes after its PUBACK
    await client.disconnect()
    await client.disconnect()
    assert [message.payload async for message in client.messages] == [b"before"]
    assert not client.is_connected
    for qos in (0, 1):
        with pytest.raises(ConnectionLost):
            await client.publish(topic, "after", qos=qos)
    with pytest.raises(ConnectionLost):
        await client.subscribe(topic)


async def test_the_servers_goodbye_is_told_with_its_reason(topic: str) -> None:
    async def script(stream: PacketStream) -> None:
        await welcome(stream)
        said = PacketProperties(reason_string="twice here")
        await stream.send(Disconnect(ReasonCode.SESSION_TAKEN_OVER, said))

    async with scripted(script) as port, MqttClient.connect(port=port) as client:
        with pytest.raises(ConnectionLost, match=r"session taken over \(0x8e\): twice here") as caught:
            await client.messages.receive(PATIENCE_S)
        assert caught.value.reason == ReasonCode.SESSION_TAKEN_OVER
        assert caught.value.retryable
        with pytest.raises(ConnectionLost, match="session taken over"):
            await client.publish(topic, "too late")


@both_versions
async def test_a_lost_connection_is_told_to_everyone_who_waits(topic: str, version: Version) -> None:
    async def script(stream: PacketStream) -> None:
        await welcome(stream, ConnAck())
        await stream.send(Publish(topic, b"last words"))
        for _ in range(3):
            await stream.receive(PATIENCE_S)

    async with scripted(script, version) as port, MqttClient.connect(port=port, version=version) as client:
        outcomes = await asyncio.gather(
            client.publish(topic, "1", qos=1),
            client.publish(topic, "2", qos=2),
            client.subscribe(topic),
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in outcomes] == [ConnectionLost] * 3
        assert (await client.messages.receive(PATIENCE_S)).payload == b"last words"
        for _ in range(2):
            with pytest.raises(ConnectionLost):
                await anext(client.messages)


async def test_publishes_that_wait_for_their_turn_end_with_the_connection(topic: str) -> None:
    async def script(stream: PacketStream) -> None:
        await welcome(stream, ConnAck(properties=PacketProperties(receive_maximum=1)))
        await stream.receive(PATIENCE_S)

    async with scripted(script) as port, MqttClient.connect(port=port) as client:
        async with asyncio.timeout(PATIENCE_S):
            publishes = (client.publish(topic, f"{number}", qos=1) for number in range(4))
            outcomes = await asyncio.gather(*publishes, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ConnectionLost] * 4


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"\x36\x00", ReasonCode.MALFORMED_PACKET),  # QoS 3
        (b"\xc0\x00", ReasonCode.PROTOCOL_ERROR),  # PINGREQ is not for servers
        (b"\x40\x02\x00\x01", ReasonCode.PROTOCOL_ERROR),  # PUBACK where SUBACK is due
    ],
)
async def test_a_server_that_breaks_the_protocol_is_told_so_and_left(bad: bytes, reason: ReasonCode) -> None:
    async def script(stream: PacketStream) -> None:
        await welcome(stream)
        request = await stream.receive(PATIENCE_S)
        assert isinstance(request, Subscribe)
        assert request.packet_id == 1
        stream.write_bytes(bad)
        assert await stream.receive(PATIENCE_S) == Disconnect(reason)
        await stream.wait_closed()

    async with scripted(script) as port, MqttClient.connect(port=port) as client:
        with pytest.raises(ConnectionLost, match="protocol error of the server") as caught:
            await client.subscribe("a")
        assert caught.value.reason == reason


async def test_an_idle_client_keeps_its_connection_alive(server: Server, topic: str) -> None:
    async with (
        MqttClient.connect("127.0.0.1", server.port, version=Version.V311, keep_alive=1) as older,
        MqttClient.connect("127.0.0.1", server.port, version=Version.V5, keep_alive=1) as newer,
    ):
        await asyncio.sleep(2.1)  # a server ends a connection silent for one and a half times its keep alive
        for client in (older, newer):
            await client.publish(topic, "alive", qos=1)


async def test_a_server_that_does_not_answer_pings_is_given_up() -> None:
    async def script(stream: PacketStream) -> None:
        await welcome(stream, ConnAck(properties=PacketProperties(server_keep_alive=1)))
        assert await stream.receive(PATIENCE_S) == PingReq()
        await stream.wait_closed(PATIENCE_S)

    async with scripted(script) as port, MqttClient.connect(port=port, keep_alive=600) as client:
        with pytest.raises(ConnectionLost, match="nothing received"):
            await client.messages.receive(PATIENCE_S)


# Being refused


async def test_nobody_at_the_port_is_a_refusal_without_a_reason() -> None:
    async def script(stream: PacketStream) -> None:
        pass

    async with scripted(script) as port:
        with pytest.raises(ConnectionRefused, match="without a response"):
            await MqttClient.connect(port=port)
    with pytest.raises(ConnectionRefused, match=f"no connection to 127.0.0.1:{port}") as caught:
        await MqttClient.connect(port=port)
    assert caught.value.reason is None


@pytest.mark.parametrize(
    ("version", "said"), [(Version.V311, 4), (Version.V5, ReasonCode.BAD_USER_NAME_OR_PASSWORD)]
)
async def test_a_refusal_has_the_same_reason_in_both_versions(version: Version, said: int) -> None:
    async def script(stream: PacketStream) -> None:
        connect = await welcome(stream, ConnAck(reason=said))
        assert (connect.user_name, connect.password) == ("ann", b"wrong")
        await stream.wait_closed()

    async with scripted(script, version) as port:
        with pytest.raises(ConnectionRefused, match="bad user name or password") as caught:
            await MqttClient.connect(port=port, version=version, user="ann", password="wrong")
        assert caught.value.reason == ReasonCode.BAD_USER_NAME_OR_PASSWORD


async def test_a_server_that_says_nothing_is_given_up_after_the_timeout() -> None:
    async def script(stream: PacketStream) -> None:
        await stream.wait_closed(PATIENCE_S)

    async with scripted(script) as port:
        with pytest.raises(ConnectionRefused, match=r"within 0\.1 s"):
            await MqttClient.connect(port=port, timeout=0.1)


async def test_a_server_of_another_protocol_is_a_refusal() -> None:
    async def script(stream: PacketStream) -> None:
        stream.write_bytes(b"HTTP/1.1 400 Bad Request\r\n" + b"Server: of something else\r\n" * 4)
        await stream.wait_closed(PATIENCE_S)

    async with scripted(script) as port:
        with pytest.raises(ConnectionRefused, match="not MQTT"):
            await MqttClient.connect(port=port)


# The stream below and the names above


@both_versions
async def test_a_packet_stream_speaks_the_version_of_its_connect(server: Server, version: Version) -> None:
    async with await PacketStream.open("127.0.0.1", server.port) as stream:
        await stream.send(Connect(uuid4().hex, version, keep_alive=30))
        connack = await stream.receive(PATIENCE_S)
        assert isinstance(connack, ConnAck)
        assert connack.reason == 0
        await stream.send(Subscribe(1, (Request("a", 1),)))
        assert await stream.receive(PATIENCE_S) == SubAck(1, (1,))
        with pytest.raises(TimeoutError):
            await stream.receive(0.02)
        await stream.send(Disconnect())
        with pytest.raises(ConnectionLost):
            await stream.receive(PATIENCE_S)


async def test_a_packet_stream_passes_on_bytes_that_are_no_packet(server: Server) -> None:
    async with await PacketStream.open("127.0.0.1", server.port) as stream:
        stream.write_bytes(b"\x00\x00")
        await stream.wait_closed(PATIENCE_S)


async def test_what_was_sent_before_a_reset_can_still_be_received() -> None:
    reset = asyncio.Event()

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)  # the rest stays unread, which turns closing into a reset
        writer.write(encode_packet(Disconnect(ReasonCode.PACKET_TOO_LARGE), Version.V5))
        writer.transport.abort()
        reset.set()

    listener = await asyncio.start_server(on_connection, "127.0.0.1", 0, limit=1)
    async with listener, await PacketStream.open(*listener.sockets[0].getsockname()) as stream:
        stream.write_bytes(bytes(1_000_000))
        await reset.wait()
        await asyncio.sleep(0.05)
        await stream.send(PingReq())
        assert await stream.receive(PATIENCE_S) == Disconnect(ReasonCode.PACKET_TOO_LARGE)
        with pytest.raises(ConnectionLost):
            await stream.receive(PATIENCE_S)


def test_every_public_name_exists_and_errors_have_codes_of_their_own() -> None:
    for name in penstock.client.__all__:
        assert hasattr(penstock.client, name)
    errors = (ConnectionRefused, ConnectionLost, RequestRefused)
    assert [error.code for error in errors] == ["connection-refused", "connection-lost", "request-refused"]
    assert all(issubclass(error, PenstockError) for error in errors)
