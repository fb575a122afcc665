"""Offsets of a stream, `{"cursor": "..."}`, and the places in the log that they stand for."""

from typing import Any

from msgspec import structs

from penstock.core.cursor import Cursor
from penstock.core.ports import Position
from penstock.errors import InvalidCursor

KEY = "cursor"


def offset_of(cursor: str) -> dict[str, Any]:
    """A cursor as Spark keeps it."""
    return {KEY: cursor}


def cursor_in(offset: dict[str, Any]) -> str:
    """The cursor that Spark kept.

    Raises:
        InvalidCursor: this is the offset of another source.
    """
    cursor = offset.get(KEY)
    if not isinstance(cursor, str):
        raise InvalidCursor(f"{offset} is no offset of this source: was the checkpoint made by another one?")
    return cursor


def position_of(cursor: str) -> Position:
    """The place in the log that a cursor means.

    Raises:
        InvalidCursor: it is none, or one of several logs.
    """
    positions = Cursor.decode(cursor).positions
    if len(positions) != 1:
        raise InvalidCursor("this cursor is of several logs")
    return positions[0]


def cursor_at(near: Position, offset: int) -> str:
    """The cursor of an offset that is not behind a place that is known, and is committed."""
    # A place says "at most what its epoch has committed": a later epoch says so of earlier offsets as well.
    return Cursor((structs.replace(near, offset=offset),)).encode()
