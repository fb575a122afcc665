"""MQTT 5, section 3.1: CONNECT, its flags and its fields."""

from pathlib import Path

import pytest
from argon2 import PasswordHasher

from penstock.common.scram import FEWEST_ITERATIONS, METHOD, ScramClient, make_keys
from penstock.core.access.passwords import encode_keys
from penstock.wire.mqtt import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PacketProperties,
    PingReq,
    PubAck,
    Publish,
    ReasonCode,
    Request,
    Subscribe,
    Unsubscribe,
    Version,
    Will,
)
from tests.conformance.endings import ending_of
from tests.conformance.statements import v5
from tests.conformance.v5_bytes import (
    CLEAN,
    NOTHING,
    PASSWORD,
    USER,
    WILL,
    WILL_RETAIN,
    connect,
    refusal,
    text,
)
from tests.doors.mqtt.peers import Peers
from tests.support.servers import RunningServer, StartServer

MALFORMED = ReasonCode.MALFORMED_PACKET
BAD_TEXTS = [b"\xff", b"a\xed\xa0\x80", b"a\x00"]
LETTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

every_bad_text = pytest.mark.parametrize("bad", BAD_TEXTS)


@pytest.fixture(scope="module")
def guarded(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> RunningServer:
    """A server that knows nobody but alice."""
    file: Path = tmp_path_factory.mktemp("access") / "passwords"
    hashed = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1).hash("secret")
    keys = encode_keys(make_keys("secret", FEWEST_ITERATIONS))
    file.write_text(f"alice:{hashed}:{keys}\n", encoding="utf-8")
    return start_server({"access": {"password_file": str(file)}})


# The first packet, and the only one


@v5("3.1.0-1")
@pytest.mark.parametrize(
    "packet",
    [
        Publish("t", b"x"),
        Subscribe(1, (Request("t"),)),
        Unsubscribe(1, ("t",)),
        PubAck(1),
        PingReq(),
        Disconnect(),
        Auth(),
    ],
    ids=lambda packet: type(packet).__name__,
)
async def test_v5_mqtt_3_1_0_1_anything_but_connect_first_closes_the_connection(
    peers: Peers, packet: Packet
) -> None:
    peer = await peers.open()
    await peer.send(packet)
    assert await peer.last_words() == []


@v5("3.1.0-2")
async def test_v5_mqtt_3_1_0_2_second_connect_is_a_protocol_error(peers: Peers, name: str) -> None:
    peer = await peers.connect(name)
    await peer.send(Connect(name, Version.V5))
    assert await ending_of(peer) == ReasonCode.PROTOCOL_ERROR


# Name, version and flags


@v5("3.1.2-1")
@pytest.mark.parametrize("name", ["MQTX", "mqtt", "", "MQTT5", "HTTP"])
async def test_v5_mqtt_3_1_2_1_other_protocol_is_closed_with_no_other_word_than_its_version(
    peers: Peers, name: str
) -> None:
    peer = await peers.open()
    await peer.send_bytes(connect(text("c"), name=name))
    reasons = [packet.reason for packet in await peer.last_words() if isinstance(packet, ConnAck)]
    assert reasons == [ReasonCode.UNSUPPORTED_PROTOCOL_VERSION]  # it may be left out


@v5("3.1.2-2")
@pytest.mark.parametrize("level", [6, 7, 0x7F])
async def test_v5_mqtt_3_1_2_2_version_that_is_not_known_is_refused(peers: Peers, level: int) -> None:
    reason = await refusal(peers, connect(text("c"), level=level))
    assert reason == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION


@v5("3.1.2-3")
async def test_v5_mqtt_3_1_2_3_reserved_flag_is_malformed(peers: Peers) -> None:
    assert await refusal(peers, connect(text("c"), flags=CLEAN | 1)) == MALFORMED


