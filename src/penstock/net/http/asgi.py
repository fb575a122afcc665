"""ASGI adapter: the application that gets every request without a hot route.

Loading it takes longer than everything else at start, so a thread does it once the ports are open. Each
request has a cycle of its own: the application reads the body and sends the response by ASGI messages.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import structlog

from penstock.net.http.request import HIGH_WATER_BYTES, Request, gather
from penstock.net.http.response import BODILESS, CONTINUE, encode_headers, status_line
from penstock.net.http.routes import allow
from penstock.net.http.streaming import LAST_CHUNK
from penstock.net.log_throttle import shortened
from penstock.net.origins import cors_headers
from penstock.net.read_pause import BODY

if TYPE_CHECKING:
    from penstock.net.http.connection import HttpConnection
    from penstock.net.http.door import HttpDoor

log = structlog.get_logger("penstock.http")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Scope = MutableMapping[str, Any]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

NO_CONTENT, NOT_FOUND, NOT_ALLOWED = 204, 404, 405
PATIENCE_KEY = "penstock.patience_s"
"""Key of a response's start message: time that it may be left unread, instead of `http.write_timeout_s`."""

_NOT_A_NAME = re.compile(rb"[^!#$%&'*+.^_`|~0-9A-Za-z-]")  # RFC 9110, 5.6.2
_NOT_A_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class Application:
    """The ASGI application, once it is loaded.

    Args:
        load_app: imports and builds it; called once, in a thread.
    """

    def __init__(self, load_app: Callable[[], ASGIApp], loop: asyncio.AbstractEventLoop) -> None:
        self._load_app = load_app
        self._loop = loop
        self._loading: asyncio.Task[None] | None = None
        self._waiting: dict[Callable[[], None], None] = {}
        self.is_ready = False
        """Loading has succeeded, or failed."""
        self.app: ASGIApp | None = None
        self.tasks: set[asyncio.Task[None]] = set()

    def load(self) -> None:
        """Start loading. Idempotent."""
        if self._loading is None:
            self._loading = self._loop.create_task(self._load())

    def when_ready(self, callback: Callable[[], None]) -> None:
        """Call back once when it is loaded; start loading if needed."""
        self._waiting[callback] = None
        self.load()

    def forget(self, callback: Callable[[], None]) -> None:
        """Cancel a callback."""
        self._waiting.pop(callback, None)

    async def _load(self) -> None:
        thread = ThreadPoolExecutor(1, "application")
        try:
            self.app = await self._loop.run_in_executor(thread, self._load_app)
        except Exception:  # an error of the server; hot routes still work
            log.exception("application not loaded")
        thread.shutdown(wait=False)
        self.is_ready = True
        while self._waiting:
            callback = next(iter(self._waiting))
            del self._waiting[callback]
            callback()

    async def close(self) -> None:
        """Cancel what still runs."""
        running = [*self.tasks, *([self._loading] if self._loading is not None else [])]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class AsgiRequest:
    """One request in the application: its body by `receive`, its response by `send`."""

    __slots__ = (
        "_connection",
        "_door",
        "_has_ended",
        "_has_started",
        "_is_chunked",
        "_is_over",
        "_is_read",
        "_is_received",
        "_news",
        "_parts",
        "_request",
        "_unread_bytes",
        "_unsent_bytes",
    )

    def __init__(self, connection: "HttpConnection", request: Request, door: "HttpDoor") -> None:
        self._connection = connection
        self._request = request
        self._door = door
        self._is_over = False  # the response is complete, or the client has disconnected
        # The body:
        self._parts: list[bytes] = []
        self._unread_bytes = 0
        self._is_received = self._is_read = False  # completely, by this object and by the application
        self._has_ended = connection.has_ended
        self._news = asyncio.Event()  # `receive` has something to return
        # The response:
        self._has_started = self._is_chunked = False
        self._unsent_bytes: int | None = None  # None: of unknown length

    def begin(self) -> None:
        """Call the application."""
        application, request = self._door.application, self._request
        app = application.app
        if app is None:
            request.fail_internally()
            self._connection.resume(BODY)
            return
        for part in request.parts:
            self.take(part)
        request.parts = []
        if request.is_received:
            self.take(b"")
        if self._unread_bytes <= HIGH_WATER_BYTES:
            self._connection.resume(BODY)
        task = self._door.loop.create_task(self._run(app, _scope(self._connection, request)))
        application.tasks.add(task)
        task.add_done_callback(application.tasks.discard)

    async def _run(self, app: ASGIApp, scope: Scope) -> None:
        request = self._request
        try:
            await app(scope, self._receive, self._send)
        except Exception:
            if not self._is_over:
                log.exception("request failed", method=request.method, path=shortened(request.path))
        else:
            if not self._is_over and not self._has_ended:
                log.error("request without a response", method=request.method, path=shortened(request.path))
        if self._is_over:
            return
        if self._has_started or self._has_ended:  # half a response, or the application noticed a disconnect
            self._connection.abort()
        else:
            self.leave()
            request.fail_internally()

    # The body

    def take(self, data: bytes) -> None:
        """Pass on a part of the body; the empty part is its end."""
        if self._is_over:
            return
        self._news.set()
        if not data:
            self._is_received = True
            return
        gather(self._parts, data)
        self._unread_bytes += len(data)
        if self._unread_bytes > HIGH_WATER_BYTES:
            self._connection.pause(BODY)

    def on_end_of_input(self) -> None:
        """The client sends no more: the application gets a disconnect, and may still respond."""
        self._has_ended = True
        self._news.set()

    def leave(self) -> None:
        """End the request: the client has disconnected, or its response is complete."""
        self._is_over = True
        self._news.set()
        self._parts.clear()
        self._connection.resume(BODY)  # the rest of the body is discarded

    async def _receive(self) -> Message:
        """ASGI receive: the body, then the disconnect."""
        request = self._request
        if request.wants_continue and not self._is_over:
            request.wants_continue = False
            self._connection.pipeline.put(request, CONTINUE)
        while True:
            if self._is_over or (self._is_read and self._has_ended):
                return {"type": "http.disconnect"}
            if self._parts or (self._is_received and not self._is_read):
                return self._take_body()
            self._news.clear()
            self._connection.resume(BODY)
            await self._news.wait()

    def _take_body(self) -> Message:
        parts = self._parts
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        self._parts, self._unread_bytes = [], 0
        self._is_read = self._is_received
        return {"type": "http.request", "body": body, "more_body": not self._is_read}

    # The response

    async def _send(self, message: Message) -> None:
        """ASGI send: the head, then the parts of the body. Ignored after the end.

        Raises:
            RuntimeError: the message is out of order, or cannot be written.
        """
        if self._is_over:
            return
        expected = "http.response.body" if self._has_started else "http.response.start"
        if message["type"] != expected:
            raise RuntimeError(f"expected the ASGI message {expected!r}, not {message['type']!r}")
        if not self._has_started:
            self._start(message)
            return
        if self._connection.is_full:
            await self._connection.drain()
            if self._is_over:
                return
        if self._request.method == "HEAD":  # the application was asked with GET
            self._finish()
        else:
            self._write(message.get("body", b""), is_last=not message.get("more_body", False))

    def _start(self, message: Message) -> None:
        request, status = self._request, message["status"]
        if status in (NOT_FOUND, NOT_ALLOWED) and self._responds_methods(message):
            return
        start = status_line(status)
        lines = self._read_headers(status, message.get("headers", ()))
        if request.wants_continue:  # the next bytes may be its body or another request
            request.keep_alive = request.wants_continue = False
        has_body = request.method != "HEAD" and status not in BODILESS
        if has_body and self._unsent_bytes is None and request.version == "1.1":
            self._is_chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        elif not has_body:
            self._unsent_bytes = 0
        # To HTTP/1.0 the end of the connection is the end of the response.
        request.keep_alive = request.keep_alive and request.version == "1.1"
        connection = self._connection
        closing = connection.pipeline.connection_line(request)
        cors = encode_headers(cors_headers(request.reader)) if request.reader is not None else b""
        self._has_started = request.has_response = True
        self._door.count_response(status)
        connection.set_read_timeout(message.get(PATIENCE_KEY))
        head = b"".join((start, self._door.date_line(), cors, *lines, closing, b"\r\n"))
        connection.pipeline.put(request, head)

    def _read_headers(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
        """Encode the application's headers; those about framing and the connection take effect instead."""
        lines, size = [], None
        for given, value in headers:
            name = given.lower()
            if _NOT_A_NAME.search(name) or _NOT_A_VALUE.search(value) or not name:
                raise RuntimeError(f"{name!r}: {value!r} cannot be written as a header")
            if name == b"transfer-encoding":
                continue
            if name == b"connection":
                if b"close" in [token.strip() for token in value.lower().split(b",")]:
                    self._request.keep_alive = False
                continue
            if name == b"content-length":
                if size is not None or not value.isdigit():
                    raise RuntimeError(f"{value!r} cannot be the only length of the content")
                size = int(value)
                if status == NO_CONTENT:
                    continue
            lines.append(b"%b: %b\r\n" % (name, value))
        self._unsent_bytes = size
        return lines

    def _write(self, body: bytes, *, is_last: bool) -> None:
        size = len(body)
        if self._unsent_bytes is not None:
            self._unsent_bytes -= size
            if self._unsent_bytes < 0:
                raise RuntimeError("the response is longer than its Content-Length")
            if is_last and self._unsent_bytes:
                raise RuntimeError("the response is shorter than its Content-Length")
        put, request = self._connection.pipeline.put, self._request
        if self._is_chunked:
            framed = b"%x\r\n%b\r\n" % (size, body) if size else b""
            put(request, framed + LAST_CHUNK if is_last else framed)
        elif size:
            put(request, bytes(body))
        if is_last:
            self._finish()

    def _finish(self) -> None:
        self.leave()
        self._connection.pipeline.finish(self._request)

    def _responds_methods(self, message: Message) -> bool:
        """Respond with the methods of a path, where the application does not know all of them, or OPTIONS."""
        request, headers = self._request, message.get("headers", ())
        own = [value.decode("latin-1").split(", ") for name, value in headers if name == b"allow"]
        known = [request.allowed, *(allow(each) for each in own)]
        allowed = ", ".join(sorted({method for each in known if each for method in each.split(", ")}))
        if request.method == "OPTIONS" and allowed:
            self.leave()
            request.respond_methods(allowed)
        elif request.allowed:  # the path has hot routes, but not with this method
            self.leave()
            request.refuse_method(allowed)
        elif allowed:
            others = [header for header in headers if header[0] != b"allow"]
            message["headers"] = [*others, (b"allow", allowed.encode("latin-1"))]
        return self._is_over


def _scope(connection: "HttpConnection", request: Request) -> Scope:
    server = connection.transport.get_extra_info("sockname")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": request.version,
        "server": tuple(server[:2]) if server else None,
        "client": (request.peer.host, request.peer.port),
        "scheme": connection.scheme,
        "root_path": "",
        "method": "GET" if request.method == "HEAD" else request.method,
        "path": request.path,
        "raw_path": request.raw_path,
        "query_string": request.query,
        "headers": request.headers,
        "state": {"identity": request.identity, "peer": request.peer},
    }
