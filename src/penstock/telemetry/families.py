"""Families of samples, made with few words."""

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.utils import INF

from penstock.core.latency import Histogram

Rows = Iterable[tuple[Sequence[str], float]]
"""The values of the labels, and the number."""


def counter(name: str, help: str, value: float) -> Metric:
    """A number that only rises; its name ends in `_total`, which is left out here."""
    return CounterMetricFamily(name, help, value=value)


def gauge(name: str, help: str, value: float) -> Metric:
    """A number that rises and falls."""
    return GaugeMetricFamily(name, help, value=value)


def counters(name: str, help: str, labels: Sequence[str], rows: Rows) -> Metric:
    """Numbers that only rise, by labels."""
    family = CounterMetricFamily(name, help, labels=labels)
    for values, number in rows:
        family.add_metric(values, number)
    return family


def gauges(name: str, help: str, labels: Sequence[str], rows: Rows) -> Metric:
    """Numbers that rise and fall, by labels."""
    family = GaugeMetricFamily(name, help, labels=labels)
    for values, number in rows:
        family.add_metric(values, number)
    return family


def histogram(name: str, help: str, times: Histogram, unit: float = 1.0) -> Metric:
    """How long something took, in seconds, or in a unit of which a second has so many."""
    buckets = [(_words(bound * unit), count) for bound, count in times.octaves()]
    return HistogramMetricFamily(name, help, buckets=buckets, sum_value=times.seconds * unit)


def of_one(numbers: Mapping[str, float]) -> Rows:
    """Rows of one label."""
    return (((value,), number) for value, number in numbers.items())


def _words(bound: float) -> str:
    """A bound as the label `le` has it."""
    return "+Inf" if bound == INF else repr(bound)
