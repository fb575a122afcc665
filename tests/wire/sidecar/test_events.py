"""Messages for NexusD's clients: what is written by hand says what the classes would say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import Door, Properties
from penstock.runs import Run, bare_shape
from penstock.wire.sidecar.events import Arm, encode_event, encode_messages
from penstock.wire.sidecar.messages import nexusd
from tests.wire.sidecar.made_runs import NAMES, made_runs, messages_in

ARMS = {Arm.MESSAGE: "message", Arm.RETAINED: "retained_message", Arm.REPLAY: "replay_message"}
SHAPE = bare_shape(Door.SIDECAR, 1, retain=False)


def ids_for(run: Run) -> list[bytes]:
    return [b"%036d" % (run.offset + index) for index in range(run.count)]


def expected(run: Run, ids: list[bytes], source: str, index: int) -> nexusd.Message:
    """A message of a run, made of its class."""
    properties = run.properties or Properties()
    return nexusd.Message(
        message_id=ids[index].decode(),
        topic=run.topic,
        payload=run.payload(index),
        content_type=properties.content_type or "",
        timestamp_ms=run.published_at // 1_000,
        source_node_id=source,
        correlation_id=(properties.correlation_id or b"").decode(),
        sequence_number=run.sequence + index,
    )


def has_text_only(run: Run) -> bool:
    """Whether a field of text can hold the correlation id as it is."""
    data = run.properties and run.properties.correlation_id
    return not data or data.decode(errors="ignore").encode() == data


RUNS = made_runs().filter(has_text_only)


@given(RUNS, st.sampled_from(sorted(ARMS)), NAMES)
def test_a_run_is_read_as_the_messages_it_has(run: Run, arm: int, source: str) -> None:
    ids = ids_for(run)
    events = list(map(nexusd.MessageEvent.FromString, messages_in(encode_messages(run, arm, ids, source))))
    assert [event.WhichOneof("event") for event in events] == [ARMS[arm]] * run.count
    said = [getattr(event, ARMS[arm]) for event in events]
    assert said == [expected(run, ids, source, index) for index in range(run.count)]


@given(RUNS)
def test_nothing_is_longer_than_the_classes_would_write_it(run: Run) -> None:
    ids = ids_for(run)
    events = [
        nexusd.MessageEvent(message=expected(run, ids, "node", index)).SerializeToString()
        for index in range(run.count)
    ]
    assert list(map(len, messages_in(encode_messages(run, Arm.MESSAGE, ids, "node")))) == list(
        map(len, events)
    )


@pytest.mark.parametrize("edge", [128, 128**2, 128**3, 128**8])
def test_a_run_whose_sequences_grow_longer_is_read_whole(edge: int) -> None:
    run = Run("a", b"xyz" * 5, 0, 3, 5, SHAPE, sequence=edge - 2, offset=1)
    messages = messages_in(encode_messages(run, Arm.MESSAGE, ids_for(run), "node"))
    said = [nexusd.MessageEvent.FromString(message).message for message in messages]
    assert [each.sequence_number for each in said] == list(range(edge - 2, edge + 3))
    assert [each.message_id for each in said] == [each.decode() for each in ids_for(run)]


@pytest.mark.parametrize("message_id", ["x", "i" * 128, "ü" * 100])
def test_an_id_of_any_length_is_kept(message_id: str) -> None:
    run = Run("a", b"x", 0, 1, 1, SHAPE, sequence=1, offset=1)
    (message,) = messages_in(encode_messages(run, Arm.MESSAGE, [message_id.encode()], "node"))
    assert nexusd.MessageEvent.FromString(message).message.message_id == message_id


def test_a_correlation_id_that_is_no_text_is_written_as_json_writes_bytes() -> None:
    run = Run("a", b"x", 0, 1, 1, SHAPE, Properties(correlation_id=b"\xff\x00"), sequence=1, offset=1)
    (message,) = messages_in(encode_messages(run, Arm.MESSAGE, ids_for(run), "node"))
    assert nexusd.MessageEvent.FromString(message).message.correlation_id == '{"$bytes":"/wA="}'


def test_other_events_are_framed_as_well() -> None:
    info = nexusd.SubscriptionInfo(subscription_id="sub-1", topics=["a", "b"], missed_message_count=-1)
    warning = nexusd.BackpressureWarning(messages_dropped=3, reason="burst")
    complete = nexusd.ReplayComplete(topic="a", replayed_count=2, latest_sequence=9)
    body = (
        encode_event(subscription_info=info)
        + encode_event(heartbeat=nexusd.Heartbeat(timestamp_ms=5))
        + encode_event(replay_complete=complete)
        + encode_event(backpressure_warning=warning)
    )
    assert list(map(nexusd.MessageEvent.FromString, messages_in(body))) == [
        nexusd.MessageEvent(subscription_info=info),
        nexusd.MessageEvent(heartbeat=nexusd.Heartbeat(timestamp_ms=5)),
        nexusd.MessageEvent(replay_complete=complete),
        nexusd.MessageEvent(backpressure_warning=warning),
    ]
