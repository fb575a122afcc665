"""What a NexusD daemon says, in the words of the client: each message that is missing is told once."""

import pytest

from penstock.client.dialect import Dropped, FeedEvent, Forgotten, Replayed
from penstock.client.nexusd_feed import Place, decode_places, encode_places
from penstock.client.nexusd_following import Following
from penstock.client.nexusd_line import Line, run_of
from penstock.errors import InvalidCursor
from penstock.wire.sidecar import nexusd

Event = nexusd.MessageEvent


def message(sequence: int, topic: str = "orders") -> nexusd.Message:
    return nexusd.Message(topic=topic, sequence_number=sequence, timestamp_ms=1_000 + sequence)


def begun(missed: int = 0) -> Event:
    info = nexusd.SubscriptionInfo(
        subscription_id="sub-1", gap_detected=missed != 0, missed_message_count=missed
    )
    return Event(subscription_info=info)


def complete(topic: str = "orders") -> Event:
    return Event(replay_complete=nexusd.ReplayComplete(topic=topic))


@pytest.fixture
def line() -> Line:
    """One that has seen the first message of `orders`, and is about to go on."""
    line = Line(Following(["orders"], client_id="till"))
    assert told_by(line, begun(), Event(message=message(1))) == []
    return line


def told_by(line: Line, *events: Event) -> list[FeedEvent]:
    return [said for event in events for said in line.take(event)[0]]


def ranges(said: FeedEvent) -> list[tuple[str, int | None, int]]:
    assert isinstance(said, Replayed)
    assert said.statement.is_complete is not bool(said.statement.missing)
    return [(each.topic, each.first, each.last) for each in said.statement.missing]


def test_a_replay_that_is_whole_ends_with_a_statement_that_says_so(line: Line) -> None:
    [said] = told_by(line, begun(), Event(replay_message=message(2)), complete())
    assert isinstance(said, Replayed)
    assert (said.statement.is_complete, said.statement.served) == (True, 1)


def test_what_a_replay_has_not_any_more_is_told_by_number_at_its_end(line: Line) -> None:
    [said] = told_by(line, begun(3), Event(replay_message=message(5)), complete())
    assert ranges(said) == [("orders", 2, 4)]


def test_what_is_missing_without_a_number_is_told_without_one(line: Line) -> None:
    [said] = told_by(line, begun(3), complete())
    assert ranges(said) == [("orders", None, 0)]


def test_a_replay_that_nobody_ends_ends_with_the_first_new_message(line: Line) -> None:
    [said] = told_by(line, begun(2), Event(replay_message=message(4)), Event(message=message(5)))
    assert ranges(said) == [("orders", 2, 3)]


def test_numbers_that_a_live_message_jumps_over_were_dropped(line: Line) -> None:
    assert told_by(line, Event(message=message(5))) == [Dropped(3, "slow_consumer")]


def test_what_was_warned_of_is_not_told_again_when_it_shows(line: Line) -> None:
    warning = nexusd.BackpressureWarning(messages_dropped=2, messages_expired=1, reason="burst")
    assert told_by(line, Event(backpressure_warning=warning)) == [Dropped(3, "burst")]
    assert told_by(line, Event(message=message(5))) == []
    assert told_by(line, Event(message=message(7))) == [Dropped(1, "burst")]


def test_a_count_that_begins_anew_is_a_gap_of_unknown_size(line: Line) -> None:
    anew = nexusd.Message(topic="orders", sequence_number=1, timestamp_ms=9_000)
    assert told_by(line, Event(message=anew)) == [Forgotten(("orders",), "epoch-changed")]


def test_a_daemon_that_does_not_know_how_much_is_missing_is_believed(line: Line) -> None:
    assert told_by(line, begun(-1)) == [Forgotten(("orders",), "epoch-changed")]


def test_what_is_not_wanted_any_more_is_left_out_and_still_counted() -> None:
    line = Line(Following(["orders", "stock"], client_id="till"))
    line.take(begun())
    line.remove(["stock"])
    assert line.take(Event(message=message(1, "stock")))[1] is None
    assert line.take(Event(message=message(1, "orders")))[1] is not None
    assert line.following.last_sequences == {"stock": 1, "orders": 1}


def test_a_message_becomes_a_run_of_one() -> None:
    line = Line(Following(["orders"], client_id="till"))
    line.take(begun())
    sent = nexusd.Message(
        message_id="m", topic="orders", payload=b"x", correlation_id="c", sequence_number=3, timestamp_ms=7
    )
    arrival = line.take(Event(retained_message=sent))[1]
    assert arrival is not None
    run = run_of(arrival)
    assert (run.topic, run.payloads, run.sequence, run.published_at_us) == ("orders", (b"x",), 3, 7_000)
    assert (run.message_id, run.correlation_id, run.content_type) == ("m", b"c", None)
    assert (run.is_retained, run.is_replay) == (True, False)


def test_a_cursor_says_where_each_subscription_is() -> None:
    places = [Place("sub-1", ("a", "b"), {"a": 3}), Place("sub-2", ("c",), {})]
    text = encode_places(places)
    assert text.isascii()
    assert decode_places(text) == places


@pytest.mark.parametrize("text", ["", "AQID", "nexusd-", "nexusd-!!", "nexusd-gaNh", "nexusd-\N{SNOWMAN}"])
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidCursor):
        decode_places(text)
