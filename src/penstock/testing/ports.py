"""The ports of a server: which it has, and that nobody else gets them while it is away."""

import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from penstock.app import Server


class ReservedPorts:
    """Ports that are bound without a listener: connections are refused.

    Otherwise a client that reconnects could get such a port for its own end, and connect to itself.
    """

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def take(self, host: str, ports: Iterable[int]) -> None:
        """Keep ports; one that cannot be had is left alone."""
        for port in ports:
            holder = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # so a server may bind it as well
            with suppress(OSError):
                holder.bind((host, port))
            self._sockets.append(holder)

    def give_back(self) -> None:
        """Release all ports."""
        for holder in self._sockets:
            holder.close()
        self._sockets.clear()


def ports_of(server: "Server") -> dict[str, object]:
    """The ports that a server has taken, as settings: with them the next one is found at the same place."""
    http = _ports(server.http.addresses())
    plain, secure = http.get("http", []), http.get("https", [])
    others = _ports(server.mqtt.addresses() + server.sidecar.addresses())
    named = {
        "mqtt.port": others.get("mqtt"),
        "mqtt.tls_port": others.get("mqtts"),
        "mqtt.websocket_port": others.get("ws"),
        "mqtt.websocket_tls_port": others.get("wss"),
        "sidecar.port": others.get("grpc"),
        "sidecar.tls_port": others.get("grpcs"),
    }
    ports: dict[str, object] = {key: found[0] for key, found in named.items() if found}
    settings = server.settings.http
    if settings.admin_port is not None:
        ports["http.admin_port"] = (secure if settings.admin_tls else plain).pop()  # it comes last
    if plain:
        ports["http.port"] = plain
    if secure:
        ports["http.tls_port"] = secure[0]
    return ports


def _ports(addresses: list[str]) -> dict[str, list[int]]:
    """The ports of addresses by scheme."""
    ports: dict[str, list[int]] = {}
    for address in addresses:
        ports.setdefault(urlsplit(address).scheme, []).append(port_in(address))
    return ports


def port_in(address: str) -> int:
    """Return the port of an address in a door's notation."""
    port = urlsplit(address).port
    assert port is not None  # doors name it, whichever it is
    return port
