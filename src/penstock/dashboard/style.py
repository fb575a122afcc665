"""Theme, palette, thresholds and CSS of the dashboard.

One thing has one colour on every page. All colours are readable on white and on near-black, and each state is
also shown as a word. The browser chooses the light or the dark theme. Nothing is fetched from elsewhere.
"""

from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import streamlit as st

ACCENT = "#0d8f8f"
GREY = "#8590a2"
SERIES = ("#3b82d6", "#e08a1e", "#1fa187", "#8b5cc7", "#d6569a", "#7a8f22", "#2aa5c4", "#b5653a")
"""Colours in order, for lines without a colour of their own, such as topics."""
PERCENTILES = {"avg": "#e9b949", "p95": "#d9822b", "p99": "#a8562a"}
"""Colours of latencies: the later, the darker."""
THEME = {
    "theme.light.primaryColor": ACCENT,
    "theme.light.backgroundColor": "#ffffff",
    "theme.light.secondaryBackgroundColor": "#f3f6f8",
    "theme.light.textColor": "#1c2733",
    "theme.dark.primaryColor": "#27b3b3",
    "theme.dark.backgroundColor": "#10161d",
    "theme.dark.secondaryBackgroundColor": "#1a232d",
    "theme.dark.textColor": "#e4eaf0",
    "theme.baseRadius": "0.5rem",
}
_PIPE = (
    '<path d="M3 6h7a8 8 0 0 1 8 8v3" fill="none" stroke="COLOUR" stroke-width="5"/>'
    '<path d="M14 17.5h8" stroke="COLOUR" stroke-width="2.5" stroke-linecap="round"/>'
    '<path d="M18 21.5c1.9 2.6 2.8 3.9 2.8 5.1a2.8 2.8 0 0 1-5.6 0c0-1.2.9-2.5 2.8-5.1z" fill="COLOUR"/>'
).replace("COLOUR", ACCENT)
MARK = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32" width="32" height="32">{_PIPE}</svg>'
"""Icon: a pipe with a drop."""
LOGO = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 124 32" width="124" height="32">'
    f'{_PIPE}<text x="28" y="22" textLength="88" lengthAdjust="spacingAndGlyphs" font-family="sans-serif" '
    f'font-size="20" font-weight="600" fill="{ACCENT}">Penstock</text></svg>'
)
CSS = Path(__file__).with_name("style.css")


class Outcome(StrEnum):
    """Outcome of messages."""

    PUBLISHED = "published"
    DELIVERED = "delivered"
    DROPPED = "dropped"


OUTCOMES = {
    Outcome.PUBLISHED: "#3b82d6",
    Outcome.DELIVERED: "#1fa187",
    Outcome.DROPPED: "#e0524d",
}


class Level(StrEnum):
    """Severity of a number."""

    GOOD = "good"
    ELEVATED = "elevated"
    CRITICAL = "critical"


LEVELS = {Level.GOOD: "#1fa187", Level.ELEVATED: "#e08a1e", Level.CRITICAL: "#e0524d"}


class Thresholds(NamedTuple):
    """Values from which a number is elevated and critical."""

    elevated: float
    critical: float

    def level(self, number: float) -> Level:
        """Severity of a number."""
        if number >= self.critical:
            return Level.CRITICAL
        return Level.ELEVATED if number >= self.elevated else Level.GOOD


LATENCY_MS = {"avg": Thresholds(50, 200), "p95": Thresholds(100, 500), "p99": Thresholds(200, 1000)}
SATURATION = Thresholds(0.25, 0.75)
LOOP_LAG_MS = Thresholds(50, 200)
"""As for the average latency: loop lag delays every message."""


def apply_style() -> None:
    """Add the CSS to the page."""
    st.html(f"<style>{_colours()}{CSS.read_text(encoding='utf-8')}</style>")


def _colours() -> str:
    """Accent and level colours as CSS variables."""
    levels = "".join(f"--{level}: {colour};" for level, colour in LEVELS.items())
    return f":root {{--accent: {ACCENT};{levels}}}"
