"""Periodic work of a server: statistics, loss reports, expiry, retention and certificates."""

from collections.abc import Callable

import structlog
from msgspec.structs import asdict

from penstock.config import Settings
from penstock.core.broker import Broker
from penstock.core.diagnostics.sys_topics import SysTopics
from penstock.core.runtime.clock import Handle, Scheduler
from penstock.errors import InvalidConfig
from penstock.net.address_limits import AddressLimits
from penstock.net.password_checks import PasswordChecks
from penstock.net.tls import Certificates
from penstock.storage.open import Upkeep

Action = Callable[[], None]
log = structlog.get_logger("penstock")
LOSSES_INTERVAL_S = 10.0
"""Interval of loss summaries in the log; `$penstock/drops` reports each loss."""
RETENTION_INTERVAL_S = 10.0
"""Interval of retention checks."""


class Timers:
    """Repeating timers whose intervals can change."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.intervals: dict[str, float] = {}
        """In seconds, by the name of the action."""
        self._scheduler = scheduler
        self._next: dict[str, Handle] = {}

    def repeat(self, name: str, interval_s: float, action: Action) -> None:
        """Repeat an action; 0 disables it. Idempotent while the interval stays the same."""
        if self.intervals.get(name) == interval_s:
            return
        self.intervals[name] = interval_s
        if name in self._next:
            self._next.pop(name).cancel()
        if interval_s:
            self._schedule(name, interval_s, action)

    def _schedule(self, name: str, interval_s: float, action: Action) -> None:
        def run_and_repeat() -> None:
            self._schedule(name, interval_s, action)  # first, so that an action that fails is repeated
            action()

        self._next[name] = self._scheduler.call_later(interval_s, run_and_repeat)

    def stop(self) -> None:
        """Cancel all timers."""
        for handle in self._next.values():
            handle.cancel()


class Housekeeping:
    """All periodic work, from `start` to `stop`.

    Args:
        upkeep: upkeep of the storage.
        certificates: certificates of the doors, if any.
    """

    def __init__(
        self,
        broker: Broker,
        address_limits: AddressLimits,
        password_checks: PasswordChecks,
        reporting: SysTopics,
        scheduler: Scheduler,
        *,
        upkeep: Upkeep,
        certificates: Certificates | None,
    ) -> None:
        self.timers = Timers(scheduler)
        self._broker = broker
        self._address_limits = address_limits
        self._password_checks = password_checks
        self._reporting = reporting
        self._upkeep = upkeep
        self._certificates = certificates

    def start(self, settings: Settings) -> None:
        """Start all timers."""
        self.timers.repeat("losses", LOSSES_INTERVAL_S, self.log_losses)
        if self._broker.log.is_durable:
            self.timers.repeat("retention", RETENTION_INTERVAL_S, self._trim)
        self.configure(settings)

    def configure(self, settings: Settings) -> None:
        """Apply the intervals of the settings."""
        self.timers.repeat("report", settings.sys_interval_s, self._reporting.publish)
        self.timers.repeat("reap", settings.reaper_interval_ms / 1000, self._reap)
        if self._certificates is not None:
            self.timers.repeat("certificates", settings.tls.check_interval_s, self._renew_certificates)

    def stop(self) -> None:
        """Stop all timers."""
        self.timers.stop()

    def log_losses(self) -> None:
        """Log undelivered messages since the last report, if any."""
        losses = self._broker.ledger.take_losses()
        if losses is not None:
            log.warning("messages not delivered", **asdict(losses))

    def _trim(self) -> None:
        self._broker.find_oldest_queued(self._upkeep.trim)

    def _reap(self) -> None:
        self._broker.reap()
        if self._upkeep.reap():
            self._broker.commit_soon()
        refusals = self._address_limits.reap() if self._address_limits.is_needed else None
        if refusals is not None:
            log.warning("connections refused by address", **asdict(refusals))
        refused_checks = self._password_checks.take_refused()
        if refused_checks is not None:
            log.warning("password checks refused", **asdict(refused_checks))

    def _renew_certificates(self) -> None:
        """Reload certificates whose files changed."""
        assert self._certificates is not None
        try:
            if not self._certificates.reload_if_changed():
                return
        except InvalidConfig as error:
            log.error("certificates not reloaded", reason=str(error))
            return
        log.info("certificates reloaded")
