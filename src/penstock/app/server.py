"""The whole server: makes every room, opens and closes the doors, and hands out other settings."""

import asyncio
import gc
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog

from penstock import __version__
from penstock.app.housekeeping import Housekeeping
from penstock.config import Loaded, Reloading, Settings, compare, core_settings
from penstock.config.access import access_sources
from penstock.core.access import FileAccess
from penstock.core.broker import Broker
from penstock.core.clock import Clock, SystemClock
from penstock.core.marks import name_of_node
from penstock.core.ports import StateStore
from penstock.core.reporting import Reporting
from penstock.doors.base import Door
from penstock.doors.guard import Guard
from penstock.doors.http.door import HttpDoor
from penstock.doors.http.routes import Routes
from penstock.doors.listener import parse_networks
from penstock.doors.mqtt.door import WEBSOCKET_PATH, MqttDoor
from penstock.doors.origins import Origins
from penstock.doors.room import Room
from penstock.doors.sidecar.door import SidecarDoor
from penstock.doors.sidecar.offer import load as load_sidecar
from penstock.doors.streams.offer import offer as offer_streams
from penstock.doors.tls import Certificates
from penstock.doors.web.context import Web
from penstock.doors.web.offer import STAGE_PATH, load, offer
from penstock.doors.web.socket.door import PATH as SOCKET_PATH
from penstock.doors.web.socket.door import SocketDoor
from penstock.errors import InvalidConfig
from penstock.extras import require_extra
from penstock.storage.memory import MemoryLog, MemoryStateStore
from penstock.storage.staged import read_rows
from penstock.telemetry.figures import Figures
from penstock.telemetry.lag import LoopLag

if TYPE_CHECKING:
    from penstock.storage.disk.log import DiskLog

log = structlog.get_logger("penstock")

GARBAGE_THRESHOLD = 50_000
"""Runs are not tracked by the garbage collector; what is left rarely forms cycles."""
DRAIN_INTERVAL_S = 0.05
"""How often a server that stops looks whether everything has left."""
GOODBYE_S = 2.0
"""What of the time for stopping is kept for the last words of the doors, whatever has not left by then."""
SEALING_S = 0.5
"""And what of it is kept for the last commit."""


