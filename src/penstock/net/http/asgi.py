"""ASGI adapter: the application that gets every request without a hot route.

Loading it takes longer than everything else at start, so a thread does it once the ports are open. A
request goes to uvicorn's `RequestResponseCycle`, with the connection as its transport and flow control.
What the cycle leaves out is here: failures, HEAD, and responses to HTTP/1.0.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import structlog

from penstock.net.http.request import HIGH_WATER_BYTES, Request
from penstock.net.http.routes import allow
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

NOT_FOUND, NOT_ALLOWED = 404, 405
PATIENCE_KEY = "penstock.patience_s"
"""Key of a response's start message: time that it may be left unread, instead of `http.write_timeout_s`."""

_silence = logging.Logger("penstock.silence", logging.CRITICAL + 1)  # belongs to no hierarchy
_silence.addHandler(logging.NullHandler())


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
        self.make_cycle: Callable[..., Any] = _no_cycle
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
            self.make_cycle, self.app = await self._loop.run_in_executor(thread, self._load_all)
        except Exception:  # an error of the server; hot routes still work
            log.exception("application not loaded")
        thread.shutdown(wait=False)
        self.is_ready = True
        while self._waiting:
            callback = next(iter(self._waiting))
            del self._waiting[callback]
            callback()

    def _load_all(self) -> tuple[Callable[..., Any], ASGIApp]:
        from uvicorn.protocols.http.httptools_impl import RequestResponseCycle  # noqa: PLC0415 - slow

        return RequestResponseCycle, self._load_app()

    async def close(self) -> None:
        """Cancel what still runs."""
        running = [*self.tasks, *([self._loading] if self._loading is not None else [])]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _no_cycle(**_: Any) -> Any:
    raise RuntimeError("the application is not loaded")


