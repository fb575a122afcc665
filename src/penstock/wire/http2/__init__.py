"""HTTP/2 as a server speaks it (RFC 9113, RFC 7541), as bytes and events; no socket, loop or clock.

`ServerConnection` takes bytes in and gives events out, `encode_headers` makes the header blocks of responses.
"""

from penstock.wire.http2.connection import ServerConnection
from penstock.wire.http2.errors import (
    CompressionFault,
    ConnectionFault,
    ErrorCode,
    Http2Error,
    MalformedRequest,
    StreamFault,
)
from penstock.wire.http2.events import (
    BodyReceived,
    Drained,
    Event,
    GoneAway,
    Ponged,
    RequestHead,
    RequestStarted,
    StreamReset,
)
from penstock.wire.http2.flow_control import Envelope
from penstock.wire.http2.frames import PREFACE
from penstock.wire.http2.hpack import encode_headers
from penstock.wire.http2.hpack_tables import Field
from penstock.wire.http2.limits import Limits

__all__ = [
    "PREFACE",
    "BodyReceived",
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
    "MalformedRequest",
    "Ponged",
    "RequestHead",
    "RequestStarted",
    "ServerConnection",
    "StreamFault",
    "StreamReset",
    "encode_headers",
]