class Server:
    """All of Penstock in one process, on the running loop."""

    def __init__(
        self, settings: Settings, clock: Clock | None = None, origins: Mapping[str, str] | None = None
    ) -> None:
        """Args:
        origins: where each setting came from, by dotted key.
        """
        self.settings = settings
        self._settings_from = dict(origins or {})
        self._needs_restart: tuple[str, ...] = ()
        self.on_settings: Callable[[Settings], None] = lambda settings: None
        """Called when a reload brings other settings, before it is logged."""
        self._clock = clock or SystemClock()
        self._loop = asyncio.get_running_loop()
        core = core_settings(settings)
        self._access = FileAccess(access_sources(settings))
        self._certificates = Certificates.load(settings.tls)
        self._disk = self._open_disk()  # last of all that may refuse, because it has to be closed again
        self._log: MemoryLog | DiskLog = self._disk or MemoryLog(core.log.memory_bytes)
        state: StateStore = MemoryStateStore() if self._disk is None else self._disk.state
        self.node_id = settings.node_id or name_of_node(self._log.log_id)
        self.broker = Broker(core, self._access, self._log, state, self._clock, self._loop, self.node_id)
        if self._disk is not None:
            self._disk.holds.on_change = self.broker.commit_soon
        self._reporting = Reporting(self.broker, self._clock, __version__)
        self._guard = Guard(settings.connections, self._clock)
        self._housekeeping = self._make_housekeeping()
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

    def _make_housekeeping(self) -> Housekeeping:
        return Housekeeping(
            self.broker,
            self._guard,
            self._reporting,
            self._loop,
            disk=self._disk,
            certificates=self._certificates,
        )

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
        self._routes = routes
        self._web = web = Web(
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
            config=self.tell_settings,
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
        return SidecarDoor(
            self.settings.sidecar,
            self.broker,
            self._clock,
            lambda: load_sidecar(self.sidecar.settings, self.broker, self._clock),
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
        require_extra("log", "data_dir")
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
        for door in self.doors:
            try:
                await door.open()
            except InvalidConfig:
                for opened in self.doors:
                    await opened.close()
                self._close_disk()
                raise
        self._lag.start(self._loop)
        self._housekeeping.start(self.settings)
        for door in filter(lambda door: door.addresses(), self.doors):
            log.info("listening", door=door.name, addresses=" ".join(door.addresses()))

    async def stop(self) -> None:
        """Drain: take nothing new, deliver what was taken, say goodbye, wait for the last byte."""
        timeout_s = self.settings.shutdown_timeout_s
        deadline = time.monotonic() + timeout_s - min(SEALING_S, timeout_s / 10)
        goodbye_at = deadline - min(GOODBYE_S, timeout_s / 4)
        self._lag.stop()
        self._housekeeping.stop()
        self.broker.streams.drain()  # whoever waits is answered while there is still someone to do it
        for door in self.doors:
            await door.close()
        self.broker.stop()
        while not self._is_drained and time.monotonic() < goodbye_at:
            await asyncio.sleep(DRAIN_INTERVAL_S)
        self.broker.close()
        self._housekeeping.tell_losses()
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

    # Settings

    def reload(self, wanted: Loaded | None = None) -> Reloading | None:
        """Take other settings, and read certificates, passwords and rights again.

        Answers what was applied and what waits for the next start; None after an error, and then nothing has
        changed.

        Args:
            wanted: the settings, read anew; None leaves them as they are.
        """
        loaded = wanted or Loaded(self.settings, self._settings_from)
        plan = compare(self.settings, loaded)
        try:
            self._check(loaded.settings)
            takes = self._prepare(plan.settings)
        except InvalidConfig as error:
            log.error("settings not reloaded", reason=str(error))
            return None
        for take in takes:  # from here on nothing can fail
            take()
        if wanted is not None:
            waiting = {key: self._settings_from.get(key, "default") for key in plan.needs_restart}
            self._settings_from = wanted.origins | waiting
            self._needs_restart = plan.needs_restart
        log.info(
            "settings reloaded", applied=list(map(str, plan.applied)), needs_restart=list(self._needs_restart)
        )
        return plan

    def _check(self, settings: Settings) -> None:
        """Refuse what the next start would refuse, although this server does not need it.

        Raises:
            InvalidConfig: it would.
        """
        access_sources(settings)
        parse_networks(settings.mqtt.proxies, "mqtt.proxies")
        parse_networks(settings.http.proxies, "http.proxies")
        if self._certificates is None:
            Certificates.load(settings.tls)

    def _prepare(self, settings: Settings) -> list[Callable[[], None]]:
        """Read all files that settings name; answers what is to be done so that files and settings count.

        Raises:
            InvalidConfig: one of them cannot be used.
        """
        takes: list[Callable[[], None]] = [partial(self._configure, settings)]
        if self._certificates is not None:
            certificates = self._certificates.prepare(settings.tls)
            takes = [certificates, partial(log.info, "certificates reloaded"), *takes]
        sources = access_sources(settings)
        if sources != self._access.sources or sources.has_files:
            access = self._access.prepare(sources)
            takes = [access, *takes, self.broker.forget_rights, partial(log.info, "access files reloaded")]
        return takes

    def _configure(self, settings: Settings) -> None:
        """Hand every room its settings."""
        self.settings = settings
        names = settings.websocket
        self.on_settings(settings)
        self.broker.configure(core_settings(settings))
        self._log.configure(settings.log)
        if isinstance(self._log, MemoryLog):
            self.broker.do_gradually(self._log.shed)
        self._guard.configure(settings.connections)
        self._origins.configure(names.hosts, names.origins, settings.http.cors_origins)
        self._figures.configure(settings.metrics)
        self._web.settings, self._web.profile = settings.http, settings.web
        self.mqtt.configure(settings.mqtt, names)
        self.socket.configure(settings.web)
        self.http.configure(settings.http)
        self._routes.bodies(STAGE_PATH, settings.stage.max_part_bytes)
        self.sidecar.configure(settings.sidecar)
        self._housekeeping.configure(settings)

    def tell_settings(self) -> dict[str, object]:
        """The settings in effect, where each came from, and which keys wait for the next start."""
        return {
            "settings": msgspec.to_builtins(self.settings),
            "origins": self._settings_from,
            "needs_restart": self._needs_restart,
        }
