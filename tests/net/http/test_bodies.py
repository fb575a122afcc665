"""Bodies while they come: how they are kept, how many there may be, and whose are not read at all."""

import asyncio
import gzip
import sys

import pytest

from penstock.app import Server
from penstock.config import Settings
from penstock.doors.mqtt import MqttSettings
from penstock.doors.sidecar.settings import SidecarSettings
from penstock.net.http import HttpSettings
from penstock.net.http.request import SMALL_BYTES, gather
from tests.net.http.serving import House, get, post, request
from tests.net.http.test_auth import named
from tests.net.slow_access import SlowAccess, has_begun
from tests.support.waiting import until

CHUNKED = "Transfer-Encoding: chunked"


def test_tiny_parts_cost_little_more_than_their_bytes() -> None:
    parts: list[bytes] = []
    body = bytes(range(256)) * 400
    for at in range(0, len(body), 2):
        gather(parts, body[at : at + 2])
    assert b"".join(parts) == body
    assert sum(map(sys.getsizeof, parts)) < 1.1 * len(body)
    assert len(parts) <= len(body) // SMALL_BYTES + 1


@pytest.mark.parametrize("path", ["/hot", "/app/x"])
async def test_a_body_in_tiny_chunks_arrives_whole(house: House, path: str) -> None:
    await house.open()
    peer = await house.connect()
    chunks = b"".join(b"2\r\n%02d\r\n" % (number % 100) for number in range(50_000))
    answer = await peer.ask(request("POST", path, CHUNKED) + chunks + b"0\r\n\r\n")
    assert answer.json()["body"] == 100_000
    assert [seen.body[-4:] for seen in house.seen] == [b"9899"] * (path == "/hot")
    assert house.door.bodies.held_bytes == 0


@pytest.mark.parametrize(("path", "watched"), [("/later", "/later?watched"), ("/app/wait", "/app/forever")])
async def test_a_body_counts_until_its_request_is_answered_or_its_client_gone(
    house: House, path: str, watched: str
) -> None:
    await house.open()
    answered, gone = await house.connect(), await house.connect()
    await answered.send(post(path, bytes(50_000)))
    await gone.send(post(watched, bytes(50_000)))
    await until(lambda: house.door.bodies.held_bytes >= 100_000, "held bytes stayed below 100000", every_s=0)
    await gone.close()
    await until(lambda: house.door.bodies.held_bytes <= 50_000, "held bytes stayed above 50000", every_s=0)
    house.may_go_on.set()
    for held in house.held:
        held.respond(200)
    assert (await answered.answer()).status == 200
    assert house.door.bodies.held_bytes == 0


@pytest.mark.parametrize("path", ["/hot", "/app/x", "/api/v1/app"])
async def test_bodies_beyond_the_limit_of_all_are_told_to_come_again(house: House, path: str) -> None:
    await house.open(max_bodies_bytes=100_000)
    first, second = await house.connect(), await house.connect()
    await first.send(request("POST", path, "Content-Length: 200000") + bytes(150_000))  # alone it may
    await until(lambda: house.door.bodies.held_bytes >= 150_000, "held bytes stayed below 150000", every_s=0)
    refused = await second.ask(post(path, b"x"))
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    if path.startswith("/api"):
        assert (refused.json()["code"], refused.json()["retryable"]) == ("too-busy", True)
    assert await second.rest() == b""
    assert (await house.ask(get())).status == 200  # whoever brings no body is welcome
    assert (await first.ask(bytes(50_000))).json()["body"] == 200_000
    assert (await house.ask(post(path, b"x"))).json()["body"] == 1


async def test_what_nobody_wants_is_not_kept(house: House) -> None:
    await house.open()
    peer = await house.connect()
    foreign = "Origin: https://evil.example"
    await peer.send(get("/later") + request("POST", "/hot", foreign, "Content-Length: 100000"))
    await house.is_held.wait()
    await peer.send(bytes(99_999))
    await house.has_read(199_999 - 100_000)
    assert house.door.bodies.held_bytes == 0
    house.held[0].respond(200)
    assert (await peer.answer()).status == 200
    assert (await peer.answer()).status == 403


async def test_a_stranger_is_asked_who_it_is_before_its_body_is_read_whatever_is_before_it(
    house: House,
) -> None:
    slow = SlowAccess()
    await house.open(access=slow)
    peer = await house.connect()
    slow.may_end.set()
    known = get("/app/wait", named(1))
    await peer.send(known)
    await has_begun(slow)
    await house.has_started.wait()
    slow.may_end.clear()
    stranger = request("POST", "/app/x", named(2), "Content-Length: 1000000")
    await peer.send(stranger)
    await has_begun(slow)
    peer.writer.write(bytes(1_000_000))
    await house.has_read(len(known) + len(stranger) + 1)
    for _ in range(100):
        await asyncio.sleep(0)
    assert house.door.bodies.held_bytes == 0
    slow.may_end.set()
    house.may_go_on.set()
    assert (await peer.answer()).body == b"waited"
    assert (await peer.answer()).json()["body"] == 1_000_000


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", ["/health", "/ready", "/livez"])
async def test_the_open_paths_take_no_body_from_anybody(path: str, method: str) -> None:
    settings = Settings(
        mqtt=MqttSettings(port=0),
        http=HttpSettings(port=(0,)),
        sidecar=SidecarSettings(port=None),
        shutdown_timeout_s=2.0,
    )
    server = Server(settings)
    await server.start()
    for head, body in (("Content-Length: 1", b""), (CHUNKED, b"1\r\nx")):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.http.ports()[0])
        writer.write(request(method, path, head) + body)
        assert (await asyncio.wait_for(reader.read(), 10)).startswith(b"HTTP/1.1 413 ")
        writer.close()
    await server.stop()


@pytest.mark.parametrize("path", ["/hot", "/app/x"])
@pytest.mark.parametrize("coding", ["gzip", "deflate, gzip", "br", "x"])
async def test_an_encoded_body_is_refused(house: House, path: str, coding: str) -> None:
    """It would be stored as it came, and its coding forgotten (RFC 9110, 15.5.16)."""
    await house.open()
    peer = await house.connect()
    answer = await peer.ask(post(path, gzip.compress(b"payload"), f"Content-Encoding: {coding}"))
    assert (answer.status, answer.headers["accept-encoding"]) == (415, "identity")
    assert house.seen == []
    assert (await peer.ask(post(path, b"payload", "Content-Encoding: Identity"))).status == 200
    assert (await peer.ask(get(path, "Content-Encoding: gzip"))).status == 200
