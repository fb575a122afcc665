"""`penstock serve`: runs a server; its flags are settings, and a banner shows its addresses."""

import os
import shlex
import sys
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
from penstock.cli.port_owner import explain_port_in_use
from penstock.config import PRESETS, load
from penstock.config.keys import UNSET_WORDS
from penstock.errors import InvalidConfig

if TYPE_CHECKING:
    from penstock.app import Server


DASHBOARD_PANEL = "Dashboard"
NEXUSD_PANEL = "Names that NexusD used"
BANNER_NAMES = {"sidecar": "grpc"}
"""Names of doors in the banner, where people know them by another than in settings and metrics."""
INDENT = " " * 2
NAME_WIDTH = 10
"""Width of the column of names in the banner."""

SETTINGS = {
    "host": "host",
    "mqtt_port": "mqtt.port",
    "http_port": "http.port",
    "grpc_port": "sidecar.port",
    "grpc_host": "sidecar.host",
    "allow_anonymous": "access.allow_anonymous",
    "node_id": "node_id",
    "log_level": "logging.level",
    "log_format": "logging.format",
    "data_dir": "data_dir",
    "durability": "durability",
    "app_port": "sidecar.port",
    "sidecar_host": "sidecar.host",
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

PORT_FLAGS = {"mqtt.port": "--mqtt-port", "http.port": "--http-port", "sidecar.port": "--grpc-port"}
"""Flag of each port that has one."""

SettingsFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings file (YAML); default: PENSTOCK_CONFIG."),
]
SetFlags = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Set any setting, such as outbox.messages=1000; may be repeated."
    ),
]
Presets = Annotated[
    list[str] | None,
    typer.Option("--preset", metavar="NAME", help=f"Values to start from: one of {', '.join(PRESETS)}."),
]


class SettingFlags(Group, frozen=True, kw_only=True):
    """Flags that set settings."""

    host: Annotated[str | None, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")] = (
        None
    )
    mqtt_port: Annotated[
        str | None,
        typer.Option("--mqtt-port", metavar="PORT", help="MQTT port; 0 takes a free one, off closes it."),
    ] = None
    http_port: Annotated[
        str | None,
        typer.Option(
            "--http-port", metavar="PORT", help="HTTP port, or several; 0 takes a free one, off closes it."
        ),
    ] = None
    grpc_port: Annotated[
        str | None,
        typer.Option(
            "--grpc-port",
            metavar="PORT",
            help="gRPC port; 0 takes a free one, off closes it.",
        ),
    ] = None
    grpc_host: Annotated[
        str | None,
        typer.Option("--grpc-host", metavar="ADDRESS", help="Address that the gRPC port listens on."),
    ] = None
    allow_anonymous: Annotated[
        bool | None, typer.Option(help="Accept clients without a user name.", show_default=False)
    ] = None
    node_id: Annotated[str | None, typer.Option("--node-id", metavar="NAME", help="Name of this node.")] = (
        None
    )
    log_level: Annotated[
        str | None, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
    ] = None
    log_format: Annotated[
        str | None, typer.Option("--log-format", metavar="FORMAT", help="text or json.")
    ] = None
    data_dir: Annotated[
        str | None,
        typer.Option(
            "--data-dir", metavar="DIRECTORY", help="Folder of log and state; off keeps them in memory."
        ),
    ] = None
    durability: Annotated[
        str | None, typer.Option("--durability", metavar="MODE", help="fsync, os or memory.")
    ] = None


def _nexusd_option(flag: str, metavar: str, help: str, *others: str) -> Any:
    return typer.Option(flag, *others, metavar=metavar, help=help, rich_help_panel=NEXUSD_PANEL)


