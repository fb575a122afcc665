"""Settings and ports of a server in a test.

Settings are given as keywords in the shape of the settings file. The environment and files are not looked
at, so that a test means the same on every machine.
"""

import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from penstock.config import load
from penstock.config.keys import known_keys
from penstock.errors import InvalidConfig

if TYPE_CHECKING:
    from penstock.app import Server
    from penstock.config import Settings

DEFAULTS: dict[str, Any] = {
    "mqtt.port": 0,
    "http.port": 0,
    "sidecar.port": 0,
    "shutdown_timeout_s": 1.0,  # a test has no time for a client that does not go
    "log.capture": ["#"],  # so that a test can see everything that was published
}
"""Differences from a server that is started by hand."""

Flat = Mapping[str, object]
"""Values by dotted key."""


def flatten(given: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Sections as dotted keys: `mqtt={"port": 0}` is `mqtt.port`."""
    for word, value in given.items():
        name = f"{prefix}{word}"
        if isinstance(value, Mapping) and name not in known_keys():
            yield from flatten(value, f"{name}.")
        else:
            yield name, _plain(value)


def _plain(value: object) -> object:
    """A value as a settings file would have it."""
    if value is None:
        return "off"
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def settings_of(flat: Flat, preset: str | None) -> "Settings":
    """The settings that keywords mean.

    Raises:
        InvalidConfig: a key is unknown, or a value is not what it should be.
    """
    try:
        return load(flags={**DEFAULTS, **flat}, preset=preset).settings
    except InvalidConfig as error:
        raise InvalidConfig(str(error).removesuffix(" (flag)")) from None  # it was none


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
