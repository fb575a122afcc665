"""The one file that knows every room and wires them: settings in, a running server out."""

import asyncio
import gc
import ipaddress
import time
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex

import structlog
from msgspec.structs import asdict

from penstock import __version__
from penstock.config import Settings, core_settings
from penstock.core.access import Access, FileAccess, OpenAccess
from penstock.core.broker import Broker
from penstock.core.clock import Clock, SystemClock
from penstock.core.reporting import Reporting
from penstock.doors.base import Door
from penstock.doors.guard import Guard
from penstock.doors.mqtt.door import MqttDoor
from penstock.doors.tls import Certificates
from penstock.errors import InvalidConfig
from penstock.storage.memory import MemoryLog, MemoryStateStore

log = structlog.get_logger("penstock")

GARBAGE_THRESHOLD = 50_000
"""Runs are not tracked by the garbage collector; what is left rarely forms cycles."""
LOSSES_INTERVAL_S = 10.0
"""How often the log says what subscribers lost; who wants to know each listens to `$penstock/drops`."""
DRAIN_INTERVAL_S = 0.05
"""How often a server that stops looks whether everything has left."""


class Server:
    """All of Penstock in one process, on the running loop."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self.settings = settings
        self._clock = clock or SystemClock()
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self.node_id = settings.node_id or f"node-{token_hex(4)}"
        core = core_settings(settings)
        self.broker = Broker(
            core,
            build_access(settings),
            MemoryLog(core.log.memory_bytes),
            MemoryStateStore(),
            self._clock,
            self._loop,
            self.node_id,
        )
        self._reporting = Reporting(self.broker, self._clock, __version__)
        self._guard = Guard(settings.connections, self._clock)
        self._certificates = Certificates.load(settings.tls)
        self.mqtt = MqttDoor(
            settings.mqtt,
            self.broker,
            self._clock,
            settings.host,
            certificates=self._certificates,
            websocket=settings.websocket,
            guard=self._guard,
        )
        self.doors: list[Door] = [self.mqtt] if self.mqtt.is_wanted else []

    async def start(self) -> None:
        """Open every door.

        Raises:
            InvalidConfig: one of them cannot be opened; then none is open.
        """
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
                raise
        self._repeat("reap", self.settings.reaper_interval_ms / 1000, self._reap)
        self._repeat("losses", LOSSES_INTERVAL_S, self._tell_losses)
        if self._certificates is not None and self.settings.tls.check_interval_s:
            self._repeat("certificates", self.settings.tls.check_interval_s, self._renew_certificates)
        for door in self.doors:
            log.info("listening", door=door.name, addresses=" ".join(door.addresses()))

    async def stop(self) -> None:
        """Drain: take nothing new, deliver what was taken, say goodbye, wait for the last byte."""
        deadline = time.monotonic() + self.settings.shutdown_timeout_s
        for timer in self._timers.values():
            timer.cancel()
        for door in self.doors:
            await door.close()
        self.broker.stop()
        while not self.broker.is_drained and time.monotonic() < deadline:
            await asyncio.sleep(DRAIN_INTERVAL_S)
        self.broker.close()
        self._tell_losses()
        for door in self.doors:
            await door.finish(max(deadline - time.monotonic(), 0.1))
        log.info("stopped", **{key: value for key, value in self.broker.counters.snapshot().items() if value})

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
        if not is_loopback(settings.host) and not is_decided:
            raise InvalidConfig(
                f"host: {settings.host} is not loopback and there is no access.password_file; "
                "give one, or say --allow-anonymous"
            )
        if not settings.tls.name_as_user:
            return OpenAccess()
    # Whoever gives a password file means that people should log in, on loopback too.
    allow_anonymous = access.allow_anonymous or (access.allow_anonymous is None and not access.password_file)
    passwords = Path(access.password_file) if access.password_file else None
    rules = Path(access.acl_file) if access.acl_file else None
    return FileAccess.load(passwords, rules, allow_anonymous, has_certificates=settings.tls.name_as_user)


def is_loopback(host: str) -> bool:
    """Only this machine can reach that address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
