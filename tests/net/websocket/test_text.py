"""What is no UTF-8 ends the connection as soon as that is certain, wherever it stands and however it comes.

The list follows the sixth section of the Autobahn test suite, and Markus Kuhn's stress test behind it.
"""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Opcode

from penstock.wire.websocket.deflate import Deflate
from penstock.wire.websocket.encoding import Pinged
from penstock.wire.websocket.messages import MessageReader
from tests.net.websocket.message_peers import deflated, frame
from tests.net.websocket.peers import MIB

CONT = Opcode.CONT
GOOD = {
    "nothing": b"",
    "ASCII": b"Hello-plain",
    "two bytes": "Hello-µ@ßöäüàá-UTF-8!!".encode(),
    "three bytes": "κόσμε €".encode(),
    "four bytes": "😀𐍈".encode(),
    "first of one byte": b"\x00",
    "first of two bytes": b"\xc2\x80",
    "first of three bytes": b"\xe0\xa0\x80",
    "first of four bytes": b"\xf0\x90\x80\x80",
    "last of one byte": b"\x7f",
    "last of two bytes": b"\xdf\xbf",
    "last of three bytes": b"\xef\xbf\xbf",
    "last of all": b"\xf4\x8f\xbf\xbf",
    "last before surrogates": b"\xed\x9f\xbf",
    "first behind surrogates": b"\xee\x80\x80",
    "replacement character": b"\xef\xbf\xbd",
    "no characters": b"\xef\xbf\xbe\xf0\x9f\xbf\xbe\xf3\xaf\xbf\xbf\xf4\x8f\xbf\xbe",
}
BAD = {
    "lone continuation": b"\x80",
    "last continuation": b"\xbf",
    "two continuations": b"\x80\xbf",
    "many continuations": b"\x80\xbf" * 3,
    "all continuations": bytes(range(0x80, 0xC0)),
    "lead of two, then a space": b"\xc2 \xdf ",
    "lead of three, then a space": b"\xe1 \xef ",
    "lead of four, then a space": b"\xf1 \xf4 ",
    "lead of five": b"\xf8\x88\x80\x80\x80",
    "lead of six": b"\xfc\x84\x80\x80\x80\x80",
    "impossible byte": b"\xfe",
    "another impossible byte": b"\xff",
    "two impossible bytes": b"\xfe\xfe\xff\xff",
    "two of two, second missing": b"\xc2a",
    "three of three, last missing": b"\xe0\xa0a",
    "four of four, last missing": b"\xf0\x90\x80a",
    "slash in two": b"\xc0\xaf",
    "slash in three": b"\xe0\x80\xaf",
    "slash in four": b"\xf0\x80\x80\xaf",
    "slash in five": b"\xf8\x80\x80\x80\xaf",
    "slash in six": b"\xfc\x80\x80\x80\x80\xaf",
    "largest of two in one": b"\xc1\xbf",
    "largest of three in two": b"\xe0\x9f\xbf",
    "largest of four in three": b"\xf0\x8f\xbf\xbf",
    "zero in two": b"\xc0\x80",
    "zero in three": b"\xe0\x80\x80",
    "zero in four": b"\xf0\x80\x80\x80",
    "first surrogate": b"\xed\xa0\x80",
    "last high surrogate": b"\xed\xaf\xbf",
    "first low surrogate": b"\xed\xb0\x80",
    "last surrogate": b"\xed\xbf\xbf",
    "pair of surrogates": b"\xed\xa0\x80\xed\xb0\x80",
    "first beyond the last": b"\xf4\x90\x80\x80",
    "far beyond the last": b"\xf7\xbf\xbf\xbf",
}
CUT = {
    "one of two": b"\xc2",
    "one of three": b"\xe1",
    "two of three": b"\xe1\xbd",
    "one of four": b"\xf0",
    "two of four": b"\xf0\x9f",
    "three of four": b"\xf0\x9f\x98",
    "before surrogates": b"\xed\x9f",
    "lead of surrogates": b"\xed",
}
KOSME = "κόσμε".encode()


def certain_at(data: bytes) -> int:
    """How many bytes it takes to know that no text begins like this; more than there are if it may go on."""
    for size in range(1, len(data) + 1):
        tails = [b"", b"\x80", b"\x90", b"\xa0", b"\xbf", b"\x80\x80", b"\x90\x80", b"\xa0\x80"]
        tails += [b"\x80\x80\x80", b"\x90\x80\x80"]
        if not any(is_text(data[:size] + tail) for tail in tails):
            return size
    return len(data) + 1


