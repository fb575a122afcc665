"""Run a server in this process until a signal stops it.

SIGTERM and SIGINT stop the server. SIGHUP makes it read its settings again: file, environment and flags, as
at the start. A SIGHUP during the start takes effect when the server has started. Until the log is open, which
may take a while, SIGTERM and SIGINT end the process at once.

`Notifier` reports the state to systemd.
"""

import asyncio
import ctypes
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.app.preflight import NO_DOOR
from penstock.config import Loaded
from penstock.errors import InvalidConfig

if TYPE_CHECKING:
    from penstock.app import Server
    from penstock.app.dashboard import Dashboard, DashboardOptions
    from penstock.config import Settings

SOCKET, INTERVAL, PROCESS = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
PINGS_PER_INTERVAL = 3
"""Watchdog pings within the manager's time limit; systemd recommends at least two."""
LARGE_BYTES, FREE_BYTES = 4 * 1024 * 1024, 8 * 1024 * 1024
"""Least block that has pages of its own, and most free memory at the end of the heap."""
NOT_RELOADED = " (settings not reloaded: the log has the reason)"

Read = Callable[[], Loaded]
"""Reads all settings."""
OnStarted = Callable[["Server", str | None], None]
"""Called with the started server, and the address of its dashboard."""
Signals = asyncio.Queue[signal.Signals]


def run(
    read: Read,
    dashboard: "DashboardOptions | None" = None,
    on_started: OnStarted = lambda _server, _dashboard: None,
) -> None:
    """Run a server on the fastest event loop available.

    Args:
        read: called at the start, and at each reload.
        dashboard: options of a dashboard beside the server, if there is one.

    Raises:
        InvalidConfig: the settings are wrong, or every door is off.
    """
    configure_allocator(os.environ)
    signals = Signals()
    # Until a loop handles it, SIGHUP would end the process.
    before = signal.signal(signal.SIGHUP, lambda *_: signals.put_nowait(signal.SIGHUP))
    try:
        loaded = read()
        if dashboard is not None:
            dashboard.check(loaded.settings)
        _configure_logging(loaded.settings)
        from penstock.app import best_loop  # noqa: PLC0415 - takes a while; only if the settings are valid

        with asyncio.Runner(loop_factory=best_loop()) as runner:
            runner.run(_serve(loaded, read, dashboard, signals, on_started))
    finally:
        signal.signal(signal.SIGHUP, before)


def configure_allocator(environ: Mapping[str, str]) -> None:
    """Make glibc return freed memory to the system.

    By default each freed block of up to 32 MiB raises the size that counts as large, and with it the free
    memory that is kept at the end of the heap: up to 64 MiB. Commits and buffers of RocksDB are such blocks.
    Other C libraries have no such setting. Variables of glibc in the environment take precedence.
    """
    if "MALLOC_MMAP_THRESHOLD_" in environ or "GLIBC_TUNABLES" in environ:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mmap_threshold, trim_threshold = -3, -1  # as malloc.h has them
        mallopt(mmap_threshold, LARGE_BYTES)
        mallopt(trim_threshold, FREE_BYTES)


def reload(server: "Server", read: Read) -> bool:
    """Apply the present settings; invalid ones are logged, and the server continues as before."""
    import structlog  # noqa: PLC0415 - the server has imported it

    log = structlog.get_logger("penstock")
    try:
        return server.reload(read()) is not None
    except InvalidConfig as error:
        log.error("settings not reloaded", reason=str(error))
    except Exception:  # a bug of Penstock, which must not stop the server
        log.exception("settings not reloaded")
    return False


