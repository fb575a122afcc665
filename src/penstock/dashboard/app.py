"""What Streamlit draws for every browser: a frame with a header, and the page that was chosen.

It runs in the process that `server.py` started, where the poller is.
"""

import streamlit as st

from penstock.dashboard.header import show_header
from penstock.dashboard.navigation import PAGES, page_of
from penstock.dashboard.style import LOGO, MARK, apply_style


def main() -> None:
    """Draw the frame and the page in it."""
    st.set_page_config(page_title="Penstock", page_icon=MARK, layout="wide")
    st.logo(LOGO, size="large")
    apply_style()
    page = st.navigation([page_of(name) for name in PAGES], position="top")
    show_header()
    page.run()