@v5("3.1.2-9")
@pytest.mark.parametrize(
    "fields",
    [(), (NOTHING,), (NOTHING, text("t")), (text("t"), text("x"))],
    ids=["no will", "only properties", "no payload", "no properties"],
)
async def test_v5_mqtt_3_1_2_9_will_flag_without_all_fields_of_the_will_is_malformed(
    peers: Peers, fields: tuple[bytes, ...]
) -> None:
    assert await refusal(peers, connect(text("c"), *fields, flags=CLEAN | WILL)) == MALFORMED


@v5("3.1.2-9")
async def test_v5_mqtt_3_1_2_9_fields_of_a_will_without_its_flag_are_malformed(peers: Peers) -> None:
    assert await refusal(peers, connect(text("c"), NOTHING, text("t"), text("x"))) == MALFORMED


@v5("3.1.2-11")
@pytest.mark.parametrize("qos", [1, 2, 3])
async def test_v5_mqtt_3_1_2_11_will_qos_without_a_will_is_malformed(peers: Peers, qos: int) -> None:
    assert await refusal(peers, connect(text("c"), flags=CLEAN | qos << 3)) == MALFORMED


@v5("3.1.2-12")
async def test_v5_mqtt_3_1_2_12_will_qos_3_is_malformed(peers: Peers) -> None:
    will = NOTHING + text("t") + text("x")
    assert await refusal(peers, connect(text("c"), will, flags=CLEAN | WILL | 3 << 3)) == MALFORMED


@v5("3.1.2-12")
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_v5_mqtt_3_1_2_12_will_has_the_qos_of_its_flags(peers: Peers, name: str, qos: int) -> None:
    watcher = await peers.connect()
    await watcher.subscribe(name, qos=2)
    peer = await peers.open()
    will = NOTHING + text(name) + text("x")
    await peer.send_bytes(connect(text(name), will, flags=CLEAN | WILL | qos << 3))
    await peer.receive(ConnAck)
    await peer.cut()
    assert (await watcher.receive(Publish)).qos == qos


@v5("3.1.2-13")
async def test_v5_mqtt_3_1_2_13_will_retain_without_a_will_is_malformed(peers: Peers) -> None:
    assert await refusal(peers, connect(text("c"), flags=CLEAN | WILL_RETAIN)) == MALFORMED


@v5("3.1.2-16", "3.1.2-18")
@pytest.mark.parametrize(
    ("flags", "fields"),
    [
        (0, (text("user"),)),
        (PASSWORD, (text("user"), text("secret"))),
        (USER, (text("user"), text("secret"))),
    ],
    ids=["user name", "user name before a password", "password"],
)
async def test_v5_mqtt_3_1_2_16_field_without_its_flag_is_malformed(
    peers: Peers, flags: int, fields: tuple[bytes, ...]
) -> None:
    assert await refusal(peers, connect(text("c"), *fields, flags=CLEAN | flags)) == MALFORMED


@v5("3.1.2-17", "3.1.2-19")
@pytest.mark.parametrize(
    ("flags", "fields"),
    [(USER, ()), (PASSWORD, ()), (USER | PASSWORD, (text("user"),))],
    ids=["user name", "password", "password after a user name"],
)
async def test_v5_mqtt_3_1_2_17_flag_without_its_field_is_malformed(
    peers: Peers, flags: int, fields: tuple[bytes, ...]
) -> None:
    assert await refusal(peers, connect(text("c"), *fields, flags=CLEAN | flags)) == MALFORMED


@v5("3.1.2-18")
async def test_v5_mqtt_3_1_2_18_password_needs_no_user_name(peers: Peers, name: str) -> None:
    peer = await peers.connect(name, password=b"\x00\xff")
    assert peer.connack.reason == 0


@v5("3.1.2-30")
async def test_v5_mqtt_3_1_2_30_nothing_is_taken_before_an_authentication_is_over(
    peers: Peers, name: str
) -> None:
    watcher = await peers.connect()
    await watcher.subscribe(name)
    peer = await peers.open()
    asked = PacketProperties(authentication_method="none that exists")
    await peer.send(Connect(name, Version.V5, properties=asked), Publish(name, b"too early"))
    (connack,) = await peer.last_words()
    assert isinstance(connack, ConnAck)
    assert connack.reason == ReasonCode.BAD_AUTHENTICATION_METHOD
    assert await watcher.fence() == []


