"""Offsets as Spark keeps them, and the places they stand for."""

import pytest

from penstock.core.cursor import Cursor
from penstock.core.ports import Position
from penstock.errors import InvalidCursor
from penstock.pipeline.source.offsets import cursor_at, cursor_in, offset_of, position_of

PLACE = Position("ab" * 8, 3, 700)
CURSOR = Cursor((PLACE,)).encode()


def test_an_offset_is_a_cursor_and_nothing_else() -> None:
    assert offset_of(CURSOR) == {"cursor": CURSOR}
    assert cursor_in({"cursor": CURSOR}) == CURSOR


@pytest.mark.parametrize("offset", [{}, {"index": 3}, {"cursor": 3}])
def test_an_offset_of_another_source_is_refused(offset: dict[str, object]) -> None:
    with pytest.raises(InvalidCursor, match="made by another"):
        cursor_in(offset)


def test_a_place_nearby_is_of_the_same_log() -> None:
    assert position_of(cursor_at(PLACE, 12)) == Position("ab" * 8, 3, 12)


def test_a_cursor_of_several_logs_is_no_place() -> None:
    with pytest.raises(InvalidCursor, match="several"):
        position_of(Cursor((PLACE, Position("cd" * 8, 1, 1))).encode())
