"""Steps that are made again come to the window they came from, from wherever one begins."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.delivery.inflight import (
    COMPLETED,
    CONFIRMED,
    FORGOTTEN,
    RECEIVED,
    SENT,
    Inflight,
    Pending,
    Step,
    step,
)
from penstock.core.delivery.policy import Limits
from penstock.core.durability.inflight_journal import Window
from penstock.core.durability.recorder import window_of
from penstock.core.durability.records import Sent, WindowRecord
from penstock.core.ports.connection import Encoding
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.shared import SharedEncoding, SharedGroup, is_shared
from tests.support.encodings import PlainEncoding
from tests.support.samples import make_run, make_session

SHARE = "$share/g/a"
FORMS: dict[str, Encoding] = {
    "plain": PlainEncoding(qos=2),
    "retained": PlainEncoding(qos=2, is_retained=True),
    "shared": SharedEncoding(PlainEncoding(qos=2), SharedGroup(SHARE, "a", Limits(1, 1))),
}


def make_stored() -> tuple[Session, Inflight]:
    """A session whose steps are noted."""
    session = make_session("c")
    session.journal = []
    session.inflight = Inflight(100, session.journal)
    return session, session.inflight


def leave(inflight: Inflight, offset: int, level: int = 1, kind: str = "plain") -> int:
    """Put one delivery on its way; answer its number."""
    run = make_run("a", b"x", qos=level, offset=offset)
    return inflight.add_all([(b"", b"", run)], FORMS[kind], level, [], SHARE if kind == "shared" else None)


def remade(steps: list[Step]) -> Window:
    window = Window()
    window.make(steps)
    return window


def test_every_kind_of_delivery_comes_back_as_it_left() -> None:
    session, inflight = make_stored()
    for offset, (level, kind) in enumerate([(level, kind) for level in (1, 2) for kind in FORMS], start=1):
        leave(inflight, offset, level, kind)
    assert remade(session.journal or []).sent == {
        1: Sent(1, 1),
        2: Sent(2, 1, is_retained=True),
        3: Sent(3, 1, share=SHARE),
        4: Sent(4, 2),
        5: Sent(5, 2, is_retained=True),
        6: Sent(6, 2, share=SHARE),
    }


def test_what_arrived_holds_its_number_until_it_is_complete() -> None:
    session, inflight = make_stored()
    first, second = leave(inflight, 7, 2), leave(inflight, 8, 2)
    inflight.confirm(first)
    assert remade(session.journal or []).sent == {first: None, second: Sent(8, 2)}
    inflight.complete(first)
    assert remade(session.journal or []).sent == {second: Sent(8, 2)}


def test_what_came_in_is_remembered_until_it_will_not_come_again() -> None:
    window = remade([step(3, RECEIVED), step(5, RECEIVED), step(3, FORGOTTEN)])
    assert window.received == {5}


def test_a_number_that_is_given_again_goes_to_the_end() -> None:
    one, two = step(1, SENT), step(2, SENT)
    assert list(remade([one, 11, two, 12, step(1, COMPLETED), one, 13]).sent.items()) == [
        (2, Sent(12, 1)),
        (1, Sent(13, 1)),
    ]


def test_a_window_that_was_written_is_where_the_next_steps_begin() -> None:
    record = WindowRecord(9, {1: Sent(1, 1), 2: None}, (4,))
    window = Window(record)
    assert (window.steps_until, Window().steps_until) == (9, -1)
    window.make([step(1, CONFIRMED)])
    assert (window.sent, window.received) == ({1: None, 2: None}, {4})
    assert record.sent == {1: Sent(1, 1), 2: None}


ACTIONS = st.one_of(
    st.tuples(st.just("leave"), st.sampled_from((1, 2)), st.sampled_from(tuple(FORMS))),
    st.tuples(
        st.sampled_from(("release", "complete", "give up", "take shared", "take back")), st.integers(1, 8)
    ),
)


def act(inflight: Inflight, action: tuple[str | int, ...], offset: int) -> None:
    kind, number = action[0], int(action[1])
    if kind == "leave":
        leave(inflight, offset, number, str(action[2]))
    elif kind == "release":
        inflight.confirm(number)
    elif kind == "complete":
        inflight.complete(number)
    elif kind == "take shared":
        inflight.take_qos1(is_shared)
    elif kind == "take back":
        inflight.take_from(number)
    elif isinstance(pending := inflight.entries.get(number), Pending):
        inflight.give_up(number, pending)


@given(st.lists(st.lists(ACTIONS, max_size=4), max_size=20), st.integers(0, 19))
def test_the_steps_of_all_turns_come_to_the_window_from_any_turn_on(
    turns: list[list[tuple[str | int, ...]]], written: int
) -> None:
    session, inflight = make_stored()
    assert session.journal is not None
    whole, later = Window(), Window()
    offset = 0
    for number, turn in enumerate(turns):
        for action in turn:
            offset += 1
            act(inflight, action, offset)
        steps = session.journal[:]
        session.journal.clear()
        whole.make(steps)
        if number < written:
            later = Window(window_of(session, number))
        else:
            later.make(steps)
    expected = window_of(session, 0).sent
    assert whole.sent == later.sent == expected
    assert list(whole.sent) == list(later.sent) == list(expected)
