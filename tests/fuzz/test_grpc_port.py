"""HTTP/2 frames in any order and of any shape over real connections: each ends, and nobody else notices."""

import asyncio
import socket
from collections import Counter
from random import Random

import pytest

from penstock.wire.grpc import encode_message
from penstock.wire.http2 import ErrorCode, encode_headers
from penstock.wire.sidecar.messages import nexusd
from tests.access.channels import Channel
from tests.faults.watching import MIB, Costs, Witness
from tests.fuzz.damage import damaged
from tests.fuzz.grpc_messages import REQUESTS, SIDECAR, MessageMaker
from tests.support.servers import RunningServer, StartServer

AT_ONCE = 50
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS, PADDED, PRIORITIZED = 0x1, 0x4, 0x8, 0x20
FLAGS = (0, END_STREAM, END_HEADERS, END_STREAM | END_HEADERS, PADDED, PRIORITIZED, 0xFF)
SIZES = (0, 1, 3, 4, 5, 6, 8, 9, 100, 16_384, 16_385, 20_000)
HEAD_BYTES = 9
OLD = b"HTTP/1.1 505 "
"""The answer to what looks like a request of an older version."""
FIELDS = (
    *(
        (b":method", b"POST"),
        (b":method", b"GET"),
        (b":scheme", b"http"),
        (b":authority", b"x"),
        (b":status", b"200"),
    ),
    *(
        (b"te", b"trailers"),
        (b"te", b"x"),
        (b"content-type", b"application/grpc"),
        (b"content-type", b"text/html"),
    ),
    *(
        (b"grpc-timeout", b"1S"),
        (b"grpc-timeout", b"x"),
        (b"connection", b"close"),
        (b"Capital", b"x"),
        (b"", b""),
    ),
    *((b"x-bin", b"AA=="), (b"x", b"\0"), (b"x", b"y" * 9_000), (b"content-length", b"3"), (b":path", b"/")),
)
CALL = (
    *((b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"x")),
    *((b"te", b"trailers"), (b"content-type", b"application/grpc")),
)


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream_id.to_bytes(4, "big") + payload


