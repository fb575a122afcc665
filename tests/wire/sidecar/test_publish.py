"""Publishes coded by hand are the same bytes and values as protobuf's."""

import pytest
from google.protobuf.message import DecodeError

from penstock.wire.sidecar.messages.nexusd import PublishRequest, PublishResponse
from penstock.wire.sidecar.publish import encode_published, read_plain_publish

ID = b"0f7c1a52-9d3e-4b61-8000-000000000007"


@pytest.mark.parametrize("topic", ["a", "a/b", "räume/1", "x" * 127])
@pytest.mark.parametrize("size", [1, 2, 127, 128, 129, 255, 256, 16_383])
def test_topic_and_payload_are_read(topic: str, size: int) -> None:
    payload = bytes(range(256)) * 64
    data = PublishRequest(topic=topic, payload=payload[:size]).SerializeToString()
    if len(topic.encode()) < 128:
        assert read_plain_publish(data) == (topic, payload[:size])


@pytest.mark.parametrize(
    "request_",
    [
        PublishRequest(),
        PublishRequest(topic="a"),
        PublishRequest(payload=b"x"),
        PublishRequest(topic="a", payload=b"x", retain=True),
        PublishRequest(topic="a", payload=b"x", ttl_ms=5),
        PublishRequest(topic="a", payload=b"x", content_type="text/plain"),
        PublishRequest(topic="a", payload=b"x", correlation_id="7"),
        PublishRequest(topic="x" * 128, payload=b"x"),
        PublishRequest(topic="a", payload=bytes(16_384)),
    ],
)
def test_other_requests_are_left_to_protobuf(request_: PublishRequest) -> None:
    assert read_plain_publish(request_.SerializeToString()) is None


def test_what_is_read_is_what_protobuf_reads() -> None:
    """Of every request with one byte changed, or cut off."""
    whole = PublishRequest(topic="a/b", payload=b"p" * 130).SerializeToString()
    changed = [
        whole[:place] + bytes((byte,)) + whole[place + 1 :] for place in range(9) for byte in range(256)
    ]
    plain = 0
    for data in [*changed, *(whole[:end] for end in range(len(whole)))]:
        read = read_plain_publish(data)
        if read is None:
            continue
        plain += 1
        try:
            request = PublishRequest.FromString(data)
        except DecodeError:
            pytest.fail(f"protobuf refuses {data!r}")
        assert (request.topic, request.payload) == read
        assert not (request.retain or request.ttl_ms or request.content_type or request.correlation_id)
    assert plain > 100


@pytest.mark.parametrize(
    ("subscribers", "dropped", "blocked"), [(0, 0, 0), (1, 0, 0), (127, 1, 2), (300, 128, 70_000)]
)
def test_a_response_is_what_protobuf_writes(subscribers: int, dropped: int, blocked: int) -> None:
    response = PublishResponse(
        success=True,
        message_id=ID.decode(),
        subscriber_count=subscribers,
        subscribers_dropped=dropped,
        subscribers_blocked=blocked,
    )
    assert encode_published(ID, subscribers, dropped, blocked) == response.SerializeToString()
