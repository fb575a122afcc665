"""Connection of a gRPC client: reconnects with exponential backoff, and reports its state.

The first caller that notices a lost connection reports it; then all callers wait for the same next one.

A channel of gRPC has options and credentials, and never reconnects by itself.
"""

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import random
from typing import Any

import grpc
from msgspec import Struct

from penstock.client.address import Address, grpc_target
from penstock.client.errors import (
    ConnectionLost,
    ConnectionRefused,
    UnknownService,
    copy_error,
    error_from_call,
    is_worth_retrying,
)
from penstock.client.grpc.dialect import Dialect
from penstock.client.messages import ClientState
from penstock.client.probe import describe_grpc_mismatch
from penstock.client.tls import File, Tls, TlsOption, make_tls
from penstock.errors import PenstockError

MAX_CLIENT_ID_LENGTH = 256
"""Longest client id that servers accept in metadata."""

_FOREVER_MS = 2**31 - 1
_OPTIONS: list[tuple[str, int | str]] = [
    ("grpc.max_receive_message_length", -1),  # the server's limits apply
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # a new channel is a new connection
    ("grpc.initial_reconnect_backoff_ms", 1_000),  # `Connection` decides when to retry
    ("grpc.min_reconnect_backoff_ms", 20_000),  # despite its name the timeout of one attempt
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_retries", 0),
    ("grpc.client_idle_timeout_ms", _FOREVER_MS),
    ("grpc.keepalive_time_ms", 30_000),  # detects a server that vanished
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
]
_PING_WHEN_IDLE = ("grpc.http2.max_pings_without_data", 0)  # otherwise a pure subscriber sends two pings only
PROBE_AFTER_S = 1.0
"""Time for a first connection before the address is examined."""
_MOST_DOUBLINGS = 64
_POLL_S = 0.5

OnState = Callable[[ClientState, PenstockError | None], None]
DialectFactories = Sequence[Callable[[], Dialect]]
"""Factories of dialects, the preferred one first."""


class ChannelFactory:
    """Opens channels to one server."""

    def __init__(self, address: str, tls: TlsOption) -> None:
        self.target = grpc_target(address)
        self._options = list(_OPTIONS)
        self._credentials: grpc.ChannelCredentials | None = None
        settings = make_tls(tls)
        if settings is not None:
            self._set_tls(settings)

    def open(self, *, ping_when_idle: bool) -> grpc.aio.Channel:
        """A channel, which connects on first use.

        Args:
            ping_when_idle: send keepalive pings also while no data is sent.
        """
        options = [*self._options, _PING_WHEN_IDLE] if ping_when_idle else self._options
        if self._credentials is None:
            return grpc.aio.insecure_channel(self.target, options)
        return grpc.aio.secure_channel(self.target, self._credentials, options)

    def describe_mismatch(self) -> str | None:
        """Say what is at the address if it is not gRPC as this client speaks it. Blocks for some seconds."""
        address = Address.parse(self.target, ("grpc",))
        return describe_grpc_mismatch(address, is_secure=self._credentials is not None)

    def _set_tls(self, tls: Tls) -> None:
        self._credentials = grpc.ssl_channel_credentials(
            _read(tls.ca_file), _read(tls.key_file), _read(tls.certificate_file)
        )
        if tls.server_name is not None:
            self._options.append(("grpc.ssl_target_name_override", tls.server_name))


def credentials_metadata(user: str | None, password: str | None) -> tuple[tuple[str, str], ...]:
    """Metadata of every call: the credentials."""
    if user is None:
        if password is not None:
            raise ValueError("a password needs a user")
        return ()
    token = b64encode(f"{user}:{password or ''}".encode()).decode()
    return (("authorization", f"Basic {token}"),)


def client_id_metadata(client_id: str) -> tuple[tuple[str, str], ...]:
    """Metadata of every call: the client id, if metadata can carry it."""
    is_plain = client_id.isascii() and client_id.isprintable() and client_id.strip() == client_id
    return (("x-client-id", client_id),) if is_plain and 0 < len(client_id) <= MAX_CLIENT_ID_LENGTH else ()


