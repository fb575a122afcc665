"""A listener in the hands of a test, with routes and an application that tell what they were asked."""

import asyncio
import json
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

from msgspec import Struct

from penstock.core.access.access import Access, OpenAccess
from penstock.core.broker import Broker
from penstock.core.runtime.clock import Clock, SystemClock
from penstock.core.runtime.deadlines import DeadlineChecks
from penstock.core.settings import CoreSettings
from penstock.errors import QuotaExceeded
from penstock.net.address_limits import AddressLimits, AddressLimitSettings
from penstock.net.http import HttpSettings
from penstock.net.http.door import HttpDoor
from penstock.net.http.request import Request
from penstock.net.http.routes import Routes
from penstock.net.origins import Origins
from penstock.net.password_checks import PasswordChecks
from penstock.net.tls import Certificates
from penstock.net.websocket import WebSocketSettings
from penstock.storage.memory import MemoryLog
from tests.support.clock import ManualClock, ManualScheduler
from tests.support.waiting import until

TIMEOUT_S = 20.0
MIB = 1024 * 1024
SLOW_BUFFER_BYTES = 16 * 1024


class Answer(Struct):
    """What came back for one request."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Peer:
    """One connection to a listener, in the hands of a test."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def ask(self, data: bytes, method: str = "GET") -> Answer:
        await self.send(data)
        return await self.answer(method)

    async def answer(self, method: str = "GET") -> Answer:
        """The next answer; a method of HEAD has none of the body that it tells of."""
        return await asyncio.wait_for(self._answer(method), TIMEOUT_S)

    async def _answer(self, method: str) -> Answer:
        line, *lines = (await self.reader.readuntil(b"\r\n\r\n"))[:-4].decode("latin-1").split("\r\n")
        version, status, _ = line.split(" ", 2)
        assert version == "HTTP/1.1", line
        headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in lines)}
        assert len(headers) == len(lines), f"a header is given twice: {lines}"
        return Answer(int(status), headers, await self._body(int(status), headers, method))

    async def _body(self, status: int, headers: dict[str, str], method: str) -> bytes:
        if status < 200 or status in (204, 304) or method == "HEAD":
            return b""
        if "content-length" in headers:
            return await self.reader.readexactly(int(headers["content-length"]))
        if headers.get("transfer-encoding") != "chunked":
            return await self.reader.read()
        body = b""
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            body += await self.reader.readexactly(size)
            assert await self.reader.readexactly(2) == b"\r\n"
        assert await self.reader.readexactly(2) == b"\r\n"
        return body

    async def rest(self) -> bytes:
        """Everything until the server closes."""
        return await asyncio.wait_for(self.reader.read(), TIMEOUT_S)

    async def is_cut(self) -> bool:
        """Whether the server ends the connection without a clean end of what it has sent."""
        try:
            return await self.rest() == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


class Seen(NamedTuple):
    """What a hot route was asked."""

    method: str
    path: str
    body: bytes
    user: str | None
    client_id: str


