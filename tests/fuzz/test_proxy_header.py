"""PROXY headers from whoever stands in front: an address, nothing, or one clear complaint."""

from ipaddress import ip_address
from random import Random

from penstock.wire.proxy_protocol import (
    HEADER_BYTES,
    MAX_BYTES,
    SIGNATURE,
    BadProxyHeader,
    announced,
    check_start,
    parse,
)
from tests.fuzz.damage import damaged
from tests.fuzz.verdict import judge

V4 = b"\x0a\x00\x00\x01\x7f\x00\x00\x01\x1f\x90\x07\x5b"
V6 = bytes(15) + b"\x01" + bytes(10) + b"\xff\xff\x7f\x00\x00\x01" + b"\x1f\x90\x07\x5b"
EXTRA = b"\x04\x00\x03abc"


def header(kind: int, transport: int, rest: bytes) -> bytes:
    return SIGNATURE + bytes((kind, transport)) + len(rest).to_bytes(2, "big") + rest


SAMPLES = (
    header(0x21, 0x11, V4),
    header(0x21, 0x21, V6),
    header(0x21, 0x11, V4 + EXTRA),
    header(0x21, 0x31, bytes(216)),
    header(0x20, 0x00, b""),
    header(0x21, 0x00, EXTRA),
    header(0x21, 0x11, V4 + bytes(4_000)),
    b"PROXY TCP4 10.0.0.1 127.0.0.1 8080 1883\r\n",
)


def test_headers_are_understood_or_refused(dice: Random, many: int) -> None:
    def make(dice: Random) -> bytes:
        sample = dice.choice(SAMPLES)
        return damaged(sample, dice, SAMPLES) if dice.random() < 0.8 else sample

    def parse_as_it_comes(data: bytes) -> None:
        for size in range(min(len(data), HEADER_BYTES)):
            check_start(data[:size])  # what was not refused so far is waited for
        size = announced(data[:HEADER_BYTES])
        assert HEADER_BYTES + size <= MAX_BYTES
        found = parse(data)
        if found is not None:
            host, port = found
            assert str(ip_address(host)) == host and 0 <= port <= 0xFFFF

    tally = judge(parse_as_it_comes, make, dice, many, steps_per_unit=5, error=BadProxyHeader)
    assert tally.taken > many // 20 and tally.refused > many // 10
