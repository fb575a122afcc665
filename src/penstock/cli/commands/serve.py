"""`penstock serve`: runs a server; its flags are settings, and a banner shows its addresses."""

import os
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import asdict

from penstock import __version__
from penstock.app.dashboard import DashboardOptions
from penstock.app.run import run
from penstock.cli.connect import OWN_PORTS
from penstock.cli.flags import DASHBOARD_PORT, Group, read_password_file, spread
from penstock.cli.output import program_name
from penstock.config import PRESETS, load
from penstock.config.keys import UNSET_WORDS
from penstock.errors import InvalidConfig

if TYPE_CHECKING:
    from penstock.app import Server


DASHBOARD_PANEL = "Dashboard"
NEXUSD_PANEL = "NexusD's names"
INDENT = " " * 2
NAME_WIDTH = 10
"""Width of the column of names in the banner."""

SETTINGS = {
    "host": "host",
    "mqtt_port": "mqtt.port",
    "http_port": "http.port",
    "sidecar_port": "sidecar.port",
    "sidecar_host": "sidecar.host",
    "allow_anonymous": "access.allow_anonymous",
    "node_id": "node_id",
    "log_level": "logging.level",
    "log_format": "logging.format",
    "data_dir": "data_dir",
    "durability": "durability",
    "message_buffer_size": "ring.messages",
    "max_buffer_memory": "ring.total_bytes",
    "buffer_partitions": "ring.partitions",
    "buffer_backend": "data_dir",
    "rocksdb_path": "data_dir",
    "subscriber_queue_limit": "outbox.messages",
    "backpressure_policy": "sidecar.policy",
    "paused_subscription_ttl": "sidecar.paused_ttl_ms",
    "block_timeout_ms": "outbox.block_timeout_ms",
    "default_message_ttl": "default_ttl_ms",
    "ttl_reaper_interval_ms": "reaper_interval_ms",
}
"""Setting of each flag."""

Presets = Annotated[
    list[str] | None,
    typer.Option("--preset", metavar="NAME", help=f"Values to start from: one of {', '.join(PRESETS)}."),
]


class SettingFlags(Group, frozen=True, kw_only=True):
    """Flags that set settings."""

    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None
    mqtt_port: Annotated[str | None, typer.Option(help="MQTT port; 0 takes a free one, off closes it.")] = (
        None
    )
    http_port: Annotated[
        str | None, typer.Option(help="HTTP port, or several; 0 takes a free one, off closes it.")
    ] = None
    sidecar_port: Annotated[
        str | None,
        typer.Option("--sidecar-port", "--app-port", help="gRPC port; 0 takes a free one, off closes it."),
    ] = None
    sidecar_host: Annotated[str | None, typer.Option(help="Address that the gRPC port listens on.")] = None
    allow_anonymous: Annotated[
        bool | None, typer.Option(help="Let clients in without a user name.", show_default=False)
    ] = None
    node_id: Annotated[str | None, typer.Option(help="Name of this node.")] = None
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None
    log_format: Annotated[str | None, typer.Option(help="text or json.")] = None
    data_dir: Annotated[
        str | None, typer.Option(help="Folder of log and state; off keeps them in memory.")
    ] = None
    durability: Annotated[str | None, typer.Option(help="fsync, os or memory.")] = None


