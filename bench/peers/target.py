"""Address of a broker. Loopback only: across a network the bench would measure the wire."""

import ipaddress
import socket
from urllib.parse import urlsplit

from msgspec import Struct

from bench.errors import WrongOption

LOOPBACK = "127.0.0.1"
SCHEMES = ("mqtt", "nats", "redis", "http", "nchan", "grpc", "nexusd")


class Target(Struct, frozen=True):
    """A broker under test: its name in the tables, protocol and address."""

    name: str
    scheme: str
    host: str
    port: int


def parse_target(text: str) -> Target:
    """Parse NAME=SCHEME://HOST:PORT.

    Raises:
        WrongOption: it has another form, scheme or host.
    """
    name, _, address = text.partition("=")
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not name or host is None or port is None:
        raise WrongOption(f"--target {text}: expected NAME=SCHEME://HOST:PORT")
    if parts.scheme not in SCHEMES:
        raise WrongOption(f"--target {text}: the scheme must be one of {', '.join(SCHEMES)}")
    host = LOOPBACK if host == "localhost" else host
    if not _is_loopback(host):
        raise WrongOption(f"--target {text}: the host must be an IPv4 loopback address")
    return Target(name, parts.scheme, host, port)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.IPv4Address(host).is_loopback
    except ValueError:
        return False


def free_port() -> int:
    """A loopback port without a listener."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def accepts(host: str, port: int) -> bool:
    """True if the port accepts a connection now."""
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return False
    return True
