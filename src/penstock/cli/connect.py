"""Connections of the commands: the endpoint from the flags, HTTP and MQTT clients, and shell completion.

The clients are imported inside functions: `penstock --help`, which imports all commands, does not need them.
"""

from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from urllib.parse import urlsplit

import typer

from penstock.cli.flags import HOST, SERVER_PANEL, ServerFlags
from penstock.cli.output import INTERRUPTED
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.client import HttpClient
    from penstock.client.mqtt.handshake import PendingConnection

SECURE = ("https", "mqtts", "wss")
WEBSOCKET = ("ws", "wss")
STANDARD_PORTS = {"http": 80, "https": 443, "mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
"""Default ports of addresses."""
OWN_PORTS = {**STANDARD_PORTS, "http": 8080, "https": 8443, "ws": 8080, "wss": 8443}
"""Default ports of a Penstock server; https has none in the settings, and this one is usual."""
MQTT_PATH = "/mqtt"

COMPLETIONS = 50
"""Most names that the shell is offered."""
COMPLETION_PAGE = 1_000
COMPLETION_TIMEOUT_S = 0.5

Limit = Annotated[int | None, typer.Option("--limit", min=1, metavar="COUNT", help="End after this many.")]
Qos = Annotated[int, typer.Option("--qos", "-q", min=0, max=2, metavar="QOS", help="0, 1 or 2.")]
Timings = Annotated[
    bool, typer.Option("--timings", help="Also report rates and latencies, on standard error.")
]


class MqttVersion(StrEnum):
    """Version of MQTT; 3 is 3.1.1."""

    V3 = "3"
    V5 = "5"


class Endpoint(NamedTuple):
    """Address of a server: scheme, host, port and path."""

    scheme: str
    host: str
    port: int
    path: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"

    @property
    def is_secure(self) -> bool:
        """True with TLS."""
        return self.scheme in SECURE

    @property
    def is_websocket(self) -> bool:
        """True for a WebSocket."""
        return self.scheme in WEBSOCKET


def find_endpoint(flags: ServerFlags, schemes: tuple[str, str], others: tuple[str, ...] = ()) -> Endpoint:
    """The endpoint that the flags name.

    Args:
        schemes: the scheme without TLS and the one with TLS, unless there is an address.
        others: further schemes that an address may have.
    """
    if flags.address is not None:
        if (flags.host, flags.port, flags.tls) != (None, None, False):
            raise typer.BadParameter("--address says it all: leave out --host, --port and --tls")
        return parse_address(flags.address, (*schemes, *others))
    scheme = schemes[flags.tls]
    host = (flags.host or HOST).removeprefix("[").removesuffix("]")
    return Endpoint(scheme, host, flags.port or OWN_PORTS[scheme], _path(scheme, ""))


def parse_address(text: str, schemes: tuple[str, ...]) -> Endpoint:
    """Parse the value of `--address`; without a scheme, as in `host:1883`, the port decides on one."""
    text = text if "://" in text else _with_scheme(text, schemes)
    wanted = " or ".join(f"{each}://host:{OWN_PORTS[each]}" for each in schemes)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a valid address; write {wanted}") from None
    if parts.username is not None or parts.password is not None:
        raise typer.BadParameter("user and password do not belong into the address: see --user")
    if parts.scheme not in schemes or not parts.hostname or parts.query or parts.fragment:
        raise typer.BadParameter(f"{text!r} is not a valid address here; write {wanted}")
    path = _path(parts.scheme, parts.path.rstrip("/"))
    if path and parts.scheme in ("mqtt", "mqtts"):
        raise typer.BadParameter(f"{text!r}: MQTT has no paths; only ws:// and wss:// do")
    return Endpoint(parts.scheme, parts.hostname, port or STANDARD_PORTS[parts.scheme], path)


def _with_scheme(text: str, schemes: tuple[str, ...]) -> str:
    """An address with the scheme whose usual port it has, otherwise with the first one."""
    with suppress(ValueError):
        port = urlsplit(f"//{text}").port
        if port is None:
            host, slash, path = text.partition("/")
            return f"{schemes[0]}://{host}:{OWN_PORTS[schemes[0]]}{slash}{path}"
        for ports in (OWN_PORTS, STANDARD_PORTS):
            scheme = next((each for each in schemes if ports[each] == port), None)
            if scheme is not None:
                return f"{scheme}://{text}"
    return f"{schemes[0]}://{text}"


def _path(scheme: str, path: str) -> str:
    return MQTT_PATH if scheme in WEBSOCKET and not path else path


class HttpServer(ServerFlags, frozen=True, kw_only=True):
    """Flags of a connection to a server's HTTP port."""

    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            "-p",
            min=1,
            max=65535,
            metavar="PORT",
            help=f"Its HTTP port; default: {OWN_PORTS['http']}, with --tls {OWN_PORTS['https']}.",
            rich_help_panel=SERVER_PANEL,
        ),
    ] = None

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint that the flags name."""
        return find_endpoint(self, ("http", "https"))

    def connect(self, endpoint: Endpoint) -> "HttpClient":
        """Make a client; it connects with the first request."""
        from penstock.client import HttpClient  # noqa: PLC0415

        tls = self.tls_context(endpoint.is_secure)
        try:
            return HttpClient(
                str(endpoint), self.user, self.find_password(), timeout=self.connect_timeout, tls=tls
            )
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None


class MqttServer(ServerFlags, frozen=True, kw_only=True):
    """Flags of a connection to a server's MQTT port."""

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
            rich_help_panel=SERVER_PANEL,
        ),
    ] = None
    websocket: Annotated[
        bool,
        typer.Option(
            "--websocket", help="Connect with MQTT over WebSocket, at /mqtt.", rich_help_panel=SERVER_PANEL
        ),
    ] = False
    client_id: Annotated[
        str,
        typer.Option(
            "--client-id",
            metavar="NAME",
            help="Client id; default: the server assigns one.",
            rich_help_panel=SERVER_PANEL,
        ),
    ] = ""
    mqtt_version: Annotated[
        MqttVersion,
        typer.Option(
            "--mqtt-version",
            metavar="VERSION",
            help="Version of MQTT: 3 (3.1.1) or 5.",
            rich_help_panel=SERVER_PANEL,
        ),
    ] = MqttVersion.V5

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint that the flags name."""
        plain = ("mqtt", "mqtts")
        if self.websocket:
            return find_endpoint(self, WEBSOCKET)
        return find_endpoint(self, plain, WEBSOCKET)

    @property
    def is_5(self) -> bool:
        """True for MQTT 5."""
        return self.mqtt_version is MqttVersion.V5


Connect = Callable[[], "PendingConnection"]
"""Makes a client of the server, to be entered or awaited."""


def run_http(
    server: HttpServer, work: "Callable[[HttpClient], None]", *, interrupted: int = INTERRUPTED
) -> None:
    """Run a command with an HTTP client; an error becomes one line and exit code 1.

    Args:
        interrupted: the exit code after Ctrl-C.
    """
    server.check_user()
    endpoint = server.endpoint
    try:
        with server.connect(endpoint) as client:
            work(client)
    except KeyboardInterrupt:
        raise typer.Exit(interrupted) from None
    except PenstockError as error:
        from penstock.cli.errors import explain_http  # noqa: PLC0415 - it imports the client

        typer.echo(f"error: {' '.join(explain_http(error, server, endpoint).split())}", err=True)
        raise typer.Exit(1) from None


def run_mqtt(
    server: MqttServer,
    work: Callable[[Connect], Coroutine[Any, Any, None]],
    *,
    session_expiry_s: int | None = None,
    interrupted: int = 0,
) -> None:
    """Run a command with an MQTT client; an error becomes one line and exit code 1.

    Args:
        session_expiry_s: lifetime of the session after disconnecting; an earlier session is resumed.
        interrupted: the exit code after Ctrl-C.
    """
    import asyncio  # noqa: PLC0415 - only for commands that use MQTT

    server.check_user()
    endpoint = server.endpoint
    try:
        connect = _connect_mqtt(server, endpoint, session_expiry_s)
        asyncio.run(work(connect))
    except KeyboardInterrupt:
        raise typer.Exit(interrupted) from None
    except PenstockError as error:
        raise report_mqtt_error(error, server, endpoint) from None


def report_mqtt_error(error: PenstockError, server: MqttServer, endpoint: Endpoint) -> typer.Exit:
    """Print an error as one line; returns the exit that ends the command."""
    from penstock.cli.errors import explain_mqtt  # noqa: PLC0415 - it imports the client

    typer.echo(f"error: {' '.join(explain_mqtt(error, server, endpoint).split())}", err=True)
    return typer.Exit(1)


def _connect_mqtt(server: MqttServer, endpoint: Endpoint, session_expiry_s: int | None) -> Connect:
    from penstock.client import MqttClient, PacketProperties, Version  # noqa: PLC0415

    tls, password = server.tls_context(endpoint.is_secure), server.find_password()
    return lambda: MqttClient.connect(
        endpoint.host,
        endpoint.port,
        client_id=server.client_id,
        version=Version.V5 if server.is_5 else Version.V311,
        user=server.user,
        password=password,
        clean_start=session_expiry_s is None,
        properties=PacketProperties(session_expiry=session_expiry_s),
        timeout=server.connect_timeout,
        tls=tls,
        websocket_path=endpoint.path if endpoint.is_websocket else None,
    )


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Shell completion: topics of the server that begin with the given text."""
    return _complete(context.params, "topics", "name", incomplete)


