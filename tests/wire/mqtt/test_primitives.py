"""Integers, strings and packet identifiers: the data types of section 1.5."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.mqtt.primitives import (
    Body,
    decode_text,
    encode_blob,
    encode_packet_id,
    encode_text,
    encode_varint,
    take_varint,
)
from penstock.wire.mqtt.reasons import MalformedPacket
from tests.wire.mqtt.strategies import texts, thorough

VARINTS = [  # MQTT 5 table 1-1
    (0, b"\x00"),
    (127, b"\x7f"),
    (128, b"\x80\x01"),
    (16_383, b"\xff\x7f"),
    (16_384, b"\x80\x80\x01"),
    (2_097_151, b"\xff\xff\x7f"),
    (2_097_152, b"\x80\x80\x80\x01"),
    (268_435_455, b"\xff\xff\xff\x7f"),
]


@pytest.mark.parametrize(("value", "data"), VARINTS)
def test_integers_are_as_long_as_the_standard_says(value: int, data: bytes) -> None:
    assert encode_varint(value) == data
    assert take_varint(data, 0) == (value, len(data))
    assert take_varint(b"\xff" + data + b"\xff", 1) == (value, len(data) + 1)


@pytest.mark.parametrize(("value", "data"), VARINTS)
def test_an_integer_cut_short_waits_for_more(value: int, data: bytes) -> None:
    for size in range(len(data)):
        assert take_varint(data[:size], 0) is None
        assert take_varint(data, 0, size) is None


@thorough
@given(st.integers(0, 268_435_455))
def test_integers_survive_the_round_trip(value: int) -> None:
    encoded = encode_varint(value)
    assert take_varint(encoded, 0) == (value, len(encoded))


@pytest.mark.parametrize("value", [-1, 268_435_456])
def test_integers_out_of_range_are_not_written(value: int) -> None:
    with pytest.raises(ValueError):
        encode_varint(value)


@pytest.mark.parametrize("data", [b"\x80\x00", b"\x81\x80\x00", b"\xff\xff\xff\x00", b"\x80\x80\x80\x00"])
def test_integers_longer_than_needed_are_malformed(data: bytes) -> None:  # MQTT-1.5.5-1
    with pytest.raises(MalformedPacket, match="shortest"):
        take_varint(data, 0)


@pytest.mark.parametrize("data", [b"\x80\x80\x80\x80", b"\xff\xff\xff\xff\x01"])
def test_integers_of_five_bytes_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedPacket, match="four"):
        take_varint(data, 0)


@thorough
@given(texts)
def test_text_survives_the_round_trip(text: str) -> None:
    assert Body(encode_text(text)).text() == text


@pytest.mark.parametrize(
    "data",
    [
        b"\x80",
        b"\xc0\x80",
        b"\xc1\xbf",
        b"\xe0\x80\xaf",
        b"\xe2\x82",
        b"\xed\xa0\x80",
        b"\xed\xbf\xbf",
        b"\xf0\x80\x80\xaf",
        b"\xf4\x90\x80\x80",
        b"\xf8\x88\x80\x80\x80",
        b"\xfe",
        b"\xff",
        b"a\x00b",
    ],
)
def test_text_that_is_not_clean_utf8_is_malformed(data: bytes) -> None:  # MQTT-1.5.4-1, -2
    with pytest.raises(MalformedPacket):
        decode_text(data)


@pytest.mark.parametrize("text", ["\ufeff", "a\ufeffb", "\uffff", "\U0010ffff", "e\u0301", "\u00e9", "\x01"])
def test_no_character_is_dropped_or_replaced(text: str) -> None:  # MQTT-1.5.4-3, MQTT-4.7.3-4
    assert decode_text(text.encode()) == text


def test_text_with_u0000_is_not_written() -> None:
    with pytest.raises(ValueError, match=r"U\+0000"):
        encode_text("a\0")


def test_the_longest_blob_has_65535_bytes() -> None:
    assert Body(encode_blob(bytes(65_535))).blob() == bytes(65_535)
    with pytest.raises(ValueError, match="65536"):
        encode_blob(bytes(65_536))


@pytest.mark.parametrize("value", [0, -1, 65_536])
def test_packet_identifiers_out_of_range_are_not_written(value: int) -> None:
    with pytest.raises(ValueError, match="packet identifier"):
        encode_packet_id(value)


def test_a_body_gives_its_values_one_after_the_other_and_never_beyond_its_end() -> None:
    body = Body(b"..\x01\x00\x02\x00\x00\x00\x03\x80\x01\x00\x01a\x00\x05rest!more", 2, 20)
    assert (body.byte(), body.short(), body.long(), body.varint()) == (1, 2, 3, 128)
    assert (body.text(), body.packet_id()) == ("a", 5)
    assert body
    with pytest.raises(MalformedPacket):
        body.finish()
    assert body.rest() == b"rest"
    assert not body
    body.finish()
    for take in (body.byte, body.short, body.long, body.varint, body.text, body.blob, body.section):
        with pytest.raises(MalformedPacket):
            take()


def test_a_section_ends_where_it_says_and_the_body_goes_on_behind_it() -> None:
    body = Body(b"\x02abc")
    section = body.section()
    assert section.rest() == b"ab"
    assert body.rest() == b"c"
    with pytest.raises(MalformedPacket):
        Body(b"\x03ab").section()
