"""The top of every page: which server this is and how it is; and the panel that says what is the matter."""

from datetime import UTC, datetime
from html import escape

import streamlit as st

from penstock.dashboard.colours import LEVELS, Level
from penstock.dashboard.live import REFRESH_S
from penstock.dashboard.panels import show_trouble
from penstock.dashboard.poll import SILENCE_S, View, current
from penstock.dashboard.times import ago

STALE = "<style>.tiles, .stVegaLiteChart, .stDataFrame, table.plain { opacity: .45; }</style>"
"""Figures that are not fresh are pale."""
RESTART_SHOWN_S = 60
"""For how long the header says that the server was started anew."""


@st.fragment(run_every=REFRESH_S)
def show_header() -> None:
    """Draw the state of the server, and whatever is in the way of fresh figures."""
    view = current().view()
    with st.container(key="server"):
        st.html(_server_html(view, datetime.now(UTC)))
    if view.trouble is not None:
        show_trouble(view.trouble, has_figures=len(view.history) > 0)
        st.html(STALE)


def _server_html(view: View, now: datetime) -> str:
    """Which server this is, and whether its figures are fresh."""
    level, state = state_of(view, now)
    names = [view.source.address]
    if len(view.history):
        figures = view.figures
        names = [figures.node_id, *names, f"Penstock {figures.version}" if figures.version else ""]
    what = " · ".join(escape(name) for name in names if name)
    dot = f'<span class="dot" style="background:{LEVELS[level]}"></span>'
    how = f'<span class="state">{dot}{escape(state)}</span>'
    return f'<div class="server"><span class="what" title="{what}">{what}</span>{how}</div>'


def state_of(view: View, now: datetime) -> tuple[Level, str]:
    """How the server is, in a colour and a few words."""
    if not len(view.history):
        if view.trouble is None:
            return Level.ELEVATED, "asking"
        return Level.CRITICAL, f"no figures for {ago(view.trouble.since, now)}"
    newest = view.history.last.time
    if view.trouble is not None:
        return Level.CRITICAL, f"no figures for {ago(newest, now)}"
    if (now - newest).total_seconds() > SILENCE_S:
        return Level.ELEVATED, f"no figures for {ago(newest, now)}"
    restarts = view.history.restarts()
    if restarts and (now - restarts[-1]).total_seconds() < RESTART_SHOWN_S:
        return Level.ELEVATED, f"started anew {ago(restarts[-1], now)} ago"
    return Level.GOOD, "live"
