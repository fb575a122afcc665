"""MQTT 5, sections 2.2.2, 3.1 and 3.3: properties that are wrong where they stand, in number or in value."""

from collections.abc import Callable

import pytest

from penstock.wire.mqtt import ConnAck, PacketProperties, Publish, ReasonCode
from tests.conformance.endings import ending_after
from tests.conformance.statements import v5
from tests.conformance.v5_bytes import CLEAN, WILL, connect, frame, publish, refusal, section, text
from tests.doors.mqtt.peers import Peers

MALFORMED, PROTOCOL = ReasonCode.MALFORMED_PACKET, ReasonCode.PROTOCOL_ERROR

MESSAGE = {
    "payload format": b"\x01\x01",
    "message expiry": b"\x02\x00\x00\x00\x09",
    "content type": b"\x03" + text("type"),
    "response topic": b"\x08" + text("topic"),
    "correlation data": b"\x09" + text("data"),
}
OF_CONNECT = {
    "session expiry": b"\x11\x00\x00\x00\x00",
    "authentication method": b"\x15" + text("method"),
    "problem information": b"\x17\x01",
    "response information": b"\x19\x01",
    "receive maximum": b"\x21\x00\x09",
    "topic alias maximum": b"\x22\x00\x09",
    "maximum packet size": b"\x27\x00\x00\xff\xff",
}
OF_WILL = {**MESSAGE, "will delay": b"\x18\x00\x00\x00\x09"}
OF_PUBLISH = {**MESSAGE, "topic alias": b"\x23\x00\x01"}


def willing(properties: bytes, payload: bytes = b"x") -> bytes:
    """A CONNECT with a will that has these properties."""
    return connect(text("c"), properties, text("t"), text(payload), flags=CLEAN | WILL)


EVERYTHING = range(0x80)
"""Every property identifier of one byte; user properties may stand everywhere."""
PLACES: dict[str, tuple[Callable[[bytes], bytes], bytes]] = {
    "CONNECT": (lambda given: connect(text("c"), properties=given), b"\x11\x15\x16\x17\x19\x21\x22\x26\x27"),
    "will": (willing, b"\x01\x02\x03\x08\x09\x18\x26"),
    "PUBLISH": (lambda given: frame(0x30, text("t"), given), b"\x01\x02\x03\x08\x09\x0b\x23\x26"),
    "PUBACK": (lambda given: frame(0x40, b"\x00\x01\x00", given), b"\x1f\x26"),
    "SUBSCRIBE": (lambda given: frame(0x82, b"\x00\x01", given, text("t"), b"\x00"), b"\x0b\x26"),
    "UNSUBSCRIBE": (lambda given: frame(0xA2, b"\x00\x01", given, text("t")), b"\x26"),
    "DISCONNECT": (lambda given: frame(0xE0, b"\x04", given), b"\x11\x1c\x1f\x26"),
}
"""A packet with a property section, and the properties that may stand there."""


