"""The state of a subscription at a NexusD daemon, without any daemon."""

import pytest

from penstock.client.nexusd_following import UNKNOWN, Arrival, Begun, Following, Gap
from penstock.wire.sidecar import nexusd


def message(sequence: int, at_ms: int | None = None, topic: str = "orders") -> nexusd.Message:
    return nexusd.Message(
        message_id=f"m{sequence}",
        topic=topic,
        sequence_number=sequence,
        timestamp_ms=1_000 + sequence if at_ms is None else at_ms,
    )


def info(subscription_id: str = "sub-1", **fields: object) -> nexusd.MessageEvent:
    return nexusd.MessageEvent(
        subscription_info=nexusd.SubscriptionInfo(subscription_id=subscription_id, **fields)  # type: ignore[arg-type]
    )


def live(sequence: int, at_ms: int | None = None, topic: str = "orders") -> nexusd.MessageEvent:
    return nexusd.MessageEvent(message=message(sequence, at_ms, topic))


def replayed(sequence: int) -> nexusd.MessageEvent:
    return nexusd.MessageEvent(replay_message=message(sequence))


@pytest.fixture
def following() -> Following:
    """One that the daemon has accepted."""
    begun = Following(["orders", "stock"], client_id="till-1", max_buffer_size=7)
    assert begun.take(info()) == Begun(False, 0)
    return begun


def gap_of(happening: object) -> Gap | None:
    assert isinstance(happening, Arrival)
    return happening.gap


def test_it_begins_with_a_new_subscription() -> None:
    request = Following(["orders"], client_id="till-1", max_buffer_size=7).next_request()
    assert request == nexusd.SubscribeRequest(
        topics=["orders"], client_id="till-1", receive_retained=True, max_buffer_size=7
    )


def test_it_goes_on_behind_the_last_message_of_each_topic(following: Following) -> None:
    for event in (live(3), live(4), live(9, topic="stock")):
        following.take(event)
    assert following.next_request() == nexusd.ResumeSubscribeRequest(
        subscription_id="sub-1",
        topics=["orders", "stock"],
        last_message_id="m9",
        last_sequence_per_topic={"orders": 4, "stock": 9},
        gap_recovery_mode=nexusd.GAP_RECOVERY_REPLAY_BUFFER,
    )
    assert following.last_sequence == 9


def test_the_first_message_of_a_topic_is_no_gap(following: Following) -> None:
    assert gap_of(following.take(live(41))) is None


def test_a_number_that_was_jumped_over_is_a_gap(following: Following) -> None:
    following.take(live(3))
    assert gap_of(following.take(live(6))) == Gap("orders", 4, 6)
    assert Gap("orders", 4, 6).missed == 2
    assert gap_of(following.take(live(7))) is None


def test_topics_are_counted_by_themselves(following: Following) -> None:
    following.take(live(3))
    assert gap_of(following.take(live(9, topic="stock"))) is None
    assert gap_of(following.take(live(4))) is None


def test_a_message_that_was_replayed_is_not_taken_again(following: Following) -> None:
    assert isinstance(following.take(replayed(1)), Arrival)
    assert isinstance(following.take(replayed(2)), Arrival)
    assert following.take(live(2)) is None
    assert gap_of(following.take(live(3))) is None


def test_a_count_that_begins_anew_is_taken_and_told(following: Following) -> None:
    following.take(live(8))
    gap = gap_of(following.take(live(1, at_ms=5_000)))
    assert gap == Gap("orders", 9, 1)
    assert gap.missed == UNKNOWN
    assert gap_of(following.take(live(2, at_ms=5_001))) is None


def test_a_retained_value_is_no_reason_to_expect_the_next_number(following: Following) -> None:
    event = nexusd.MessageEvent(retained_message=message(3))
    assert following.take(event) == Arrival(message(3), is_retained=True)
    assert gap_of(following.take(live(50))) is None


def test_messages_without_numbers_are_all_taken(following: Following) -> None:
    assert gap_of(following.take(live(0))) is None
    assert gap_of(following.take(live(0))) is None
    assert following.last_sequences == {}


def test_what_the_daemon_says_of_a_gap_is_passed_on(following: Following) -> None:
    assert following.take(info(gap_detected=True, missed_message_count=2)) == Begun(True, 2)
    assert following.take(info(gap_detected=True, missed_message_count=-1)) == Begun(True, UNKNOWN)
    assert following.take(info(gap_detected=True, missed_message_count=0)) == Begun(True, 0)


def test_a_daemon_that_has_forgotten_is_asked_anew_and_the_gap_has_no_size(following: Following) -> None:
    following.take(live(8))
    following.forget()
    assert isinstance(following.next_request(), nexusd.SubscribeRequest)
    assert following.take(info("sub-2")) == Begun(False, UNKNOWN, [Gap("orders", 9, UNKNOWN)])
    assert gap_of(following.take(live(1))) is None
    assert following.next_request().subscription_id == "sub-2"  # type: ignore[union-attr]


def test_a_gap_is_told_for_every_topic_if_none_had_a_message(following: Following) -> None:
    following.forget()
    assert following.take(info("sub-2")) == Begun(
        False, UNKNOWN, [Gap("orders", 1, UNKNOWN), Gap("stock", 1, UNKNOWN)]
    )


def test_a_subscription_of_another_process_is_resumed_where_it_was() -> None:
    following = Following(["orders"], client_id="x", subscription_id="sub-9", last_sequences={"orders": 5})
    request = following.next_request()
    assert isinstance(request, nexusd.ResumeSubscribeRequest)
    assert dict(request.last_sequence_per_topic) == {"orders": 5}
    assert following.take(info("sub-9")) == Begun(True, 0)
    assert gap_of(following.take(replayed(8))) == Gap("orders", 6, 8)


def test_heartbeats_are_nothing_to_talk_about(following: Following) -> None:
    assert following.take(nexusd.MessageEvent(heartbeat=nexusd.Heartbeat(timestamp_ms=1))) is None


def test_warnings_and_ends_of_replays_are_passed_on(following: Following) -> None:
    warning = nexusd.BackpressureWarning(messages_dropped=3)
    assert following.take(nexusd.MessageEvent(backpressure_warning=warning)) == warning
    complete = nexusd.ReplayComplete(topic="orders", replayed_count=2)
    assert following.take(nexusd.MessageEvent(replay_complete=complete)) == complete