async def read_next(call: "grpc.aio.StreamStreamCall[Any, Any] | grpc.aio.UnaryStreamCall[Any, Any]") -> Any:
    """The next message of a stream; None at its end. Cancelling this cancels the call."""
    message = await await_call(call.read())
    return None if message is grpc.aio.EOF else message


async def await_call(call: Awaitable[Any]) -> Any:
    """The response of a call; failures become errors of the catalogue.

    gRPC cancels the waiting task when its channel is closed, and may end a call that was cancelled before it
    began with a status. The task's own cancellation count tells the two apart.
    """
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    try:
        response = await call
    except grpc.aio.AioRpcError as error:
        if task.cancelling() == before:
            raise error_from_call(error) from None
    except asyncio.CancelledError:
        if task.cancelling() == before:
            raise ConnectionLost("the connection was closed") from None
    if task.cancelling() > before:
        raise asyncio.CancelledError
    return response


def _read(file: File | None) -> bytes | None:
    return None if file is None else Path(file).read_bytes()


class Reconnection(Struct, frozen=True, kw_only=True):
    """Exponential backoff: the delay doubles up to a limit, plus a random part.

    ```python
    penstock.connect("localhost:5672", reconnection=Reconnection(initial_s=0.2, attempts=10))
    ```
    """

    initial_s: float = 1.0
    max_s: float = 30.0
    jitter: float = 0.1
    """Largest random part, as a fraction of the delay; it keeps clients from reconnecting all at once."""
    attempts: int | None = None
    """Attempts in a row before giving up; 0 never retries, None retries forever."""

    def __post_init__(self) -> None:
        if self.initial_s < 0 or self.max_s < 0 or self.jitter < 0 or (self.attempts or 0) < 0:
            raise ValueError("delays, jitter and attempts must not be negative")

    def may_try(self, attempt: int) -> bool:
        """Return whether an attempt of this number is allowed; the first is 0."""
        return self.attempts is None or attempt < self.attempts

    def delay_s(self, attempt: int, random: Callable[[], float] = random) -> float:
        """Delay before an attempt; the first is 0."""
        delay_s = min(self.initial_s * 2.0 ** min(attempt, _MOST_DOUBLINGS), self.max_s)
        return delay_s + self.jitter * delay_s * random()


