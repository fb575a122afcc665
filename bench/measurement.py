"""Measurement: the figures of one run of one scenario against one broker."""

from typing import Literal

from msgspec import Struct

Metric = Literal[
    "acked_per_s",
    "bytes_per_connection",
    "bytes_per_owed",
    "connects_per_s",
    "delivered_per_s",
    "disconnect_cpu_s",
    "load_share",
    "operations_per_s",
    "p50_us",
    "read_rows_per_s",
    "resting_cpu",
    "return_s",
    "rows_per_s",
    "start_s",
    "tail_ms",
    "tail_rows_per_s",
]
"""Fields of a measurement that can be the figure of a row."""


class Measurement(Struct, kw_only=True, omit_defaults=True):
    """One run: figures of the load generator, then of the broker's meter; None if not applicable."""

    error: str | None = None
    seconds: float | None = None
    window: int | None = None
    published_per_s: float | None = None
    acked_per_s: float | None = None
    delivered_per_s: float | None = None
    operations_per_s: float | None = None
    """Sends and receives together."""
    sent: int | None = None
    delivered: int | None = None
    lost: int | None = None
    order_errors: int | None = None
    format_errors: int | None = None
    late_sends: int | None = None
    p50_us: float | None = None
    p95_us: float | None = None
    p99_us: float | None = None
    max_us: float | None = None
    connections: int | None = None
    connects_per_s: float | None = None
    load_cpu: float | None = None
    """Cores the load generator used while it measured."""

    broker_cpu: float | None = None
    """Cores the broker used, set-up and warm-up included."""
    others_cpu: float | None = None
    """Cores used by other work on the machine."""
    cpu_us_per_delivery: float | None = None
    """Per acknowledged publish where there are no deliveries."""
    broker_rss_bytes: int | None = None
    bytes_per_connection: float | None = None
    disconnect_cpu_s: float | None = None
    resting_cpu: float | None = None
    """Cores the broker used while its clients only listened."""

    size: str | None = None
    """Amounts of this run in words, where --scale applies."""
    rows_per_s: float | None = None
    tail_rows_per_s: float | None = None
    """Both are per second of CPU."""
    read_rows_per_s: float | None = None
    load_share: float | None = None
    """Deliveries while the log is read, relative to those without a reader."""
    start_s: float | None = None
    start_cpu_s: float | None = None
    """CPU time of the server in it."""
    tail_ms: float | None = None
    bytes_per_owed: float | None = None
    return_s: float | None = None
    return_cpu_s: float | None = None
    """CPU time of the server in it."""

    @property
    def failure(self) -> str | None:
        """Reason why this run is excluded; None if it counts."""
        if self.error is not None:
            return self.error
        if self.lost:
            return f"lost {self.lost:,}" if self.lost > 0 else f"{-self.lost:,} delivered twice"
        if self.order_errors:
            return f"{self.order_errors:,} out of order"
        if self.format_errors:
            return f"{self.format_errors:,} malformed"
        return None
