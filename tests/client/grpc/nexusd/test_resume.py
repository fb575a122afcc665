"""Resumption of a subscription at a NexusD daemon, without a daemon."""

import pytest

from penstock.client.grpc.nexusd.resume import UNKNOWN, Arrival, Gap, ResumeState, Started
from penstock.wire.sidecar.messages import nexusd


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
def state() -> ResumeState:
    """A subscription that the daemon has accepted."""
    started = ResumeState(["orders", "stock"], client_id="till-1", max_buffer_size=7)
    assert started.handle(info()) == Started(False, 0)
    return started


def gap_of(outcome: object) -> Gap | None:
    assert isinstance(outcome, Arrival)
    return outcome.gap


def test_it_starts_with_a_new_subscription() -> None:
    request = ResumeState(["orders"], client_id="till-1", max_buffer_size=7).next_request()
    assert request == nexusd.SubscribeRequest(
        topics=["orders"], client_id="till-1", receive_retained=True, max_buffer_size=7
    )


def test_it_resumes_after_the_last_message_of_each_topic(state: ResumeState) -> None:
    for event in (live(3), live(4), live(9, topic="stock")):
        state.handle(event)
    assert state.next_request() == nexusd.ResumeSubscribeRequest(
        subscription_id="sub-1",
        topics=["orders", "stock"],
        last_message_id="m9",
        last_sequence_per_topic={"orders": 4, "stock": 9},
        gap_recovery_mode=nexusd.GAP_RECOVERY_REPLAY_BUFFER,
    )
    assert state.last_sequence == 9


def test_the_first_message_of_a_topic_is_not_a_gap(state: ResumeState) -> None:
    assert gap_of(state.handle(live(41))) is None


def test_a_skipped_number_is_a_gap(state: ResumeState) -> None:
    state.handle(live(3))
    assert gap_of(state.handle(live(6))) == Gap("orders", 4, 6)
    assert Gap("orders", 4, 6).missed == 2
    assert gap_of(state.handle(live(7))) is None


def test_topics_are_counted_separately(state: ResumeState) -> None:
    state.handle(live(3))
    assert gap_of(state.handle(live(9, topic="stock"))) is None
    assert gap_of(state.handle(live(4))) is None


def test_a_replayed_message_is_not_delivered_again(state: ResumeState) -> None:
    assert isinstance(state.handle(replayed(1)), Arrival)
    assert isinstance(state.handle(replayed(2)), Arrival)
    assert state.handle(live(2)) is None
    assert gap_of(state.handle(live(3))) is None


def test_a_restarted_count_is_delivered_and_reported(state: ResumeState) -> None:
    state.handle(live(8))
    gap = gap_of(state.handle(live(1, at_ms=5_000)))
    assert gap == Gap("orders", 9, 1)
    assert gap.missed == UNKNOWN
    assert gap_of(state.handle(live(2, at_ms=5_001))) is None


def test_a_retained_value_does_not_affect_the_count(state: ResumeState) -> None:
    event = nexusd.MessageEvent(retained_message=message(3))
    assert state.handle(event) == Arrival(message(3), is_retained=True)
    assert gap_of(state.handle(live(50))) is None


def test_messages_without_numbers_are_all_delivered(state: ResumeState) -> None:
    assert gap_of(state.handle(live(0))) is None
    assert gap_of(state.handle(live(0))) is None
    assert state.last_sequences == {}


def test_a_gap_reported_by_the_daemon_is_passed_on(state: ResumeState) -> None:
    assert state.handle(info(gap_detected=True, missed_message_count=2)) == Started(True, 2)
    assert state.handle(info(gap_detected=True, missed_message_count=-1)) == Started(True, UNKNOWN)
    assert state.handle(info(gap_detected=True, missed_message_count=0)) == Started(True, 0)


def test_a_lost_subscription_is_requested_again_with_a_gap_of_unknown_size(state: ResumeState) -> None:
    state.handle(live(8))
    state.reset()
    assert isinstance(state.next_request(), nexusd.SubscribeRequest)
    assert state.handle(info("sub-2")) == Started(False, UNKNOWN, [Gap("orders", 9, UNKNOWN)])
    assert gap_of(state.handle(live(1))) is None
    assert state.next_request().subscription_id == "sub-2"  # type: ignore[union-attr]


def test_a_gap_is_reported_for_every_topic_if_none_had_a_message(state: ResumeState) -> None:
    state.reset()
    assert state.handle(info("sub-2")) == Started(
        False, UNKNOWN, [Gap("orders", 1, UNKNOWN), Gap("stock", 1, UNKNOWN)]
    )


def test_a_subscription_of_another_process_is_resumed_where_it_was() -> None:
    state = ResumeState(["orders"], client_id="x", subscription_id="sub-9", last_sequences={"orders": 5})
    request = state.next_request()
    assert isinstance(request, nexusd.ResumeSubscribeRequest)
    assert dict(request.last_sequence_per_topic) == {"orders": 5}
    assert state.handle(info("sub-9")) == Started(True, 0)
    assert gap_of(state.handle(replayed(8))) == Gap("orders", 6, 8)


def test_heartbeats_are_ignored(state: ResumeState) -> None:
    assert state.handle(nexusd.MessageEvent(heartbeat=nexusd.Heartbeat(timestamp_ms=1))) is None


def test_warnings_and_ends_of_replays_are_passed_on(state: ResumeState) -> None:
    warning = nexusd.BackpressureWarning(messages_dropped=3)
    assert state.handle(nexusd.MessageEvent(backpressure_warning=warning)) == warning
    complete = nexusd.ReplayComplete(topic="orders", replayed_count=2)
    assert state.handle(nexusd.MessageEvent(replay_complete=complete)) == complete
