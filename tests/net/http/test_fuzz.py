"""Bytes from a seed: whatever comes, nothing crashes, hangs or is left behind."""

import asyncio
import random

import pytest

from tests.net.http.cases import BAD, GOOD
from tests.net.http.serving import House, get
from tests.support.waiting import until

REQUESTS = [case.data for case in GOOD] + [case.data for case in BAD]
ROUNDS = 40
AT_ONCE = 25
SCRAPS = [
    b"\r\n", b"\n", b"\r", b"\0", b" ", b":", b"0\r\n\r\n", b"GET ", b"HTTP/1.1", b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n", b"Connection: close\r\n", b"\xff" * 9,
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n", b"Host: localhost\r\n", b"a" * 300, b"%2e%2e/",
]  # fmt: skip


def damaged(random: random.Random) -> bytes:
    """One to three requests of the catalogue, with something wrong somewhere."""
    data = bytearray(b"".join(random.choice(REQUESTS) for _ in range(random.randint(1, 3))))
    for _ in range(random.randint(0, 4)):
        at = random.randrange(len(data) + 1)
        match random.randrange(4):
            case 0:
                data[at:at] = random.choice(SCRAPS)
            case 1:
                del data[at : at + random.randint(1, 20)]
            case 2:
                data[at : at + 1] = bytes([random.randrange(256)])
            case _:
                data[at:at] = data[: random.randint(1, 60)]
    return bytes(data)


async def throw(house: House, data: bytes, cuts: list[int]) -> None:
    peer = await house.connect()
    start = 0
    try:
        for cut in [*sorted(cuts), len(data)]:
            await peer.send(data[start:cut])
            start = cut
            await asyncio.sleep(0)
        peer.writer.write_eof()
        answered = await peer.rest()
    except OSError:
        return
    assert not answered or answered.startswith(b"HTTP/1.1 ")
    assert b"Traceback" not in answered
    assert b" 500 " not in answered


@pytest.mark.parametrize("seed", range(3))
async def test_no_bytes_crash_or_hang_it(house: House, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(seed)
    await house.open(max_head_bytes=4_096)
    for _ in range(ROUNDS):
        cases = [damaged(chance) for _ in range(AT_ONCE)]
        cuts = [[chance.randrange(len(data) + 1) for _ in range(chance.randint(0, 3))] for data in cases]
        await asyncio.gather(*(throw(house, data, at) for data, at in zip(cases, cuts, strict=True)))
    assert (await house.ask(get())).status == 200
    await until(lambda: not house.door.connections, "a connection is still open", every_s=0)
    printed = capsys.readouterr()
    assert "Traceback" not in printed.out + printed.err