def cases(of: dict[str, bytes]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("property", of.values(), ids=of.keys())


# Given twice


@v5("3.1.4-1", "4.13.1-1")
@cases(OF_CONNECT)
async def test_v5_property_of_connect_given_twice_is_a_protocol_error(peers: Peers, property: bytes) -> None:
    assert await refusal(peers, connect(text("c"), properties=section(property, property))) == PROTOCOL


@v5("3.1.4-1", "4.13.1-1")
async def test_v5_authentication_data_given_twice_is_a_protocol_error(peers: Peers) -> None:
    method, data = OF_CONNECT["authentication method"], b"\x16" + text("data")
    assert await refusal(peers, connect(text("c"), properties=section(method, data, data))) == PROTOCOL


@v5("3.1.4-1", "4.13.1-1")
@cases(OF_WILL)
async def test_v5_property_of_a_will_given_twice_is_a_protocol_error(peers: Peers, property: bytes) -> None:
    assert await refusal(peers, willing(section(property, property))) == PROTOCOL


@v5("4.13.1-1")
@cases(OF_PUBLISH)
async def test_v5_property_of_a_message_given_twice_is_a_protocol_error(
    peers: Peers, property: bytes
) -> None:
    assert await ending_after(await peers.connect(), publish("t", property, property)) == PROTOCOL


@v5("4.13.1-1")
async def test_v5_subscription_identifier_given_twice_is_a_protocol_error(peers: Peers) -> None:
    data = frame(0x82, b"\x00\x01", section(b"\x0b\x01\x0b\x02"), text("t"), b"\x00")
    assert await ending_after(await peers.connect(), data) == PROTOCOL


@v5("3.3.2-17", "3.1.4-5")
async def test_v5_user_property_may_be_given_as_often_as_one_likes(peers: Peers, name: str) -> None:
    pair = ("name", "value")
    peer = await peers.connect(name, properties=PacketProperties(user=(pair,) * 3))
    await peer.subscribe(name, properties=PacketProperties(user=(pair,) * 3))
    await peer.send(Publish(name, b"x", properties=PacketProperties(user=(pair,) * 3)))
    assert (await peer.receive(Publish)).properties.user == (pair,) * 3


# Values that there are not


@v5("3.1.4-1", "4.13.1-1")
@pytest.mark.parametrize(
    "property",
    [
        b"\x21\x00\x00",
        b"\x27\x00\x00\x00\x00",
        b"\x17\x02",
        b"\x17\xff",
        b"\x19\x02",
        b"\x19\xff",
        b"\x16" + text("data"),
    ],
    ids=[
        "receive maximum 0",
        "maximum packet size 0",
        "problem information 2",
        "problem information 255",
        "response information 2",
        "response information 255",
        "authentication data without a method",
    ],
)
async def test_v5_value_that_a_property_of_connect_cannot_have_is_a_protocol_error(
    peers: Peers, property: bytes
) -> None:
    assert await refusal(peers, connect(text("c"), properties=section(property))) == PROTOCOL


@v5("3.1.4-1", "4.13.1-1")
@pytest.mark.parametrize("value", [b"\x02", b"\xff"])
async def test_v5_payload_format_that_there_is_not_is_a_protocol_error(peers: Peers, value: bytes) -> None:
    assert await refusal(peers, willing(section(b"\x01", value))) == PROTOCOL
    assert await ending_after(await peers.connect(), publish("t", b"\x01", value)) == PROTOCOL


@v5("4.13.1-1")
@pytest.mark.parametrize(
    "data",
    [
        frame(0x82, b"\x00\x01", section(b"\x0b\x00"), text("t"), b"\x00"),
        frame(0x82, b"\x00\x01", section(), text("t"), b"\x30"),
        frame(0x82, b"\x00\x01", section(), text("t"), b"\x03"),
        publish(""),
        publish("", b"\x23\x00\x01"),
    ],
    ids=["identifier 0", "retain handling 3", "QoS 3", "no topic", "alias that stands for nothing"],
)
async def test_v5_value_that_a_request_cannot_have_is_a_protocol_error(peers: Peers, data: bytes) -> None:
    assert await ending_after(await peers.connect(), data) == PROTOCOL


@v5("3.1.4-5")
@pytest.mark.parametrize(
    "property",
    [b"\x21\x00\x01", b"\x21\xff\xff", b"\x22\xff\xff", b"\x27\xff\xff\xff\xff", b"\x11\xff\xff\xff\xff"],
    ids=["smallest window", "largest window", "most aliases", "largest packet", "longest session"],
)
async def test_v5_value_that_a_property_can_just_have_is_taken(
    peers: Peers, name: str, property: bytes
) -> None:
    peer = await peers.open()
    await peer.send_bytes(connect(text(name), properties=section(property)))
    assert (await peer.receive(ConnAck)).reason == ReasonCode.SUCCESS
    await peer.send_bytes(frame(0xE0, b"\x00", section(b"\x11\x00\x00\x00\x00")))


# Where they must not stand


@v5("3.1.4-1", "4.13.1-1")
@pytest.mark.parametrize("place", PLACES)
async def test_v5_property_of_another_packet_is_malformed(peers: Peers, place: str) -> None:
    make, allowed = PLACES[place]
    for identifier in EVERYTHING:
        if identifier not in allowed:
            data = make(section(bytes((identifier,)) + bytes(4)))
            is_first = data[0] == 0x10
            reason = await (refusal(peers, data) if is_first else ending_after(await peers.connect(), data))
            assert reason == MALFORMED, hex(identifier)


@v5("4.13.1-1")
@pytest.mark.parametrize("property", [b"\x81\x01\x00", b"\xff\xff\xff\x7f\x00"])
async def test_v5_property_that_nobody_knows_is_malformed(peers: Peers, property: bytes) -> None:
    assert await ending_after(await peers.connect(), publish("t", property)) == MALFORMED


@v5("3.1.4-1", "4.13.1-1")
@pytest.mark.parametrize("size", [b"\x02", b"\x7f", b"\xff\x7f", b"\xff\xff\xff\xff"])
async def test_v5_properties_longer_than_their_packet_are_malformed(peers: Peers, size: bytes) -> None:
    assert await ending_after(await peers.connect(), frame(0x30, text("t"), size, b"\x01")) == MALFORMED
    assert await refusal(peers, connect(properties=size + b"\x17")) == MALFORMED
