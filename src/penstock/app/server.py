"""Whole server: builds every room, opens and closes the doors, and applies changed settings."""

import asyncio
import gc
import time
from collections.abc import Callable, Mapping
from functools import partial

import msgspec
import structlog

from penstock import __version__
from penstock.app.garbage import THRESHOLDS
from penstock.app.housekeeping import Housekeeping
from penstock.app.logging import write_audit
from penstock.build import build_name
from penstock.config import Loaded, Reloading, Settings, compare, core_settings
from penstock.config.settings import access_sources, storage_settings
from penstock.core.access.file_access import FileAccess
from penstock.core.access.logins import Logins
from penstock.core.broker import Broker
from penstock.core.diagnostics.sys_topics import SysTopics
from penstock.core.replay.message_ids import name_of_node
from penstock.core.runtime.clock import Clock, SystemClock
from penstock.core.topics.catalog import EAGER_NAMES
from penstock.doors.mqtt.door import WEBSOCKET_PATH, MqttDoor
from penstock.doors.sidecar.door import SidecarDoor, load_services
from penstock.doors.streams.routes import add_routes as add_stream_routes
from penstock.doors.web.app import STAGE_PATH, add_routes, load_app
from penstock.doors.web.context import Web
from penstock.doors.web.socket.door import PATH as SOCKET_PATH
from penstock.doors.web.socket.door import SocketDoor
from penstock.errors import InvalidConfig, StorageUnavailable
from penstock.net.address_limits import AddressLimits
from penstock.net.connections import ConnectionLimit
from penstock.net.door import Door
from penstock.net.http.door import HttpDoor
from penstock.net.http.routes import Routes
from penstock.net.listener import parse_networks
from penstock.net.origins import Origins
from penstock.net.password_checks import PasswordChecks
from penstock.net.tls import Certificates
from penstock.net.turn_shares import TurnShares
from penstock.storage.arrow_uploads import read_rows
from penstock.storage.open import open_storage
from penstock.telemetry.metrics import ServerMetrics
from penstock.telemetry.samples import LoopLag, LoopStall

log = structlog.get_logger("penstock")
DRAIN_INTERVAL_S = 0.05
"""Polling interval while a stopping server drains."""
GOODBYE_S = 2.0
"""Part of the shutdown timeout reserved for closing connections, drained or not."""
SEALING_S = 0.5
"""Part of the shutdown timeout reserved for the last commit."""


