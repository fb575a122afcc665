"""Calls over grpcio: bytes in and out, with nothing of its own but what a call has to be.

grpcio takes one message at a time, so joined ones are taken apart again. It does not tell a lost connection
from a cancelled call.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import structlog
from grpc.aio import ServicerContext

from penstock.core.broker import Broker
from penstock.core.clock import Clock
from penstock.core.counters import Counters
from penstock.doors.base import Peer, address
from penstock.doors.guard import Guard, GuardSettings
from penstock.doors.sidecar.admission import Admission
from penstock.doors.sidecar.calls import HIGH_WATER_BYTES, Call, Cause, Metadata, Method, Unary
from penstock.doors.sidecar.offer import Offer
from penstock.doors.sidecar.settings import SidecarSettings
from penstock.errors import InvalidConfig
from penstock.wire.grpc import MessageReader, Status

log = structlog.get_logger("penstock.sidecar")

NO_LIMIT_BYTES = 2**31 - 1
STATUSES = {code.value[0]: code for code in grpc.StatusCode}


class GrpcioCall(Call):
    """One call of grpcio's."""

    __slots__ = (
        "_context",
        "_counters",
        "_is_full",
        "_outgoing",
        "_reading",
        "_status",
        "_waiting_bytes",
        "_woken",
    )

    def __init__(
        self,
        context: "ServicerContext[bytes, bytes]",
        path: str,
        metadata: Metadata,
        deadline: float | None,
        counters: Counters,
    ) -> None:
        super().__init__(path, metadata, _peer_of(context.peer()), deadline)
        self._context = context
        self._counters = counters
        self._outgoing: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._is_full = False  # the handler has been told
        self._status: tuple[Status, str] | None = None
        self._woken = asyncio.Event()
        self._reading = asyncio.Event()
        self._reading.set()

    # For methods

    def send(self, messages: bytes) -> None:
        """Queue messages, each by itself."""
        if self.is_over:
            return
        self._outgoing += MessageReader(NO_LIMIT_BYTES).feed(messages)
        self._waiting_bytes += len(messages)
        self._counters.bytes_sent += len(messages)
        self._woken.set()
        if self._waiting_bytes > HIGH_WATER_BYTES and not self._is_full and self.handler is not None:
            self._is_full = True
            self.handler.pause_writing()

    def finish(self, status: Status = Status.OK, text: str = "") -> None:
        """Let the queue run dry, then end."""
        if not self.is_over:
            self.is_over = True
            self.handler = None
            self._status = (status, text)
            self._woken.set()

    def pause_reading(self) -> None:
        self._reading.clear()

    def resume_reading(self) -> None:
        self._reading.set()

    # For the transport

    async def write_all(self) -> None:
        """Write what is sent until the call is finished."""
        while self._status is None or self._outgoing:
            self._woken.clear()
            while self._outgoing:
                message = self._outgoing.popleft()
                await self._context.write(message)
                self._waiting_bytes -= len(message)
            self._note_empty()
            if self._status is None:
                await self._woken.wait()
        status, text = self._status
        self._context.set_code(STATUSES[int(status)])
        self._context.set_details(text)

    def _note_empty(self) -> None:
        self._waiting_bytes = 0
        if self._is_full:
            self._is_full = False
            if self.handler is not None:
                self.handler.resume_writing()

    async def read_all(self, method: Method) -> None:
        """Hand over the messages of the client as they come."""
        async for message in self._messages():
            if isinstance(method, Unary):
                method.begin(self, message)
                return
            if self.handler is not None:
                self.handler.message_received(message)
        if isinstance(method, Unary):
            self.finish(Status.INVALID_ARGUMENT, "invalid-request: there is no message")
        elif self.handler is not None:
            self.handler.messages_ended()

    async def _messages(self) -> AsyncIterator[bytes]:
        while not self.is_over:
            await self._reading.wait()
            message: Any = await self._context.read()
            if message is grpc.aio.EOF:
                return
            self._counters.bytes_received += len(message)
            yield message

    def lose(self, cause: Cause) -> None:
        """The client is gone, or wants no more."""
        handler, self.handler = self.handler, None
        if not self.is_over:
            self.is_over = True
            if handler is not None:
                handler.ended(cause)