class NexusdFlags(Group, frozen=True, kw_only=True):
    """Flags that set settings, with the names of NexusD's daemon."""

    message_buffer_size: Annotated[
        str | None, typer.Option(help="Messages in each topic's ring.", rich_help_panel=NEXUSD_PANEL)
    ] = None
    max_buffer_memory: Annotated[
        str | None, typer.Option(help="Bytes of all rings; K, M, G work.", rich_help_panel=NEXUSD_PANEL)
    ] = None
    buffer_partitions: Annotated[
        str | None, typer.Option(help="Partitions of the rings.", rich_help_panel=NEXUSD_PANEL)
    ] = None
    buffer_backend: Annotated[
        str | None, typer.Option(help="memory or rocksdb.", rich_help_panel=NEXUSD_PANEL)
    ] = None
    rocksdb_path: Annotated[
        str | None,
        typer.Option(help="With rocksdb: the same as --data-dir.", rich_help_panel=NEXUSD_PANEL),
    ] = None
    subscriber_queue_limit: Annotated[
        str | None, typer.Option(help="Messages in each outbox.", rich_help_panel=NEXUSD_PANEL)
    ] = None
    backpressure_policy: Annotated[
        str | None,
        typer.Option(
            help="gRPC subscribers: drop-oldest, drop-newest, block or disconnect.",
            rich_help_panel=NEXUSD_PANEL,
        ),
    ] = None
    paused_subscription_ttl: Annotated[
        str | None,
        typer.Option(
            help="Time in which a gRPC subscription can be resumed, in ms.", rich_help_panel=NEXUSD_PANEL
        ),
    ] = None
    block_timeout_ms: Annotated[
        str | None, typer.Option(help="Longest wait under block.", rich_help_panel=NEXUSD_PANEL)
    ] = None
    default_message_ttl: Annotated[
        str | None, typer.Option(help="Lifetime in ms; 0 is forever.", rich_help_panel=NEXUSD_PANEL)
    ] = None
    ttl_reaper_interval_ms: Annotated[
        str | None,
        typer.Option(
            "--ttl-reaper-interval-ms",
            "--ttl-reaper-interval",
            help="Interval at which expired messages are removed, in ms.",
            rich_help_panel=NEXUSD_PANEL,
        ),
    ] = None


class DashboardFlags(Group, frozen=True, kw_only=True):
    """Flags of the dashboard beside the server."""

    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Also run the dashboard.", rich_help_panel=DASHBOARD_PANEL)
    ] = False
    dashboard_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Its port; 0 takes a free one.", rich_help_panel=DASHBOARD_PANEL),
    ] = None
    dashboard_user: Annotated[
        str | None,
        typer.Option(
            help="User name of the dashboard, if the server requires one.", rich_help_panel=DASHBOARD_PANEL
        ),
    ] = None
    dashboard_password_file: Annotated[
        Path | None,
        typer.Option(help="File whose first line is the password.", rich_help_panel=DASHBOARD_PANEL),
    ] = None

    def options(self) -> DashboardOptions | None:
        """The options of the dashboard; None without one.

        Raises:
            InvalidConfig: a flag needs --dashboard, or the password file cannot be read.
        """
        port, user, file = self.dashboard_port, self.dashboard_user, self.dashboard_password_file
        if self.dashboard:
            password = None if file is None else read_password_file(file, "--dashboard-password-file")
            return DashboardOptions(DASHBOARD_PORT if port is None else port, user, password)
        if (port, user, file) != (None, None, None):
            raise InvalidConfig(
                "--dashboard-port, --dashboard-user, --dashboard-password-file: need --dashboard"
            )
        return None


@spread
def serve(
    config: Annotated[Path | None, typer.Option(help="Settings file (YAML).")] = None,
    *,
    settings: SettingFlags,
    preset: Presets = None,
    dashboard_flags: DashboardFlags,
    nexusd: NexusdFlags,
) -> None:
    """Run the server."""
    flags = {**asdict(settings), **asdict(nexusd)}
    given: dict[str, Any] = {SETTINGS[name]: value for name, value in flags.items() if value is not None}
    if "data_dir" in given:
        given["data_dir"] = choose_data_dir(settings.data_dir, nexusd.buffer_backend, nexusd.rocksdb_path)
    read = partial(load, config, os.environ, given, only_preset(preset))
    run(read, dashboard_flags.options(), _print_banner)


def only_preset(given: list[str] | None) -> str | None:
    """The preset of the command line, if any.

    Raises:
        InvalidConfig: there are several.
    """
    if given is not None and len(given) > 1:
        raise InvalidConfig(
            f"--preset: give one preset, not several ({', '.join(given)}); "
            "put the values of the others into the settings file"
        )
    return given[0] if given else None


