"""An answer that goes on: a hot route begins it, writes as things happen, and ends it some day.

Its route is told when the client reads too slowly, when it has read on, when it has gone, and when the server
is about to stop. What is written in one turn of the loop leaves together.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.doors.http.pipeline import Pipeline
    from penstock.doors.http.requests import Request

LAST_CHUNK = b"0\r\n\r\n"

Callback = Callable[[], None]


class Outflow:
    """The rest of one answer whose head has been given."""

    __slots__ = (
        "_is_chunked",
        "_is_told",
        "_pipeline",
        "_request",
        "on_drain",
        "on_gone",
        "on_pause",
        "on_resume",
    )

    def __init__(
        self, pipeline: "Pipeline | None", request: "Request | None", *, is_chunked: bool = False
    ) -> None:
        self._pipeline = pipeline
        self._request = request
        self._is_chunked = is_chunked
        self._is_told = False  # that the server is about to stop
        self.on_pause: Callback | None = None
        """Called when too much waits for the client to read it; what is written nevertheless is kept."""
        self.on_resume: Callback | None = None
        """Called when there is room again."""
        self.on_gone: Callback | None = None
        """Called when the client has gone before the end."""
        self.on_drain: Callback | None = None
        """Called once when the server is about to stop; who does not set it is ended then."""

    @property
    def is_over(self) -> bool:
        """It was ended, or the client has gone."""
        return self._request is None

    @property
    def is_full(self) -> bool:
        """Whether too much waits already, or the client has to read other answers first."""
        pipeline, request = self._pipeline, self._request
        return pipeline is not None and request is not None and not pipeline.has_room_for(request)

    def write(self, data: bytes) -> None:
        """Send some bytes with this turn of the loop; after the end nothing happens."""
        if self._pipeline is not None and self._request is not None and data:
            framed = b"%x\r\n%b\r\n" % (len(data), data) if self._is_chunked else data
            self._pipeline.put(self._request, framed)

    def end(self, last: bytes = b"") -> None:
        """The answer is complete, with these bytes if there are any."""
        self.write(last)
        pipeline, request = self._pipeline, self._request
        self.let_go()
        if pipeline is not None and request is not None:
            pipeline.end_flow(request, LAST_CHUNK if self._is_chunked else b"")

    # What the listener tells

    def tell_room(self, *, is_full: bool) -> None:
        """The client reads too slowly, or has read on."""
        callback = self.on_pause if is_full else self.on_resume
        if callback is not None:
            callback()

    def leave(self) -> None:
        """The client has gone."""
        gone = self.on_gone
        self.let_go()
        if gone is not None:
            with suppress(PenstockError):
                gone()

    def drain(self) -> None:
        """The server is about to stop."""
        if self._is_told:
            return
        self._is_told = True
        if self.on_drain is not None:
            self.on_drain()
        else:
            self.end()

    def let_go(self) -> None:
        """It is over: refer to nobody who refers to it."""
        self._pipeline = self._request = None
        self.on_pause = self.on_resume = self.on_gone = self.on_drain = None
