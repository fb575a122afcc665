"""Frames are a stream of bytes, however they are cut; what breaks the rules has its close code."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from penstock.wire.websocket.encoding import PONG, binary_header, close_payload, control_frame
from penstock.wire.websocket.frames import FrameReader
from tests.net.websocket.peers import MIB, frame

BIG = 256 * MIB
CLOSE, CONT, PING, TEXT = Opcode.CLOSE, Opcode.CONT, Opcode.PING, Opcode.TEXT
BROKEN = {
    "not masked": (b"\x82\x01a", 1002),
    "not masked and empty": (b"\x82\x00", 1002),
    "first reserved bit": (b"\xc2\x81" + bytes(5), 1002),
    "second reserved bit": (b"\xa2\x81" + bytes(5), 1002),
    "third reserved bit": (b"\x92\x81" + bytes(5), 1002),
    "unknown opcode for data": (b"\x83\x80" + bytes(4), 1002),
    "unknown opcode for control": (b"\x8b\x80" + bytes(4), 1002),
    "long ping": (b"\x89\xfe\x00\x7e" + bytes(130), 1002),
    "fragmented ping": (b"\x09\x81" + bytes(5), 1002),
    "continuation of nothing": (frame(b"a", CONT), 1002),
    "continuation after the last": (
        frame(b"a", is_final=False) + frame(b"b", CONT) + frame(b"c", CONT),
        1002,
    ),
    "message within a message": (frame(b"a", is_final=False) + frame(b"b"), 1002),
    "close frame of one byte": (frame(b"\x03", CLOSE), 1002),
    "close code that is none": (frame(b"\x00\x01", CLOSE), 1002),
    "close code for inside use": (frame(b"\x03\xed", CLOSE), 1002),
    "close reason that is no text": (frame(b"\x03\xe8\xff", CLOSE), 1007),
    "frame above the limit": (b"\x82\xff" + (MIB + 1).to_bytes(8, "big") + bytes(4), 1009),
    "frame of 256 MiB": (b"\x82\xff" + BIG.to_bytes(8, "big"), 1009),
    "frame of impossible size": (b"\x82\xff" + b"\xff" * 8, 1009),
}
broken = pytest.mark.parametrize(("data", "code"), BROKEN.values(), ids=BROKEN)


def read_in_pieces(reader: FrameReader, data: bytes, sizes: list[int]) -> bytes:
    """Feed pieces of these sizes, over and over; a reader that has ended is fed no more."""
    payload, position, turn = b"", 0, 0
    while position < len(data) and reader.error is None and reader.close is None:
        stop = position + sizes[turn % len(sizes)]
        payload += reader.feed(data[position:stop])
        position, turn = stop, turn + 1
    return payload


fragments = st.lists(st.one_of(st.binary(max_size=20), st.binary(min_size=120, max_size=300)), min_size=1)


@given(
    messages=st.lists(fragments, max_size=5),
    has_pings=st.booleans(),
    sizes=st.lists(st.integers(1, 200), min_size=1),
)
def test_payload_comes_out_once_and_in_order_however_frames_are_cut(
    messages: list[list[bytes]], has_pings: bool, sizes: list[int]
) -> None:
    data = b""
    for message in messages:
        for number, fragment in enumerate(message):
            opcode = CONT if number else Opcode.BINARY
            data += frame(fragment, opcode, is_final=number == len(message) - 1)
            data += frame(b"still there?", PING) if has_pings else b""
    reader = FrameReader(MIB)
    assert read_in_pieces(reader, data, sizes) == b"".join(part for message in messages for part in message)
    assert reader.error is None
    assert reader.pings == [b"still there?"] * (sum(map(len, messages)) if has_pings else 0)


def test_a_large_frame_is_read_like_a_small_one() -> None:
    payload = bytes(range(256)) * 1024
    assert read_in_pieces(FrameReader(MIB), frame(payload) + frame(b"next"), [65_537]) == payload + b"next"


def test_payload_is_handed_on_before_its_frame_is_whole() -> None:
    reader = FrameReader(MIB)
    whole = frame(b"0123456789" * 10_000)
    assert reader.feed(whole[:20_014]) == b"0123456789" * 2_000
    assert reader.feed(whole[20_014:20_017]) == b"012"
    assert reader.feed(whole[20_017:]) == b"3456789" + b"0123456789" * 7_999


@broken
@pytest.mark.parametrize("sizes", [[1], [1_000]], ids=["byte by byte", "at once"])
def test_a_broken_frame_has_its_close_code(data: bytes, code: int, sizes: list[int]) -> None:
    reader = FrameReader(MIB)
    read_in_pieces(reader, frame(b"before") + data, sizes)
    assert reader.error is not None
    assert reader.error.code == code


@broken
def test_close_codes_are_those_of_the_library(data: bytes, code: int) -> None:
    engine = ServerProtocol(state=State.OPEN, max_size=MIB)
    engine.receive_data(data)
    assert engine.close_sent is not None
    assert engine.close_sent.code == code


@pytest.mark.parametrize("is_final", [True, False])
def test_a_text_frame_is_refused(is_final: bool) -> None:
    reader = FrameReader(MIB)  # MQTT-6.0.0-1
    reader.feed(frame(b"text", TEXT, is_final=is_final)[:2])
    assert reader.error is not None
    assert reader.error.code == 1003


def test_what_came_before_a_broken_frame_is_handed_on() -> None:
    reader = FrameReader(MIB)
    assert reader.feed(frame(b"good") + frame(b"text", TEXT) + frame(b"late")) == b"good"


def test_a_frame_that_is_too_large_is_refused_by_its_header_alone() -> None:
    reader = FrameReader(MIB)
    header = frame(bytes(MIB + 1))[:10]
    reader.feed(header[:9])
    assert reader.error is None
    assert reader.feed(header[9:]) == b""
    assert reader.error is not None
    assert reader.error.code == 1009


def test_the_limit_is_for_a_frame_and_not_for_a_message() -> None:
    reader = FrameReader(1_000)
    rest = frame(bytes(1_000), CONT, is_final=False) * 50
    assert len(reader.feed(frame(bytes(1_000), is_final=False) + rest)) == 51_000
    assert reader.error is None


def test_after_a_close_frame_nothing_is_read() -> None:
    reader = FrameReader(MIB)
    said = close_payload(1000, "bye")
    assert reader.feed(frame(b"last") + frame(said, CLOSE) + frame(b"late") + b"\xff\xff") == b"last"
    assert (reader.close, reader.error) == (said, None)


def test_a_close_frame_may_be_empty_and_may_end_a_message_early() -> None:
    reader = FrameReader(MIB)
    assert reader.feed(frame(b"begun", is_final=False) + frame(b"", CLOSE)) == b"begun"
    assert (reader.close, reader.error) == (b"", None)


def test_every_ping_is_to_be_answered_in_order() -> None:
    reader = FrameReader(MIB)
    reader.feed(frame(b"1", PING) + frame(b"2", PING) + frame(b"unasked", Opcode.PONG))
    assert reader.pings == [b"1", b"2"]


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, MIB])
def test_what_is_written_is_understood_by_a_client(size: int) -> None:
    payload = bytes(size)
    client = ClientProtocol(parse_uri("ws://localhost/"), state=State.OPEN, max_size=None)
    client.receive_data(binary_header(size) + payload + control_frame(PONG, b"pong"))
    client.receive_data(control_frame(CLOSE, close_payload(1003, "reason " * 100)))
    frames = [event for event in client.events_received() if isinstance(event, Frame)]
    assert [(each.opcode, bytes(each.data)) for each in frames[:2]] == [
        (Opcode.BINARY, payload),
        (Opcode.PONG, b"pong"),
    ]
    assert client.close_rcvd is not None
    assert client.close_rcvd.code == 1003
