"""Why page: delivery of one message as the server explains it, and recent non-deliveries."""

from html import escape
from time import monotonic

import streamlit as st

from penstock.common.text import count_text
from penstock.dashboard.pages.tables import topic_link
from penstock.dashboard.poller import View, current_poller
from penstock.dashboard.responses import (
    REASONS,
    PublishedMessage,
    QueuedMessage,
    Record,
    RecordPage,
    Verdict,
    ask_why,
    find_records,
    sums_by_reason,
)
from penstock.dashboard.style import ACCENT, LEVELS, Level
from penstock.dashboard.widgets import (
    Columns,
    Tile,
    ask_server,
    live,
    number_columns,
    second_text,
    show_grid,
    show_heading,
    show_table,
    show_tiles,
)

RECORD_COLUMNS = (
    "client",
    "reason",
    "meaning",
    "policy",
    "setting",
    "last time (UTC)",
    "sequences",
    "messages",
)
WAITING_COLUMNS = ("client", "queue", "connected", "ahead of it")
TOPIC, SEQUENCE, CLIENT = "topic", "sequence", "client"
SHOWN_ROWS = 50
"""Rows shown per table; the server may have more."""
BAD_CODES = {"not-delivered", "not-authorized"}
PENDING_CODES = {"waiting", "in-flight"}
STALE_ADDRESS_S = 2.0
"""Time after a question in which a browser may still send the previous address."""
_ASKED, _ASKED_AT = "why-asked", "why-asked-at"
VISIBLE_ROWS = 10
DROPS_REFRESH_S = 5.0
DROP_COLUMNS = {
    **number_columns("Messages"),
    "Topic": st.column_config.TextColumn(width="medium"),
    "Client": st.column_config.TextColumn(width="medium"),
}
_DROPS_TOPIC, _DROPS_CLIENT, _DROPS_REASON, _DROPS_PAGES = (
    "drops-topic",
    "drops-client",
    "drops-reason",
    "drops-before",
)
_DROPS_CHOSEN = "drops-chosen"


def show() -> None:
    """Draw the page; its address may name a message and a client."""
    show_question()
    st.divider()
    show_heading("Not delivered since the server started", "messages, counted once per subscriber")
    show_totals()
    show_heading("Recently not delivered", "newest first; click a row to ask why")
    show_recent()


def show_question() -> None:
    """Draw the form, and the verdict if a message is named."""
    _fill()
    with st.form("why", border=False):
        topic, sequence, client, button = st.columns([5, 2, 3, 1], vertical_alignment="bottom")
        topic.text_input("Topic", key=f"why-{TOPIC}", placeholder="plant/line-1/temperature")
        sequence.text_input("Sequence", key=f"why-{SEQUENCE}", placeholder="17")
        client.text_input("Client (optional)", key=f"why-{CLIENT}", placeholder="all clients")
        button.form_submit_button("Ask", type="primary", width="stretch", on_click=_on_ask)
    _show_reasons()


def ask_about(topic: str, sequence: str, client: str) -> None:
    """Ask this with the next drawing; the address is updated, so that it can be shared."""
    asked = {TOPIC: topic, SEQUENCE: sequence, CLIENT: client}
    st.session_state[_ASKED_AT] = monotonic()
    _set_question(asked)
    st.query_params.from_dict({name: value for name, value in asked.items() if value})


def _on_ask() -> None:
    ask_about(*(st.session_state[f"why-{name}"].strip() for name in (TOPIC, SEQUENCE, CLIENT)))


def _fill() -> None:
    """Fill the form from the address whenever the user changed it."""
    asked = {name: st.query_params.get(name, "") for name in (TOPIC, SEQUENCE, CLIENT)}
    is_stale = monotonic() - st.session_state.get(_ASKED_AT, -STALE_ADDRESS_S) < STALE_ADDRESS_S
    if st.session_state.get(_ASKED) != asked and not is_stale:
        _set_question(asked)


