"""One palette for the whole dashboard, and where good ends: the same thing has the same colour on every page.

All colours can be read on white and on near-black; what is told by colour is told by a word as well.
"""

from enum import StrEnum
from typing import NamedTuple

ACCENT = "#0d8f8f"
GREY = "#8590a2"


class Outcome(StrEnum):
    """What became of messages."""

    PUBLISHED = "published"
    DELIVERED = "delivered"
    DROPPED = "dropped"


OUTCOMES = {
    Outcome.PUBLISHED: "#3b82d6",
    Outcome.DELIVERED: "#1fa187",
    Outcome.DROPPED: "#e0524d",
}

DOORS = {"mqtt": "#8b5cc7", "sidecar": "#d6569a", "web": "#e08a1e", "streams": "#2aa5c4"}
"""A colour for each door, none of which is that of an outcome."""
OTHER_DOORS = GREY

SERIES = ("#3b82d6", "#e08a1e", "#1fa187", "#8b5cc7", "#d6569a", "#7a8f22", "#2aa5c4", "#b5653a")
"""For what has no colour of its own, such as topics, in this order."""


class Level(StrEnum):
    """How much something wants to be looked at."""

    GOOD = "good"
    ELEVATED = "elevated"
    CRITICAL = "critical"


LEVELS = {Level.GOOD: "#1fa187", Level.ELEVATED: "#e08a1e", Level.CRITICAL: "#e0524d"}


class Thresholds(NamedTuple):
    """From where on a number is elevated, and from where on critical."""

    elevated: float
    critical: float

    def level(self, number: float) -> Level:
        """How much a number wants to be looked at."""
        if number >= self.critical:
            return Level.CRITICAL
        return Level.ELEVATED if number >= self.elevated else Level.GOOD


LATENCY_MS = {"avg": Thresholds(50, 200), "p95": Thresholds(100, 500), "p99": Thresholds(200, 1000)}
SATURATION = Thresholds(0.25, 0.75)
DROP_RATE = Thresholds(0.001, 0.01)
"""Of what should have been delivered, the part that was dropped."""
LOOP_LAG_MS = Thresholds(50, 200)
"""As the average latency: whatever the loop is late, every message is."""

PERCENTILES = {"avg": "#e9b949", "p95": "#d9822b", "p99": "#a8562a"}
"""Of times: the later, the darker."""
