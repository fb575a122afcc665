"""Huffman coding of header text: the same result or the same refusal as another library, for any bytes."""

import pytest
from hpack.exceptions import HPACKDecodingError
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hpack.huffman_table import decode_huffman as decode_reference
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.wire.http2 import CompressionFault
from penstock.wire.http2.huffman import decode_huffman

ENCODER = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH)


@given(st.binary(max_size=80))
@example(bytes(range(256)))
def test_text_survives_its_coding(text: bytes) -> None:
    assert decode_huffman(ENCODER.encode(text)) == text


@settings(max_examples=1_000)
@given(
    st.binary(max_size=12) | st.lists(st.sampled_from([0xFF, 0xFE, 0xF8, 0x00, 0x1F]), max_size=6).map(bytes)
)
@example(b"\xff\xff\xff\xff")  # the end of string
@example(b"\xff")  # eight bits of padding
@example(b"\x07")  # a symbol of five bits, and padding
@example(b"\x00\x06")  # padding with a zero in it
def test_any_bytes_are_decoded_or_refused_as_by_another_library(data: bytes) -> None:
    try:
        expected: bytes | None = decode_reference(data)
    except HPACKDecodingError:
        expected = None
    try:
        found: bytes | None = decode_huffman(data)
    except CompressionFault:
        found = None
    assert found == expected


BAD = {
    "end of string": b"\xff\xff\xff\xff",
    "eight bits of padding": b"\x1f\xff",
    "padding with zeros": b"\x18",
    "cut within a long symbol": b"\xff\xe0",
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_what_no_coder_writes_is_refused(data: bytes) -> None:
    with pytest.raises(CompressionFault):
        decode_huffman(data)
