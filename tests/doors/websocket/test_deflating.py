"""What is compressed once can be read by everyone who agreed to compression, in any order."""

import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import Frame
from websockets.protocol import State
from websockets.uri import parse_uri

from penstock.doors.websocket.deflating import TAIL, WINDOW_BITS, Deflate, deflated_frame
from penstock.doors.websocket.encoding import text_frame

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
    for frame, payload in zip(frames, payloads, strict=True):
        assert read(make_client(), frame) == [payload.encode()]
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
