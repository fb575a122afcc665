"""Cursors: text that says where a reader is, and nothing else is taken for one."""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import msgpack

from penstock.common.cursor import MAX_CHARACTERS, MAX_SHARDS, Cursor, Position
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
        cursor = Cursor.decode(text, shards=None)
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


# Several shards

CLUSTER = "c1" * 8
NOON = 1_795_003_200


@st.composite
def sharded_cursors(draw: st.DrawFn) -> Cursor:
    shards = draw(st.integers(2, MAX_SHARDS))
    named = sorted(draw(st.sets(st.integers(0, shards - 1), min_size=1)))
    log_id = draw(log_ids)
    edges = st.sampled_from([0, 1, 127, 128, 2**32 - 1])
    places = [
        Position(log_id, draw(edges), draw(st.one_of(edges, st.integers(0, 2**64 - 1))), shard)
        for shard in named
    ]
    return Cursor.of_shards(log_id, shards, places, draw(st.integers(0, 2**40 - 1)))


def cursor_of(shards: int, *named: int, offset: int = 10**10) -> Cursor:
    """A cursor with positions in these shards, or in all."""
    places = [Position(CLUSTER, 100, offset, shard) for shard in named or range(shards)]
    return Cursor.of_shards(CLUSTER, shards, places, NOON)


def packed_text(packed: bytes) -> str:
    return urlsafe_b64encode(packed).decode().rstrip("=")


def packed_of(cursor: Cursor) -> bytes:
    text = cursor.encode()
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


@given(sharded_cursors())
def test_a_cursor_of_several_shards_comes_back_as_it_was(cursor: Cursor) -> None:
    text = cursor.encode()
    assert Cursor.decode(text, cursor.shards) == Cursor.decode(text, None) == cursor
    assert re.fullmatch(r"[A-Za-z0-9_-]+", text), "it goes into a URL as it is"
    assert len(text) <= MAX_CHARACTERS


def test_one_shard_has_the_text_of_version_1_byte_for_byte() -> None:
    text = "AQD_AP8A_wD_AAAAAwAAAAAAEtaH"
    assert SAMPLE.encode() == text
    assert Cursor.of_shards("00ff" * 4, 1, SAMPLE.positions, NOON).encode() == text
    assert Cursor.decode(text) == SAMPLE


@pytest.mark.parametrize("shards", [2, 16, 64, None])
def test_a_cursor_from_before_the_cluster_is_read_by_any_number_of_shards(shards: int | None) -> None:
    assert Cursor.decode(SAMPLE.encode(), shards) == SAMPLE
    assert SAMPLE.position_in("00ff" * 4, 0) == SAMPLE.positions[0]
    assert SAMPLE.position_in("00ff" * 4, 1) is None


def test_texts_of_version_2_never_change() -> None:
    assert cursor_of(2).encode() == "AsHBwcHBwcHBAWSAyK-gJWSAyK-gJQ"
    assert cursor_of(16, 3, 15).encode() == "AsHBwcHBwcHBjwiAwKb21wZkgMivoCVkgMivoCU"


@pytest.mark.parametrize(("shards", "first", "second"), [(16, 428, 143), (64, 1_708, 535)])
def test_version_2_is_a_third_as_long(shards: int, first: int, second: int) -> None:
    full = cursor_of(shards, offset=2**35 - 1)  # epochs below 128, and 34 billion messages in each shard
    assert len(Cursor(full.positions).encode()) == first
    assert len(full.encode()) <= second
    assert len(full.encode()) == {16: 142, 64: 526}[shards]
    assert len(cursor_of(shards, 5, offset=2**35 - 1).encode()) <= 39, "of a reader of one shard"


def test_the_second_counts_only_where_a_shard_is_missing() -> None:
    assert cursor_of(16, 1).made_at == NOON
    assert cursor_of(16).made_at == 0


@pytest.mark.parametrize("shards", [1, 15, 17])
def test_a_cursor_of_another_number_of_shards_is_refused(shards: int) -> None:
    with pytest.raises(InvalidCursor, match=rf"^a cursor of 16 shards; this server has {shards}$"):
        Cursor.decode(cursor_of(16).encode(), shards)


def test_a_server_of_today_refuses_cursors_of_several_shards() -> None:
    with pytest.raises(InvalidCursor) as refused:
        Cursor.decode(cursor_of(16).encode())
    assert refused.value.code == "invalid-cursor"


def test_the_position_in_a_shard_is_found() -> None:
    cursor = cursor_of(16, 3, 15)
    found = cursor.position_in(CLUSTER, 15)
    assert found is not None and (found.shard, found.epoch, found.offset) == (15, 100, 10**10)
    assert cursor.position_in(CLUSTER, 4) is None
    assert cursor.position_in("aa" * 8, 3) is None


