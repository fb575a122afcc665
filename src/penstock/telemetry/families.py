"""Snapshot of the metrics, and builders of Prometheus metric families."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.utils import INF

from penstock.common.histogram import Histogram
from penstock.core.diagnostics.ledger import LOSSES
from penstock.core.topics.topic import LossKind
from penstock.telemetry.labels import Sums
from penstock.telemetry.metrics import OutboxTotals, Rings, ServerMetrics, expired_of
from penstock.telemetry.samples import Process, read_process

Rows = Iterable[tuple[Sequence[str], float]]
"""Label values, and the number."""
NO_POLICY = ""
"""Label of losses that no policy decides about."""


def counter(name: str, help: str, value: float) -> Metric:
    """Counter; the suffix `_total` of its name is omitted here."""
    return CounterMetricFamily(name, help, value=value)


def gauge(name: str, help: str, value: float) -> Metric:
    """Gauge."""
    return GaugeMetricFamily(name, help, value=value)


def counters(name: str, help: str, labels: Sequence[str], rows: Rows) -> Metric:
    """Counter with labels."""
    family = CounterMetricFamily(name, help, labels=labels)
    for values, number in rows:
        family.add_metric(values, number)
    return family


def gauges(name: str, help: str, labels: Sequence[str], rows: Rows) -> Metric:
    """Gauge with labels."""
    family = GaugeMetricFamily(name, help, labels=labels)
    for values, number in rows:
        family.add_metric(values, number)
    return family


def histogram(name: str, help: str, times: Histogram, unit: float = 1.0) -> Metric:
    """Histogram in seconds; `unit` is the number of other units in a second."""
    buckets = [(_bound_label(bound * unit), count) for bound, count in times.octaves()]
    return HistogramMetricFamily(name, help, buckets=buckets, sum_value=times.seconds * unit)


def label_rows(numbers: Mapping[str, float]) -> Rows:
    """Rows of one label."""
    return (((value,), number) for value, number in numbers.items())


def _bound_label(bound: float) -> str:
    """Bucket bound as the value of the label `le`."""
    return "+Inf" if bound == INF else repr(bound)


class Snapshot(Struct):
    """Metrics read in one turn of the event loop."""

    metrics: ServerMetrics
    topics: dict[str, Sums]
    outboxes: OutboxTotals
    rings: list[Rings]
    process: Process

    def by_topic(self, key: str) -> Rows:
        """One number per labelled topic, and one of all others."""
        return (((topic,), sums[key]) for topic, sums in self.topics.items())

    def dropped(self) -> Rows:
        """Dropped messages by topic, reason and policy."""
        for topic, sums in self.topics.items():
            for loss, count in sums.items():
                if isinstance(loss, tuple) and loss[0] in LOSSES and count:
                    yield (topic, *_loss_labels(loss)), count

    def expired(self) -> Iterator[tuple[tuple[str], float]]:
        """Expired messages by topic."""
        for topic, sums in self.topics.items():
            yield (topic,), expired_of(sums)


async def take_snapshot(metrics: ServerMetrics) -> Snapshot:
    """Read all metrics; large collections are visited in slices first."""
    await metrics.labels.assign()
    outboxes = await metrics.outboxes()
    return Snapshot(
        metrics, metrics.labels.sums(metrics.total()), outboxes, list(metrics.rings()), read_process()
    )


def _loss_labels(loss: LossKind) -> tuple[str, str]:
    reason, policy = loss
    return str(reason), NO_POLICY if policy is None else str(policy)
