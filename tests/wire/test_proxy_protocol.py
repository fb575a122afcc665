"""PROXY headers of version 2: the client's address out of good ones, an error out of all others."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.proxy_protocol import (
    HEADER_BYTES,
    MAX_BYTES,
    SIGNATURE,
    BadProxyHeader,
    announced,
    check_start,
    parse,
)

LOCAL, PROXY = 0x20, 0x21
UNSPECIFIED, TCP4, UDP4, TCP6, UNIX = 0x00, 0x11, 0x12, 0x21, 0x31
TLVS = bytes.fromhex("020003") + b"abc" + bytes.fromhex("e00001ff")


def header(command: int, transport: int, rest: bytes) -> bytes:
    return SIGNATURE + bytes((command, transport)) + len(rest).to_bytes(2, "big") + rest


def addresses(source: str, port: int, target: str = "") -> bytes:
    packed = ip_address(source).packed + ip_address(target or source).packed
    return packed + port.to_bytes(2, "big") + (8883).to_bytes(2, "big")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (header(PROXY, TCP4, addresses("192.0.2.7", 51234, "10.0.0.1")), ("192.0.2.7", 51234)),
        (header(PROXY, TCP6, addresses("2001:db8::7", 51234, "::1")), ("2001:db8::7", 51234)),
        (header(PROXY, TCP6, addresses("::ffff:192.0.2.7", 80)), ("192.0.2.7", 80)),
        (header(PROXY, TCP4, addresses("192.0.2.7", 1) + TLVS), ("192.0.2.7", 1)),
        (header(PROXY, TCP6, addresses("2001:db8::7", 65535) + TLVS), ("2001:db8::7", 65535)),
    ],
)
def test_address_of_the_client_is_told(data: bytes, told: tuple[str, int]) -> None:
    assert announced(data[:HEADER_BYTES]) == len(data) - HEADER_BYTES
    assert parse(data) == told


@pytest.mark.parametrize(
    "data",
    [
        header(LOCAL, UNSPECIFIED, b""),
        header(LOCAL, TCP4, addresses("192.0.2.7", 51234)),
        header(LOCAL, 0xEE, TLVS),
        header(PROXY, UNSPECIFIED, b""),
        header(PROXY, UNSPECIFIED, TLVS),
        header(PROXY, UNIX, bytes(216)),
    ],
)
def test_without_an_internet_address_the_socket_has_to_tell(data: bytes) -> None:
    assert parse(data) is None


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"PROXY TCP4 192.0.2.7 10.0.0.1 51234 8883\r\n", "of version 1"),
        (b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04abcd", "no PROXY header"),
        (header(0x11, TCP4, addresses("192.0.2.7", 1)), "of version 1"),
        (header(0x31, TCP4, addresses("192.0.2.7", 1)), "of version 3"),
        (header(0x22, TCP4, addresses("192.0.2.7", 1)), "command 2"),
        (header(PROXY, UDP4, addresses("192.0.2.7", 1)), "transport 0x12"),
        (header(PROXY, 0x41, addresses("192.0.2.7", 1)), "transport 0x41"),
        (header(PROXY, 0x10, addresses("192.0.2.7", 1)), "transport 0x10"),
        (header(PROXY, TCP4, addresses("192.0.2.7", 1)[:-1]), "without its addresses"),
        (header(PROXY, TCP6, addresses("192.0.2.7", 1)), "without its addresses"),
        (header(PROXY, UNIX, bytes(215)), "without its addresses"),
        (header(PROXY, TCP4, addresses("192.0.2.7", 1))[:-1], "without its addresses"),
        (SIGNATURE + b"\x21\x11\x00", "cut short"),
        (SIGNATURE, "cut short"),
    ],
)
def test_anything_else_is_an_error_that_says_what_it_is(data: bytes, reason: str) -> None:
    with pytest.raises(BadProxyHeader, match=reason):
        parse(data)


def test_length_is_refused_before_the_bytes_have_come() -> None:
    largest = MAX_BYTES - HEADER_BYTES
    assert announced(header(PROXY, TCP4, bytes(largest))[:HEADER_BYTES]) == largest
    with pytest.raises(BadProxyHeader, match=str(MAX_BYTES + 1)):
        announced(header(PROXY, TCP4, bytes(largest + 1))[:HEADER_BYTES])


def test_what_cannot_become_a_header_is_refused_at_its_first_wrong_byte() -> None:
    for size in range(len(SIGNATURE) + 1):
        check_start(SIGNATURE[:size])
    check_start(header(PROXY, TCP4, addresses("192.0.2.7", 1)))
    for size in range(len(SIGNATURE)):
        with pytest.raises(BadProxyHeader):
            check_start(SIGNATURE[:size] + b"?")


@given(st.binary(max_size=64), st.binary(max_size=250))
def test_no_bytes_raise_anything_but_a_wire_error(first: bytes, rest: bytes) -> None:
    for data in (first, SIGNATURE + first, header(PROXY, TCP4, rest), header(PROXY, TCP6, rest)):
        try:
            told = parse(data)
        except BadProxyHeader:
            continue
        assert told is None or ip_address(told[0])