def complete_client(context: typer.Context, incomplete: str) -> list[str]:
    """Shell completion: client ids of the server that begin with the given text."""
    return _complete(context.params, "clients", "client_id", incomplete)


def _complete(flags: Mapping[str, Any], kind: str, key: str, incomplete: str) -> list[str]:
    """Names that the server of the command line knows; none if it does not respond within half a second."""
    try:
        server = _server_of(flags)
        if server is None or (server.user and not (server.password or server.password_file)):
            return []
        with server.connect(server.endpoint) as client:
            rows = client.get(f"/api/v1/{kind}", search=incomplete or None, limit=COMPLETION_PAGE)[kind]
    except (PenstockError, typer.BadParameter):  # completion prints no errors
        return []
    names = (row[key] for row in rows)
    return [name for name in names if name.startswith(incomplete) and name.isprintable()][:COMPLETIONS]


def _server_of(flags: Mapping[str, Any]) -> HttpServer | None:
    """The HTTP server of an incomplete command line; None if it names an MQTT port."""
    if "mqtt_version" in flags and (flags.get("port") or flags.get("address") or flags.get("tls")):
        return None
    given = {name: flags[name] for name in HttpServer.__struct_fields__ if flags.get(name) is not None}
    return HttpServer(**{**given, "connect_timeout": COMPLETION_TIMEOUT_S})
