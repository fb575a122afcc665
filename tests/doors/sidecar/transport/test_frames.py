"""Bytes that no good client sends: each costs its sender the connection, and the log one line."""

import asyncio
from random import Random

import pytest
from structlog.testing import capture_logs

from penstock.wire.http2 import ErrorCode, encode_headers
from tests.doors.sidecar.transport.serving import (
    ACK,
    CHAT,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SAY,
    SETTINGS,
    TIMEOUT_S,
    WAIT,
    RawClient,
    Serving,
    frame,
    unary_unary,
)
from tests.support.waiting import until

CALL = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":authority", b"localhost"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
]


def ask(stream_id: int, path: str, *more: tuple[bytes, bytes], flags: int = END_HEADERS) -> bytes:
    """The frame that begins a call."""
    block = encode_headers([(b":path", path.encode()), *CALL, *more])
    return frame(HEADERS, flags, stream_id, block)


def say(stream_id: int, text: bytes) -> bytes:
    """A whole call."""
    body = b"\0" + len(text).to_bytes(4, "big") + text
    return ask(stream_id, SAY) + frame(DATA, END_STREAM, stream_id, body)


async def goodbye_of(client: RawClient) -> int:
    """The code of the GOAWAY with which a server ends a connection."""
    frames = await client.take_all()
    codes = [int.from_bytes(payload[4:8], "big") for kind, _, _, payload in frames if kind == GOAWAY]
    assert len(codes) == 1, frames
    await client.close()
    return codes[0]


async def test_calls_in_one_chunk_are_answered_in_few_writes(serving: Serving) -> None:
    client = await serving.raw()
    await client.take_kind(SETTINGS)
    (connection,) = serving.door.connections
    writes: list[int] = []
    transport = connection._transport
    connection._transport = Writing(transport, writes)  # type: ignore[assignment]
    client.send(frame(SETTINGS, ACK) + b"".join(say(2 * number + 1, b"x") for number in range(16)))
    answers = [await client.take_kind(DATA) for _ in range(16)]
    assert [stream_id for _, _, stream_id, _ in answers] == [2 * number + 1 for number in range(16)]
    assert len(writes) == 1
    await client.close()


class Writing:
    """A transport that counts what is written to it."""

    def __init__(self, transport: object, writes: list[int]) -> None:
        self._transport = transport
        self._writes = writes

    def write(self, data: bytes) -> None:
        self._writes.append(len(data))
        self._transport.write(data)  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)


