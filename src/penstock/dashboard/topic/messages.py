"""The messages of a topic: the newest as they come, and all that the log has page by page."""

from collections.abc import Callable
from datetime import UTC, datetime

import streamlit as st

from penstock.client import HttpClient, Message
from penstock.dashboard.asking import ask
from penstock.dashboard.grids import Columns, number_columns, show_grid
from penstock.dashboard.live import REFRESH_S
from penstock.dashboard.panels import show_heading
from penstock.dashboard.payloads import one_line
from penstock.dashboard.plain import plain
from penstock.dashboard.poll import current
from penstock.dashboard.scrolling import PAGE_SIZES, Page, absences, title_of
from penstock.dashboard.times import to_millisecond
from penstock.dashboard.topic.detail import show_message
from penstock.dashboard.topic.reader import Reader
from penstock.dashboard.units import size
from penstock.errors import PenstockError

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
        reader = st.session_state[_READER] = Reader(topic)
        sequence = st.query_params.get("sequence", "")
        if sequence.isdecimal():
            ask(lambda: _do(lambda client: reader.go_to_sequence(client, int(sequence))))
    _part(reader)


@st.fragment(run_every=REFRESH_S)
def _part(reader: Reader) -> None:
    show_heading("Messages", "newest first; click one to see all of it")
    _show_controls(reader)
    ask(lambda: _show_page(reader))


def _show_page(reader: Reader) -> None:
    with current().source.connect() as client:
        page = reader.look(client)
    if reader.note:
        st.warning(reader.note, icon=":material/search_off:")
    with st.container(key="messages-title"):
        st.caption(f"{title_of(page)} · {'as they come' if reader.is_following else 'paused'}")
    if page.messages:
        _show_table(reader, page)
    for text in absences(page):
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
        columns_of(shown),
        visible_rows=VISIBLE_ROWS,
        config=COLUMNS,
        marked=None if row is None else (row, "Sequence"),
        on_choice=lambda row: reader.pause(shown[row].sequence),
    )


def columns_of(messages: tuple[Message, ...]) -> Columns:
    """Messages as a table."""
    payloads = [each.payload for each in messages]
    return {
        "Time (UTC)": [to_millisecond(each.published_at) for each in messages],
        "Sequence": [each.sequence for each in messages],
        "Door": [each.door for each in messages],
        "Client": [each.client_id for each in messages],
        "QoS": [each.qos for each in messages],
        "Retained": ["yes" if each.retain else "" for each in messages],
        "Size": [size(len(each)) for each in payloads],
        "Payload": [one_line(each) for each in payloads],
    }


# Moving about


def _show_controls(reader: Reader) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom", key="messages-controls"):
        if reader.is_following:
            _button(reader, "Pause", ":material/pause:", lambda _: reader.pause())
        else:
            _button(reader, "Follow", ":material/play_arrow:", lambda _: reader.follow())
        _button(reader, "Oldest", ":material/first_page:", reader.go_to_oldest)
        is_first = reader.page is not None and reader.page.first <= 1
        _button(reader, "Older", ":material/chevron_left:", reader.turn_back, disabled=is_first)
        _button(reader, "Newer", ":material/chevron_right:", reader.turn_on, disabled=reader.is_following)
        with st.popover("Go to", icon=":material/my_location:"):
            _show_places(reader)
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


def _show_places(reader: Reader) -> None:
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
    """Now, as far as somebody would type it; the time stays the same as long as the page is open."""
    now: datetime = st.session_state.setdefault("go-to-minute", datetime.now(UTC))
    return now.replace(second=0, microsecond=0, tzinfo=None)


def _button(reader: Reader, label: str, icon: str, step: Step, *, disabled: bool = False) -> None:
    st.button(label, icon=icon, disabled=disabled, on_click=_step, args=(reader, step))


def _step(reader: Reader, step: Step) -> None:
    """Move before anything is drawn: a refresh may come between a click and the button's own turn."""
    try:
        _do(step)
    except PenstockError as error:
        reader.note = plain(str(error))


def _do(step: Step) -> None:
    with current().source.connect() as client:
        step(client)
