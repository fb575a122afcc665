"""Streamed response: a hot route begins it, writes parts, and ends it.

Callbacks notify the route when the client reads too slowly, when it has caught up, when it has disconnected,
and at shutdown. Writes of one turn of the loop leave together.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.net.http.pipeline import Pipeline
    from penstock.net.http.request import Request

LAST_CHUNK = b"0\r\n\r\n"

Callback = Callable[[], None]


class ResponseStream:
    """A response whose head is sent."""

    __slots__ = (
        "_is_chunked",
        "_is_draining",
        "_pipeline",
        "_request",
        "on_disconnect",
        "on_drain",
        "on_pause",
        "on_resume",
    )

    def __init__(
        self, pipeline: "Pipeline | None", request: "Request | None", *, is_chunked: bool = False
    ) -> None:
        self._pipeline = pipeline
        self._request = request
        self._is_chunked = is_chunked
        self._is_draining = False
        self.on_pause: Callback | None = None
        """Called when too much is unread; further writes are buffered."""
        self.on_resume: Callback | None = None
        """Called when there is room again."""
        self.on_disconnect: Callback | None = None
        """Called when the client disconnects before the end."""
        self.on_drain: Callback | None = None
        """Called once at shutdown; without it the response is ended then."""

    @property
    def is_over(self) -> bool:
        """It was ended, or the client has disconnected."""
        return self._request is None

    @property
    def is_full(self) -> bool:
        """True if too much is unread, or earlier responses come first."""
        pipeline, request = self._pipeline, self._request
        return pipeline is not None and request is not None and not pipeline.has_room_for(request)

    def write(self, data: bytes) -> None:
        """Send some bytes with this turn of the loop; ignored after the end."""
        if self._pipeline is not None and self._request is not None and data:
            framed = b"%x\r\n%b\r\n" % (len(data), data) if self._is_chunked else data
            self._pipeline.put(self._request, framed)

    def end(self, last: bytes = b"") -> None:
        """Complete the response, with these last bytes."""
        self.write(last)
        pipeline, request = self._pipeline, self._request
        self.detach()
        if pipeline is not None and request is not None:
            pipeline.end_stream(request, LAST_CHUNK if self._is_chunked else b"")

    # Called by the pipeline

    def on_room(self, *, is_full: bool) -> None:
        """The client reads too slowly, or has caught up."""
        callback = self.on_pause if is_full else self.on_resume
        if callback is not None:
            callback()

    def leave(self) -> None:
        """The client has disconnected."""
        gone = self.on_disconnect
        self.detach()
        if gone is not None:
            with suppress(PenstockError):
                gone()

    def drain(self) -> None:
        """The server is shutting down."""
        if self._is_draining:
            return
        self._is_draining = True
        if self.on_drain is not None:
            self.on_drain()
        else:
            self.end()

    def detach(self) -> None:
        """Drop all references, which would be cycles."""
        self._pipeline = self._request = None
        self.on_pause = self.on_resume = self.on_disconnect = self.on_drain = None
