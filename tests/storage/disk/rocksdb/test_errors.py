"""Search for the first readable key after damage."""

import pytest

from penstock.storage.disk.rocksdb.errors import next_readable


@pytest.mark.parametrize(
    ("key", "end"),
    [
        (b"", b"\x00\x01"),
        (b"", b"m"),
        (b"a", b"a\x00\x00\x00\x00\x00\x00\x00\x05"),
        (b"a", b"b"),
        (bytes(7) + b"\x05", bytes(7) + b"\x06"),
        (bytes(7) + b"\x05", bytes(6) + b"\x01\x00"),
        (bytes(7) + b"\x05\x00", bytes(3) + b"\x01" + bytes(4)),
        (b"table\0a-long-name-of-a-session", b"table\0a-long-name-of-b"),
        (b"", b"sessions\0a-long-name-that-all-have-in-common-5"),
        (b"sessions\0", b"sessions\0a-long-name-that-all-have-in-common-5"),
    ],
)
def test_the_end_of_the_damage_is_found_exactly(key: bytes, end: bytes) -> None:
    asked: list[bytes] = []

    def can_seek(place: bytes) -> bool:
        asked.append(place)
        return place >= end

    found = next_readable(can_seek, key)
    assert found is not None
    assert found.rstrip(b"\0") == end.rstrip(b"\0")
    assert all(place > key for place in asked)
    assert len(asked) < 1_000


def test_the_last_key_of_the_damage_may_be_all_that_is_known_of_its_end() -> None:
    """A block of a table is known by a key that is not below its last; what is behind that can be read."""
    last = b"sessions\0a-name"
    for key in (b"", b"sessions", b"sessions\0", b"sessions\0a", last[:-1]):
        found = next_readable(lambda place: place > last, key)
        assert found is not None
        assert last < found <= last + bytes(16)


def test_damage_up_to_the_last_key_returns_none() -> None:
    assert next_readable(lambda _place: False, b"abc") is None
