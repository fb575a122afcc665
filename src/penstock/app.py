"""The one file that knows every room and wires them: settings in, a running server out."""

import asyncio
import gc
import ipaddress
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from msgspec.structs import asdict

from penstock import __version__
from penstock.config import Settings, core_settings
from penstock.core.access import Access, FileAccess, OpenAccess
from penstock.core.broker import Broker
from penstock.core.clock import Clock, SystemClock
from penstock.core.marks import name_of_node
from penstock.core.ports import Log, StateStore
from penstock.core.reporting import Reporting
from penstock.doors.base import Door
from penstock.doors.guard import Guard
from penstock.doors.http.door import HttpDoor
from penstock.doors.http.routes import Routes
from penstock.doors.mqtt.door import WEBSOCKET_PATH, MqttDoor
from penstock.doors.origins import Origins
from penstock.doors.room import Room
from penstock.doors.sidecar.door import SidecarDoor
from penstock.doors.sidecar.offer import load as load_sidecar
from penstock.doors.streams.offer import offer as offer_streams
from penstock.doors.tls import Certificates
from penstock.doors.web.context import Web
from penstock.doors.web.offer import load, offer
from penstock.doors.web.socket.door import PATH as SOCKET_PATH
from penstock.doors.web.socket.door import SocketDoor
from penstock.errors import InvalidConfig
from penstock.storage.extra import require_extra
from penstock.storage.memory import MemoryLog, MemoryStateStore
from penstock.storage.staged import read_rows
from penstock.telemetry.figures import Figures
from penstock.telemetry.lag import LoopLag

if TYPE_CHECKING:
    from penstock.storage.disk.log import DiskLog

log = structlog.get_logger("penstock")

GARBAGE_THRESHOLD = 50_000
"""Runs are not tracked by the garbage collector; what is left rarely forms cycles."""
LOSSES_INTERVAL_S = 10.0
"""How often the log says what subscribers lost; who wants to know each listens to `$penstock/drops`."""
RETENTION_INTERVAL_S = 10.0
"""How often the log is asked whether something has to leave."""
DRAIN_INTERVAL_S = 0.05
"""How often a server that stops looks whether everything has left."""
GOODBYE_S = 2.0
"""What of the time for stopping is kept for the last words of the doors, whatever has not left by then."""
SEALING_S = 0.5
"""And what of it is kept for the last commit."""


