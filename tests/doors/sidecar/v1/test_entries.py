"""What an entry of a batch costs before it is published: as much as it has bytes, and not more."""

from collections.abc import Sequence
from typing import Any

import pytest

from penstock.common.topics import TopicLimits
from penstock.core.publishing.properties import check_properties
from penstock.core.settings import CoreSettings
from penstock.doors.sidecar.v1 import entries
from penstock.doors.sidecar.v1.entries import carried_bytes
from penstock.errors import InvalidRequest, TooLarge
from penstock.model import Properties
from penstock.runs import Run
from penstock.wire.sidecar.batches import Entry, read_batch
from penstock.wire.sidecar.messages.penstock import Messages, Property, PublishBatch
from tests.doors.sidecar.v1 import people
from tests.doors.sidecar.v1.people import Caller
from tests.support.steps import take_all

MOST = 10_000
SETTINGS = CoreSettings()


def read(messages: Messages) -> Entry:
    _, (entry,) = take_all(read_batch(PublishBatch(messages=[messages]).SerializeToString(), MOST))
    return entry


def runs_of(entry: Entry, settings: CoreSettings) -> list[Run]:
    return take_all(entries.runs_of(entry, settings))


def ids(count: int) -> list[str]:
    return [f"id-{number}" for number in range(count)]


def test_what_messages_with_ids_share_is_looked_at_once_and_not_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pairs: list[int] = []

    def check(properties: Properties, limits: TopicLimits) -> list[int]:
        pairs.append(len(properties.user))
        return check_properties(properties, limits)

    monkeypatch.setattr(entries, "check_properties", check)
    shared = [Property(name="a", value="b")] * 1_000
    runs = runs_of(
        read(Messages(topic="a", payloads=[b"x"] * 50, message_ids=ids(50), user_properties=shared)), SETTINGS
    )
    assert [run.properties.message_id for run in runs if run.properties] == ids(50)
    assert {len(run.properties.user) for run in runs if run.properties} == {1_000}
    assert sum(pairs) == 2_000


@pytest.mark.parametrize("wrong", ["", "x" * 257, "a\0b"])
def test_every_id_of_an_entry_is_looked_at(wrong: str) -> None:
    given = [*ids(3), wrong, *ids(3)]
    with pytest.raises(InvalidRequest):
        runs_of(read(Messages(topic="a", payloads=[b"x"] * 7, message_ids=given)), SETTINGS)


def test_longest_id_counts_among_what_travels_with_a_payload() -> None:
    room = 65_535 - 256
    fields: dict[str, Any] = {"topic": "a", "payloads": [b"x"] * 3, "correlation_id": b"c" * room}
    given = ["1", "2" * 256, "3"]
    assert len(runs_of(read(Messages(**fields, message_ids=given)), SETTINGS)) == 3
    fields["correlation_id"] = b"c" * (room + 1)
    with pytest.raises(TooLarge):
        runs_of(read(Messages(**fields, message_ids=given)), SETTINGS)


def test_pairs_beyond_number_are_refused_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(*_: object, **__: object) -> Properties:
        raise AssertionError("they were read")

    monkeypatch.setattr(entries, "Properties", make)
    with pytest.raises(TooLarge):
        runs_of(read(Messages(topic="a", payloads=[b"x"], user_properties=[Property()] * 14_000)), SETTINGS)


@pytest.mark.parametrize(("payloads", "messages"), [((b"x",), 1), ((b"x", b"y", b"zz"), 3)])
def test_what_is_carried_counts_for_each_message(payloads: Sequence[bytes], messages: int) -> None:
    given = Messages(
        topic="a",
        payloads=payloads,
        content_type="1234",
        response_topic="12",
        correlation_id=b"123",
        user_properties=[Property(name="1", value="23")],
    )
    assert carried_bytes(runs_of(read(given), SETTINGS)) == messages * (4 + 2 + 3 + 3 + 5)
    assert carried_bytes(runs_of(read(Messages(topic="a", payloads=payloads)), SETTINGS)) == 0


async def test_batch_whose_messages_would_carry_far_more_than_it_has_is_refused(caller: Caller) -> None:
    many = people.entry("a", *[b"x"] * 4_500, correlation_id=b"c" * 5_000)
    publisher = caller.publish()
    ack = await publisher.send(many, many, people.entry("b", *[b"x"] * 1_000, correlation_id=b"c" * 5_000))
    assert [(place.index, place.sequence) for place in ack.placed] == [(0, 1), (2, 1)]
    assert [(refusal.index, refusal.code) for refusal in ack.refusals] == [(1, "too-large")]
    await publisher.end()
