"""Errors of a connection, explained in one line: what happened, and what to try.

When nothing or the wrong thing responds, `identify` finds the protocol at a port. It sends a greeting of each
protocol in turn, without credentials, on short connections of its own.
"""

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import NamedTuple

import msgspec

from penstock.cli.connect import OWN_PORTS, Endpoint, HttpServer, MqttServer
from penstock.cli.flags import ServerFlags
from penstock.client import ConnectionLost, ConnectionRefused, HttpRefused, RequestRefused
from penstock.errors import BadCredentials, NotAuthorized, PenstockError, ShuttingDown
from penstock.wire.mqtt.reasons import ReasonCode

_REFUSED_USER = (ReasonCode.BAD_USER_NAME_OR_PASSWORD, ReasonCode.NOT_AUTHORIZED)
_UNAVAILABLE_REASONS = (
    ReasonCode.SERVER_SHUTTING_DOWN,
    ReasonCode.SERVER_UNAVAILABLE,
    ReasonCode.SERVER_BUSY,
)
_UNAVAILABLE_STATUS = 503
_NO_SUCH_PATH = ("not-found", "request-refused")
_FOREIGN_RESPONSE = " responded with status "
"""Part of the text of an error whose body was not Penstock's: another server may have sent it."""
_TRY_LATER = "It is about to stop, or has too much to do: try again in a while."

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


def explain_mqtt(error: PenstockError, server: MqttServer, endpoint: Endpoint) -> str:
    """Explain an error of an MQTT connection."""
    reason = getattr(error, "reason", None)
    if isinstance(error, ConnectionRefused):
        if reason is None:
            return _explain_no_connection(error, endpoint)
        if reason in _REFUSED_USER:
            return f"the server does not let {server.who} in: {error}. {_credentials_advice(server)}"
        if reason in _UNAVAILABLE_REASONS:
            return f"the server refused the connection: {error}. {_TRY_LATER}"
        return f"the server refused the connection: {error}."
    if isinstance(error, RequestRefused) and reason == ReasonCode.NOT_AUTHORIZED:
        return f"{error}. {server.who} has no right to do this: see the server's access list."
    if isinstance(error, ConnectionLost) and reason in _UNAVAILABLE_REASONS:
        return f"{error}. {_TRY_LATER}"
    return str(error)


def explain_http(error: PenstockError, server: HttpServer, endpoint: Endpoint) -> str:
    """Explain an error of an HTTP request."""
    if isinstance(error, HttpRefused) and _FOREIGN_RESPONSE in str(error):
        found = identify(endpoint.host, endpoint.port)
        if not found.is_penstock:
            return describe_mismatch(found, endpoint) or _not_penstock(endpoint)
    if error.code == BadCredentials.code:
        return f"the server does not let {server.who} in: {error}. {_credentials_advice(server)}"
    if error.code == NotAuthorized.code:
        return f"{server.who} is not allowed to do this: {error}."
    if error.code == ShuttingDown.code or getattr(error, "status", None) == _UNAVAILABLE_STATUS:
        return f"{error}. {_TRY_LATER}"
    if isinstance(error, HttpRefused) and error.status == 404 and error.code in _NO_SUCH_PATH:
        return f"{error}. A server with http.admin_port serves this there: try --port."
    if isinstance(error, ConnectionRefused | ConnectionLost):
        return _explain_no_connection(error, endpoint)
    return str(error)


def describe_mismatch(found: Listener, endpoint: Endpoint) -> str | None:
    """The difference between a port and what was expected there, with advice; None if it matches."""
    here = f"{endpoint.host}:{endpoint.port}"
    if found.protocol is Protocol.MQTT and endpoint.is_websocket:
        return f"{here} is an MQTT port without WebSocket. Leave --websocket out, or give the HTTP port."
    if found.protocol is Protocol.HTTP and _is_mqtt(endpoint):
        whose = "a Penstock server" if found.is_penstock else "a web server"
        flags = "--websocket --tls" if found.is_secure else "--websocket"
        return (
            f"{here} is the HTTP port of {whose}. {_port_advice(endpoint)}, or speak MQTT there with {flags}."
        )
    if found.protocol is not (Protocol.MQTT if _is_mqtt(endpoint) else Protocol.HTTP):
        article = "an" if found.protocol is Protocol.MQTT else "a"
        return f"{here} is {article} {found.protocol} port. {_port_advice(endpoint)}."
    if found.is_secure and not endpoint.is_secure:
        return f"{here} speaks TLS. Add --tls, or write the address with {endpoint.scheme}s://."
    if endpoint.is_secure and not found.is_secure:
        return f"{here} speaks {found.protocol} without TLS. Leave --tls out, or find the port that has it."
    return None


def _explain_no_connection(error: PenstockError, endpoint: Endpoint) -> str:
    """Advice when there is no connection, or both sides speak different protocols."""
    words = str(error).removesuffix("; is this its HTTP port?")
    if "certificate" in words:
        return f"{words}. --ca-file takes the certificate of the CA that signed it."
    if "no host" in words:
        return f"{words}. Check how it is written."
    if " within " in words:
        return f"{words}. Check host and port; a firewall may be between."
    found = identify(endpoint.host, endpoint.port)
    if found.protocol is Protocol.NOTHING:
        return f"{words}. Is a server running there? `penstock serve` starts one."
    if found.protocol is Protocol.UNKNOWN:
        return f"{words}. Port {endpoint.port} speaks neither HTTP nor MQTT: check host and port."
    if endpoint.scheme.startswith("mqtt") or found.is_penstock:
        return describe_mismatch(found, endpoint) or f"{words}."
    return describe_mismatch(found, endpoint) or _not_penstock(endpoint)


def _not_penstock(endpoint: Endpoint) -> str:
    here = f"{endpoint.host}:{endpoint.port}"
    return f"{here} is the port of a web server that is not Penstock. Check host and port."


def _credentials_advice(server: ServerFlags) -> str:
    return "Check --user and --password." if server.user else "Give --user and --password-file."


def _port_advice(endpoint: Endpoint) -> str:
    name = "MQTT" if _is_mqtt(endpoint) else "HTTP"
    return f"Give the {name} port with --port: {OWN_PORTS[endpoint.scheme]}, unless it was changed"


def _is_mqtt(endpoint: Endpoint) -> bool:
    return endpoint.scheme in ("mqtt", "mqtts")


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
