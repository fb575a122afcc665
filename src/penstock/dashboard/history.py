"""The last two minutes of a server's figures, and the rates in them.

Counters begin at zero when a server starts. What was seen before a restart is another life, and no rate
reaches across. Nothing here knows a clock or a network.
"""

from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice, pairwise
from typing import NamedTuple

from msgspec.structs import replace

from penstock.dashboard.figures import Figures

SAMPLES = 120
TOPICS_REMEMBERED = 100
"""Topics of which there is a history, the busiest first; a server may list ten thousand."""
RATE_WINDOW_S = 5.0
"""Rates are means over so many seconds: long enough to be calm, short enough to be live."""
UPTIME_SLACK_S = 6.0
"""By how much an uptime may seem to be behind without a restart, as answers may take seconds."""
PAUSE_S = 5.0
"""A longer time without an answer is a gap in what is drawn."""

Pick = Callable[[Figures], float]
"""Takes one number out of the figures."""


class Sample(NamedTuple):
    """The figures at one moment."""

    at: float
    """Seconds of a clock that never goes back."""
    time: datetime
    figures: Figures
    life: int = 0
    """Rises by one with every restart of the server that was noticed."""


class Point(NamedTuple):
    """A value at one moment; None where there is none, which interrupts a line."""

    time: datetime
    value: float | None


class History:
    """Samples, the oldest first; the oldest go when there are too many."""

    def __init__(self, limit: int = SAMPLES) -> None:
        self._samples: deque[Sample] = deque(maxlen=limit)

    def __len__(self) -> int:
        return len(self._samples)

    def __iter__(self) -> Iterator[Sample]:
        return iter(self._samples)

    @property
    def last(self) -> Sample:
        """The newest sample; there has to be one."""
        return self._samples[-1]

    def add(self, at: float, time: datetime, figures: Figures) -> None:
        """Remember what the server said now; of what it said before, only the busiest topics."""
        life = 0
        if self._samples:
            before = self._samples.pop()
            life = before.life + _is_restart(before, at, figures)
            self._samples.append(before._replace(figures=_without_most_topics(before.figures)))
        self._samples.append(Sample(at, time, figures, life))

    def copy(self) -> "History":
        """The same samples, which do not change any more."""
        same = History(self._samples.maxlen or SAMPLES)
        same._samples.extend(self._samples)
        return same

    def restarts(self) -> list[datetime]:
        """When the first answer of a server came that had been started anew."""
        return [after.time for before, after in pairwise(self._samples) if after.life > before.life]

    def values(self, pick: Pick) -> list[Point]:
        """A number over time."""
        return [
            Point(now.time, None if is_gap(before, now) else pick(now.figures))
            for before, now in self._pairs()
        ]

    def rate(self, pick: Pick, window_s: float = RATE_WINDOW_S) -> float | None:
        """By how much a counter rises each second, of late; None as long as that cannot be known."""
        return _rate_at(list(self._samples), len(self._samples) - 1, pick, window_s)

    def rates(self, pick: Pick, window_s: float = RATE_WINDOW_S) -> list[Point]:
        """By how much a counter rose each second, over time."""
        samples = list(self._samples)
        return [Point(sample.time, _rate_at(samples, i, pick, window_s)) for i, sample in enumerate(samples)]

    def _pairs(self) -> Iterator[tuple[Sample | None, Sample]]:
        before = None
        for sample in self._samples:
            yield before, sample
            before = sample


def _is_restart(before: Sample, at: float, figures: Figures) -> bool:
    """Whether the server was started anew since a sample: by its names, or by how long it has been up."""
    known = before.figures
    if (known.node_id, known.log.epoch) != (figures.node_id, figures.log.epoch):
        return True
    expected_s = known.uptime_seconds + (at - before.at)
    return figures.uptime_seconds < max(known.uptime_seconds, expected_s - UPTIME_SLACK_S)


def is_gap(before: Sample | None, now: Sample) -> bool:
    """Whether what was seen before belongs to another life of the server, or is too long ago."""
    return before is not None and (before.life != now.life or now.at - before.at > PAUSE_S)


def _rate_at(samples: list[Sample], index: int, pick: Pick, window_s: float) -> float | None:
    """The rate of a counter over the window that ends with a sample."""
    now = first = samples[index]
    while index > 0 and now.at - first.at < window_s and not is_gap(samples[index - 1], first):
        index -= 1
        first = samples[index]
    seconds = now.at - first.at
    return max(pick(now.figures) - pick(first.figures), 0.0) / seconds if seconds > 0 else None


def _without_most_topics(figures: Figures) -> Figures:
    if len(figures.topics) <= TOPICS_REMEMBERED:
        return figures
    return replace(figures, topics=dict(islice(figures.topics.items(), TOPICS_REMEMBERED)))