GARBAGE = {
    "random bytes": (bytes(range(256)), ErrorCode.PROTOCOL_ERROR),
    "a greeting of TLS": (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "a frame that is too long": (PREFACE + b"\xff\xff\xff" + bytes(6), ErrorCode.FRAME_SIZE_ERROR),
    "no settings first": (PREFACE + frame(PING, 0, 0, bytes(8)), ErrorCode.PROTOCOL_ERROR),
    "data for a stream that is idle": (
        PREFACE + frame(SETTINGS) + frame(DATA, 0, 1, b"x"),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "fields that cannot be decoded": (
        PREFACE + frame(SETTINGS) + frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"),
        ErrorCode.COMPRESSION_ERROR,
    ),
    "a flood of pings": (
        PREFACE + frame(SETTINGS) + frame(PING, 0, 0, bytes(8)) * 5_000,
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
    "a flood of settings": (PREFACE + frame(SETTINGS) * 5_000, ErrorCode.ENHANCE_YOUR_CALM),
    "calls that are cancelled at once": (
        PREFACE
        + frame(SETTINGS)
        + b"".join(
            ask(2 * number + 1, WAIT) + frame(RST_STREAM, 0, 2 * number + 1, bytes(4))
            for number in range(5_000)
        ),
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
    "fields without end": (
        PREFACE
        + frame(SETTINGS)
        + frame(HEADERS, 0, 1, b"\0\x01a\x7f\x80\x7f" + bytes(10_000))
        + frame(9, 0, 1, bytes(16_000)) * 10,
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
}


@pytest.mark.parametrize("name", GARBAGE)
async def test_garbage_ends_the_connection_with_one_line(serving: Serving, name: str) -> None:
    data, code = GARBAGE[name]
    client = await serving.raw(is_greeting=False)
    with capture_logs() as logged:
        client.send(data)
        assert await goodbye_of(client) == code
    assert [line["event"] for line in logged] == ["bad bytes"]
    assert serving.broker.counters.wire_errors == 1
    assert await unary_unary(serving.channel(), SAY)(b"x", timeout=TIMEOUT_S) == b"x"


async def test_damaged_bytes_cost_nobody_else_anything(serving: Serving) -> None:
    """A good conversation, damaged at random; what is lost is one connection, or one call."""
    good = PREFACE + frame(SETTINGS) + frame(SETTINGS, ACK)
    good += b"".join(say(2 * number + 1, bytes(20)) + ask(2 * number + 101, CHAT) for number in range(20))
    chance = Random(7)
    for _ in range(100):
        damaged = bytearray(good)
        for _ in range(chance.randrange(1, 6)):
            damaged[chance.randrange(len(PREFACE), len(damaged))] = chance.randrange(256)
        client = await serving.raw(is_greeting=False)
        for part in (damaged[:200], damaged[200:900], damaged[900:]):
            client.send(bytes(part))
            await asyncio.sleep(0)
        client.writer.write_eof()
        await asyncio.wait_for(client.reader.read(), TIMEOUT_S)
        await client.close()
    assert await unary_unary(serving.channel(), SAY)(b"x", timeout=TIMEOUT_S) == b"x"
    assert len(serving.door.connections) == 1


async def test_calls_of_a_client_that_sends_garbage_end(serving: Serving) -> None:
    client = await serving.raw()
    client.send(frame(SETTINGS, ACK) + ask(1, WAIT) + frame(DATA, END_STREAM, 1, bytes(5)))
    await until(lambda: serving.echo.waiting, "no call is waiting")
    client.send(frame(DATA, 0, 0, b"x"))
    assert await goodbye_of(client) == ErrorCode.PROTOCOL_ERROR
    assert [cause.name for cause in serving.echo.causes] == ["BROKEN"]


@pytest.mark.parametrize("method", [b"GET", b"POST", b"OPTIONS", b"PRIVATE"])
async def test_a_request_of_http_1_is_told_where_it_is(serving: Serving, method: bytes) -> None:
    client = await serving.raw(is_greeting=False)
    with capture_logs() as logged:
        client.send(method + b" /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = await asyncio.wait_for(client.reader.read(), TIMEOUT_S)
    assert answer.startswith(b"HTTP/1.1 505 ")
    assert b"gRPC" in answer
    assert len(logged) == 1
    await client.close()


async def test_a_header_list_that_is_too_large_ends_its_call_only(serving: Serving) -> None:
    client = await serving.raw()
    large = (b"x-large", bytes(20_000).replace(b"\0", b"x"))
    block = encode_headers([(b":path", SAY.encode()), *CALL, large])
    client.send(frame(HEADERS, END_STREAM, 1, block[:16_000]) + frame(9, END_HEADERS, 1, block[16_000:]))
    client.send(say(3, b"next"))
    kind, _, stream_id, _ = await client.take_kind(HEADERS)
    assert (kind, stream_id) == (HEADERS, 1)
    assert (await client.take_kind(DATA))[2:] == (3, b"\0\0\0\0\x04next")
    await client.close()


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ([(b":method", b"GET")], b"405"),
        ([(b"content-type", b"application/json")], b"415"),
        ([(b"grpc-timeout", b"soon")], b"200"),
        ([(b"some-bin", b"???")], b"200"),
    ],
)
async def test_a_request_that_is_no_call_is_answered(
    serving: Serving, fields: list[tuple[bytes, bytes]], status: bytes
) -> None:
    pytest.importorskip("hpack")
    import hpack  # noqa: PLC0415

    client = await serving.raw()
    head = dict([(b":path", SAY.encode()), *CALL]) | dict(fields)
    client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, encode_headers(list(head.items()))))
    _, flags, _, block = await client.take_kind(HEADERS)
    assert flags & END_STREAM
    answer = dict(hpack.Decoder().decode(block, raw=True))
    assert answer[b":status"] == status
    assert (b"grpc-status" in answer) == (status == b"200")
    await client.close()


@pytest.mark.parametrize(
    "body",
    [b"", b"\0\0\0", b"\0\0\0\0\x05abc", b"\x07\0\0\0\x01a", b"\x01\0\0\0\x01a", b"\0\0\0\0\x01a" * 2],
)
async def test_a_body_that_is_not_one_message_is_refused(serving: Serving, body: bytes) -> None:
    client = await serving.raw()
    client.send(ask(1, SAY) + frame(DATA, END_STREAM, 1, body) + say(3, b"next"))
    assert (await client.take_kind(HEADERS))[2] == 1
    assert (await client.take_kind(DATA))[2] == 3
    await client.close()
