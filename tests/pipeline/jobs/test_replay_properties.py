"""Properties of replayed messages, made for many rows at once, are those of each row for itself."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.cursor import Cursor
from penstock.core.ports import Position
from penstock.pipeline.jobs.replay.properties import NAMES, PAIRS, cursors_of, properties_of

LOG_ID = "00fffefdfcfbfaf9"
PLACES = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**63 - 1))


@given(st.lists(PLACES, max_size=20))
def test_cursors_are_those_that_everybody_writes(places: list[tuple[int, int]]) -> None:
    epochs, offsets = (pa.array([place[each] for place in places], pa.int64()) for each in (0, 1))
    assert cursors_of(LOG_ID, epochs, offsets).to_pylist() == [
        Cursor((Position(LOG_ID, *place),)).encode() for place in places
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
    responses, properties = properties_of(batch, LOG_ID)
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
                    Cursor((Position(LOG_ID, 1 + row, 100 + row),)).encode(),
                ),
                strict=True,
            )
        )
        assert responses[row].as_py() == dict(kept or []).get("$response_topic")
