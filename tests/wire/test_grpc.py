"""gRPC as bytes and values: messages however a body is cut, how calls end, and what callers add to them."""

import gzip
from binascii import b2a_base64
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.grpc import (
    HEAD,
    OK_TRAILERS,
    PREFIX_BYTES,
    CallFault,
    MessageReader,
    Status,
    check_encoding,
    decode_metadata,
    decode_timeout,
    encode_message,
    encode_refusal,
    encode_trailers,
    is_grpc,
    quote_text,
)
from penstock.wire.http2.hpack import Decoder

LIMIT_BYTES = 1_000


def compressed(message: bytes) -> bytes:
    data = gzip.compress(message)
    return b"\x01" + len(data).to_bytes(4, "big") + data


def fields_of(block: bytes) -> dict[bytes, bytes]:
    fields = Decoder(16_384).decode(block)
    assert fields is not None
    return dict(fields)


def fault_of(reader: MessageReader) -> Status | None:
    return None if reader.error is None else reader.error.status


def test_a_message_has_its_length_before_it() -> None:
    assert encode_message(b"abc") == b"\0\0\0\0\x03abc"
    assert encode_message(b"") == b"\0\0\0\0\0"


@given(st.lists(st.tuples(st.binary(max_size=50), st.booleans()), max_size=6), st.data())
def test_any_cut_of_a_body_gives_the_same_messages(
    drawn: list[tuple[bytes, bool]], data: st.DataObject
) -> None:
    body = b"".join(compressed(each) if is_small else encode_message(each) for each, is_small in drawn)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=8)))
    reader = MessageReader(LIMIT_BYTES, b"gzip")
    found = []
    for start, stop in zip([0, *cuts], [*cuts, len(body)], strict=True):
        found += reader.feed(body[start:stop])
    reader.finish()
    assert found == [each for each, _ in drawn]
    assert reader.error is None
    assert reader.held_bytes == 0


def test_a_message_that_comes_byte_by_byte_is_held_until_it_is_whole() -> None:
    reader = MessageReader(LIMIT_BYTES)
    body = encode_message(b"x" * 100) + encode_message(b"y")
    found = [message for index in range(len(body)) for message in reader.feed(body[index : index + 1])]
    assert found == [b"x" * 100, b"y"]
    assert reader.feed(body[:40]) == []
    assert reader.held_bytes == 40


def test_a_message_may_be_as_large_as_the_limit_and_no_larger() -> None:
    reader = MessageReader(LIMIT_BYTES)
    assert reader.feed(encode_message(bytes(LIMIT_BYTES))) == [bytes(LIMIT_BYTES)]
    assert reader.feed(encode_message(b"last") + encode_message(bytes(LIMIT_BYTES + 1))) == [b"last"]
    assert fault_of(reader) is Status.RESOURCE_EXHAUSTED
    assert reader.feed(encode_message(b"more")) == []


def test_a_large_message_is_refused_from_its_prefix_before_it_is_held() -> None:
    reader = MessageReader(LIMIT_BYTES)
    assert reader.feed(b"\0\xff\xff\xff\xff") == []
    assert fault_of(reader) is Status.RESOURCE_EXHAUSTED
    assert reader.held_bytes == 0


def test_a_compressed_message_is_inflated_up_to_the_limit_and_no_further() -> None:
    fitting, beyond = compressed(bytes(LIMIT_BYTES)), compressed(bytes(100_000_000))
    assert len(beyond) < 100_000
    reader = MessageReader(LIMIT_BYTES, b"gzip")
    assert reader.feed(fitting) == [bytes(LIMIT_BYTES)]
    for size in (LIMIT_BYTES + 1, LIMIT_BYTES + 100):
        reader = MessageReader(LIMIT_BYTES, b"gzip")
        assert reader.feed(compressed(bytes(size))) == []
        assert fault_of(reader) is Status.RESOURCE_EXHAUSTED
    reader = MessageReader(1_000_000, b"gzip")
    assert reader.feed(beyond) == []
    assert fault_of(reader) is Status.RESOURCE_EXHAUSTED


BAD_BODIES = {
    "flag that is neither 0 nor 1": b"\x02\0\0\0\0",
    "not gzip": b"\x01\0\0\0\x03abc",
    "gzip cut off": b"\x01\0\0\0\x14" + gzip.compress(b"some text")[:20],
    "bytes behind gzip": b"\x01\0\0\0\x1e" + (gzip.compress(b"some text") + bytes(9))[:30],
    "nothing as gzip": b"\x01\0\0\0\0",
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES)
def test_a_malformed_message_ends_the_call(body: bytes) -> None:
    reader = MessageReader(LIMIT_BYTES, b"gzip")
    assert reader.feed(encode_message(b"good") + body) == [b"good"]
    assert fault_of(reader) is Status.INTERNAL


def test_a_compressed_message_needs_an_announced_encoding() -> None:
    reader = MessageReader(LIMIT_BYTES)
    assert reader.feed(compressed(b"text")) == []
    assert fault_of(reader) is Status.INTERNAL


