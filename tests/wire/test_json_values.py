"""Payloads inside JSON: every payload has a value, and the value gives it back.

JSON lines: values are cut where lines end, and nowhere else.
"""

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from penstock.errors import InvalidPayload
from penstock.wire.json_values import encode_value, lines_of, payload_of, read_value, value_of


@pytest.mark.parametrize(
    "payload",
    [
        b"null",
        b"17",
        b"-0.5e3",
        b'"text"',
        b'["a", 1]',
        b'{"a":{"$bytes":"x"}}',
        '"Zoë"'.encode(),
        b'"\\u00eb"',
    ],
)
def test_json_stands_there_as_it_is(payload: bytes) -> None:
    assert bytes(value_of(payload)) == payload
    assert payload_of(value_of(payload)) == payload


@pytest.mark.parametrize(
    ("value", "payload", "is_json"),
    [
        (b'{"a":1}', b'{"a":1}', True),
        (b"{}", b"{}", True),
        (b'"$bytes"', b'"$bytes"', True),
        (b'{"$bytes":"YQ==","a":1}', b'{"$bytes":"YQ==","a":1}', True),
        (b'{"$bytes":"YQ=="}', b"a", False),
        (b'{"\\u0024bytes":"e30="}', b"{}", False),
    ],
)
def test_payload_is_the_json_itself_unless_it_says_bytes(value: bytes, payload: bytes, is_json: bool) -> None:
    assert read_value(Raw(value)) == (payload, is_json)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"hello",
        b"\x00\xff",
        b'"\xff"',
        b"[1,]",
        b"1 2",
        b"NaN",
        b"01",
        b'"a\tb"',
        b"[" * 100_000 + b"]" * 100_000,
    ],
)
def test_anything_else_is_base64(payload: bytes) -> None:
    value = json.loads(bytes(value_of(payload)))
    assert list(value) == ["$bytes"]
    assert payload_of(value_of(payload)) == payload


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"hello",
        "föhn 🎉".encode(),
        b"a\tb\r\n",
        b"1 2",
        b"NaN",
        b'"\\ud800 alone"',
        b'{"$bytes":"aGk="}',
    ],
)
def test_text_is_a_string_with_an_encoding_beside_it(payload: bytes) -> None:
    value, encoding = encode_value(payload)
    assert (json.loads(bytes(value)), encoding) == (payload.decode(), "text")
    assert b"\n" not in bytes(value)
    assert payload_of(value, encoding) == payload


@pytest.mark.parametrize("payload", [b"\x00\xff", b"\xff", b"\x01\x02", b"a\x00b", b"\x7f"])
def test_bytes_are_not_taken_for_text(payload: bytes) -> None:
    assert encode_value(payload) == (value_of(payload), None)
    assert list(json.loads(bytes(value_of(payload)))) == ["$bytes"]


@pytest.mark.parametrize("payload", [b'"x"', b"17", b'{"a": 1}', b" null\n"])
def test_json_has_no_encoding(payload: bytes) -> None:
    assert encode_value(payload) == (value_of(payload), None)


@given(st.binary(max_size=20) | st.text(max_size=20).map(str.encode))
def test_every_payload_comes_back(payload: bytes) -> None:
    value, encoding = encode_value(payload)
    is_json = encoding is None and not bytes(value).startswith(b'{"$bytes"')
    expected = payload.strip().translate(None, b"\r\n") if is_json else payload
    assert payload_of(value, encoding) == expected


@pytest.mark.parametrize("value", [b"1", b"{}", b'"\xff"', b'"'])
def test_a_text_that_is_not_a_string_is_refused(value: bytes) -> None:
    with pytest.raises(InvalidPayload, match="JSON string"):
        payload_of(Raw(value), "text")


def test_half_a_character_is_base64() -> None:
    payload = b'"\\ud800 alone"'
    assert bytes(value_of(payload)).startswith(b'{"$bytes"')
    assert payload_of(value_of(payload)) == payload


@pytest.mark.parametrize("payload", [b"1e999", b"9" * 5_000, b"[1.0000000000000000000000001]", b"-0"])
def test_a_number_stands_there_as_it_was_written(payload: bytes) -> None:
    assert bytes(value_of(payload)) == payload
    assert payload_of(value_of(payload)) == payload


