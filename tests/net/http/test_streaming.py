"""Answers that go on: begun by a hot route, written as things happen, and ended one way or another."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.net.http.request import Request
from penstock.net.http.streaming import ResponseStream
from penstock.net.http.timeouts import HURRY_S
from tests.net.http.serving import House, Peer, get, request
from tests.support.clock import ManualClock
from tests.support.waiting import TIMEOUT_S

KIB = 1024


class Tap:
    """A route whose answer goes on, and what happened to it."""

    def __init__(self, house: House, path: str = "/flow", **terms: Any) -> None:
        self.flows: list[ResponseStream] = []
        self.happened: list[str] = []
        self.news = asyncio.Event()
        self.is_draining_watched = False
        house.routes.add("GET", path, self.begin, **terms)

    def begin(self, request: Request) -> None:
        flow = request.begin(200, [("x-flow", "yes")], content_type="text/plain")
        flow.on_pause = lambda: self.note("pause")
        flow.on_resume = lambda: self.note("resume")
        flow.on_disconnect = lambda: self.note("gone")
        if self.is_draining_watched:
            flow.on_drain = lambda: self.note("drain")
        self.flows.append(flow)
        self.note("begin")

    def note(self, event: str) -> None:
        self.happened.append(event)
        self.news.set()

    async def until(self, event: str) -> None:
        """Wait until something has happened."""
        async with asyncio.timeout(20):
            while event not in self.happened:
                self.news.clear()
                await self.news.wait()


@pytest.fixture
async def tap(house: House) -> Tap:
    return Tap(house)


async def chunk(peer: Peer) -> bytes:
    size = int(await asyncio.wait_for(peer.reader.readuntil(b"\r\n"), 20), 16)
    return (await peer.reader.readexactly(size + 2))[:-2]


async def opened(house: House, tap: Tap, data: bytes = get("/flow")) -> tuple[Peer, bytes]:
    """A connection whose answer has begun, and the head of that answer."""
    peer = await house.connect()
    await peer.send(data)
    return peer, await asyncio.wait_for(peer.reader.readuntil(b"\r\n\r\n"), 20)


async def test_an_answer_goes_on_until_it_is_ended_and_the_connection_after_it(
    house: House, tap: Tap
) -> None:
    await house.open()
    peer, head = await opened(house, tap)
    assert head.startswith(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n")
    assert b"\r\nx-flow: yes\r\n" in head
    assert b"\r\ntransfer-encoding: chunked\r\n" in head
    [flow] = tap.flows
    flow.write(b"one")
    assert await chunk(peer) == b"one"
    flow.write(b"")  # an empty chunk would be the end
    flow.write(b"two")
    assert await chunk(peer) == b"two"
    assert not flow.is_over
    flow.end(b"three")
    flow.write(b"never")
    flow.end()
    assert flow.is_over
    assert await chunk(peer) == b"three"
    assert await chunk(peer) == b""
    assert (await peer.ask(get())).status == 200
    assert "gone" not in tap.happened
    assert house.door.figures()["responses_2xx"] == 2


async def test_what_is_written_in_one_turn_leaves_together(house: House, tap: Tap) -> None:
    await house.open()
    peer, _ = await opened(house, tap)
    [connection] = house.door.connections
    written: list[bytes] = []
    transport = connection.transport

    class Watched:
        def write(self, data: bytes) -> None:
            written.append(data)
            transport.write(data)

        def __getattr__(self, name: str) -> Any:
            return getattr(transport, name)

    connection.transport = Watched()  # type: ignore[assignment]
    for part in (b"a", b"bc"):
        tap.flows[0].write(part)
    assert [await chunk(peer), await chunk(peer)] == [b"a", b"bc"]
    assert written == [b"1\r\na\r\n2\r\nbc\r\n"]


async def test_a_client_of_http_1_0_reads_until_the_end_of_the_connection(house: House, tap: Tap) -> None:
    await house.open()
    peer, head = await opened(house, tap, get("/flow", "Connection: keep-alive", version="1.0"))
    assert b"\r\nconnection: close\r\n" in head
    assert b"transfer-encoding" not in head
    tap.flows[0].write(b"one,")
    tap.flows[0].end(b"two")
    assert await peer.rest() == b"one,two"


async def test_who_asks_for_the_head_alone_gets_no_more(house: House, tap: Tap) -> None:
    await house.open()
    peer = await house.connect()
    answer = await peer.ask(request("HEAD", "/flow"), "HEAD")
    assert answer.headers["transfer-encoding"] == "chunked"
    assert tap.flows[0].is_over
    tap.flows[0].write(b"never")
    assert (await peer.ask(get())).status == 200


async def test_a_client_that_goes_is_told_of_once(house: House, tap: Tap) -> None:
    await house.open()
    peer, _ = await opened(house, tap)
    await peer.close()
    await tap.until("gone")
    assert tap.flows[0].is_over
    tap.flows[0].write(b"never")
    tap.flows[0].end()
    assert tap.happened.count("gone") == 1


async def test_a_client_that_closes_its_direction_has_gone(house: House, tap: Tap) -> None:
    await house.open()
    peer, _ = await opened(house, tap)
    peer.writer.write_eof()
    await tap.until("gone")
    assert await peer.rest() == b""


async def test_who_does_not_read_pauses_the_answer_and_who_reads_on_resumes_it(
    house: House, tap: Tap
) -> None:
    await house.open(write_buffer_bytes=64 * KIB)
    peer = await house.connect(is_slow=True)
    await peer.send(get("/flow"))
    await tap.until("begin")
    [flow] = tap.flows
    sent = 0
    async with asyncio.timeout(TIMEOUT_S):
        while not flow.is_full:
            flow.write(bytes(32 * KIB))
            sent += 32 * KIB
            await asyncio.sleep(0)
    await tap.until("pause")
    await peer.reader.readuntil(b"\r\n\r\n")
    for _ in range(sent // (32 * KIB)):
        assert await chunk(peer) == bytes(32 * KIB)
    await tap.until("resume")
    assert not flow.is_full
    assert tap.happened == ["begin", "pause", "resume"]


async def test_who_reads_nothing_for_too_long_is_cut(house: House, tap: Tap) -> None:
    clock = ManualClock()
    await house.open(clock=clock, write_buffer_bytes=64 * KIB, write_timeout_s=30)
    peer = await house.connect(is_slow=True)
    await peer.send(get("/flow"))
    await tap.until("begin")
    async with asyncio.timeout(TIMEOUT_S):
        while not tap.flows[0].is_full:
            tap.flows[0].write(bytes(32 * KIB))
            await asyncio.sleep(0)
    [connection] = house.door.connections
    connection.check_deadline(clock.monotonic() + 29)
    assert len(house.door.connections) == 1
    connection.check_deadline(clock.monotonic() + 31)
    await tap.until("gone")


async def test_an_answer_that_goes_on_is_not_idle(house: House, tap: Tap) -> None:
    clock = ManualClock()
    await house.open(clock=clock, keep_alive_s=5, request_timeout_s=5)
    peer, _ = await opened(house, tap)
    [connection] = house.door.connections
    for _ in range(3):
        clock.advance(100)
        connection.check_deadline(clock.monotonic())
    tap.flows[0].end(b"late")
    assert await chunk(peer) == b"late"


# Several requests on one connection


async def test_behind_earlier_answers_it_is_full_until_its_turn(house: House, tap: Tap) -> None:
    await house.open()
    peer = await house.connect()
    await peer.send(get("/later") + get("/flow"))
    await tap.until("begin")
    [flow] = tap.flows
    assert flow.is_full
    flow.write(b"kept")
    house.held[0].respond(200, b"first")
    await tap.until("resume")
    assert not flow.is_full
    assert (await peer.answer()).body == b"first"
    await peer.reader.readuntil(b"\r\n\r\n")
    assert await chunk(peer) == b"kept"


async def test_nothing_behind_it_begins_before_its_end(house: House, tap: Tap) -> None:
    await house.open()
    peer, _ = await opened(house, tap, get("/flow") + get("/hot"))
    assert house.seen == []
    tap.flows[0].end()
    assert await chunk(peer) == b""
    assert (await peer.answer()).status == 200


async def test_a_route_can_wait_for_its_turn(house: House) -> None:
    patient = Tap(house, "/patient", waits_its_turn=True)
    await house.open()
    peer = await house.connect()
    await peer.send(get("/later") + get("/patient") + get("/later"))
    await house.is_held.wait()
    await house.has_read(len(get("/later") + get("/patient") + get("/later")))
    assert patient.flows == []
    house.held[0].respond(200, b"first")
    await patient.until("begin")
    assert not patient.flows[0].is_full
    assert len(house.held) == 1


# Draining


async def test_it_is_ended_when_the_server_begins_to_stop(house: House, tap: Tap) -> None:
    await house.open()
    peer, _ = await opened(house, tap)
    tap.flows[0].write(b"last")
    await house.door.close()
    assert await chunk(peer) == b"last"
    assert await chunk(peer) == b""
    assert await peer.rest() == b""
    assert tap.flows[0].is_over


async def test_a_route_may_have_a_last_word_when_the_server_stops(house: House, tap: Tap) -> None:
    clock = ManualClock()
    tap.is_draining_watched = True
    await house.open(clock=clock)
    peer, _ = await opened(house, tap)
    await house.door.close()
    clock.advance(10 * HURRY_S)
    await asyncio.sleep(0.25)  # the door looks at its connections a few times more
    assert tap.happened == ["begin", "drain"]
    assert not tap.flows[0].is_over
    tap.flows[0].end(b"goodbye")
    assert await chunk(peer) == b"goodbye"
    assert await chunk(peer) == b""
    assert await peer.rest() == b""


async def test_one_that_is_not_ended_in_time_is_cut(house: House, tap: Tap) -> None:
    tap.is_draining_watched = True
    await house.open()
    peer, _ = await opened(house, tap)
    await house.door.close()
    await house.door.finish(0.01)
    assert await peer.is_cut()
    await tap.until("gone")


# Mistakes


def fail_after_begin(request: Request) -> None:
    request.begin().write(b"half")
    raise RuntimeError("a mistake of ours")


def fail_at_begin(request: Request) -> None:
    request.begin(200, [("x", "a\r\nb: c")])


@pytest.mark.parametrize(("handler", "is_answered"), [(fail_after_begin, False), (fail_at_begin, True)])
async def test_a_route_that_fails_leaves_nobody_waiting(
    house: House, handler: Callable[[Request], None], is_answered: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    house.routes.add("GET", "/flow", handler)
    await house.open()
    peer = await house.connect()
    await peer.send(get("/flow"))
    if is_answered:
        assert (await peer.answer()).status == 500
    else:
        assert not (await peer_end(peer)).endswith(b"0\r\n\r\n")
    assert "request failed" in capsys.readouterr().out


async def peer_end(peer: Peer) -> bytes:
    """Everything until the connection ends, however it does."""
    received = b""
    try:
        while part := await asyncio.wait_for(peer.reader.read(KIB), 20):
            received += part
    except ConnectionError:
        pass
    return received


async def test_nothing_begins_after_an_answer_or_for_who_has_gone(house: House) -> None:
    flows: list[ResponseStream] = []

    def answer_twice(request: Request) -> None:
        request.respond(200, b"whole")
        flows.append(request.begin())

    house.routes.add("GET", "/flow", answer_twice)
    await house.open()
    peer = await house.connect()
    assert (await peer.ask(get("/flow"))).body == b"whole"
    await peer.send(get("/later?watched"))
    await house.is_held.wait()
    await peer.close()
    await house.is_disconnected.wait()
    flows.append(house.held[0].begin())
    assert [flow.is_over for flow in flows] == [True, True]
    flows[1].write(b"never")
    flows[1].end()
    assert not flows[1].is_full


# Pages


async def test_a_page_that_may_read_it_is_told_so(house: House, tap: Tap) -> None:
    await house.open(cors_origins=("https://example.org",))
    _, head = await opened(house, tap, get("/flow", "Origin: https://example.org"))
    assert b"\r\naccess-control-allow-origin: https://example.org\r\n" in head


async def test_a_stream_is_only_for_pages_that_are_welcome_whatever_they_accept(house: House) -> None:
    stream = Tap(house, "/stream", is_stream=True)
    await house.open()
    refused = await house.ask(get("/stream", "Origin: https://elsewhere.example"))
    assert (refused.status, stream.flows) == (403, [])
    _, head = await opened(house, stream, get("/stream", "Origin: http://localhost"))
    assert head.startswith(b"HTTP/1.1 200")
