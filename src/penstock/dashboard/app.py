"""Streamlit app: navigation, header and the selected page, drawn for every browser.

It runs in the process that `server.py` started, which also runs the poller.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from html import escape
from importlib import import_module

import streamlit as st

from penstock.dashboard.poller import STALE_AFTER_S, View, current_poller
from penstock.dashboard.style import LEVELS, LOGO, MARK, Level, apply_style
from penstock.dashboard.widgets import REFRESH_S, age_text, show_failure

PAGES = {
    "lake": ("Lake", ":material/database:"),
    "latency": ("Latency", ":material/timer:"),
    "backpressure": ("Backpressure", ":material/compress:"),
}
"""Every page in navigation order: its module in `pages`, its title and its icon. The first is the default."""
STALE = "<style>.tiles, .stVegaLiteChart, table.plain { opacity: .45; }</style>"
"""CSS that fades outdated numbers."""
RESTART_SHOWN_S = 60
"""Time for which the header reports a restart of the server."""


def main() -> None:
    """Draw the header and the selected page."""
    st.set_page_config(page_title="Penstock", page_icon=MARK, layout="wide")
    st.logo(LOGO, size="large")
    apply_style()
    page = st.navigation([page_of(name) for name in PAGES], position="top")
    show_header()
    page.run()
    with st.container(key="page-end"):  # not visible: its presence means that everything above is drawn
        st.html("<i></i>")


def page_of(name: str) -> st.Page:
    """Streamlit page; its module is imported when it is first shown."""
    title, icon = PAGES[name]
    return st.Page(_show_of(name), title=title, icon=icon, url_path=name, default=name == next(iter(PAGES)))


def _show_of(name: str) -> Callable[[], None]:
    def show() -> None:
        import_module(f"penstock.dashboard.pages.{name}").show()

    show.__name__ = name
    return show


@st.fragment(run_every=REFRESH_S)
def show_header() -> None:
    """Draw the state of the server, and the failure if the last poll failed."""
    view = current_poller().view()
    with st.container(key="server"):
        st.html(_server_html(view, datetime.now(UTC)))
    if view.failure is not None:
        show_failure(view.failure, has_metrics=len(view.history) > 0)
        st.html(STALE)


def _server_html(view: View, now: datetime) -> str:
    """Name, address and state of the server as HTML."""
    level, state = server_state(view, now)
    names = [view.source.address]
    if len(view.history):
        metrics = view.metrics
        names = [metrics.node_id, *names, f"Penstock {metrics.version}" if metrics.version else ""]
    what = " · ".join(escape(name) for name in names if name)
    dot = f'<span class="dot" style="background:{LEVELS[level]}"></span>'
    how = f'<span class="state">{dot}{escape(state)}</span>'
    return f'<div class="server"><span class="what" title="{what}">{what}</span>{how}</div>'


def server_state(view: View, now: datetime) -> tuple[Level, str]:
    """State of the server as a level and a short text."""
    if not len(view.history):
        if view.failure is None:
            return Level.ELEVATED, "connecting"
        return Level.CRITICAL, f"no data for {age_text(view.failure.since, now)}"
    newest = view.history.last.time
    if view.failure is not None:
        return Level.CRITICAL, f"no data for {age_text(newest, now)}"
    if (now - newest).total_seconds() > STALE_AFTER_S:
        return Level.ELEVATED, f"no data for {age_text(newest, now)}"
    restarts = view.history.restarts()
    if restarts and (now - restarts[-1]).total_seconds() < RESTART_SHOWN_S:
        return Level.ELEVATED, f"restarted {age_text(restarts[-1], now)} ago"
    return Level.GOOD, "live"
