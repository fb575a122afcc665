"""Messages rebuilt from rows of the log, and their properties."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.cursor import Cursor, Position
from penstock.spark.jobs.replay.messages import (
    COLUMNS,
    NAMES,
    PAIRS,
    SCHEMA,
    MessageBuilder,
    cursors_of,
    properties_of,
)

LOG_ID = "0102030405060708"
THEN = datetime(2026, 1, 31, 12, 0, 0, 250, tzinfo=UTC)
ROW: dict[str, Any] = {
    "offset": 7,
    "topic": "garden/pond",
    "sequence": 3,
    "epoch": 2,
    "published_at": THEN,
    "expires_at": None,
    "qos": 1,
    "retain": False,
    "payload": b"x",
    "content_type": None,
    "correlation_id": None,
    "message_id": None,
    "properties": None,
}
KINDS = {
    "published_at": pa.timestamp("us", "UTC"),
    "expires_at": pa.timestamp("us", "UTC"),
    "qos": pa.int8(),
    "content_type": pa.string(),
    "correlation_id": pa.binary(),
    "message_id": pa.string(),
    "properties": pa.map_(pa.string(), pa.string()),
}


def recast(*rows: dict[str, Any], prefix: str = "replay/", zone: str = "UTC") -> list[dict[str, Any]]:
    kinds = {**KINDS, "published_at": pa.timestamp("us", zone), "expires_at": pa.timestamp("us", zone)}
    full = [{**ROW, **row} for row in rows]
    batch = pa.record_batch(
        {name: pa.array([row[name] for row in full], kinds.get(name)) for name in COLUMNS}
    )
    how = MessageBuilder(prefix, LOG_ID, 4, (10, 20))
    (made,) = how.batches([batch.slice(0, 0), batch])
    assert made.schema == SCHEMA
    return [dict(row) for row in made.to_pylist()]


def pairs(message: dict[str, Any]) -> list[tuple[str, str]]:
    return [(pair["key"], pair["value"]) for pair in message["properties"]]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_a_message_says_what_it_was(zone: str) -> None:
    (message,) = recast({}, zone=zone)
    assert message["topic"] == "replay/garden/pond"
    assert (message["payload"], message["qos"], message["retain"], message["ttl_ms"]) == (
        b"x",
        1,
        False,
        None,
    )
    assert pairs(message) == [
        ("ps-original-topic", "garden/pond"),
        ("ps-original-time", "2026-01-31T12:00:00.000250Z"),
        ("ps-original-sequence", "3"),
        ("ps-original-epoch", "2"),
        ("ps-original-cursor", Cursor((Position(LOG_ID, 2, 7),)).encode()),
    ]


def test_what_a_message_had_it_keeps() -> None:
    own = [
        ("b", "1"),
        ("a", "2"),
        ("b", "3"),
        ("$$odd", "4"),
        ("$response_topic", "r"),
        ("$payload_format", "1"),
    ]
    (message,) = recast(
        {
            "properties": own,
            "content_type": "t",
            "correlation_id": b"c",
            "message_id": "m",
            "qos": 2,
            "retain": True,
        }
    )
    assert pairs(message)[:4] == [("b", "1"), ("a", "2"), ("b", "3"), ("$odd", "4")]
    assert [key for key, _ in pairs(message)[4:]] == [
        f"ps-original-{name}" for name in ("topic", "time", "sequence", "epoch", "cursor")
    ]
    assert (message["response_topic"], message["content_type"], message["message_id"]) == ("r", "t", "m")
    assert (message["correlation_id"], message["qos"], message["retain"]) == (b"c", 2, True)


def test_a_message_that_is_replayed_twice_says_what_it_was_the_last_time() -> None:
    (message,) = recast({"properties": [("ps-original-topic", "older"), ("a", "1")]}, prefix="more/")
    assert pairs(message)[:2] == [("a", "1"), ("ps-original-topic", "garden/pond")]


@pytest.mark.parametrize(("lifetime", "ttl_ms"), [(1.5, 1_500), (0.0001, 1), (None, None)])
def test_a_message_lives_as_long_as_it_did(lifetime: float | None, ttl_ms: int | None) -> None:
    expires = None if lifetime is None else THEN + timedelta(seconds=lifetime)
    message, other = recast({"expires_at": expires}, {})
    assert (message["ttl_ms"], other["ttl_ms"]) == (ttl_ms, None)


def test_each_message_is_of_the_slice_of_its_offset() -> None:
    made = recast({"offset": 1}, {"offset": 10}, {"offset": 11}, {"offset": 20})
    assert [message["slice"] for message in made] == [4, 4, 5, 5]


def test_times_are_told_in_utc_wherever_spark_is() -> None:
    when = THEN.astimezone(timezone(timedelta(hours=9)))
    (message,) = recast({"published_at": when})
    assert dict(pairs(message))["ps-original-time"] == "2026-01-31T12:00:00.000250Z"


OTHER_LOG_ID = "00fffefdfcfbfaf9"
PLACES = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**63 - 1))


@given(st.lists(PLACES, max_size=20))
def test_cursors_are_those_that_everybody_writes(places: list[tuple[int, int]]) -> None:
    epochs, offsets = (pa.array([place[each] for place in places], pa.int64()) for each in (0, 1))
    assert cursors_of(OTHER_LOG_ID, epochs, offsets).to_pylist() == [
        Cursor((Position(OTHER_LOG_ID, *place),)).encode() for place in places
    ]


@pytest.mark.parametrize(
    "own",
    [
        [None, None, None],
        [[("a", "1")], None, [("b", "2"), ("c", "3")]],
        [None, [("$response_topic", "r")], []],
        [[("a", "1"), ("a", "2")]] * 3,
    ],
)
def test_own_properties_come_first_and_each_row_has_its_own(own: list[list[tuple[str, str]] | None]) -> None:
    rows = len(own)
    batch = pa.record_batch(
        {
            "topic": pa.array([f"t{row}" for row in range(rows)]).dictionary_encode(),
            "published_at": pa.array([datetime(2026, 1, 1 + row, tzinfo=UTC) for row in range(rows)]),
            "sequence": pa.array(range(10, 10 + rows), pa.int64()),
            "epoch": pa.array(range(1, 1 + rows), pa.int64()),
            "offset": pa.array(range(100, 100 + rows), pa.int64()),
            "properties": pa.array(own, pa.map_(pa.string(), pa.string())),
        }
    )
    responses, properties = properties_of(batch, OTHER_LOG_ID)
    assert properties.type == PAIRS
    for row, (pairs, kept) in enumerate(zip(properties.to_pylist(), own, strict=True)):
        texts = [(pair["key"], pair["value"]) for pair in pairs]
        mine = [pair for pair in kept or [] if pair[0] != "$response_topic"]
        assert texts[: len(mine)] == mine
        assert texts[len(mine) :] == list(
            zip(
                NAMES,
                (
                    f"t{row}",
                    f"2026-01-0{1 + row}T00:00:00.000000Z",
                    str(10 + row),
                    str(1 + row),
                    Cursor((Position(OTHER_LOG_ID, 1 + row, 100 + row),)).encode(),
                ),
                strict=True,
            )
        )
        assert responses[row].as_py() == dict(kept or []).get("$response_topic")
