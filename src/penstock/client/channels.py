"""Where a server speaks gRPC, whom to trust there, and a channel to it."""

from base64 import b64encode
from os import PathLike
from pathlib import Path
from typing import TypeAlias

import grpc
from msgspec import Struct

PORT = 5672
_FOREVER_MS = 2**31 - 1
LONGEST_NAME = 256
"""Of a client, as far as servers take it in metadata."""
_OPTIONS: list[tuple[str, int | str]] = [
    ("grpc.max_receive_message_length", -1),  # the server's limits are the ones that count
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # a new channel is a new connection
    ("grpc.initial_reconnect_backoff_ms", 1_000),  # when to try again is our decision
    ("grpc.min_reconnect_backoff_ms", 20_000),  # in truth, how long one attempt may take
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_retries", 0),
    ("grpc.client_idle_timeout_ms", _FOREVER_MS),
    ("grpc.keepalive_time_ms", 30_000),  # so that a server that vanished is noticed
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
]
_PING_ALWAYS = ("grpc.http2.max_pings_without_data", 0)  # else who only listens pings twice and no more

File: TypeAlias = str | PathLike[str]


class Tls(Struct, frozen=True, kw_only=True):
    """Whom to trust, and who we are, in files in PEM."""

    ca_file: File | None = None
    """Authorities; without one, those that gRPC brings along."""
    certificate_file: File | None = None
    key_file: File | None = None
    server_name: str | None = None
    """The name that the server's certificate has to bear, if not that of the address."""


def target_of(address: str) -> str:
    """An address as gRPC takes it: `host`, `host:port` or `[::1]:port`."""
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, str(PORT)
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536 or "/" in host:
        raise ValueError(f"{address!r} is no address; write host:{PORT}")
    if ":" in host and not host.startswith("["):
        raise ValueError(f"{address!r} is no address; write [{address}]:{PORT}")
    return f"{host}:{port}"


def credentials_metadata(user: str | None, password: str | None) -> tuple[tuple[str, str], ...]:
    """What every call says of who we are."""
    if user is None:
        if password is not None:
            raise ValueError("a password needs a user")
        return ()
    token = b64encode(f"{user}:{password or ''}".encode()).decode()
    return (("authorization", f"Basic {token}"),)


def name_metadata(client_id: str) -> tuple[tuple[str, str], ...]:
    """What every call says of what we are called, if that can be said in metadata."""
    is_plain = client_id.isascii() and client_id.isprintable() and client_id.strip() == client_id
    return (("x-client-id", client_id),) if is_plain and 0 < len(client_id) <= LONGEST_NAME else ()


class Channels:
    """Makes channels to one server."""

    def __init__(self, address: str, tls: Tls | File | bool | None) -> None:
        self.target = target_of(address)
        self._options = list(_OPTIONS)
        self._credentials: grpc.ChannelCredentials | None = None
        if tls:
            self._set_tls(tls if isinstance(tls, Tls) else Tls(ca_file=None if tls is True else tls))

    def open(self, *, pings_always: bool) -> grpc.aio.Channel:
        """A channel, which connects when it is used.

        Args:
            pings_always: whether it is seen to that the line is alive also while nothing is said on it.
        """
        options = [*self._options, _PING_ALWAYS] if pings_always else self._options
        if self._credentials is None:
            return grpc.aio.insecure_channel(self.target, options)
        return grpc.aio.secure_channel(self.target, self._credentials, options)

    def _set_tls(self, tls: Tls) -> None:
        self._credentials = grpc.ssl_channel_credentials(
            _read(tls.ca_file), _read(tls.key_file), _read(tls.certificate_file)
        )
        if tls.server_name is not None:
            self._options.append(("grpc.ssl_target_name_override", tls.server_name))


def _read(file: File | None) -> bytes | None:
    return None if file is None else Path(file).read_bytes()