def choose_data_dir(data_dir: str | None, backend: str | None, path: str | None) -> str | None:
    """The data directory of Penstock's or NexusD's flags; None if no flag names one, `off` for memory.

    Raises:
        InvalidConfig: the flags contradict each other, or one is missing.
    """
    if backend is None and path is None:
        return data_dir
    if data_dir is not None:
        raise InvalidConfig("--data-dir: replaces --buffer-backend and --rocksdb-path; give one or the other")
    if backend == "rocksdb":
        if not path or path.lower() in UNSET_WORDS:
            raise InvalidConfig("--buffer-backend rocksdb: needs --rocksdb-path with the folder to use")
        return path
    if backend is None or (backend == "memory" and path is not None):
        raise InvalidConfig("--rocksdb-path: needs --buffer-backend rocksdb")
    if backend != "memory":
        raise InvalidConfig(f"--buffer-backend: expected one of memory, rocksdb, got {backend!r}")
    return "off"


def banner(server: "Server", dashboard: str | None = None) -> str:
    """Start banner: the doors with their addresses, and commands to copy.

    Args:
        dashboard: address of the dashboard, if there is one.
    """
    rows = [*_doors(server), *_pages(server), *_storage(server)]
    rows += [("dashboard", dashboard)] if dashboard else []
    return "\n".join(
        [
            f"Penstock {__version__} - node {server.node_id}",
            *(f"{INDENT}{name:<{NAME_WIDTH}} {value}" for name, value in rows),
            *_examples(server),
            "Ctrl-C stops it.",
        ]
    )


def _print_banner(server: "Server", dashboard: str | None) -> None:
    """Print the banner, except beside a JSON log, which programs read."""
    if server.settings.logging.format != "json":
        print(banner(server, dashboard), flush=True)


def _doors(server: "Server") -> list[tuple[str, str]]:
    return [(door.name, address) for door in server.doors for address in door.addresses()]


def _pages(server: "Server") -> list[tuple[str, str]]:
    """Other interfaces of the HTTP port, at its first address that is not the admin port.

    The console is named where its views of administrators are, which is the admin port, if there is one.
    """
    settings, addresses = server.settings.http, server.http.addresses()
    if not addresses:
        return []
    console = addresses[0] if settings.admin_port is None else addresses[-1]
    pages = [("console", f"{console}/")]
    if settings.port or settings.tls_port is not None:
        first = addresses[0]
        pages += [("web", first.replace("http", "ws", 1) + "/ws"), ("streams", f"{first}/api/v1/streams")]
    return pages


def _storage(server: "Server") -> list[tuple[str, str]]:
    settings = server.settings
    return [] if settings.data_dir is None else [("log", f"{settings.data_dir} ({settings.durability})")]


def _examples(server: "Server") -> list[str]:
    """Three commands to copy; only the user's name and password are placeholders."""
    commands = [*_message_examples(server), *_top_example(server)]
    if not commands:
        return []
    words = "Try, in other terminals:" if len(commands) > 1 else "Try:"
    return [words, *(f"{INDENT}{program_name()} {command}" for command in commands)]


def _message_examples(server: "Server") -> list[str]:
    port = server.mqtt.port
    if port is None:
        return []
    flags = _address_flags(server.settings.host, port, OWN_PORTS["mqtt"]) + _user_flags(server)
    return [f"sub{flags} 'hello/#' -v", f"pub{flags} hello/world 'first light'"]


def _top_example(server: "Server") -> list[str]:
    ports = server.http.ports()
    if not ports:
        return []
    # The admin port, which is the last one, has the metrics, if there is one.
    port = ports[0] if server.settings.http.admin_port is None else ports[-1]
    return [f"top{_address_flags(server.settings.host, port, OWN_PORTS['http'])}{_user_flags(server)}"]


def _address_flags(host: str, port: int, default_port: int) -> str:
    """The flags of an address; a wildcard address includes this machine."""
    is_local = host in ("127.0.0.1", "localhost", "0.0.0.0", "::")  # noqa: S104 - compared, not bound
    flags = "" if is_local else f" --host {shlex.quote(host)}"
    return flags + ("" if port == default_port else f" --port {port}")


def _user_flags(server: "Server") -> str:
    return " --user NAME --password-file FILE" if server.settings.access.wants_passwords else ""
