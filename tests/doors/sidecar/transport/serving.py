"""A door in the hands of a test, with a few methods that need no broker, and clients of it."""

import asyncio
from collections import deque
from typing import Any

import grpc.aio

from penstock.core.access.access import Access, OpenAccess
from penstock.core.broker import Broker
from penstock.core.runtime.clock import SystemClock
from penstock.core.settings import CoreSettings
from penstock.doors.sidecar.door import Services, SidecarDoor
from penstock.doors.sidecar.settings import SidecarSettings
from penstock.doors.sidecar.transport.method import Call, EndCause, Handler, Methods, Streaming, Unary
from penstock.net.address_limits import AddressLimits, AddressLimitSettings
from penstock.net.password_checks import PasswordChecks
from penstock.net.tls import Certificates
from penstock.storage.memory import MemoryLog
from penstock.wire.grpc import Status, encode_message

TIMEOUT_S = 30.0
SERVICE = "/test.Echo/"
SAY, WAIT, FAIL, REFUSE, TELL, WHO = (
    SERVICE + name for name in ("Say", "Wait", "Fail", "Refuse", "Tell", "Who")
)
COUNT, SUM, CHAT, HOLD = (SERVICE + name for name in ("Count", "Sum", "Chat", "Hold"))


class Echo:
    """Methods of every kind, and what happened to their calls."""

    def __init__(self) -> None:
        self.waiting: list[Call] = []
        self.causes: list[EndCause] = []
        self.has_ended = asyncio.Event()
        self.handlers: list[Handler] = []
        self.methods: Methods = {
            SAY: Unary(lambda call, message: call.respond(message)),
            WAIT: Unary(self._wait),
            FAIL: Unary(self._fail),
            REFUSE: Unary(lambda call, message: call.finish(Status.NOT_FOUND, message.decode())),
            TELL: Unary(lambda call, message: call.respond(repr(sorted(call.metadata)).encode())),
            WHO: Unary(lambda call, message: call.respond(user_of(call).encode())),
            COUNT: Streaming(self._keep(Counting)),
            SUM: Streaming(self._keep(Summing)),
            CHAT: Streaming(self._keep(Chatting)),
            HOLD: Streaming(self._keep(Holding)),
        }

    def on_ended(self, cause: EndCause) -> None:
        self.causes.append(cause)
        self.has_ended.set()

    def _wait(self, call: Call, message: bytes) -> None:
        call.handler = Ending(self, call)
        self.waiting.append(call)

    def _fail(self, call: Call, message: bytes) -> None:
        raise RuntimeError("a mistake")

    def _keep(self, kind: type["Ending"]) -> Any:
        def begin(call: Call) -> Handler:
            handler = kind(self, call)
            self.handlers.append(handler)
            return handler

        return begin


def user_of(call: Call) -> str:
    """Who was let in."""
    assert call.identity is not None
    return call.identity.user or ""


class Ending(Handler):
    """Tells how its call ended."""

    def __init__(self, echo: Echo, call: Call) -> None:
        self._echo = echo
        self.call = call
        self.received: list[bytes] = []

    def ended(self, cause: EndCause) -> None:
        self._echo.on_ended(cause)


class Counting(Ending):
    """Answers `count size` with so many messages of that size, never more than the client has room for."""

    def __init__(self, echo: Echo, call: Call) -> None:
        super().__init__(echo, call)
        self.left: deque[bytes] = deque()
        self.sent = 0
        self.pauses = self.resumes = 0
        self._is_paused = False
        self._is_whole = False

    def message_received(self, message: bytes) -> None:
        count, size = map(int, message.split())
        self.left.extend(number.to_bytes(8, "big").ljust(size, b".") for number in range(count))

    def messages_ended(self) -> None:
        self._is_whole = True
        self._send()

    def pause_writing(self) -> None:
        self.pauses += 1
        self._is_paused = True

    def resume_writing(self) -> None:
        self.resumes += 1
        self._is_paused = False
        self._send()

    def _send(self) -> None:
        while self.left and not self._is_paused:
            self.sent += 1
            self.call.send(encode_message(self.left.popleft()))
        if not self.left:
            self.call.finish()


class Summing(Ending):
    """Answers with how many messages and bytes came."""

    def message_received(self, message: bytes) -> None:
        self.received.append(message)

    def messages_ended(self) -> None:
        self.call.respond(b"%d %d" % (len(self.received), sum(map(len, self.received))))


class Chatting(Ending):
    """Sends everything back."""

    def message_received(self, message: bytes) -> None:
        self.call.send(encode_message(message))

    def messages_ended(self) -> None:
        self.call.finish()