class GrpcioDoor(grpc.GenericRpcHandler):
    """A server of grpcio's under our methods."""

    name = "sidecar"

    def __init__(
        self,
        settings: SidecarSettings,
        broker: Broker,
        clock: Clock,
        load: Callable[[], Offer],
        *,
        guard: Guard | None = None,
    ) -> None:
        self._settings = settings
        self._counters = broker.counters
        self._load = load
        self._offer: Offer | None = None
        self._loop = loop = asyncio.get_running_loop()
        guard = guard or Guard(GuardSettings(), clock)
        self.admission = Admission(broker.access, loop, guard, broker.counters, is_named_by_certificate=False)
        self._port = 0
        self._server = grpc.aio.server(
            handlers=(self,),
            options=(
                ("grpc.max_receive_message_length", settings.max_message_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_concurrent_streams", settings.max_streams),
                ("grpc.so_reuseport", 0),
            ),
        )

    async def open(self) -> None:
        """Listen.

        Raises:
            InvalidConfig: the address is in use, or not ours.
        """
        where = address(self._settings.host, self._settings.port or 0)
        try:
            self._port = self._server.add_insecure_port(where)
        except RuntimeError:
            raise InvalidConfig(f"sidecar.port: cannot listen on {where}") from None
        self._offer = self._load()
        await self._server.start()

    async def close(self) -> None:
        """Say that nobody new should come; grpcio itself refuses calls only in `finish`."""
        if self._offer is not None:
            self._offer.drain()

    async def finish(self, timeout: float) -> None:
        """Take no new calls, and wait for those that are under way."""
        if self._offer is not None:
            self._offer.close()
        await self._server.stop(timeout)
        self.admission.close()

    def addresses(self) -> list[str]:
        """Where clients find it."""
        return [f"grpc://{address(self._settings.host, self._port)}"]

    # Calls

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """What grpcio asks for each path; every call is of two streams to it."""
        path = handler_call_details.method
        metadata = handler_call_details.invocation_metadata
        method = None if self._offer is None else self._offer.methods.get(path)
        if method is None:
            return None
        return grpc.stream_stream_rpc_method_handler(self._behaviour(path, metadata, method))

    def _behaviour(
        self, path: str, metadata: Any, method: Method
    ) -> Callable[[Any, "ServicerContext[bytes, bytes]"], Awaitable[None]]:
        async def serve(_: Any, context: "ServicerContext[bytes, bytes]") -> None:
            left_s = context.time_remaining()
            deadline = None if left_s is None else self._loop.time() + left_s
            call = GrpcioCall(context, path, tuple(metadata or ()), deadline, self._counters)
            await self._serve(call, method)

        return serve

    async def _serve(self, call: GrpcioCall, method: Method) -> None:
        reading: list[asyncio.Task[None]] = []

        def begin() -> None:
            if not isinstance(method, Unary):
                handler = method.begin(call)
                if not call.is_over:
                    call.handler = handler
            reading.append(self._loop.create_task(call.read_all(method)))

        self.admission.admit(call, {}, begin)
        try:
            await call.write_all()
        except asyncio.CancelledError:
            is_late = call.deadline is not None and self._loop.time() >= call.deadline
            call.lose(Cause.DEADLINE if is_late else Cause.CANCELLED)
            raise
        finally:
            call.lose(Cause.LOST)
            for task in reading:
                task.cancel()


def _peer_of(text: str) -> Peer:
    """Who is there, of `ipv4:127.0.0.1:4711` or `ipv6:%5B::1%5D:4711`."""
    host, _, port = text.partition(":")[2].rpartition(":")
    return Peer(host.replace("%5B", "").replace("%5D", ""), int(port) if port.isdigit() else 0)
