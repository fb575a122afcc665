"""What was lately not delivered: totals by reason, and the records one by one."""

import streamlit as st

from penstock.dashboard.asking import ask
from penstock.dashboard.grids import Columns, number_columns, show_grid
from penstock.dashboard.live import live
from penstock.dashboard.nondeliveries import REASONS, Record, Records, find_records, sums_by_reason
from penstock.dashboard.panels import Tile, show_tiles
from penstock.dashboard.poll import View, current
from penstock.dashboard.times import to_second
from penstock.dashboard.units import count
from penstock.dashboard.why.question import ask_about

VISIBLE_ROWS = 10
REFRESH_S = 5.0
COLUMNS = {
    **number_columns("Messages"),
    "Topic": st.column_config.TextColumn(width="medium"),
    "Client": st.column_config.TextColumn(width="medium"),
}

_TOPIC, _CLIENT, _REASON, _BEFORE = "drops-topic", "drops-client", "drops-reason", "drops-before"
_CHOSEN = "drops-chosen"


@live
def show_totals(view: View) -> None:
    """Draw how many were not delivered, by reason."""
    totals = sorted(view.figures.not_delivered.items(), key=lambda item: -item[1])
    if totals:
        show_tiles(
            [
                Tile(f"reason-{reason}", reason, count(number), note=REASONS.get(reason, ""))
                for reason, number in totals
            ]
        )
    else:
        st.caption("Everything was delivered.")


@st.fragment(run_every=REFRESH_S)
def show_recent() -> None:
    """Draw the records, and what narrows them down."""
    topic, client, reason = st.columns(3)
    topic.text_input("Topic", key=_TOPIC, placeholder="all topics", on_change=_begin)
    client.text_input("Client", key=_CLIENT, placeholder="all clients", on_change=_begin)
    reason.selectbox(
        "Reason",
        ["", *REASONS],
        key=_REASON,
        format_func=lambda each: each or "all reasons",
        on_change=_begin,
    )
    ask(_show_records)


def _begin() -> None:
    """Other records: their first page."""
    st.session_state[_BEFORE] = []


def _show_records() -> None:
    before: list[int] = st.session_state.setdefault(_BEFORE, [])
    state = st.session_state
    with current().source.connect() as client:
        found = find_records(
            client,
            topic=state[_TOPIC],
            who=state[_CLIENT],
            reason=state[_REASON],
            after=before[-1] if before else None,
        )
    _show_count(found, before)
    if not found.drops:
        return
    show_grid(
        "drops",
        f"drops-{before[-1] if before else ''}",
        columns_of(found),
        visible_rows=VISIBLE_ROWS,
        config=COLUMNS,
        on_choice=lambda row: _choose(found.drops[row]),
    )
    if state.pop(_CHOSEN, False):
        st.rerun()  # the whole page: the question above has changed


def _choose(record: Record) -> None:
    """Ask why of a record."""
    if record.topic:  # of others nothing but offsets is known
        ask_about(record.topic, str(record.last), record.client_id)
        st.session_state[_CHOSEN] = True


def _show_count(found: Records, before: list[int]) -> None:
    words, back, on = st.columns([6, 1, 1], vertical_alignment="center")
    with words.container(key="drops-count"):
        st.caption(summary_of(found))
    back.button(
        "Newer", key="drops-newer", disabled=not before, width="stretch", on_click=_turn_back, args=(before,)
    )
    on.button(
        "Older",
        key="drops-older",
        disabled=found.next is None,
        width="stretch",
        on_click=before.append,
        args=(found.next,),
    )


def _turn_back(before: list[int]) -> None:
    before.pop()


def summary_of(found: Records) -> str:
    """How many records there are, and what those that are shown add up to."""
    if not found.drops:
        return "No records."
    sums = ", ".join(f"{count(number)} {reason}" for reason, number in sums_by_reason(found.drops))
    forgotten = f"; {count(found.rows_forgotten)} were too many to be kept" if found.rows_forgotten else ""
    return f"{count(len(found.drops))} of {count(found.total)} records{forgotten}; messages in these: {sums}"


def columns_of(found: Records) -> Columns:
    """Records as a table."""
    drops = found.drops
    return {
        "Last time (UTC)": [to_second(each.last_at) for each in drops],
        "Topic": [each.topic for each in drops],
        "Client": [each.client_id for each in drops],
        "Reason": [each.reason for each in drops],
        "Which means": [each.words for each in drops],
        "Sequences": [each.sequences for each in drops],
        "Messages": [each.count for each in drops],
        "Policy": [each.policy or "" for each in drops],
        "Setting": [each.setting for each in drops],
    }
