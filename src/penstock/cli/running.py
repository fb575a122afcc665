"""A server in this process, from its start until somebody tells it to stop.

SIGTERM and SIGINT stop it, SIGHUP lets it read its settings again: file, environment and flags, as at the
start. A SIGHUP that comes while the server starts counts when it has started. Until the log is open, which
may take a while, the other two end the process as they do any other.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.cli.banner import banner
from penstock.cli.notifying import Notifier
from penstock.config import Loaded
from penstock.errors import InvalidConfig

if TYPE_CHECKING:
    from penstock.app import Server
    from penstock.cli.companion import Companion, CompanionFlags
    from penstock.config import Settings

Read = Callable[[], Loaded]
"""Reads all settings anew."""
Signals = asyncio.Queue[signal.Signals]
NOT_TAKEN = " (settings not reloaded: the log has the reason)"


def run(read: Read, dashboard: "CompanionFlags | None" = None) -> None:
    """Run a server on the best loop there is.

    Args:
        read: called now, and again at each reload.
        dashboard: what the dashboard beside it was told, if there is to be one.

    Raises:
        InvalidConfig: it cannot be started like this.
    """
    signals = Signals()
    # It would end us until there is a loop that listens.
    before = signal.signal(signal.SIGHUP, lambda *_: signals.put_nowait(signal.SIGHUP))
    try:
        loaded = read()
        if dashboard is not None:
            dashboard.check(loaded.settings)
        _log_as(loaded.settings)  # after the settings are known to be good
        from penstock.app import best_loop  # noqa: PLC0415 - only for settings that are good

        with asyncio.Runner(loop_factory=best_loop()) as runner:
            runner.run(_serve(loaded, read, dashboard, signals))
    finally:
        signal.signal(signal.SIGHUP, before)


def _log_as(settings: "Settings") -> None:
    from penstock.cli.logs import configure  # noqa: PLC0415 - structlog takes a moment

    configure(settings.logging.level, settings.logging.format)


async def _serve(loaded: Loaded, read: Read, dashboard: "CompanionFlags | None", signals: Signals) -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, signals.put_nowait, signal.SIGHUP)

    from penstock.app import Server  # noqa: PLC0415

    # Before the server: what it has opened would have to be closed again.
    companion = None if dashboard is None else _companion(dashboard)
    server = Server(loaded.settings, origins=loaded.origins)
    if not server.doors:
        raise InvalidConfig(
            "mqtt.port, http.port, sidecar.port: every door is off; there is nothing to serve"
        )
    server.on_settings = _log_as
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.put_nowait, number)
    await server.start()
    notifier = Notifier(os.environ)
    try:
        if companion is not None:
            await companion.start(server)
        # Who reads JSON is no person, and knows the addresses from it.
        if loaded.settings.logging.format != "json":
            print(banner(server, None if companion is None else companion.address), flush=True)
        await _stay(server, read, signals, notifier)
    finally:
        if companion is not None:
            await companion.stop()
        await server.stop()
        notifier.close()


async def _stay(server: "Server", read: Read, signals: Signals, notifier: Notifier) -> None:
    """Serve until a signal says that it is enough."""
    notifier.ready(_status(server))
    notifier.give_signs(asyncio.get_running_loop())
    while await signals.get() == signal.SIGHUP:
        notifier.reloading()
        is_taken = reload(server, read)
        notifier.ready(_status(server) + ("" if is_taken else NOT_TAKEN))
    notifier.stopping()


def _companion(flags: "CompanionFlags") -> "Companion":
    from penstock.cli.companion import Companion  # noqa: PLC0415 - few servers have a dashboard

    return Companion(flags)


def reload(server: "Server", read: Read) -> bool:
    """Let a server have the settings as they are now; if they are wrong, it says so and goes on as it is."""
    import structlog  # noqa: PLC0415

    log = structlog.get_logger("penstock")
    try:
        return server.reload(read()) is not None
    except InvalidConfig as error:
        log.error("settings not reloaded", reason=str(error))
    except Exception:  # a mistake of ours, which is no reason to stop serving
        log.exception("settings not reloaded")
    return False


def _status(server: "Server") -> str:
    """What a manager shows of it."""
    return "serving " + " ".join(address for door in server.doors for address in door.addresses())