@v5("3.1.2-30", "3.2.0-1")
@pytest.mark.parametrize(
    "packet",
    [Publish("t", b"x"), Subscribe(1, (Request("t"),)), PingReq()],
    ids=lambda one: type(one).__name__,
)
async def test_v5_mqtt_3_1_2_30_anything_but_auth_during_an_authentication_is_a_protocol_error(
    guarded: RunningServer, peers: Peers, packet: Packet
) -> None:
    peer = await peers.open(port=guarded.port)
    first = ScramClient("alice", "secret").begin()
    given = PacketProperties(authentication_method=METHOD, authentication_data=first)
    await peer.send(Connect("", Version.V5, properties=given))
    assert (await peer.receive(Auth)).reason == ReasonCode.CONTINUE_AUTHENTICATION
    await peer.send(packet)
    (connack,) = await peer.last_words()
    assert isinstance(connack, ConnAck)
    assert connack.reason == ReasonCode.PROTOCOL_ERROR


# Fields of the payload


@v5("3.1.3-1")
async def test_v5_mqtt_3_1_3_1_fields_are_read_in_their_order(
    guarded: RunningServer, peers: Peers, name: str
) -> None:
    watcher = await peers.connect(user="alice", password=b"secret", port=guarded.port)
    await watcher.subscribe(name)
    peer = await peers.open(port=guarded.port)
    will = b"\x05\x03" + text("ab") + text(name) + text("gone")
    fields = text(name) + will + text("alice") + text("secret")
    await peer.send_bytes(connect(fields, flags=CLEAN | WILL | USER | PASSWORD))
    assert (await peer.receive(ConnAck)).reason == 0
    await peer.cut()
    message = await watcher.receive(Publish)
    assert message == Publish(name, b"gone", properties=PacketProperties(content_type="ab"))


@v5("3.1.3-1")
async def test_v5_mqtt_3_1_3_1_will_before_the_client_id_is_malformed(peers: Peers) -> None:
    will = NOTHING + text("t") + text("x")
    assert await refusal(peers, connect(will, text("client"), flags=CLEAN | WILL)) == MALFORMED


@v5("3.1.3-1")
async def test_v5_mqtt_3_1_3_1_password_before_the_user_name_is_refused(
    guarded: RunningServer, peers: Peers
) -> None:
    fields = text("c"), text("secret"), text("alice")
    reason = await refusal(peers, connect(*fields, flags=CLEAN | USER | PASSWORD), guarded.port)
    assert reason == ReasonCode.BAD_USER_NAME_OR_PASSWORD


@v5("3.1.3-3")
async def test_v5_mqtt_3_1_3_3_connect_without_a_client_id_is_malformed(peers: Peers) -> None:
    assert await refusal(peers, connect()) == MALFORMED


@v5("3.1.3-4", "3.1.3-8")
@every_bad_text
async def test_v5_mqtt_3_1_3_4_client_id_that_is_no_string_is_refused(peers: Peers, bad: bytes) -> None:
    assert await refusal(peers, connect(text(bad))) == MALFORMED


@v5("3.1.3-5")
@pytest.mark.parametrize("client_id", ["0", "z", *(LETTERS[start : start + 23] for start in (0, 23, 39))])
async def test_v5_mqtt_3_1_3_5_letters_and_digits_make_a_client_id(peers: Peers, client_id: str) -> None:
    peer = await peers.connect(client_id)
    assert peer.connack.properties.assigned_client_id is None


@v5("3.1.3-6", "3.1.3-7", "3.2.2-16")
async def test_v5_mqtt_3_1_3_6_client_without_an_id_is_given_one_of_its_own(peers: Peers, name: str) -> None:
    several = [await peers.connect("", clean=clean) for clean in (True, True, False, False)]
    told = {peer.connack.properties.assigned_client_id for peer in several}
    assert len(told) == len(several)
    assert not {None, ""} & told


