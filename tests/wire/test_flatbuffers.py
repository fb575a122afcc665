"""Fields of FlatBuffers tables, found or refused."""

import struct

import pytest

from penstock.errors import WireError
from penstock.wire.flatbuffers import find_field, follow, layout_error

SLOTS = struct.pack("<4H", 8, 12, 4, 0)  # of a table with two fields, the second of which it lacks
TABLE = len(SLOTS)
DATA = SLOTS + struct.pack("<iI", TABLE, 77)


def test_a_field_is_where_its_slot_says() -> None:
    place = find_field(DATA, TABLE, 4)
    assert struct.unpack_from("<I", DATA, place) == (77,)


@pytest.mark.parametrize("slot", [6, 8, 100])
def test_a_field_that_a_table_lacks_is_nowhere(slot: int) -> None:
    assert find_field(DATA, TABLE, slot) == 0


def test_slots_before_the_first_byte_are_refused() -> None:
    with pytest.raises(WireError):
        find_field(struct.pack("<iI", 4, 0), 0, 4)


@pytest.mark.parametrize("distance", [-1000, -(2**31)])
def test_slots_behind_the_last_byte_are_an_error_of_the_layout(distance: int) -> None:
    with pytest.raises(layout_error):
        find_field(struct.pack("<iI", distance, 0), 0, 4)


def test_a_reference_counts_from_where_it_stands() -> None:
    assert follow(bytes(4) + struct.pack("<I", 6), 4) == 10


def test_nothing_refers_to_nothing() -> None:
    with pytest.raises(WireError):
        follow(DATA, 0)