class Server:
    """All of Penstock in one process, on the running loop."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self.settings = settings
        self._clock = clock or SystemClock()
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        core = core_settings(settings)
        access = build_access(settings)
        self._certificates = Certificates.load(settings.tls)
        self._disk = self._open_disk()  # last of all that may refuse, because it has to be closed again
        if self._disk is None:
            stores: tuple[Log, StateStore] = MemoryLog(core.log.memory_bytes), MemoryStateStore()
        else:
            stores = self._disk, self._disk.state
        self.node_id = settings.node_id or name_of_node(stores[0].log_id)
        self.broker = Broker(core, access, *stores, self._clock, self._loop, self.node_id)
        if self._disk is not None:
            self._disk.holds.on_change = self.broker.commit_soon
        self._reporting = Reporting(self.broker, self._clock, __version__)
        self._guard = Guard(settings.connections, self._clock)
        self._room = Room()
        names = settings.websocket
        self._origins = Origins(settings.host, names.hosts, names.origins, settings.http.cors_origins)
        self._lag = LoopLag()
        self._figures = self._make_figures()
        self.mqtt = self._make_mqtt()
        self.socket = self._make_socket()
        self.http = self._make_http()
        self.sidecar = self._make_sidecar()
        has_mqtt = self.mqtt.is_wanted or (settings.mqtt.over_http and self.http.is_wanted)
        self.doors: list[Door] = [self.mqtt] if has_mqtt else []
        self.doors += [self.http, self.socket] if self.http.is_wanted else []
        self.doors += [self.sidecar] if self.sidecar.is_wanted else []  # last: it takes a moment to load
        self._figures.doors = (self.mqtt, self.http, self.socket, self.sidecar)

    def _make_figures(self) -> Figures:
        disk = self._disk
        return Figures(
            self.broker,
            self._clock,
            self.settings.metrics,
            version=__version__,
            archive=disk,
            stored_bytes=None if disk is None else lambda: disk.stored_bytes,
            lag=self._lag,
        )

    def _make_mqtt(self) -> MqttDoor:
        return MqttDoor(
            self.settings.mqtt,
            self.broker,
            self._clock,
            self.settings.host,
            certificates=self._certificates,
            websocket=self.settings.websocket,
            http_origins=self._origins,
            guard=self._guard,
            room=self._room,
        )

    def _make_socket(self) -> SocketDoor:
        return SocketDoor(
            self.settings.web,
            self.broker,
            self._clock,
            origins=self._origins,
            room=self._room,
            guard=self._guard,
        )

    def _make_http(self) -> HttpDoor:
        """The HTTP listener with what the doors behind it offer."""
        settings, routes = self.settings, Routes()
        web = Web(
            broker=self.broker,
            clock=self._clock,
            version=__version__,
            node_id=self.node_id,
            started_at=self._clock.monotonic(),
            settings=settings.http,
            profile=settings.web,
            figures=self._figures,
            staging=self.broker.staging,
            archive=self._disk,
            read_arrow=read_rows,
            is_draining=lambda: self.http.is_draining,
            has_mqtt=settings.mqtt.over_http,
        )
        offer(routes, web, part_bytes=settings.stage.max_part_bytes)
        offer_streams(routes, self.broker)
        routes.upgrade(SOCKET_PATH, self.socket.take_over, needs_identity=True)
        if settings.mqtt.over_http:
            routes.upgrade(WEBSOCKET_PATH, self.mqtt.take_over)
        return HttpDoor(
            settings.http,
            self.broker,
            self._clock,
            settings.host,
            routes=routes,
            load_app=lambda: load(web),
            certificates=self._certificates,
            guard=self._guard,
            origins=self._origins,
            room=self._room,
        )

    def _make_sidecar(self) -> SidecarDoor:
        settings = self.settings.sidecar
        return SidecarDoor(
            settings,
            self.broker,
            self._clock,
            lambda: load_sidecar(settings, self.broker, self._clock),
            certificates=self._certificates,
            guard=self._guard,
            room=self._room,
        )

    def _restored(self) -> dict[str, int]:
        """What the data directory brought back."""
        assert self._disk is not None
        return {
            "epoch": self._disk.epoch,
            "first_offset": self._disk.first_offset,
            "last_offset": self._disk.last_offset,
            "sessions": len(self.broker.sessions),
            "retained": self.broker.retained.of_clients,
        }

    def _open_disk(self) -> "DiskLog | None":
        """The log and the state in the data directory, if there is one.

        Raises:
            InvalidConfig: it cannot be used.
        """
        if self.settings.data_dir is None:
            return None
        require_extra()
        from penstock.storage.disk.log import DiskLog  # noqa: PLC0415 - heavy, and not needed without one

        return DiskLog(
            Path(self.settings.data_dir),
            self._loop,
            self._clock,
            node_id=self.settings.node_id,
            durability=self.settings.durability,
            settings=self.settings.log,
        )

    async def start(self) -> None:
        """Open every door.

        Raises:
            InvalidConfig: one of them cannot be opened; then none is open.
        """
        if self._disk is not None:
            log.info("restored", **self._restored())
        gc.set_threshold(GARBAGE_THRESHOLD, 20, 50)
        if self.settings.sys_interval_s:
            self._reporting.publish()  # before the first client, so that there is room for it
            self._repeat("report", self.settings.sys_interval_s, self._reporting.publish)
        for door in self.doors:
            try:
                await door.open()
            except InvalidConfig:
                for opened in self.doors:
                    await opened.close()
                self._close_disk()
                raise
        self._lag.start(self._loop)
        self._repeat("reap", self.settings.reaper_interval_ms / 1000, self._reap)
        self._repeat("losses", LOSSES_INTERVAL_S, self._tell_losses)
        if self._disk is not None:
            self._repeat("retention", RETENTION_INTERVAL_S, self._trim)
        if self._certificates is not None and self.settings.tls.check_interval_s:
            self._repeat("certificates", self.settings.tls.check_interval_s, self._renew_certificates)
        for door in filter(lambda door: door.addresses(), self.doors):
            log.info("listening", door=door.name, addresses=" ".join(door.addresses()))

    async def stop(self) -> None:
        """Drain: take nothing new, deliver what was taken, say goodbye, wait for the last byte."""
        timeout_s = self.settings.shutdown_timeout_s
        deadline = time.monotonic() + timeout_s - min(SEALING_S, timeout_s / 10)
        goodbye_at = deadline - min(GOODBYE_S, timeout_s / 4)
        self._lag.stop()
        for timer in self._timers.values():
            timer.cancel()
        self.broker.streams.drain()  # whoever waits is answered while there is still someone to do it
        for door in self.doors:
            await door.close()
        self.broker.stop()
        while not self._is_drained and time.monotonic() < goodbye_at:
            await asyncio.sleep(DRAIN_INTERVAL_S)
        self.broker.close()
        self._tell_losses()
        left_s = max(deadline - time.monotonic(), 0.0)
        await asyncio.gather(*(door.finish(left_s) for door in self.doors))
        self.broker.tick.flush()  # what the last of them left goes into the last commit
        self._close_disk()
        log.info("stopped", **{key: value for key, value in self.broker.counters.snapshot().items() if value})

    @property
    def _is_drained(self) -> bool:
        return self.broker.is_drained and (self._disk is None or self._disk.is_idle)

    def _close_disk(self) -> None:
        if self._disk is not None:
            self._disk.close()

    def _trim(self) -> None:
        assert self._disk is not None
        self._disk.trim(self.broker.owed_from)

    def reload(self) -> None:
        """Read certificates, passwords and rights again; what they say counts from now on."""
        self._reload_access()
        if self._certificates is not None:
            self._renew_certificates(is_asked=True)

    def _reload_access(self) -> None:
        access = self.broker.access
        if not isinstance(access, FileAccess):
            return
        try:
            access.reload()
        except InvalidConfig as error:
            log.error("access files not reloaded", reason=str(error))
            return
        self.broker.forget_rights()
        log.info("access files reloaded")

    def _renew_certificates(self, *, is_asked: bool = False) -> None:
        """Take certificates from now on that were put in place of the present ones."""
        assert self._certificates is not None
        try:
            if is_asked:
                self._certificates.reload()
            elif not self._certificates.reload_if_changed():
                return
        except InvalidConfig as error:
            log.error("certificates not reloaded", reason=str(error))
            return
        log.info("certificates reloaded")

    def _repeat(self, name: str, interval_s: float, action: Callable[[], None]) -> None:
        """Do something at intervals until the server stops."""

        def again() -> None:
            self._repeat(name, interval_s, action)
            action()

        self._timers[name] = self._loop.call_later(interval_s, again)

    def _tell_losses(self) -> None:
        losses = self.broker.ledger.take_losses()
        if losses is not None:
            log.warning("messages not delivered", **asdict(losses))

    def _reap(self) -> None:
        self.broker.reap()
        if self._disk is not None:
            self._disk.reap()
        refusals = self._guard.reap() if self._guard.is_needed else None
        if refusals is not None:
            log.warning("connections refused by address", **asdict(refusals))


def build_access(settings: Settings) -> Access:
    """Who may come in, as the settings say.

    Raises:
        InvalidConfig: the server would be open to strangers without anyone having said so.
    """
    access = settings.access
    if access.password_file is None and access.acl_file is None:
        is_decided = access.allow_anonymous or (settings.tls.name_as_user and access.allow_anonymous is False)
        for key, host in _hosts(settings).items():
            if not is_loopback(host) and not is_decided:
                raise InvalidConfig(
                    f"{key}: {host} is not loopback, and there is neither access.password_file nor "
                    "access.acl_file; give one, or say --allow-anonymous"
                )
        if not settings.tls.name_as_user:
            return OpenAccess()
    # Whoever gives a password file means that people should log in, on loopback too.
    allow_anonymous = access.allow_anonymous or (access.allow_anonymous is None and not access.password_file)
    passwords = Path(access.password_file) if access.password_file else None
    rules = Path(access.acl_file) if access.acl_file else None
    return FileAccess.load(passwords, rules, allow_anonymous, has_certificates=settings.tls.name_as_user)


def _hosts(settings: Settings) -> dict[str, str]:
    """The addresses that doors listen on, by setting."""
    sidecar = settings.sidecar
    is_open = sidecar.port is not None or sidecar.tls_port is not None
    return {"host": settings.host} | ({"sidecar.host": sidecar.host} if is_open else {})


def is_loopback(host: str) -> bool:
    """Only this machine can reach that address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
