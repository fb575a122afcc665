"""Fields of Protocol Buffers, for what is written by hand because it is written for every message."""

from functools import lru_cache
from struct import Struct as Layout

from penstock.runs import Run

TEXTS_REMEMBERED = 256
_LAST = tuple(bytes((number,)) for number in range(128))
_MORE = tuple(bytes((number | 128,)) for number in range(128))


def varint(number: int) -> bytes:
    """A number that is not negative: seven bits in each byte, the lowest first."""
    return _LAST[number] if number < 128 else _MORE[number & 127] + _upper(number >> 7)


@lru_cache(maxsize=4_096)
def _upper(number: int) -> bytes:
    """Bytes after the first of a number; consecutive numbers share them."""
    return varint(number) if number else b""


def varints(first: int, count: int) -> list[bytes]:
    """Numbers that follow one another."""
    end = first + count
    numbers: list[bytes] = []
    while first < end:
        stop = min(end, (first | 127) + 1)  # up to here they have all but the first byte in common
        upper = _upper(first >> 7)
        low = (_MORE if upper else _LAST)[first & 127 : (stop - 1 & 127) + 1]
        numbers += [byte + upper for byte in low]
        first = stop
    return numbers


def bytes_field(tag: bytes, data: bytes) -> bytes:
    """A field of bytes, or of text in UTF-8; the default is not written."""
    return b"%b%b%b" % (tag, varint(len(data)), data) if data else b""


def number_field(tag: bytes, number: int) -> bytes:
    """A field with a number; the default is not written."""
    return tag + varint(number) if number else b""


@lru_cache(maxsize=TEXTS_REMEMBERED)
def text_field(tag: bytes, text: str) -> bytes:
    """A field with a text that many messages have."""
    return bytes_field(tag, text.encode())


def payloads_of(run: Run) -> list[bytes]:
    """The payloads of a run, cut out of its slab at once."""
    if run.count == 1:
        return [run.slab[run.head : run.stride]]
    if run.head == run.stride:
        return [b""] * run.count
    return [payload for (payload,) in _layout(run.head, run.stride - run.head).iter_unpack(run.slab)]


@lru_cache(maxsize=1_024)
def _layout(head: int, size: int) -> Layout:
    """One frame of a slab, of which only the payload is wanted."""
    return Layout(f"{head}x{size}s")
