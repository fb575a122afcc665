"""Lake: how much of the log is archived, how far the archive is behind, and what insights and audits say."""

from pathlib import Path

import streamlit as st

from penstock.dashboard.lakes.audits import last_audit
from penstock.dashboard.lakes.beginning import show_beginning, show_memory_only
from penstock.dashboard.lakes.contents import LakeView, look_at
from penstock.dashboard.lakes.holds import LogSide, look_at_log
from penstock.dashboard.lakes.insights import grains_in, newest, tables_in
from penstock.dashboard.lakes.showing import (
    show_audit,
    show_buckets,
    show_commits,
    show_contents,
    show_days,
    show_holds,
    show_insight,
)
from penstock.dashboard.panels import attempt, show_heading, show_nothing
from penstock.dashboard.plain import plain
from penstock.dashboard.poll import current
from penstock.errors import PenstockError
from penstock.pipeline.lake import Manifest

REFRESH_S = 5.0


def show() -> None:
    """Draw the page: of the lake that the command was given, or how to get one."""
    lake = current().source.lake
    if lake is None:
        _show_none()
        return
    _show_lake(lake)
    show_heading("Insights", "the newest window of each table")
    _show_insights(lake)
    _show_audit(lake)


@st.fragment(run_every=REFRESH_S)
def _show_none() -> None:
    show_beginning(current().source)
    _show_log(_ask(None))


@st.fragment(run_every=REFRESH_S)
def _show_lake(lake: Path) -> None:
    view = _look(lake)
    if view is None:
        _show_none()
        return
    log = _ask(view.manifest)
    show_contents(view, log)
    history, spread = st.columns(2)
    with history:
        show_days(view)
        show_commits(view)
    with spread:
        show_buckets(view)
        _show_log(log)


def _look(lake: Path) -> LakeView | None:
    """What the lake holds; None if that cannot be said, and why is told."""
    try:
        return look_at(lake)
    except (PenstockError, OSError) as error:
        with st.container(key="lake-trouble"):
            st.warning(plain(str(error)), icon=":material/database_off:")
        return None


def _ask(manifest: Manifest | None) -> LogSide | None:
    """How the log is; None if the server does not say, and why is told."""
    if current().is_silent:
        show_nothing("The server does not answer now.")
        return None
    try:
        with current().source.connect() as client:
            return look_at_log(client, manifest)
    except PenstockError as error:
        st.warning(plain(str(error)), icon=":material/error:")
        return None


def _show_log(log: LogSide | None) -> None:
    if log is not None and not log.is_there:
        show_memory_only()
    elif log is not None:
        show_holds(log)


@st.fragment(run_every=REFRESH_S)
def _show_insights(lake: Path) -> None:
    attempt(lambda: _show_windows(lake))


@st.fragment(run_every=REFRESH_S)
def _show_audit(lake: Path) -> None:
    attempt(lambda: show_audit(last_audit(lake), lake, current().source.address))


def _show_windows(lake: Path) -> None:
    grains = grains_in(lake)
    if not grains:
        st.caption("No insights yet. `penstock pipeline insights` makes them.")
        return
    grain = st.segmented_control(
        "Window", grains, default=grains[0], key="lake-grain", label_visibility="collapsed", required=True
    )
    found = [insight for name in tables_in(lake) if (insight := newest(lake, name, grain)) is not None]
    for column, insights in zip(st.columns(2), (found[::2], found[1::2]), strict=True):
        with column:
            for insight in insights:
                show_insight(insight)
