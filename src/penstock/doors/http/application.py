"""The application behind the listener: loaded when there is time, and given what no hot route answers.

Loading takes longer than everything else at start, so it is done in a thread once the ports are open. A
request goes to uvicorn's `RequestResponseCycle`, which knows ASGI; our connection is its transport and its
flow control. What the cycle leaves to others is here: mistakes, HEAD, and answers for clients of HTTP/1.0.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import structlog

from penstock.doors.http.requests import Request
from penstock.doors.http.routes import allow
from penstock.doors.http.waiting import BODY, HIGH_WATER_BYTES
from penstock.doors.notes import shortened
from penstock.doors.origins import cors_headers

if TYPE_CHECKING:
    from penstock.doors.http.door import HttpDoor
    from penstock.doors.http.protocol import HttpConnection

log = structlog.get_logger("penstock.http")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Scope = MutableMapping[str, Any]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

NOT_FOUND, NOT_ALLOWED = 404, 405
PATIENCE_KEY = "penstock.patience_s"
"""With the start of an answer: how long its reader may pause, where that is not `http.write_timeout_s`."""

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
        """It is loaded, or it never will be."""
        self.app: ASGIApp | None = None
        self.make_cycle: Callable[..., Any] = _no_cycle
        self.tasks: set[asyncio.Task[None]] = set()

    def load(self) -> None:
        """Begin to load it, unless that has been begun."""
        if self._loading is None:
            self._loading = self._loop.create_task(self._load())

    def when_ready(self, callback: Callable[[], None]) -> None:
        """Call somebody once when it is loaded, and load it if nobody did."""
        self._waiting[callback] = None
        self.load()

    def forget(self, callback: Callable[[], None]) -> None:
        """Do not call somebody who has gone meanwhile."""
        self._waiting.pop(callback, None)

    async def _load(self) -> None:
        thread = ThreadPoolExecutor(1, "application")
        try:
            self.make_cycle, self.app = await self._loop.run_in_executor(thread, self._load_all)
        except Exception:  # a mistake of ours; the hot routes are served all the same
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
        """Give up whatever still runs."""
        running = [*self.tasks, *([self._loading] if self._loading is not None else [])]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _no_cycle(**_: Any) -> Any:
    raise RuntimeError("the application is not loaded")


class Hosted:
    """One request in the hands of the application: the transport and the flow control of its cycle."""

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
        """Let the application work on it."""
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
        self._cycle = None  # it refers to us

    def _end(self) -> None:
        """The application is done: let nobody wait for more, or take a part for the whole."""
        if self._is_over:
            return
        if self._has_ended and not self._cycle.response_started:
            self._connection.abort()  # it was told that nobody waits, and believed it
        elif not self._cycle.response_started:
            self._request.fail_internally()
        elif not self._cycle.response_complete:
            self._connection.abort()

    async def _receive(self) -> Message:
        """What the client says: its body, and then that it has gone."""
        cycle = self._cycle
        if cycle is None or (self._has_ended and self._is_read):
            return {"type": "http.disconnect"}
        message: Message = await cycle.receive()
        if self._has_ended and self._is_read:
            return {"type": "http.disconnect"}
        self._is_read = not message.get("more_body", False)
        return message

    async def _send(self, message: Message) -> None:
        """What the application says, on its way to the cycle."""
        cycle, request = self._cycle, self._request
        if self._is_over or cycle is None:
            return
        if message["type"] == "http.response.start":
            if message["status"] in (NOT_FOUND, NOT_ALLOWED) and self._tells_methods(message):
                return
            self._on_start(message)
        elif request.method == "HEAD":
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        elif self._is_untold:  # the cycle counts down to nought
            cycle.expected_content_length = len(message.get("body", b""))
        await cycle.send(message)

    def _on_start(self, message: Message) -> None:
        cycle, request = self._cycle, self._request
        request.answered = True
        if cycle.waiting_for_100_continue:
            request.keep_alive = False  # its body comes or not, and what then comes could be either
        self._connection.pipeline.connection_line(request)
        cycle.keep_alive = cycle.keep_alive and request.keep_alive
        self._door.count_response(message["status"])
        self._connection.wait_for_reader(message.get(PATIENCE_KEY))
        names = {name.lower() for name, _ in message.get("headers", ())}
        if request.version == "1.0" and not names & {b"content-length", b"transfer-encoding"}:
            # It knows no chunks: the end of the connection is the end of the answer.
            self._is_untold, cycle.chunked_encoding = True, False

    def _tells_methods(self, message: Message) -> bool:
        """Say which methods a path takes, where the application does not know all of them, or not OPTIONS."""
        request, headers = self._request, message.get("headers", ())
        own = [value.decode("latin-1").split(", ") for name, value in headers if name == b"allow"]
        told = [request.allowed, *(allow(each) for each in own)]
        allowed = ", ".join(sorted({method for each in told if each for method in each.split(", ")}))
        if request.method == "OPTIONS" and allowed:
            self._is_over = True
            request.tell_methods(allowed)
        elif request.allowed:  # the path is known, only not to the application, and not with this method
            self._is_over = True
            request.refuse_method(allowed)
        elif allowed:
            others = [header for header in headers if header[0] != b"allow"]
            message["headers"] = [*others, (b"allow", allowed.encode("latin-1"))]
        return self._is_over

    def on_end_of_input(self) -> None:
        """The client sends no more: whoever listens for that is told that it has gone, and may answer it."""
        self._has_ended = True
        if self._cycle is not None:
            self._cycle.message_event.set()

    def leave(self) -> None:
        """Nobody waits for the answer any more."""
        self._is_over = True
        if self._cycle is not None:
            self._cycle.disconnected = True
            self._cycle.body.clear()
            self._cycle.message_event.set()
        self.resume_reading()

    def _on_answered(self) -> None:
        self._is_over = True
        self.resume_reading()  # what is left of its body is thrown away
        self._connection.pipeline.finish(self._request)

    # The body

    def take(self, data: bytes) -> None:
        """A part of the body has come; the empty part is its end."""
        cycle = self._cycle
        if cycle is None or cycle.response_complete:
            return
        cycle.body += data
        cycle.more_body = bool(data)
        cycle.message_event.set()
        if len(cycle.body) > HIGH_WATER_BYTES and data:
            self.pause_reading()

    # What a cycle asks of its transport

    def write(self, data: bytes) -> None:
        self._connection.pipeline.put(self._request, data)

    def is_closing(self) -> bool:
        return self._is_over or self._connection.transport.is_closing()

    def close(self) -> None:
        self._request.keep_alive = False

    # What a cycle asks of its flow control

    @property
    def write_paused(self) -> bool:
        return self._connection.is_full

    async def drain(self) -> None:
        await self._connection.drain()

    def pause_reading(self) -> None:
        self._connection.shut(BODY)

    def resume_reading(self) -> None:
        self._connection.open(BODY)


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