class Holding(Ending):
    """Takes one message, and no other until it is told to."""

    def message_received(self, message: bytes) -> None:
        self.received.append(message)
        self.call.pause_reading()

    def messages_ended(self) -> None:
        self.call.respond(b"%d" % len(self.received))


class Serving:
    """One door, its methods and its clients."""

    def __init__(
        self,
        settings: dict[str, Any],
        *,
        access: Access | None = None,
        certificates: Certificates | None = None,
        address_limits: AddressLimits | None = None,
    ) -> None:
        self.echo = Echo()
        self.offer_calls: list[str] = []
        loop, clock = asyncio.get_running_loop(), SystemClock()
        log = MemoryLog(0)
        self.broker = Broker(CoreSettings(), access or OpenAccess(), log, log.state, clock, loop)
        offer = Services(
            methods=self.echo.methods,
            drain=lambda: self.offer_calls.append("drain"),
            close=lambda: self.offer_calls.append("close"),
        )
        limits = address_limits or AddressLimits(AddressLimitSettings(), clock)
        self._password_checks = PasswordChecks(self.broker.access, loop, limits)
        self.door = SidecarDoor(
            SidecarSettings(**{"port": 0, **settings}),
            self.broker,
            clock,
            lambda: offer,
            password_checks=self._password_checks,
            certificates=certificates,
            address_limits=limits,
        )
        self._channels: list[grpc.aio.Channel] = []

    def port_of(self, scheme: str = "grpc") -> int:
        """Where it speaks something."""
        found = [address for address in self.door.addresses() if address.startswith(f"{scheme}://")]
        return int(found[0].rpartition(":")[2])

    @property
    def port(self) -> int:
        return self.port_of()

    def channel(self, *options: tuple[str, Any]) -> grpc.aio.Channel:
        """A client, closed when the test is over."""
        # Its own connection for each: grpcio would share one between all that are alike.
        alone = ("grpc.use_local_subchannel_pool", 1)
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{self.port}", options=[alone, *options])
        self._channels.append(channel)
        return channel

    async def raw(self, *, is_greeting: bool = True) -> "RawClient":
        """A connection that sends what it is told."""
        client = RawClient(*await asyncio.open_connection("127.0.0.1", self.port))
        if is_greeting:
            client.send(PREFACE + frame(SETTINGS))
        return client

    async def close(self) -> None:
        """End everything, and check that nothing stays."""
        for channel in self._channels:
            await channel.close()
        await self.door.close()
        await self.door.finish(5.0)
        self._password_checks.close()
        assert not self.door.connections
        assert not len(self.door.deadlines)
        assert self.door._unfinished_bytes == 0


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def frame(kind: int, flags: int = 0, stream_id: int = 0, payload: bytes = b"") -> bytes:
    """One frame."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream_id.to_bytes(4, "big") + payload


class RawClient:
    """Sends and takes frames as they are."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def take(self) -> tuple[int, int, int, bytes] | None:
        """The next frame; None if the server has closed."""
        try:
            head = await asyncio.wait_for(self.reader.readexactly(9), TIMEOUT_S)
            size = int.from_bytes(head[:3], "big")
            payload = await asyncio.wait_for(self.reader.readexactly(size), TIMEOUT_S)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return head[3], head[4], int.from_bytes(head[5:], "big"), payload

    async def take_all(self) -> list[tuple[int, int, int, bytes]]:
        """All frames until the server closes."""
        frames = []
        while (taken := await self.take()) is not None:
            frames.append(taken)
        return frames

    async def take_kind(self, kind: int) -> tuple[int, int, int, bytes]:
        """The next frame of a kind."""
        while (taken := await self.take()) is not None:
            if taken[0] == kind:
                return taken
        raise AssertionError(f"closed before a frame of kind {kind}")

    async def close(self) -> None:
        self.writer.close()
        await asyncio.wait([asyncio.ensure_future(self.writer.wait_closed())])


# Methods


def unary_unary(channel: grpc.aio.Channel, path: str) -> "grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]":
    """A method of bytes: one request, one response."""
    return channel.unary_unary(path)


def unary_stream(channel: grpc.aio.Channel, path: str) -> "grpc.aio.UnaryStreamMultiCallable[bytes, bytes]":
    """A method of bytes: one request, a stream of responses."""
    return channel.unary_stream(path)


def stream_unary(channel: grpc.aio.Channel, path: str) -> "grpc.aio.StreamUnaryMultiCallable[bytes, bytes]":
    """A method of bytes: a stream of requests, one response."""
    return channel.stream_unary(path)


def stream_stream(channel: grpc.aio.Channel, path: str) -> "grpc.aio.StreamStreamMultiCallable[bytes, bytes]":
    """A method of bytes: a stream in each direction."""
    return channel.stream_stream(path)
