"""Translation of a NexusD daemon's events: each missing message is reported once."""

import pytest

from penstock.client.grpc.dialect import Dropped, FeedEvent, PositionLost, Replayed
from penstock.client.grpc.nexusd.feed import (
    Position,
    StreamState,
    decode_cursor,
    encode_cursor,
    run_from_wire,
)
from penstock.client.grpc.nexusd.resume import ResumeState
from penstock.errors import InvalidCursor
from penstock.wire.sidecar.messages import nexusd

Event = nexusd.MessageEvent


def message(sequence: int, topic: str = "orders") -> nexusd.Message:
    return nexusd.Message(topic=topic, sequence_number=sequence, timestamp_ms=1_000 + sequence)


def started(missed: int = 0) -> Event:
    info = nexusd.SubscriptionInfo(
        subscription_id="sub-1", gap_detected=missed != 0, missed_message_count=missed
    )
    return Event(subscription_info=info)


def complete(topic: str = "orders") -> Event:
    return Event(replay_complete=nexusd.ReplayComplete(topic=topic))


@pytest.fixture
def stream() -> StreamState:
    """A stream after the first message of `orders`."""
    stream = StreamState(ResumeState(["orders"], client_id="till"))
    assert reports_of(stream, started(), Event(message=message(1))) == []
    return stream


def reports_of(stream: StreamState, *events: Event) -> list[FeedEvent]:
    return [report for event in events for report in stream.handle(event)[0]]


def ranges(report: FeedEvent) -> list[tuple[str, int | None, int]]:
    assert isinstance(report, Replayed)
    assert report.statement.is_complete is not bool(report.statement.missing)
    return [(each.topic, each.first, each.last) for each in report.statement.missing]


def test_a_complete_replay_ends_with_a_complete_statement(stream: StreamState) -> None:
    [report] = reports_of(stream, started(), Event(replay_message=message(2)), complete())
    assert isinstance(report, Replayed)
    assert (report.statement.is_complete, report.statement.served) == (True, 1)


def test_what_a_replay_has_not_any_more_is_reports_of_number_at_its_end(stream: StreamState) -> None:
    [report] = reports_of(stream, started(3), Event(replay_message=message(5)), complete())
    assert ranges(report) == [("orders", 2, 4)]


def test_missing_messages_without_a_number_are_reported_without_one(stream: StreamState) -> None:
    [report] = reports_of(stream, started(3), complete())
    assert ranges(report) == [("orders", None, 0)]


def test_a_replay_without_an_end_event_ends_with_the_first_live_message(stream: StreamState) -> None:
    [report] = reports_of(stream, started(2), Event(replay_message=message(4)), Event(message=message(5)))
    assert ranges(report) == [("orders", 2, 3)]


def test_numbers_skipped_by_a_live_message_were_dropped(stream: StreamState) -> None:
    assert reports_of(stream, Event(message=message(5))) == [Dropped(3, "slow_consumer")]


def test_messages_of_a_warning_are_not_reported_again(stream: StreamState) -> None:
    warning = nexusd.BackpressureWarning(messages_dropped=2, messages_expired=1, reason="burst")
    assert reports_of(stream, Event(backpressure_warning=warning)) == [Dropped(3, "burst")]
    assert reports_of(stream, Event(message=message(5))) == []
    assert reports_of(stream, Event(message=message(7))) == [Dropped(1, "burst")]


def test_a_restarted_count_is_a_gap_of_unknown_size(stream: StreamState) -> None:
    restarted = nexusd.Message(topic="orders", sequence_number=1, timestamp_ms=9_000)
    assert reports_of(stream, Event(message=restarted)) == [PositionLost(("orders",), "epoch-changed")]


def test_an_unknown_number_of_missed_messages_is_reported(stream: StreamState) -> None:
    assert reports_of(stream, started(-1)) == [PositionLost(("orders",), "epoch-changed")]


def test_messages_of_removed_filters_are_skipped_but_counted() -> None:
    stream = StreamState(ResumeState(["orders", "stock"], client_id="till"))
    stream.handle(started())
    stream.remove(["stock"])
    assert stream.handle(Event(message=message(1, "stock")))[1] is None
    assert stream.handle(Event(message=message(1, "orders")))[1] is not None
    assert stream.resume.last_sequences == {"stock": 1, "orders": 1}


def test_a_message_becomes_a_run_of_one() -> None:
    stream = StreamState(ResumeState(["orders"], client_id="till"))
    stream.handle(started())
    sent = nexusd.Message(
        message_id="m", topic="orders", payload=b"x", correlation_id="c", sequence_number=3, timestamp_ms=7
    )
    arrival = stream.handle(Event(retained_message=sent))[1]
    assert arrival is not None
    run = run_from_wire(arrival)
    assert (run.topic, run.payloads, run.sequence, run.published_at_us) == ("orders", (b"x",), 3, 7_000)
    assert (run.message_id, run.correlation_id, run.content_type) == ("m", b"c", None)
    assert (run.is_retained, run.is_replay) == (True, False)


def test_a_cursor_contains_the_position_of_each_subscription() -> None:
    positions = [Position("sub-1", ("a", "b"), {"a": 3}), Position("sub-2", ("c",), {})]
    text = encode_cursor(positions)
    assert text.isascii()
    assert decode_cursor(text) == positions


@pytest.mark.parametrize("text", ["", "AQID", "nexusd-", "nexusd-!!", "nexusd-gaNh", "nexusd-\N{SNOWMAN}"])
def test_an_invalid_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidCursor):
        decode_cursor(text)
