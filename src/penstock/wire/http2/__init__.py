"""HTTP/2 of both sides (RFC 9113, RFC 7541), as bytes and events; no socket, loop or clock.

`ServerConnection` and `ClientConnection` take bytes in and give events out. `encode_request` makes the header
blocks of requests, `encode_headers` those of responses and trailers.
"""

from penstock.wire.http2.client import ClientConnection
from penstock.wire.http2.connection import ServerConnection
from penstock.wire.http2.errors import (
    CompressionFault,
    ConnectionFault,
    ErrorCode,
    Http2Error,
    MalformedHead,
    StreamFault,
    StreamRefused,
)
from penstock.wire.http2.events import (
    BodyReceived,
    Drained,
    Event,
    GoneAway,
    Ponged,
    RequestHead,
    RequestStarted,
    RequestUnprocessed,
    ResponseHead,
    ResponseStarted,
    StreamReset,
    TrailersReceived,
)
from penstock.wire.http2.flow_control import Envelope
from penstock.wire.http2.frames import PREFACE
from penstock.wire.http2.headers import encode_request
from penstock.wire.http2.hpack import encode_headers
from penstock.wire.http2.hpack_tables import Field
from penstock.wire.http2.limits import Limits

__all__ = [
    "PREFACE",
    "BodyReceived",
    "ClientConnection",
    "CompressionFault",
    "ConnectionFault",
    "Drained",
    "Envelope",
    "ErrorCode",
    "Event",
    "Field",
    "GoneAway",
    "Http2Error",
    "Limits",
    "MalformedHead",
    "Ponged",
    "RequestHead",
    "RequestStarted",
    "RequestUnprocessed",
    "ResponseHead",
    "ResponseStarted",
    "ServerConnection",
    "StreamFault",
    "StreamRefused",
    "StreamReset",
    "TrailersReceived",
    "encode_headers",
    "encode_request",
]
