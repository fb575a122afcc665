"""Where a broker listens. Only loopback: across a network the wire would be measured, not the broker."""

import ipaddress
import socket
from urllib.parse import urlsplit

from msgspec import Struct

from penstock.cli.bench.problems import WrongOption

LOOPBACK = "127.0.0.1"
SCHEMES = ("mqtt", "nats", "redis", "http", "nchan", "grpc", "nexusd")


class Target(Struct, frozen=True):
    """A broker to load: its name in the tables, its protocol, its address."""

    name: str
    scheme: str
    host: str
    port: int


def parse_target(text: str) -> Target:
    """Read NAME=SCHEME://HOST:PORT."""
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
    """A loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def accepts(host: str, port: int) -> bool:
    """Whether something accepts connections there now."""
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return False
    return True