@v5("3.1.3-7")
async def test_v5_mqtt_3_1_3_7_id_that_was_given_is_the_one_of_the_session(peers: Peers, name: str) -> None:
    peer = await peers.connect("", expiry=100)
    await peer.subscribe(name, qos=1)
    await peer.leave()
    told = peer.connack.properties.assigned_client_id
    assert told is not None
    again = await peers.connect(told, clean=False)
    assert again.connack.session_present
    await again.send(Publish(name, b"still subscribed"))
    assert (await again.receive(Publish)).payload == b"still subscribed"


@v5("3.1.3-11")
@every_bad_text
async def test_v5_mqtt_3_1_3_11_will_topic_that_is_no_string_is_malformed(peers: Peers, bad: bytes) -> None:
    will = NOTHING + text(bad) + text("x")
    assert await refusal(peers, connect(text("c"), will, flags=CLEAN | WILL)) == MALFORMED


@v5("3.1.3-12")
@every_bad_text
async def test_v5_mqtt_3_1_3_12_user_name_that_is_no_string_is_malformed(peers: Peers, bad: bytes) -> None:
    assert await refusal(peers, connect(text("c"), text(bad), flags=CLEAN | USER)) == MALFORMED


# The answer


@v5("3.1.4-1")
@pytest.mark.parametrize(
    "data",
    [
        connect(text("c"), b"more"),
        connect(b"\x00\x09short"),
        connect(text("c"), properties=b"\x01\x21"),
        connect(text("c"), properties=b"\x7f"),
        connect(text("c"), properties=b"\x02\x23\x01"),
        connect(text("c"), properties=b"\x01\x7e"),
    ],
    ids=[
        "bytes after the end",
        "text cut off",
        "property cut off",
        "properties cut off",
        "of PUBLISH",
        "none",
    ],
)
async def test_v5_mqtt_3_1_4_1_connect_of_another_format_is_malformed(peers: Peers, data: bytes) -> None:
    assert await refusal(peers, data) == MALFORMED


@v5("3.1.4-2")
@pytest.mark.parametrize(("user", "password"), [("alice", b"guessed"), ("mallory", b"secret"), (None, None)])
async def test_v5_mqtt_3_1_4_2_client_that_nobody_knows_is_refused(
    guarded: RunningServer, peers: Peers, user: str | None, password: bytes | None
) -> None:
    packet = Connect("", Version.V5, user_name=user, password=password)
    reason = await refusal(peers, packet, guarded.port)
    assert reason == ReasonCode.BAD_USER_NAME_OR_PASSWORD


@v5("3.1.4-2")
async def test_v5_mqtt_3_1_4_2_will_that_its_client_may_not_publish_is_refused(
    peers: Peers, name: str
) -> None:
    packet = Connect(name, Version.V5, will=Will("$SYS/mine", b""))
    assert await refusal(peers, packet) == ReasonCode.NOT_AUTHORIZED


@v5("3.1.4-5")
async def test_v5_mqtt_3_1_4_5_valid_connect_is_answered_with_success(
    guarded: RunningServer, peers: Peers, name: str
) -> None:
    peer = await peers.open(port=guarded.port)
    will = Will(name, b"", 1, properties=PacketProperties(will_delay=1))
    await peer.send(Connect(name, Version.V5, True, 10, "alice", b"secret", will))
    assert (await peer.receive(ConnAck)).reason == ReasonCode.SUCCESS


@v5("3.1.4-6")
async def test_v5_mqtt_3_1_4_6_what_follows_a_refused_connect_is_ignored(peers: Peers, name: str) -> None:
    watcher = await peers.connect()
    await watcher.subscribe(name)
    peer = await peers.open()
    bad_will = Will("$SYS/mine", b"")
    await peer.send(Connect(name, Version.V5, will=bad_will), Publish(name, b"x"), PingReq())
    assert [type(packet) for packet in await peer.last_words()] == [ConnAck]
    assert await watcher.fence() == []
