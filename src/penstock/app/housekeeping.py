"""What a server does every so often: tell its figures and losses, and let go of what is over."""

from typing import TYPE_CHECKING

import structlog
from msgspec.structs import asdict

from penstock.app.timers import Timers
from penstock.config import Settings
from penstock.core.broker import Broker
from penstock.core.clock import Scheduler
from penstock.core.reporting import Reporting
from penstock.doors.guard import Guard
from penstock.doors.tls import Certificates
from penstock.errors import InvalidConfig

if TYPE_CHECKING:
    from penstock.storage.disk.log import DiskLog

log = structlog.get_logger("penstock")

LOSSES_INTERVAL_S = 10.0
"""How often the log says what subscribers lost; who wants to know each listens to `$penstock/drops`."""
RETENTION_INTERVAL_S = 10.0
"""How often the log is asked whether something has to leave."""


class Housekeeping:
    """All that is due at intervals, from `start` to `stop`.

    Args:
        disk: the log in the data directory, if there is one.
        certificates: those of the doors, if they have any.
    """

    def __init__(
        self,
        broker: Broker,
        guard: Guard,
        reporting: Reporting,
        scheduler: Scheduler,
        *,
        disk: "DiskLog | None",
        certificates: Certificates | None,
    ) -> None:
        self.timers = Timers(scheduler)
        self._broker = broker
        self._guard = guard
        self._reporting = reporting
        self._disk = disk
        self._certificates = certificates

    def start(self, settings: Settings) -> None:
        """Begin."""
        self.timers.repeat("losses", LOSSES_INTERVAL_S, self.tell_losses)
        if self._disk is not None:
            self.timers.repeat("retention", RETENTION_INTERVAL_S, self._trim)
        self.configure(settings)

    def configure(self, settings: Settings) -> None:
        """Go by the intervals that the settings say."""
        self.timers.repeat("report", settings.sys_interval_s, self._reporting.publish)
        self.timers.repeat("reap", settings.reaper_interval_ms / 1000, self._reap)
        if self._certificates is not None:
            self.timers.repeat("certificates", settings.tls.check_interval_s, self._renew_certificates)

    def stop(self) -> None:
        """Do no more of it."""
        self.timers.stop()

    def tell_losses(self) -> None:
        """Say in the log what subscribers have lost since it was said last, if they have."""
        losses = self._broker.ledger.take_losses()
        if losses is not None:
            log.warning("messages not delivered", **asdict(losses))

    def _trim(self) -> None:
        assert self._disk is not None
        self._disk.trim(self._broker.owed_from)

    def _reap(self) -> None:
        self._broker.reap()
        if self._disk is not None:
            self._disk.reap()
        refusals = self._guard.reap() if self._guard.is_needed else None
        if refusals is not None:
            log.warning("connections refused by address", **asdict(refusals))

    def _renew_certificates(self) -> None:
        """Take certificates from now on that were put in place of the present ones."""
        assert self._certificates is not None
        try:
            if not self._certificates.reload_if_changed():
                return
        except InvalidConfig as error:
            log.error("certificates not reloaded", reason=str(error))
            return
        log.info("certificates reloaded")
