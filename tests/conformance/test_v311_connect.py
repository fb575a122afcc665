"""MQTT 3.1.1, sections 3.1, 3.2 and 3.12: who is let in, with which answer, and who is still there."""

import asyncio
import string

import pytest

from penstock.wire.mqtt import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    Publish,
    Request,
    ReturnCode,
    SubAck,
    Subscribe,
    Unsubscribe,
    Version,
    Will,
    encode_packet,
)
from tests.conformance.statements import v311
from tests.conformance.v311_bytes import connect, refusal, text
from tests.doors.mqtt.peers import Peers, payloads
from tests.wire.mqtt.case import connect as connect_of_level
from tests.wire.mqtt.case import frame

CLEAN, WILL, WILL_RETAIN, PASSWORD, USER = 0x02, 0x04, 0x20, 0x40, 0x80
ID = text("c")
ALPHABET = string.digits + string.ascii_lowercase + string.ascii_uppercase


# The first packet


@pytest.mark.parametrize(
    "packet",
    [
        Publish("a", b"x"),
        Publish("a", b"x", 1, packet_id=1),
        PubAck(1),
        Subscribe(1, (Request("a"),)),
        Unsubscribe(1, ("a",)),
        PingReq(),
        Disconnect(),
    ],
    ids=lambda packet: type(packet).__name__,
)
@v311("3.1.0-1")
async def test_v311_mqtt_3_1_0_1_first_packet_other_than_connect_closes(
    peers_311: Peers, packet: Packet
) -> None:
    first = encode_packet(packet, Version.V311)
    assert await refusal(peers_311, first + connect(CLEAN, ID)) == []


@v311("3.1.0-2")
async def test_v311_mqtt_3_1_0_2_second_connect_closes(peers_311: Peers, name: str) -> None:
    peer = await peers_311.connect(name)
    await peer.send(Connect(name, Version.V311))
    assert await peer.last_words() == []


@pytest.mark.parametrize("protocol", [b"mqtt", b"MQTTX", b"MQT", b"HTTP", b""])
@v311("3.1.2-1")
async def test_v311_mqtt_3_1_2_1_other_protocol_name_is_not_let_in(peers_311: Peers, protocol: bytes) -> None:
    words = await refusal(peers_311, frame(0x10, text(protocol) + b"\x04\x02\x00\x00" + ID))
    expected = ConnAck(False, ReturnCode.UNACCEPTABLE_PROTOCOL_VERSION)  # may be left out
    assert words == [expected]


@pytest.mark.parametrize("level", range(4))
@v311("3.1.2-2", "3.2.2-5")
async def test_v311_mqtt_3_1_2_2_unsupported_level_is_answered_with_code_1(
    peers_311: Peers, level: int
) -> None:
    words = await refusal(peers_311, connect_of_level(level, b"\x02\x00\x00" + ID))
    assert words == [ConnAck(False, 1)]


# The format


@v311("3.1.2-3", "3.1.4-1")
async def test_v311_mqtt_3_1_2_3_reserved_flag_closes(peers_311: Peers) -> None:
    assert await refusal(peers_311, connect(CLEAN | 1, ID)) == []


@pytest.mark.parametrize(
    ("flags", "payload"),
    [
        pytest.param(CLEAN, [ID, text("user")], id="user name without its flag"),
        pytest.param(CLEAN, [ID, text("user"), text("secret")], id="both without their flags"),
        pytest.param(CLEAN | USER, [ID], id="no user name in spite of its flag"),
        pytest.param(CLEAN | USER, [ID, text("user"), text("secret")], id="password without its flag"),
        pytest.param(CLEAN | USER | PASSWORD, [ID, text("user")], id="no password in spite of its flag"),
        pytest.param(CLEAN | PASSWORD, [ID, text("secret")], id="password flag without user name flag"),
        pytest.param(CLEAN | PASSWORD, [ID, text("user"), text("secret")], id="the same with a user name"),
    ],
)
@v311("3.1.2-18", "3.1.2-19", "3.1.2-20", "3.1.2-21", "3.1.2-22", "3.1.4-1")
async def test_v311_mqtt_3_1_2_18_to_22_flags_and_fields_of_user_and_password_must_agree(
    peers_311: Peers, flags: int, payload: list[bytes]
) -> None:
    assert await refusal(peers_311, connect(flags, *payload)) == []


@v311("3.1.3-3", "3.1.4-1")
async def test_v311_mqtt_3_1_3_3_connect_without_a_client_id_closes(peers_311: Peers) -> None:
    assert await refusal(peers_311, connect(CLEAN)) == []