def test_an_encoding_that_nobody_knows_is_not_implemented() -> None:
    for known in (b"identity", b"gzip"):
        check_encoding(known)
    with pytest.raises(CallFault) as caught:
        check_encoding(b"snappy")
    assert caught.value.status is Status.UNIMPLEMENTED


def test_a_body_that_ends_within_a_message_is_an_error() -> None:
    for size in (1, PREFIX_BYTES, PREFIX_BYTES + 2):
        reader = MessageReader(LIMIT_BYTES)
        assert reader.feed(encode_message(b"abc")[:size]) == []
        assert reader.error is None
        reader.finish()
        assert fault_of(reader) is Status.INTERNAL


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_no_bytes_make_the_reader_raise(pieces: list[bytes]) -> None:
    reader = MessageReader(20, b"gzip")
    for piece in pieces:
        assert all(len(message) <= 20 for message in reader.feed(piece))
        assert reader.held_bytes <= 20 + PREFIX_BYTES
    reader.finish()


TIMEOUTS = {
    b"1H": 3600.0,
    b"2M": 120.0,
    b"3S": 3.0,
    b"500m": 0.5,
    b"250u": 0.00025,
    b"99999999n": 0.099999999,
    b"0S": 0.0,
}


@pytest.mark.parametrize("value", TIMEOUTS)
def test_a_timeout_is_told_in_seconds(value: bytes) -> None:
    assert decode_timeout(value) == pytest.approx(TIMEOUTS[value])


@pytest.mark.parametrize(
    "value", [b"", b"S", b"1", b"1s", b"-1S", b"1.5S", b"123456789S", b"1S ", b"\xd9\xa1S"]
)
def test_what_is_no_timeout_is_refused(value: bytes) -> None:
    with pytest.raises(CallFault) as caught:
        decode_timeout(value)
    assert caught.value.status is Status.INTERNAL


def test_content_types_of_calls_are_known() -> None:
    for good in (b"application/grpc", b"application/grpc+proto", b"application/grpc; charset=utf-8"):
        assert is_grpc(good)
    for bad in (
        b"",
        b"application/grpc+json",
        b"application/grpc-web",
        b"application/json",
        b"application/grpcx",
    ):
        assert not is_grpc(bad)


def test_every_status_has_the_number_of_the_protocol() -> None:
    assert [status.value for status in Status] == list(range(17))
    assert fields_of(encode_trailers(Status.UNAUTHENTICATED)) == {b"grpc-status": b"16"}


def test_the_usual_blocks_say_what_they_should() -> None:
    assert fields_of(HEAD) == {b":status": b"200", b"content-type": b"application/grpc"}
    assert fields_of(OK_TRAILERS) == {b"grpc-status": b"0"}


def test_a_refusal_is_head_and_trailers_in_one() -> None:
    assert fields_of(encode_refusal(Status.NOT_FOUND, "no such topic")) == {
        b":status": b"200",
        b"content-type": b"application/grpc",
        b"grpc-status": b"5",
        b"grpc-message": b"no such topic",
    }
    refused = fields_of(encode_refusal(Status.UNIMPLEMENTED))
    assert refused[b"grpc-accept-encoding"] == b"identity,gzip"


@given(st.text(max_size=300))
def test_text_of_a_status_survives_its_quoting(text: str) -> None:
    quoted = quote_text(text)
    assert all(0x20 <= byte < 0x7F for byte in quoted)
    assert quoted == quoted.strip()
    assert unquote(quoted.decode()) == text.strip().encode("utf-8", "replace").decode()


def test_text_of_a_status_has_an_end() -> None:
    assert len(quote_text("ä" * 100_000)) == 6 * 1_024


names = st.from_regex(r"[0-9a-z_.\-]{1,12}", fullmatch=True).filter(
    lambda name: not name.startswith("grpc-") and not name.endswith("-bin") and name not in ("te", "host")
)
texts = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=20).map(str.strip)
metadata = st.lists(
    st.tuples(names, texts) | st.tuples(names.map("{}-bin".format), st.binary(max_size=20)), max_size=4
)


@given(metadata)
def test_metadata_is_read_as_it_was_given(given_metadata: list[tuple[str, str | bytes]]) -> None:
    fields = [
        (name.encode(), value.encode() if isinstance(value, str) else b2a_base64(value, newline=False))
        for name, value in given_metadata
    ]
    assert decode_metadata(fields) == given_metadata


def test_metadata_is_what_the_protocol_does_not_use_itself() -> None:
    fields = [
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        (b"grpc-timeout", b"1S"),
        (b"authorization", b"Basic YTpi"),
        (b"trace-bin", b"AAE=,Ag"),
    ]
    assert decode_metadata(fields) == [
        ("authorization", "Basic YTpi"),
        ("trace-bin", b"\0\x01"),
        ("trace-bin", b"\x02"),
    ]


@pytest.mark.parametrize("value", [b"?", b"A", b"AA=A", b"A A A", b"\xff\xff"])
def test_binary_metadata_that_is_not_base64_is_refused(value: bytes) -> None:
    with pytest.raises(CallFault):
        decode_metadata([(b"x-bin", value)])
