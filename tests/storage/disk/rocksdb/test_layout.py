"""Keys sort like their values, and can be decoded."""

import struct

import pytest

from penstock.storage.disk.rocksdb.layout import (
    COMMIT_KEY,
    FAMILIES,
    FIRST_OFFSET_KEY,
    offset_key,
    offset_of,
    pack_place,
    sequence_key,
    state_key,
    table_prefix,
    unpack_place,
)

NUMBERS = (0, 1, 255, 256, 65_535, 65_536, 1 << 40, (1 << 64) - 1)
TOPICS = ("a", "a/", "a/b", "a/b/c", "ab", "b", "ä/ö", "\U0001f600")


def test_offsets_come_back_from_their_keys() -> None:
    assert [offset_of(offset_key(number)) for number in NUMBERS] == list(NUMBERS)


def test_keys_sort_as_offsets_do() -> None:
    keys = [offset_key(number) for number in NUMBERS]
    assert keys == sorted(keys)


@pytest.mark.parametrize("number", [-1, 1 << 64])
def test_what_is_no_offset_has_no_key(number: int) -> None:
    with pytest.raises(struct.error):
        offset_key(number)


def test_the_sequences_of_a_topic_stand_together_and_in_order() -> None:
    keys = {(topic, number): sequence_key(topic, number) for topic in TOPICS for number in NUMBERS}
    order = sorted(keys, key=keys.__getitem__)
    for topic in TOPICS:
        places = [place for place, (name, _) in enumerate(order) if name == topic]
        assert [order[place][1] for place in places] == list(NUMBERS)
        assert places[-1] - places[0] == len(NUMBERS) - 1, f"{topic} is mixed with others"


def test_no_key_of_a_topic_begins_like_those_of_another() -> None:
    for topic in TOPICS:
        prefix = sequence_key(topic, 0)[:-8]
        others = [sequence_key(name, number) for name in TOPICS if name != topic for number in NUMBERS]
        assert not [key for key in others if key.startswith(prefix)]


def test_places_come_back_as_they_were() -> None:
    assert [unpack_place(pack_place(7, number)) for number in NUMBERS] == [(7, number) for number in NUMBERS]


def test_the_records_of_a_table_are_all_between_two_keys() -> None:
    names = ("a", "ab", "b", "sessions")
    clients = ("", "c", "\0", "ÿ", "\U0010ffff", "\udc80")
    for table in names:
        start, stop = table_prefix(table), table_prefix(table)[:-1] + b"\1"
        inside = {state_key(name, client) for name in names for client in clients}
        assert {key for key in inside if start <= key < stop} == {state_key(table, key) for key in clients}


def test_client_names_that_are_no_text_have_keys_of_their_own() -> None:
    names = ("\udc80", "\udc81", "\ud800", "?", "�")
    assert len({state_key("t", name) for name in names}) == len(names)


def test_what_the_log_knows_of_itself_is_no_record_of_anyone() -> None:
    assert COMMIT_KEY != FIRST_OFFSET_KEY
    assert {COMMIT_KEY[:5], FIRST_OFFSET_KEY[:5]} == {table_prefix("meta")}


def test_every_family_has_a_name_of_its_own() -> None:
    assert len(set(FAMILIES)) == len(FAMILIES)
