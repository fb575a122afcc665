"""What the commands that speak MQTT have in common: the flags, and how their work begins and ends.

The client is imported inside functions: `penstock --help`, which looks at all commands, need not wait for it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.connection import PANEL, ServerFlags
from penstock.cli.places import OWN_PORTS, Place, find_place
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.client.connecting import Connecting


class MqttVersion(StrEnum):
    """3 stands for 3.1.1."""

    V3 = "3"
    V5 = "5"


Qos = Annotated[int, typer.Option("--qos", "-q", min=0, max=2, metavar="QOS", help="0, 1 or 2.")]
Timings = Annotated[bool, typer.Option("--timings", help="Also tell how fast it went, on standard error.")]


class MqttServer(ServerFlags, frozen=True, kw_only=True):
    """A server's MQTT port, and who talks there."""

    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            "-p",
            min=1,
            max=65535,
            metavar="PORT",
            help=f"Its MQTT port; default: {OWN_PORTS['mqtt']}, with --tls {OWN_PORTS['mqtts']}. "
            f"With --websocket its HTTP port; default: {OWN_PORTS['ws']}, with --tls {OWN_PORTS['wss']}.",
            rich_help_panel=PANEL,
        ),
    ] = None
    websocket: Annotated[
        bool,
        typer.Option("--websocket", help="Speak MQTT in a WebSocket, at /mqtt.", rich_help_panel=PANEL),
    ] = False
    client_id: Annotated[
        str,
        typer.Option(
            "--client-id", metavar="NAME", help="Default: the server gives one.", rich_help_panel=PANEL
        ),
    ] = ""
    mqtt_version: Annotated[
        MqttVersion,
        typer.Option("--mqtt-version", metavar="VERSION", help="3 (3.1.1) or 5.", rich_help_panel=PANEL),
    ] = MqttVersion.V5

    @property
    def place(self) -> Place:
        """Where that is."""
        plain, sockets = ("mqtt", "mqtts"), ("ws", "wss")
        if self.websocket:
            return find_place(self, sockets)
        return find_place(self, plain, sockets)

    @property
    def is_5(self) -> bool:
        """Whether MQTT 5 is spoken."""
        return self.mqtt_version is MqttVersion.V5


Connect = Callable[[], "Connecting"]
"""Makes a client of the server, to be entered or awaited."""


def run(
    server: MqttServer,
    work: Callable[[Connect], Coroutine[Any, Any, None]],
    *,
    session_expiry_s: int | None = None,
    interrupted: int = 0,
) -> None:
    """Do the work to its end or until Ctrl-C; a failure becomes one line and exit code 1.

    Args:
        session_expiry_s: how long a session outlives its connection; with it an earlier one is continued.
        interrupted: how Ctrl-C ends it.
    """
    server.check_who()
    place = server.place
    try:
        connect = _connect(server, place, session_expiry_s)
        asyncio.run(work(connect))
    except KeyboardInterrupt:
        raise typer.Exit(interrupted) from None
    except PenstockError as error:
        from penstock.cli.trouble import explain_mqtt  # noqa: PLC0415 - it imports the client

        typer.echo(f"error: {' '.join(explain_mqtt(error, server, place).split())}", err=True)
        raise typer.Exit(1) from None


def _connect(server: MqttServer, place: Place, session_expiry_s: int | None) -> Connect:
    from penstock.client import MqttClient, PacketProperties, Version  # noqa: PLC0415

    tls, password = server.trusted(place.is_secure), server.find_password()
    return lambda: MqttClient.connect(
        place.host,
        place.port,
        client_id=server.client_id,
        version=Version.V5 if server.is_5 else Version.V311,
        user=server.user,
        password=password,
        clean_start=session_expiry_s is None,
        properties=PacketProperties(session_expiry=session_expiry_s),
        timeout=server.connect_timeout,
        tls=tls,
        websocket_path=place.path if place.is_socket else None,
    )
