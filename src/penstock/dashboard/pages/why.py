"""Why: what became of one message, in the server's words, and everything that was lately not delivered."""

import streamlit as st

from penstock.dashboard.panels import show_heading
from penstock.dashboard.why.question import show_question
from penstock.dashboard.why.recent import show_recent, show_totals


def show() -> None:
    """Draw the page; its address may name a message, and a client."""
    show_question()
    st.divider()
    show_heading(
        "Not delivered since the server started", "messages, counted once for each who did not get it"
    )
    show_totals()
    show_heading("Lately not delivered", "newest first; click one to ask why")
    show_recent()
