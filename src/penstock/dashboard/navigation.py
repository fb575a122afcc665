"""The pages there are, in the order in which the navigation has them."""

from collections.abc import Callable
from importlib import import_module

import streamlit as st

from penstock.dashboard.links import LAKE, TOPICS, WHY

PAGES = {
    "overview": ("Overview", ":material/monitoring:"),
    TOPICS: ("Topics", ":material/topic:"),
    "latency": ("Latency", ":material/timer:"),
    "backpressure": ("Backpressure", ":material/compress:"),
    WHY: ("Why", ":material/help_center:"),
    LAKE: ("Lake", ":material/database:"),
}
"""Every page: its module in `pages`, its title and its icon. The first is shown first."""


def page_of(name: str) -> st.Page:
    """A page as Streamlit wants it; its module is imported when it is first shown."""
    title, icon = PAGES[name]
    return st.Page(_show_of(name), title=title, icon=icon, url_path=name, default=name == next(iter(PAGES)))


def _show_of(name: str) -> Callable[[], None]:
    def show() -> None:
        import_module(f"penstock.dashboard.pages.{name}").show()

    show.__name__ = name
    return show
