"""`penstock serve`: run the server until it is told to stop."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock import __version__
from penstock.cli.presets import Presets, only_preset
from penstock.config import load
from penstock.config.keys import UNSET_WORDS
from penstock.errors import InvalidConfig

if TYPE_CHECKING:
    from penstock.app import Server
    from penstock.config import Settings

Text = Annotated[str | None, typer.Option()]


def serve(
    config: Annotated[Path | None, typer.Option(help="Settings file (YAML).")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    mqtt_port: Annotated[
        str | None, typer.Option(help="MQTT port; 0 takes a free one, off closes it.")
    ] = None,
    http_port: Annotated[
        str | None, typer.Option(help="HTTP port, or several; 0 takes a free one, off closes it.")
    ] = None,
    sidecar_port: Annotated[
        str | None,
        typer.Option("--sidecar-port", "--app-port", help="gRPC port; 0 takes a free one, off closes it."),
    ] = None,
    sidecar_host: Annotated[str | None, typer.Option(help="Address that the gRPC port listens on.")] = None,
    allow_anonymous: Annotated[
        bool | None, typer.Option(help="Let clients in without a user name.", show_default=False)
    ] = None,
    node_id: Annotated[str | None, typer.Option(help="Name of this node.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    log_format: Annotated[str | None, typer.Option(help="text or json.")] = None,
    data_dir: Annotated[
        str | None, typer.Option(help="Folder of log and state; off keeps them in memory.")
    ] = None,
    durability: Annotated[str | None, typer.Option(help="fsync, os or memory.")] = None,
    preset: Presets = None,
    message_buffer_size: Annotated[
        str | None, typer.Option(help="Messages in each topic's ring.", rich_help_panel="NexusD's names")
    ] = None,
    max_buffer_memory: Annotated[
        str | None, typer.Option(help="Bytes of all rings; K, M, G work.", rich_help_panel="NexusD's names")
    ] = None,
    buffer_partitions: Annotated[
        str | None, typer.Option(help="Partitions of the rings.", rich_help_panel="NexusD's names")
    ] = None,
    buffer_backend: Annotated[
        str | None, typer.Option(help="memory or rocksdb.", rich_help_panel="NexusD's names")
    ] = None,
    rocksdb_path: Annotated[
        str | None,
        typer.Option(help="With rocksdb: the same as --data-dir.", rich_help_panel="NexusD's names"),
    ] = None,
    subscriber_queue_limit: Annotated[
        str | None, typer.Option(help="Messages in each outbox.", rich_help_panel="NexusD's names")
    ] = None,
    backpressure_policy: Annotated[
        str | None,
        typer.Option(
            help="gRPC subscribers: drop-oldest, drop-newest, block or disconnect.",
            rich_help_panel="NexusD's names",
        ),
    ] = None,
    paused_subscription_ttl: Annotated[
        str | None,
        typer.Option(
            help="How long a gRPC subscription can be resumed, in ms.", rich_help_panel="NexusD's names"
        ),
    ] = None,
    block_timeout_ms: Annotated[
        str | None, typer.Option(help="Longest wait under block.", rich_help_panel="NexusD's names")
    ] = None,
    default_message_ttl: Annotated[
        str | None, typer.Option(help="Lifetime in ms; 0 is for ever.", rich_help_panel="NexusD's names")
    ] = None,
    ttl_reaper_interval_ms: Annotated[
        str | None,
        typer.Option(
            "--ttl-reaper-interval-ms",
            "--ttl-reaper-interval",
            help="How often expired messages are removed.",
            rich_help_panel="NexusD's names",
        ),
    ] = None,
) -> None:
    """Run the server."""
    flags = {
        "host": host,
        "mqtt.port": mqtt_port,
        "http.port": http_port,
        "sidecar.port": sidecar_port,
        "sidecar.host": sidecar_host,
        "access.allow_anonymous": allow_anonymous,
        "node_id": node_id,
        "logging.level": log_level,
        "logging.format": log_format,
        "data_dir": choose_data_dir(data_dir, buffer_backend, rocksdb_path),
        "durability": durability,
        "ring.messages": message_buffer_size,
        "ring.total_bytes": max_buffer_memory,
        "ring.partitions": buffer_partitions,
        "outbox.messages": subscriber_queue_limit,
        "sidecar.policy": backpressure_policy,
        "sidecar.paused_ttl_ms": paused_subscription_ttl,
        "outbox.block_timeout_ms": block_timeout_ms,
        "default_ttl_ms": default_message_ttl,
        "reaper_interval_ms": ttl_reaper_interval_ms,
    }
    given: dict[str, Any] = {key: value for key, value in flags.items() if value is not None}
    settings = load(config, os.environ, given, only_preset(preset)).settings
    run(settings)


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


def run(settings: "Settings") -> None:
    """Run a server with these settings on the best loop there is."""
    from penstock.cli.logs import configure  # noqa: PLC0415 - after the settings are known to be good

    configure(settings.logging.level, settings.logging.format)
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:  # not on every platform
        asyncio.run(_serve(settings))
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings))


async def _serve(settings: "Settings") -> None:
    from penstock.app import Server  # noqa: PLC0415

    server = Server(settings)
    if not server.doors:
        raise InvalidConfig(
            "mqtt.port, http.port, sidecar.port: every door is off; there is nothing to serve"
        )
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGHUP, server.reload)
    await server.start()
    if settings.logging.format != "json":  # who reads that is no person, and knows the addresses from it
        print(banner(server), flush=True)
    await stopping.wait()
    await server.stop()


def banner(server: "Server") -> str:
    """What a person sees first: the doors, and what to try."""
    doors = [f"  {door.name:<8} {address}" for door in server.doors for address in door.addresses()]
    return "\n".join(
        [
            f"Penstock {__version__} - node {server.node_id}",
            *doors,
            *_web(server),
            *_storage(server.settings),
            *_examples(server),
            "Ctrl-C stops it.",
        ]
    )


def _web(server: "Server") -> list[str]:
    """Where pages connect: the first address that is not that of the admin port."""
    settings, addresses = server.settings.http, server.http.addresses()
    is_offered = addresses and (settings.port or settings.tls_port is not None)
    return [f"  {'web':<8} {addresses[0].replace('http', 'ws', 1)}/ws"] if is_offered else []


def _storage(settings: "Settings") -> list[str]:
    return [] if settings.data_dir is None else [f"  {'log':<8} {settings.data_dir} ({settings.durability})"]


def _examples(server: "Server") -> list[str]:
    """What to try: commands that work as they are, but for a user's name and password."""
    port, access, program = server.mqtt.port, server.settings.access, _program()
    where = "" if port == 1883 else f" --port {port}"
    who = " --user NAME --password-file FILE" if access.password_file and not access.allow_anonymous else ""
    tries = [
        f"  {program} sub{where}{who} 'hello/#' -v",
        f"  {program} pub{where}{who} hello/world 'first light'",
    ]
    plain = next((each for each in server.http.addresses() if each.startswith("http:")), None)
    calls = [] if plain is None else [f"  curl -s {plain}/health"]
    if port is not None:
        return ["Try, in two other terminals:", *tries, *calls]
    return ["Try:", *calls] if calls else []


def _program() -> str:
    """How this command was called, so that what the banner shows can be copied as it is."""
    if which("penstock"):
        return "penstock"
    return sys.argv[0] if Path(sys.argv[0]).name == "penstock" else "python -m penstock"
