"""Servers in the process of a test, and clients of them."""

from typing import Any
from urllib.parse import urlsplit

import aiomqtt
import httpx
from paho.mqtt.properties import Properties

from penstock.app import Server
from penstock.config import Settings
from penstock.core.runtime.clock import Clock
from penstock.core.settings import LogSettings
from penstock.doors.mqtt.settings import MqttSettings
from penstock.doors.sidecar.settings import SidecarSettings
from penstock.net.http.settings import HttpSettings

EVERYTHING = LogSettings(capture=("#", "$penstock/#"))
"""Default of a server with a data directory."""


class Start:
    """Starts servers with settings of their own, on free ports."""

    def __init__(self) -> None:
        self._running: list[Server] = []

    async def __call__(self, *, clock: Clock | None = None, **settings: Any) -> Server:
        mine = {
            "mqtt": MqttSettings(port=0),
            "http": HttpSettings(port=(0,)),
            "sidecar": SidecarSettings(port=0),
            "shutdown_timeout_s": 1.0,
        }
        server = Server(Settings(**{**mine, **settings}), clock)
        await server.start()
        self._running.append(server)
        return server

    async def stop(self, server: Server) -> None:
        """Stop a server before the test is over."""
        self._running.remove(server)
        await server.stop()

    async def stop_all(self) -> None:
        """Stop whatever still runs."""
        for server in list(self._running):
            await self.stop(server)


def client_of(server: Server, **options: Any) -> httpx.AsyncClient:
    """An HTTP client of a server, to be entered."""
    # Nothing here is encrypted, and loading trusted certificates is slow.
    mine = {"base_url": f"http://127.0.0.1:{port_of(server, 'http')}", "timeout": 20, "verify": False}
    return httpx.AsyncClient(**{**mine, **options})


def mqtt_properties(packet_type: int, **values: Any) -> Properties:
    """MQTT 5 properties for a packet of this type, by paho's names."""
    properties = Properties(packet_type)  # type: ignore[no-untyped-call]
    for name, value in values.items():
        setattr(properties, name, value)
    return properties


def mqtt_of(server: Server, client_id: str | None = None, **options: Any) -> aiomqtt.Client:
    """An MQTT client of a server, to be entered."""
    port = port_of(server, "mqtt")
    return aiomqtt.Client(
        "127.0.0.1", port, identifier=client_id, protocol=aiomqtt.ProtocolVersion.V5, **options
    )


def port_of(server: Server, scheme: str) -> int:
    """The port of a scheme."""
    addresses = [urlsplit(address) for door in server.doors for address in door.addresses()]
    return next(address.port or 0 for address in addresses if address.scheme == scheme)