class Connection:
    """The current connection of a client, or the next one.

    Args:
        dialects: tried in order until the server knows one; that one is used from then on.
        timeout_s: limit of one attempt.
    """

    def __init__(
        self,
        channels: ChannelFactory,
        dialects: DialectFactories,
        reconnection: Reconnection,
        timeout_s: float,
        on_state: OnState | None,
    ) -> None:
        self._channels = channels
        self._dialects = dialects
        self._reconnection = reconnection
        self._timeout_s = timeout_s
        self._on_state = on_state
        self._dialect: Dialect | None = None
        self._changed = asyncio.Event()  # connected, or ended
        self._task: asyncio.Task[None] | None = None
        self._error: PenstockError | None = None  # why it ended
        self.state = ClientState.DISCONNECTED
        self.number = 0
        """Number of the current connection, or of the last one; counted from 1."""
        self._is_probed = False
        self.last_error: PenstockError | None = None
        """Error of the last attempt."""
        # Of one connection:
        self._channel: grpc.aio.Channel | None = None
        self._lost = asyncio.Event()
        self._reason: PenstockError | None = None

    def open(self) -> None:
        """Start connecting. Idempotent."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def ready(self) -> tuple[Dialect, int]:
        """Wait for a connection; returns its dialect and its number.

        Raises:
            PenstockError: there will be no connection.
        """
        while True:
            if self._error is not None:
                raise copy_error(self._error)
            if self.state is ClientState.CONNECTED and self._dialect is not None:
                return self._dialect, self.number
            if self._task is None:
                raise ConnectionLost("the client is not open")
            self._changed.clear()
            await self._changed.wait()

    def report_lost(self, number: int, error: PenstockError) -> None:
        """Report that a connection is lost or unusable; ignored if another caller has reported it."""
        if number == self.number and self.state is ClientState.CONNECTED:
            self._reason = error
            self._set_state(ClientState.DISCONNECTED, error)
            self._lost.set()

    async def close(self) -> None:
        """Close it; waiting callers get `ConnectionLost`."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        if self._dialect is not None:
            await self._dialect.close()
        await self._close_channel()
        had_ended = self._error is not None
        self._end(self._error or ConnectionLost("the client was closed"))
        if not had_ended and self.state is not ClientState.DISCONNECTED:
            self._set_state(ClientState.DISCONNECTED, None)

    # Connecting and reconnecting

    async def _run(self) -> None:
        try:
            attempt = 0
            while True:
                error = self.last_error = await (self._try() if self.number else self._try_first())
                if error is None:
                    attempt = 0
                    error = await self._wait_lost()
                if not is_worth_retrying(error) or not self._reconnection.may_try(attempt):
                    break
                if self.state is not ClientState.DISCONNECTED:
                    self._set_state(ClientState.DISCONNECTED, error)
                await asyncio.sleep(self._reconnection.delay_s(attempt))
                attempt += 1
                self._set_state(ClientState.RECONNECTING, error)
        except PenstockError as final:
            error = final
        except Exception as unforeseen:
            error = PenstockError(f"unexpected error in the client: {unforeseen!r}")
        self._end(error)
        self._set_state(ClientState.FAILED, error)
        await self._close_channel()

    async def _try_first(self) -> PenstockError | None:
        """Connect once, and look meanwhile whether the address is that of a gRPC server.

        Raises:
            ConnectionRefused: another protocol is spoken there, so that no attempt can succeed.
        """
        attempt = asyncio.create_task(self._try())
        try:
            done, _ = await asyncio.wait([attempt], timeout=PROBE_AFTER_S)
            if (not done or attempt.result() is not None) and not self._is_probed:
                self._is_probed = True
                found = await asyncio.to_thread(self._channels.describe_mismatch)
                if found is not None and (not attempt.done() or attempt.result() is not None):
                    raise ConnectionRefused(found)
            return await attempt
        finally:
            attempt.cancel()

    async def _try(self) -> PenstockError | None:
        """Connect once; returns the error, if any."""
        self._lost, self._reason = asyncio.Event(), None
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._connect_dialect()
        except TimeoutError:
            return ConnectionLost(f"no response from {self._channels.target}")
        except PenstockError as error:
            return error
        self.number += 1
        self._set_state(ClientState.CONNECTED, None)
        self._changed.set()
        return None

    async def _connect_dialect(self) -> None:
        if self._dialect is not None:
            await self._dialect.connect(await self._open_channel(self._dialect))
            return
        for make in self._dialects:
            dialect = make()
            try:
                await dialect.connect(await self._open_channel(dialect))
            except UnknownService:
                await dialect.close()
            else:
                self._dialect = dialect
                return
        raise UnknownService(f"{self._channels.target} offers no service that this client supports")

    async def _wait_lost(self) -> PenstockError:
        """Wait until the connection is lost; returns why."""
        polling = asyncio.create_task(self._poll_channel())
        try:
            await self._lost.wait()
        finally:
            polling.cancel()
            await asyncio.wait([polling])
            await self._close_channel()  # ends all pending calls
        return self._reason or ConnectionLost("the connection was lost")

    async def _poll_channel(self) -> None:
        """Detect the loss of a connection without pending calls."""
        channel, number = self._channel, self.number
        assert channel is not None
        while True:
            state = channel.get_state(try_to_connect=True)
            if state in (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN):
                self.report_lost(number, ConnectionLost(f"no connection to {self._channels.target}"))
                return
            await asyncio.sleep(_POLL_S)  # polled, because waiting for a state change cannot be cancelled

    def _set_state(self, state: ClientState, error: PenstockError | None) -> None:
        self.state = state
        if self._on_state is not None:
            call_safely(self._on_state, state, error)

    def _end(self, error: PenstockError) -> None:
        self._error = self._error or error
        self._changed.set()

    async def _open_channel(self, dialect: Dialect) -> grpc.aio.Channel:
        await self._close_channel()
        self._channel = self._channels.open(ping_when_idle=dialect.allows_idle_pings)
        return self._channel

    async def _close_channel(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()


def call_safely(callback: Callable[..., None], *values: object) -> None:
    """Call the application; its errors go to the loop's exception handler."""
    try:
        callback(*values)
    except Exception as error:
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"a callback of a Penstock client failed: {callback!r}", "exception": error}
        )
