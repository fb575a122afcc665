"""Frames in a stream of bytes: any cut gives the same, and what is too long is refused from its header."""

import hyperframe.frame as reference
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.http2 import PREFACE, ErrorCode
from penstock.wire.http2 import frames as ours
from penstock.wire.http2.frames import FrameReader
from tests.wire.http2.raw_client import frame

LIMIT_BYTES = 16_384

drawn_frames = st.lists(
    st.tuples(st.integers(0, 255), st.integers(0, 255), st.integers(0, 2**31 - 1), st.binary(max_size=30)),
    max_size=6,
)


@given(drawn_frames, st.data())
def test_any_cut_gives_the_same_frames(drawn: list[ours.Frame], data: st.DataObject) -> None:
    stream = PREFACE + b"".join(frame(*each) for each in drawn)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    reader = FrameReader(LIMIT_BYTES)
    found = []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += reader.feed(stream[start:stop])
    assert found == drawn
    assert reader.error is None


def test_the_reserved_bit_of_a_stream_identifier_is_ignored() -> None:
    reader = FrameReader(LIMIT_BYTES)
    assert reader.feed(PREFACE + frame(0, 0, 0x80000005)) == [(0, 0, 5, b"")]


def test_a_frame_that_is_too_long_is_refused_from_its_header() -> None:
    reader = FrameReader(LIMIT_BYTES)
    longest = frame(0, 0, 1, bytes(LIMIT_BYTES))
    assert reader.feed(PREFACE + longest) == [(0, 0, 1, bytes(LIMIT_BYTES))]
    assert reader.feed(frame(6) + frame(0, 0, 1, bytes(LIMIT_BYTES + 1))[:9]) == [(6, 0, 0, b"")]
    assert reader.error is not None
    assert reader.error.reason is ErrorCode.FRAME_SIZE_ERROR
    assert reader.feed(frame(6)) == []


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n", b"P" + b"X", PREFACE[:-1] + b"\r", b"\x16\x03\x01"])
def test_what_cannot_become_the_preface_is_refused_at_once(data: bytes) -> None:
    reader = FrameReader(LIMIT_BYTES)
    assert reader.feed(data) == []
    assert reader.error is not None
    assert reader.error.reason is ErrorCode.PROTOCOL_ERROR


def test_the_beginning_of_the_preface_is_not_an_error() -> None:
    reader = FrameReader(LIMIT_BYTES)
    for index in range(len(PREFACE)):
        assert reader.feed(PREFACE[index : index + 1]) == []
        assert reader.error is None


ENCODED = {
    "RST_STREAM": (ours.encode_reset(3, 8), reference.RstStreamFrame(3, 8)),
    "WINDOW_UPDATE": (ours.encode_window_update(5, 77), reference.WindowUpdateFrame(5, 77)),
    "SETTINGS": (ours.encode_settings([(3, 9)]), reference.SettingsFrame(0, {3: 9})),
    "SETTINGS with ACK": (ours.SETTINGS_ACK, reference.SettingsFrame(0, flags=["ACK"])),
    "PING": (ours.encode_ping(b"12345678"), reference.PingFrame(0, b"12345678")),
    "PING with ACK": (
        ours.encode_ping(b"12345678", is_ack=True),
        reference.PingFrame(0, b"12345678", flags=["ACK"]),
    ),
    "GOAWAY": (ours.encode_go_away(7, 11, "calm"), reference.GoAwayFrame(0, 7, 11, b"calm")),
}


@pytest.mark.parametrize("name", ENCODED)
def test_frames_of_ours_are_those_of_another_library(name: str) -> None:
    data, expected = ENCODED[name]
    assert data == expected.serialize()


def test_a_ping_has_eight_bytes() -> None:
    with pytest.raises(ValueError, match="8 bytes"):
        ours.encode_ping(b"1234567")


def test_what_a_goodbye_says_is_read_even_if_it_is_no_text() -> None:
    assert ours.decode_go_away(b"\x80\0\0\x05\0\0\0\x0b" + b"calm\xff") == (5, 11, "calm\ufffd")
