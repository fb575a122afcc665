"""Backpressure warnings: slow clients are notified of lost messages, at most once a second.

A client that loses messages reads nothing at that moment, so the warning is sent when it reads again,
before the messages that waited.
"""

from asyncio import TimerHandle
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.core.diagnostics.slow_consumers import LossReport
from penstock.core.sessions.session import Session
from penstock.wire.sidecar.events import encode_event
from penstock.wire.sidecar.messages.nexusd import BackpressureWarning

if TYPE_CHECKING:
    from penstock.doors.sidecar.nexusd.context import Sidecar

INTERVAL_S = 1.0


class LossWarnings:
    """Loss warnings of one session.

    Args:
        on_due: called when a postponed warning is due.
    """

    __slots__ = ("_on_due", "_session", "_sidecar", "_timer", "_warned_at")

    def __init__(self, sidecar: "Sidecar", session: Session, on_due: Callable[[], None]) -> None:
        self._sidecar = sidecar
        self._session = session
        self._on_due = on_due
        self._warned_at = -INTERVAL_S
        self._timer: TimerHandle | None = None

    def take(self) -> bytes | None:
        """Return the warning to send now; None if nothing was lost, or the last one was too recent."""
        if self._session.losses is None:
            return None
        loop = self._sidecar.loop
        wait_s = self._warned_at + INTERVAL_S - loop.time()
        if wait_s > 0:
            if self._timer is None:
                self._timer = loop.call_later(wait_s, self._on_timer)
            return None
        report = self._sidecar.broker.take_loss_report(self._session)
        assert report is not None  # there were losses
        self._warned_at = loop.time()
        return encode_event(
            backpressure_warning=warning_of(report, self._sidecar.broker.settings.slow.after_ms)
        )

    def stop(self) -> None:
        """The stream is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        self._on_due()


def warning_of(report: LossReport, slow_after_ms: int) -> BackpressureWarning:
    """State of a session, as NexusD reports it."""
    return BackpressureWarning(
        messages_dropped=report.dropped,
        messages_expired=report.expired,
        queue_depth=report.waiting,
        queue_limit=report.limit,
        reason=reason_of(report, slow_after_ms),
        oldest_message_age_ms=round(report.oldest_age_s * 1_000),
    )


def reason_of(report: LossReport, slow_after_ms: int) -> str:
    """Why messages were lost: they grew old, there were too many at once, or the client is slow."""
    if not report.dropped:
        return "ttl_expired"
    return "burst" if report.oldest_age_s * 1_000 < slow_after_ms else "slow_consumer"