@pytest.mark.parametrize(
    "data",
    [
        b"\x10\x00",
        frame(0x10, b"\x00\x04MQTT"),
        frame(0x10, b"\x00\x04MQTT\x04\x02\x00"),
        connect(CLEAN, b"\x00\x05c"),
        connect(CLEAN, ID, b"\x00"),
        connect(CLEAN | WILL, ID),
        connect(CLEAN | WILL | 0x18, ID, text("a"), text("")),
    ],
    ids=["empty", "name only", "half a keep alive", "half a client id", "one byte more", "no will", "QoS 3"],
)
@v311("3.1.4-1")
async def test_v311_mqtt_3_1_4_1_connect_of_another_format_is_closed_without_an_answer(
    peers_311: Peers, data: bytes
) -> None:
    assert await refusal(peers_311, data) == []


@pytest.mark.parametrize(
    "data",
    [connect(CLEAN | WILL, ID, text("a/#"), text("")), b"\x10\xff\xff\xff\x7f\x00\x04MQTT\x04\x02\x00\x00"],
    ids=["will with a wildcard", "larger than any that is taken"],
)
@v311("3.2.2-6")
async def test_v311_mqtt_3_2_2_6_what_no_code_fits_is_closed_without_an_answer(
    peers_311: Peers, data: bytes
) -> None:
    assert await refusal(peers_311, data) == []


# Client identifiers


@pytest.mark.parametrize("client_id", [*"0azAZ9", ALPHABET[:23], ALPHABET[23:46], ALPHABET[-23:]])
@v311("3.1.3-5")
async def test_v311_mqtt_3_1_3_5_short_client_ids_of_letters_and_digits_are_taken(
    peers_311: Peers, client_id: str
) -> None:
    peer = await peers_311.connect(client_id)
    assert await peer.fence() == []


@v311("3.1.3-6")
async def test_v311_mqtt_3_1_3_6_clients_without_an_id_get_one_each(peers_311: Peers, name: str) -> None:
    nameless = [await peers_311.connect("") for _ in range(3)]
    for peer in nameless:
        assert await peer.subscribe(name) == (0,)
    await (await peers_311.connect()).publish(name, b"x")
    assert [payloads(await peer.fence()) for peer in nameless] == [[b"x"]] * 3


@v311("3.1.3-7", "3.1.3-8", "3.1.3-9", "3.2.2-5")
async def test_v311_mqtt_3_1_3_8_session_without_an_id_is_refused_with_code_2(peers_311: Peers) -> None:
    assert await peers_311.refused(Connect("", Version.V311, clean_start=False)) == [ConnAck(False, 2)]


# Let in


@v311("3.1.4-4")
async def test_v311_mqtt_3_1_4_4_accepted_connect_is_answered_with_code_0(
    peers_311: Peers, name: str
) -> None:
    peer = await peers_311.open()
    await peer.send(Connect(name, Version.V311))
    assert await peer.receive(ConnAck) == ConnAck(False, 0)
    assert await peer.fence() == []


@v311("3.2.0-1")
async def test_v311_mqtt_3_2_0_1_connack_comes_before_everything_else(peers_311: Peers, name: str) -> None:
    publisher = await peers_311.connect()
    peer = await peers_311.connect(name, clean=False)
    await peer.subscribe(name, qos=1)
    await peer.leave()
    await publisher.publish(name, b"owed", retain=True)
    peer = await peers_311.open()
    await peer.send(Connect(name, Version.V311, False), Subscribe(1, (Request(name),)), PingReq())
    assert await peer.take() == ConnAck(True, 0)
    rest = [await peer.take() for _ in range(4)]
    assert sorted(type(packet).__name__ for packet in rest) == ["PingResp", "Publish", "Publish", "SubAck"]


# Keep alive


@v311("3.1.2-24")
async def test_v311_mqtt_3_1_2_24_silent_client_is_dropped_as_if_its_link_broke(
    peers_311: Peers, name: str
) -> None:
    watcher = await peers_311.connect()
    await watcher.subscribe(name)
    silent = await peers_311.connect(keep_alive=1, will=Will(name, b"silent"))
    pinging = await peers_311.connect(keep_alive=1, will=Will(name, b"pinging"))
    publishing = await peers_311.connect(keep_alive=1, will=Will(name, b"publishing"))
    unlimited = await peers_311.connect(keep_alive=0, will=Will(name, b"unlimited"))
    ended = asyncio.create_task(silent.last_words())
    while not ended.done():
        await pinging.send(PingReq())
        await publishing.send(Publish(f"{name}/news", b"x"))
        await asyncio.wait([ended], timeout=0.3)
    assert await ended == []
    assert payloads(await watcher.fence()) == [b"silent"]
    for peer in (publishing, unlimited):
        assert await peer.fence() == []
    assert set(map(type, await pinging.fence())) <= {PingResp}


@v311("3.12.4-1")
async def test_v311_mqtt_3_12_4_1_every_ping_is_answered(peers_311: Peers) -> None:
    peer = await peers_311.connect()
    await peer.send(*[PingReq()] * 20, Subscribe(1, (Request("a"),)))
    answers = [await peer.take() for _ in range(21)]
    assert answers.count(PingResp()) == 20
    assert answers.count(SubAck(1, (0,))) == 1
