"""A server made of bytes, for tests of the client: frames as nobody else would send them."""

from collections.abc import Iterable

from penstock.wire.http2 import PREFACE, ClientConnection, Field, Limits, encode_headers, encode_request
from penstock.wire.http2.frames import Frame
from tests.wire.http2.raw_client import END_HEADERS, HEADERS, WHOLE, frame, frames_of, settings

GRPC: list[Field] = [(b"te", b"trailers"), (b"content-type", b"application/grpc")]
ASK = encode_request(b"POST", b"/service/Method", b"localhost", GRPC)
OK: list[Field] = [(b":status", b"200"), (b"content-type", b"application/grpc")]
GREETING = settings()
"""First frame of a server that has nothing to announce."""


def response(stream_id: int, *, is_last: bool = False, fields: Iterable[Field] = OK) -> bytes:
    """HEADERS of a response."""
    return frame(HEADERS, WHOLE if is_last else END_HEADERS, stream_id, encode_headers(fields))


def trailers(stream_id: int, *fields: Field) -> bytes:
    """HEADERS behind a body."""
    return frame(HEADERS, WHOLE, stream_id, encode_headers(fields or [(b"grpc-status", b"0")]))


def greeted(limits: Limits | None = None, *first: bytes, calls: int = 0) -> ClientConnection:
    """A client whose server has said hello, with open calls; nothing is left to write."""
    client = ClientConnection(limits)
    client.feed(GREETING, 0.0)
    for _ in range(calls):
        client.request(ASK)
    client.feed(b"".join(first), 0.0)
    assert client.error is None
    client.drain()
    return client


def written(client: ClientConnection) -> list[Frame]:
    """The frames that a client wants to write now, behind its preface."""
    return frames_of(client.drain().removeprefix(PREFACE))
