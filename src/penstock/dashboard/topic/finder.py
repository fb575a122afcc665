"""Finding a topic: a search that the server does, and a table to choose from."""

import streamlit as st

from penstock.client import HttpClient
from penstock.dashboard.asking import ask
from penstock.dashboard.grids import Columns, number_columns, show_grid
from penstock.dashboard.poll import current
from penstock.dashboard.topic_search import FoundTopics, count_in_words, find_topics

_TEXT, _BEFORE, _TABLE, _CHOSEN = "topic-search", "topic-search-before", "topic-found", "topic-chosen"
COLUMNS = {
    "Topic": st.column_config.TextColumn(width="large"),
    **number_columns("Published", "Last sequence", "Subscribers", "In memory"),
}
VISIBLE_ROWS = 14
HELP = "Text that the name holds, or a filter such as `plant/+/temperature` or `plant/#`."


@st.fragment
def show_finder() -> None:
    """Draw the search and what it found; choosing a row opens the page of that topic."""
    st.text_input(
        "Find a topic",
        key=_TEXT,
        placeholder="part of the name, or a filter with + and #",
        help=HELP,
        icon=":material/search:",
        on_change=_begin,
    )
    ask(_search)


def _begin() -> None:
    """Another text: its first page."""
    st.session_state[_BEFORE] = []


def _search() -> None:
    before: list[str] = st.session_state.setdefault(_BEFORE, [])
    with current().source.connect() as client:
        found = _find(client, before)
    _show_count(found, before)
    if not found.topics:
        return
    names = [topic.name for topic in found.topics]
    show_grid(
        "found-topics",
        f"{_TABLE}-{st.session_state[_TEXT]}-{len(before)}",
        columns_of(found),
        visible_rows=VISIBLE_ROWS,
        config=COLUMNS,
        on_choice=lambda row: _open(names[row]),
    )
    if st.session_state.pop(_CHOSEN, False):
        st.rerun()  # the whole page: it is another one now


def _open(topic: str) -> None:
    st.query_params.from_dict({"topic": topic})
    st.session_state[_CHOSEN] = True


def _find(client: HttpClient, before: list[str]) -> FoundTopics:
    return find_topics(client, st.session_state[_TEXT], before[-1] if before else None)


def _show_count(found: FoundTopics, before: list[str]) -> None:
    words, back, on = st.columns([6, 1, 1], vertical_alignment="center")
    with words.container(key="topic-count"):
        st.caption(f"{count_in_words(found, st.session_state[_TEXT])} · click one to open it")
    back.button("Previous", disabled=not before, width="stretch", on_click=_turn_back, args=(before,))
    on.button(
        "Next", disabled=found.next is None, width="stretch", on_click=before.append, args=(found.next,)
    )


def _turn_back(before: list[str]) -> None:
    before.pop()


def columns_of(found: FoundTopics) -> Columns:
    """What was found, as a table."""
    return {
        "Topic": [topic.name for topic in found.topics],
        "Published": [topic.published for topic in found.topics],
        "Last sequence": [topic.sequence for topic in found.topics],
        "Subscribers": [topic.subscribers for topic in found.topics],
        "In memory": [topic.ring_messages for topic in found.topics],
        "Retained": ["yes" if topic.retained else "" for topic in found.topics],
        "In the log": ["yes" if topic.kept else "" for topic in found.topics],
    }