class NexusdFlags(Group, frozen=True, kw_only=True):
    """Flags that set settings, with the names of NexusD's daemon."""

    app_port: Annotated[
        str | None, _nexusd_option("--app-port", "PORT", "The same as --grpc-port.", "--sidecar-port")
    ] = None
    sidecar_host: Annotated[
        str | None, _nexusd_option("--sidecar-host", "ADDRESS", "The same as --grpc-host.")
    ] = None
    message_buffer_size: Annotated[
        str | None, _nexusd_option("--message-buffer-size", "COUNT", "Messages in each topic's ring.")
    ] = None
    max_buffer_memory: Annotated[
        str | None, _nexusd_option("--max-buffer-memory", "SIZE", "Bytes of all rings, such as 50M.")
    ] = None
    buffer_partitions: Annotated[
        str | None, _nexusd_option("--buffer-partitions", "COUNT", "Partitions of the rings.")
    ] = None
    buffer_backend: Annotated[
        str | None, _nexusd_option("--buffer-backend", "BACKEND", "memory or rocksdb.")
    ] = None
    rocksdb_path: Annotated[
        str | None,
        _nexusd_option("--rocksdb-path", "DIRECTORY", "With rocksdb: the same as --data-dir."),
    ] = None
    subscriber_queue_limit: Annotated[
        str | None, _nexusd_option("--subscriber-queue-limit", "COUNT", "Messages in each outbox.")
    ] = None
    backpressure_policy: Annotated[
        str | None,
        _nexusd_option(
            "--backpressure-policy",
            "POLICY",
            "gRPC subscribers: drop-oldest, drop-newest, block or disconnect.",
        ),
    ] = None
    paused_subscription_ttl: Annotated[
        str | None,
        _nexusd_option(
            "--paused-subscription-ttl", "MS", "Time in which a gRPC subscription can be resumed."
        ),
    ] = None
    block_timeout_ms: Annotated[
        str | None, _nexusd_option("--block-timeout-ms", "MS", "Longest wait under block.")
    ] = None
    default_message_ttl: Annotated[
        str | None, _nexusd_option("--default-message-ttl", "MS", "Lifetime of messages; 0 is forever.")
    ] = None
    ttl_reaper_interval_ms: Annotated[
        str | None,
        _nexusd_option(
            "--ttl-reaper-interval-ms",
            "MS",
            "Interval at which expired messages are removed.",
            "--ttl-reaper-interval",
        ),
    ] = None


class DashboardFlags(Group, frozen=True, kw_only=True):
    """Flags of the dashboard beside the server."""

    dashboard: Annotated[
        bool,
        typer.Option(
            "--dashboard", help="Also run the Streamlit dashboard.", rich_help_panel=DASHBOARD_PANEL
        ),
    ] = False
    dashboard_port: Annotated[
        int | None,
        typer.Option(
            "--dashboard-port",
            min=0,
            max=65535,
            metavar="PORT",
            help="Its port; 0 takes a free one.",
            rich_help_panel=DASHBOARD_PANEL,
        ),
    ] = None
    dashboard_user: Annotated[
        str | None,
        typer.Option(
            "--dashboard-user",
            metavar="NAME",
            help="User name of the dashboard, if the server requires one.",
            rich_help_panel=DASHBOARD_PANEL,
        ),
    ] = None
    dashboard_password_file: Annotated[
        Path | None,
        typer.Option(
            "--dashboard-password-file",
            metavar="FILE",
            help="File whose first line is the password.",
            rich_help_panel=DASHBOARD_PANEL,
        ),
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
    config: SettingsFile = None,
    *,
    settings: SettingFlags,
    set_flags: SetFlags = None,
    preset: Presets = None,
    dashboard_flags: DashboardFlags,
    nexusd: NexusdFlags,
) -> None:
    """Run the server."""
    given = given_settings(settings, nexusd, set_flags)
    read = partial(load, config, os.environ, given, only_preset(preset))
    try:
        run(read, dashboard_flags.options(), _print_banner)
    except InvalidConfig as error:
        raise InvalidConfig(explain_port_in_use(str(error), PORT_FLAGS)) from error


def given_settings(settings: SettingFlags, nexusd: NexusdFlags, others: list[str] | None) -> dict[str, Any]:
    """The settings that flags give, by dotted key.

    Raises:
        InvalidConfig: two flags give one setting.
    """
    data_dir = choose_data_dir(settings.data_dir, nexusd.buffer_backend, nexusd.rocksdb_path)
    flags: dict[str, Any] = {**asdict(settings), **asdict(nexusd)}
    flags |= {"data_dir": data_dir, "buffer_backend": None, "rocksdb_path": None}
    given: dict[str, Any] = {}
    words = [(SETTINGS[name], value) for name, value in flags.items() if value is not None]
    for key, value in [*words, *parse_set_flags(others)]:
        if key in given:
            raise InvalidConfig(f"{key}: two flags set it; give one")
        given[key] = value
    return given


def parse_set_flags(given: list[str] | None) -> list[tuple[str, str]]:
    """Keys and values of `--set KEY=VALUE`.

    Raises:
        InvalidConfig: one has no `=`.
    """
    pairs = [each.partition("=") for each in given or ()]
    for key, sign, _ in pairs:
        if not sign:
            raise InvalidConfig(f"--set {key}: write KEY=VALUE, such as outbox.messages=1000")
    return [(key.strip(), value) for key, _, value in pairs]


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
    """Print the banner in one piece below the log of the start; not beside a JSON log, for programs."""
    if server.settings.logging.format == "json":
        return
    sys.stderr.flush()
    gap = "\n" if sys.stdout.isatty() and sys.stderr.isatty() else ""
    sys.stdout.write(f"{gap}{banner(server, dashboard)}\n")
    sys.stdout.flush()


def _doors(server: "Server") -> list[tuple[str, str]]:
    return [
        (BANNER_NAMES.get(door.name, door.name), address)
        for door in server.doors
        for address in door.addresses()
    ]


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
