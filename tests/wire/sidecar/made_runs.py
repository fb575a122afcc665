"""Runs of every kind, and gRPC bodies taken apart, for the tests of what is written by hand."""

from hypothesis import strategies as st

from penstock.model import Door, Properties
from penstock.runs import Run, Shape
from penstock.wire.grpc import MessageReader

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=200)
NUMBERS = st.integers(1, 2**62) | st.integers(1, 40_000) | st.sampled_from([127, 128, 16_383, 2_097_151])
MESSAGE_IDS = st.none() | st.text(st.characters(codec="utf-8"), min_size=1, max_size=80)


@st.composite
def properties(draw: st.DrawFn) -> Properties | None:
    """What may travel with a payload; any of it may be there or not."""
    if draw(st.booleans()):
        return None
    return Properties(
        content_type=draw(st.none() | TEXTS),
        correlation_id=draw(st.none() | st.binary(max_size=200)),
        response_topic=draw(st.none() | NAMES),
        message_id=draw(MESSAGE_IDS),
        user=tuple(draw(st.lists(st.tuples(TEXTS, TEXTS), max_size=3))),
    )


@st.composite
def made_runs(draw: st.DrawFn, most: int = 200) -> Run:
    """A run of any length, with bare payloads or with frames around them."""
    count, head = draw(st.integers(1, most)), draw(st.integers(0, 3))
    size = draw(st.integers(0, 40) | st.sampled_from([127, 128, 300]))
    stride = head + size
    data = draw(st.binary(min_size=64, max_size=64))
    return Run(
        draw(NAMES),
        (data * (stride * count // 64 + 1))[: stride * count],
        head,
        stride,
        count,
        Shape("frames" if head else "", Door.MQTT, draw(st.integers(0, 2)), False, is_plain=False),
        draw(properties()),
        sequence=draw(NUMBERS),
        offset=draw(NUMBERS),
        published_at=draw(st.integers(0, 2**53)),
    )


def messages_in(body: bytes) -> list[bytes]:
    """The messages of a whole body."""
    reader = MessageReader(limit_bytes=2**30)
    messages = reader.feed(body)
    reader.finish()
    assert reader.error is None
    return messages