def _set_question(asked: dict[str, str]) -> None:
    st.session_state[_ASKED] = asked
    for name, value in asked.items():
        st.session_state[f"why-{name}"] = value


def _show_reasons() -> None:
    asked = st.session_state[_ASKED]
    topic, sequence, client = asked[TOPIC], asked[SEQUENCE].replace(",", ""), asked[CLIENT]
    if not topic and not sequence:
        st.caption("Enter the topic and the sequence of a message; the page of a topic lists both.")
    elif not topic or not sequence.isdecimal():
        st.warning("Enter a topic and a sequence; the sequence is a number.", icon=":material/edit:")
    else:
        ask_server(lambda: _show_verdict(topic, int(sequence), client))


def _show_verdict(topic: str, sequence: int, client: str) -> None:
    with current_poller().source.connect() as connection:
        verdict = ask_why(connection, topic, sequence, client)
    with st.container(border=True, key="why-answer"):
        st.html(_verdict_html(verdict))
    if verdict.rows:
        show_heading("Not delivered to")
        rows = [record_cells(row) for row in verdict.rows[:SHOWN_ROWS]]
        show_table("why-rows", RECORD_COLUMNS, rows, numbers=2, empty="")
    if verdict.waiting:
        show_heading("Queued for")
        waiting = [waiting_cells(each) for each in verdict.waiting[:SHOWN_ROWS]]
        show_table("why-waiting", WAITING_COLUMNS, waiting, numbers=1, empty="")
    for note in _notes_of(verdict):
        st.caption(note)


def _verdict_html(verdict: Verdict) -> str:
    """Verdict as HTML; it contains names that clients chose, and is escaped."""
    colour = LEVELS[_level_of(verdict.code)]
    link = escape(topic_link(verdict.topic, verdict.sequence), quote=True)
    filters = ", ".join(verdict.filters[:SHOWN_ROWS])
    subscribed = f"<div>Matching subscriptions: <b>{escape(filters)}</b></div>" if filters else ""
    return (
        f'<div style="overflow-wrap:anywhere"><div><b class="code" style="color:{colour}">'
        f"{escape(verdict.code)}</b></div>"
        f'<div class="text" style="font-size:1.1rem">{escape(verdict.text)}</div>'
        f"{_message_html(verdict.message)}{subscribed}"
        f'<div><a href="{link}" target="_self" style="color:{ACCENT}">'
        "Show the message and its neighbours</a></div></div>"
    )


def _message_html(message: PublishedMessage | None) -> str:
    if message is None or message.published_at is None:
        return ""
    facts = [f"published {second_text(message.published_at)} UTC"]
    facts += [f"by {message.client_id}"] if message.client_id else []
    facts += [f"through door {message.door}"] if message.door else []
    facts += [f"QoS {message.qos}"] if message.qos is not None else []
    facts += ["retained"] if message.retain else []
    return f"<div>{escape(', '.join(facts))}</div>"


def _level_of(code: str) -> Level:
    """Level of a verdict."""
    if code in BAD_CODES:
        return Level.CRITICAL
    return Level.ELEVATED if code in PENDING_CODES else Level.GOOD


def _notes_of(verdict: Verdict) -> list[str]:
    """Notes below the verdict."""
    notes = []
    if verdict.truncated or len(verdict.rows) > SHOWN_ROWS or len(verdict.waiting) > SHOWN_ROWS:
        notes.append(f"Only the first {SHOWN_ROWS} of each table are shown.")
    if verdict.rows_forgotten:
        notes.append(f"{count_text(verdict.rows_forgotten)} older records, of any message, were discarded.")
    return notes


