"""`penstock serve`: the flags of a server, which are settings by other names."""

import os
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec.structs import asdict

from penstock.cli.companion import PORT, CompanionFlags
from penstock.cli.flags import Group, spread
from penstock.cli.presets import Presets, only_preset
from penstock.cli.running import run
from penstock.config import load
from penstock.config.keys import UNSET_WORDS
from penstock.errors import InvalidConfig

DASHBOARD_PANEL = "Dashboard"
NEXUSD_PANEL = "NexusD's names"


class SettingFlags(Group, frozen=True, kw_only=True):
    """The flags that are settings."""

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
    """More of them, by the names that NexusD's daemon has for them."""

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
            help="How long a gRPC subscription can be resumed, in ms.", rich_help_panel=NEXUSD_PANEL
        ),
    ] = None
    block_timeout_ms: Annotated[
        str | None, typer.Option(help="Longest wait under block.", rich_help_panel=NEXUSD_PANEL)
    ] = None
    default_message_ttl: Annotated[
        str | None, typer.Option(help="Lifetime in ms; 0 is for ever.", rich_help_panel=NEXUSD_PANEL)
    ] = None
    ttl_reaper_interval_ms: Annotated[
        str | None,
        typer.Option(
            "--ttl-reaper-interval-ms",
            "--ttl-reaper-interval",
            help="How often expired messages are removed.",
            rich_help_panel=NEXUSD_PANEL,
        ),
    ] = None


class DashboardFlags(Group, frozen=True, kw_only=True):
    """Whether there is a dashboard beside the server, and what it is told."""

    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Also show the dashboard.", rich_help_panel=DASHBOARD_PANEL)
    ] = False
    dashboard_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Its port; 0 takes a free one.", rich_help_panel=DASHBOARD_PANEL),
    ] = None
    dashboard_user: Annotated[
        str | None,
        typer.Option(help="As whom it asks a server that wants passwords.", rich_help_panel=DASHBOARD_PANEL),
    ] = None
    dashboard_password_file: Annotated[
        Path | None,
        typer.Option(help="A file whose first line is the password.", rich_help_panel=DASHBOARD_PANEL),
    ] = None

    def companion(self) -> CompanionFlags | None:
        """What the dashboard beside the server is told, if there is to be one.

        Raises:
            InvalidConfig: there is not, and yet something is said about it.
        """
        port, user, password_file = self.dashboard_port, self.dashboard_user, self.dashboard_password_file
        if self.dashboard:
            return CompanionFlags(PORT if port is None else port, user, password_file)
        if (port, user, password_file) != (None, None, None):
            raise InvalidConfig(
                "--dashboard-port, --dashboard-user, --dashboard-password-file: need --dashboard"
            )
        return None


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
"""The setting that a flag sets."""


@spread
def serve(
    config: Annotated[Path | None, typer.Option(help="Settings file (YAML).")] = None,
    *,
    settings: SettingFlags,
    preset: Presets = None,
    beside: DashboardFlags,
    nexusd: NexusdFlags,
) -> None:
    """Run the server."""
    flags = {**asdict(settings), **asdict(nexusd)}
    given: dict[str, Any] = {SETTINGS[name]: value for name, value in flags.items() if value is not None}
    if "data_dir" in given:
        given["data_dir"] = choose_data_dir(settings.data_dir, nexusd.buffer_backend, nexusd.rocksdb_path)
    run(partial(load, config, os.environ, given, only_preset(preset)), beside.companion())


def choose_data_dir(data_dir: str | None, backend: str | None, path: str | None) -> str | None:
    """The data directory that the flags name, by our name or NexusD's: None is no word about it, off is none.

    Raises:
        InvalidConfig: the flags contradict one another, or a part is missing.
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