class FrameMaker:
    """What one connection says."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice
        self._messages = MessageMaker(dice, [])
        self._next_id = 1

    def conversation(self) -> bytes:
        """A greeting and some frames, most of them good by themselves; now and then damaged on the way."""
        dice = self._dice
        begin = PREFACE + frame(SETTINGS, 0, 0, b"")
        parts = [
            self._call() if dice.random() < 0.4 else self._any_frame() for _ in range(dice.randrange(12))
        ]
        said = (begin if dice.random() < 0.95 else b"") + b"".join(parts)
        return damaged(said, dice) if dice.random() < 0.3 else said

    def _call(self) -> bytes:
        """A whole call, or one whose end is still to come."""
        dice, stream_id = self._dice, self._next_id
        self._next_id += 2
        path, kind = dice.choice(list(REQUESTS.items()))
        head = encode_headers([(b":path", path.encode()), *CALL])
        body = encode_message(self._messages.make(kind))
        return frame(HEADERS, END_HEADERS, stream_id, head) + b"".join(
            frame(DATA, END_STREAM * (dice.random() < 0.7), stream_id, body)
            for _ in range(dice.choice((1, 1, 2)))
        )

    def _any_frame(self) -> bytes:
        dice = self._dice
        kind = dice.choice((*range(11), HEADERS, DATA, RST_STREAM, WINDOW_UPDATE))
        stream_id = dice.choice(
            (0, 1, 1, 2, 3, self._next_id, max(self._next_id - 2, 0), 2**31 - 1, 2**32 - 1)
        )
        return frame(kind, dice.choice(FLAGS), stream_id, self._payload(kind))

    def _payload(self, kind: int) -> bytes:
        dice = self._dice
        if dice.random() < 0.2:
            return dice.randbytes(dice.choice(SIZES))
        if kind in (HEADERS, CONTINUATION):
            return encode_headers(dice.choices(FIELDS, k=dice.randrange(8)))
        if kind == SETTINGS:
            number, value = (
                dice.randrange(1, 9),
                dice.choice((0, 1, 100, 65_535, 16_384, 2**24, 2**31, 2**32 - 1)),
            )
            return number.to_bytes(2, "big") + value.to_bytes(4, "big")
        if kind in (RST_STREAM, WINDOW_UPDATE):
            return dice.choice((0, 1, 8, 65_535, 2**31 - 1, 2**32 - 1)).to_bytes(4, "big")
        return bytes(8)


class Attack:
    """One connection that says all it has to say, and hears the answer to the end."""

    def __init__(self, maker: FrameMaker, port: int) -> None:
        self.said = maker.conversation()
        self._socket = socket.create_connection(("127.0.0.1", port), 20)

    def begin(self) -> None:
        """Say all of it, and that there is nothing more to come."""
        try:
            self._socket.sendall(self.said)
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the server has heard enough

    def end(self) -> tuple[str | None, int | None]:
        """What was wrong with the answer, and the code with which the server said goodbye."""
        heard = b""
        try:
            while chunk := self._socket.recv(65_536):
                heard += chunk
        except ConnectionResetError:
            return None, None
        except TimeoutError:
            return "never closed", None
        finally:
            self._socket.close()
        return goodbye_in(heard)


def goodbye_in(heard: bytes) -> tuple[str | None, int | None]:
    """Walk through frames; answers what is wrong with them, and the code of the last GOAWAY."""
    code = None
    if heard.startswith(OLD):
        return None, None
    while heard:
        size, kind = int.from_bytes(heard[:3], "big"), heard[3] if len(heard) > 3 else -1
        if len(heard) < HEAD_BYTES + size or kind not in range(10):
            return f"answered with what is no frame: {heard[:40]!r}", None
        if kind == GOAWAY:
            code = int.from_bytes(heard[HEAD_BYTES + 4 : HEAD_BYTES + 8], "big")
        heard = heard[HEAD_BYTES + size :]
    return None, code


def attack(dice: Random, count: int, port: int, codes: Counter[int | None]) -> list[str]:
    """Tell of every connection that did not end as it should."""
    complaints: list[str] = []
    for _ in range(count // AT_ONCE):
        attacks = [Attack(FrameMaker(dice), port) for _ in range(AT_ONCE)]
        for each in attacks:
            each.begin()
        for each in attacks:
            complaint, code = each.end()
            codes[code] += 1
            if complaint:
                complaints.append(f"{complaint} after {each.said!r}")
    return complaints


@pytest.fixture(scope="module")
def victim(start_server: StartServer) -> RunningServer:
    return start_server({"sidecar": {"paused_ttl_ms": 2_000}})


async def test_random_frames_end_their_connection_and_harm_nobody(
    victim: RunningServer, dice: Random, scale: int
) -> None:
    port, codes = victim.port_of("grpc"), Counter[int | None]()
    before = Costs(victim)
    await asyncio.to_thread(attack, dice, 4 * AT_ONCE, port, codes)  # what is made once is made now
    await before.are_back()
    costs = Costs(victim)
    channel = await Channel.open(port)
    listening = channel.call(
        f"{SIDECAR}Subscribe", (), nexusd.SubscribeRequest(topics=["heard"]).SerializeToString()
    )
    assert await listening.take()
    async with Witness(victim):
        assert await asyncio.to_thread(attack, dice, 100 * AT_ONCE * scale, port, codes) == []
    message = nexusd.PublishRequest(topic="heard", payload=b"still here").SerializeToString()
    await channel.ask(f"{SIDECAR}Publish", (), message)
    event = nexusd.MessageEvent.FromString(await listening.take() or b"")
    assert event.message.payload == b"still here"
    channel.close()
    await costs.are_back()
    assert costs.more_bytes < 40 * MIB
    wrong = {ErrorCode.PROTOCOL_ERROR, ErrorCode.FRAME_SIZE_ERROR, ErrorCode.FLOW_CONTROL_ERROR}
    assert set(codes) >= wrong
    assert ErrorCode.INTERNAL_ERROR not in codes
