"""How it looks: the theme, a mark, and a little CSS on top of what Streamlit has.

Both themes are there, and a browser chooses as its user prefers. Nothing is fetched from anywhere.
"""

from pathlib import Path

import streamlit as st

from penstock.dashboard.colours import ACCENT, LEVELS

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
"""A pipe that lets a drop go."""
LOGO = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 124 32" width="124" height="32">'
    f'{_PIPE}<text x="28" y="22" textLength="88" lengthAdjust="spacingAndGlyphs" font-family="sans-serif" '
    f'font-size="20" font-weight="600" fill="{ACCENT}">Penstock</text></svg>'
)

CSS = Path(__file__).with_name("style.css")


def apply_style() -> None:
    """Add our CSS to the page."""
    st.html(f"<style>{_colours()}{CSS.read_text(encoding='utf-8')}</style>")


def _colours() -> str:
    """The accent and the colours of levels, by their names."""
    levels = "".join(f"--{level}: {colour};" for level, colour in LEVELS.items())
    return f":root {{--accent: {ACCENT};{levels}}}"