def test_to_look_at_json_builds_nothing_of_it() -> None:
    payload = b"[" + b",".join([b"[]"] * 100_000) + b"]"
    tracemalloc.start()
    try:
        value_of(payload)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 3 * len(payload)


@pytest.mark.parametrize("payload", [b'{"$bytes":"aGk="}', b'{"\\u0024bytes":"aGk="}', b'{ "$bytes" : 1 }'])
def test_json_that_would_mean_bytes_is_base64_itself(payload: bytes) -> None:
    assert payload_of(value_of(payload)) == payload
    assert bytes(value_of(payload)) != payload


@pytest.mark.parametrize("payload", [b' {"a": 1} ', b'{\n  "a": 1\n}\n', b'{"a":\r\n1}'])
def test_values_hold_no_line_ends_and_mean_the_same(payload: bytes) -> None:
    value = bytes(value_of(payload))
    assert b"\n" not in value and b"\r" not in value
    assert json.loads(value) == {"a": 1}


def test_line_ends_inside_texts_stay() -> None:
    assert json.loads(bytes(value_of(b'[\n"a\\nb"\n]'))) == ["a\nb"]


def test_bytes_are_read_out_of_base64() -> None:
    assert payload_of(Raw(b'{"$bytes": "AP8="}')) == b"\x00\xff"
    assert payload_of(Raw(b'{"$bytes": ""}')) == b""
    assert payload_of(Raw(b'{"\\u0024bytes": "AP8="}')) == b"\x00\xff"


def test_an_object_with_more_than_bytes_is_json() -> None:
    value = b'{"$bytes":"AP8=","and":1}'
    assert payload_of(Raw(value)) == value


@pytest.mark.parametrize(
    "value", [b'{"$bytes":"A"}', b'{"$bytes":"AP8 ="}', b'{"$bytes":17}', b'{"$bytes":"\xc3\xab"}']
)
def test_bytes_that_are_no_base64_are_refused(value: bytes) -> None:
    with pytest.raises(InvalidPayload, match="base64"):
        payload_of(Raw(value))


def test_json_that_is_no_utf8_is_refused() -> None:
    with pytest.raises(InvalidPayload, match="UTF-8"):
        payload_of(Raw(b'"\xff"'))


@given(st.binary())
def test_any_payload_comes_back(payload: bytes) -> None:
    value = value_of(payload)
    json.loads(bytes(value))
    assert payload_of(value) in (payload, payload.strip())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just("$bytes"), inner),
    max_leaves=10,
)


@given(JSON, st.sampled_from([None, 1]))
def test_any_json_means_the_same_inside_json(value: object, indent: int | None) -> None:
    payload = json.dumps(value, indent=indent, ensure_ascii=False).encode("utf-8", "surrogatepass")
    assert json.loads(payload_of(value_of(payload)).decode("utf-8", "surrogatepass")) == value


def test_an_object_that_also_holds_bytes_is_left_as_it_is_however_many_keys_it_has() -> None:
    keys = b",".join(b'"%d":0' % number for number in range(100_000))
    value = b'{"$bytes":"",%b}' % keys
    tracemalloc.start()
    try:
        assert payload_of(Raw(value)) == value
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * len(value)  # the payload, and no object for any key


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", []),
        (b"\n\r\n  \n", []),
        (b"{}", [(1, b"{}")]),
        (b"{}\n", [(1, b"{}")]),
        (b'{"a":1}\r\n\r\n {"b":2} ', [(1, b'{"a":1}'), (3, b'{"b":2}')]),
        (b'"\\n"\n"\xe2\x80\xa8"\n"\x0b"', [(1, b'"\\n"'), (2, b'"\xe2\x80\xa8"'), (3, b'"\x0b"')]),
        (b"[1,\n2]", [(1, b"[1,"), (2, b"2]")]),
    ],
)
def test_each_line_that_is_not_blank_is_a_value(body: bytes, expected: list[tuple[int, bytes]]) -> None:
    assert list(lines_of(body)) == expected
