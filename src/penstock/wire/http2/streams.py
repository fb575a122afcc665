"""Streams of a connection: the open ones, and what has to be known of closed ones.

A stream is open from its first header fields until both sides have ended it or one has reset it. A peer may
still be sending on a stream that we have reset; that is ignored. A frame for any other closed stream is an
error (RFC 9113 section 5.1). Clients open all streams: there is no push.
"""

from collections import deque
from typing import Final

from penstock.wire.http2.errors import ConnectionFault, ErrorCode

_RESETS_LIMIT = 1_000
_GAPS_LIMIT = 100


PENDING: Final = 0
"""The owner has sent nothing on a stream."""
BEGUN: Final = 1
"""The owner has sent header fields, and may send a body."""
FINISHED: Final = 2
"""The owner has given all that it sends."""


class Stream:
    """One stream, which is one call.

    Args:
        send_left: bytes of DATA that the peer's window allows; negative if the peer has reduced it.
        receive_left: bytes of DATA that the peer may send.
        is_receiving: the peer has not ended its side.
        body_left: missing bytes of the announced content length, if any.
    """

    __slots__ = (
        "begun_bytes",
        "body_left",
        "has_head",
        "held_bytes",
        "id",
        "is_receiving",
        "progress",
        "receive_left",
        "returned_bytes",
        "send_left",
        "trailers",
        "waiting",
        "waiting_bytes",
    )

    def __init__(
        self, id: int, send_left: int, receive_left: int, is_receiving: bool, body_left: int | None = None
    ) -> None:
        self.id = id
        self.send_left = send_left
        self.receive_left = receive_left
        self.is_receiving = is_receiving
        self.body_left = body_left
        self.has_head = True  # the peer has sent its head; a server has it from the first
        self.progress = PENDING  # of what the owner sends
        self.held_bytes = 0  # received, and not consumed by the owner
        self.returned_bytes = 0  # consumed, and not announced to the peer
        self.waiting: deque[bytes] | None = None  # data that waits for the peer's window, in order
        self.waiting_bytes = 0  # of these, without what has been sent of the first
        self.begun_bytes = 0  # sent of the first one
        self.trailers = b""  # behind the body when nothing waits any more; empty if there are none


class StreamTable:
    """Finds streams by their identifiers."""

    __slots__ = ("_forgotten_id", "_gaps", "_resets", "last_id", "open")

    def __init__(self) -> None:
        self.open: dict[int, Stream] = {}
        self.last_id = 0  # the highest that was used
        self._resets: dict[int, None] = {}  # reset by us, the oldest first
        self._forgotten_id = 0  # up to here resets may have been forgotten
        self._gaps: deque[tuple[int, int]] = deque(maxlen=_GAPS_LIMIT)  # between these none was ever open

    def note_new(self, stream_id: int) -> None:
        """Remember the highest stream so far; those that it leaves out cannot be opened any more."""
        if stream_id > self.last_id + 2:
            self._gaps.append((self.last_id, stream_id))
        self.last_id = stream_id

    def note_reset(self, stream_id: int) -> None:
        """Remember a stream that we have reset."""
        self._resets[stream_id] = None
        if len(self._resets) > _RESETS_LIMIT:
            oldest = next(iter(self._resets))
            del self._resets[oldest]
            self._forgotten_id = max(self._forgotten_id, oldest)

    def check_known(self, stream_id: int) -> None:
        """Check that a frame other than HEADERS may name a stream: it must have been open once.

        Raises:
            ConnectionFault: it has not.
        """
        if stream_id > self.last_id or not stream_id & 1:
            text = f"frame for stream {stream_id}, which is idle"
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, text)  # section 5.1

    def check_late(self, stream_id: int) -> None:
        """Check that a peer may still send on a stream that is not open.

        Raises:
            ConnectionFault: it has ended that stream itself, or it was never opened.
        """
        if any(below < stream_id < above for below, above in self._gaps):
            text = f"frame for stream {stream_id}, which was left out"
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, text)  # section 5.1.1
        if stream_id not in self._resets and stream_id > self._forgotten_id:
            raise ConnectionFault(ErrorCode.STREAM_CLOSED, f"frame for stream {stream_id}, which is closed")
