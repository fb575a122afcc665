"""Runs: where each payload lies, and what a part of a run keeps."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import Door, Properties
from penstock.runs import NEVER, Run, Shape
from tests.support.samples import make_run, payloads_of

FRAMED = Shape("framed", Door.MQTT, 0, retain=False, is_plain=True)


def framed_run(payloads: list[bytes], head: bytes = b"HEAD") -> Run:
    slab = b"".join(head + payload for payload in payloads)
    return Run("a", slab, len(head), len(head) + len(payloads[0]), len(payloads), FRAMED)


def test_a_payload_is_what_follows_the_head_of_its_frame() -> None:
    run = framed_run([b"one", b"two", b"six"])
    assert payloads_of(run) == [b"one", b"two", b"six"]


def test_a_payload_may_be_empty() -> None:
    assert framed_run([b""]).payload() == b""
    assert make_run("a", b"").payload() == b""


def test_a_part_has_the_stamps_of_its_first_message() -> None:
    run = make_run("a", b"x", b"y", b"z", sequence=7, offset=40, expires_at=9.0, client_id="c")
    part = run.part(1, 2)
    assert (part.sequence, part.offset, part.count) == (8, 41, 2)
    assert (part.expires_at, part.client_id, part.topic) == (9.0, "c", "a")
    assert payloads_of(part) == [b"y", b"z"]


def test_a_part_keeps_everything_that_was_sent_with_the_run() -> None:
    properties = Properties(content_type="text/plain")
    run = make_run("a", b"x", b"y", qos=1, ttl=5.0, properties=properties)
    run.packet_id, run.published_at = 3, 1_000
    part = run.part(1, 1)
    assert (part.shape, part.properties, part.ttl) == (run.shape, properties, 5.0)
    assert (part.packet_id, part.published_at) == (3, 1_000)


def test_a_part_that_is_everything_is_the_run_itself() -> None:
    run = make_run("a", b"x", b"y")
    assert run.part(0, 2) is run


@given(st.lists(st.binary(min_size=2, max_size=2), min_size=1, max_size=20), st.data())
def test_parts_hold_the_payloads_they_were_cut_from(payloads: list[bytes], data: st.DataObject) -> None:
    run = framed_run(payloads)
    run.sequence, run.offset = 100, 500
    first = data.draw(st.integers(0, len(payloads) - 1))
    count = data.draw(st.integers(1, len(payloads) - first))
    part = run.part(first, count)
    assert payloads_of(part) == payloads[first : first + count]
    assert (part.sequence, part.offset) == (100 + first, 500 + first)


def test_a_run_begins_without_stamps_and_without_end() -> None:
    run = make_run("a", b"x")
    assert (run.sequence, run.offset, run.published_at, run.expires_at) == (0, 0, 0, NEVER)


def test_properties_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Properties().content_type = "x"  # type: ignore[misc]


def test_properties_that_were_not_given_cost_nothing_on_the_way() -> None:
    assert msgspec.json.encode(Properties(message_id="m")) == b'{"message_id":"m"}'
