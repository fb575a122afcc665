"""What may travel with a payload: measured, and refused if some door could not pass it on."""

import pytest

from penstock.common.topics import TopicLimits
from penstock.core.publishing.properties import MAX_TEXTS_BYTES, PAIR_BYTES, check_properties
from penstock.errors import InvalidRequest, InvalidTopic, PenstockError, TooLarge
from penstock.model import Properties


def test_every_part_is_measured_in_bytes() -> None:
    properties = Properties("ä", b"\0\1\2", "r/t", None, "id", (("k", "vw"), ("", "€")))
    assert sorted(check_properties(properties, TopicLimits())) == sorted([2, 3, 3, 2, 1, 2, 0, 3])


def test_nothing_has_no_parts() -> None:
    assert check_properties(Properties(), TopicLimits()) == []


@pytest.mark.parametrize(
    ("properties", "error"),
    [
        (Properties(content_type="a\0b"), InvalidRequest),
        (Properties(user=(("k\0", "v"),)), InvalidRequest),
        (Properties(message_id="a\0b"), InvalidRequest),
        (Properties(content_type="\ud800"), InvalidRequest),
        (Properties(message_id="\ud800"), InvalidRequest),
        (Properties(message_id=""), InvalidRequest),
        (Properties(message_id="ä" * 129), InvalidRequest),
        (Properties(response_topic="a/#"), InvalidTopic),
        (Properties(response_topic=""), InvalidTopic),
        (Properties(content_type="x" * MAX_TEXTS_BYTES, user=(("k", ""),)), TooLarge),
        (Properties(content_type="x" * MAX_TEXTS_BYTES, correlation_id=b"x"), TooLarge),
    ],
)
def test_what_some_door_could_not_pass_on_is_refused(
    properties: Properties, error: type[PenstockError]
) -> None:
    with pytest.raises(error):
        check_properties(properties, TopicLimits())


def test_as_much_as_mqtt_has_room_for_is_taken() -> None:
    assert sum(check_properties(Properties("x" * MAX_TEXTS_BYTES), TopicLimits())) == MAX_TEXTS_BYTES


def test_pairs_count_even_if_they_say_nothing() -> None:
    most = MAX_TEXTS_BYTES // PAIR_BYTES
    check_properties(Properties(user=(("", ""),) * most), TopicLimits())
    with pytest.raises(TooLarge):
        check_properties(Properties(user=(("", ""),) * (most + 1)), TopicLimits())
