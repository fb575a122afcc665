"""Metrics of the last two minutes, and rates computed from them.

Counters start at zero with the server, so no rate spans a restart. Pure: no clock and no network.
"""

from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice, pairwise
from typing import NamedTuple

from msgspec.structs import replace

from penstock.dashboard.responses import Metrics

SAMPLES = 120
TOPICS_REMEMBERED = 100
"""Topics kept in older samples, the busiest first; a server may list ten thousand."""
RATE_WINDOW_S = 5.0
"""Rates are averages over this many seconds: long enough to be steady, short enough to be live."""
UPTIME_SLACK_S = 6.0
"""Tolerance for an uptime that seems to lag, as responses may take seconds."""
PAUSE_S = 5.0
"""Time without a response from which charts show a gap."""

Pick = Callable[[Metrics], float]
"""Selects one number of the metrics."""


class Sample(NamedTuple):
    """Metrics at one moment."""

    at: float
    """Monotonic seconds."""
    time: datetime
    metrics: Metrics
    life: int = 0
    """Incremented with every restart of the server that was noticed."""


class Point(NamedTuple):
    """Value at one moment; None interrupts the line."""

    time: datetime
    value: float | None


class History:
    """Bounded ring of samples, oldest first."""

    def __init__(self, limit: int = SAMPLES) -> None:
        self._samples: deque[Sample] = deque(maxlen=limit)

    def __len__(self) -> int:
        return len(self._samples)

    def __iter__(self) -> Iterator[Sample]:
        return iter(self._samples)

    @property
    def last(self) -> Sample:
        """Newest sample; there must be one."""
        return self._samples[-1]

    def add(self, at: float, time: datetime, metrics: Metrics) -> None:
        """Append a sample; the one before keeps only its busiest topics."""
        life = 0
        if self._samples:
            before = self._samples.pop()
            life = before.life + _is_restart(before, at, metrics)
            self._samples.append(before._replace(metrics=_without_most_topics(before.metrics)))
        self._samples.append(Sample(at, time, metrics, life))

    def copy(self) -> "History":
        """Snapshot with the same samples."""
        same = History(self._samples.maxlen or SAMPLES)
        same._samples.extend(self._samples)
        return same

    def restarts(self) -> list[datetime]:
        """Times of the first response after each restart of the server."""
        return [after.time for before, after in pairwise(self._samples) if after.life > before.life]

    def values(self, pick: Pick) -> list[Point]:
        """Number over time."""
        return [
            Point(now.time, None if is_gap(before, now) else pick(now.metrics))
            for before, now in self._pairs()
        ]

    def rate(self, pick: Pick, window_s: float = RATE_WINDOW_S) -> float | None:
        """Increase of a counter per second, recently; None if not known yet."""
        return _rate_at(list(self._samples), len(self._samples) - 1, pick, window_s)

    def rates(self, pick: Pick, window_s: float = RATE_WINDOW_S) -> list[Point]:
        """Increase of a counter per second, over time."""
        samples = list(self._samples)
        return [Point(sample.time, _rate_at(samples, i, pick, window_s)) for i, sample in enumerate(samples)]

    def _pairs(self) -> Iterator[tuple[Sample | None, Sample]]:
        before = None
        for sample in self._samples:
            yield before, sample
            before = sample


def _is_restart(before: Sample, at: float, metrics: Metrics) -> bool:
    """True if the server restarted since a sample, judging by its ids or its uptime."""
    known = before.metrics
    if (known.node_id, known.log.epoch) != (metrics.node_id, metrics.log.epoch):
        return True
    expected_s = known.uptime_seconds + (at - before.at)
    return metrics.uptime_seconds < max(known.uptime_seconds, expected_s - UPTIME_SLACK_S)


def is_gap(before: Sample | None, now: Sample) -> bool:
    """True if the server restarted between two samples, or they are too far apart."""
    return before is not None and (before.life != now.life or now.at - before.at > PAUSE_S)


def _rate_at(samples: list[Sample], index: int, pick: Pick, window_s: float) -> float | None:
    """Rate of a counter over the window that ends with a sample."""
    now = first = samples[index]
    while index > 0 and now.at - first.at < window_s and not is_gap(samples[index - 1], first):
        index -= 1
        first = samples[index]
    seconds = now.at - first.at
    return max(pick(now.metrics) - pick(first.metrics), 0.0) / seconds if seconds > 0 else None


def _without_most_topics(metrics: Metrics) -> Metrics:
    if len(metrics.topics) <= TOPICS_REMEMBERED:
        return metrics
    return replace(metrics, topics=dict(islice(metrics.topics.items(), TOPICS_REMEMBERED)))
