"""Rates of the last hour: one point every ten seconds, in a ring of fixed size.

A page that opens has charts at once, and needs no other program that collects figures. The ring has one
array of numbers for each series, 40 kB in all. A point is the mean rate since the last one; gauges are as
they are at that moment. Where there is no point, because the server was not running or did not get to it,
is NaN.
"""

from array import array
from math import isnan, nan
from typing import TYPE_CHECKING

from penstock.core.diagnostics.ledger import LOSSES
from penstock.core.runtime.clock import Clock
from penstock.model import Door

if TYPE_CHECKING:
    from penstock.telemetry.metrics import ServerMetrics

INTERVAL_S = 10.0
POINTS = 360
DOORS = tuple(door for door in Door if door is not Door.SERVER)
"""Doors through which clients publish and receive."""
DIGITS = 3

Key = tuple[str, Door | None]
"""Name of a series, and its door, if it has one for each."""


class RateHistory:
    """The ring, and the counters at its last point."""

    def __init__(self, metrics: "ServerMetrics", clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._series: dict[Key, array[float]] = {}
        self._end = 0  # index behind the last point
        self._totals = self._read_totals()
        self._sampled_at = clock.monotonic()
        self._due_at = self._sampled_at + INTERVAL_S
        self.at_us = clock.wall_us()
        """Time of the last point."""

    def sample(self) -> None:
        """Add a point if it is due; points that were missed stay empty."""
        now = self._clock.monotonic()
        if now < self._due_at:
            return
        missed = int((now - self._due_at) // INTERVAL_S)
        for _ in range(min(missed, POINTS)):
            self._append({})
        totals, elapsed_s = self._read_totals(), now - self._sampled_at
        rates = {key: (total - self._totals[key]) / elapsed_s for key, total in totals.items()}
        self._append(rates | self._read_gauges())
        self._totals, self._sampled_at = totals, now
        self._due_at += (missed + 1) * INTERVAL_S
        self.at_us = self._clock.wall_us()

    def series(self, name: str, door: Door | None = None) -> list[float | None]:
        """Return the points of a series, the oldest first; None where there is none."""
        ring = self._series.get((name, door))
        if ring is None:
            return [None] * POINTS
        return [
            None if isnan(point) else round(point, DIGITS) for point in ring[self._end :] + ring[: self._end]
        ]

    def _append(self, values: dict[Key, float]) -> None:
        for key in values.keys() - self._series.keys():
            self._series[key] = array("d", [nan]) * POINTS
        for key, ring in self._series.items():
            ring[self._end] = values.get(key, nan)
        self._end = (self._end + 1) % POINTS

    def _read_totals(self) -> dict[Key, float]:
        """Counters since the start."""
        broker = self._metrics.broker
        seen = broker.counters
        totals: dict[Key, float] = {
            ("dropped", None): sum(broker.ledger.counts.get(reason, 0) for reason in LOSSES),
            ("bytes_received", None): seen.bytes_received,
            ("bytes_sent", None): seen.bytes_sent,
        }
        for door in DOORS:
            totals["published", door] = seen.published_at[door]
            totals["delivered", door] = seen.delivered_at[door]
        return totals

    def _read_gauges(self) -> dict[Key, float]:
        """Present values of what is not counted."""
        metrics = self._metrics
        gauges: dict[Key, float] = {
            ("connections", None): sum(len(door.connections) for door in metrics.doors)
        }
        if metrics.loop_lag is not None:
            _, _, (p99_s,) = metrics.loop_lag.times(0.99)
            gauges["loop_lag_ms", None] = p99_s * 1000
        if metrics.stored_bytes is not None:
            gauges["log_bytes", None] = metrics.stored_bytes()
        return gauges