class Server:
    """All of Penstock in one process, on the running event loop."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock | None = None,
        origins: Mapping[str, str] | None = None,
        read: Callable[[], Loaded] | None = None,
    ) -> None:
        """Args:
        origins: origin of each setting, by dotted key.
        read: reads all settings again, for a reload on request; None leaves them as they are.
        """
        self.settings = settings
        self._read = read
        self._settings_from = dict(origins or {})
        self._needs_restart: tuple[str, ...] = ()
        self.on_settings: Callable[[Settings], None] = lambda settings: None
        """Called when a reload changes settings, before it is logged."""
        self._clock = clock or SystemClock()
        self._loop = asyncio.get_running_loop()
        core = core_settings(settings)
        self._access = FileAccess(access_sources(settings))
        self._certificates = Certificates.load(settings.tls)
        # Last of all that may raise, because it must be closed again.
        self._storage = storage = open_storage(storage_settings(settings), self._loop, self._clock)
        self.node_id = settings.node_id or name_of_node(storage.log.log_id)
        self.broker = Broker(
            core, self._access, storage.log, storage.state, self._clock, self._loop, self.node_id
        )
        self.broker.audit.configure(write_audit if settings.logging.audit else None)
        self._reporting = SysTopics(self.broker, self._clock, __version__)
        self._address_limits = AddressLimits(settings.connections, self._clock)
        self._password_checks = PasswordChecks(self._access, self._loop, self._address_limits)
        self._logins = Logins(
            self._access,
            self._clock,
            self.node_id,
            lifetime_s=settings.web.login_s,
            idle_s=settings.web.login_idle_s,
        )
        self._housekeeping = self._make_housekeeping()
        self._connection_limit = ConnectionLimit()
        self._shares = TurnShares(self._loop)
        names = settings.websocket
        self._origins = Origins(settings.host, names.hosts, names.origins, settings.http.cors_origins)
        self._lag = LoopLag()
        self._stall = LoopStall()
        self._loading: asyncio.Task[None] | None = None
        self._metrics = self._make_metrics()
        self.mqtt = self._make_mqtt()
        self.socket = self._make_socket()
        self.http = self._make_http()
        self.sidecar = self._make_sidecar()
        has_mqtt = self.mqtt.is_wanted or (settings.mqtt.over_http and self.http.is_wanted)
        self.doors: list[Door] = [self.mqtt] if has_mqtt else []
        self.doors += [self.http, self.socket] if self.http.is_wanted else []
        self.doors += [self.sidecar] if self.sidecar.is_wanted else []  # last: slow to load
        self._metrics.doors = (self.mqtt, self.http, self.socket, self.sidecar)

    def _make_housekeeping(self) -> Housekeeping:
        return Housekeeping(
            self.broker,
            self._address_limits,
            self._password_checks,
            self._reporting,
            self._loop,
            upkeep=self._storage.upkeep,
            certificates=self._certificates,
        )

    def _make_metrics(self) -> ServerMetrics:
        archive, upkeep = self._storage.archive, self._storage.upkeep
        return ServerMetrics(
            self.broker,
            self._clock,
            self.settings.metrics,
            version=__version__,
            archive=archive,
            stored_bytes=None if archive is None else lambda: upkeep.stored_bytes,
            queued_bytes=None if archive is None else lambda: upkeep.queued_bytes,
            lag=self._lag,
            password_checks=self._password_checks,
            stall=self._stall,
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
            address_limits=self._address_limits,
            connection_limit=self._connection_limit,
            password_checks=self._password_checks,
            shares=self._shares,
        )

    def _make_socket(self) -> SocketDoor:
        return SocketDoor(
            self.settings.web,
            self.broker,
            self._clock,
            origins=self._origins,
            connection_limit=self._connection_limit,
            address_limits=self._address_limits,
            shares=self._shares,
        )

    def _make_http(self) -> HttpDoor:
        """HTTP listener with the routes of the doors behind it."""
        settings, routes = self.settings, Routes()
        self._routes = routes
        self._web = web = Web(
            broker=self.broker,
            clock=self._clock,
            version=__version__,
            build=build_name(),
            node_id=self.node_id,
            started_at=self._clock.monotonic(),
            settings=settings.http,
            profile=settings.web,
            figures=self._metrics,
            staging=self.broker.staging,
            archive=self._storage.archive,
            read_arrow=read_rows,
            is_draining=lambda: self.http.is_draining,
            has_mqtt=settings.mqtt.over_http,
            config=self.effective_settings,
            logins=self._logins,
            password_checks=self._password_checks,
            addresses=lambda: {door.name: door.addresses() for door in self.doors},
            reload=self.reload_on_request,
        )
        add_routes(routes, web, part_bytes=settings.stage.max_part_bytes)
        add_stream_routes(routes, self.broker)
        routes.upgrade(SOCKET_PATH, self.socket.take_over, needs_identity=True)
        if settings.mqtt.over_http:
            routes.upgrade(WEBSOCKET_PATH, self.mqtt.take_over)
        return HttpDoor(
            settings.http,
            self.broker,
            self._clock,
            settings.host,
            routes=routes,
            load_app=lambda: load_app(web),
            certificates=self._certificates,
            address_limits=self._address_limits,
            origins=self._origins,
            connection_limit=self._connection_limit,
            password_checks=self._password_checks,
            logins=self._logins,
            shares=self._shares,
        )

    def _make_sidecar(self) -> SidecarDoor:
        return SidecarDoor(
            self.settings.sidecar,
            self.broker,
            self._clock,
            lambda: load_services(self.sidecar.settings, self.broker, self._clock),
            certificates=self._certificates,
            address_limits=self._address_limits,
            connection_limit=self._connection_limit,
            password_checks=self._password_checks,
            shares=self._shares,
        )

    def _recovered(self) -> dict[str, int]:
        """Statistics of what the data directory restored."""
        stored = self._storage.log
        return {
            "epoch": stored.epoch,
            "first_offset": stored.first_offset,
            "last_offset": stored.last_offset,
            "sessions": len(self.broker.sessions),
            "retained": self.broker.retained.of_clients,
        }

    async def start(self) -> None:
        """Open every door.

        Raises:
            InvalidConfig: a door cannot be opened; then none is open.
        """
        if self._storage.log.is_durable:
            log.info("restored", **self._recovered())
        gc.set_threshold(*THRESHOLDS)
        if self.settings.sys_interval_s:
            self._reporting.publish()  # before the first client, so that its topics fit the limit
        for door in self.doors:
            try:
                await door.open()
            except InvalidConfig:
                for opened in self.doors:
                    await opened.close()
                self._password_checks.close()
                self._storage.upkeep.close()
                raise
        self._loading = self._loop.create_task(self._load_catalog())
        self._lag.start(self._loop)
        self._stall.start(self._loop)
        self._housekeeping.start(self.settings)
        for door in filter(lambda door: door.addresses(), self.doors):
            log.info("listening", door=door.name, addresses=" ".join(door.addresses()))

    async def _load_catalog(self) -> None:
        """Read the names of stored topics, so that their first publish need not."""
        try:
            await self.broker.catalog.load(EAGER_NAMES)
        except StorageUnavailable as error:  # a listing tries again
            log.warning("topics of the log cannot be read now", reason=str(error))

    async def stop(self) -> None:
        """Drain: accept nothing new, deliver what was accepted, close connections, wait for the last byte."""
        timeout_s = self.settings.shutdown_timeout_s
        deadline = time.monotonic() + timeout_s - min(SEALING_S, timeout_s / 10)
        goodbye_at = deadline - min(GOODBYE_S, timeout_s / 4)
        if self._loading is not None:
            self._loading.cancel()
        self._lag.stop()
        self._stall.stop()
        self._housekeeping.stop()
        self.broker.streams.drain()  # pending requests get a response while the doors are open
        for door in self.doors:
            await door.close()
        self.broker.stop()
        while not self._is_drained and time.monotonic() < goodbye_at:  # noqa: ASYNC110 - doors, log and queues drain; none signals it
            await asyncio.sleep(DRAIN_INTERVAL_S)
        self.broker.close()
        self._housekeeping.log_losses()
        left_s = max(deadline - time.monotonic(), 0.0)
        await asyncio.gather(*(door.finish(left_s) for door in self.doors))
        self._password_checks.close()  # after the last door: they share it
        self.broker.flush()  # into the last commit
        self._storage.upkeep.close()
        log.info("stopped", **{key: value for key, value in self.broker.counters.snapshot().items() if value})

    @property
    def _is_drained(self) -> bool:
        return self.broker.is_drained and self._storage.upkeep.is_idle

    # Settings

    def reload(self, wanted: Loaded | None = None) -> Reloading | None:
        """Apply changed settings, and reload certificates, passwords and rights.

        Returns what was applied and what needs a restart; None after an error, and then nothing has changed.

        Args:
            wanted: the newly loaded settings; None leaves them as they are.
        """
        try:
            return self._reload(wanted)
        except InvalidConfig as error:
            log.error("settings not reloaded", reason=str(error))
            return None

    def reload_on_request(self) -> dict[str, object]:
        """Read the settings again and apply them; returns the changes and the keys that need a restart.

        Raises:
            InvalidConfig: a setting or a file is wrong; nothing has changed.
        """
        try:
            plan = self._reload(None if self._read is None else self._read())
        except InvalidConfig as error:
            log.error("settings not reloaded", reason=str(error))
            raise
        return {"applied": list(map(str, plan.applied)), "needs_restart": list(self._needs_restart)}

    def _reload(self, wanted: Loaded | None) -> Reloading:
        loaded = wanted or Loaded(self.settings, self._settings_from)
        plan = compare(self.settings, loaded)
        self._check(loaded.settings)
        for action in self._prepare(plan.settings):  # nothing can fail from here
            action()
        if wanted is not None:
            waiting = {key: self._settings_from.get(key, "default") for key in plan.needs_restart}
            self._settings_from = wanted.origins | waiting
            self._needs_restart = plan.needs_restart
        log.info(
            "settings reloaded", applied=list(map(str, plan.applied)), needs_restart=list(self._needs_restart)
        )
        return plan

    def _check(self, settings: Settings) -> None:
        """Refuse what the next start would refuse, even if this server does not need it.

        Raises:
            InvalidConfig: the next start would fail.
        """
        access_sources(settings)
        parse_networks(settings.mqtt.proxies, "mqtt.proxies")
        parse_networks(settings.http.proxies, "http.proxies")
        if self._certificates is None:
            Certificates.load(settings.tls)

    def _prepare(self, settings: Settings) -> list[Callable[[], None]]:
        """Read all files that the settings name, and return the actions that apply files and settings.

        Raises:
            InvalidConfig: a file cannot be used.
        """
        actions: list[Callable[[], None]] = [partial(self._configure, settings)]
        if self._certificates is not None:
            certificates = self._certificates.prepare(settings.tls)
            actions = [certificates, partial(log.info, "certificates reloaded"), *actions]
        sources = access_sources(settings)
        if sources != self._access.sources or sources.has_files:
            access = self._access.prepare(sources)
            actions = [
                access,
                *actions,
                self.broker.recheck_rights,
                self._logins.recheck,
                partial(log.info, "access files reloaded"),
            ]
        return actions

    def _configure(self, settings: Settings) -> None:
        """Apply settings to every room."""
        self.settings = settings
        names = settings.websocket
        self.on_settings(settings)
        self.broker.audit.configure(write_audit if settings.logging.audit else None)
        self.broker.configure(core_settings(settings))
        if (shed := self._storage.upkeep.configure(settings.log)) is not None:
            self.broker.run_in_background(shed)
        self._address_limits.configure(settings.connections)
        self._origins.configure(names.hosts, names.origins, settings.http.cors_origins)
        self._metrics.configure(settings.metrics)
        self._web.settings, self._web.profile = settings.http, settings.web
        self.mqtt.configure(settings.mqtt, names)
        self.socket.configure(settings.web)
        self._logins.configure(lifetime_s=settings.web.login_s, idle_s=settings.web.login_idle_s)
        self.http.configure(settings.http)
        self._routes.bodies(STAGE_PATH, settings.stage.max_part_bytes)
        self.sidecar.configure(settings.sidecar)
        self._housekeeping.configure(settings)

    def effective_settings(self) -> dict[str, object]:
        """Effective settings, their origins, and the keys that need a restart."""
        return {
            "settings": msgspec.to_builtins(self.settings),
            "origins": self._settings_from,
            "needs_restart": self._needs_restart,
        }


def best_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    """Factory of the fastest event loop available: uvloop, otherwise asyncio's."""
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:  # not on every platform
        return asyncio.new_event_loop
    return uvloop.new_event_loop