class House:
    """Listens as a test wants it, and remembers what it was asked."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.held: list[Request] = []
        self.is_held = asyncio.Event()
        self.gone: list[Request] = []
        self.is_disconnected = asyncio.Event()
        self.taken: list[tuple[bytes, bytes, asyncio.Transport, Any]] = []
        self.loads = 0
        self.may_go_on = asyncio.Event()
        self.has_started = asyncio.Event()
        self.was_left = asyncio.Event()
        self.streamed_bytes = 0
        self.routes = Routes()
        add = self.routes.add
        add("GET", "/hot", self._answer)
        add("POST", "/hot", self._answer)
        add("GET", "/open", self._answer, is_open=True, max_body_bytes=0)
        add("GET", "/figures", self._answer, is_admin=True)
        add("POST", "/small", self._answer, max_body_bytes=10)
        add("POST", "/large", self._answer, max_body_bytes=20 * MIB)
        add("GET", "/later", self._hold)
        add("POST", "/later", self._hold)
        add(
            "GET",
            "/parameters",
            lambda request: request.respond(200, json.dumps(request.parameters()).encode()),
        )
        add(
            "GET",
            "/api/v1/parameters",
            lambda request: request.respond(200, str(request.parameters()).encode()),
        )
        add("GET", "/broken", self._break)
        add("GET", "/api/v1/broken", self._break)
        add("GET", "/refused", self._refuse)
        add("GET", "/api/v1/refused", self._refuse)
        add("GET", "/bad-header", lambda request: request.respond(200, headers=[("x", "a\r\nb: c")]))
        add("GET", "/huge", lambda request: request.respond(200, bytes(MIB), content_type="text/plain"))
        add("GET", "/turn", self._answer, waits_its_turn=True, takes_away=True)
        add("GET", "/nothing", lambda request: request.respond(204))
        self.routes.upgrade("/socket", lambda *given: self.taken.append(given))
        self.routes.admin("/app/admin")
        self.routes.bodies("/app/large", 20 * MIB)
        self.door: HttpDoor
        self.broker: Broker
        self._peers: list[Peer] = []
        self._doors: list[HttpDoor] = []
        self._password_checks: list[PasswordChecks] = []
        self._clock: ManualClock
        self._timers: ManualScheduler

    async def open(
        self,
        *,
        access: Access | None = None,
        clock: Clock | None = None,
        app: Callable[..., Awaitable[None]] | None = None,
        load_app: Callable[[], Any] | None = None,
        certificates: Certificates | None = None,
        websocket: WebSocketSettings | None = None,
        address_limits: AddressLimits | None = None,
        password_checks: PasswordChecks | None = None,
        host: str = "127.0.0.1",
        **settings: Any,
    ) -> "House":
        """Listen on a free port, with settings of this test's own."""
        clock = clock or SystemClock()
        http = HttpSettings(**{"port": (0,), "tls_port": 0 if certificates else None, **settings})
        names = websocket or WebSocketSettings()
        log = MemoryLog(MIB)
        self.broker = Broker(
            CoreSettings(),
            access or OpenAccess(),
            log,
            log.state,
            clock,
            asyncio.get_running_loop(),
        )
        checks = password_checks or PasswordChecks(
            self.broker.access,
            asyncio.get_running_loop(),
            address_limits or AddressLimits(AddressLimitSettings(), clock),
        )
        self._password_checks.append(checks)
        self.door = HttpDoor(
            http,
            self.broker,
            clock,
            host,
            routes=self.routes,
            load_app=load_app or self._load,
            certificates=certificates,
            origins=Origins(host, names.hosts, names.origins, http.cors_origins),
            address_limits=address_limits,
            password_checks=checks,
        )
        if isinstance(clock, ManualClock):
            self._clock, self._timers = clock, ManualScheduler(clock)
            self.door._registry._checks = DeadlineChecks(clock, self._timers)
        self._doors.append(self.door)
        await self.door.open()
        return self

    async def connect(
        self, *, port: int | None = None, tls: ssl.SSLContext | None = None, is_slow: bool = False
    ) -> Peer:
        """A connection on which nothing has been said yet; a slow one has little room for answers."""
        port = port or self.door.ports("http" if tls is None else "https")[0]
        if is_slow:
            connection = socket.socket()
            connection.setblocking(False)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_BUFFER_BYTES)
            await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
            peer = Peer(*await asyncio.open_connection(sock=connection, limit=SLOW_BUFFER_BYTES))
        else:
            peer = Peer(*await asyncio.open_connection("127.0.0.1", port, ssl=tls, limit=64 * MIB))
        self._peers.append(peer)
        return peer

    async def ask(self, data: bytes, method: str = "GET", **how: Any) -> Answer:
        """The answer to some bytes on a connection of their own."""
        peer = await self.connect(**how)
        answer = await peer.ask(data, method)
        await peer.close()
        return answer

    async def has_read(self, size: int) -> None:
        """Wait until so many bytes have reached the listener."""
        await until(
            lambda: self.broker.counters.bytes_received >= size, "not all bytes were received", every_s=0
        )

    def advance(self, seconds: float) -> None:
        """Let time pass on a manual clock, and check connections whose deadline that is."""
        self._clock.advance(seconds)
        self._timers.settle()

    async def close(self) -> None:
        for _, _, transport, _ in self.taken:
            transport.abort()
        for peer in self._peers:
            await peer.close()
        for door in self._doors:
            await door.close()
            await door.finish(1.0)
        for checks in self._password_checks:
            checks.close()

    # Hot routes

    def _note(self, request: Request) -> Seen:
        identity = request.identity
        seen = Seen(request.method, request.path, request.body, identity.user, identity.client_id)
        self.seen.append(seen)
        return seen

    def _answer(self, request: Request) -> None:
        seen = self._note(request)
        request.respond(
            200, json.dumps({"hot": seen.path, "user": seen.user, "body": len(seen.body)}).encode()
        )

    def _hold(self, request: Request) -> None:
        self._note(request)
        if request.query == b"watched":
            request.on_disconnect = lambda: self._lose(request)
        self.held.append(request)
        self.is_held.set()

    def _lose(self, request: Request) -> None:
        self.gone.append(request)
        self.is_disconnected.set()

    def _break(self, request: Request) -> None:
        raise RuntimeError("a mistake of ours, with a secret")

    def _refuse(self, request: Request) -> None:
        raise QuotaExceeded("not so fast")

    # The application

    def _load(self) -> Callable[..., Awaitable[None]]:
        self.loads += 1
        return self.app

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        match scope["path"]:
            case "/app/broken" | "/api/v1/app/broken":
                raise RuntimeError("a mistake of ours, with a secret")
            case "/app/cut":
                await self._start(send, 200, [(b"content-length", b"100")])
                await send({"type": "http.response.body", "body": b"half", "more_body": True})
                raise RuntimeError("a mistake of ours, with a secret")
            case "/app/silent":
                return
            case "/app/read" if scope["method"] != "GET":
                await self._start(send, 405, [(b"allow", b"GET"), (b"content-length", b"0")])
                await send({"type": "http.response.body", "body": b""})
            case "/app/unread":
                await self._say(send, 202, b"not read")
            case "/app/stream":
                await self._stream(receive, send)
            case "/app/wait":
                self.has_started.set()
                await self.may_go_on.wait()
                await self._say(send, 200, b"waited")
            case "/app/forever":
                self.has_started.set()
                while (await receive())["type"] != "http.disconnect":
                    pass
                self.was_left.set()
            case "/hot" | "/app/missing":
                await self._say(send, 404, b"no")
            case _:
                await self._tell(scope, receive, send)

    async def _tell(self, scope: Any, receive: Any, send: Any) -> None:
        body, pieces = b"", 0
        while True:
            message = await receive()
            assert message["type"] == "http.request", message
            body += message["body"]
            pieces += 1
            if not message["more_body"]:
                break
        identity = scope["state"]["identity"]
        told = {
            "method": scope["method"],
            "path": scope["path"],
            "raw_path": scope["raw_path"].decode("latin-1"),
            "query": scope["query_string"].decode(),
            "scheme": scope["scheme"],
            "client": list(scope["client"]),
            "user": identity.user,
            "client_id": identity.client_id,
            "peer": scope["state"]["peer"].host,
            "body": len(body),
            "pieces": pieces,
        }
        await self._say(send, 200, json.dumps(told).encode())

    async def _stream(self, receive: Any, send: Any) -> None:
        await self._start(send, 200, [])
        while not self.may_go_on.is_set():
            await send({"type": "http.response.body", "body": bytes(32 * 1024), "more_body": True})
            self.streamed_bytes += 32 * 1024
            self.has_started.set()
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"end", "more_body": False})

    async def _start(self, send: Any, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        headers = [(b"content-type", b"application/json"), *headers]
        await send({"type": "http.response.start", "status": status, "headers": headers})

    async def _say(self, send: Any, status: int, body: bytes) -> None:
        await self._start(send, status, [(b"content-length", b"%d" % len(body))])
        await send({"type": "http.response.body", "body": body})


def get(path: str = "/hot", *headers: str, host: str = "localhost", version: str = "1.1") -> bytes:
    """A request without a body."""
    return request("GET", path, *headers, host=host, version=version)


def post(path: str = "/hot", body: bytes = b"", *headers: str) -> bytes:
    """A request with a body of known length."""
    return request("POST", path, f"Content-Length: {len(body)}", *headers) + body


def request(method: str, path: str, *headers: str, host: str = "localhost", version: str = "1.1") -> bytes:
    """The head of a request."""
    lines = [f"{method} {path} HTTP/{version}", *([f"Host: {host}"] if host else []), *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1")