class Notifier:
    """Service notifications for systemd (`Type=notify`).

    Datagrams of `NAME=value` lines to the socket in `NOTIFY_SOCKET`; a name that begins with @ is in Linux's
    abstract namespace. Without that variable nothing is sent. Watchdog pings come from the event loop of the
    server, so that systemd restarts a server whose loop is blocked.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = _socket_address(environ.get(SOCKET, ""))
        self._watchdog_s = _watchdog_interval(environ)
        self._next_ping: asyncio.TimerHandle | None = None

    def ready(self, status: str) -> None:
        """Report that the server has started, or has reloaded."""
        self._send("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Report the beginning of a reload, identified by its time; `ready` follows."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1_000}", "STATUS=reloading")

    def stopping(self) -> None:
        """Report that the server drains its connections; watchdog pings continue until the end."""
        self._send("STOPPING=1", "STATUS=stopping")

    def ping(self, loop: asyncio.AbstractEventLoop) -> None:
        """Send watchdog pings from now on, if the manager requests them."""
        if self._address and self._watchdog_s:
            self._send("WATCHDOG=1")
            self._next_ping = loop.call_later(self._watchdog_s / PINGS_PER_INTERVAL, self.ping, loop)

    def close(self) -> None:
        """Stop the watchdog pings."""
        if self._next_ping is not None:
            self._next_ping.cancel()

    def _send(self, *lines: str) -> None:
        """Send one datagram; a missing manager is ignored."""
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto("\n".join(lines).encode(), self._address)


async def _serve(
    loaded: Loaded,
    read: Read,
    dashboard: "DashboardOptions | None",
    signals: Signals,
    on_started: OnStarted,
) -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, signals.put_nowait, signal.SIGHUP)

    from penstock.app.garbage import GarbagePauses, without_collections  # noqa: PLC0415

    with without_collections():
        from penstock.app import Server  # noqa: PLC0415 - takes a while; only if the settings are valid

        # Before the server, which would have to close what it has opened.
        companion = None if dashboard is None else _make_dashboard(dashboard)
        server = Server(loaded.settings, origins=loaded.origins, read=read)
        if not server.doors:
            raise InvalidConfig(NO_DOOR)
        server.on_settings = _configure_logging
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, signals.put_nowait, number)
        await server.start()
        notifier, garbage = Notifier(os.environ), GarbagePauses()
        garbage.begin()  # before the next collection, which would visit everything
    try:
        if companion is not None:
            await companion.start(server)
        on_started(server, None if companion is None else companion.address)
        await _serve_until_signal(server, read, signals, notifier)
    finally:
        if companion is not None:
            await companion.stop()
        await server.stop()
        garbage.end()
        notifier.close()


async def _serve_until_signal(server: "Server", read: Read, signals: Signals, notifier: Notifier) -> None:
    notifier.ready(_status(server))
    notifier.ping(asyncio.get_running_loop())
    while await signals.get() == signal.SIGHUP:
        notifier.reloading()
        is_reloaded = reload(server, read)
        notifier.ready(_status(server) + ("" if is_reloaded else NOT_RELOADED))
    notifier.stopping()


def _configure_logging(settings: "Settings") -> None:
    from penstock.app.logging import configure_logging  # noqa: PLC0415 - structlog takes a moment

    configure_logging(settings.logging.level, settings.logging.format)


def _make_dashboard(options: "DashboardOptions") -> "Dashboard":
    from penstock.app.dashboard import Dashboard  # noqa: PLC0415 - few servers have one

    return Dashboard(options)


def _status(server: "Server") -> str:
    """The status line that the service manager shows."""
    return "serving " + " ".join(address for door in server.doors for address in door.addresses())


def _socket_address(name: str) -> str:
    """The address of a notification socket; empty if it is not a valid one."""
    if name.startswith("@"):
        return "\0" + name[1:]
    return name if name.startswith("/") else ""


def _watchdog_interval(environ: Mapping[str, str]) -> float:
    """The watchdog interval in seconds; 0 if this process has none."""
    given, process = environ.get(INTERVAL, ""), environ.get(PROCESS)
    if not given.isascii() or not given.isdigit() or (process and process != str(os.getpid())):
        return 0.0
    return int(given) / 1_000_000
