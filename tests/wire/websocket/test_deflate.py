"""What is compressed once can be read by everyone who agreed to compression, in any order.

Compressed messages are inflated up to their limit and not beyond it, whatever they would become.
"""

import random
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from penstock.wire.websocket.deflate import MAX_ENDINGS, TAIL, WINDOW_BITS, Deflate, deflated_frame
from penstock.wire.websocket.encoding import text_frame
from penstock.wire.websocket.messages import MessageReader
from tests.net.websocket.message_peers import compressed_frames, deflated, frame
from tests.net.websocket.peers import MIB

EVENT = b'{"type":"event","topic":"orders","data":{"topic":"orders","data":[1,2,3,1,2,3,1,2,3,1,2,3]}}'


def make_client(window_bits: int = WINDOW_BITS) -> ClientProtocol:
    """A client that agreed to what we agree to."""
    client = ClientProtocol(parse_uri("ws://localhost/"), state=State.OPEN, max_size=None)
    client.extensions = [PerMessageDeflate(True, True, window_bits, 12)]
    return client


def read(client: ClientProtocol, data: bytes) -> list[bytes]:
    client.receive_data(data)
    assert client.parser_exc is None
    return [bytes(event.data) for event in client.events_received() if isinstance(event, Frame)]


@given(payloads=st.lists(st.one_of(st.text(), st.text("ab", min_size=50, max_size=300)), max_size=5))
def test_each_frame_can_be_read_without_those_before_it(payloads: list[str]) -> None:
    frames = [deflated_frame(payload.encode()) for payload in payloads]
    for each, payload in zip(frames, payloads, strict=True):
        assert read(make_client(), each) == [payload.encode()]
    assert read(make_client(), b"".join(frames)) == [payload.encode() for payload in payloads]


def test_a_long_message_refers_no_further_back_than_was_agreed() -> None:
    block = random.Random(7).randbytes(3_000).hex().encode()  # repeats itself 6,000 bytes later
    assert read(make_client(), deflated_frame(block * 20)) == [block * 20]


def test_it_is_smaller_and_marked() -> None:
    frame = deflated_frame(EVENT * 10)
    assert frame[0] == 0xC1
    assert len(frame) < len(EVENT) * 3
    assert not frame.endswith(TAIL)


@pytest.mark.parametrize("payload", [b"", b"{}", bytes(range(33, 127)), b"a" * 63], ids=len)
def test_what_would_not_become_smaller_stays_as_it_is(payload: bytes) -> None:
    assert deflated_frame(payload) == text_frame(payload)


@pytest.mark.parametrize(("bits", "takes_ours"), [(9, False), (11, False), (12, True), (15, True)])
def test_only_who_sees_far_enough_back_gets_what_is_compressed_for_all(bits: int, takes_ours: bool) -> None:
    assert Deflate(15, bits).takes_ours is takes_ours


def test_the_window_is_what_zlib_was_told() -> None:
    block = (
        random.Random(7).randbytes(1 << (WINDOW_BITS - 1)).hex().encode()
    )  # as far back as it just reaches
    deflated = deflated_frame(block * 4)[4:] + TAIL
    assert zlib.decompressobj(-WINDOW_BITS).decompress(deflated) == block * 4


def make_reader(limit_bytes: int = MIB, window_bits: int = 15) -> MessageReader:
    return MessageReader(limit_bytes, deflate=Deflate(window_bits, 15))


def finished(payload: bytes) -> bytes:
    """A stream of blocks whose last one says that it is the last."""
    deflater = zlib.compressobj(wbits=-15)
    return deflater.compress(payload) + deflater.flush(zlib.Z_FINISH)


EXAMPLES = {  # RFC 7692, 7.2.3
    "one block": ("f248cdc9c90700", b"Hello"),
    "block without compression": ("000500faff48656c6c6f00", b"Hello"),
    "block that is the last": ("f348cdc9c9070000", b"Hello"),
    "two blocks": ("f248050000 00ffffcac9c90700", b"Hello"),
    "empty": ("00", b""),
    "empty and fixed": ("0200", b""),
    "nothing at all": ("", b""),
}


@pytest.mark.parametrize(("data", "payload"), EXAMPLES.values(), ids=EXAMPLES)
@pytest.mark.parametrize("cuts", [[], [1], [1, 1, 1]])
def test_the_examples_of_the_standard_are_understood(data: str, payload: bytes, cuts: list[int]) -> None:
    reader = make_reader()
    frames = compressed_frames(bytes.fromhex(data), cuts=cuts)
    assert reader.feed(frames * 2) == [payload.decode()] * 2
    assert reader.error is None


