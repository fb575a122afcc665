"""Frames of a server are what any client understands, and need no library to be made."""

import subprocess
import sys

import pytest
from websockets.client import ClientProtocol
from websockets.frames import Close, Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from penstock.wire.websocket.encoding import (
    CLOSE,
    PONG,
    CloseCode,
    binary_header,
    close_payload,
    control_frame,
    text_frame,
    text_header,
)
from tests.net.websocket.peers import MIB


def understood(*data: bytes) -> list[tuple[Opcode, bytes]]:
    """What a client finds in frames of a server."""
    client = ClientProtocol(parse_uri("ws://localhost/"), state=State.OPEN, max_size=None)
    for each in data:
        client.receive_data(each)
    frames = [event for event in client.events_received() if isinstance(event, Frame)]
    assert client.parser_exc is None
    return [(each.opcode, bytes(each.data)) for each in frames]


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_535, 65_536, MIB])
def test_what_is_written_is_understood_by_a_client(size: int) -> None:
    payload = b"x" * size
    assert understood(
        text_frame(payload),
        text_header(size) + payload,
        binary_header(size) + payload,
        control_frame(PONG, payload[:125]),
    ) == [
        (Opcode.TEXT, payload),
        (Opcode.TEXT, payload),
        (Opcode.BINARY, payload),
        (Opcode.PONG, payload[:125]),
    ]


@pytest.mark.parametrize("text", ["", "bye", "reason " * 100, "ä" * 100, "x" + "ä" * 100, "€" * 100])
def test_a_reason_to_close_is_cut_to_what_fits(text: str) -> None:
    [(opcode, payload)] = understood(control_frame(CLOSE, close_payload(CloseCode.POLICY_VIOLATION, text)))
    said = Close.parse(payload)
    assert (opcode, said.code) == (Opcode.CLOSE, 1008)
    assert text.startswith(said.reason)
    assert len(said.reason.encode()) >= min(len(text.encode()), 121)


def test_close_codes_have_the_names_of_the_library() -> None:
    from websockets.frames import CloseCode as Theirs  # noqa: PLC0415 - only here are there two of them

    assert {code.name: code.value for code in CloseCode}.items() <= {
        code.name: code.value for code in Theirs
    }.items()


@pytest.mark.parametrize("module", ["encoding", "deflate"])
def test_who_only_writes_frames_loads_no_library(module: str) -> None:
    program = f"import penstock.wire.websocket.{module}, sys; sys.exit('websockets' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
