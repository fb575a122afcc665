"""Frames become messages, however they are cut; what breaks the rules has its close code."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

from penstock.wire.websocket.deflate import Deflate
from penstock.wire.websocket.encoding import Pinged
from penstock.wire.websocket.messages import MessageReader
from tests.net.websocket.message_peers import deflated, engine_messages, frame
from tests.net.websocket.peers import MIB

BINARY, CLOSE, CONT, PING, PONG, TEXT = (
    Opcode.BINARY,
    Opcode.CLOSE,
    Opcode.CONT,
    Opcode.PING,
    Opcode.PONG,
    Opcode.TEXT,
)
AGREED = Deflate(15, 15)
BROKEN = {
    "not masked": (b"\x81\x01a", 1002),
    "not masked and empty": (b"\x81\x00", 1002),
    "first reserved bit": (b"\xc1\x81" + bytes(5), 1002),
    "second reserved bit": (b"\xa1\x81" + bytes(5), 1002),
    "third reserved bit": (b"\x91\x81" + bytes(5), 1002),
    "all reserved bits": (b"\xf1\x81" + bytes(5), 1002),
    "reserved bit of a ping": (b"\xc9\x80" + bytes(4), 1002),
    "reserved bit of a close": (b"\xa8\x80" + bytes(4), 1002),
    **{
        f"unknown opcode {opcode}": (bytes((0x80 | opcode, 0x80)) + bytes(4), 1002)
        for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)
    },
    "long ping": (b"\x89\xfe\x00\x7e" + bytes(130), 1002),
    "fragmented ping": (b"\x09\x81" + bytes(5), 1002),
    "fragmented close": (b"\x08\x80" + bytes(4), 1002),
    "continuation of nothing": (frame(b"a", CONT), 1002),
    "open continuation of nothing": (frame(b"a", CONT, is_final=False), 1002),
    "continuation after the last": (
        frame(b"a", is_final=False) + frame(b"b", CONT) + frame(b"c", CONT),
        1002,
    ),
    "message within a message": (frame(b"a", is_final=False) + frame(b"b"), 1002),
    "binary message within a text": (frame(b"a", is_final=False) + frame(b"b", BINARY), 1002),
    "text within a binary message": (frame(b"a", BINARY, is_final=False) + frame(b"b"), 1002),
    "close frame of one byte": (frame(b"\x03", CLOSE), 1002),
    "close reason that is no text": (frame(b"\x03\xe8\xce\xba\xe1\xbd\xb9\xed\xa0\x80", CLOSE), 1007),
    "close frame of 126 bytes": (b"\x88\xfe\x00\x7e" + bytes(130), 1002),
    "text that is none": (frame(b"\xff"), 1007),
    "message above the limit": (b"\x81\xff" + (MIB + 1).to_bytes(8, "big") + bytes(4), 1009),
    "message of 256 MiB": (b"\x82\xff" + (256 * MIB).to_bytes(8, "big"), 1009),
    "message of impossible size": (b"\x81\xff" + b"\xff" * 8, 1009),
    "fragments above the limit": (frame(bytes(MIB), is_final=False) + frame(b"a", CONT), 1009),
}
CODES = [*range(1000, 1004), *range(1007, 1015), 3000, 3999, 4000, 4999]
NO_CODES = [0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535]


def read_in_pieces(reader: MessageReader, data: bytes, sizes: list[int]) -> list[str | bytes | Pinged]:
    """Feed pieces of these sizes, over and over; a reader that has ended is fed no more."""
    messages: list[str | bytes | Pinged] = []
    position, turn = 0, 0
    while position < len(data) and reader.error is None and reader.close is None:
        stop = position + sizes[turn % len(sizes)]
        messages += reader.feed(data[position:stop])
        position, turn = stop, turn + 1
    return messages


def code_of(reader: MessageReader) -> int | None:
    return None if reader.error is None else int(reader.error.code)


# Messages


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 128, 65_535, 65_536, 70_000])
def test_a_message_of_any_size_is_read(size: int) -> None:
    reader = MessageReader(MIB)
    data = frame(b"a" * size) + frame(bytes(size), BINARY) + frame("ä€😀".encode())
    assert reader.feed(data) == ["a" * size, bytes(size), "ä€😀"]
    assert read_in_pieces(reader, data, [4096]) == ["a" * size, bytes(size), "ä€😀"]


STORY = b"".join(
    [
        frame(b'{"type":"ping"}'),
        frame("Grüße, κόσμε, 😀".encode(), is_final=False),
        frame(b"there?", PING),
        frame("€".encode()[:1], CONT, is_final=False),
        frame("€".encode()[1:], CONT, is_final=False),
        frame(b"", CONT, is_final=False),
        frame(b"", PONG),
        frame(b"!", CONT),
        frame(b"\xff\x00", BINARY, is_final=False),
        frame(b"still?", PING),
        frame(b"\xfe", CONT),
        frame(b"x" * 300),
        frame(b"", BINARY),
        frame(b""),
    ]
)
TOLD = ['{"type":"ping"}', "Grüße, κόσμε, 😀€!", b"\xff\x00\xfe", "x" * 300, b"", ""]


def test_messages_cut_at_every_byte_are_the_same() -> None:
    for cut in range(len(STORY) + 1):
        reader = MessageReader(MIB)
        assert reader.feed(STORY[:cut]) + reader.feed(STORY[cut:]) == TOLD, cut
        assert (reader.pings, reader.error) == ([b"there?", b"still?"], None)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 11, 64])
def test_messages_in_small_pieces_are_the_same(size: int) -> None:
    assert read_in_pieces(MessageReader(MIB), STORY, [size]) == TOLD


def test_compressed_messages_cut_at_every_byte_are_the_same() -> None:
    text = "Grüße, Grüße, Grüße und κόσμε"
    story = deflated(text.encode()) + deflated(b"\xff" * 300, BINARY, cuts=[2, 2, 5]) + frame(b"plain")
    for cut in range(len(story) + 1):
        reader = MessageReader(MIB, deflate=AGREED)
        assert reader.feed(story[:cut]) + reader.feed(story[cut:]) == [text, b"\xff" * 300, "plain"], cut


fragments = st.lists(
    st.one_of(st.text(max_size=8), st.text(min_size=40, max_size=200)), min_size=1, max_size=4
)


@given(
    messages=st.lists(st.tuples(fragments, st.sampled_from(["text", "binary", "deflated"])), max_size=5),
    has_pings=st.booleans(),
    sizes=st.lists(st.integers(1, 200), min_size=1),
)
def test_messages_come_out_once_and_in_order_however_frames_are_cut(
    messages: list[tuple[list[str], str]], has_pings: bool, sizes: list[int]
) -> None:
    data, expected, pings = b"", [], 0
    for parts, kind in messages:
        whole = "".join(parts).encode()
        expected.append(whole if kind == "binary" else whole.decode())
        if kind == "deflated":
            data += deflated(whole, cuts=[len(part) for part in parts[1:]])
            continue
        cut = len(whole) // 2  # may be within a character
        data += frame(whole[:cut], BINARY if kind == "binary" else TEXT, is_final=False)
        data += frame(b"still there?", PING) if has_pings else b""
        data += frame(whole[cut:], CONT)
        pings += has_pings
    reader = MessageReader(MIB, deflate=AGREED)
    assert read_in_pieces(reader, data, sizes) == expected
    assert reader.error is None
    assert reader.pings == [b"still there?"] * pings


@given(
    messages=st.lists(st.one_of(st.text(max_size=200), st.binary(max_size=200)), max_size=6),
    cuts=st.lists(st.integers(0, 100), max_size=4),
    is_compressed=st.booleans(),
)
def test_what_a_client_of_others_sends_is_read(
    messages: list[str | bytes], cuts: list[int], is_compressed: bool
) -> None:
    data = b"".join(engine_messages(messages, cuts, is_compressed=is_compressed))
    reader = MessageReader(MIB, deflate=AGREED if is_compressed else None)
    assert reader.feed(data) == messages


def raw_frame(first: int, is_masked: bool, payload: bytes) -> bytes:
    """A frame with any first byte."""
    header = bytes((first, len(payload) | (0x80 if is_masked else 0)))
    return header + bytes(4) + payload if is_masked else header + payload


raw_frames = st.builds(
    raw_frame,
    st.one_of(st.sampled_from([0x81, 0x82, 0x01, 0x02, 0x00, 0x80, 0x88, 0x89]), st.integers(0, 255)),
    st.integers(0, 20).map(bool),
    st.one_of(st.text(max_size=9).map(str.encode), st.binary(max_size=9), st.just(b"\x03\xe8bye")),
)


def judged(data: bytes) -> tuple[list[bytes], int | None]:
    """Whole messages and the close code that the engine of `websockets` has for some frames."""
    engine = ServerProtocol(state=State.OPEN)
    engine.receive_data(data)
    messages, begun = [], b""
    for event in engine.events_received():
        if isinstance(event, Frame) and event.opcode in (TEXT, BINARY, CONT):
            begun += bytes(event.data)
            if event.fin:
                messages.append(begun)
                begun = b""
    code = None if engine.parser_exc is None or engine.close_sent is None else engine.close_sent.code
    return messages, code


@given(frames=st.lists(raw_frames, max_size=6), sizes=st.lists(st.integers(1, 20), min_size=1))
def test_any_frames_are_judged_as_the_library_judges_them(frames: list[bytes], sizes: list[int]) -> None:
    data = b"".join(frames)
    reader = MessageReader(1_000)
    messages = read_in_pieces(reader, data, sizes)
    plain = [message.encode() if isinstance(message, str) else message for message in messages]
    expected, code = judged(data)
    if code_of(reader) == 1007 and (code != 1007 or plain != expected):  # the engine checks no texts
        assert plain == expected[: len(plain)]
    elif reader.close is not None:  # which may come amid a message (RFC 6455, 5.4); the engine wants its end
        assert (plain, reader.error) == (expected, None)
    else:
        assert (plain, code_of(reader)) == (expected, code)


@given(data=st.binary(max_size=60), sizes=st.lists(st.integers(1, 20), min_size=1))
def test_any_bytes_are_judged_the_same_however_they_are_cut(data: bytes, sizes: list[int]) -> None:
    at_once, in_pieces = MessageReader(50, deflate=AGREED), MessageReader(50, deflate=AGREED)
    whole = read_in_pieces(at_once, data, [60])
    assert (read_in_pieces(in_pieces, data, sizes), code_of(in_pieces)) == (whole, code_of(at_once))


def test_pings_are_told_with_their_place_among_the_messages() -> None:
    reader = MessageReader(MIB)
    reader.feed(frame(b"0", PING) + frame(b"a") + frame(b"b") + frame(b"1", PING) + frame(b"2", PING))
    assert (reader.pings, reader.ping_places) == ([b"0", b"1", b"2"], [0, 2, 2])
    reader.pings.clear()
    reader.feed(frame(b"c") + frame(b"3", PING))
    assert (reader.pings, reader.ping_places) == ([b"3"], [1])


# What breaks the rules


broken = pytest.mark.parametrize(("data", "code"), BROKEN.values(), ids=BROKEN)


@broken
@pytest.mark.parametrize("sizes", [[1], [3, 4], [10_000]], ids=str)
def test_a_broken_frame_has_its_close_code(data: bytes, code: int, sizes: list[int]) -> None:
    reader = MessageReader(MIB)
    sizes = [10_000] if len(data) > MIB else sizes
    assert read_in_pieces(reader, frame(b"before") + data, sizes)[0] == "before"
    assert code_of(reader) == code


@broken
def test_close_codes_are_those_of_the_library(data: bytes, code: int) -> None:
    engine = ServerProtocol(state=State.OPEN, max_size=MIB)
    engine.receive_data(data)
    if code == 1007 and data[0] != 0x88:
        assert engine.close_sent is None  # texts it leaves to whoever gets them
        return
    assert engine.close_sent is not None
    assert engine.close_sent.code == code


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("reason", [b"", b"see you", "für später".encode(), b"x" * 123])
def test_a_close_frame_is_taken(code: int, reason: bytes) -> None:
    reader = MessageReader(MIB)
    said = code.to_bytes(2, "big") + reason
    assert reader.feed(frame(b"last") + frame(said, CLOSE) + frame(b"late") + b"\xff\xff") == ["last"]
    assert (reader.close, reader.error) == (said, None)


@pytest.mark.parametrize("code", NO_CODES)
@pytest.mark.parametrize("reason", [b"", b"see you"])
def test_a_close_code_that_nobody_may_send_is_refused(code: int, reason: bytes) -> None:
    reader = MessageReader(MIB)
    reader.feed(frame(code.to_bytes(2, "big") + reason, CLOSE))
    assert (reader.close, code_of(reader)) == (None, 1002)


def test_a_close_frame_may_be_empty_and_may_end_a_message_early() -> None:
    reader = MessageReader(MIB)
    assert reader.feed(frame(b"begun", is_final=False) + frame(b"", CLOSE) + frame(b"late", CONT)) == []
    assert (reader.close, reader.error) == (b"", None)


def test_what_came_before_a_broken_frame_is_handed_on() -> None:
    reader = MessageReader(MIB)
    assert reader.feed(frame(b"good") + frame(b"x", BINARY) + b"\x83\x80" + frame(b"late")) == ["good", b"x"]


@pytest.mark.parametrize("first", [0xC1, 0xC2])
def test_the_bit_of_compression_is_allowed_where_it_was_agreed_on(first: int) -> None:
    data = bytes((first,)) + deflated(b"text")[1:]
    assert MessageReader(MIB, deflate=AGREED).feed(data) == ["text" if first == 0xC1 else b"text"]
    refusing = MessageReader(MIB)
    assert (refusing.feed(data), code_of(refusing)) == ([], 1002)


@pytest.mark.parametrize(
    "data",
    [
        b"\xa1\x80" + bytes(4),
        b"\x91\x80" + bytes(4),
        b"\xe1\x80" + bytes(4),
        b"\xd2\x80" + bytes(4),
        b"\xc9\x80" + bytes(4),
        b"\xca\x80" + bytes(4),
        b"\xc8\x80" + bytes(4),
        b"\xc3\x80" + bytes(4),
        frame(b"a", is_final=False) + b"\xc0\x80" + bytes(4),
        deflated(b"text", cuts=[2])[:8] + b"\xc0\x80" + bytes(4),
    ],
    ids=["rsv2", "rsv3", "rsv1+2", "rsv1+3", "ping", "pong", "close", "opcode 3", "plain", "continuation"],
)
def test_compression_allows_no_other_bit_and_nowhere_else(data: bytes) -> None:
    reader = MessageReader(MIB, deflate=AGREED)
    assert (reader.feed(data), code_of(reader)) == ([], 1002)


# Limits


@pytest.mark.parametrize("limit", [0, 1, 100, 125, 126, 1_000, 70_000])
@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_a_message_up_to_the_limit_passes_and_not_a_byte_more(limit: int, opcode: Opcode) -> None:
    reader = MessageReader(limit)
    [message] = reader.feed(frame(b"a" * limit, opcode))
    assert isinstance(message, str | bytes)
    assert len(message) == limit
    reader.feed(frame(b"a" * (limit + 1), opcode))
    assert code_of(reader) == 1009


def test_a_message_that_is_too_large_is_refused_by_its_header_alone() -> None:
    reader = MessageReader(MIB)
    header = frame(bytes(MIB + 1))[:10]
    reader.feed(header[:9])
    assert reader.error is None
    reader.feed(header[9:])
    assert code_of(reader) == 1009


@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_the_limit_is_for_all_fragments_together(opcode: Opcode) -> None:
    reader = MessageReader(1_000)
    for _ in range(3):
        parts = [frame(b"a" * 400, opcode, is_final=False), frame(b"a" * 400, CONT, is_final=False)]
        assert reader.feed(b"".join(parts)) == []
        [message] = reader.feed(frame(b"a" * 200, CONT))
        assert isinstance(message, str | bytes)
        assert len(message) == 1_000  # and it is counted anew
    reader.feed(frame(b"a" * 900, opcode, is_final=False) + frame(b"", CONT, is_final=False))
    reader.feed(frame(b"a" * 50, CONT, is_final=False) + frame(b"a" * 51, CONT)[:2])
    assert code_of(reader) == 1009, "known from the header of the last"


def test_the_limit_is_for_compressed_bytes_too() -> None:
    reader = MessageReader(1_000, deflate=AGREED)
    reader.feed(b"\xc1\xfe" + (1_001).to_bytes(2, "big"))
    assert code_of(reader) == 1009


def test_memory_grows_no_more_than_by_what_has_come() -> None:
    limit = 8 * MIB
    pieces = [frame(b"a" * 1_000, is_final=False), *[frame(b"a" * 1_000, CONT, is_final=False)] * 2_000]
    tracemalloc.start()
    try:
        reader = MessageReader(limit)
        reader.feed(b"\x82\xff" + limit.to_bytes(8, "big") + bytes(4))  # announced, and never sent
        other = MessageReader(limit)
        for piece in pieces:
            other.feed(piece)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2_001_000 * 9 // 8 + 50_000


def test_nothing_is_kept_between_messages() -> None:
    reader = MessageReader(MIB, deflate=AGREED)
    data = b"".join([frame(b"a" * 9_000, is_final=False), frame(b"b", CONT), deflated(b"c" * 9_000)])
    assert len(read_in_pieces(reader, data, [1_000])) == 2
    tracemalloc.start()
    try:
        assert len(read_in_pieces(reader, data, [1_000])) == 2
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1_000


def test_a_reader_that_failed_holds_nothing_that_holds_it() -> None:
    for data in (frame(b"\xff"), frame(b"\x03\xe8\xff", CLOSE), frame(b"\x03", CLOSE), b"\x83\x80"):
        reader = MessageReader(MIB)
        reader.feed(data)
        assert reader.error is not None
        assert (reader.error.__traceback__, reader.error.__context__) == (None, None)
