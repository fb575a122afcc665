"""Tables as FlatBuffers lay them out: enough to find a field in one.

A table begins with the distance back to its slots, which say where in it each field is. Nothing is believed
of the bytes but that they are there: a place may be anywhere among them, and what is found there may be
anything. Whoever reads beyond their end gets `layout_error`.
"""

from struct import Struct as Layout
from struct import error as layout_error

from penstock.errors import WireError

__all__ = ["LENGTH", "PLACE", "find_field", "follow", "layout_error"]

PLACE = Layout("<I")
"""How far away something is, or how many of something there are."""
LENGTH = Layout("<q")
_BACK = Layout("<i")
_SLOT = Layout("<H")


def follow(data: bytes, place: int) -> int:
    """Where something is that a place refers to.

    Raises:
        WireError: there is no such place.
    """
    if not place:
        raise WireError("a message of an Arrow stream lacks something")
    return place + int(PLACE.unpack_from(data, place)[0])


def find_field(data: bytes, table: int, slot: int) -> int:
    """Where a field of a table is; 0 if it has none.

    Raises:
        WireError: this is no table.
    """
    slots = table - int(_BACK.unpack_from(data, table)[0])
    if slots < 0:
        raise WireError("not a message of an Arrow stream")
    if slot >= _SLOT.unpack_from(data, slots)[0]:
        return 0
    offset = int(_SLOT.unpack_from(data, slots + slot)[0])
    return table + offset if offset else 0
