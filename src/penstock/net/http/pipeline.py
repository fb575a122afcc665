"""HTTP pipelining: the requests of one connection, from their heads to the last bytes of their responses.

Hot routes begin in the order of their requests, without waiting for earlier responses. The application
gets one request at a time, after all earlier responses. Responses are sent in the order of requests.
"""

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from penstock.errors import PenstockError
from penstock.net.http.asgi import AsgiRequest
from penstock.net.http.auth import ConnectionAuth
from penstock.net.http.errors import INTERNAL_DETAIL, response_for
from penstock.net.http.request import Refusal, Request, shutdown_refusal
from penstock.net.http.response import CONTINUE, Headers, build, build_head
from penstock.net.http.routes import Handler
from penstock.net.http.streaming import ResponseStream
from penstock.net.log_throttle import shortened
from penstock.net.origins import cors_headers
from penstock.net.read_pause import BODY, PIPELINE, UNREAD_RESPONSES

if TYPE_CHECKING:
    from penstock.net.http.connection import HttpConnection
    from penstock.net.http.door import HttpDoor

log = structlog.get_logger("penstock.http")


class Pipeline:
    """Requests of one connection whose responses are not complete."""

    __slots__ = (
        "_auth",
        "_begun",
        "_connection",
        "_door",
        "_is_advancing",
        "_pending",
        "_waits_for_app",
    )

    __deletable__ = ("_connection",)  # compiled classes say so

    def __init__(self, connection: "HttpConnection", door: "HttpDoor") -> None:
        self._connection = connection
        self._door = door
        self._pending: deque[Request] = deque()
        self._begun: deque[Request] = deque()  # begun
        self._is_advancing = self._waits_for_app = False
        self._auth = ConnectionAuth(connection, door, self._pending)

    def __len__(self) -> int:
        return len(self._begun) + len(self._pending)

    def __bool__(self) -> bool:
        return len(self) > 0

    # Beginning

    def add(self, request: Request) -> None:
        """Add a request whose head was read."""
        self._pending.append(request)
        self._auth.authenticate(request)  # even while others are before it
        # A request that needs its body cannot begin yet.
        is_awaited = request.route is not None and request.upgrade is None
        if not is_awaited or request.refusal is not None or request.wants_continue:
            self.advance()

    def advance(self) -> None:
        """Begin every request that can begin."""
        if self._is_advancing:
            return
        self._is_advancing = True
        pending, begun = self._pending, self._begun
        try:
            while pending:
                request = pending[0]
                route = request.route
                is_hot = route is not None and not route.waits_its_turn
                is_simple = is_hot and request.is_received and request.is_proven and not begun
                if not (is_simple and not self._connection.pauses) and not self._may_begin(request):
                    break
                begun.append(pending.popleft())
                self._begin(request)
        finally:
            self._is_advancing = False

    def _may_begin(self, request: Request) -> bool:
        before, route = self._begun, request.route
        if before and (route is None or route.waits_its_turn or _is_open_ended(before[-1])):
            return False
        if self._connection.pauses & UNREAD_RESPONSES:
            return False
        if request.refusal is not None:
            return True
        if not request.is_proven:
            return False
        if request.upgrade is not None:
            return True
        if route is None:
            return self._has_app()
        if request.wants_continue and not before:
            request.wants_continue = False
            self._connection.write(CONTINUE)
        return request.is_received and (not route.waits_its_turn or self._connection.has_sent_all())

    def _has_app(self) -> bool:
        application = self._door.application
        if not application.is_ready and not self._waits_for_app:
            self._waits_for_app = True
            application.when_ready(self._on_app)
        return application.is_ready

    def _on_app(self) -> None:
        self._waits_for_app = False
        self._connection.proceed()

    def _begin(self, request: Request) -> None:
        self._connection.set_read_timeout(None)
        if request.refusal is not None:
            self.refuse(request, request.refusal)
        elif request.upgrade is not None:
            if self._door.is_draining:
                self.refuse(request, shutdown_refusal())
            else:
                self._connection.hand_over(request.upgrade, request.identity)
        elif request.route is None:
            request.asgi = AsgiRequest(self._connection, request, self._door)
            request.asgi.begin()
        else:
            parts = request.parts
            if parts:
                request.body = parts[0] if len(parts) == 1 else b"".join(parts)
                parts.clear()
            self._call(request.route.handler, request)

    def _call(self, handler: Handler, request: Request) -> None:
        try:
            handler(request)
        except PenstockError as error:
            request.fail(error)
        except Exception:  # an error of the server
            log.exception("request failed", method=request.method, path=shortened(request.path))
            request.fail_internally()
        else:
            return
        if request.stream is not None:  # nothing would continue it
            self._connection.abort()

    # Responses

    def refuse(self, request: Request, refusal: Refusal) -> None:
        """Respond to a request that the listener itself refuses."""
        if refusal.is_fatal:
            request.keep_alive = False
        self._door.on_refused(request, refusal)
        status, body, content_type = response_for(refusal.status, refusal.detail, refusal.code, request.path)
        request.respond(status, body, content_type=content_type, headers=refusal.headers)
        self._connection.resume(BODY)  # the rest of its body is discarded

    def respond(
        self, request: Request, status: int, body: bytes, content_type: str, headers: Headers
    ) -> None:
        """Send the whole response to a request."""
        request.has_response = True
        if request.wants_continue:
            request.keep_alive = False  # the next bytes may be its body or another request
        if request.reader is not None:
            headers = [*headers, *cors_headers(request.reader)]
        date, connection = self._door.date_line(), self.connection_line(request)
        is_head = request.method == "HEAD"
        try:
            response = build(
                status, body, content_type, headers, date, connection=connection, is_head=is_head
            )
        except ValueError:  # an error of the server
            log.exception("response cannot be written", path=shortened(request.path))
            status, body, content_type = response_for(500, INTERNAL_DETAIL, PenstockError.code, request.path)
            response = build(status, body, content_type, (), date, connection=connection, is_head=is_head)
        self._door.count_response(status)
        self.put(request, response)
        self.finish(request)

    def begin_stream(
        self, request: Request, status: int, content_type: str, headers: Headers
    ) -> ResponseStream:
        """Send the head of a streamed response."""
        is_chunked = request.version == "1.1"
        request.keep_alive = request.keep_alive and is_chunked
        if request.reader is not None:
            headers = [*headers, *cors_headers(request.reader)]
        date, connection = self._door.date_line(), self.connection_line(request)
        head = build_head(status, content_type, headers, date, connection=connection, is_chunked=is_chunked)
        request.has_response = True
        self._door.count_response(status)
        self.put(request, head)
        flow = ResponseStream(self, request, is_chunked=is_chunked)
        if request.method == "HEAD":
            flow.detach()
            self.finish(request)
        else:
            request.stream = flow
        return flow

    def end_stream(self, request: Request, last: bytes) -> None:
        """End a streamed response."""
        request.stream = None
        if last:
            self.put(request, last)
        if self._door.is_draining:
            request.keep_alive = False
        self.finish(request)

    def has_room_for(self, request: Request) -> bool:
        """True if more of a response could be sent at once."""
        return self._begun[0] is request and not self._connection.is_full

    def on_room(self, *, is_full: bool) -> None:
        """The client has too much to read, or has read some of it."""
        flow = self._begun[0].stream if self._begun else None
        if flow is not None:
            flow.on_room(is_full=is_full)

    def drain(self) -> None:
        """End streamed responses at shutdown."""
        for request in list(self._begun):
            if request.stream is not None:
                request.stream.drain()

    def connection_line(self, request: Request) -> bytes:
        """Return the `Connection` header line of a response; empty for the default."""
        if self._door.is_draining and len(self) <= 1:
            request.keep_alive = False
        if not request.keep_alive:
            return b"connection: close\r\n"
        return b"" if request.version == "1.1" else b"connection: keep-alive\r\n"

    def put(self, request: Request, data: bytes) -> None:
        """Send a part of a response, or queue it behind earlier responses."""
        if self._begun[0] is request:
            self._connection.write(data)
        else:
            request.written.append(data)

    def finish(self, request: Request) -> None:
        """A response is complete."""
        request.is_complete = True
        if request.held_bytes:
            self._door.bodies.release(request)
        begun = self._begun
        while begun and begun[0].is_complete:
            done = begun.popleft()
            if done.asgi is not None or done.on_disconnect is not None:
                done.asgi = done.on_disconnect = None  # they refer back to it
            if not done.keep_alive:
                self._connection.end(is_lingering=not done.is_received or done.refusal is not None)
                return
            if begun:
                for data in begun[0].written:
                    self._connection.write(data)
                begun[0].written.clear()
                if not self._connection.is_full:
                    self.on_room(is_full=False)
        if not begun and not self._pending:
            self._connection.on_idle()
        if self._connection.pauses & PIPELINE and len(self) < self._door.settings.max_pipelined:
            self._connection.resume(PIPELINE)
        elif self._pending and not self._is_advancing:
            self._connection.proceed()

    # Endings

    def end_with(self, request: Request | None, refusal: Refusal, path: str) -> None:
        """Respond to input that cannot be parsed, after all earlier responses, and close.

        Args:
            request: the one whose body could not be parsed, if it was a body.
            path: the path of the request, as far as it is known.
        """
        if request is None:
            request = Request(self._connection, self._connection.peer, "GET", path, b"", b"", [])
            self._door.requests += 1
            self._pending.append(request)
        elif request.is_complete:  # and its body was not needed
            if self._begun:
                self._begun[-1].keep_alive = False
            else:
                self._connection.end(is_lingering=True)
            return
        elif request.has_response:
            self._connection.abort()
            return
        elif request.asgi is not None:
            request.asgi.leave()
            request.refusal = refusal
            self.refuse(request, refusal)
            return
        request.refusal = refusal
        self.advance()

    def on_end_of_input(self) -> bool:
        """The peer sends no more; return True if it still gets a response.

        It may have closed only its direction, or have disconnected. Routes with `on_disconnect` are
        notified, and a pending password check is cancelled.
        """
        if self._auth.is_checking:
            return False
        requests = [*self._begun, *self._pending]
        for request in requests:
            if request.on_disconnect is not None or request.stream is not None or not request.is_received:
                self._notify_disconnect(request)
            elif request.asgi is not None:
                request.asgi.on_end_of_input()
        if any(request.is_disconnected for request in requests):
            self.clear()  # none of them may begin
        return len(self) > 0

    def clear(self) -> None:
        """Drop all requests: their client has disconnected."""
        self._auth.cancel()
        for request in [*self._begun, *self._pending]:
            self._notify_disconnect(request)
        self._begun.clear()
        self._pending.clear()

    def close(self) -> None:
        """Drop the reference to the connection, which refers to this object."""
        self.clear()
        self._auth.close()
        if self._waits_for_app:
            self._door.application.forget(self._on_app)
        del self._connection

    def _notify_disconnect(self, request: Request) -> None:
        """Notify the route of a request that its client has disconnected."""
        if request.is_disconnected:
            return
        request.is_disconnected = True
        self._door.bodies.release(request)
        if request.asgi is not None:
            request.asgi.leave()
        if request.stream is not None:
            request.stream.leave()
        if request.on_disconnect is not None and not request.has_response:
            with suppress(PenstockError):
                request.on_disconnect()
        request.detach()


def _is_open_ended(request: Request) -> bool:
    """True if the end of a response cannot be predicted, or if others would overtake the request."""
    return request.asgi is not None or request.stream is not None or request.is_exclusive
