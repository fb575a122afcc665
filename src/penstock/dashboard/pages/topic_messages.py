"""Messages of one topic: live or page by page, and one of them in full.

Content of a message is never interpreted as markdown or HTML.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from html import escape

import streamlit as st

from penstock.client import HttpClient, Message
from penstock.common.text import count_text, size_text
from penstock.dashboard.pages.payloads import PayloadKind, Preview, one_line, preview
from penstock.dashboard.pages.tables import why_link
from penstock.dashboard.pages.topic_reader import PAGE_SIZES, Page, Reader, missing_notes, page_title
from penstock.dashboard.poller import current_poller
from penstock.dashboard.style import ACCENT
from penstock.dashboard.widgets import (
    REFRESH_S,
    Columns,
    ask_server,
    escape_markdown,
    millisecond_text,
    number_columns,
    show_grid,
    show_heading,
)
from penstock.errors import PenstockError

VISIBLE_LINES = 18
SCROLLING_PX = 400
"""Height of a payload with more lines, which scrolls."""
_READER, _SIZE = "topic-reader", "messages-size"
_SEQUENCE, _TIME = "messages-sequence", "messages-time"
VISIBLE_ROWS = 12
COLUMNS = {
    **number_columns("Sequence"),
    "Time (UTC)": st.column_config.TextColumn(width=175),
    "Door": st.column_config.TextColumn(width=70),
    "QoS": st.column_config.NumberColumn(width=50),
    "Retained": st.column_config.TextColumn(width=75),
    "Size": st.column_config.TextColumn(width=75),
    "Payload": st.column_config.TextColumn(width="large"),
}
Step = Callable[[HttpClient], None]


def show_messages(topic: str) -> None:
    """Draw the messages of a topic; the address of the page may name one of them."""
    reader = st.session_state.get(_READER)
    if not isinstance(reader, Reader) or reader.topic != topic:
        sequence = st.query_params.get("sequence", "")
        wanted = int(sequence) if sequence.isdecimal() else None
        reader = Reader(topic, wanted=wanted, is_following=wanted is None)
        st.session_state[_READER] = reader
    _part(reader)


@st.fragment(run_every=REFRESH_S)
def _part(reader: Reader) -> None:
    show_heading("Messages", "newest first; click a row to see the whole message")
    _show_controls(reader)
    ask_server(lambda: _show_page(reader))


def _show_page(reader: Reader) -> None:
    with current_poller().source.connect() as client:
        page = reader.refresh(client)
    if reader.note:
        st.warning(reader.note, icon=":material/search_off:")
    with st.container(key="messages-title"):
        st.caption(f"{page_title(page)} · {'live' if reader.is_following else 'paused'}")
    if page.messages:
        _show_table(reader, page)
    for text in missing_notes(page):
        st.info(text, icon=":material/info:")
    if reader.message is not None:
        show_message(reader.message)


def _show_table(reader: Reader, page: Page) -> None:
    shown = page.messages[::-1]
    row = next((row for row, each in enumerate(shown) if each.sequence == reader.chosen), None)
    place = "live" if reader.is_following else f"{page.first}-{page.last}-{reader.chosen}"
    show_grid(
        "messages",
        f"messages-{place}",
        message_columns(shown),
        visible_rows=VISIBLE_ROWS,
        config=COLUMNS,
        marked=None if row is None else (row, "Sequence"),
        on_choice=lambda row: reader.pause(shown[row].sequence),
    )


def message_columns(messages: tuple[Message, ...]) -> Columns:
    """Messages as a table."""
    payloads = [each.payload for each in messages]
    return {
        "Time (UTC)": [millisecond_text(each.published_at) for each in messages],
        "Sequence": [each.sequence for each in messages],
        "Door": [each.door for each in messages],
        "Client": [each.client_id for each in messages],
        "QoS": [each.qos for each in messages],
        "Retained": ["yes" if each.retain else "" for each in messages],
        "Size": [size_text(len(each)) for each in payloads],
        "Payload": [one_line(each) for each in payloads],
    }


def show_message(message: Message) -> None:
    """Draw a message in full."""
    with st.container(border=True, key="message-detail"):
        st.html(_head_html(message))
        show_payload(message.payload)


def show_payload(payload: bytes) -> None:
    """Draw the preview of a payload."""
    shown = preview(payload)
    st.caption(payload_summary(shown))
    if shown.text:
        is_long = shown.text.count("\n") > VISIBLE_LINES
        language = "json" if shown.kind is PayloadKind.JSON else None
        st.code(shown.text, language=language, height=SCROLLING_PX if is_long else "content")


def payload_summary(shown: Preview) -> str:
    """Kind and size of a payload, and whether it is cut."""
    if shown.kind is PayloadKind.EMPTY:
        return "Empty payload"
    cut = "; cut" if shown.is_cut else ""
    return f"{shown.kind} · {size_text(shown.size_bytes)} ({count_text(shown.size_bytes)} bytes){cut}"


def _head_html(message: Message) -> str:
    """Everything but the payload as HTML, escaped."""
    facts = " · ".join(f"{escape(name)} <b>{escape(value)}</b>" for name, value in message_facts(message))
    link = escape(why_link(message.topic, message.sequence), quote=True)
    return (
        f'<div style="overflow-wrap:anywhere"><b>Message {message.sequence:,}</b> · {facts} · '
        f'<a href="{link}" target="_self" style="color:{ACCENT}">Undelivered to a client? See why</a></div>'
    )


def message_facts(message: Message) -> list[tuple[str, str]]:
    """Metadata of a message by name."""
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


def _show_controls(reader: Reader) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom", key="messages-controls"):
        if reader.is_following:
            _button(reader, "Pause", ":material/pause:", lambda _: reader.pause())
        else:
            _button(reader, "Follow", ":material/play_arrow:", lambda _: reader.follow())
        _button(reader, "Oldest", ":material/first_page:", reader.go_to_oldest)
        is_first = reader.page is not None and reader.page.first <= 1
        _button(reader, "Older", ":material/chevron_left:", reader.show_older, disabled=is_first)
        _button(reader, "Newer", ":material/chevron_right:", reader.show_newer, disabled=reader.is_following)
        with st.popover("Go to", icon=":material/my_location:"):
            _show_go_to(reader)
        st.segmented_control(
            "Rows",
            PAGE_SIZES,
            default=reader.size,
            label_visibility="collapsed",
            key=_SIZE,
            required=True,
            on_change=_step,
            args=(reader, lambda client: reader.resize(client, st.session_state[_SIZE])),
        )


def _show_go_to(reader: Reader) -> None:
    newest = 1 if reader.page is None else max(reader.page.last, 1)

    def go_to_sequence(client: HttpClient) -> None:
        reader.go_to_sequence(client, int(st.session_state[_SEQUENCE]))

    def go_to_time(client: HttpClient) -> None:
        if st.session_state[_TIME] is not None:
            reader.go_to_time(client, st.session_state[_TIME].replace(tzinfo=UTC))

    with st.form("go-to-sequence", border=False):
        st.number_input("Sequence", min_value=1, value=newest, step=1, key=_SEQUENCE)
        st.form_submit_button("Go to this message", on_click=_step, args=(reader, go_to_sequence))
    with st.form("go-to-time", border=False):
        st.datetime_input("Time (UTC)", value=_minute(), step=60, format="YYYY-MM-DD", key=_TIME)
        st.form_submit_button("Go to this time", on_click=_step, args=(reader, go_to_time))


def _minute() -> datetime:
    """Current minute as the default of the time field; constant while the page is open."""
    now: datetime = st.session_state.setdefault("go-to-minute", datetime.now(UTC))
    return now.replace(second=0, microsecond=0, tzinfo=None)


def _button(reader: Reader, label: str, icon: str, step: Step, *, disabled: bool = False) -> None:
    st.button(label, icon=icon, disabled=disabled, on_click=_step, args=(reader, step))


def _step(reader: Reader, step: Step) -> None:
    """Navigate before the page is drawn: a refresh may come between a click and its button."""
    try:
        _run_step(step)
    except PenstockError as error:
        reader.note = escape_markdown(str(error))


def _run_step(step: Step) -> None:
    with current_poller().source.connect() as client:
        step(client)
