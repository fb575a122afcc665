"""Probe: finds the protocol of a server at a port, for errors that say what is wrong with an address.

It sends a greeting of each protocol in turn, without credentials, on short connections of its own. It blocks
for some seconds at most.
"""

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import NamedTuple

import msgspec

from penstock.client.address import GRPC_PORT, Address

GREETING_TIMEOUT_S = 1.0
GREETING_BYTES = 4096
"""Most bytes read of a response."""
HTTP_GREETING = b"GET /health HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n"
MQTT_GREETING = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x05\x00\x00"
"""CONNECT of MQTT 3.1.1 with a clean session and an empty client id."""
HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
"""Preface and empty SETTINGS."""
CONNACK, SETTINGS = 0x20, 4
HEALTH_KEYS = {"status", "uptime_seconds"}
"""Keys of Penstock's response to GET /health."""


class Protocol(StrEnum):
    """Protocol at a port."""

    HTTP = "HTTP"
    MQTT = "MQTT"
    GRPC = "gRPC"
    UNKNOWN = "something else"
    NOTHING = "nothing"
    """Nothing listens there."""


class Listener(NamedTuple):
    """Server at a port."""

    protocol: Protocol
    is_secure: bool = False
    is_penstock: bool = False
    """Known for HTTP only."""


def identify(host: str, port: int) -> Listener:
    """Find the protocol at a port, with or without TLS."""
    try:
        with socket.create_connection((host, port), GREETING_TIMEOUT_S):
            pass
    except OSError:
        return Listener(Protocol.NOTHING)
    plain = _identify(lambda: socket.create_connection((host, port), GREETING_TIMEOUT_S), host)
    if plain.protocol is not Protocol.UNKNOWN:
        return plain
    try:
        _open_tls(host, port).close()
    except OSError:  # ssl.SSLError is one
        return plain
    return _identify(lambda: _open_tls(host, port), host)._replace(is_secure=True)


def _identify(connect: Callable[[], socket.socket], host: str) -> Listener:
    """Try each protocol in turn; some servers respond in theirs whatever they receive."""
    for greeting in (HTTP_GREETING % host.encode(), MQTT_GREETING, HTTP2_GREETING):
        response = _greet(connect, greeting)
        if response.startswith(b"HTTP/1."):
            return _identify_http(response)
        if response[:1] == bytes((CONNACK,)) and greeting is MQTT_GREETING:
            return Listener(Protocol.MQTT)
        if len(response) >= 9 and response[3] == SETTINGS:
            return Listener(Protocol.GRPC)
    return Listener(Protocol.UNKNOWN)


def _greet(connect: Callable[[], socket.socket], greeting: bytes) -> bytes:
    """The first bytes of the response to a greeting."""
    response = b""
    with suppress(OSError), connect() as connection:
        connection.settimeout(GREETING_TIMEOUT_S)
        connection.sendall(greeting)
        while len(response) < GREETING_BYTES and (data := connection.recv(GREETING_BYTES)):
            response += data
            if not response.startswith(b"HTTP/"):
                break
    return response


def _open_tls(host: str, port: int) -> socket.socket:
    context = ssl.create_default_context()
    context.check_hostname = False  # nothing secret is sent
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    plain = socket.create_connection((host, port), GREETING_TIMEOUT_S)
    return context.wrap_socket(plain, server_hostname=host)


def _identify_http(response: bytes) -> Listener:
    """Distinguish an HTTP/1 server from a gRPC server, which refuses HTTP/1 with 505."""
    is_version_refused = response.split(b" ", 2)[1:2] == [b"505"]
    if is_version_refused:
        return Listener(Protocol.GRPC)
    return Listener(Protocol.HTTP, is_penstock=_is_penstock(response))


def _is_penstock(response: bytes) -> bool:
    _, _, body = response.partition(b"\r\n\r\n")
    with suppress(msgspec.DecodeError):
        content = msgspec.json.decode(body)
        return isinstance(content, dict) and set(content) >= HEALTH_KEYS
    return False


def describe_grpc_mismatch(address: Address, *, is_secure: bool) -> str | None:
    """Say what is at an address in place of gRPC; None if it is gRPC, nothing, or something unknown.

    Args:
        is_secure: the client uses TLS.
    """
    found = identify(address.host, address.port)
    if found.protocol in (Protocol.HTTP, Protocol.MQTT):
        kind = f"{found.protocol} over TLS" if found.is_secure else found.protocol
        return (
            f"{address.netloc} speaks {kind}, not gRPC; the port of gRPC is {GRPC_PORT} unless it was changed"
        )
    if found.protocol is Protocol.GRPC and found.is_secure and not is_secure:
        return f"{address.netloc} speaks gRPC over TLS; connect with tls=True"
    if found.protocol is Protocol.GRPC and is_secure and not found.is_secure:
        return f"{address.netloc} speaks gRPC without TLS; connect without tls"
    return None