@live
def show_totals(view: View) -> None:
    """Draw the number of undelivered messages by reason."""
    totals = sorted(view.metrics.not_delivered.items(), key=lambda item: -item[1])
    if totals:
        show_tiles(
            [
                Tile(f"reason-{reason}", reason, count_text(number), note=REASONS.get(reason, ""))
                for reason, number in totals
            ]
        )
    else:
        st.caption("All messages were delivered.")


@st.fragment(run_every=DROPS_REFRESH_S)
def show_recent() -> None:
    """Draw the records and their filters."""
    topic, client, reason = st.columns(3)
    topic.text_input("Topic", key=_DROPS_TOPIC, placeholder="all topics", on_change=_first_page)
    client.text_input("Client", key=_DROPS_CLIENT, placeholder="all clients", on_change=_first_page)
    reason.selectbox(
        "Reason",
        ["", *REASONS],
        key=_DROPS_REASON,
        format_func=lambda each: each or "all reasons",
        on_change=_first_page,
    )
    ask_server(_show_records)


def _first_page() -> None:
    """Return to the first page after a filter changed."""
    st.session_state[_DROPS_PAGES] = []


def _show_records() -> None:
    before: list[int] = st.session_state.setdefault(_DROPS_PAGES, [])
    state = st.session_state
    with current_poller().source.connect() as client:
        found = find_records(
            client,
            topic=state[_DROPS_TOPIC],
            client_id=state[_DROPS_CLIENT],
            reason=state[_DROPS_REASON],
            after=before[-1] if before else None,
        )
    _show_count(found, before)
    if not found.drops:
        return
    show_grid(
        "drops",
        f"drops-{before[-1] if before else ''}",
        drop_columns(found),
        visible_rows=VISIBLE_ROWS,
        config=DROP_COLUMNS,
        on_choice=lambda row: _choose(found.drops[row]),
    )
    if state.pop(_DROPS_CHOSEN, False):
        st.rerun()  # redraw the whole page for the new question


def _choose(record: Record) -> None:
    """Ask why for a record."""
    if record.topic:  # records without a topic have offsets only
        ask_about(record.topic, str(record.last), record.client_id)
        st.session_state[_DROPS_CHOSEN] = True


def _show_count(found: RecordPage, before: list[int]) -> None:
    words, back, on = st.columns([6, 1, 1], vertical_alignment="center")
    with words.container(key="drops-count"):
        st.caption(record_summary(found))
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


def record_summary(found: RecordPage) -> str:
    """Number of records, and the messages in the shown ones by reason."""
    if not found.drops:
        return "No records."
    sums = ", ".join(f"{count_text(number)} {reason}" for reason, number in sums_by_reason(found.drops))
    forgotten = (
        f"; {count_text(found.rows_forgotten)} older ones were discarded" if found.rows_forgotten else ""
    )
    shown = f"{count_text(len(found.drops))} of {count_text(found.total)} records"
    return f"{shown}{forgotten}; messages in these: {sums}"


def drop_columns(found: RecordPage) -> Columns:
    """Records as a table."""
    drops = found.drops
    return {
        "Last time (UTC)": [second_text(each.last_at) for each in drops],
        "Topic": [each.topic for each in drops],
        "Client": [each.client_id for each in drops],
        "Reason": [each.reason for each in drops],
        "Meaning": [each.words for each in drops],
        "Sequences": [each.sequences for each in drops],
        "Messages": [each.count for each in drops],
        "Policy": [each.policy or "" for each in drops],
        "Setting": [each.setting for each in drops],
    }


def record_cells(record: Record) -> list[str]:
    """One record of the ledger as a table row."""
    return [
        record.client_id,
        record.reason,
        record.words,
        record.policy or "",
        record.setting,
        second_text(record.last_at),
        record.sequences,
        count_text(record.count),
    ]


def waiting_cells(waiting: QueuedMessage) -> list[str]:
    """Queue position of a message for one client as a table row."""
    return [
        waiting.client_id,
        waiting.place,
        "yes" if waiting.connected else "no",
        count_text(waiting.ahead),
    ]
