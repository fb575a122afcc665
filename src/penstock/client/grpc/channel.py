"""gRPC channels to one server: options, credentials, and awaiting calls."""

import asyncio
from base64 import b64encode
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import grpc

from penstock.client.address import grpc_target
from penstock.client.errors import ConnectionLost, error_from_call
from penstock.client.tls import File, Tls, TlsOption, make_tls

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
