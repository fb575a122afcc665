"""Finds out what is spoken at a port, so that who took the wrong one can be told.

It is asked only when something went wrong already. It says hello in each protocol in turn, without a name or
password, on connections of its own that live a moment.
"""

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import NamedTuple

import msgspec

PATIENCE_S = 1.0
"""How long each hello may take."""
ENOUGH_BYTES = 4096

HTTP_HELLO = b"GET /health HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n"
MQTT_HELLO = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x05\x00\x00"  # CONNECT of 3.1.1, clean, without a name
HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"  # and no settings
CONNACK, SETTINGS = 0x20, 4
OURS = {"status", "uptime_seconds"}
"""What Penstock's answer to GET /health has."""


class Protocol(StrEnum):
    """What can be spoken at a port."""

    HTTP = "HTTP"
    MQTT = "MQTT"
    GRPC = "gRPC"
    UNKNOWN = "something else"
    NOTHING = "nothing"
    """Nobody listens there."""


class Speaker(NamedTuple):
    """Who listens at a port."""

    protocol: Protocol
    is_secure: bool = False
    is_penstock: bool = False
    """That much is only known of HTTP."""


def identify(host: str, port: int) -> Speaker:
    """Say what is spoken at a port, plainly or with TLS."""
    try:
        with socket.create_connection((host, port), PATIENCE_S):
            pass
    except OSError:
        return Speaker(Protocol.NOTHING)
    plain = _identify(lambda: socket.create_connection((host, port), PATIENCE_S), host)
    if plain.protocol is not Protocol.UNKNOWN:
        return plain
    try:
        _open_secure(host, port).close()
    except OSError:  # ssl.SSLError is one
        return plain
    return _identify(lambda: _open_secure(host, port), host)._replace(is_secure=True)


def _identify(connect: Callable[[], socket.socket], host: str) -> Speaker:
    """Try each protocol in turn; some servers tell theirs whatever they hear."""
    for hello in (HTTP_HELLO % host.encode(), MQTT_HELLO, HTTP2_HELLO):
        answer = _ask(connect, hello)
        if answer.startswith(b"HTTP/1."):
            return _identify_http(answer)
        if answer[:1] == bytes((CONNACK,)) and hello is MQTT_HELLO:
            return Speaker(Protocol.MQTT)
        if len(answer) >= 9 and answer[3] == SETTINGS:
            return Speaker(Protocol.GRPC)
    return Speaker(Protocol.UNKNOWN)


def _ask(connect: Callable[[], socket.socket], hello: bytes) -> bytes:
    """What comes back, as far as it comes at once."""
    answer = b""
    with suppress(OSError), connect() as connection:
        connection.settimeout(PATIENCE_S)
        connection.sendall(hello)
        while len(answer) < ENOUGH_BYTES and (data := connection.recv(ENOUGH_BYTES)):
            answer += data
            if not answer.startswith(b"HTTP/"):
                break
    return answer


def _open_secure(host: str, port: int) -> socket.socket:
    context = ssl.create_default_context()
    context.check_hostname = False  # nothing is told that others should not know
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    plain = socket.create_connection((host, port), PATIENCE_S)
    return context.wrap_socket(plain, server_hostname=host)


def _identify_http(answer: bytes) -> Speaker:
    """Tell apart who knows HTTP/1 well, and who only knows to refuse it."""
    version_not_supported = answer.split(b" ", 2)[1:2] == [b"505"]
    return (
        Speaker(Protocol.GRPC)
        if version_not_supported
        else Speaker(Protocol.HTTP, is_penstock=_is_penstock(answer))
    )


def _is_penstock(answer: bytes) -> bool:
    _, _, body = answer.partition(b"\r\n\r\n")
    with suppress(msgspec.DecodeError):
        content = msgspec.json.decode(body)
        return isinstance(content, dict) and set(content) >= OURS
    return False
