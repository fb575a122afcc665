"""Batches read in our own way are what protobuf reads in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.sidecar import batches
from penstock.wire.sidecar.batches import BadBatch, Entry, LongBatch
from penstock.wire.sidecar.fields import varint
from penstock.wire.sidecar.messages import penstock as wire
from tests.support.steps import take_all

MOST = 10_000
texts = st.text(st.characters(codec="utf-8"), max_size=5)
payloads = st.lists(
    st.tuples(st.sampled_from((0, 1, 5, 127, 128, 300, 4_095, 4_096)), st.integers(1, 12)), max_size=4
).map(lambda groups: [bytes([size % 251]) * size for size, count in groups for _ in range(count)])
entries = st.builds(
    lambda topic, given, content_type, ttl_ms, ids: wire.Messages(
        topic=topic, payloads=given, content_type=content_type, ttl_ms=ttl_ms, message_ids=ids
    ),
    texts,
    payloads,
    texts,
    st.integers(-(2**63), 2**63 - 1),
    st.lists(texts, max_size=2),
)


def read_batch(data: bytes, most: int) -> tuple[int, list[Entry]]:
    return take_all(batches.read_batch(data, most))


def payloads_of(entry: Entry) -> list[bytes]:
    framed = [
        entry.slab[start + entry.head : start + entry.stride]
        for start in range(0, len(entry.slab), entry.stride or 1)
    ]
    assert len(framed) == entry.count
    return framed + list(entry.rest.payloads)


def whole(entry: Entry) -> wire.Messages:
    """An entry with its payloads put back."""
    made = wire.Messages()
    made.CopyFrom(entry.rest)
    del made.payloads[:]
    made.payloads.extend(payloads_of(entry))
    return made


@given(st.integers(0, 2**64 - 1), st.lists(entries, max_size=3))
def test_entries_are_those_that_protobuf_reads(batch_id: int, given: list[wire.Messages]) -> None:
    data = wire.PublishBatch(batch_id=batch_id, messages=given).SerializeToString()
    read_id, read = read_batch(data, MOST)
    assert read_id == batch_id
    assert [whole(entry) for entry in read] == given
    assert [entry.messages for entry in read] == [len(entry.payloads) for entry in given]


@given(st.binary(max_size=40), st.integers(0, 2_000), st.binary(max_size=3))
def test_bytes_of_all_kinds_are_read_as_protobuf_does_or_refused(
    start: bytes, place: int, change: bytes
) -> None:
    good = wire.PublishBatch(
        batch_id=300, messages=[wire.Messages(topic="a", payloads=[b"x" * 200] * 8, ttl_ms=5)]
    ).SerializeToString()
    place = min(place, len(good))
    for data in (start, good[:place] + change + good[place + len(change) :], good[:place]):
        try:
            expected = wire.PublishBatch.FromString(data)
        except Exception:
            with pytest.raises(BadBatch):
                read_batch(data, MOST)
        else:
            batch_id, read = read_batch(data, MOST)
            assert batch_id == expected.batch_id
            assert [whole(entry) for entry in read] == list(expected.messages)


@pytest.mark.parametrize("size", [1, 127, 128, 1_000])
def test_payloads_of_one_length_stay_as_they_came(size: int) -> None:
    given = wire.Messages(topic="a/b", payloads=[bytes([65 + n % 20]) * size for n in range(600)], ttl_ms=7)
    data = wire.PublishBatch(batch_id=1, messages=[given]).SerializeToString()
    _, (entry,) = read_batch(data, MOST)
    assert (entry.count, entry.rest.topic, entry.rest.ttl_ms) == (600, "a/b", 7)
    assert entry.slab in data
    assert not entry.rest.payloads


@pytest.mark.parametrize(
    "messages",
    [
        [wire.Messages(topic="a", payloads=[b""] * 11)],
        [wire.Messages(topic="a", payloads=[b"x" * 200] * 11)],
        [wire.Messages()] * 11,
        [wire.Messages(topic="a", payloads=[b"x", b"y"])] * 6,
    ],
)
def test_batch_of_too_many_messages_is_refused(messages: list[wire.Messages]) -> None:
    with pytest.raises(LongBatch):
        read_batch(wire.PublishBatch(messages=messages).SerializeToString(), 10)


def test_fields_of_a_later_version_are_left_to_protobuf() -> None:
    data = wire.PublishBatch(
        batch_id=9, messages=[wire.Messages(topic="a", payloads=[b"x"])]
    ).SerializeToString()
    batch_id, (entry,) = read_batch(data + b"\x78\x01", MOST)
    assert (batch_id, entry.rest.topic, payloads_of(entry)) == (9, "a", [b"x"])


def test_number_that_never_ends_is_refused() -> None:
    with pytest.raises(BadBatch):
        read_batch(b"\x08" + b"\xff" * 11, MOST)


def padded(number: int, more: int) -> bytes:
    """A length in more bytes than it needs."""
    return bytes((number | 0x80, *[0x80] * (more - 1), 0)) if more else bytes((number,))


@pytest.mark.parametrize("more", range(9))
def test_length_in_more_bytes_than_it_needs_is_not_passed_on(more: int) -> None:
    frames = (b"\x12" + padded(100, more) + b"x" * 100) * 10
    entry = wire.Messages(topic="a").SerializeToString() + frames
    data = b"\x12" + varint(len(entry)) + entry
    if more > 4:
        with pytest.raises(BadBatch):
            read_batch(data, MOST)
        return
    _, (read,) = read_batch(data, MOST)
    assert payloads_of(read) == [b"x" * 100] * 10
    assert read.count == (0 if more else 10)


@pytest.mark.parametrize("more", range(9))
def test_lengths_are_as_long_as_protobuf_takes_them(more: int) -> None:
    entry = wire.Messages(topic="a", payloads=[b"x"]).SerializeToString()
    data = b"\x12" + padded(len(entry), more) + entry
    if more > 4:
        with pytest.raises(BadBatch):
            read_batch(data, MOST)
    else:
        assert payloads_of(read_batch(data, MOST)[1][0]) == [b"x"]


def test_no_object_is_made_for_each_of_too_many_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Entry] = []
    monkeypatch.setattr(batches, "Entry", lambda rest: made.append(Entry(rest)) or made[-1])
    with pytest.raises(LongBatch):
        read_batch(b"\x78\x01" + b"\x12\x00" * 5_000, 10)
    assert len(made) == 11
