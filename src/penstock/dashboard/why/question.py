"""The question why: a form that the address of the page fills, and the answer of the server."""

from html import escape
from time import monotonic

import streamlit as st

from penstock.dashboard.asking import ask
from penstock.dashboard.colours import ACCENT, LEVELS, Level
from penstock.dashboard.links import topic_link
from penstock.dashboard.nondeliveries import Published, Verdict, ask_why
from penstock.dashboard.panels import show_heading, show_table
from penstock.dashboard.poll import current
from penstock.dashboard.times import to_second
from penstock.dashboard.units import count
from penstock.dashboard.why.tables import RECORD_COLUMNS, WAITING_COLUMNS, record_cells, waiting_cells

TOPIC, SEQUENCE, CLIENT = "topic", "sequence", "client"
SHOWN = 50
"""How many rows of each table are shown; the server may know of more."""

BAD_CODES = {"not-delivered", "not-authorized"}
PENDING_CODES = {"waiting", "in-flight"}

STALE_S = 2.0
"""How long after a question a browser may still send the address that it had before."""

_ASKED, _ASKED_AT = "why-asked", "why-asked-at"


def show_question() -> None:
    """Draw the form, and the answer if a message is named."""
    _fill()
    with st.form("why", border=False):
        topic, sequence, client, button = st.columns([5, 2, 3, 1], vertical_alignment="bottom")
        topic.text_input("Topic", key=f"why-{TOPIC}", placeholder="plant/line-1/temperature")
        sequence.text_input("Sequence", key=f"why-{SEQUENCE}", placeholder="17")
        client.text_input("Client (optional)", key=f"why-{CLIENT}", placeholder="all of them")
        button.form_submit_button("Ask", type="primary", width="stretch", on_click=_on_ask)
    _show_answer()


def ask_about(topic: str, sequence: str, client: str) -> None:
    """Ask this from the next drawing on; the address says it too, so that it can be shared."""
    asked = {TOPIC: topic, SEQUENCE: sequence, CLIENT: client}
    st.session_state[_ASKED_AT] = monotonic()
    _take(asked)
    st.query_params.from_dict({name: value for name, value in asked.items() if value})


def _on_ask() -> None:
    ask_about(*(st.session_state[f"why-{name}"].strip() for name in (TOPIC, SEQUENCE, CLIENT)))


def _fill() -> None:
    """Let the form say what the address says, whenever somebody has changed that."""
    asked = {name: st.query_params.get(name, "") for name in (TOPIC, SEQUENCE, CLIENT)}
    is_stale = monotonic() - st.session_state.get(_ASKED_AT, -STALE_S) < STALE_S
    if st.session_state.get(_ASKED) != asked and not is_stale:
        _take(asked)


def _take(asked: dict[str, str]) -> None:
    st.session_state[_ASKED] = asked
    for name, value in asked.items():
        st.session_state[f"why-{name}"] = value


def _show_answer() -> None:
    asked = st.session_state[_ASKED]
    topic, sequence, client = asked[TOPIC], asked[SEQUENCE].replace(",", ""), asked[CLIENT]
    if not topic and not sequence:
        st.caption("Every message has a topic and a sequence; both stand in the messages of a topic.")
    elif not topic or not sequence.isdecimal():
        st.warning("A question has a topic and a sequence, which is a number.", icon=":material/edit:")
    else:
        ask(lambda: _ask(topic, int(sequence), client))


def _ask(topic: str, sequence: int, client: str) -> None:
    with current().source.connect() as asking:
        verdict = ask_why(asking, topic, sequence, client)
    with st.container(border=True, key="why-answer"):
        st.html(_verdict_html(verdict))
    if verdict.rows:
        show_heading("Who did not get it")
        rows = [record_cells(row) for row in verdict.rows[:SHOWN]]
        show_table("why-rows", RECORD_COLUMNS, rows, numbers=2, empty="")
    if verdict.waiting:
        show_heading("For whom it waits")
        waiting = [waiting_cells(each) for each in verdict.waiting[:SHOWN]]
        show_table("why-waiting", WAITING_COLUMNS, waiting, numbers=1, empty="")
    for note in _notes_of(verdict):
        st.caption(note)


def _verdict_html(verdict: Verdict) -> str:
    """The answer as HTML; it holds names that clients chose, and is escaped."""
    colour = LEVELS[_level_of(verdict.code)]
    link = escape(topic_link(verdict.topic, verdict.sequence), quote=True)
    filters = ", ".join(verdict.filters[:SHOWN])
    subscribed = f"<div>Its subscriptions that match: <b>{escape(filters)}</b></div>" if filters else ""
    return (
        f'<div style="overflow-wrap:anywhere"><div><b class="code" style="color:{colour}">'
        f"{escape(verdict.code)}</b></div>"
        f'<div class="text" style="font-size:1.1rem">{escape(verdict.text)}</div>'
        f"{_message_html(verdict.message)}{subscribed}"
        f'<div><a href="{link}" target="_self" style="color:{ACCENT}">'
        "See the message and those around it</a></div></div>"
    )


def _message_html(message: Published | None) -> str:
    if message is None or message.published_at is None:
        return ""
    facts = [f"published {to_second(message.published_at)} UTC"]
    facts += [f"by {message.client_id}"] if message.client_id else []
    facts += [f"at the door {message.door}"] if message.door else []
    facts += [f"QoS {message.qos}"] if message.qos is not None else []
    facts += ["retained"] if message.retain else []
    return f"<div>{escape(', '.join(facts))}</div>"


def _level_of(code: str) -> Level:
    """How much an answer wants to be looked at."""
    if code in BAD_CODES:
        return Level.CRITICAL
    return Level.ELEVATED if code in PENDING_CODES else Level.GOOD


def _notes_of(verdict: Verdict) -> list[str]:
    """What is to be known beside the answer."""
    notes = []
    if verdict.truncated or len(verdict.rows) > SHOWN or len(verdict.waiting) > SHOWN:
        notes.append(f"There are more; {SHOWN} of each are shown.")
    if verdict.rows_forgotten:
        notes.append(f"{count(verdict.rows_forgotten)} records, of any message, were too many to be kept.")
    return notes
