"""The retained value of a topic."""

import streamlit as st

from penstock.client import Message
from penstock.dashboard.asking import ask
from penstock.dashboard.payloads import preview
from penstock.dashboard.poll import current
from penstock.dashboard.times import to_millisecond
from penstock.dashboard.topic.detail import about, show_payload

REFRESH_S = 5.0


@st.fragment(run_every=REFRESH_S)
def show_value(topic: str) -> None:
    """Draw the retained value of a topic, or that there is none."""
    ask(lambda: _show(topic))


def _show(topic: str) -> None:
    message = _find_value(topic)
    with st.container(key="retained-value"):
        if message is None:
            st.caption("No retained value.")
            return
        when = f"{to_millisecond(message.published_at)} UTC, sequence {message.sequence:,}"
        with st.expander(f"Retained value · {about(preview(message.payload))} · {when}"):
            show_payload(message.payload)


def _find_value(topic: str) -> Message | None:
    """The retained value of a topic, if it has one."""
    with current().source.connect() as client:
        return next(iter(client.retained(filter=topic)), None)
