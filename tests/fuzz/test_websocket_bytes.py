"""WebSocket requests and frames that no client should send: an answer, a close code, and nothing else."""

from random import Random

from websockets.frames import Frame, Opcode

from penstock.net.websocket.handshake import read_request, respond_to
from penstock.wire.websocket.frames import FrameReader
from tests.fuzz.damage import damaged, damaged_text, pieces
from tests.fuzz.verdict import judge, peak_bytes
from tests.net.websocket.peers import make_terms, request_bytes

LIMIT_BYTES = 2_000
TOKENS = (
    *("\r\n", "\n", "\r", ": ", ":", ",", " ", "\t", "\0", "/", "//", "%00", "é", "[::1", "]", "@"),
    *("Host: x\r\n", "Upgrade: h2c\r\n", "Origin: null\r\n", "Content-Length: 5\r\n", "x" * 300, "GET "),
    *("HTTP/1.0", "\ud800", "Origin: http://evil.example\r\n", "Sec-WebSocket-Key: x\r\n"),
    *("Sec-WebSocket-Protocol: mqtt, mqtt\r\n"),
)


def test_requests_get_an_answer(dice: Random, many: int) -> None:
    good = request_bytes(Origin="http://localhost").decode()
    terms = make_terms()
    statuses: set[int] = set()

    def make(dice: Random) -> bytes:
        text = damaged_text(good, dice, TOKENS).encode(errors="surrogatepass")
        return damaged(text, dice) if dice.random() < 0.2 else text

    def parse(data: bytes) -> None:
        head, end, _ = data.partition(b"\r\n\r\n")
        request = read_request(head + end)
        statuses.add(400 if request is None else respond_to(request, terms).response.status_code)

    tally = judge(parse, make, dice, many // 4, steps_per_unit=200)
    assert tally.refused == 0
    assert statuses >= {101, 400, 403}


def frames(dice: Random) -> tuple[bytes, bytes]:
    """A few frames in a row, and the payload that they carry."""
    sent, carried = [], []
    for _ in range(dice.randrange(1, 6)):
        size = dice.choice((0, 1, 5, 124, 125, 126, 127, 300, LIMIT_BYTES))
        payload = dice.randbytes(size)
        parts = [payload[: size // 2], payload[size // 2 :]] if dice.random() < 0.3 else [payload]
        for number, part in enumerate(parts):
            opcode = Opcode.CONT if number else Opcode.BINARY
            sent.append(Frame(opcode, part, number == len(parts) - 1).serialize(mask=True))
            if dice.random() < 0.2:
                sent.append(Frame(Opcode.PING, b"ping").serialize(mask=True))
        carried.append(payload)
    return b"".join(sent), b"".join(carried)


def outcome(chunks: list[bytes]) -> tuple[bytes, bytes | None, str]:
    reader = FrameReader(LIMIT_BYTES)
    found = []
    for chunk in chunks:
        if reader.error is None and reader.close is None:
            found.append(reader.feed(chunk))
    return (
        b"".join(found),
        reader.close,
        "" if reader.error is None else f"{reader.error.code} {reader.error}",
    )


def test_good_frames_carry_their_payload_however_they_are_cut(dice: Random, many: int) -> None:
    for _ in range(many // 10):
        data, carried = frames(dice)
        assert outcome([data]) == outcome(pieces(data, dice)) == (carried, None, "")


def test_damaged_frames_end_alike_in_one_piece_and_in_many(dice: Random, many: int) -> None:
    samples = [frames(dice)[0] for _ in range(50)]
    samples += [Frame(Opcode.CLOSE, b"\x03\xe8bye").serialize(mask=True) for _ in range(5)]
    endings: set[str] = set()

    def parse(data: bytes) -> None:
        whole = outcome([data])
        assert outcome(pieces(data, dice)) == whole
        endings.add(whole[2])

    judge(
        parse, lambda dice: damaged(dice.choice(samples), dice, samples), dice, many // 4, steps_per_unit=60
    )
    assert len(endings) > 8


def test_frames_that_are_announced_and_never_come_cost_nothing(dice: Random) -> None:
    def announce() -> None:
        for _ in range(200):
            reader = FrameReader(2**62)
            size = dice.choice((2**16, 2**31, 2**62))
            reader.feed(b"\x82\xff" + size.to_bytes(8, "big") + b"mask" + bytes(dice.randrange(64)))
            readers.append(reader)

    readers: list[FrameReader] = []
    announce()
    assert peak_bytes(announce) < 200 * 4 * 1024
