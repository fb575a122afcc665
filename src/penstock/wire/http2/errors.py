"""Error codes of HTTP/2 (RFC 9113 section 7), and the exceptions for bytes that break its rules.

A failed stream and a failed connection have different exceptions. Neither leaves the connection object: it
sends RST_STREAM or GOAWAY and reports an event.
"""

from enum import IntEnum

from penstock.errors import WireError


class ErrorCode(IntEnum):
    """Why a stream or a connection ended. Names follow the standard."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC
    HTTP_1_1_REQUIRED = 0xD


class Http2Error(WireError):
    """Bytes that break HTTP/2; `reason` is the code sent to the peer."""

    def __init__(self, reason: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class ConnectionFault(Http2Error):
    """The connection cannot continue."""


class CompressionFault(ConnectionFault):
    """A header block that cannot be decoded; after it no other can be either."""

    def __init__(self, text: str) -> None:
        super().__init__(ErrorCode.COMPRESSION_ERROR, text)


class StreamFault(Http2Error):
    """One stream cannot continue; the others are not concerned."""

    def __init__(self, stream_id: int, reason: ErrorCode, text: str) -> None:
        super().__init__(reason, text)
        self.stream_id = stream_id


class StreamRefused(Http2Error):
    """A client cannot start a request now; the text says why, and what to do."""

    def __init__(self, text: str) -> None:
        super().__init__(ErrorCode.REFUSED_STREAM, text)


class MalformedHead(WireError):
    """Header fields that no request or no response may have; the text says what is wrong."""
