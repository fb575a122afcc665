"""Where a server is: an address such as `mqtts://host:8883`, or what the flags about it say."""

from typing import NamedTuple
from urllib.parse import urlsplit

import typer

from penstock.cli.connection import HOST, ServerFlags

SECURE = ("https", "mqtts", "wss")
STANDARD_PORTS = {"http": 80, "https": 443, "mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
"""Of an address without one."""
OWN_PORTS = {**STANDARD_PORTS, "http": 8080, "https": 8443, "ws": 8080, "wss": 8443}
"""Of a Penstock server, if nothing else is set; https has to be given a port, and this one is usual."""
MQTT_PATH = "/mqtt"
SOCKETS = ("ws", "wss")


class Place(NamedTuple):
    """Where a server is, and what is spoken there."""

    scheme: str
    host: str
    port: int
    path: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"

    @property
    def is_secure(self) -> bool:
        """Whether TLS is spoken."""
        return self.scheme in SECURE

    @property
    def is_socket(self) -> bool:
        """Whether it is a WebSocket."""
        return self.scheme in SOCKETS


def find_place(flags: ServerFlags, schemes: tuple[str, str], others: tuple[str, ...] = ()) -> Place:
    """Where the flags say that the server is.

    Args:
        schemes: what is spoken without TLS, and what with it, unless an address says otherwise.
        others: what an address may begin with as well.
    """
    if flags.address is not None:
        if (flags.host, flags.port, flags.tls) != (None, None, False):
            raise typer.BadParameter("--address says it all: leave out --host, --port and --tls")
        return parse_address(flags.address, (*schemes, *others))
    scheme = schemes[flags.tls]
    host = (flags.host or HOST).removeprefix("[").removesuffix("]")
    return Place(scheme, host, flags.port or OWN_PORTS[scheme], _path(scheme, ""))


def parse_address(text: str, schemes: tuple[str, ...]) -> Place:
    """Take an address apart."""
    wanted = " or ".join(f"{each}://host:{OWN_PORTS[each]}" for each in schemes)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no address; write {wanted}") from None
    if parts.username is not None or parts.password is not None:
        raise typer.BadParameter("user and password do not belong into the address: see --user")
    if parts.scheme not in schemes or not parts.hostname or parts.query or parts.fragment:
        raise typer.BadParameter(f"{text!r} is no address here; write {wanted}")
    path = _path(parts.scheme, parts.path.rstrip("/"))
    if path and parts.scheme in ("mqtt", "mqtts"):
        raise typer.BadParameter(f"{text!r}: MQTT has no paths; only ws:// and wss:// do")
    return Place(parts.scheme, parts.hostname, port or STANDARD_PORTS[parts.scheme], path)


def _path(scheme: str, path: str) -> str:
    return MQTT_PATH if scheme in SOCKETS and not path else path