def test_no_message_refers_to_an_earlier_one() -> None:
    reader = make_reader()
    deflater = zlib.compressobj(wbits=-15)
    text = b"what is said twice is said twice"
    first, second = (
        (deflater.compress(text) + deflater.flush(zlib.Z_SYNC_FLUSH)).removesuffix(TAIL) for _ in range(2)
    )
    assert reader.feed(compressed_frames(first)) == [text.decode()]
    reader.feed(compressed_frames(second))
    assert reader.error is not None
    assert reader.error.code == 1007


@pytest.mark.parametrize("window_bits", range(9, 16))
def test_every_window_is_understood_to_its_end(window_bits: int) -> None:
    block = random.Random(window_bits).randbytes((1 << window_bits) - 300)  # about as far back as zlib refers
    deflater = zlib.compressobj(wbits=-window_bits)
    data = (deflater.compress(block * 3) + deflater.flush(zlib.Z_SYNC_FLUSH)).removesuffix(TAIL)
    assert len(data) < len(block) * 2
    reader = make_reader(window_bits=window_bits)
    assert reader.feed(compressed_frames(data, Opcode.BINARY, [100] * (len(data) // 100))) == [block * 3]


def test_the_smallest_window_is_understood() -> None:
    assert make_reader(window_bits=8).feed(deflated(b"a" * 200)) == ["a" * 200]


def test_a_block_that_was_cut_is_not_taken_for_a_whole_one() -> None:
    reader = make_reader()
    assert reader.feed(compressed_frames(bytes.fromhex("000900f6ff") + b"Hello")) == []  # it announces nine
    assert reader.error is not None
    assert reader.error.code == 1007


@pytest.mark.parametrize("data", ["ffff", "07", "f248cdc9c9ff", "000500000048656c6c6f00"])
def test_what_cannot_be_inflated_ends_the_connection(data: str) -> None:
    reader = make_reader()
    assert reader.feed(frame(b"good") + compressed_frames(bytes.fromhex(data) + bytes(8))) == ["good"]
    assert reader.error is not None
    assert reader.error.code == 1007


@pytest.mark.parametrize("opcode", [Opcode.TEXT, Opcode.BINARY])
@pytest.mark.parametrize("limit", [100, 1_000, 100_000])
@pytest.mark.parametrize("cuts", [[], [10], [5, 5, 5]], ids=str)
def test_a_message_may_inflate_to_its_limit_and_not_to_a_byte_more(
    opcode: Opcode, limit: int, cuts: list[int]
) -> None:
    reader = make_reader(limit)
    [message] = reader.feed(deflated(b"a" * limit, opcode, cuts))
    assert isinstance(message, str | bytes)
    assert len(message) == limit
    assert reader.feed(deflated(b"a" * (limit + 1), opcode, cuts)) == []
    assert reader.error is not None
    assert reader.error.code == 1009


@pytest.mark.parametrize("cuts", [[], [1_000] * 60], ids=["at once", "in fragments"])
def test_a_bomb_takes_no_more_memory_than_a_message(cuts: list[int]) -> None:
    bomb = deflated(bytes(64 * MIB), Opcode.BINARY, cuts)
    assert len(bomb) < 100_000
    tracemalloc.start()
    try:
        reader = make_reader(100_000)
        for position in range(0, len(bomb), 4096):
            assert reader.feed(bomb[position : position + 4096]) == []
            if reader.error is not None:
                break
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert reader.error is not None
    assert reader.error.code == 1009
    assert most < 600_000


def test_streams_that_end_within_a_message_are_joined() -> None:
    reader = make_reader()
    assert reader.feed(compressed_frames(finished(b"one ") + finished(b"two") + b"\x00")) == ["one two"]
    assert reader.feed(compressed_frames(finished(b"one ") + finished(b"two") + b"\x00", cuts=[3] * 5)) == [
        "one two"
    ]
    assert reader.error is None


def test_no_message_makes_us_begin_streams_for_ever() -> None:
    reader = make_reader()
    assert reader.feed(compressed_frames(finished(b"") * 30_000)) == []
    assert reader.error is not None
    assert reader.error.code == 1007
    again = make_reader()
    assert again.feed(compressed_frames(finished(b"a") * MAX_ENDINGS)) == ["a" * MAX_ENDINGS]