def is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def failed_at(reader: MessageReader, pieces: list[bytes]) -> int | None:
    """Which of some pieces ended it, all of them for text that is none."""
    for number, piece in enumerate(pieces):
        reader.feed(piece)
        if reader.error is not None:
            assert reader.error.code == 1007
            return number
    return None


good = pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
bad = pytest.mark.parametrize("text", BAD.values(), ids=BAD)
cut = pytest.mark.parametrize("text", CUT.values(), ids=CUT)


@good
def test_good_text_is_good_in_every_kind_of_pieces(text: bytes) -> None:
    text = KOSME + text + KOSME
    whole = text.decode()
    assert MessageReader(MIB).feed(frame(text)) == [whole]
    single = [frame(b"", is_final=False), *(frame(bytes([byte]), CONT, is_final=False) for byte in text)]
    assert MessageReader(MIB).feed(b"".join([*single, frame(b"", CONT)])) == [whole]
    for where in range(len(text) + 1):
        reader = MessageReader(MIB)
        parts = frame(text[:where], is_final=False) + frame(text[where:], CONT)
        assert reader.feed(parts[:9]) + reader.feed(parts[9:]) == [whole]


@bad
def test_bad_text_is_refused_wherever_it_stands(text: bytes) -> None:
    for before, behind in product(
        [b"", b"a", KOSME, b"x" * 200, KOSME * 9_000], [b"", b"a", KOSME, b"x" * 200]
    ):
        reader = MessageReader(MIB)
        assert reader.feed(frame(b"good") + frame(before + text + behind) + frame(b"late")) == ["good"]
        assert reader.error is not None
        assert reader.error.code == 1007


@bad
def test_bad_text_is_refused_with_the_fragment_that_makes_it_certain(text: bytes) -> None:
    begun = [frame(KOSME, is_final=False)]
    single = [frame(bytes([byte]), CONT, is_final=False) for byte in text]
    assert failed_at(MessageReader(MIB), begun + single) == certain_at(text)


@bad
@pytest.mark.parametrize("size", [100, 1_000, 100_000])
def test_bad_text_is_refused_with_the_byte_that_makes_it_certain(text: bytes, size: int) -> None:
    whole = frame(KOSME + text + b"x" * size)  # a frame that is not whole for a long time
    start = len(whole) - size - len(text)
    pieces = [whole[:start], *(whole[start + at : start + at + 1] for at in range(len(text)))]
    assert failed_at(MessageReader(MIB), pieces) == certain_at(text)


@bad
def test_bad_text_is_refused_when_it_was_compressed(text: bytes) -> None:
    for cuts in ([], [1], [3, 3]):
        reader = MessageReader(MIB, deflate=Deflate(15, 15))
        assert failed_at(reader, [deflated(KOSME + text + KOSME, cuts=cuts)]) == 0


@cut
def test_a_text_may_not_end_within_a_character(text: bytes) -> None:
    for pieces in ([frame(text)], [frame(b"a" + text)], [frame(b"a", is_final=False), frame(text, CONT)]):
        assert failed_at(MessageReader(MIB), pieces) == len(pieces) - 1
    empty = [frame(text, is_final=False), frame(b"", CONT, is_final=False), frame(b"", CONT)]
    assert failed_at(MessageReader(MIB), empty) == 2


@bad
def test_binary_messages_may_hold_anything(text: bytes) -> None:
    reader = MessageReader(MIB)
    parts = [frame(text, Opcode.BINARY, is_final=False), frame(text, CONT), frame(text, Opcode.BINARY)]
    assert reader.feed(b"".join(parts)) == [text * 2, text]


@given(data=st.binary(max_size=30), sizes=st.lists(st.integers(1, 9), min_size=1))
def test_what_is_text_is_decided_as_python_decides_it(data: bytes, sizes: list[int]) -> None:
    reader = MessageReader(MIB)
    whole = frame(data[:15], is_final=False) + frame(data[15:], CONT)
    messages: list[str | bytes | Pinged] = []
    position = turn = 0
    while position < len(whole) and reader.error is None:
        messages += reader.feed(whole[position : position + sizes[turn % len(sizes)]])
        position, turn = position + sizes[turn % len(sizes)], turn + 1
    assert messages == ([data.decode()] if is_text(data) else [])
