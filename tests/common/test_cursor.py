"""Cursors: text that says where a reader is, and nothing else is taken for one."""

import re
from base64 import urlsafe_b64encode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.common.cursor import Cursor, Position
from penstock.errors import InvalidCursor

log_ids = st.binary(min_size=8, max_size=8).map(bytes.hex)
positions = st.builds(Position, log_ids, st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))
cursors = st.builds(Cursor, st.lists(positions, min_size=1, max_size=4).map(tuple))
SAMPLE = Cursor((Position("00ff" * 4, 3, 1_234_567),))


@given(cursors)
def test_a_cursor_comes_back_as_it_was(cursor: Cursor) -> None:
    text = cursor.encode()
    assert Cursor.decode(text) == cursor
    assert re.fullmatch(r"[A-Za-z0-9_-]+", text), "it goes into a URL as it is"


def test_padding_that_a_client_added_is_overlooked() -> None:
    text = SAMPLE.encode()
    assert Cursor.decode(text + "=" * (-len(text) % 4)) == SAMPLE


def is_cursor(text: str) -> bool:
    """Decoding either works, and then exactly, or raises the one error."""
    try:
        cursor = Cursor.decode(text)
    except InvalidCursor:
        return False
    assert cursor.encode() == text.rstrip("=")
    return True


@given(
    st.one_of(st.text(), st.text("AQ_-=+/ \n"), st.binary().map(lambda raw: urlsafe_b64encode(raw).decode()))
)
@example("")
@example("=")
@example("A")
@example("AQ")
@example("\ud800")
@example("AQ==AQ==")
def test_any_text_is_a_cursor_or_refused_as_invalid(text: str) -> None:
    is_cursor(text)


@pytest.mark.parametrize("text", ["garbage", "AQ", "?", "Zm9vYmFy"])
def test_garbage_is_not_called_a_cursor_of_another_version(text: str) -> None:
    with pytest.raises(InvalidCursor, match=r"^not a cursor$"):
        Cursor.decode(text)


@pytest.mark.parametrize("length", range(len(SAMPLE.encode())))
def test_a_text_cut_short_is_refused(length: int) -> None:
    with pytest.raises(InvalidCursor):
        Cursor.decode(SAMPLE.encode()[:length])


@given(cursors, st.data())
def test_a_strange_character_anywhere_is_refused(cursor: Cursor, data: st.DataObject) -> None:
    text = cursor.encode()
    at = data.draw(st.integers(0, len(text)))
    strange = data.draw(st.sampled_from("+/ \n.%é\0"))
    with pytest.raises(InvalidCursor):
        Cursor.decode(text[:at] + strange + text[at:])


@pytest.mark.parametrize("version", [0, 2, 255])
def test_another_version_is_refused(version: int) -> None:
    packed = bytes((version,)) + bytes(20)
    with pytest.raises(InvalidCursor):
        Cursor.decode(urlsafe_b64encode(packed).decode().rstrip("="))


@pytest.mark.parametrize("size", [1, 19, 21, 39, 41])
def test_half_a_position_is_refused(size: int) -> None:
    with pytest.raises(InvalidCursor):
        Cursor.decode(urlsafe_b64encode(b"\x01" + bytes(size)).decode().rstrip("="))


def test_bits_that_mean_nothing_are_refused() -> None:
    text = Cursor((Position("00" * 8, 1, 1), Position("11" * 8, 1, 1))).encode()
    assert len(text) % 4, "the last character holds bits that are not used"
    loose = text[:-1] + chr(ord(text[-1]) + 1)
    with pytest.raises(InvalidCursor):
        Cursor.decode(loose)


def test_the_position_in_a_log_is_found_by_its_id() -> None:
    here, there = Position("aa" * 8, 1, 5), Position("bb" * 8, 2, 9)
    cursor = Cursor((here, there))
    assert cursor.position_in("bb" * 8) == there
    assert cursor.position_in("cc" * 8) is None