@pytest.mark.parametrize("cursor", [cursor_of(16), cursor_of(12, 0, 11)], ids=["all", "some"])
def test_a_cursor_of_several_shards_cut_short_or_too_long_is_refused(cursor: Cursor) -> None:
    packed = packed_of(cursor)
    for size in range(len(packed)):
        with pytest.raises(InvalidCursor):
            Cursor.decode(packed_text(packed[:size]), None)
    with pytest.raises(InvalidCursor):
        Cursor.decode(packed_text(packed + b"\0"), None)


HEAD = b"\2" + bytes.fromhex(CLUSTER)
ENTRY = b"\1\5"


@pytest.mark.parametrize(
    "packed",
    [
        pytest.param(HEAD + b"\0" + ENTRY, id="one shard has version 1"),
        pytest.param(HEAD + b"\x40" + ENTRY * 65, id="65 shards"),
        pytest.param(HEAD + b"\x81\0\5", id="no shard"),
        pytest.param(HEAD + b"\x81\3\5" + ENTRY * 2, id="all shards in a bitmap"),
        pytest.param(HEAD + b"\x81\4\5" + ENTRY, id="shard 2 of 2"),
        pytest.param(HEAD + b"\x81\x81\5" + ENTRY * 2, id="a bit behind the last shard"),
        pytest.param(HEAD + b"\x81\1\x85\0" + ENTRY, id="second not in its shortest form"),
        pytest.param(HEAD + b"\x81\1\x80\x80\x80\x80\x80\x40" + ENTRY, id="second of 41 bits"),
        pytest.param(HEAD + b"\1" + ENTRY + b"\x81\0\5", id="epoch not in its shortest form"),
        pytest.param(HEAD + b"\1" + ENTRY + b"\1\x85\x80\0", id="offset not in its shortest form"),
        pytest.param(HEAD + b"\1" + ENTRY + b"\x80\x80\x80\x80\x10\5", id="epoch of 33 bits"),
        pytest.param(HEAD + b"\1" + ENTRY + b"\1" + b"\x80" * 9 + b"\2", id="offset of 65 bits"),
        pytest.param(HEAD + b"\1" + ENTRY + b"\1" + b"\x80" * 40, id="a number without an end"),
        pytest.param(HEAD + b"\1" + ENTRY, id="a shard too few"),
        pytest.param(HEAD + b"\1" + ENTRY * 3, id="a shard too many"),
    ],
)
def test_a_form_that_no_server_writes_is_refused(packed: bytes) -> None:
    with pytest.raises(InvalidCursor, match=r"^not a cursor$"):
        Cursor.decode(packed_text(packed), None)


def test_the_sound_neighbours_of_these_forms_are_read() -> None:
    for packed in (HEAD + b"\1" + ENTRY * 2, HEAD + b"\x81\2\5" + ENTRY, HEAD + b"\x3f" + ENTRY * 64):
        assert is_cursor(packed_text(packed))


@given(sharded_cursors(), st.data())
def test_a_damaged_byte_is_refused_or_another_cursor(cursor: Cursor, data: st.DataObject) -> None:
    packed = bytearray(packed_of(cursor))
    packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    is_cursor(packed_text(bytes(packed)))


@pytest.mark.parametrize("more", [1, 10_000_000])
def test_a_text_that_is_too_long_is_refused_before_it_is_decoded(more: int) -> None:
    with pytest.raises(InvalidCursor):
        Cursor.decode("A" * (MAX_CHARACTERS + more), None)


@pytest.mark.parametrize(
    ("shards", "places", "made_at"),
    [
        (0, [Position(CLUSTER, 1, 1)], NOON),
        (65, [Position(CLUSTER, 1, 1)], NOON),
        (4, [], NOON),
        (4, [Position(CLUSTER, 1, 1, 4)], NOON),
        (4, [Position(CLUSTER, 1, 1, -1)], NOON),
        (4, [Position(CLUSTER, 1, 1, 2), Position(CLUSTER, 1, 1, 1)], NOON),
        (4, [Position(CLUSTER, 1, 1, 1), Position(CLUSTER, 1, 1, 1)], NOON),
        (4, [Position("aa" * 8, 1, 1)], NOON),
        (4, [Position(CLUSTER, 2**32, 1)], NOON),
        (4, [Position(CLUSTER, 1, 2**64)], NOON),
        (4, [Position(CLUSTER, 1, -1)], NOON),
        (4, [Position(CLUSTER, 1, 1)], -1),
        (4, [Position(CLUSTER, 1, 1)], 2**40),
    ],
)
def test_a_cursor_that_could_not_be_read_is_not_made(
    shards: int, places: list[Position], made_at: int
) -> None:
    with pytest.raises(ValueError):
        Cursor.of_shards(CLUSTER, shards, places, made_at)


def test_stored_positions_of_one_shard_are_those_of_earlier_servers() -> None:
    stored = msgpack.encode({"log_id": "aa" * 8, "epoch": 1, "offset": 5})
    assert msgpack.encode(Position("aa" * 8, 1, 5)) == stored
    assert msgpack.decode(stored, type=Position) == Position("aa" * 8, 1, 5)
