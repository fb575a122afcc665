"""Bytes that are no message: `DecodeError` and nothing else, whatever they are."""

from random import Random

import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.sidecar.messages import health, nexusd, penstock, reflection
from tests.fuzz.damage import damaged

GOOD: list[Message] = [
    nexusd.PublishRequest(topic="a/ü", payload=b"x" * 200, correlation_id="c", ttl_ms=5_000, retain=True),
    nexusd.SubscribeRequest(topics=["a", "b/#"], client_id="c", max_buffer_size=7),
    nexusd.ResumeSubscribeRequest(subscription_id="sub-1", last_sequence_per_topic={"a": 3, "b": -1}),
    nexusd.UnsubscribeRequest(subscription_id="sub-1", pause=True),
    nexusd.GetTopicsRequest(include_counts=True),
    nexusd.GetPeersRequest(include_state=True),
    penstock.PublishBatch(
        batch_id=3,
        messages=[
            penstock.Messages(
                topic="a",
                payloads=[b"x", b""],
                message_ids=["1", "2"],
                user_properties=[penstock.Property(name="n", value="v")],
            )
        ],
    ),
    penstock.SubscribeRequest(request_id=1, add=penstock.Add(filters=["a/#"], last=3)),
    penstock.SubscribeRequest(request_id=2, open=penstock.Open(client_id="c", credit=5)),
    penstock.WhyRequest(topic="a", sequence=5, client_id="c"),
    health.HealthCheckRequest(service="a"),
    reflection.ServerReflectionRequest(file_containing_symbol="nexusd.sidecar.Message"),
]
KINDS = {type(message).DESCRIPTOR.full_name: type(message) for message in GOOD}


def is_refused(kind: type[Message], data: bytes) -> bool:
    """Whether bytes are no message of a kind; one that is can be written again."""
    try:
        message = kind.FromString(data)
    except DecodeError:
        return True
    message.SerializeToString()
    return False


@given(st.sampled_from(sorted(KINDS)), st.binary(max_size=200))
def test_bytes_are_a_message_or_refused(kind: str, data: bytes) -> None:
    is_refused(KINDS[kind], data)  # and nothing is raised


@pytest.mark.parametrize("message", GOOD, ids=lambda message: type(message).DESCRIPTOR.name)
def test_a_damaged_message_is_another_or_refused(message: Message) -> None:
    dice, data = Random(8), message.SerializeToString()
    refused = sum(is_refused(type(message), damaged(data, dice)) for _ in range(2_000))
    assert 0 < refused < 2_000


@pytest.mark.parametrize("text", [b"\xff", b"a\xed\xa0\x80", b"\xc0\x80"])
def test_text_that_is_no_utf_8_is_refused(text: bytes) -> None:
    data = b"\x0a%c%b" % (len(text), text)
    assert is_refused(nexusd.PublishRequest, data)
    assert not is_refused(nexusd.PublishRequest, b"\x12" + data[1:])  # as a payload it may be anything


def test_messages_within_messages_without_end_are_refused() -> None:
    deep = b"\x0b" * 100_000  # groups, each of which begins another
    assert is_refused(nexusd.PublishRequest, deep)
