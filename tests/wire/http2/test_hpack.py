"""Header blocks: the examples of RFC 7541, and agreement with another library on good and bad ones.

Huffman coding of header text: the same result or the same refusal as another library, for any bytes.
"""

import hpack
import pytest
from hpack.exceptions import HPACKDecodingError
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hpack.huffman_table import decode_huffman as decode_reference
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.wire.http2 import CompressionFault, ErrorCode, Field, encode_headers
from penstock.wire.http2.errors import ConnectionFault
from penstock.wire.http2.hpack import EMPTY_TABLE, FLOOD_FACTOR, Decoder
from penstock.wire.http2.hpack_tables import decode_huffman
from tests.support.examples import examples

LIMIT_BYTES = 16_384

REQUESTS = [
    [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/"), (b":authority", b"www.example.com")],
    [
        (b":method", b"GET"),
        (b":scheme", b"http"),
        (b":path", b"/"),
        (b":authority", b"www.example.com"),
        (b"cache-control", b"no-cache"),
    ],
    [
        (b":method", b"GET"),
        (b":scheme", b"https"),
        (b":path", b"/index.html"),
        (b":authority", b"www.example.com"),
        (b"custom-key", b"custom-value"),
    ],
]
RESPONSES = [
    [
        (b":status", b"302"),
        (b"cache-control", b"private"),
        (b"date", b"Mon, 21 Oct 2013 20:13:21 GMT"),
        (b"location", b"https://www.example.com"),
    ],
    [
        (b":status", b"307"),
        (b"cache-control", b"private"),
        (b"date", b"Mon, 21 Oct 2013 20:13:21 GMT"),
        (b"location", b"https://www.example.com"),
    ],
    [
        (b":status", b"200"),
        (b"cache-control", b"private"),
        (b"date", b"Mon, 21 Oct 2013 20:13:22 GMT"),
        (b"location", b"https://www.example.com"),
        (b"content-encoding", b"gzip"),
        (b"set-cookie", b"foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"),
    ],
]
APPENDIX_C: dict[str, tuple[list[str], list[list[Field]]]] = {
    "C.2.1 literal with indexing": (
        ["400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572"],
        [[(b"custom-key", b"custom-header")]],
    ),
    "C.2.2 literal without indexing": (
        ["040c 2f73 616d 706c 652f 7061 7468"],
        [[(b":path", b"/sample/path")]],
    ),
    "C.2.3 literal never indexed": (
        ["1008 7061 7373 776f 7264 0673 6563 7265 74"],
        [[(b"password", b"secret")]],
    ),
    "C.2.4 indexed": (["82"], [[(b":method", b"GET")]]),
    "C.3 requests": (
        [
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ],
        REQUESTS,
    ),
    "C.4 requests with Huffman coding": (
        [
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ],
        REQUESTS,
    ),
}
"""Blocks in their order, and what they decode to. The responses have a table of their own below."""
RESPONSE_BLOCKS = [
    "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32"
    "3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
    "4803 3330 37c1 c0bf",
    "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970"
    "7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61"
    "6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
]
HUFFMAN_RESPONSE_BLOCKS = [
    "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad"
    "1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
    "4883 640e ffc1 c0bf",
    "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2"
    "e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
]


def inserted(name: bytes, value: bytes) -> bytes:
    """A field that goes into the table."""
    return b"\x40" + b"".join(
        bytes(hpack.hpack.encode_integer(len(text), 7)) + text for text in (name, value)
    )


@pytest.mark.parametrize("name", APPENDIX_C)
def test_the_examples_of_the_standard_are_decoded(name: str) -> None:
    blocks, expected = APPENDIX_C[name]
    decoder = Decoder(LIMIT_BYTES)
    assert [decoder.decode(bytes.fromhex(block)) for block in blocks] == expected


@pytest.mark.parametrize("blocks", [RESPONSE_BLOCKS, HUFFMAN_RESPONSE_BLOCKS], ids=["C.5", "C.6"])
def test_the_examples_with_eviction_are_decoded(blocks: list[str]) -> None:
    decoder = Decoder(LIMIT_BYTES)
    assert decoder.decode(b"\x3f\xe1\x01") == []  # a table of 256 bytes, as these examples have
    assert [decoder.decode(bytes.fromhex(block)) for block in blocks] == RESPONSES


BAD = {
    "index 0": b"\x80",
    "index beyond both tables": b"\xbe",
    "name index beyond both tables": b"\x7f\x00\x01a",
    "index cut off": b"\xff",
    "integer of more than five bytes": b"\x3f\x80\x80\x80\x80\x80\x00",
    "name cut off": b"\x40\x03ab",
    "no name": b"\x40",
    "no value": b"\x40\x01a",
    "value cut off": b"\x40\x01a\x02b",
    "value length cut off": b"\x40\x01a\x7f\x80",
    "Huffman text with the end of string": b"\x40\x01a\x84\xff\xff\xff\xff",
    "table of more than 4096 bytes": b"\x3f\xe2\x1f",
    "table size behind a field": b"\x82\x20",
}


@pytest.mark.parametrize("block", BAD.values(), ids=BAD)
def test_a_block_that_breaks_a_rule_is_refused(block: bytes) -> None:
    with pytest.raises(CompressionFault):
        Decoder(LIMIT_BYTES).decode(block)
    with pytest.raises(hpack.HPACKError):
        hpack.Decoder().decode(block, raw=True)


def test_a_table_of_4096_bytes_may_be_asked_for() -> None:
    assert Decoder(LIMIT_BYTES).decode(b"\x20\x3f\xe1\x1f") == []


def test_an_integer_may_be_longer_than_it_needs_to_be_up_to_five_bytes() -> None:
    assert Decoder(LIMIT_BYTES).decode(b"\x3f\x80\x80\x80\x80\x00") == []


def test_a_field_that_is_larger_than_the_table_empties_it() -> None:
    decoder = Decoder(LIMIT_BYTES)
    decoder.decode(inserted(b"a", b"b") + inserted(b"c", b"d"))
    assert decoder.decode(b"\xbf\xbe") == [(b"a", b"b"), (b"c", b"d")]
    decoder.decode(inserted(b"a", bytes(4_096 - 32)))
    with pytest.raises(CompressionFault):
        decoder.decode(b"\xbe")


def test_a_list_may_be_as_large_as_the_limit_and_no_larger() -> None:
    block = b"\x00\x01a\x02bc"  # 35 bytes, as they are counted
    assert Decoder(70).decode(block * 2) == [(b"a", b"bc")] * 2
    assert Decoder(69).decode(block * 2) is None


def test_what_is_too_large_still_counts_in_the_table() -> None:
    decoder = Decoder(40)
    assert decoder.decode(inserted(b"a", b"bc") * 2 + inserted(b"d", b"ef")) is None
    assert decoder.decode(b"\xbe") == [(b"d", b"ef")]


def test_a_small_block_does_not_become_a_large_list() -> None:
    decoder = Decoder(LIMIT_BYTES)
    decoder.decode(inserted(b"a", bytes(4_000)))
    assert decoder.decode(b"\xbe") == [(b"a", bytes(4_000))]
    assert decoder.decode(b"\xbe" * 5) is None


def test_a_list_far_beyond_the_limit_is_not_decoded_to_its_end() -> None:
    decoder = Decoder(100)
    decoder.decode(inserted(b"a", b"bc"))  # 35 bytes, as they are counted
    assert decoder.decode(b"\xbe" * (FLOOD_FACTOR * 100 // 35)) is None
    with pytest.raises(ConnectionFault) as caught:
        decoder.decode(b"\xbe" * 60_000 + b"\xff\xff\xff\xff\xff\xff\xff")  # the end would be a fault, too
    assert caught.value.reason is ErrorCode.ENHANCE_YOUR_CALM


names = st.sampled_from([b":path", b"te", b"user-agent", b"x", b"grpc-timeout"]) | st.binary(max_size=12)
fields = st.tuples(names, st.sampled_from([b"", b"trailers", b"gzip, deflate"]) | st.binary(max_size=200))
field_lists = st.lists(fields, max_size=8)


@given(st.lists(st.tuples(field_lists, st.booleans(), st.none() | st.integers(0, 4_096)), max_size=6))
def test_what_another_library_encodes_is_decoded(
    drawn: list[tuple[list[Field], bool, int | None]],
) -> None:
    encoder, decoder = hpack.Encoder(), Decoder(1_000_000)
    for each, is_huffman, table_bytes in drawn:
        if table_bytes is not None:
            encoder.header_table_size = table_bytes
        assert decoder.decode(encoder.encode(each, huffman=is_huffman)) == each


starts = st.sampled_from([0x82, 0xBE, 0xC0, 0xFF, 0x40, 0x41, 0x7F, 0x00, 0x0F, 0x10, 0x20, 0x3F, 0x01, 0x81])
random_blocks = st.lists(starts | st.integers(0, 255), max_size=24).map(bytes)


@examples(200)
@given(st.lists(random_blocks, min_size=1, max_size=4))
@example([b"\x3f\xe1\x1f\x20\x3f\xe1\x1f"])
@example([b"\x40\x00\x00\xbe", b"\x20\x40\x00\x00", b"\xbe"])
def test_random_blocks_are_decoded_or_refused_as_by_another_library(blocks: list[bytes]) -> None:
    reference, decoder = hpack.Decoder(), Decoder(65_536)
    for block in blocks:
        try:
            expected = [tuple(each) for each in reference.decode(block, raw=True)]
        except hpack.HPACKError:
            with pytest.raises(CompressionFault):
                decoder.decode(block)
            return
        assert decoder.decode(block) == expected


@given(st.lists(field_lists, max_size=3))
def test_our_blocks_are_decoded_by_another_library(drawn: list[list[Field]]) -> None:
    reference = hpack.Decoder(max_header_list_size=1_000_000)
    for each in drawn:
        assert [tuple(field) for field in reference.decode(encode_headers(each), raw=True)] == each
        assert not reference.header_table.dynamic_entries


def test_usual_fields_take_a_byte() -> None:
    assert encode_headers([(b":status", b"200"), (b":status", b"404")]) == b"\x88\x8d"


def test_a_block_that_gives_up_the_table_satisfies_a_client_that_has_made_it_smaller() -> None:
    reference = hpack.Decoder()
    reference.max_allowed_table_size = 0
    with pytest.raises(hpack.InvalidTableSizeError):
        reference.decode(encode_headers([(b":status", b"200")]))
    decoded = reference.decode(EMPTY_TABLE + encode_headers([(b":status", b"200")]), raw=True)
    assert [tuple(field) for field in decoded] == [(b":status", b"200")]


ENCODER = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH)


@given(st.binary(max_size=80))
@example(bytes(range(256)))
def test_text_survives_its_coding(text: bytes) -> None:
    assert decode_huffman(ENCODER.encode(text)) == text


@examples(200)
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


BAD_HUFFMAN = {
    "end of string": b"\xff\xff\xff\xff",
    "eight bits of padding": b"\x1f\xff",
    "padding with zeros": b"\x18",
    "cut within a long symbol": b"\xff\xe0",
}


@pytest.mark.parametrize("data", BAD_HUFFMAN.values(), ids=BAD_HUFFMAN)
def test_what_no_coder_writes_is_refused(data: bytes) -> None:
    with pytest.raises(CompressionFault):
        decode_huffman(data)