class AsgiRequest:
    """One request in the application: transport and flow control of its cycle."""

    __slots__ = (
        "_connection",
        "_cycle",
        "_door",
        "_has_ended",
        "_is_over",
        "_is_read",
        "_is_untold",
        "_request",
    )

    def __init__(self, connection: "HttpConnection", request: Request, door: "HttpDoor") -> None:
        self._connection = connection
        self._request = request
        self._door = door
        self._is_over = self._is_read = self._is_untold = False
        self._has_ended = connection.has_ended
        self._cycle: Any = None

    def begin(self) -> None:
        """Call the application."""
        application, request = self._door.application, self._request
        app = application.app
        if app is None:
            request.fail_internally()
            self.resume_reading()
            return
        defaults = [(b"date", self._door.date_line()[len(b"date: ") : -2])]
        if request.reader is not None:
            defaults += [(name.encode(), value.encode()) for name, value in cors_headers(request.reader)]
        scope = _scope(self._connection, request)
        self._cycle = application.make_cycle(
            scope=scope,
            transport=self,
            flow=self,
            logger=_silence,
            access_logger=_silence,
            access_log=False,
            default_headers=defaults,
            message_event=asyncio.Event(),
            expect_100_continue=request.wants_continue,
            keep_alive=request.keep_alive and request.version == "1.1",
            on_response=self._on_answered,
        )
        for part in request.parts:
            self.take(part)
        request.parts = []
        if request.is_received:
            self.take(b"")
        if len(self._cycle.body) <= HIGH_WATER_BYTES:
            self.resume_reading()
        task = self._door.loop.create_task(self._run(app, scope))
        application.tasks.add(task)
        task.add_done_callback(application.tasks.discard)

    async def _run(self, app: ASGIApp, scope: Scope) -> None:
        request = self._request
        if request.method == "HEAD":
            scope = {**scope, "method": "GET"}
        try:
            await app(scope, self._receive, self._send)
        except Exception:
            if not self._is_over:
                log.exception("request failed", method=request.method, path=shortened(request.path))
        else:
            if not self._is_over and not self._has_ended:
                log.error("request not answered", method=request.method, path=shortened(request.path))
        self._end()
        self._cycle = None  # it refers back to this object

    def _end(self) -> None:
        """Complete or abort the response after the application has returned."""
        if self._is_over:
            return
        if self._has_ended and not self._cycle.response_started:
            self._connection.abort()  # the application was notified of the disconnect
        elif not self._cycle.response_started:
            self._request.fail_internally()
        elif not self._cycle.response_complete:
            self._connection.abort()

    async def _receive(self) -> Message:
        """ASGI receive: the body, then the disconnect."""
        cycle = self._cycle
        if cycle is None or (self._has_ended and self._is_read):
            return {"type": "http.disconnect"}
        message: Message = await cycle.receive()
        if self._has_ended and self._is_read:
            return {"type": "http.disconnect"}
        self._is_read = not message.get("more_body", False)
        return message

    async def _send(self, message: Message) -> None:
        """ASGI send: passes messages to the cycle."""
        cycle, request = self._cycle, self._request
        if self._is_over or cycle is None:
            return
        if message["type"] == "http.response.start":
            if message["status"] in (NOT_FOUND, NOT_ALLOWED) and self._tells_methods(message):
                return
            self._on_start(message)
        elif request.method == "HEAD":
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        elif self._is_untold:  # the cycle counts down to zero
            cycle.expected_content_length = len(message.get("body", b""))
        await cycle.send(message)

    def _on_start(self, message: Message) -> None:
        cycle, request = self._cycle, self._request
        request.has_response = True
        if cycle.waiting_for_100_continue:
            request.keep_alive = False  # the next bytes may be its body or another request
        self._connection.pipeline.connection_line(request)
        cycle.keep_alive = cycle.keep_alive and request.keep_alive
        self._door.count_response(message["status"])
        self._connection.set_read_timeout(message.get(PATIENCE_KEY))
        names = {name.lower() for name, _ in message.get("headers", ())}
        if request.version == "1.0" and not names & {b"content-length", b"transfer-encoding"}:
            # Without chunks the end of the connection is the end of the response.
            self._is_untold, cycle.chunked_encoding = True, False

    def _tells_methods(self, message: Message) -> bool:
        """Respond with the methods of a path, where the application does not know all of them, or OPTIONS."""
        request, headers = self._request, message.get("headers", ())
        own = [value.decode("latin-1").split(", ") for name, value in headers if name == b"allow"]
        told = [request.allowed, *(allow(each) for each in own)]
        allowed = ", ".join(sorted({method for each in told if each for method in each.split(", ")}))
        if request.method == "OPTIONS" and allowed:
            self._is_over = True
            request.respond_methods(allowed)
        elif request.allowed:  # the path has hot routes, but not with this method
            self._is_over = True
            request.refuse_method(allowed)
        elif allowed:
            others = [header for header in headers if header[0] != b"allow"]
            message["headers"] = [*others, (b"allow", allowed.encode("latin-1"))]
        return self._is_over

    def on_end_of_input(self) -> None:
        """The client sends no more: the application gets a disconnect, and may still respond."""
        self._has_ended = True
        if self._cycle is not None:
            self._cycle.message_event.set()

    def leave(self) -> None:
        """The client has disconnected."""
        self._is_over = True
        if self._cycle is not None:
            self._cycle.disconnected = True
            self._cycle.body.clear()
            self._cycle.message_event.set()
        self.resume_reading()

    def _on_answered(self) -> None:
        self._is_over = True
        self.resume_reading()  # the rest of its body is discarded
        self._connection.pipeline.finish(self._request)

    # The body

    def take(self, data: bytes) -> None:
        """Pass on a part of the body; the empty part is its end."""
        cycle = self._cycle
        if cycle is None or cycle.response_complete:
            return
        cycle.body += data
        cycle.more_body = bool(data)
        cycle.message_event.set()
        if len(cycle.body) > HIGH_WATER_BYTES and data:
            self.pause_reading()

    # Transport of the cycle

    def write(self, data: bytes) -> None:
        self._connection.pipeline.put(self._request, data)

    def is_closing(self) -> bool:
        return self._is_over or self._connection.transport.is_closing()

    def close(self) -> None:
        self._request.keep_alive = False

    # Flow control of the cycle

    @property
    def write_paused(self) -> bool:
        return self._connection.is_full

    async def drain(self) -> None:
        await self._connection.drain()

    def pause_reading(self) -> None:
        self._connection.pause(BODY)

    def resume_reading(self) -> None:
        self._connection.resume(BODY)


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
        "method": request.method,
        "path": request.path,
        "raw_path": request.raw_path,
        "query_string": request.query,
        "headers": request.headers,
        "state": {"identity": request.identity, "peer": request.peer},
    }
