"""MQTT 5, sections 1.5.4 and 1.5.7: strings and pairs of strings."""

from collections.abc import Callable

import pytest

from penstock.wire.mqtt import PacketProperties, Publish, ReasonCode
from tests.conformance.endings import ending_after
from tests.conformance.statements import v5
from tests.conformance.v5_bytes import NOTHING, frame, publish, section, text
from tests.doors.mqtt.peers import Peers

BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"
NOT_UTF_8 = {
    "a byte that never occurs": b"a\xffb",
    "the rest is missing": b"a\xc3",
    "longer than necessary": b"\xc0\xaf",
    "first surrogate": b"\xed\xa0\x80",
    "last surrogate": b"\xed\xbf\xbf",
    "pair of surrogates": b"\xed\xa0\xbd\xed\xb8\x80",
    "beyond U+10FFFF": b"\xf4\x90\x80\x80",
}
FIELDS: dict[str, Callable[[bytes], bytes]] = {
    "topic": publish,
    "content type": lambda value: publish("t", b"\x03" + text(value)),
    "response topic": lambda value: publish("t", b"\x08" + text(value)),
    "filter": lambda value: frame(0x82, b"\x00\x01", NOTHING, text(value), b"\x00"),
    "filter to unsubscribe": lambda value: frame(0xA2, b"\x00\x01", NOTHING, text(value)),
    "reason string": lambda value: frame(0x40, b"\x00\x01\x00", section(b"\x1f", text(value))),
    "last reason string": lambda value: frame(0xE0, b"\x04", section(b"\x1f", text(value))),
}
"""A packet with this in the place of a string."""
PAIRS: dict[str, Callable[[bytes], bytes]] = {
    "name": lambda value: publish("t", b"\x26", text(value), text("value")),
    "value": lambda value: publish("t", b"\x26", text("name"), text(value)),
}

every_field = pytest.mark.parametrize("field", FIELDS)


@v5("1.5.4-1")
@pytest.mark.parametrize("bad", NOT_UTF_8)
async def test_v5_mqtt_1_5_4_1_topic_that_is_not_utf_8_is_malformed(peers: Peers, bad: str) -> None:
    peer = await peers.connect()
    assert await ending_after(peer, publish(NOT_UTF_8[bad])) == ReasonCode.MALFORMED_PACKET


@v5("1.5.4-1")
@every_field
async def test_v5_mqtt_1_5_4_1_surrogate_is_malformed_in_every_string(peers: Peers, field: str) -> None:
    peer = await peers.connect()
    assert await ending_after(peer, FIELDS[field](b"a\xed\xa0\x80")) == ReasonCode.MALFORMED_PACKET


@v5("1.5.4-1")
@pytest.mark.parametrize("character", ["ü", "水", "\U0001f600", "\U0010fffd", "\ud7ff", "\ue000"])
async def test_v5_mqtt_1_5_4_1_string_is_passed_on_character_by_character(
    peers: Peers, name: str, character: str
) -> None:
    peer, given = await peers.connect(), PacketProperties(content_type=character)
    await peer.subscribe(f"{name}/+")
    await peer.send(Publish(f"{name}/{character}", properties=given))
    assert await peer.receive(Publish) == Publish(f"{name}/{character}", properties=given)


@v5("1.5.4-2")
@every_field
async def test_v5_mqtt_1_5_4_2_null_character_is_malformed_in_every_string(peers: Peers, field: str) -> None:
    peer = await peers.connect()
    assert await ending_after(peer, FIELDS[field](b"a\x00b")) == ReasonCode.MALFORMED_PACKET


@v5("1.5.4-3")
async def test_v5_mqtt_1_5_4_3_byte_order_mark_is_a_character_of_the_topic(peers: Peers, name: str) -> None:
    peer, other = await peers.connect(), await peers.connect()
    await peer.subscribe(BOM + name, qos=1)
    await other.subscribe(name, qos=1)
    given = PacketProperties(content_type=f"{BOM}type", user=((BOM, f"{BOM}value{BOM}"),))
    publisher = await peers.connect()
    await publisher.publish(BOM + name, b"x", properties=given)
    message = await peer.receive(Publish)
    assert (message.topic, message.properties) == (BOM + name, given)
    assert await other.fence() == []


@v5("1.5.7-1")
@pytest.mark.parametrize("part", PAIRS)
@pytest.mark.parametrize("bad", [b"\xff", b"\xed\xa0\x80", b"\x00"])
async def test_v5_mqtt_1_5_7_1_name_and_value_of_a_pair_are_strings(
    peers: Peers, part: str, bad: bytes
) -> None:
    peer = await peers.connect()
    assert await ending_after(peer, PAIRS[part](bad)) == ReasonCode.MALFORMED_PACKET
