"""Topics: find one among all, and look at it: its figures, its messages, its retained value."""

from html import escape

import streamlit as st

from penstock.dashboard.topic.finder import show_finder
from penstock.dashboard.topic.messages import show_messages
from penstock.dashboard.topic.numbers import show_numbers
from penstock.dashboard.topic.value import show_value


def show() -> None:
    """Draw the page: of the topic that its address names, or of all of them."""
    topic = st.query_params.get("topic")
    if topic:
        _show_topic(topic)
    else:
        show_finder()


def _show_topic(topic: str) -> None:
    name, other = st.columns([5, 1], vertical_alignment="center")
    with name.container(key="topic-name"):
        st.html(f'<h3 style="margin:0;overflow-wrap:anywhere;white-space:pre-wrap">{escape(topic)}</h3>')
    other.button("All topics", icon=":material/arrow_back:", width="stretch", on_click=st.query_params.clear)
    show_numbers(topic)
    show_value(topic)
    show_messages(topic)
