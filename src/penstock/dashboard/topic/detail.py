"""One message in full: where it stands, what came with it, and its payload, cut if it is long.

Nothing of a message is taken for markdown or HTML.
"""

from html import escape

import streamlit as st

from penstock.client import Message
from penstock.dashboard.colours import ACCENT
from penstock.dashboard.links import why_link
from penstock.dashboard.payloads import Kind, Preview, preview
from penstock.dashboard.units import count, size

VISIBLE_LINES = 18
SCROLLING_PX = 400
"""How high a payload is that has more lines."""


def show_message(message: Message) -> None:
    """Draw a message."""
    with st.container(border=True, key="message-detail"):
        st.html(_head_html(message))
        show_payload(message.payload)


def show_payload(payload: bytes) -> None:
    """Draw a payload, or the beginning of it."""
    shown = preview(payload)
    st.caption(about(shown))
    if shown.text:
        is_long = shown.text.count("\n") > VISIBLE_LINES
        language = "json" if shown.kind is Kind.JSON else None
        st.code(shown.text, language=language, height=SCROLLING_PX if is_long else "content")


def about(shown: Preview) -> str:
    """What a payload is, and how much of it is shown."""
    if shown.kind is Kind.EMPTY:
        return "Empty payload"
    cut = "; only its beginning is shown" if shown.is_cut else ""
    return f"{shown.kind} · {size(shown.size_bytes)} ({count(shown.size_bytes)} bytes){cut}"


def _head_html(message: Message) -> str:
    """Everything but the payload, as HTML; it comes from elsewhere and is escaped."""
    facts = " · ".join(f"{escape(name)} <b>{escape(value)}</b>" for name, value in facts_of(message))
    link = escape(why_link(message.topic, message.sequence), quote=True)
    return (
        f'<div style="overflow-wrap:anywhere"><b>Message {message.sequence:,}</b> · {facts} · '
        f'<a href="{link}" target="_self" style="color:{ACCENT}">Who did not get it, and why?</a></div>'
    )


def facts_of(message: Message) -> list[tuple[str, str]]:
    """What came with a message, by name."""
    facts = {
        "published": f"{message.published_at:%Y-%m-%d %H:%M:%S.%f} UTC",
        "door": message.door,
        "client": message.client_id,
        "QoS": str(message.qos),
        "retained": "yes" if message.retain else "no",
        "epoch": str(message.epoch),
        "content type": message.content_type,
        "response topic": message.response_topic,
        "correlation": None if message.correlation_id is None else str(message.correlation_id),
        "message id": message.message_id,
        "expires": None if message.expires_at is None else f"{message.expires_at:%Y-%m-%d %H:%M:%S} UTC",
    }
    found = [(name, value) for name, value in facts.items() if value]
    for name, value in message.properties.items():
        found.append((name, value if isinstance(value, str) else ", ".join(value)))
    return found
